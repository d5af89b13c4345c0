/*
 * exact.c
 *		Exact answers, to many queries in one pass over all nodes.
 *
 * A few dozen of all nodes are near enough to a query to be measured. Which ones is seen
 * in blocks: inner products of 16-bit integers, whose error has a bound.
 */
#include "postgres.h"

#include <math.h>

#include "distance/distance.h"
#include "distance/sparse.h"
#include "io/io.h"
#include "recall/recall.h"

#define ROWS PIPEANN_TILE_ROWS
#define COLUMNS PIPEANN_TILE_COLUMNS

/*
 * The longest query gets the first length in fixed point, nodes that are longer than the
 * second are measured without a look. So no product is beyond FARTHEST, which stands
 * for half of the squared lengths where only products count.
 */
#define USUAL_LENGTH 24000.0
#define LONGEST 30000.0
#define FARTHEST (1 << 30)

/* Answers in the making. */
typedef struct Exact
{
	PipeannIndexView *view;
	PipeannAsked *asked;
	int			n;
	PipeannStorage form;		/* in which vectors are compared */
	const void **queries;		/* [n] of the kernels that are used */

	/* Nodes that wait for being compared, ROWS of them at the most. */
	int			nrows;
	uint32		ids[ROWS];
	float		aux[ROWS];
	float	   *x;				/* [ROWS][width] */
	Size		width;

	/* Fixed point, if there is a scale: else all are measured. */
	double		scale;
	double		error;			/* of a product, at the most */
	int			fixed_dim;
	float	   *zeros;			/* [dim] */
	int16	   *fixed;			/* [ROWS][fixed_dim] */
	int16	   *panels;			/* of queries */
	int32	   *half_norm;		/* [n], and room for whole panels */
	int32	   *limit;			/* of half of the squared distance, the same */
} Exact;

/* Make x[dim], which is as long as that, fixed point. Returns half of its squared length. */
static int32
ToFixed(const Exact *e, const float *x, float scale, double length, int16 *out)
{
	int			dim = e->view->meta.layout.dim;

	PipeannKernel->to_fixed(x, e->zeros, scale, dim, out);
	if (e->fixed_dim > dim)
		out[dim] = 0;
	return e->view->meta.layout.metric != PIPEANN_L2 ? FARTHEST / 2 :
		(int32) (length * length / 2);
}

static double
LengthOf(const float *x, int dim)
{
	return sqrt(PipeannKernel->dot[PIPEANN_FLOAT4] (x, x, dim));
}

/* The length of the longest query, or 0 if lengths tell nothing. */
static double
LongestQuery(const Exact *e)
{
	const PipeannLayout *l = &e->view->meta.layout;
	double		longest = 0;

	if (l->metric != PIPEANN_L2 && l->metric != PIPEANN_IP &&
		l->metric != PIPEANN_COSINE)
		return 0;
	for (int q = 0; q < e->n && e->form == PIPEANN_FLOAT4; q++)
		longest = Max(longest, LengthOf(e->asked[q].query, l->dim));
	return isfinite(longest) ? longest : 0;
}

/* Queries in fixed point. Products of these with nodes' err by half a unit an element. */
static void
FixQueries(Exact *e)
{
	const PipeannLayout *l = &e->view->meta.layout;
	double		longest = LongestQuery(e);
	int			room = (e->n + COLUMNS - 1) / COLUMNS * COLUMNS;
	int16	   *fixed;

	if (longest == 0)
		return;
	e->scale = USUAL_LENGTH / longest;
	e->error = 1.05 * LONGEST * sqrt(l->dim) + l->dim;
	e->fixed_dim = TYPEALIGN(PIPEANN_TILE_DIM, l->dim);
	e->zeros = PipeannAllocZero(mul_size(l->dim, sizeof(float)));
	e->fixed = PipeannArray(int16, mul_size(ROWS, e->fixed_dim));
	e->panels = PipeannArray(int16, mul_size(room, e->fixed_dim));
	e->half_norm = PipeannAllocZero(mul_size(room, sizeof(int32)));
	e->limit = PipeannAllocZero(mul_size(room, sizeof(int32)));
	fixed = PipeannArray(int16, mul_size(COLUMNS, e->fixed_dim));
	for (int first = 0; first < e->n; first += COLUMNS)
	{
		const int16 *columns[COLUMNS];
		int			n = Min(e->n - first, COLUMNS);

		for (int c = 0; c < n; c++)
		{
			const float *query = e->asked[first + c].query;
			int16	   *out = fixed + (Size) c * e->fixed_dim;

			e->half_norm[first + c] =
				ToFixed(e, query, (float) e->scale,
						e->scale * LengthOf(query, l->dim), out);
			e->limit[first + c] = INT32_MAX;
			columns[c] = out;
		}
		PipeannTilePanel(columns, n, e->fixed_dim,
						 e->panels + (Size) first * e->fixed_dim);
	}
	pfree(fixed);
}

/* Set the distance in fixed point that a node of the answer cannot exceed. */
static void
SetLimit(Exact *e, int q)
{
	const PipeannAsked *asked = &e->asked[q];
	double		key = e->scale * e->scale * asked->nearest[asked->k - 1];
	double		limit = e->error + (e->view->meta.layout.metric == PIPEANN_L2 ?
									key / 2 : FARTHEST + key);

	e->limit[q] = (int32) Min(Max(limit, 0), INT32_MAX);
}

