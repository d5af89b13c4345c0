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

/* The terms of a sum over the elements of two vectors. */
typedef enum Term
{
	SQUARES,					/* of their differences */
	PRODUCTS,
	DIFFERENCES					/* absolute differences */
} Term;

/* Strings of bits that a kernel compares with one at once. */
#define BITS_AT_ONCE 4

/* IEEE 754 binary16, for single elements. */
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

/* Drop the low `shift` bits of value, rounding to nearest, ties to even. */
static inline uint32
ShiftRoundEven(uint32 value, int shift)
{
	uint32		half = (uint32) 1 << (shift - 1);
	uint32		rest = value & ((half << 1) - 1);
	uint32		result = value >> shift;

	if (rest > half || (rest == half && (result & 1)))
		result++;
	return result;
}

static inline uint16
FloatToHalf(float f)
{
	uint32		bits;
	uint32		sign;
	uint32		magnitude;
	int			exponent;

	memcpy(&bits, &f, sizeof(bits));
	sign = (bits >> 16) & 0x8000;
	magnitude = bits & 0x7fffffff;
	exponent = (int) (magnitude >> 23) - 127;

	if (magnitude > 0x7f800000)	/* NaN: keep the top of it, quiet */
		return sign | 0x7e00 | ((magnitude >> 13) & 0x1ff);
	if (exponent > 15)			/* too large, or infinity */
		return sign | 0x7c00;

	/*
	 * In both cases below a carry out of the mantissa rightly gives the next
	 * larger exponent, which is infinity above the largest number.
	 */
	if (exponent >= -14)
		return sign |
			ShiftRoundEven(magnitude - ((uint32) (127 - 15) << 23), 13);
	if (exponent >= -25)
	{
		/* subnormal: units of 2^-24, so shift by 14 for 2^-15, and so on */
		uint32		mantissa = (magnitude & 0x7fffff) | 0x800000;

		return sign | ShiftRoundEven(mantissa, -1 - exponent);
	}
	return sign;				/* at most half of the smallest: zero */
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
