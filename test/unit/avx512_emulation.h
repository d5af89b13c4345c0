/*
 * avx512_emulation.h
 *		AVX-512 in portable C, for kernel_test.c on machines without it.
 *
 * src/distance/avx512.c compiled with this are the set PipeannKernelsEmulated:
 * SIMDe stands in for the instructions, and where its release has none, what
 * is written here after the description of the instruction. Masked loads
 * and stores touch only what the mask selects, as the processor's do.
 */
#ifndef AVX512_EMULATION_H
#define AVX512_EMULATION_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Inlined, they take the sanitizers' build four minutes of a processor, not 17 s. */
#define SIMDE_NO_INLINE
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/fma.h>

#include "distance/distance.h"
#include "distance/common.h"

#define PipeannKernelsAvx512 PipeannKernelsEmulated
#define PipeannCpuHasAvx512 PipeannCpuHasAvx512ByEmulation


#define EMULATED static inline __attribute__((unused))

typedef uint16_t EmulatedMask16;
typedef uint64_t EmulatedMask64;

EMULATED simde__m512
EmulatedMaskzLoadPs(EmulatedMask16 mask, const void *p)
{
	float		lanes[16] = {0};

	for (int i = 0; i < 16; i++)
		if ((mask >> i) & 1)
			memcpy(lanes + i, (const char *) p + 4 * i, 4);
	return simde_mm512_loadu_ps(lanes);
}

EMULATED simde__m512i
EmulatedPopcntEpi64(simde__m512i a)
{
	uint64_t	lanes[8];

	simde_mm512_storeu_si512(lanes, a);
	for (int i = 0; i < 8; i++)
		lanes[i] = __builtin_popcountll(lanes[i]);
	return simde_mm512_loadu_si512(lanes);
}

EMULATED simde__m512i
EmulatedPopcntEpi32(simde__m512i a)
{
	uint32_t	lanes[16];

	simde_mm512_storeu_si512(lanes, a);
	for (int i = 0; i < 16; i++)
		lanes[i] = __builtin_popcount(lanes[i]);
	return simde_mm512_loadu_si512(lanes);
}

EMULATED simde__m256i
EmulatedMaskzLoad256Epi16(EmulatedMask16 mask, const void *p)
{
	int16_t		lanes[16] = {0};

	for (int i = 0; i < 16; i++)
		if ((mask >> i) & 1)
			memcpy(lanes + i, (const char *) p + 2 * i, 2);
	return simde_mm256_loadu_si256((simde__m256i *) lanes);
}

EMULATED simde__m128i
EmulatedMaskzLoad128Epi8(EmulatedMask16 mask, const void *p)
{
	int8_t		lanes[16] = {0};

	for (int i = 0; i < 16; i++)
		if ((mask >> i) & 1)
			lanes[i] = ((const int8_t *) p)[i];
	return simde_mm_loadu_si128((simde__m128i *) lanes);
}

EMULATED simde__m512i
EmulatedMaskzLoadEpi8(EmulatedMask64 mask, const void *p)
{
	int8_t		lanes[64] = {0};

	for (int i = 0; i < 64; i++)
		if ((mask >> i) & 1)
			lanes[i] = ((const int8_t *) p)[i];
	return simde_mm512_loadu_si512(lanes);
}

/* In halves, halves of these, and so on. */
EMULATED float
EmulatedReduceAddPs(simde__m512 v)
{
	float		lanes[16];

	simde_mm512_storeu_ps(lanes, v);
	for (int n = 8; n > 0; n /= 2)
		for (int i = 0; i < n; i++)
			lanes[i] += lanes[i + n];
	return lanes[0];
}

EMULATED float
EmulatedReduceMinPs(simde__m512 v)
{
	float		lanes[16];

	simde_mm512_storeu_ps(lanes, v);
	for (int i = 1; i < 16; i++)
		lanes[0] = lanes[i] < lanes[0] ? lanes[i] : lanes[0];
	return lanes[0];
}

EMULATED int32_t
EmulatedReduceAddEpi32(simde__m512i v)
{
	uint32_t	lanes[16];

	simde_mm512_storeu_si512(lanes, v);
	for (int i = 1; i < 16; i++)
		lanes[0] += lanes[i];
	return (int32_t) lanes[0];
}

/* Rounds to nearest, ties to even, whatever the mode. */
EMULATED simde__m256i
EmulatedCvtpsPh(simde__m512 v, int mode)
{
	float		in[16];
	uint16_t	out[16];

	(void) mode;
	simde_mm512_storeu_ps(in, v);
	for (int i = 0; i < 16; i++)
		out[i] = FloatToHalf(in[i]);
	return simde_mm256_loadu_si256((simde__m256i *) out);
}

EMULATED simde__m512i
EmulatedSraiEpi16(simde__m512i v, int count)
{
	int16_t		lanes[32];

	simde_mm512_storeu_si512(lanes, v);
	for (int i = 0; i < 32; i++)
		lanes[i] >>= count;
	return simde_mm512_loadu_si512(lanes);
}

/* SIMDe's leaves signalling NaNs as they are. */
EMULATED simde__m512
EmulatedCvtphPs(simde__m256i h)
{
	uint16_t	in[16];
	float		out[16];

	simde_mm256_storeu_si256((simde__m256i *) in, h);
	for (int i = 0; i < 16; i++)
		out[i] = HalfToFloat(in[i]);
	return simde_mm512_loadu_ps(out);
}

