/*
 * tile.c
 *		Panels: the columns of a tile of inner products.
 */
#include "distance/distance.h"

/* Dimensions that are interleaved at once, and 16-bit numbers of a word. */
#define STEP 4

static const int16 Zeros[STEP];

static inline uint64
LoadWord(const int16 *from)
{
	uint64		word;

	memcpy(&word, from, sizeof(word));
	return word;
}

static inline void
StoreWord(int16 *to, uint64 word)
{
	memcpy(to, &word, sizeof(word));
}

/*
 * Four dimensions of two neighbouring columns: the first pairs of both become
 * one word, and so do the second ones.
 */
static inline void
Interleave(const int16 *a, const int16 *b, int16 *panel)
{
	uint64		x = LoadWord(a);
	uint64		y = LoadWord(b);
	uint64		low = UINT64_C(0xffffffff);
	int16	   *next = panel + PIPEANN_PANEL_SIZE(PIPEANN_TILE_DIM);

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	StoreWord(panel, (x & low) | y << 32);
	StoreWord(next, x >> 32 | (y & ~low));
#else
	StoreWord(panel, (x & ~low) | y >> 32);
	StoreWord(next, x << 32 | (y & low));
#endif
}

void
PipeannTilePanel(const int16 *const *columns, int ncolumns, int dim,
				 int16 *panel)
{
	int			whole = dim / STEP * STEP;

	Assert(ncolumns >= 0 && ncolumns <= PIPEANN_TILE_COLUMNS);
	Assert(dim % PIPEANN_TILE_DIM == 0);

	for (int d = 0; d < whole; d += STEP)
		for (int c = 0; c < PIPEANN_TILE_COLUMNS; c += 2)
			Interleave(c < ncolumns ? columns[c] + d : Zeros,
					   c + 1 < ncolumns ? columns[c + 1] + d : Zeros,
					   panel + PIPEANN_PANEL_SIZE(d) + c * PIPEANN_TILE_DIM);
	if (whole < dim)
		for (int c = 0; c < PIPEANN_TILE_COLUMNS; c++)
			memcpy(panel + PIPEANN_PANEL_SIZE(whole) + c * PIPEANN_TILE_DIM,
				   c < ncolumns ? columns[c] + whole : Zeros,
				   sizeof(int16) * PIPEANN_TILE_DIM);
}
