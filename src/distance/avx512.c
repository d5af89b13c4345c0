/*
 * avx512.c
 *		Distance kernels for x86-64 with AVX-512 (F, BW, VL, VNNI, VPOPCNTDQ), 2019
 *		and later.
 *
 * Where there is no processor with AVX-512 the unit tests run this by
 * emulation. Beside the width, masked loads save copies of a vector's end.
 *
 * Code distances are plain C here, too (pq_scan.h): gathers of this width are
 * many times slower than loads on processors whose microcode mitigates Gather
 * Data Sampling, and permutes of rows in registers (VBMI) need a table of
 * bytes, which costs recall.
 */
#include "distance/distance.h"

#if defined(__x86_64__)

#include "distance/avx2.h"
#include "distance/pq_scan.h"
#include "distance/sparse.h"
#include "distance/sq.h"

#ifdef PIPEANN_EMULATE_AVX512
#include "avx512_emulation.h"

#define TARGET
#else
#include <immintrin.h>

#define TARGET target("avx512f,avx512bw,avx512vl,avx512vnni,avx512vpopcntdq,avx2,fma,f16c,popcnt")
#endif

#define AVX512 __attribute__((TARGET))
#define AVX512_INLINE \
	static inline __attribute__((always_inline, TARGET))

/* What is there for 8 lanes, twice. */
AVX512_INLINE __m512i
Twice(const void *lanes)
{
	return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *) lanes));
}

AVX512_INLINE __m512
SqLoad16(const char *v, int bits, int i, float scale)
{
	const SqLanes *lanes = SqLanesFor(bits);
	const char *p = v + i / 8 * bits;
	__m128i		low = _mm_loadu_si128((const __m128i *) p);
	__m128i		high = _mm_loadu_si128((const __m128i *) (p + bits));
	__m512i		numbers;

	numbers = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_broadcastsi128_si256(low)),
								 _mm256_broadcastsi128_si256(high), 1);
	numbers = _mm512_shuffle_epi8(numbers, Twice(lanes->bytes));
	numbers = _mm512_sllv_epi32(numbers, Twice(lanes->shift));
	numbers = _mm512_srav_epi32(numbers, _mm512_set1_epi32(32 - bits));
	return _mm512_mul_ps(_mm512_cvtepi32_ps(numbers), _mm512_set1_ps(scale));
}

/*
 * Elements i .. i + 15 as floats, of a quantised vector with this scale; storage is a
 * constant where inlined.
 */
AVX512_INLINE __m512
Load16(const void *v, PipeannStorage storage, int i, float scale)
{
	const char *p = (const char *) v + (Size) i * PipeannElementSize(storage);
	__m128i		bytes;

	if (PipeannSqBits(storage) > 0)
		return SqLoad16(v, PipeannSqBits(storage), i, scale);
	switch (storage)
	{
		case PIPEANN_FLOAT4:
			return _mm512_loadu_ps(p);
		case PIPEANN_FLOAT2:
			return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) p));
		case PIPEANN_INT8:
			bytes = _mm_loadu_si128((const __m128i *) p);
			return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
		default:
			bytes = _mm_loadu_si128((const __m128i *) p);
			return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
	}
}

/*
 * The n < 16 elements from element i on, with zeros in the other lanes. What
 * the mask leaves out is not read.
 */
AVX512_INLINE __m512
LoadTail(const void *v, PipeannStorage storage, int i, int n)
{
	const char *p = (const char *) v + (Size) i * PipeannElementSize(storage);
	__mmask16	mask = (__mmask16) ((1 << n) - 1);
	__m128i		bytes;

	switch (storage)
	{
		case PIPEANN_FLOAT4:
			return _mm512_maskz_loadu_ps(mask, p);
		case PIPEANN_FLOAT2:
			return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
		case PIPEANN_INT8:
			bytes = _mm_maskz_loadu_epi8(mask, p);
			return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
		default:
			bytes = _mm_maskz_loadu_epi8(mask, p);
			return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
	}
}

