/*
 * avx2.c
 *		Distance kernels for x86-64 with AVX2, FMA and F16C (2013 and later).
 *
 * Every function carries the target attribute, so that the rest of the build
 * stays portable; dispatch.c checks the processor before one of them runs.
 */
#include "distance/distance.h"

#if defined(__x86_64__)

#include <cpuid.h>

#include "distance/avx2.h"
#include "distance/bits.h"
#include "distance/pq_scan.h"
#include "distance/sparse.h"
#include "distance/sq.h"

/* Masks: of the 8 lanes from place n on, the last n are set. */
static const int32 LaneMask[16] = {
	0, 0, 0, 0, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1
};

/* The same for 32 lanes of bytes. */
static const int8 ByteMask[64] = {
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
	-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1
};

AVX2_INLINE __m256
SqLoad8(const char *v, int bits, int i, float scale)
{
	const SqLanes *lanes = SqLanesFor(bits);
	__m128i		bytes = _mm_loadu_si128((const __m128i *) (v + i / 8 * bits));
	__m256i		numbers = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes),
											  _mm256_loadu_si256((const __m256i *) lanes->bytes));

	numbers = _mm256_sllv_epi32(numbers, Load8Ints(lanes->shift));
	numbers = _mm256_srai_epi32(numbers, 32 - bits);
	return _mm256_mul_ps(_mm256_cvtepi32_ps(numbers), _mm256_set1_ps(scale));
}

/*
 * Elements i .. i + 7 as floats, of a quantised vector with this scale; storage is a
 * constant where inlined.
 */
AVX2_INLINE __m256
Load8(const void *v, PipeannStorage storage, int i, float scale)
{
	const char *p = (const char *) v;
	__m128i		bytes;

	if (PipeannSqBits(storage) > 0)
		return SqLoad8(p, PipeannSqBits(storage), i, scale);
	switch (storage)
	{
		case PIPEANN_FLOAT4:
			return _mm256_loadu_ps((const float *) (p + (Size) i * 4));
		case PIPEANN_FLOAT2:
			p += (Size) i * 2;
			return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) p));
		case PIPEANN_INT8:
			bytes = _mm_loadl_epi64((const __m128i *) (p + i));
			return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
		default:
			bytes = _mm_loadl_epi64((const __m128i *) (p + i));
			return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
	}
}

AVX2_INLINE float
SumFloats(__m256 v)
{
	__m128		s = _mm_add_ps(_mm256_castps256_ps128(v),
							   _mm256_extractf128_ps(v, 1));

	s = _mm_add_ps(s, _mm_movehl_ps(s, s));
	s = _mm_add_ss(s, _mm_movehdup_ps(s));
	return _mm_cvtss_f32(s);
}

AVX2_INLINE int32
SumInts(__m256i v)
{
	__m128i		s = _mm_add_epi32(_mm256_castsi256_si128(v),
								  _mm256_extracti128_si256(v, 1));

	s = _mm_add_epi32(s, _mm_shuffle_epi32(s, _MM_SHUFFLE(1, 0, 3, 2)));
	s = _mm_add_epi32(s, _mm_shuffle_epi32(s, _MM_SHUFFLE(2, 3, 0, 1)));
	return _mm_cvtsi128_si32(s);
}

/*
 * The last dim % 8 elements, which must not be 0, with zeros in the other
 * lanes. Never reads outside of the vector: a long one is read from 8 before
 * its end, and lanes that were summed already are cleared; a short one is
 * copied.
 */
AVX2_INLINE __m256
LoadTail(const void *v, PipeannStorage storage, int dim)
{
	if (dim >= 8)
	{
		const void *lanes = LaneMask + dim % 8;
		__m256i		mask = _mm256_loadu_si256((const __m256i *) lanes);

		return _mm256_and_ps(Load8(v, storage, dim - 8, 0),
							 _mm256_castsi256_ps(mask));
	}
	else
	{
		char		copy[32] = {0};

		memcpy(copy, v, dim * PipeannElementSize(storage));
		return Load8(copy, storage, 0, 0);
	}
}

/* Without their signs. */
AVX2_INLINE __m256
Size8(__m256 v)
{
	return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
}

/* Returns sum with the terms of eight elements added. */
AVX2_INLINE __m256
AddTerm(__m256 sum, __m256 a, __m256 b, Term term)
{
	__m256		d;

	if (term == PRODUCTS)
		return _mm256_fmadd_ps(a, b, sum);
	d = _mm256_sub_ps(a, b);
	if (term == DIFFERENCES)
		return _mm256_add_ps(Size8(d), sum);
	return _mm256_fmadd_ps(d, d, sum);
}

