/*
 * avx2_bulk.c
 *		Kernels for AVX2 and many centroids, vectors or elements.
 */
#include "distance/bulk.h"

#if defined(__x86_64__)

#include "distance/avx2.h"
#include "distance/pq_scan.h"
#include "distance/unroll.h"

/*
 * Distances to 64 centroids at a time, in eight accumulators, so that
 * additions overlap and sums stay in registers.
 */
#define CENTROID_VECTORS 8
#define CENTROID_GROUP (8 * CENTROID_VECTORS)
#define CENTROID_GROUPS (PQ_ROW / CENTROID_GROUP)

/* sum: of the 64 centroids that centroids points to. */
AVX2_INLINE void
SumGroup(const float *x, const float *centroids, int len, bool is_dot,
		 __m256 *sum)
{
	int			d = 0;

	/* the first product needs no sum to be added to */
	if (is_dot)
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
			sum[j] = _mm256_sub_ps(value, _mm256_loadu_ps(centroids + 8 * j));
			sum[j] = _mm256_mul_ps(sum[j], sum[j]);
		}
		d = 1;
	}
	for (; d < len; d++)
	{
		const float *row = centroids + (Size) d * PQ_ROW;
		__m256		value = _mm256_broadcast_ss(x + d);

		UNROLL(8)
		for (int j = 0; j < CENTROID_VECTORS; j++)
		{
			__m256		c = _mm256_loadu_ps(row + 8 * j);

			if (is_dot)
				sum[j] = _mm256_fnmadd_ps(value, c, sum[j]);
			else
			{
				c = _mm256_sub_ps(value, c);
				sum[j] = _mm256_fmadd_ps(c, c, sum[j]);
			}
		}
	}
}

AVX2_INLINE void
Centroids(const float *x, const float *centroids, int len, float *out,
		  bool is_dot)
{
	for (int k = 0; k < PQ_ROW; k += CENTROID_GROUP)
	{
		__m256		sum[CENTROID_VECTORS];

		SumGroup(x, centroids + k, len, is_dot, sum);
		UNROLL(8)
		for (int j = 0; j < CENTROID_VECTORS; j++)
			_mm256_storeu_ps(out + k + 8 * j, sum[j]);
	}
}

AVX2 void
PipeannAvx2CentroidL2(const float *x, const float *centroids, int len,
					  float *out)
{
	Centroids(x, centroids, len, out, false);
}

