/*
 * avx2.h
 *		Kernels for AVX2 that the set for AVX-512 has, too; private to distance/.
 *
 * Only functions with the target attribute may use it.
 */
#ifndef PIPEANN_AVX2_H
#define PIPEANN_AVX2_H

#include <immintrin.h>

#include "distance/distance.h"

#define AVX2 __attribute__((target("avx2,fma,f16c,popcnt")))
#define AVX2_INLINE \
	static inline __attribute__((always_inline, target("avx2,fma,f16c,popcnt")))

/*
 * Between two vectors in half precision AVX2 is faster than AVX-512: to convert
 * 16 elements at once takes as long as 8 twice.
 */
#define L2PairFloat2 PipeannAvx2L2PairFloat2
#define DotPairFloat2 PipeannAvx2DotPairFloat2
extern float L2PairFloat2(const void *a, const void *b, int dim);
extern float DotPairFloat2(const void *a, const void *b, int dim);

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

AVX2 static void
TileNear(const int32 *row_norms, const int32 *column_norms,
		 const int32 *row_limits, const int32 *column_limits, int32 *tile,
		 uint16 *near)
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

AVX2 static uint64
Equal16(const uint16 *a, int n, uint16 value)
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

/* There is an instruction only for the least of eight. */
AVX2 static uint16
Most16(const uint16 *a, int n)
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

AVX2 static void
KeepMembers(const uint8 *bytes, int n, const uint8 *set, uint64 *mask)
{
	ByteSet		halves;

	halves.low = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *) set));
	halves.high = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *) (set + 16)));
	for (int i = 0; i < n; i += 64)
		mask[i / 64] &= (uint64) MembersOf32(bytes + i, &halves) |
			(uint64) MembersOf32(bytes + i + 32, &halves) << 32;
}

/* A range, or one number's bytes, with which numbers of two bytes are compared. */
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

/* Few numbers have a first byte of 0, so their second bytes are checked only if there are any. */
AVX2_INLINE void
KeepNumbers(const uint8 *high, const uint8 *low, int n, bool is_one,
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

AVX2 static void
KeepRange(const uint8 *high, const uint8 *low, int n, uint16 from, uint16 to,
		  uint64 *mask)
{
	NumberRange range;

	range.from = _mm256_set1_epi16((short) from);
	range.span = _mm256_set1_epi16((short) (to - from));
	range.high = _mm256_set1_epi8((char) (from >> 8));
	range.low = _mm256_set1_epi8((char) from);
	if (from == to)
		KeepNumbers(high, low, n, true, &range, mask);
	else
		KeepNumbers(high, low, n, false, &range, mask);
}

#endif							/* PIPEANN_AVX2_H */