/* Sum over i < dim of (a[i] - b[i])^2, a[i] * b[i] or |a[i] - b[i]|. */
AVX2_INLINE float
FloatSum(const void *a, PipeannStorage sa, const void *b, PipeannStorage sb,
		 int dim, Term term)
{
	float		scale_a = SqScale(a, sa, dim);
	float		scale_b = SqScale(b, sb, dim);
	__m256		s0 = _mm256_setzero_ps();
	__m256		s1 = _mm256_setzero_ps();
	__m256		s2 = _mm256_setzero_ps();
	__m256		s3 = _mm256_setzero_ps();
	int			i = 0;

	for (; i + 32 <= dim; i += 32)
	{
		s0 = AddTerm(s0, Load8(a, sa, i, scale_a),
					 Load8(b, sb, i, scale_b), term);
		s1 = AddTerm(s1, Load8(a, sa, i + 8, scale_a),
					 Load8(b, sb, i + 8, scale_b), term);
		s2 = AddTerm(s2, Load8(a, sa, i + 16, scale_a),
					 Load8(b, sb, i + 16, scale_b), term);
		s3 = AddTerm(s3, Load8(a, sa, i + 24, scale_a),
					 Load8(b, sb, i + 24, scale_b), term);
	}
	for (; i + 8 <= dim; i += 8)
		s0 = AddTerm(s0, Load8(a, sa, i, scale_a),
					 Load8(b, sb, i, scale_b), term);
	if (i < dim)
		s1 = AddTerm(s1, LoadTail(a, sa, dim), LoadTail(b, sb, dim), term);
	return SumFloats(_mm256_add_ps(_mm256_add_ps(s0, s1),
								   _mm256_add_ps(s2, s3)));
}

/* 32 bytes of an integer vector from element i on. */
AVX2_INLINE __m256i
LoadBytes(const void *v, int i)
{
	return _mm256_loadu_si256((const __m256i *) ((const char *) v + i));
}

/*
 * The last dim % 32 bytes, which must not be 0, with zeros in the other lanes,
 * as LoadTail() does. Copying them would cost more than the rest of a short
 * vector.
 */
AVX2_INLINE __m256i
LoadBytesTail(const void *v, int dim)
{
	if (dim >= 32)
		return _mm256_and_si256(LoadBytes(v, dim - 32),
								LoadBytes(ByteMask, dim % 32));
	else
	{
		char		copy[32] = {0};

		memcpy(copy, v, dim);
		return LoadBytes(copy, 0);
	}
}

/*
 * Squared differences of 32 bytes, in eight sums of four. The difference of
 * two signed bytes fits an unsigned byte, like that of two unsigned ones, so
 * both are computed as largest minus smallest and widened with zeros.
 */
AVX2_INLINE __m256i
BytesL2(__m256i a, __m256i b, bool is_signed)
{
	__m256i		zero = _mm256_setzero_si256();
	__m256i		high = is_signed ? _mm256_max_epi8(a, b) :
		_mm256_max_epu8(a, b);
	__m256i		low = is_signed ? _mm256_min_epi8(a, b) :
		_mm256_min_epu8(a, b);
	__m256i		d = _mm256_sub_epi8(high, low);
	__m256i		d0 = _mm256_unpacklo_epi8(d, zero);
	__m256i		d1 = _mm256_unpackhi_epi8(d, zero);

	return _mm256_add_epi32(_mm256_madd_epi16(d0, d0),
							_mm256_madd_epi16(d1, d1));
}

/* The lower or upper 16 of 32 bytes, as 16-bit numbers. */
AVX2_INLINE __m256i
WidenHalf(__m256i v, int half, bool is_signed)
{
	__m128i		bytes = half == 0 ? _mm256_castsi256_si128(v) :
		_mm256_extracti128_si256(v, 1);

	return is_signed ? _mm256_cvtepi8_epi16(bytes) :
		_mm256_cvtepu8_epi16(bytes);
}

/* Products of 32 bytes, in eight sums of four. */
AVX2_INLINE __m256i
BytesDot(__m256i a, __m256i b, bool is_signed)
{
	__m256i		p0 = _mm256_madd_epi16(WidenHalf(a, 0, is_signed),
									   WidenHalf(b, 0, is_signed));
	__m256i		p1 = _mm256_madd_epi16(WidenHalf(a, 1, is_signed),
									   WidenHalf(b, 1, is_signed));

	return _mm256_add_epi32(p0, p1);
}

