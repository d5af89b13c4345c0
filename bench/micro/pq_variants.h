/*
 * pq_variants.h
 *		Other ways to compute code distances, to be measured against the one
 *		that the kernels use (src/distance/pq_scan.h).
 *
 * Each is written as well as the other, and none is in the library: they are
 * here so that the choice can be measured again on another machine.
 */
#ifndef PQ_VARIANTS_H
#define PQ_VARIANTS_H

#include "base/base.h"
#include "distance/pq_scan.h"

typedef void (*PqVariantFn) (const void *table, int nchunks,
							 const uint8 *const *codes, int n, void *out);

/*
 * How far ahead codes are prefetched: not at all, by a number of codes, or the
 * whole list before the first is summed.
 */
#define NO_PREFETCH 0
#define WHOLE_LIST (1 << 30)

PQ_INLINE void
ScanAhead(const float *table, int nchunks, const uint8 *const *codes, int n,
		  float *out, int distance)
{
	int			ahead = Min(n, distance);

	for (int i = 0; i < ahead; i++)
		PqPrefetch(codes[i], nchunks);
	for (int i = 0; i < n; i++)
		out[i] = 0.0f;
	for (int first = 0; first < nchunks; first += PQ_BLOCK)
	{
		const float *rows = table + (Size) first * PQ_ROW;
		int			len = Min(PQ_BLOCK, nchunks - first);
		int			i = 0;

		for (; i + 4 <= n; i += 4)
		{
			if (first == 0 && distance > 0)
				for (; ahead < n && ahead - (i + 4) < distance; ahead++)
					PqPrefetch(codes[ahead], nchunks);
			PqSumFour(rows, codes + i, first, len, out + i);
		}
		for (; i < n; i++)
			PqSumOne(rows, codes[i] + first, len, out + i);
	}
}

#define AHEAD(name, distance) \
static void \
name(const void *table, int nchunks, const uint8 *const *codes, int n, \
	 void *out) \
{ \
	ScanAhead(table, nchunks, codes, n, out, distance); \
}

AHEAD(FloatNoPrefetch, NO_PREFETCH)
AHEAD(FloatAhead8, 8)
AHEAD(FloatAhead24, 24)
AHEAD(FloatWholeList, WHOLE_LIST)

/* One, two, four or eight codes side by side, whatever the table's entries. */
#define SCAN(name, Entry, Sum, side) \
static void \
name(const void *table, int nchunks, const uint8 *const *codes, int n, \
	 void *out) \
{ \
	int			i = 0; \
\
	for (int k = 0; k < n; k++) \
		PqPrefetch(codes[k], nchunks); \
	for (; i + (side) <= n; i += (side)) \
	{ \
		Sum			sum[side] = {0}; \
		int			c = 0; \
\
		for (; c + 4 <= nchunks; c += 4) \
		{ \
			const Entry *row = (const Entry *) table + (Size) c * PQ_ROW; \
			uint32		word[side]; \
\
			UNROLL(8) \
			for (int k = 0; k < (side); k++) \
				word[k] = PqLoad4(codes[i + k] + c); \
			UNROLL(4) \
			for (int b = 0; b < 4; b++) \
				UNROLL(8) \
				for (int k = 0; k < (side); k++) \
					sum[k] += row[b * PQ_ROW + PqByte(word[k], b)]; \
		} \
		for (; c < nchunks; c++) \
		{ \
			const Entry *row = (const Entry *) table + (Size) c * PQ_ROW; \
\
			UNROLL(8) \
			for (int k = 0; k < (side); k++) \
				sum[k] += row[codes[i + k][c]]; \
		} \
		UNROLL(8) \
		for (int k = 0; k < (side); k++) \
			((Sum *) out)[i + k] = sum[k]; \
	} \
	for (; i < n; i++) \
	{ \
		Sum			sum = 0; \
\
		for (int c = 0; c < nchunks; c++) \
			sum += ((const Entry *) table)[(Size) c * PQ_ROW + codes[i][c]]; \
		((Sum *) out)[i] = sum; \
	} \
}

SCAN(Float1, float, float, 1)
SCAN(Float2, float, float, 2)
SCAN(Float4, float, float, 4)
SCAN(Word2, uint16, uint32, 2)
SCAN(Word4, uint16, uint32, 4)
SCAN(Byte2, uint8, uint32, 2)
SCAN(Byte4, uint8, uint32, 4)

#if defined(__x86_64__)
#include <immintrin.h>

#define VARIANT_AVX2 __attribute__((target("avx2,fma")))

