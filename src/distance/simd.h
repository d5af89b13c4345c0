/*
 * simd.h
 *		Kernels for vector instructions, written once for all sets; private to distance/.
 *
 * The file of an instruction set includes this when it has defined
 *
 *	KERNEL, INLINE	what a function begins with, and one that is always inlined
 *	Floats, LANES	a register of floats, or several as one, and their number
 *	Bytes, BYTES	a register of bytes, and their number
 *	Ints			a register of 32-bit sums, of bytes' products
 *	V()				on x86-64, the name of an intrinsic of this width
 *	CENTROID_VECTORS	Floats of centroids' sums that are in registers at once; a multiple
 *					of a group's (64 centroids)
 *	Load()			elements from i on of a vector of any storage, times the scale if it
 *					is quantised
 *
 * and the other primitives that are called here, each one or a few instructions. One that
 * loads less than a register has by masks defines OWN_TAILS, and LoadTail() and
 * LoadBytesTail(); the others LastLanes() and LastBytes(), which clear all but the last n.
 */
#ifndef PIPEANN_SIMD_H
#define PIPEANN_SIMD_H

#include "distance/pq_scan.h"
#include "distance/sq.h"

#ifdef V
/* Primitives that differ in width alone between AVX2 and AVX-512. */
#define SetAll V(set1_ps)
#define LoadFloats V(loadu_ps)
#define Store V(storeu_ps)
#define Add V(add_ps)
#define Sub V(sub_ps)
#define Mul V(mul_ps)
#define MulAdd V(fmadd_ps)
#define NegMulAdd V(fnmadd_ps)
#define Least V(min_ps)
#define Most V(max_ps)
#define AddInts V(add_epi32)

INLINE Bytes
ByteDifference(Bytes a, Bytes b, bool is_signed)
{
	return is_signed ? V(sub_epi8) (V(max_epi8) (a, b), V(min_epi8) (a, b)) :
		V(sub_epi8) (V(max_epu8) (a, b), V(min_epu8) (a, b));
}

/* Half of the bytes, every other eight, as 16-bit numbers. */
INLINE Bytes
Widen(Bytes v, bool high, bool is_signed)
{
	Bytes		zero = NoInts();

	if (is_signed)
		return V(srai_epi16) (high ? V(unpackhi_epi8) (zero, v) : V(unpacklo_epi8) (zero, v), 8);
	return high ? V(unpackhi_epi8) (v, zero) : V(unpacklo_epi8) (v, zero);
}

/* Adds the products of four bytes to each sum. */
INLINE Ints
AddByteProducts(Ints sum, Bytes a, Bytes b, bool is_signed)
{
	Ints		p0 = V(madd_epi16) (Widen(a, false, is_signed), Widen(b, false, is_signed));
	Ints		p1 = V(madd_epi16) (Widen(a, true, is_signed), Widen(b, true, is_signed));

	return AddInts(sum, AddInts(p0, p1));
}
#endif							/* V */

#ifndef OWN_TAILS
/*
 * Elements i .. dim - 1, the last dim % LANES, not 0, with zeros in the other lanes.
 * Never reads outside of the vector: a long one is read up to its end, and lanes that were
 * summed already are cleared; a short one is copied.
 */
INLINE Floats
LoadTail(const void *v, PipeannStorage storage, int i, int dim)
{
	if (dim >= LANES)
		return LastLanes(Load(v, storage, dim - LANES, 0), dim - i);
	else
	{
		char		copy[LANES * sizeof(float)] = {0};

		memcpy(copy, v, dim * PipeannElementSize(storage));
		return Load(copy, storage, 0, 0);
	}
}

/* The same of bytes. */
INLINE Bytes
LoadBytesTail(const void *v, int i, int dim)
{
	if (dim >= BYTES)
		return LastBytes(LoadBytes(v, dim - BYTES), dim - i);
	else
	{
		char		copy[BYTES] = {0};

		memcpy(copy, v, dim);
		return LoadBytes(copy, 0);
	}
}
#endif

/* Returns sum with the terms of a register of elements added. */
INLINE Floats
AddTerm(Floats sum, Floats a, Floats b, Term term)
{
	Floats		d;

	if (term == PRODUCTS)
		return MulAdd(a, b, sum);
	d = Sub(a, b);
	return term == SQUARES ? MulAdd(d, d, sum) : Add(sum, Absolute(d));
}

