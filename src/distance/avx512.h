/*
 * avx512.h
 *		What the kernels for AVX-512 have in common; private to distance/.
 *
 * Only functions with the target attribute may use it. Where there is no
 * processor with AVX-512 the unit tests run these kernels by emulation.
 */
#ifndef PIPEANN_AVX512_H
#define PIPEANN_AVX512_H

#include "base/base.h"

#ifdef PIPEANN_EMULATE_AVX512
#include "avx512_emulation.h"

#define TARGET
#else
#include <immintrin.h>

#define TARGET target("avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")
#endif

#define AVX512 __attribute__((TARGET))
#define AVX512_INLINE \
	static inline __attribute__((always_inline, TARGET))

/* Elements i .. i + 15 as floats; storage is a constant where inlined. */
AVX512_INLINE __m512
Load16(const void *v, PipeannStorage storage, int i)
{
	const char *p = (const char *) v + (Size) i * PipeannElementSize(storage);
	__m128i		bytes;

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

#endif							/* PIPEANN_AVX512_H */