AVX512_INLINE float
SumFloats(__m512 v)
{
	__m512d		all = _mm512_castps_pd(v);
	__m256		half = _mm256_castpd_ps(_mm512_extractf64x4_pd(all, 1));
	__m128		s;

	half = _mm256_add_ps(_mm512_castps512_ps256(v), half);
	s = _mm_add_ps(_mm256_castps256_ps128(half),
				   _mm256_extractf128_ps(half, 1));
	s = _mm_add_ps(s, _mm_movehl_ps(s, s));
	s = _mm_add_ss(s, _mm_movehdup_ps(s));
	return _mm_cvtss_f32(s);
}

AVX512_INLINE int32
SumInts(__m512i v)
{
	__m256i		half = _mm256_add_epi32(_mm512_castsi512_si256(v),
										_mm512_extracti64x4_epi64(v, 1));
	__m128i		s = _mm_add_epi32(_mm256_castsi256_si128(half),
								  _mm256_extracti128_si256(half, 1));

	s = _mm_add_epi32(s, _mm_shuffle_epi32(s, _MM_SHUFFLE(1, 0, 3, 2)));
	s = _mm_add_epi32(s, _mm_shuffle_epi32(s, _MM_SHUFFLE(2, 3, 0, 1)));
	return _mm_cvtsi128_si32(s);
}

/* Returns sum with the terms of sixteen elements added. */
AVX512_INLINE __m512
AddTerm(__m512 sum, __m512 a, __m512 b, Term term)
{
	__m512		d;

	if (term == PRODUCTS)
		return _mm512_fmadd_ps(a, b, sum);
	d = _mm512_sub_ps(a, b);
	if (term == DIFFERENCES)
		return _mm512_add_ps(_mm512_abs_ps(d), sum);
	return _mm512_fmadd_ps(d, d, sum);
}

/* Sum over i < dim of (a[i] - b[i])^2, a[i] * b[i] or |a[i] - b[i]|. */
AVX512_INLINE float
FloatSum(const void *a, PipeannStorage sa, const void *b, PipeannStorage sb,
		 int dim, Term term)
{
	float		scale_a = SqScale(a, sa, dim);
	float		scale_b = SqScale(b, sb, dim);
	__m512		s0 = _mm512_setzero_ps();
	__m512		s1 = _mm512_setzero_ps();
	__m512		s2 = _mm512_setzero_ps();
	__m512		s3 = _mm512_setzero_ps();
	int			i = 0;

	for (; i + 64 <= dim; i += 64)
	{
		s0 = AddTerm(s0, Load16(a, sa, i, scale_a),
					 Load16(b, sb, i, scale_b), term);
		s1 = AddTerm(s1, Load16(a, sa, i + 16, scale_a),
					 Load16(b, sb, i + 16, scale_b), term);
		s2 = AddTerm(s2, Load16(a, sa, i + 32, scale_a),
					 Load16(b, sb, i + 32, scale_b), term);
		s3 = AddTerm(s3, Load16(a, sa, i + 48, scale_a),
					 Load16(b, sb, i + 48, scale_b), term);
	}
	for (; i + 16 <= dim; i += 16)
		s0 = AddTerm(s0, Load16(a, sa, i, scale_a),
					 Load16(b, sb, i, scale_b), term);
	if (i < dim)
		s1 = AddTerm(s1, LoadTail(a, sa, i, dim - i),
					 LoadTail(b, sb, i, dim - i), term);
	return SumFloats(_mm512_add_ps(_mm512_add_ps(s0, s1),
								   _mm512_add_ps(s2, s3)));
}

/* Squared differences of 64 bytes, in sixteen sums of four, as in avx2.c. */
AVX512_INLINE __m512i
BytesL2(__m512i a, __m512i b, bool is_signed)
{
	__m512i		zero = _mm512_setzero_si512();
	__m512i		high = is_signed ? _mm512_max_epi8(a, b) :
		_mm512_max_epu8(a, b);
	__m512i		low = is_signed ? _mm512_min_epi8(a, b) :
		_mm512_min_epu8(a, b);
	__m512i		d = _mm512_sub_epi8(high, low);
	__m512i		d0 = _mm512_unpacklo_epi8(d, zero);
	__m512i		d1 = _mm512_unpackhi_epi8(d, zero);

	return _mm512_add_epi32(_mm512_madd_epi16(d0, d0),
							_mm512_madd_epi16(d1, d1));
}