/* Sum over i < dim of (a[i] - b[i])^2, a[i] * b[i] or |a[i] - b[i]|. */
INLINE float
FloatSum(const void *a, PipeannStorage sa, const void *b, PipeannStorage sb,
		 int dim, Term term)
{
	float		scale_a = SqScale(a, sa, dim);
	float		scale_b = SqScale(b, sb, dim);
	Floats		s0 = SetAll(0);
	Floats		s1 = s0;
	Floats		s2 = s0;
	Floats		s3 = s0;
	int			i = 0;

	for (; i + 4 * LANES <= dim; i += 4 * LANES)
	{
		s0 = AddTerm(s0, Load(a, sa, i, scale_a), Load(b, sb, i, scale_b), term);
		s1 = AddTerm(s1, Load(a, sa, i + LANES, scale_a),
					 Load(b, sb, i + LANES, scale_b), term);
		s2 = AddTerm(s2, Load(a, sa, i + 2 * LANES, scale_a),
					 Load(b, sb, i + 2 * LANES, scale_b), term);
		s3 = AddTerm(s3, Load(a, sa, i + 3 * LANES, scale_a),
					 Load(b, sb, i + 3 * LANES, scale_b), term);
	}
	for (; i + LANES <= dim; i += LANES)
		s0 = AddTerm(s0, Load(a, sa, i, scale_a), Load(b, sb, i, scale_b), term);
	if (i < dim)
		s1 = AddTerm(s1, LoadTail(a, sa, i, dim), LoadTail(b, sb, i, dim), term);
	return SumFloats(Add(Add(s0, s1), Add(s2, s3)));
}

/*
 * The difference of two signed bytes fits an unsigned byte, like that of two unsigned
 * ones.
 */
INLINE Ints
AddBytes(Ints sum, Bytes a, Bytes b, bool is_signed, bool is_dot)
{
	Bytes		d;

	if (is_dot)
		return AddByteProducts(sum, a, b, is_signed);
	d = ByteDifference(a, b, is_signed);
	return AddByteProducts(sum, d, d, false);
}

/* Bytes against bytes, exact (scalar.c). */
INLINE float
BytePair(const void *a, const void *b, int dim, bool is_signed, bool is_dot)
{
	Ints		s0 = NoInts();
	Ints		s1 = NoInts();
	int			i = 0;

	for (; i + 2 * BYTES <= dim; i += 2 * BYTES)
	{
		s0 = AddBytes(s0, LoadBytes(a, i), LoadBytes(b, i), is_signed, is_dot);
		s1 = AddBytes(s1, LoadBytes(a, i + BYTES), LoadBytes(b, i + BYTES),
					  is_signed, is_dot);
	}
	if (i + BYTES <= dim)
	{
		s0 = AddBytes(s0, LoadBytes(a, i), LoadBytes(b, i), is_signed, is_dot);
		i += BYTES;
	}
	if (i < dim)
		s1 = AddBytes(s1, LoadBytesTail(a, i, dim), LoadBytesTail(b, i, dim),
					  is_signed, is_dot);
	return (float) SumInts(AddInts(s0, s1));
}

/*
 * Several registers of sums for centroids, so that additions overlap. sum:
 * those of the centroids from number `first` on.
 */
INLINE void
SumCentroids(const float *x, const void *centroids, PipeannStorage storage,
			 int first, int len, Term term, Floats *sum)
{
	int			d = 0;

	/* the first difference needs no sum to be added to */
	if (term == PRODUCTS)
	{
		UNROLL(CENTROID_VECTORS)
		for (int j = 0; j < CENTROID_VECTORS; j++)
			sum[j] = SetAll(0);
	}
	else
	{
		Floats		value = SetAll(x[0]);

		UNROLL(CENTROID_VECTORS)
		for (int j = 0; j < CENTROID_VECTORS; j++)
		{
			sum[j] = Sub(value, Load(centroids, storage, first + LANES * j, 0));
			sum[j] = term == SQUARES ? Mul(sum[j], sum[j]) : Absolute(sum[j]);
		}
		d = 1;
	}
	for (; d < len; d++)
	{
		Floats		value = SetAll(x[d]);

		UNROLL(CENTROID_VECTORS)
		for (int j = 0; j < CENTROID_VECTORS; j++)
		{
			Floats		c = Load(centroids, storage, d * PQ_ROW + first + LANES * j, 0);

			sum[j] = term == PRODUCTS ? NegMulAdd(value, c, sum[j]) :
				AddTerm(sum[j], value, c, term);
		}
	}
}

INLINE void
Centroids(const float *x, const void *centroids, PipeannStorage storage,
		  int len, float *out, Term term)
{
	for (int k = 0; k < PQ_ROW; k += LANES * CENTROID_VECTORS)
	{
		Floats		sum[CENTROID_VECTORS];

		SumCentroids(x, centroids, storage, k, len, term, sum);
		UNROLL(CENTROID_VECTORS)
		for (int j = 0; j < CENTROID_VECTORS; j++)
			Store(out + k + LANES * j, sum[j]);
	}
}

/* Centroids whose least distance is kept, so that one group is looked through for its place. */
#define GROUP 64
#define GROUPS (PQ_ROW / GROUP)

/* One vector's distances, and in all lanes the least ones of each group. */
typedef struct Distances
{
	float		all[PQ_ROW];
	float		low[GROUPS][LANES];
} Distances;

