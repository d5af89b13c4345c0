/*
 * common.h
 *		What sets of kernels have in common, in portable C; private to distance/.
 */
#ifndef PIPEANN_KERNEL_COMMON_H
#define PIPEANN_KERNEL_COMMON_H

#include <math.h>

#include "base/metric.h"
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

/* What a tile has sums of: products of numbers, or ones of bits that differ or that are common. */
typedef enum TileTerm
{
	TILE_PRODUCTS,
	TILE_DIFFERENT,
	TILE_COMMON
} TileTerm;

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

/* ---------- the loop of code distances ---------- */

/*
 * Gathers cost more than loads on most processors, or save little. Rows of
 * smaller numbers cost a conversion, or round the distances by which
 * candidates are ordered. So rows are floats, and the time that remains is
 * that of memory. Hence
 *
 * - codes are prefetched PQ_PREFETCH ahead, with all their cache lines;
 * - four codes are summed side by side, so that four chains of additions are
 *   in flight, and a code is read four bytes at a time;
 * - long codes are scanned in blocks of PQ_BLOCK bytes for all neighbours, so
 *   that the block's rows of the table (32 KB) stay in the first-level cache.
 */

#define PQ_ROW 256				/* floats of a table's row, one per centroid */
#define PQ_BLOCK 32				/* bytes of a block */
#define PQ_PREFETCH 24			/* codes between a prefetch and its use */

/* Prefetch every cache line of a code; it may start anywhere in a line. */
ALWAYS_INLINE void
PqPrefetch(const uint8 *code, int nsubvectors)
{
	for (int i = 0; i < nsubvectors - 1; i += PIPEANN_CACHE_LINE)
		__builtin_prefetch(code + i);
	__builtin_prefetch(code + nsubvectors - 1);
}

ALWAYS_INLINE uint32
PqLoad4(const uint8 *code)
{
	uint32		word;

	memcpy(&word, code, sizeof(word));
	return word;
}

/* Byte i of a code that PqLoad4() has read. */
ALWAYS_INLINE uint32
PqByte(uint32 word, int i)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return (word >> (8 * i)) & 0xff;
#else
	return (word >> (24 - 8 * i)) & 0xff;
#endif
}

/*
 * Add to out, for four codes, the table's entries for bytes from `first` on.
 */
ALWAYS_INLINE void
PqSumFour(const float *table, const uint8 *const *codes, int first,
		  int nsubvectors, float *out)
{
	const uint8 *c0 = codes[0] + first;
	const uint8 *c1 = codes[1] + first;
	const uint8 *c2 = codes[2] + first;
	const uint8 *c3 = codes[3] + first;
	float		s0 = out[0];
	float		s1 = out[1];
	float		s2 = out[2];
	float		s3 = out[3];
	int			i = 0;

	for (; i + 4 <= nsubvectors; i += 4)
	{
		uint32		w0 = PqLoad4(c0 + i);
		uint32		w1 = PqLoad4(c1 + i);
		uint32		w2 = PqLoad4(c2 + i);
		uint32		w3 = PqLoad4(c3 + i);

		UNROLL(4)
		for (int k = 0; k < 4; k++)
		{
			const float *row = table + (i + k) * PQ_ROW;

			s0 += row[PqByte(w0, k)];
			s1 += row[PqByte(w1, k)];
			s2 += row[PqByte(w2, k)];
			s3 += row[PqByte(w3, k)];
		}
	}
	for (; i < nsubvectors; i++)
	{
		const float *row = table + i * PQ_ROW;

		s0 += row[c0[i]];
		s1 += row[c1[i]];
		s2 += row[c2[i]];
		s3 += row[c3[i]];
	}

	out[0] = s0;
	out[1] = s1;
	out[2] = s2;
	out[3] = s3;
}

/* The same for one code: the same order of additions, so the same result. */
ALWAYS_INLINE void
PqSumOne(const float *table, const uint8 *code, int nsubvectors, float *out)
{
	float		sum = *out;

	for (int i = 0; i < nsubvectors; i++)
		sum += table[i * PQ_ROW + code[i]];
	*out = sum;
}

ALWAYS_INLINE void
PqScanBody(const float *table, int nsubvectors, const uint8 *const *codes,
		   int n, float *out)
{
	int			ahead = Min(n, PQ_PREFETCH);

	for (int i = 0; i < ahead; i++)
		PqPrefetch(codes[i], nsubvectors);
	for (int i = 0; i < n; i++)
		out[i] = 0.0f;

	for (int first = 0; first < nsubvectors; first += PQ_BLOCK)
	{
		const float *rows = table + (Size) first * PQ_ROW;
		int			len = Min(PQ_BLOCK, nsubvectors - first);
		int			i = 0;

		for (; i + 4 <= n; i += 4)
		{
			/* the first block prefetches the codes, for all blocks */
			if (first == 0)
				for (; ahead < n && ahead < i + 4 + PQ_PREFETCH; ahead++)
					PqPrefetch(codes[ahead], nsubvectors);
			PqSumFour(rows, codes + i, first, len, out + i);
		}
		for (; i < n; i++)
			PqSumOne(rows, codes[i] + first, len, out + i);
	}
}

/* ---------- scalar quantisation, 12 to 14 bits an element ---------- */

/*
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

#endif							/* PIPEANN_KERNEL_COMMON_H */