EMULATED simde__m512i
EmulatedSravEpi32(simde__m512i v, simde__m512i count)
{
	int32_t		in[16];
	int32_t		shift[16];

	simde_mm512_storeu_si512(in, v);
	simde_mm512_storeu_si512(shift, count);
	for (int i = 0; i < 16; i++)
		in[i] >>= shift[i];
	return simde_mm512_loadu_si512(in);
}

EMULATED simde__m512i
EmulatedCvtepi8Epi32(simde__m128i v)
{
	int8_t		in[16];
	int32_t		out[16];

	simde_mm_storeu_si128((simde__m128i *) in, v);
	for (int i = 0; i < 16; i++)
		out[i] = in[i];
	return simde_mm512_loadu_si512(out);
}

EMULATED simde__m512i
EmulatedCvtepu8Epi32(simde__m128i v)
{
	uint8_t		in[16];
	int32_t		out[16];

	simde_mm_storeu_si128((simde__m128i *) in, v);
	for (int i = 0; i < 16; i++)
		out[i] = in[i];
	return simde_mm512_loadu_si512(out);
}

EMULATED simde__m512
EmulatedCvtepi32Ps(simde__m512i v)
{
	int32_t		in[16];
	float		out[16];

	simde_mm512_storeu_si512(in, v);
	for (int i = 0; i < 16; i++)
		out[i] = (float) in[i];
	return simde_mm512_loadu_ps(out);
}

EMULATED simde__m512i
EmulatedCvtpsEpi32(simde__m512 v)
{
	float		in[16];
	int32_t		out[16];

	simde_mm512_storeu_ps(in, v);
	for (int i = 0; i < 16; i++)
		out[i] = (int32_t) lrintf(in[i]);
	return simde_mm512_loadu_si512(out);
}

/* Saturates. */
EMULATED simde__m256i
EmulatedCvtsepi32Epi16(simde__m512i v)
{
	int32_t		in[16];
	int16_t		out[16];

	simde_mm512_storeu_si512(in, v);
	for (int i = 0; i < 16; i++)
		out[i] = (int16_t) (in[i] > INT16_MAX ? INT16_MAX :
							in[i] < INT16_MIN ? INT16_MIN : in[i]);
	return simde_mm256_loadu_si256((simde__m256i *) out);
}

/* Products of pairs, added to sum modulo 2^32. */
EMULATED simde__m512i
EmulatedDpwssdEpi32(simde__m512i sum, simde__m512i a, simde__m512i b)
{
	int16_t		x[32];
	int16_t		y[32];
	uint32_t	out[16];

	simde_mm512_storeu_si512(x, a);
	simde_mm512_storeu_si512(y, b);
	simde_mm512_storeu_si512(out, sum);
	for (int i = 0; i < 32; i++)
		out[i / 2] += (uint32_t) (x[i] * y[i]);
	return simde_mm512_loadu_si512(out);
}

/* Some releases of SIMDe have them. */
#undef _mm512_maskz_loadu_ps
#undef _mm256_maskz_loadu_epi16
#undef _mm_maskz_loadu_epi8
#undef _mm512_maskz_loadu_epi8
#undef _mm512_cvtph_ps
#undef _mm512_cvtepi8_epi32
#undef _mm512_cvtepu8_epi32
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtps_epi32
#undef _mm512_reduce_add_ps
#undef _mm512_reduce_min_ps
#undef _mm512_reduce_add_epi32
#undef _mm512_cvtps_ph
#undef _mm512_srai_epi16
#define _mm512_reduce_add_ps EmulatedReduceAddPs
#define _mm512_reduce_min_ps EmulatedReduceMinPs
#define _mm512_reduce_add_epi32 EmulatedReduceAddEpi32
#define _mm512_cvtps_ph EmulatedCvtpsPh
#define _mm512_srai_epi16 EmulatedSraiEpi16
#define __mmask16 EmulatedMask16
#define __mmask64 EmulatedMask64
#define _mm512_maskz_loadu_ps EmulatedMaskzLoadPs
#undef _mm512_popcnt_epi64
#define _mm512_popcnt_epi64 EmulatedPopcntEpi64
#undef _mm512_popcnt_epi32
#define _mm512_popcnt_epi32 EmulatedPopcntEpi32
#define _mm256_maskz_loadu_epi16 EmulatedMaskzLoad256Epi16
#define _mm_maskz_loadu_epi8 EmulatedMaskzLoad128Epi8
#define _mm512_maskz_loadu_epi8 EmulatedMaskzLoadEpi8
#define _mm512_cvtph_ps EmulatedCvtphPs
#define _mm512_cvtepi8_epi32 EmulatedCvtepi8Epi32
#define _mm512_cvtepu8_epi32 EmulatedCvtepu8Epi32
#define _mm512_cvtepi32_ps EmulatedCvtepi32Ps
#define _mm512_cvtps_epi32 EmulatedCvtpsEpi32

#undef _mm512_cvtsepi32_epi16
#undef _mm512_dpwssd_epi32
#undef _mm512_srav_epi32
#define _mm512_srav_epi32 EmulatedSravEpi32
#define _mm512_cvtsepi32_epi16 EmulatedCvtsepi32Epi16
#define _mm512_dpwssd_epi32 EmulatedDpwssdEpi32

/* This alias has too many arguments in SIMDe 0.7.4. */
#undef _mm512_madd_epi16
#define _mm512_madd_epi16 simde_mm512_madd_epi16

#endif							/* AVX512_EMULATION_H */
