/*
 * tile.h
 *		What sets have in common for tiles; private to distance/.
 */
#ifndef PIPEANN_TILE_H
#define PIPEANN_TILE_H

#include "distance/distance.h"

/* Two neighbouring elements of a row, in the order of memory. */
static inline int32
LoadPair(const int16 *row)
{
	int32		pair;

	memcpy(&pair, row, sizeof(pair));
	return pair;
}

/* tile_near in portable C, for sets that have none of their own. */
static inline void
PortableTileNear(const int32 *row_norms, const int32 *column_norms,
				 const int32 *row_limits, const int32 *column_limits,
				 int32 *restrict tile, uint16 *near)
{
	for (int r = 0; r < PIPEANN_TILE_ROWS; r++, tile += PIPEANN_TILE_COLUMNS)
	{
		uint16		bits = 0;

		for (int c = 0; c < PIPEANN_TILE_COLUMNS; c++)
		{
			int32		d = row_norms[r] + column_norms[c] - tile[c];

			tile[c] = Max(d, 0);
		}
		for (int c = 0; c < PIPEANN_TILE_COLUMNS; c++)
			bits |= (uint16) ((tile[c] < row_limits[r]) |
							  (tile[c] < column_limits[c])) << c;
		near[r] = bits;
	}
}

#endif							/* PIPEANN_TILE_H */