/* NaN does not count as a distance: Least() then returns the second operand. */
INLINE void
SumAll(const float *x, const float *centroids, int len, Distances *distances)
{
	for (int k = 0; k < PQ_ROW; k += LANES * CENTROID_VECTORS)
	{
		Floats		sum[CENTROID_VECTORS];
		Floats		low = SetAll(__builtin_inff());

		SumCentroids(x, centroids, PIPEANN_FLOAT4, k, len, SQUARES, sum);
		UNROLL(CENTROID_VECTORS)
		for (int j = 0; j < CENTROID_VECTORS; j++)
		{
			Store(distances->all + k + LANES * j, sum[j]);
			low = Least(sum[j], low);
			if ((j + 1) * LANES % GROUP != 0)
				continue;
			Store(distances->low[(k + LANES * j) / GROUP], low);
			low = SetAll(__builtin_inff());
		}
	}
}

INLINE int
FindLeast(const Distances *distances)
{
	Floats		v[GROUPS];
	Floats		least;
	uint64		places = 0;
	int			first;

	UNROLL(4)
	for (int g = 0; g < GROUPS; g++)
		v[g] = LoadFloats(distances->low[g]);
	least = LeastLane(Least(Least(v[0], v[1]), Least(v[2], v[3])));
	first = __builtin_ctzll(EqualBits(v, least)) / LANES * GROUP;
	UNROLL(2)
	for (int i = 0; i < GROUP; i += 4 * LANES)
	{
		UNROLL(4)
		for (int j = 0; j < 4; j++)
			v[j] = LoadFloats(distances->all + first + i + LANES * j);
		places |= EqualBits(v, least) << i;
	}
	return places == 0 ? 0 : first + __builtin_ctzll(places);
}

/*
 * Vectors whose distances are computed before the least ones are found. Each of the two is
 * a chain of instructions that wait for each other, so that the processor needs to see
 * several vectors at once.
 */
#define NEAREST_BLOCK 8

KERNEL static void
CentroidNearest(const float *x, Size stride, int n, const float *centroids,
				int len, const PipeannNearest *out)
{
	uint8	   *codes = out->codes;
	Size		code_stride = out->code_stride;
	float	   *distances = out->distances;
	Distances	block[NEAREST_BLOCK] __attribute__((aligned(64)));

	for (int i = 0; i < n; i += NEAREST_BLOCK)
	{
		int			m = Min(n - i, NEAREST_BLOCK);

		for (int v = 0; v < m; v++)
			SumAll(x + (i + v) * stride, centroids, len, block + v);
		for (int v = 0; v < m; v++)
		{
			int			nearest = FindLeast(block + v);

			codes[(i + v) * code_stride] = nearest;
			if (distances != NULL)
				distances[i + v] = block[v].all[nearest];
		}
	}
}

/*
 * The last few elements of a long vector are converted again with those before them; a
 * short vector is copied, so that nothing outside of it is touched.
 */
INLINE void
ToFloat(const void *src, PipeannStorage storage, int dim, float *dst)
{
	float		scale = SqScale(src, storage, dim);
	int			i = 0;

	for (; i + LANES <= dim; i += LANES)
		Store(dst + i, Load(src, storage, i, scale));
	if (i == dim)
		return;
	if (dim >= LANES)
		Store(dst + dim - LANES, Load(src, storage, dim - LANES, 0));
	else
	{
		float		floats[LANES];

		Store(floats, LoadTail(src, storage, 0, dim));
		memcpy(dst, floats, dim * sizeof(float));
	}
}

/* Rounds as the default mode does, ties to even. */
INLINE void
Fix(Floats x, Floats offset, float scale, int16 *out)
{
	Floats		v = Mul(Sub(x, offset), SetAll(scale));

	v = Least(v, SetAll(PIPEANN_FIXED_MAX));
	StoreInt16(out, Most(v, SetAll(-PIPEANN_FIXED_MAX)));
}

/* The end of a vector is treated as in ToFloat(). */
KERNEL static void
ToFixed(const float *x, const float *offset, float scale, int dim, int16 *out)
{
	int			i = 0;

	for (; i + LANES <= dim; i += LANES)
		Fix(LoadFloats(x + i), LoadFloats(offset + i), scale, out + i);
	if (i == dim)
		return;
	if (dim >= LANES)
	{
		i = dim - LANES;
		Fix(LoadFloats(x + i), LoadFloats(offset + i), scale, out + i);
	}
	else
	{
		int16		fixed[LANES];

		Fix(LoadTail(x, PIPEANN_FLOAT4, 0, dim),
			LoadTail(offset, PIPEANN_FLOAT4, 0, dim), scale, fixed);
		memcpy(out, fixed, dim * sizeof(int16));
	}
}

KERNEL static void
ToHalf(const float *x, int dim, void *out)
{
	int			i = 0;

	for (; i + LANES <= dim; i += LANES)
		StoreHalf((uint16 *) out + i, LoadFloats(x + i));
	if (i == dim)
		return;
	if (dim >= LANES)
		StoreHalf((uint16 *) out + dim - LANES, LoadFloats(x + dim - LANES));
	else
	{
		uint16		half[LANES];

		StoreHalf(half, LoadTail(x, PIPEANN_FLOAT4, 0, dim));
		memcpy(out, half, dim * sizeof(uint16));
	}
}

#include "distance/kernels.h"

#endif							/* PIPEANN_SIMD_H */
