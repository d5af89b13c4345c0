/*
 * common.h
 *		What sets of kernels have in common, in portable C; private to distance/.
 */
#ifndef PIPEANN_KERNEL_COMMON_H
#define PIPEANN_KERNEL_COMMON_H

#include "distance/distance.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

#define PRAGMA(text) _Pragma(#text)

/*
 * Unroll the loop that follows, of n rounds; n is a literal. An array of
 * accumulators is kept in registers only if the loops over it are unrolled,
 * which gcc does not do at -O2 by itself.
 */
#if defined(__clang__)
#define UNROLL(n) PRAGMA(clang loop unroll_count(n))
#elif defined(__GNUC__)
#define UNROLL(n) PRAGMA(GCC unroll n)
#else
#define UNROLL(n)
#endif

/* IEEE 754 binary16; others call PipeannHalfToFloat(). */
static inline float
HalfToFloat(uint16 h)
{
	uint32		sign = (uint32) (h & 0x8000) << 16;
	uint32		exponent = (h >> 10) & 0x1f;
	uint32		mantissa = h & 0x3ff;
	uint32		bits;
	float		f;

	if (exponent == 0)
	{
		/* zero or subnormal: mantissa * 2^-24 is exact in a float */
		f = (float) mantissa * (1.0f / 16777216.0f);
		memcpy(&bits, &f, sizeof(bits));
		bits |= sign;
	}
	else if (exponent == 0x1f)
	{
		/* infinity or NaN; a NaN becomes a quiet one, as in hardware */
		bits = sign | 0x7f800000 | (mantissa << 13);
		if (mantissa != 0)
			bits |= 0x00400000;
	}
	else
		bits = sign | ((exponent + (127 - 15)) << 23) | (mantissa << 13);

	memcpy(&f, &bits, sizeof(f));
	return f;
}

/*
 * Element i of a stored vector, which need not be aligned. The storage is a
 * constant where kernels inline this.
 */
ALWAYS_INLINE float
LoadElement(const void *v, PipeannStorage storage, int i)
{
	const char *p = (const char *) v + i * PipeannElementSize(storage);
	uint16		h;
	float		f;

	switch (storage)
	{
		case PIPEANN_FLOAT4:
			memcpy(&f, p, sizeof(f));
			return f;
		case PIPEANN_FLOAT2:
			memcpy(&h, p, sizeof(h));
			return HalfToFloat(h);
		case PIPEANN_INT8:
			return *(const int8 *) p;
		default:
			return *(const uint8 *) p;
	}
}

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

#endif							/* PIPEANN_KERNEL_COMMON_H */
