/*
 * sq.h
 *		Scalar quantisation of a vector in 12 to 14 bits an element, as far as it is
 *		portable C; private to distance/.
 *
 * A vector is rotated, so that all its elements are about equally large: in blocks of
 * SQ_BLOCK elements, their signs are changed at random and the Walsh-Hadamard transform
 * is taken (the first two steps of the fast Johnson-Lindenstrauss transform, Ailon and
 * Chazelle 2006). Rotating all vectors changes no distance and no product. The last block
 * overlaps the one before it if dim is not a multiple of SQ_BLOCK.
 *
 * Rotated elements become whole numbers, in units of the scale: the largest
 * element's size by that of the largest number. Eight numbers of b bits are b
 * bytes, lowest bits first. The scale follows the numbers, as a float: kernels
 * read 16 bytes for eight numbers, and so never beyond the vector.
 */
#ifndef PIPEANN_SQ_H
#define PIPEANN_SQ_H

#include <math.h>

#include "distance/common.h"

#define SQ_BLOCK PIPEANN_SQ_MIN_DIM

/*
 * Where the bits of each of eight numbers are in their b bytes: the first of the
 * three bytes that have them all, and how far left these have to move to bring the
 * number's highest bit to bit 31.
 */
#define SQ_BYTE(bits, i) ((i) * (bits) / 8)
#define SQ_SHIFT(bits, i) (32 - (bits) - (i) * (bits) % 8)

/* The same for instructions: three of 16 bytes and a zero for each of eight lanes. */
#define SQ_LANE_BYTES(bits, i) \
	SQ_BYTE(bits, i), SQ_BYTE(bits, i) + 1, SQ_BYTE(bits, i) + 2, -128
#define SQ_EIGHT(of, bits) \
	of(bits, 0), of(bits, 1), of(bits, 2), of(bits, 3), \
	of(bits, 4), of(bits, 5), of(bits, 6), of(bits, 7)
#define SQ_LANES(bits) { \
	.bytes = {SQ_EIGHT(SQ_LANE_BYTES, bits)}, \
	.shift = {SQ_EIGHT(SQ_SHIFT, bits)} \
}

typedef struct SqLanes
{
	int8		bytes[32];
	int32		shift[8];
} SqLanes;

/* NULL where there are no bits: of a query. */
ALWAYS_INLINE const SqLanes *
SqLanesFor(int bits)
{
	static const SqLanes lanes[] = {SQ_LANES(12), SQ_LANES(13), SQ_LANES(14)};

	return bits == 0 ? NULL : &lanes[bits - 12];
}

/* What the numbers of a quantised vector are multiplied by; 0 for other vectors. */
ALWAYS_INLINE float
SqScale(const void *v, PipeannStorage storage, int dim)
{
	float		scale = 0;

	if (PipeannSqBits(storage) == 0)
		return scale;
	memcpy(&scale, (const char *) v + dim / 8 * PipeannSqBits(storage),
		   sizeof(scale));
	return scale;
}

/* Number i of a quantised vector. */
ALWAYS_INLINE int32
SqNumber(const void *v, int bits, int i)
{
	const uint8 *p = (const uint8 *) v + i / 8 * bits + SQ_BYTE(bits, i % 8);
	uint32		number = (uint32) p[0] | (uint32) p[1] << 8 | (uint32) p[2] << 16;

	return (int32) (number << SQ_SHIFT(bits, i % 8)) >> (32 - bits);
}

/*
 * One step of the transform of a block: pairs at this distance.
 *
 * With PostgreSQL's -fwrapv a sum of indices may wrap, and gcc makes no vector
 * instructions of loops with one. Two pointers have none.
 */
ALWAYS_INLINE void
SqButterflies(float *restrict x, int distance)
{
	for (float *near = x; near < x + SQ_BLOCK; near += 2 * distance)
	{
		float	   *far = near + distance;

		for (int i = 0; i < distance; i++)
		{
			float		a = near[i];
			float		b = far[i];

			near[i] = a + b;
			far[i] = a - b;
		}
	}
}

/* The steps with the nearest, which are put apart before; distances are constants. */
ALWAYS_INLINE void
SqNear(float *restrict x)
{
	SqButterflies(x, 128);
	SqButterflies(x, 64);
	SqButterflies(x, 32);
}

/* The steps with all others. */
ALWAYS_INLINE void
SqFar(float *restrict x)
{
	SqNear(x);
	SqButterflies(x, 16);
	SqButterflies(x, 8);
}

/*
 * The transform of a block, or back. Neighbours are put 32 elements apart on the way,
 * since steps within a vector register cost more than that; it is as good a rotation.
 */
