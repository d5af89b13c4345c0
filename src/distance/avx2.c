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
#include "distance/bulk.h"
#include "distance/pq_scan.h"

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

		return _mm256_and_ps(Load8(v, storage, dim - 8),
							 _mm256_castsi256_ps(mask));
	}
	else
	{
		char		copy[32] = {0};

		memcpy(copy, v, dim * PipeannElementSize(storage));
		return Load8(copy, storage, 0);
	}
}

/* Sum over i < dim of (a[i] - b[i])^2. */
AVX2_INLINE float
FloatL2(const void *a, PipeannStorage sa, const void *b, PipeannStorage sb,
		int dim)
{
	__m256		s0 = _mm256_setzero_ps();
	__m256		s1 = _mm256_setzero_ps();
	__m256		s2 = _mm256_setzero_ps();
	__m256		s3 = _mm256_setzero_ps();
	__m256		d0;
	__m256		d1;
	__m256		d2;
	__m256		d3;
	int			i = 0;

	for (; i + 32 <= dim; i += 32)
	{
		d0 = _mm256_sub_ps(Load8(a, sa, i), Load8(b, sb, i));
		d1 = _mm256_sub_ps(Load8(a, sa, i + 8), Load8(b, sb, i + 8));
		d2 = _mm256_sub_ps(Load8(a, sa, i + 16), Load8(b, sb, i + 16));
		d3 = _mm256_sub_ps(Load8(a, sa, i + 24), Load8(b, sb, i + 24));
		s0 = _mm256_fmadd_ps(d0, d0, s0);
		s1 = _mm256_fmadd_ps(d1, d1, s1);
		s2 = _mm256_fmadd_ps(d2, d2, s2);
		s3 = _mm256_fmadd_ps(d3, d3, s3);
	}
	for (; i + 8 <= dim; i += 8)
	{
		d0 = _mm256_sub_ps(Load8(a, sa, i), Load8(b, sb, i));
		s0 = _mm256_fmadd_ps(d0, d0, s0);
	}
	if (i < dim)
	{
		d1 = _mm256_sub_ps(LoadTail(a, sa, dim), LoadTail(b, sb, dim));
		s1 = _mm256_fmadd_ps(d1, d1, s1);
	}
	return SumFloats(_mm256_add_ps(_mm256_add_ps(s0, s1),
								   _mm256_add_ps(s2, s3)));
}