/* The lower or upper 32 of 64 bytes, as 16-bit numbers. */
AVX512_INLINE __m512i
WidenHalf(__m512i v, int half, bool is_signed)
{
	__m256i		bytes = half == 0 ? _mm512_castsi512_si256(v) :
		_mm512_extracti64x4_epi64(v, 1);

	return is_signed ? _mm512_cvtepi8_epi16(bytes) :
		_mm512_cvtepu8_epi16(bytes);
}

/* Products of 64 bytes, in sixteen sums of four. */
AVX512_INLINE __m512i
BytesDot(__m512i a, __m512i b, bool is_signed)
{
	__m512i		p0 = _mm512_madd_epi16(WidenHalf(a, 0, is_signed),
									   WidenHalf(b, 0, is_signed));
	__m512i		p1 = _mm512_madd_epi16(WidenHalf(a, 1, is_signed),
									   WidenHalf(b, 1, is_signed));

	return _mm512_add_epi32(p0, p1);
}

AVX512_INLINE __m512i
AddBytes(__m512i sum, __m512i a, __m512i b, bool is_signed, bool is_dot)
{
	return _mm512_add_epi32(sum, is_dot ? BytesDot(a, b, is_signed) :
							BytesL2(a, b, is_signed));
}

/* 64 bytes of an integer vector from element i on. */
AVX512_INLINE __m512i
LoadBytes(const void *v, int i)
{
	return _mm512_loadu_si512((const char *) v + i);
}

/* The n < 64 bytes from element i on, then zeros. */
AVX512_INLINE __m512i
LoadBytesTail(const void *v, int i, int n)
{
	return _mm512_maskz_loadu_epi8(((__mmask64) 1 << n) - 1,
								   (const char *) v + i);
}

/* Bytes against bytes, exact (scalar.c). */
AVX512_INLINE float
BytePair(const void *a, const void *b, int dim, bool is_signed, bool is_dot)
{
	__m512i		s0 = _mm512_setzero_si512();
	__m512i		s1 = _mm512_setzero_si512();
	int			i = 0;

	for (; i + 128 <= dim; i += 128)
	{
		s0 = AddBytes(s0, LoadBytes(a, i), LoadBytes(b, i), is_signed, is_dot);
		s1 = AddBytes(s1, LoadBytes(a, i + 64), LoadBytes(b, i + 64),
					  is_signed, is_dot);
	}
	if (i + 64 <= dim)
	{
		s0 = AddBytes(s0, LoadBytes(a, i), LoadBytes(b, i), is_signed, is_dot);
		i += 64;
	}
	if (i < dim)
		s1 = AddBytes(s1, LoadBytesTail(a, i, dim - i), LoadBytesTail(b, i, dim - i),
					  is_signed, is_dot);
	return (float) SumInts(_mm512_add_epi32(s0, s1));
}

/*
 * Distances to all 256 centroids at once; the sums take half of the registers.
 */
#define CENTROID_VECTORS 16

AVX512_INLINE void
SumAll(const float *x, const void *centroids, PipeannStorage storage, int len,
	   Term term, __m512 *sum)
{
	UNROLL(16)
	for (int j = 0; j < CENTROID_VECTORS; j++)
		sum[j] = _mm512_setzero_ps();
	for (int d = 0; d < len; d++)
	{
		__m512		value = _mm512_set1_ps(x[d]);

		UNROLL(16)
		for (int j = 0; j < CENTROID_VECTORS; j++)
		{
			__m512		c = Load16(centroids, storage, d * PQ_ROW + 16 * j, 0);

			if (term == PRODUCTS)
				sum[j] = _mm512_fnmadd_ps(value, c, sum[j]);
			else
				sum[j] = AddTerm(sum[j], value, c, term);
		}
	}
}