AVX2_INLINE __m256i
AddBytes(__m256i sum, __m256i a, __m256i b, bool is_signed, bool is_dot)
{
	return _mm256_add_epi32(sum, is_dot ? BytesDot(a, b, is_signed) :
							BytesL2(a, b, is_signed));
}

/* Bytes against bytes, exact (scalar.c). */
AVX2_INLINE float
BytePair(const void *a, const void *b, int dim, bool is_signed, bool is_dot)
{
	__m256i		s0 = _mm256_setzero_si256();
	__m256i		s1 = _mm256_setzero_si256();
	int			i = 0;

	for (; i + 64 <= dim; i += 64)
	{
		s0 = AddBytes(s0, LoadBytes(a, i), LoadBytes(b, i), is_signed, is_dot);
		s1 = AddBytes(s1, LoadBytes(a, i + 32), LoadBytes(b, i + 32),
					  is_signed, is_dot);
	}
	if (i + 32 <= dim)
	{
		s0 = AddBytes(s0, LoadBytes(a, i), LoadBytes(b, i), is_signed, is_dot);
		i += 32;
	}
	if (i < dim)
		s1 = AddBytes(s1, LoadBytesTail(a, dim), LoadBytesTail(b, dim),
					  is_signed, is_dot);
	return (float) SumInts(_mm256_add_epi32(s0, s1));
}

/*
 * Distances to 64 centroids at a time, in eight accumulators, so that
 * additions overlap and sums stay in registers.
 */
#define CENTROID_VECTORS 8
#define CENTROID_GROUP (8 * CENTROID_VECTORS)
#define CENTROID_GROUPS (PQ_ROW / CENTROID_GROUP)

/* sum: of the 64 centroids from number `first` on. */
AVX2_INLINE void
SumGroup(const float *x, const void *centroids, PipeannStorage storage,
		 int first, int len, Term term, __m256 *sum)
{
	int			d = 0;

	/* the first product needs no sum to be added to */
	if (term == PRODUCTS)
	{
		UNROLL(8)
		for (int j = 0; j < CENTROID_VECTORS; j++)
			sum[j] = _mm256_setzero_ps();
	}
	else
	{
		__m256		value = _mm256_broadcast_ss(x);

		UNROLL(8)
		for (int j = 0; j < CENTROID_VECTORS; j++)
		{
			sum[j] = _mm256_sub_ps(value, Load8(centroids, storage, first + 8 * j, 0));
			sum[j] = term == SQUARES ? _mm256_mul_ps(sum[j], sum[j]) :
				Size8(sum[j]);
		}
		d = 1;
	}
	for (; d < len; d++)
	{
		__m256		value = _mm256_broadcast_ss(x + d);

		UNROLL(8)
		for (int j = 0; j < CENTROID_VECTORS; j++)
		{
			__m256		c = Load8(centroids, storage, d * PQ_ROW + first + 8 * j, 0);

			if (term == PRODUCTS)
				sum[j] = _mm256_fnmadd_ps(value, c, sum[j]);
			else
				sum[j] = AddTerm(sum[j], value, c, term);
		}
	}
}

AVX2_INLINE void
Centroids(const float *x, const void *centroids, PipeannStorage storage,
		  int len, float *out, Term term)
{
	for (int k = 0; k < PQ_ROW; k += CENTROID_GROUP)
	{
		__m256		sum[CENTROID_VECTORS];

		SumGroup(x, centroids, storage, k, len, term, sum);
		UNROLL(8)
		for (int j = 0; j < CENTROID_VECTORS; j++)
			_mm256_storeu_ps(out + k + 8 * j, sum[j]);
	}
}

/* The smallest lane, in all lanes. */
AVX2_INLINE __m256
LeastLane(__m256 v)
{
	v = _mm256_min_ps(v, _mm256_permute2f128_ps(v, v, 1));
	v = _mm256_min_ps(v, _mm256_permute_ps(v, _MM_SHUFFLE(1, 0, 3, 2)));
	return _mm256_min_ps(v, _mm256_permute_ps(v, _MM_SHUFFLE(2, 3, 0, 1)));
}

AVX2_INLINE __m256i
EqualLanes(__m256 a, __m256 b)
{
	return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_EQ_OQ));
}