/* Gathers: eight entries of one code at a time. */
VARIANT_AVX2 static void
FloatGather(const void *table, int nchunks, const uint8 *const *codes, int n,
			void *out)
{
	const __m256i rows = _mm256_setr_epi32(0, 256, 512, 768, 1024, 1280, 1536,
										   1792);

	for (int i = 0; i < n; i++)
		PqPrefetch(codes[i], nchunks);
	for (int i = 0; i < n; i++)
	{
		__m256		sum = _mm256_setzero_ps();
		__m128		half;
		float		total;
		int			c = 0;

		for (; c + 8 <= nchunks; c += 8)
		{
			const float *base = (const float *) table + (Size) c * PQ_ROW;
			__m128i		bytes = _mm_loadl_epi64((const __m128i *) (codes[i] + c));
			__m256i		at = _mm256_add_epi32(_mm256_cvtepu8_epi32(bytes), rows);

			sum = _mm256_add_ps(sum, _mm256_i32gather_ps(base, at, 4));
		}
		half = _mm_add_ps(_mm256_castps256_ps128(sum),
						  _mm256_extractf128_ps(sum, 1));
		half = _mm_add_ps(half, _mm_movehl_ps(half, half));
		half = _mm_add_ss(half, _mm_movehdup_ps(half));
		total = _mm_cvtss_f32(half);
		for (; c < nchunks; c++)
			total += ((const float *) table)[(Size) c * PQ_ROW + codes[i][c]];
		((float *) out)[i] = total;
	}
}

/* Bytes 0 .. 31 of 32 codes, transposed: out[c] has byte c of all codes. */
VARIANT_AVX2 static inline void
Transpose16(const uint8 *const *codes, int first, uint8 out[16][32])
{
	for (int half = 0; half < 2; half++)
	{
		__m128i		a[16];
		__m128i		b[16];

		UNROLL(16)
		for (int k = 0; k < 16; k++)
			a[k] = _mm_loadu_si128((const __m128i *) (codes[half * 16 + k] +
													  first));
		UNROLL(4)
		for (int step = 0; step < 4; step++)
		{
			UNROLL(8)
			for (int k = 0; k < 8; k++)
			{
				b[2 * k] = _mm_unpacklo_epi8(a[k], a[k + 8]);
				b[2 * k + 1] = _mm_unpackhi_epi8(a[k], a[k + 8]);
			}
			UNROLL(16)
			for (int k = 0; k < 16; k++)
				a[k] = b[k];
		}
		UNROLL(16)
		for (int k = 0; k < 16; k++)
			_mm_store_si128((__m128i *) (out[k] + half * 16), a[k]);
	}
}

/*
 * Byte entries in registers: codes of 32 neighbours transposed, each row of
 * 256 entries looked up by 16 shuffles. Needs nchunks % 16 = 0 and n % 32 = 0.
 */
VARIANT_AVX2 static void
ByteShuffle(const void *table, int nchunks, const uint8 *const *codes, int n,
			void *out)
{
	uint8		t[16][32] __attribute__((aligned(32)));
	const __m256i zero = _mm256_setzero_si256();

	for (int i = 0; i < n; i++)
		PqPrefetch(codes[i], nchunks);
	for (int i = 0; i + 32 <= n; i += 32)
	{
		__m256i		low = zero;
		__m256i		high = zero;
		uint16		sums[32];

		for (int first = 0; first + 16 <= nchunks; first += 16)
		{
			Transpose16(codes + i, first, t);
			for (int c = 0; c < 16; c++)
			{
				const __m128i *row = (const __m128i *)
					((const uint8 *) table + (Size) (first + c) * PQ_ROW);
				__m256i		index = _mm256_load_si256((const __m256i *) t[c]);
				__m256i		found = zero;

				/*
				 * Less 16 k, and 112 more with saturation: within this part of
				 * the row the low half is kept and the top bit clear.
				 */
				UNROLL(16)
				for (int k = 0; k < 16; k++)
				{
					__m256i		part = _mm256_broadcastsi128_si256(_mm_loadu_si128(row + k));
					__m256i		at = _mm256_adds_epu8(_mm256_xor_si256(index, _mm256_set1_epi8((char) (k << 4))),
													  _mm256_set1_epi8(112));

					found = _mm256_or_si256(found, _mm256_shuffle_epi8(part, at));
				}
				low = _mm256_add_epi16(low, _mm256_unpacklo_epi8(found, zero));
				high = _mm256_add_epi16(high, _mm256_unpackhi_epi8(found, zero));
			}
		}
		_mm256_storeu_si256((__m256i *) sums, low);
		_mm256_storeu_si256((__m256i *) (sums + 16), high);
		for (int k = 0; k < 32; k++)
			((uint32 *) out)[i + k] = sums[(k & 7) | (k & 8) << 1 | (k & 16) >> 1];
	}
}
#endif							/* __x86_64__ */

#endif							/* PQ_VARIANTS_H */