AVX2 void
PipeannAvx2CentroidDot(const float *x, const float *centroids, int len,
					   float *out)
{
	Centroids(x, centroids, len, out, true);
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

		SumGroup(x, centroids + g * CENTROID_GROUP, len, false, sum);
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

AVX2 void
PipeannAvx2CentroidNearest(const float *x, Size stride, int n,
						   const float *centroids, int len,
						   const PipeannNearest *out)
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

AVX2 void
PipeannAvx2DotTile(const int16 *const *rows, const int16 *panel, int dim,
				   int32 *out)
{
	DotHalfTile(rows, panel, dim, out);
	DotHalfTile(rows + HALF_TILE, panel, dim,
				out + HALF_TILE * PIPEANN_TILE_COLUMNS);
}

AVX2_INLINE __m256i
Load8Ints(const int32 *from)
{
	return _mm256_loadu_si256((const __m256i *) from);
}

/*
 * Half of a row: eight distances, and a bit for each that is less than one of
 * its limits.
 */
AVX2_INLINE uint32
HalfRowNear(__m256i norms, __m256i row_limit, __m256i column_limits,
			int32 *tile)
{
	__m256i		d = _mm256_sub_epi32(norms, Load8Ints(tile));
	__m256i		less;

	d = _mm256_max_epi32(d, _mm256_setzero_si256());
	_mm256_storeu_si256((__m256i *) tile, d);
	less = _mm256_or_si256(_mm256_cmpgt_epi32(row_limit, d),
						   _mm256_cmpgt_epi32(column_limits, d));
	return (uint32) _mm256_movemask_ps(_mm256_castsi256_ps(less));
}

AVX2 void
PipeannAvx2TileNear(const int32 *row_norms, const int32 *column_norms,
					const int32 *row_limits, const int32 *column_limits,
					int32 *tile, uint16 *near)
{
	__m256i		norms[2] = {Load8Ints(column_norms), Load8Ints(column_norms + 8)};
	__m256i		limits[2] = {Load8Ints(column_limits), Load8Ints(column_limits + 8)};

	for (int r = 0; r < PIPEANN_TILE_ROWS; r++, tile += PIPEANN_TILE_COLUMNS)
	{
		__m256i		norm = _mm256_set1_epi32(row_norms[r]);
		__m256i		limit = _mm256_set1_epi32(row_limits[r]);

		near[r] = (uint16)
			(HalfRowNear(_mm256_add_epi32(norm, norms[0]), limit, limits[0],
						 tile) |
			 HalfRowNear(_mm256_add_epi32(norm, norms[1]), limit, limits[1],
						 tile + 8) << 8);
	}
}

/* A bit for each 16-bit lane of which all bits are set. */
AVX2_INLINE uint64
LaneBits(__m128i low, __m128i high)
{
	return (uint32) _mm_movemask_epi8(_mm_packs_epi16(low, high));
}

AVX2 uint64
PipeannAvx2Equal16(const uint16 *a, int n, uint16 value)
{
	__m256i		wanted = _mm256_set1_epi16((short) value);
	uint64		bits = 0;
	int			i = 0;

	for (; i + 16 <= n; i += 16)
	{
		__m256i		equal = _mm256_loadu_si256((const __m256i *) (a + i));

		equal = _mm256_cmpeq_epi16(equal, wanted);
		bits |= LaneBits(_mm256_castsi256_si128(equal),
						 _mm256_extracti128_si256(equal, 1)) << i;
	}
	if (i < n)
	{
		__m128i		equal = _mm_loadu_si128((const __m128i *) (a + i));

		equal = _mm_cmpeq_epi16(equal, _mm256_castsi256_si128(wanted));
		bits |= LaneBits(equal, _mm_setzero_si128()) << i;
	}
	return bits;
}

/* There is an instruction for the least of eight only. */
AVX2 uint16
PipeannAvx2Most16(const uint16 *a, int n)
{
	__m256i		most = _mm256_setzero_si256();
	__m128i		half;
	int			i = 0;

	for (; i + 16 <= n; i += 16)
		most = _mm256_max_epu16(most,
								_mm256_loadu_si256((const __m256i *) (a + i)));
	half = _mm_max_epu16(_mm256_castsi256_si128(most),
						 _mm256_extracti128_si256(most, 1));
	if (i < n)
		half = _mm_max_epu16(half, _mm_loadu_si128((const __m128i *) (a + i)));
	half = _mm_minpos_epu16(_mm_xor_si128(half, _mm_set1_epi16(-1)));
	return (uint16) ~_mm_extract_epi16(half, 0);
}

/*
 * The last few elements of a long vector are converted again with those before
 * them; a short vector is copied, so that nothing outside of it is touched.
 */
AVX2_INLINE void
ToFloat(const void *src, PipeannStorage storage, int dim, float *dst)
{
	int			i = 0;

	for (; i + 8 <= dim; i += 8)
		_mm256_storeu_ps(dst + i, Load8(src, storage, i));
	if (i == dim)
		return;
	if (dim >= 8)
		_mm256_storeu_ps(dst + dim - 8, Load8(src, storage, dim - 8));
	else
	{
		char		copy[32] = {0};
		float		floats[8];

		memcpy(copy, src, dim * PipeannElementSize(storage));
		_mm256_storeu_ps(floats, Load8(copy, storage, 0));
		memcpy(dst, floats, dim * sizeof(float));
	}
}

AVX2 void
PipeannAvx2Float2ToFloat(const void *src, int dim, float *dst)
{
	ToFloat(src, PIPEANN_FLOAT2, dim, dst);
}

AVX2 void
PipeannAvx2Int8ToFloat(const void *src, int dim, float *dst)
{
	ToFloat(src, PIPEANN_INT8, dim, dst);
}

AVX2 void
PipeannAvx2Uint8ToFloat(const void *src, int dim, float *dst)
{
	ToFloat(src, PIPEANN_UINT8, dim, dst);
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
AVX2 void
PipeannAvx2ToFixed(const float *x, const float *offset, float scale, int dim,
				   int16 *out)
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


/* The two halves of a set of bytes. */
typedef struct ByteSet
{
	__m256i		low;
	__m256i		high;
} ByteSet;

/* The highest bit of a byte chooses the half, the next four the byte there. */
AVX2_INLINE uint32
MembersOf32(const uint8 *bytes, const ByteSet *set)
{
	const __m256i places = _mm256_set1_epi64x((long long) 0x8040201008040201ULL);
	__m256i		all = _mm256_loadu_si256((const __m256i *) bytes);
	__m256i		place = _mm256_and_si256(_mm256_srli_epi16(all, 3),
										 _mm256_set1_epi8(15));
	__m256i		entry = _mm256_blendv_epi8(_mm256_shuffle_epi8(set->low, place),
										   _mm256_shuffle_epi8(set->high, place),
										   all);
	__m256i		bit = _mm256_shuffle_epi8(places,
										  _mm256_and_si256(all, _mm256_set1_epi8(7)));

	return (uint32) _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_and_si256(entry, bit),
														   bit));
}