/* Sum over i < dim of a[i] * b[i]. */
AVX2_INLINE float
FloatDot(const void *a, PipeannStorage sa, const void *b, PipeannStorage sb,
		 int dim)
{
	__m256		s0 = _mm256_setzero_ps();
	__m256		s1 = _mm256_setzero_ps();
	__m256		s2 = _mm256_setzero_ps();
	__m256		s3 = _mm256_setzero_ps();
	int			i = 0;

	for (; i + 32 <= dim; i += 32)
	{
		s0 = _mm256_fmadd_ps(Load8(a, sa, i), Load8(b, sb, i), s0);
		s1 = _mm256_fmadd_ps(Load8(a, sa, i + 8), Load8(b, sb, i + 8), s1);
		s2 = _mm256_fmadd_ps(Load8(a, sa, i + 16), Load8(b, sb, i + 16), s2);
		s3 = _mm256_fmadd_ps(Load8(a, sa, i + 24), Load8(b, sb, i + 24), s3);
	}
	for (; i + 8 <= dim; i += 8)
		s0 = _mm256_fmadd_ps(Load8(a, sa, i), Load8(b, sb, i), s0);
	if (i < dim)
		s1 = _mm256_fmadd_ps(LoadTail(a, sa, dim), LoadTail(b, sb, dim), s1);
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
BytesTerm(__m256i a, __m256i b, bool is_signed, bool is_dot)
{
	return is_dot ? BytesDot(a, b, is_signed) : BytesL2(a, b, is_signed);
}

/*
 * Bytes against bytes, exact: the sum stays below 2^31 up to 33,025
 * dimensions.
 */
AVX2_INLINE float
BytePair(const void *a, const void *b, int dim, bool is_signed, bool is_dot)
{
	__m256i		s0 = _mm256_setzero_si256();
	__m256i		s1 = _mm256_setzero_si256();
	int			i = 0;

	for (; i + 64 <= dim; i += 64)
	{
		s0 = _mm256_add_epi32(s0, BytesTerm(LoadBytes(a, i), LoadBytes(b, i),
											is_signed, is_dot));
		s1 = _mm256_add_epi32(s1, BytesTerm(LoadBytes(a, i + 32),
											LoadBytes(b, i + 32),
											is_signed, is_dot));
	}
	if (i + 32 <= dim)
	{
		s0 = _mm256_add_epi32(s0, BytesTerm(LoadBytes(a, i), LoadBytes(b, i),
											is_signed, is_dot));
		i += 32;
	}
	if (i < dim)
		s1 = _mm256_add_epi32(s1, BytesTerm(LoadBytesTail(a, dim),
											LoadBytesTail(b, dim),
											is_signed, is_dot));
	return (float) SumInts(_mm256_add_epi32(s0, s1));
}

AVX2 static float
L2Float4(const float *q, const void *v, int dim)
{
	return FloatL2(q, PIPEANN_FLOAT4, v, PIPEANN_FLOAT4, dim);
}

AVX2 static float
L2Float2(const float *q, const void *v, int dim)
{
	return FloatL2(q, PIPEANN_FLOAT4, v, PIPEANN_FLOAT2, dim);
}

AVX2 static float
L2Int8(const float *q, const void *v, int dim)
{
	return FloatL2(q, PIPEANN_FLOAT4, v, PIPEANN_INT8, dim);
}

AVX2 static float
L2Uint8(const float *q, const void *v, int dim)
{
	return FloatL2(q, PIPEANN_FLOAT4, v, PIPEANN_UINT8, dim);
}

AVX2 static float
DotFloat4(const float *q, const void *v, int dim)
{
	return FloatDot(q, PIPEANN_FLOAT4, v, PIPEANN_FLOAT4, dim);
}

AVX2 static float
DotFloat2(const float *q, const void *v, int dim)
{
	return FloatDot(q, PIPEANN_FLOAT4, v, PIPEANN_FLOAT2, dim);
}

AVX2 static float
DotInt8(const float *q, const void *v, int dim)
{
	return FloatDot(q, PIPEANN_FLOAT4, v, PIPEANN_INT8, dim);
}

AVX2 static float
DotUint8(const float *q, const void *v, int dim)
{
	return FloatDot(q, PIPEANN_FLOAT4, v, PIPEANN_UINT8, dim);
}

AVX2 static float
L2PairFloat4(const void *a, const void *b, int dim)
{
	return FloatL2(a, PIPEANN_FLOAT4, b, PIPEANN_FLOAT4, dim);
}

AVX2 float
PipeannAvx2L2PairFloat2(const void *a, const void *b, int dim)
{
	return FloatL2(a, PIPEANN_FLOAT2, b, PIPEANN_FLOAT2, dim);
}

AVX2 static float
L2PairInt8(const void *a, const void *b, int dim)
{
	return BytePair(a, b, dim, true, false);
}

AVX2 static float
L2PairUint8(const void *a, const void *b, int dim)
{
	return BytePair(a, b, dim, false, false);
}

AVX2 static float
DotPairFloat4(const void *a, const void *b, int dim)
{
	return FloatDot(a, PIPEANN_FLOAT4, b, PIPEANN_FLOAT4, dim);
}

AVX2 float
PipeannAvx2DotPairFloat2(const void *a, const void *b, int dim)
{
	return FloatDot(a, PIPEANN_FLOAT2, b, PIPEANN_FLOAT2, dim);
}

AVX2 static float
DotPairInt8(const void *a, const void *b, int dim)
{
	return BytePair(a, b, dim, true, true);
}

AVX2 static float
DotPairUint8(const void *a, const void *b, int dim)
{
	return BytePair(a, b, dim, false, true);
}

/* Plain C, compiled for this target; pq_scan.h says why it uses no gathers. */
AVX2 static void
PqScan(const float *table, int nchunks, const uint8 *const *codes, int n,
	   float *out)
{
	PqScanBody(table, nchunks, codes, n, out);
}

const PipeannKernels PipeannKernelsAvx2 = {
	.name = "avx2",
	.l2 = {NULL, L2Float4, L2Float2, L2Int8, L2Uint8},
	.dot = {NULL, DotFloat4, DotFloat2, DotInt8, DotUint8},
	.l2_pair = {NULL, L2PairFloat4, PipeannAvx2L2PairFloat2, L2PairInt8,
	L2PairUint8},
	.dot_pair = {NULL, DotPairFloat4, PipeannAvx2DotPairFloat2, DotPairInt8,
	DotPairUint8},
	.pq_scan = PqScan,
	BULK_KERNELS(Avx2)
};

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
		__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 &&
		(ecx & bit_F16C) != 0;
}

#endif							/* __x86_64__ */