ALWAYS_INLINE void
SqTransform(float *restrict x, bool back)
{
	float		moved[SQ_BLOCK];

	if (back)
		SqNear(x);
	else
		SqFar(x);
	for (int i = 0; i < 32; i++)
		for (int k = 0; k < 8; k++)
			if (back)
				moved[i * 8 + k] = x[k * 32 + i];
			else
				moved[k * 32 + i] = x[i * 8 + k];
	if (back)
		SqFar(moved);
	else
		SqNear(moved);
	for (int i = 0; i < SQ_BLOCK; i++)
		x[i] = moved[i] * (1.0f / 16);	/* 1 / sqrt(SQ_BLOCK) */
}

/* Change signs by bits of a hash of their places. */
ALWAYS_INLINE void
SqSigns(float *restrict x)
{
	for (uint32 i = 0; i < SQ_BLOCK; i++)
	{
		uint32		hash = (i + 1) * 0x9E3779B1;
		uint32		bits;

		hash = (hash ^ hash >> 15) * 0x85EBCA6B;
		memcpy(&bits, &x[i], sizeof(bits));
		bits ^= hash & 0x80000000;
		memcpy(&x[i], &bits, sizeof(bits));
	}
}

/* The rotation of x[dim] in place, or back. */
ALWAYS_INLINE void
SqRotateBody(float *x, int dim, bool back)
{
	int			blocks = (dim + SQ_BLOCK - 1) / SQ_BLOCK;

	for (int k = 0; k < blocks; k++)
	{
		int			block = back ? blocks - 1 - k : k;
		float	   *at = x + Min(block * SQ_BLOCK, dim - SQ_BLOCK);

		if (!back)
			SqSigns(at);
		SqTransform(at, back);
		if (back)
			SqSigns(at);
	}
}

/* The size of the largest element; NaN if an element is infinite or NaN. */
ALWAYS_INLINE float
SqMost(const float *x, int dim)
{
	float		most[8] = {0};
	float		zero[8] = {0};
	float		result = 0;

	for (int i = 0; i < dim; i += 8)
		for (int k = 0; k < 8; k++)
		{
			float		size = fabsf(x[i + k]);

			most[k] = size > most[k] ? size : most[k];
			zero[k] += size * 0;
		}
	for (int k = 0; k < 8; k++)
		result = (most[k] > result ? most[k] : result) + zero[k];
	return result;
}

/* Four numbers x[4] / scale, rounded to whole ones, lowest bits first. */
ALWAYS_INLINE uint64
SqFour(const float *x, float scale, int bits)
{
	float		most = (float) ((1 << (bits - 1)) - 1);
	int32		numbers[4];
	uint64		result = 0;

	for (int k = 0; k < 4; k++)
	{
		float		number = x[k] / scale;

		number = number > most ? most : number;
		number = number < -most ? -most : number;
		numbers[k] = (int32) (number + (number < 0 ? -0.5f : 0.5f));
	}
	UNROLL(4)
	for (int k = 0; k < 4; k++)
		result |= (uint64) (numbers[k] & ((1 << bits) - 1)) << (k * bits);
	return result;
}

/* Eight numbers, to as many bytes as bits. */
ALWAYS_INLINE void
SqPack(const float *x, float scale, int bits, uint8 *to)
{
	uint64		low = SqFour(x, scale, bits);
	uint64		high = SqFour(x + 4, scale, bits);
	uint64		first = low | high << (4 * bits);
	uint64		rest = high >> (64 - 4 * bits);

	UNROLL(8)
	for (int k = 0; k < 8; k++)
		to[k] = (uint8) (first >> (8 * k));
	UNROLL(8)
	for (int k = 0; k < bits - 8; k++)
		to[8 + k] = (uint8) (rest >> (8 * k));
}

/*
 * Quantise a rotated vector. One of zeros, or of elements so small or large that there
 * is no scale, comes to be zeros.
 */
ALWAYS_INLINE void
SqQuantizeBody(const float *x, int bits, int dim, char *dst)
{
	float		scale = SqMost(x, dim) / (float) ((1 << (bits - 1)) - 1);

	if (!(scale > 0))
	{
		memset(dst, 0, dim / 8 * bits + sizeof(scale));
		return;
	}
	for (int i = 0; i < dim; i += 8)
		SqPack(x + i, scale, bits, (uint8 *) dst + i / 8 * bits);
	memcpy(dst + dim / 8 * bits, &scale, sizeof(scale));
}

#endif							/* PIPEANN_SQ_H */