AVX512_INLINE void
Centroids(const float *x, const void *centroids, PipeannStorage storage,
		  int len, float *out, Term term)
{
	__m512		sum[CENTROID_VECTORS];

	SumAll(x, centroids, storage, len, term, sum);
	UNROLL(16)
	for (int j = 0; j < CENTROID_VECTORS; j++)
		_mm512_storeu_ps(out + 16 * j, sum[j]);
}

/* The smallest lane, in all lanes. */
AVX512_INLINE __m512
LeastLane(__m512 v)
{
	__m512d		all = _mm512_castps_pd(v);
	__m256		half = _mm256_castpd_ps(_mm512_extractf64x4_pd(all, 1));
	__m128		s;

	half = _mm256_min_ps(_mm512_castps512_ps256(v), half);
	s = _mm_min_ps(_mm256_castps256_ps128(half),
				   _mm256_extractf128_ps(half, 1));
	s = _mm_min_ps(s, _mm_movehl_ps(s, s));
	s = _mm_min_ss(s, _mm_movehdup_ps(s));
	return _mm512_set1_ps(_mm_cvtss_f32(s));
}

/* A bit for each of 64 floats that equals value, the first one lowest. */
AVX512_INLINE uint64
EqualBits(const __m512 *v, __m512 value)
{
	uint64		bits = 0;

	UNROLL(4)
	for (int i = 0; i < 4; i++)
		bits |= (uint64) _mm512_cmp_ps_mask(v[i], value, _CMP_EQ_OQ) <<
			(16 * i);
	return bits;
}

/*
 * Keeps the least distances of each group of four registers, so that only the
 * group of the nearest centroid is looked through for its place. A distance
 * that is not a number does not count: the minimum is the second operand then.
 */
AVX512_INLINE int
NearestCentroid(const float *x, const float *centroids, int len,
				float *distance)
{
	__m512		sum[CENTROID_VECTORS];
	__m512		low[4];
	__m512		least;
	uint64		places;
	int			first;

	SumAll(x, centroids, PIPEANN_FLOAT4, len, SQUARES, sum);
	UNROLL(4)
	for (int g = 0; g < 4; g++)
		low[g] = _mm512_set1_ps(__builtin_inff());
	UNROLL(16)
	for (int j = 0; j < CENTROID_VECTORS; j++)
	{
		low[j / 4] = _mm512_min_ps(sum[j], low[j / 4]);
		_mm512_storeu_ps(distance + 16 * j, sum[j]);
	}
	least = LeastLane(_mm512_min_ps(_mm512_min_ps(low[0], low[1]),
									_mm512_min_ps(low[2], low[3])));
	first = __builtin_ctzll(EqualBits(low, least)) / 16 * 64;
	UNROLL(4)
	for (int i = 0; i < 4; i++)
		low[i] = _mm512_loadu_ps(distance + first + 16 * i);
	places = EqualBits(low, least);
	return places == 0 ? 0 : first + __builtin_ctzll(places);
}

/* A register holds a pair of dimensions of all columns. */
AVX512 static void
DotTile(const int16 *const *rows, const int16 *panel, int dim, int32 *out)
{
	__m512i		sum[PIPEANN_TILE_ROWS];

	UNROLL(12)
	for (int r = 0; r < PIPEANN_TILE_ROWS; r++)
		sum[r] = _mm512_setzero_si512();
	for (int d = 0; d < dim; d += PIPEANN_TILE_DIM)
	{
		__m512i		columns = _mm512_loadu_si512(panel +
												 PIPEANN_PANEL_SIZE(d));

		UNROLL(12)
		for (int r = 0; r < PIPEANN_TILE_ROWS; r++)
		{
			__m512i		pair = _mm512_set1_epi32(LoadPair(rows[r] + d));

			sum[r] = _mm512_dpwssd_epi32(sum[r], pair, columns);
		}
	}
	UNROLL(12)
	for (int r = 0; r < PIPEANN_TILE_ROWS; r++)
		_mm512_storeu_si512(out + r * PIPEANN_TILE_COLUMNS, sum[r]);
}