AVX2 void
PipeannAvx2KeepMembers(const uint8 *bytes, int n, const uint8 *set,
					   uint64 *mask)
{
	ByteSet		halves;

	halves.low = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *) set));
	halves.high = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *) (set + 16)));
	for (int i = 0; i < n; i += 64)
		mask[i / 64] &= (uint64) MembersOf32(bytes + i, &halves) |
			(uint64) MembersOf32(bytes + i + 32, &halves) << 32;
}

/* What numbers of two bytes are compared with: a range, or one number's bytes. */
typedef struct NumberRange
{
	__m256i		from;
	__m256i		span;
	__m256i		high;
	__m256i		low;
} NumberRange;

AVX2_INLINE __m256i
AreWithin16(__m256i numbers, const NumberRange *range)
{
	__m256i		above = _mm256_sub_epi16(numbers, range->from);

	return _mm256_cmpeq_epi16(_mm256_min_epu16(above, range->span), above);
}

AVX2_INLINE uint32
InRange32(__m256i high, __m256i low, bool is_one, const NumberRange *range)
{
	if (is_one)
		return (uint32) _mm256_movemask_epi8(_mm256_and_si256(_mm256_cmpeq_epi8(high, range->high),
															  _mm256_cmpeq_epi8(low, range->low)));
	return (uint32) _mm256_movemask_epi8(_mm256_packs_epi16(AreWithin16(_mm256_unpacklo_epi8(low, high), range),
															AreWithin16(_mm256_unpackhi_epi8(low, high), range)));
}

/* Which of 32 numbers have a first byte that alone is 0. */
AVX2_INLINE uint32
HalfZero32(__m256i high, __m256i low)
{
	__m256i		zero = _mm256_setzero_si256();

	return (uint32) _mm256_movemask_epi8(_mm256_andnot_si256(_mm256_cmpeq_epi8(low, zero),
															 _mm256_cmpeq_epi8(high, zero)));
}

/* Few numbers have a first byte of 0: they are looked for where there is one. */
AVX2_INLINE void
KeepRange(const uint8 *high, const uint8 *low, int n, bool is_one,
		  const NumberRange *range, uint64 *mask)
{
	__m256i		zero = _mm256_setzero_si256();

	for (int i = 0; i < n; i += 64)
	{
		__m256i		high0 = _mm256_loadu_si256((const __m256i *) (high + i));
		__m256i		high1 = _mm256_loadu_si256((const __m256i *) (high + i + 32));
		__m256i		low0 = _mm256_loadu_si256((const __m256i *) (low + i));
		__m256i		low1 = _mm256_loadu_si256((const __m256i *) (low + i + 32));
		uint64		within = InRange32(high0, low0, is_one, range) |
			(uint64) InRange32(high1, low1, is_one, range) << 32;
		__m256i		least = _mm256_min_epu8(high0, high1);

		if (unlikely(_mm256_movemask_epi8(_mm256_cmpeq_epi8(least, zero)) != 0))
			within |= HalfZero32(high0, low0) |
				(uint64) HalfZero32(high1, low1) << 32;
		mask[i / 64] &= within;
	}
}

AVX2 void
PipeannAvx2KeepRange(const uint8 *high, const uint8 *low, int n, uint16 from,
					 uint16 to, uint64 *mask)
{
	NumberRange range;

	range.from = _mm256_set1_epi16((short) from);
	range.span = _mm256_set1_epi16((short) (to - from));
	range.high = _mm256_set1_epi8((char) (from >> 8));
	range.low = _mm256_set1_epi8((char) from);
	if (from == to)
		KeepRange(high, low, n, true, &range, mask);
	else
		KeepRange(high, low, n, false, &range, mask);
}

#endif							/* __x86_64__ */