/* A bit for each of 32 floats that equals value, the first one lowest. */
AVX2_INLINE uint32
EqualBits(const __m256 *v, __m256 value)
{
	/* packs leave parts of four lanes in the order 0 2 4 6, 1 3 5 7 */
	__m256i		order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
	__m256i		low = _mm256_packs_epi32(EqualLanes(v[0], value),
										 EqualLanes(v[1], value));
	__m256i		high = _mm256_packs_epi32(EqualLanes(v[2], value),
										  EqualLanes(v[3], value));
	__m256i		bytes = _mm256_packs_epi16(low, high);

	bytes = _mm256_permutevar8x32_epi32(bytes, order);
	return (uint32) _mm256_movemask_epi8(bytes);
}

/* The same for 32 floats in memory. */
AVX2_INLINE uint64
EqualBitsAt(const float *at, __m256 value)
{
	__m256		v[4];

	UNROLL(4)
	for (int i = 0; i < 4; i++)
		v[i] = _mm256_loadu_ps(at + 8 * i);
	return EqualBits(v, value);
}

/*
 * The distances of one vector, for a while: all of them and, in eight lanes,
 * the least of each group.
 */
typedef struct Distances
{
	float		all[PQ_ROW];
	float		low[CENTROID_GROUPS][8];
} Distances;

/*
 * A distance that is not a number does not count: the minimum is the second
 * operand then.
 */
AVX2_INLINE void
SumAll(const float *x, const float *centroids, int len, Distances *distances)
{
	for (int g = 0; g < CENTROID_GROUPS; g++)
	{
		float	   *all = distances->all + g * CENTROID_GROUP;
		__m256		sum[CENTROID_VECTORS];
		__m256		low = _mm256_set1_ps(__builtin_inff());

		SumGroup(x, centroids, PIPEANN_FLOAT4, g * CENTROID_GROUP, len, SQUARES, sum);
		UNROLL(8)
		for (int j = 0; j < CENTROID_VECTORS; j++)
		{
			low = _mm256_min_ps(sum[j], low);
			_mm256_store_ps(all + 8 * j, sum[j]);
		}
		_mm256_store_ps(distances->low[g], low);
	}
}

/*
 * Only the group that has the least distance is looked through for its place.
 */
AVX2_INLINE int
FindLeast(const Distances *distances)
{
	__m256		low[CENTROID_GROUPS];
	__m256		least;
	uint64		places;
	int			first;

	UNROLL(4)
	for (int g = 0; g < CENTROID_GROUPS; g++)
		low[g] = _mm256_load_ps(distances->low[g]);
	least = LeastLane(_mm256_min_ps(_mm256_min_ps(low[0], low[1]),
									_mm256_min_ps(low[2], low[3])));
	first = __builtin_ctz(EqualBits(low, least)) / 8 * CENTROID_GROUP;
	places = EqualBitsAt(distances->all + first, least) |
		EqualBitsAt(distances->all + first + 32, least) << 32;
	return places == 0 ? 0 : first + __builtin_ctzll(places);
}

/*
 * Vectors whose distances are computed before the least ones are found. Each
 * of the two is a chain of instructions that wait for each other, so that the
 * processor needs to see several vectors at once.
 */
#define NEAREST_BLOCK 8