/* Measure a node that waits, and see whether it is one of the nearest. */
static void
Measure(Exact *e, int q, int row)
{
	PipeannAsked *asked = &e->asked[q];
	const float *x = e->x + row * e->width;
	float		dist;
	int			at = asked->n;

	if (asked->own == e->ids[row])
		return;
	dist = PipeannExactDistance(&e->view->meta.layout, e->queries[q],
								PipeannIsSparse(e->form) ? PipeannSparseBehind(x) : x,
								e->form, e->aux[row]);
	if (at == asked->k && !(dist < asked->nearest[at - 1]))
		return;
	if (at == asked->k)
		at--;
	else
		asked->n++;
	for (; at > 0 && asked->nearest[at - 1] > dist; at--)
		asked->nearest[at] = asked->nearest[at - 1];
	asked->nearest[at] = dist;
	if (e->scale > 0 && asked->n == asked->k)
		SetLimit(e, q);
}

/* Make the nodes that wait fixed point, but for those that are too long. */
static void
FixRows(const Exact *e, const int16 **rows, int32 *half_norm, bool *too_long)
{
	const PipeannLayout *l = &e->view->meta.layout;

	for (int r = 0; r < e->nrows; r++)
	{
		const float *x = e->x + r * e->width;
		int16	   *out = e->fixed + (Size) r * e->fixed_dim;
		double		scale = e->scale *
			(l->metric == PIPEANN_COSINE ? e->aux[r] : 1);
		double		length = scale * LengthOf(x, l->dim);

		rows[r] = out;
		too_long[r] = !(length <= LONGEST);
		if (too_long[r])
		{
			memset(out, 0, e->fixed_dim * sizeof(int16));
			half_norm[r] = 0;
		}
		else
			half_norm[r] = ToFixed(e, x, (float) scale, length, out);
	}
	for (int r = e->nrows; r < ROWS; r++)
	{
		rows[r] = rows[0];
		half_norm[r] = half_norm[0];
	}
}

/* Compare the nodes that wait with all queries. */
static void
CompareRows(Exact *e)
{
	const int16 *rows[ROWS];
	int32		half_norm[ROWS];
	bool		too_long[ROWS];
	int32		none[ROWS] = {0};
	int32		tile[ROWS * COLUMNS];
	uint16		near[ROWS];

	if (e->nrows > 0 && e->scale > 0)
		FixRows(e, rows, half_norm, too_long);
	for (int first = 0; first < e->n && e->nrows > 0; first += COLUMNS)
	{
		int			n = Min(e->n - first, COLUMNS);

		if (e->scale > 0)
		{
			PipeannKernel->dot_tile(rows, e->panels + (Size) first * e->fixed_dim,
									e->fixed_dim, tile);
			PipeannKernel->tile_near(half_norm, e->half_norm + first, none,
									 e->limit + first, tile, near);
		}
		for (int r = 0; r < e->nrows; r++)
		{
			uint32		mask = e->scale > 0 && !too_long[r] ? near[r] : PG_UINT16_MAX;

			for (mask &= (1u << n) - 1; mask != 0; mask &= mask - 1)
				Measure(e, first + __builtin_ctz(mask), r);
		}
	}
	e->nrows = 0;
}

/* Copy a node's vector in the form that is compared. False if it is gone. */
static bool
CopyVector(const Exact *e, uint32 id, const PipeannSlot *slot, float *x)
{
	const PipeannLayout *l = &e->view->meta.layout;

	if (slot->flags & PIPEANN_SLOT_OUT_OF_LINE)
		return PipeannChainVector(e->view, id, slot, x);
	if (e->form == PIPEANN_BITS)
		memcpy(x, PipeannSlotVector(l, slot), PipeannVectorBytes(l->storage, l->dim));
	else
		PipeannVectorUnpack(PipeannSlotVector(l, slot), l->storage, l->dim, x);
	return true;
}

static void
Compare(uint32 page, const char *nodes, void *arg)
{
	Exact	   *e = arg;
	const PipeannLayout *l = &e->view->meta.layout;

	for (uint32 i = 0; i < l->slots_per_page; i++)
	{
		const PipeannSlot *slot = PipeannSlotAt(l, nodes, i);
		uint32		id = page * l->slots_per_page + i;

		if (!PipeannSlotIsLive(slot) ||
			!CopyVector(e, id, slot, e->x + e->nrows * e->width))
			continue;
		e->ids[e->nrows] = id;
		e->aux[e->nrows++] = slot->aux;
		if (e->nrows == ROWS)
			CompareRows(e);
	}
}

/*
 * Find the true nearest neighbours of n queries, as many as each asks for, in one pass
 * over all nodes.
 */
void
PipeannAnswerExactly(PipeannIndexView *view, PipeannAsked *asked, int n)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannCounters counters = {0};
	PipeannPageSource *source = PipeannViewSource(view, &counters);
	Exact		e = {.view = view,.asked = asked,.n = n,.form = PipeannWholeForm(l)};

	e.queries = palloc(mul_size(Max(n, 1), sizeof(void *)));
	e.width = PipeannFloats(l->storage, l->dim);
	e.x = PipeannArray(float, mul_size(ROWS, e.width));
	for (int i = 0; i < n; i++)
	{
		e.queries[i] = PipeannQueryFor(e.form, asked[i].query, l->dim,
									   e.form != PIPEANN_BITS ? NULL :
									   PipeannArray(float, l->dim));
		asked[i].nearest = PipeannArray(float, asked[i].k);
		asked[i].n = 0;
	}
	FixQueries(&e);
	if (n > 0)
		PipeannVisitPages(source, PipeannViewPages(view), Compare, &e);
	CompareRows(&e);
	PipeannSourceClose(source);
}
