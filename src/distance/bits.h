/*
 * bits.h
 *		Kernels of vectors of bits, in portable C; private to distance/.
 *
 * A population count is an instruction of every target that has a set of its own. A
 * set that counts more at once defines OWN_BIT_SUM, and BitSum().
 */
#ifndef PIPEANN_DISTANCE_BITS_H
#define PIPEANN_DISTANCE_BITS_H

#include "distance/common.h"

/* Codes between a prefetch and its use. */
#define BITS_AHEAD 16

#ifndef OWN_BIT_SUM
/* The last n < 8 bytes of a vector. */
ALWAYS_INLINE uint64
LastBits(const uint8 *p, Size n)
{
	uint64		word = 0;

	for (Size i = 0; i < n; i++)
		word = word << 8 | p[i];
	return word;
}

/* Ones where two vectors differ, or for PRODUCTS that they have in common. */
ALWAYS_INLINE float
BitSum(const void *a, const void *b, int dim, Term term)
{
	const uint8 *x = a;
	const uint8 *y = b;
	Size		bytes = PipeannVectorBytes(PIPEANN_BITS, dim);
	Size		i = 0;
	int			sum = 0;

	for (; i + sizeof(uint64) <= bytes; i += sizeof(uint64))
	{
		uint64		v;
		uint64		w;

		memcpy(&v, x + i, sizeof(v));
		memcpy(&w, y + i, sizeof(w));
		sum += __builtin_popcountll(term == PRODUCTS ? v & w : v ^ w);
	}
	if (i < bytes)
	{
		uint64		v = LastBits(x + i, bytes - i);
		uint64		w = LastBits(y + i, bytes - i);

		sum += __builtin_popcountll(term == PRODUCTS ? v & w : v ^ w);
	}
	return (float) sum;
}
#endif

/* By how much vectors with so many ones that they share, and others, differ from 0 to 1. */
ALWAYS_INLINE float
Jaccard(float different, float common)
{
	return common > 0 ? different / (different + common) : 1;
}

#endif							/* PIPEANN_DISTANCE_BITS_H */
