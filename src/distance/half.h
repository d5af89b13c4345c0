/*
 * half.h
 *		IEEE 754 binary16, and elements of any storage, in portable C; private to
 *		distance/, others call PipeannHalfToFloat().
 */
#ifndef PIPEANN_HALF_H
#define PIPEANN_HALF_H

#include "base/base.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

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

#endif							/* PIPEANN_HALF_H */
