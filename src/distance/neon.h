/*
 * neon.h
 *		What the kernels for 64-bit ARM have in common; private to distance/.
 */
#ifndef PIPEANN_NEON_H
#define PIPEANN_NEON_H

#include <arm_neon.h>

#include "base/base.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Eight floats. */
typedef struct Float8
{
	float32x4_t low;
	float32x4_t high;
} Float8;

/* Elements i .. i + 7 as floats; storage is a constant where inlined. */
ALWAYS_INLINE Float8
Load8(const void *v, PipeannStorage storage, int i)
{
	/* loads by byte, as a vector on a page need not be aligned */
	const uint8 *p = (const uint8 *) v + i * PipeannElementSize(storage);
	Float8		result;

	if (storage == PIPEANN_FLOAT4)
	{
		result.low = vreinterpretq_f32_u8(vld1q_u8(p));
		result.high = vreinterpretq_f32_u8(vld1q_u8(p + 16));
	}
	else if (storage == PIPEANN_FLOAT2)
	{
		float16x8_t h = vreinterpretq_f16_u8(vld1q_u8(p));

		result.low = vcvt_f32_f16(vget_low_f16(h));
		result.high = vcvt_f32_f16(vget_high_f16(h));
	}
	else if (storage == PIPEANN_INT8)
	{
		int16x8_t	w = vmovl_s8(vreinterpret_s8_u8(vld1_u8(p)));

		result.low = vcvtq_f32_s32(vmovl_s16(vget_low_s16(w)));
		result.high = vcvtq_f32_s32(vmovl_s16(vget_high_s16(w)));
	}
	else
	{
		uint16x8_t	w = vmovl_u8(vld1_u8(p));

		result.low = vcvtq_f32_u32(vmovl_u16(vget_low_u16(w)));
		result.high = vcvtq_f32_u32(vmovl_u16(vget_high_u16(w)));
	}
	return result;
}

/*
 * Elements i .. dim - 1, fewer than 8, with zeros behind them. They are
 * copied, so that nothing outside of the vector is read.
 */
ALWAYS_INLINE Float8
LoadTail(const void *v, PipeannStorage storage, int i, int dim)
{
	Size		size = PipeannElementSize(storage);
	uint8		copy[32] = {0};

	memcpy(copy, (const uint8 *) v + i * size, (dim - i) * size);
	return Load8(copy, storage, 0);
}

#endif							/* PIPEANN_NEON_H */
