/*
 * avx2.h
 *		What the kernels for AVX2 have in common; private to distance/.
 *
 * Only functions with the target attribute may use it.
 */
#ifndef PIPEANN_AVX2_H
#define PIPEANN_AVX2_H

#include <immintrin.h>

#include "base/base.h"

#define AVX2 __attribute__((target("avx2,fma,f16c")))
#define AVX2_INLINE \
	static inline __attribute__((always_inline, target("avx2,fma,f16c")))

/* Elements i .. i + 7 as floats; storage is a constant where inlined. */
AVX2_INLINE __m256
Load8(const void *v, PipeannStorage storage, int i)
{
	const char *p = (const char *) v;
	__m128i		bytes;

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

#endif							/* PIPEANN_AVX2_H */
