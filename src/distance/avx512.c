/*
 * avx512.c
 *		Distance kernels for x86-64 with AVX-512 (F, BW, VL, VNNI), 2019 and
 *		later.
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

#include "distance/avx512.h"
#include "distance/bulk.h"
#include "distance/pq_scan.h"

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
AddTerm(__m512 sum, __m512 a, __m512 b, bool is_dot)
{
	__m512		d;

	if (is_dot)
		return _mm512_fmadd_ps(a, b, sum);
	d = _mm512_sub_ps(a, b);
	return _mm512_fmadd_ps(d, d, sum);
}

/* Sum over i < dim of (a[i] - b[i])^2, or of a[i] * b[i]. */
AVX512_INLINE float
FloatSum(const void *a, PipeannStorage sa, const void *b, PipeannStorage sb,
		 int dim, bool is_dot)
{
	__m512		s0 = _mm512_setzero_ps();
	__m512		s1 = _mm512_setzero_ps();
	__m512		s2 = _mm512_setzero_ps();
	__m512		s3 = _mm512_setzero_ps();
	int			i = 0;

	for (; i + 64 <= dim; i += 64)
	{
		s0 = AddTerm(s0, Load16(a, sa, i), Load16(b, sb, i), is_dot);
		s1 = AddTerm(s1, Load16(a, sa, i + 16), Load16(b, sb, i + 16),
					 is_dot);
		s2 = AddTerm(s2, Load16(a, sa, i + 32), Load16(b, sb, i + 32),
					 is_dot);
		s3 = AddTerm(s3, Load16(a, sa, i + 48), Load16(b, sb, i + 48),
					 is_dot);
	}
	for (; i + 16 <= dim; i += 16)
		s0 = AddTerm(s0, Load16(a, sa, i), Load16(b, sb, i), is_dot);
	if (i < dim)
		s1 = AddTerm(s1, LoadTail(a, sa, i, dim - i),
					 LoadTail(b, sb, i, dim - i), is_dot);
	return SumFloats(_mm512_add_ps(_mm512_add_ps(s0, s1),
								   _mm512_add_ps(s2, s3)));
}

/*
 * Squared differences of 64 bytes, in sixteen sums of four. The difference of
 * two signed bytes fits an unsigned byte, like that of two unsigned ones, so
 * both are computed as largest minus smallest and widened with zeros.
 */
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
BytesTerm(__m512i a, __m512i b, bool is_signed, bool is_dot)
{
	return is_dot ? BytesDot(a, b, is_signed) : BytesL2(a, b, is_signed);
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

/*
 * Bytes against bytes, exact: the sum stays below 2^31 up to 33,025
 * dimensions.
 */
AVX512_INLINE float
BytePair(const void *a, const void *b, int dim, bool is_signed, bool is_dot)
{
	__m512i		s0 = _mm512_setzero_si512();
	__m512i		s1 = _mm512_setzero_si512();
	int			i = 0;

	for (; i + 128 <= dim; i += 128)
	{
		s0 = _mm512_add_epi32(s0, BytesTerm(LoadBytes(a, i), LoadBytes(b, i),
											is_signed, is_dot));
		s1 = _mm512_add_epi32(s1, BytesTerm(LoadBytes(a, i + 64),
											LoadBytes(b, i + 64),
											is_signed, is_dot));
	}
	if (i + 64 <= dim)
	{
		s0 = _mm512_add_epi32(s0, BytesTerm(LoadBytes(a, i), LoadBytes(b, i),
											is_signed, is_dot));
		i += 64;
	}
	if (i < dim)
		s1 = _mm512_add_epi32(s1, BytesTerm(LoadBytesTail(a, i, dim - i),
											LoadBytesTail(b, i, dim - i),
											is_signed, is_dot));
	return (float) SumInts(_mm512_add_epi32(s0, s1));
}

AVX512 static float
L2Float4(const float *q, const void *v, int dim)
{
	return FloatSum(q, PIPEANN_FLOAT4, v, PIPEANN_FLOAT4, dim, false);
}

AVX512 static float
L2Float2(const float *q, const void *v, int dim)
{
	return FloatSum(q, PIPEANN_FLOAT4, v, PIPEANN_FLOAT2, dim, false);
}

AVX512 static float
L2Int8(const float *q, const void *v, int dim)
{
	return FloatSum(q, PIPEANN_FLOAT4, v, PIPEANN_INT8, dim, false);
}

AVX512 static float
L2Uint8(const float *q, const void *v, int dim)
{
	return FloatSum(q, PIPEANN_FLOAT4, v, PIPEANN_UINT8, dim, false);
}

AVX512 static float
DotFloat4(const float *q, const void *v, int dim)
{
	return FloatSum(q, PIPEANN_FLOAT4, v, PIPEANN_FLOAT4, dim, true);
}

AVX512 static float
DotFloat2(const float *q, const void *v, int dim)
{
	return FloatSum(q, PIPEANN_FLOAT4, v, PIPEANN_FLOAT2, dim, true);
}

AVX512 static float
DotInt8(const float *q, const void *v, int dim)
{
	return FloatSum(q, PIPEANN_FLOAT4, v, PIPEANN_INT8, dim, true);
}

AVX512 static float
DotUint8(const float *q, const void *v, int dim)
{
	return FloatSum(q, PIPEANN_FLOAT4, v, PIPEANN_UINT8, dim, true);
}

AVX512 static float
L2PairFloat4(const void *a, const void *b, int dim)
{
	return FloatSum(a, PIPEANN_FLOAT4, b, PIPEANN_FLOAT4, dim, false);
}

AVX512 static float
L2PairInt8(const void *a, const void *b, int dim)
{
	return BytePair(a, b, dim, true, false);
}

AVX512 static float
L2PairUint8(const void *a, const void *b, int dim)
{
	return BytePair(a, b, dim, false, false);
}

AVX512 static float
DotPairFloat4(const void *a, const void *b, int dim)
{
	return FloatSum(a, PIPEANN_FLOAT4, b, PIPEANN_FLOAT4, dim, true);
}

AVX512 static float
DotPairInt8(const void *a, const void *b, int dim)
{
	return BytePair(a, b, dim, true, true);
}

AVX512 static float
DotPairUint8(const void *a, const void *b, int dim)
{
	return BytePair(a, b, dim, false, true);
}

/*
 * Not compiled for AVX-512: GCC would use wide instructions for this loop,
 * which makes it slower from 50 bytes on.
 */
static void
PqScan(const float *table, int nchunks, const uint8 *const *codes, int n,
	   float *out)
{
	PqScanBody(table, nchunks, codes, n, out);
}

/*
 * Between two vectors in half precision AVX2 is faster: to convert 16 elements
 * at once takes as long as 8 twice.
 */
const PipeannKernels PipeannKernelsAvx512 = {
	.name = "avx512",
	.l2 = {NULL, L2Float4, L2Float2, L2Int8, L2Uint8},
	.dot = {NULL, DotFloat4, DotFloat2, DotInt8, DotUint8},
	.l2_pair = {NULL, L2PairFloat4, PipeannAvx2L2PairFloat2, L2PairInt8,
	L2PairUint8},
	.dot_pair = {NULL, DotPairFloat4, PipeannAvx2DotPairFloat2, DotPairInt8,
	DotPairUint8},
	.pq_scan = PqScan,
	BULK_KERNELS(Avx512)
};

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
		__builtin_cpu_supports("avx512vbmi2");
}

#endif							/* __x86_64__ */