AVX2 static void
CentroidNearest(const float *x, Size stride, int n, const float *centroids,
				int len, const PipeannNearest *out)
{
	uint8	   *codes = out->codes;
	Size		code_stride = out->code_stride;
	float	   *distances = out->distances;
	Distances	block[NEAREST_BLOCK] __attribute__((aligned(32)));

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

/* Half of the rows of a tile: their sums take 12 of the 16 registers. */
#define HALF_TILE (PIPEANN_TILE_ROWS / 2)

AVX2_INLINE void
DotHalfTile(const int16 *const *rows, const int16 *panel, int dim, int32 *out)
{
	__m256i		sum[HALF_TILE][2];

	UNROLL(6)
	for (int r = 0; r < HALF_TILE; r++)
		sum[r][0] = sum[r][1] = _mm256_setzero_si256();
	for (int d = 0; d < dim; d += PIPEANN_TILE_DIM)
	{
		const __m256i *columns = (const __m256i *)
			(panel + PIPEANN_PANEL_SIZE(d));
		__m256i		c0 = _mm256_loadu_si256(columns);
		__m256i		c1 = _mm256_loadu_si256(columns + 1);

		UNROLL(6)
		for (int r = 0; r < HALF_TILE; r++)
		{
			__m256i		pair = _mm256_set1_epi32(LoadPair(rows[r] + d));

			sum[r][0] = _mm256_add_epi32(sum[r][0],
										 _mm256_madd_epi16(pair, c0));
			sum[r][1] = _mm256_add_epi32(sum[r][1],
										 _mm256_madd_epi16(pair, c1));

			/* row by row: in gcc's order there are too few registers */
			__asm__ volatile ("":"+x" (sum[r][0]), "+x" (sum[r][1]));
		}
	}
	UNROLL(6)
	for (int r = 0; r < HALF_TILE; r++)
	{
		__m256i    *to = (__m256i *) (out + r * PIPEANN_TILE_COLUMNS);

		_mm256_storeu_si256(to, sum[r][0]);
		_mm256_storeu_si256(to + 1, sum[r][1]);
	}
}

AVX2 static void
DotTile(const int16 *const *rows, const int16 *panel, int dim, int32 *out)
{
	DotHalfTile(rows, panel, dim, out);
	DotHalfTile(rows + HALF_TILE, panel, dim,
				out + HALF_TILE * PIPEANN_TILE_COLUMNS);
}

/*
 * The last few elements of a long vector are converted again with those before
 * them; a short vector is copied, so that nothing outside of it is touched.
 */
AVX2_INLINE void
ToFloat(const void *src, PipeannStorage storage, int dim, float *dst)
{
	float		scale = SqScale(src, storage, dim);
	int			i = 0;

	for (; i + 8 <= dim; i += 8)
		_mm256_storeu_ps(dst + i, Load8(src, storage, i, scale));
	if (i == dim)
		return;
	if (dim >= 8)
		_mm256_storeu_ps(dst + dim - 8, Load8(src, storage, dim - 8, 0));
	else
	{
		float		floats[8];

		_mm256_storeu_ps(floats, LoadTail(src, storage, dim));
		memcpy(dst, floats, dim * sizeof(float));
	}
}

/* Eight fixed-point numbers. Rounds as the default mode does, ties to even. */
AVX2_INLINE void
Fix8(const float *x, const float *offset, float scale, int16 *out)
{
	__m256		v = _mm256_sub_ps(_mm256_loadu_ps(x),
								  _mm256_loadu_ps(offset));
	__m256i		fixed;

	v = _mm256_mul_ps(v, _mm256_set1_ps(scale));
	v = _mm256_min_ps(v, _mm256_set1_ps(PIPEANN_FIXED_MAX));
	v = _mm256_max_ps(v, _mm256_set1_ps(-PIPEANN_FIXED_MAX));
	fixed = _mm256_cvtps_epi32(v);
	_mm_storeu_si128((__m128i *) out,
					 _mm_packs_epi32(_mm256_castsi256_si128(fixed),
									 _mm256_extracti128_si256(fixed, 1)));
}

/* The end of a vector is treated as in ToFloat(). */
AVX2 static void
ToFixed(const float *x, const float *offset, float scale, int dim, int16 *out)
{
	int			i = 0;

	for (; i + 8 <= dim; i += 8)
		Fix8(x + i, offset + i, scale, out + i);
	if (i == dim)
		return;
	if (dim >= 8)
		Fix8(x + dim - 8, offset + dim - 8, scale, out + dim - 8);
	else
	{
		float		short_x[8] = {0};
		float		short_offset[8] = {0};
		int16		fixed[8];

		memcpy(short_x, x, dim * sizeof(float));
		memcpy(short_offset, offset, dim * sizeof(float));
		Fix8(short_x, short_offset, scale, fixed);
		memcpy(out, fixed, dim * sizeof(int16));
	}
}

AVX2 float
L2PairFloat2(const void *a, const void *b, int dim)
{
	return FloatSum(a, PIPEANN_FLOAT2, b, PIPEANN_FLOAT2, dim, SQUARES);
}

AVX2 float
DotPairFloat2(const void *a, const void *b, int dim)
{
	return FloatSum(a, PIPEANN_FLOAT2, b, PIPEANN_FLOAT2, dim, PRODUCTS);
}

#define SET PipeannKernelsAvx2
#define SET_NAME "avx2"
#define KERNEL AVX2
#include "distance/kernels.h"

/* Whether this processor and the operating system support this file. */
bool
PipeannCpuHasAvx2(void)
{
	unsigned int eax;
	unsigned int ebx;
	unsigned int ecx;
	unsigned int edx;

	/*
	 * The builtins look at XGETBV, too, since the system must save the wide
	 * registers. Not all compilers know F16C by name; the system need not
	 * support more for it than for AVX.
	 */
	__builtin_cpu_init();
	return __builtin_cpu_supports("avx2") &&
		__builtin_cpu_supports("fma") &&
		__builtin_cpu_supports("popcnt") &&
		__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 &&
		(ecx & bit_F16C) != 0;
}

#endif							/* __x86_64__ */