AVX512_INLINE void
ToFloat(const void *src, PipeannStorage storage, int dim, float *dst)
{
	float		scale = SqScale(src, storage, dim);
	int			i = 0;

	for (; i + 16 <= dim; i += 16)
		_mm512_storeu_ps(dst + i, Load16(src, storage, i, scale));
	if (i < dim)
		_mm512_mask_storeu_ps(dst + i, (__mmask16) ((1 << (dim - i)) - 1),
							  LoadTail(src, storage, i, dim - i));
}

/*
 * Sixteen fixed-point numbers. Rounds as the default mode does, ties to even.
 */
AVX512_INLINE __m256i
Fix16(__m512 x, __m512 offset, float scale)
{
	__m512		v = _mm512_mul_ps(_mm512_sub_ps(x, offset),
								  _mm512_set1_ps(scale));

	v = _mm512_min_ps(v, _mm512_set1_ps(PIPEANN_FIXED_MAX));
	v = _mm512_max_ps(v, _mm512_set1_ps(-PIPEANN_FIXED_MAX));
	return _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(v));
}

AVX512 static void
ToFixed(const float *x, const float *offset, float scale, int dim, int16 *out)
{
	int			i = 0;

	for (; i + 16 <= dim; i += 16)
		_mm256_storeu_si256((__m256i *) (out + i),
							Fix16(_mm512_loadu_ps(x + i),
								  _mm512_loadu_ps(offset + i), scale));
	if (i < dim)
		_mm256_mask_storeu_epi16(out + i, (__mmask16) ((1 << (dim - i)) - 1),
								 Fix16(LoadTail(x, PIPEANN_FLOAT4, i, dim - i),
									   LoadTail(offset, PIPEANN_FLOAT4, i,
												dim - i), scale));
}

/* Two vectors' bits of 64 bytes, of which the mask leaves out some. */
AVX512_INLINE __m512i
CountBits(const char *a, const char *b, __mmask64 mask, Term term)
{
	__m512i		x = _mm512_maskz_loadu_epi8(mask, a);
	__m512i		y = _mm512_maskz_loadu_epi8(mask, b);

	return _mm512_popcnt_epi64(term == PRODUCTS ? _mm512_and_si512(x, y) :
							   _mm512_xor_si512(x, y));
}

/* Half of the time of one count after the other with 1,024 bits, a third with more. */
AVX512_INLINE float
BitSum(const void *a, const void *b, int dim, Term term)
{
	int			bytes = (dim + 7) / 8;
	__m512i		sum = _mm512_setzero_si512();
	int			i = 0;

	for (; i + 64 <= bytes; i += 64)
		sum = _mm512_add_epi64(sum, CountBits((const char *) a + i,
											  (const char *) b + i,
											  ~(__mmask64) 0, term));
	if (i < bytes)
		sum = _mm512_add_epi64(sum, CountBits((const char *) a + i,
											  (const char *) b + i,
											  ((__mmask64) 1 << (bytes - i)) - 1,
											  term));
	return (float) SumInts(sum);
}

#define OWN_BIT_SUM
#include "distance/bits.h"

/*
 * Not compiled for AVX-512: GCC would use wide instructions for this loop,
 * which makes it slower from 50 bytes on.
 */
#define PQ_SCAN_KERNEL

#define SET PipeannKernelsAvx512
#define ONE_BY_ONE
#define SET_NAME "avx512"
#define KERNEL AVX512
#include "distance/kernels.h"

/*
 * Whether this processor and the operating system support this file. The
 * builtins look at XGETBV, too, since the system must save the mask registers
 * and all of the wide ones. VBMI2 is not used here, but processors that have
 * AVX-512 without it lower their clock for a while when they meet instructions
 * of this width, and a backend has other work as well.
 */
bool
PipeannCpuHasAvx512(void)
{
	__builtin_cpu_init();
	return PipeannCpuHasAvx2() &&
		__builtin_cpu_supports("avx512f") &&
		__builtin_cpu_supports("avx512bw") &&
		__builtin_cpu_supports("avx512vl") &&
		__builtin_cpu_supports("avx512vnni") &&
		__builtin_cpu_supports("avx512vpopcntdq") &&
		__builtin_cpu_supports("avx512vbmi2");
}

#endif							/* __x86_64__ */
