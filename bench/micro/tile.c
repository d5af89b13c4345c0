/*
 * tile.c
 *		Time of tiles of inner products and of what makes vectors ready for
 *		them, for each kernel set.
 *
 * The products of all pairs of a leaf, panels included: 240 vectors in 16-bit
 * numbers. Prints multiplications per ns, and ns per element of making panels,
 * fixed-point numbers, and floats of stored elements.
 */
#include "micro.h"

#define VECTORS 240				/* a multiple of a tile's rows and columns */
#define ROUNDS 30

typedef struct Leaf
{
	int			dim;
	float	   *x;				/* [VECTORS][dim] */
	float	   *offset;			/* [dim] */
	uint16	   *stored;			/* [VECTORS][dim] in any storage */
	int16	   *fixed;			/* [VECTORS][dim] */
	int16	   *panel;			/* on a cache line */
	int32		out[PIPEANN_TILE_ROWS * PIPEANN_TILE_COLUMNS];
} Leaf;

/* Of all vectors' panels, and of all products but for making the panels. */
static void
MeasureTiles(const PipeannKernels *set, Leaf *leaf, double *panels,
			 double *tiles)
{
	const int16 *vectors[VECTORS];
	double		start;

	*panels = 0;
	*tiles = 0;
	for (int i = 0; i < VECTORS; i++)
		vectors[i] = leaf->fixed + (Size) i * leaf->dim;
	for (int c = 0; c < VECTORS; c += PIPEANN_TILE_COLUMNS)
	{
		start = Now();
		PipeannTilePanel(vectors + c, PIPEANN_TILE_COLUMNS, leaf->dim,
						 leaf->panel);
		*panels += Now() - start;
		start = Now();
		for (int r = 0; r < VECTORS; r += PIPEANN_TILE_ROWS)
			set->dot_tile(vectors + r, leaf->panel, leaf->dim, leaf->out);
		*tiles += Now() - start;
	}
}

static double
MeasureFixed(const PipeannKernels *set, Leaf *leaf)
{
	double		start = Now();

	for (int i = 0; i < VECTORS; i++)
		set->to_fixed(leaf->x + (Size) i * leaf->dim, leaf->offset, 1000.0f,
					  leaf->dim, leaf->fixed + (Size) i * leaf->dim);
	return Now() - start;
}

static double
MeasureToFloat(const PipeannKernels *set, Leaf *leaf, PipeannStorage storage)
{
	Size		size = leaf->dim * PipeannElementSize(storage);
	double		start = Now();

	for (int i = 0; i < VECTORS; i++)
		set->to_float[storage] ((char *) leaf->stored + i * size, leaf->dim,
								leaf->x + (Size) i * leaf->dim);
	return Now() - start;
}

static void
MeasureSet(const PipeannKernels *set, Leaf *leaf)
{
	double		elements = (double) VECTORS * leaf->dim;
	double		best[5];

	for (int i = 0; i < 5; i++)
		best[i] = 1e18;
	for (int r = 0; r < ROUNDS; r++)
	{
		double		t[5];

		t[2] = MeasureToFloat(set, leaf, PIPEANN_UINT8);
		t[3] = MeasureToFloat(set, leaf, PIPEANN_FLOAT2);
		t[4] = MeasureFixed(set, leaf);
		MeasureTiles(set, leaf, &t[1], &t[0]);
		for (int i = 0; i < 5; i++)
			best[i] = Min(best[i], t[i]);
	}
	printf("%-7s %5d %8.1f %8.3f %8.3f %8.3f %8.3f\n", set->name, leaf->dim,
		   elements * VECTORS / best[0], best[1] / elements,
		   best[4] / elements, best[3] / elements, best[2] / elements);
	fflush(stdout);
}

static void
Measure(int dim)
{
	Size		size = (Size) VECTORS * dim;
	char	   *panel = palloc0(sizeof(int16) * PIPEANN_PANEL_SIZE(dim) +
								PIPEANN_CACHE_LINE);
	Leaf		leaf = {.dim = dim};

	leaf.panel = (int16 *) (((uintptr_t) panel + PIPEANN_CACHE_LINE - 1) &
							~(uintptr_t) (PIPEANN_CACHE_LINE - 1));
	leaf.x = palloc0(sizeof(float) * size);
	leaf.offset = palloc0(sizeof(float) * dim);
	leaf.stored = palloc0(sizeof(uint16) * size);
	leaf.fixed = palloc0(sizeof(int16) * size);
	for (Size i = 0; i < size; i++)
		leaf.stored[i] = 0x3c00 | (i * 7919 % 255); /* finite as a half */
	for (int i = 0; i < NUM_SETS; i++)
		if (Runs(sets[i]))
			MeasureSet(sets[i], &leaf);
	pfree(leaf.fixed);
	pfree(leaf.stored);
	pfree(leaf.offset);
	pfree(leaf.x);
	pfree(panel);
}

int
main(void)
{
	printf("products a ns; ns an element\nkernels   dim products    panel    fixed   float2    uint8\n");
	Measure(32);
	Measure(128);
	Measure(384);
	Measure(784);
	return 0;
}
