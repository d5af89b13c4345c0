/*
 * neon.c
 *		Distance kernels for 64-bit ARM with Advanced SIMD, which all of them
 *		have.
 *
 * Uses only ARMv8.0, which can convert from half precision.
 */
#include "distance/distance.h"

#if defined(__aarch64__)

#include "distance/bulk.h"
#include "distance/neon.h"
#include "distance/pq_scan.h"

/* Add the squares of eight differences to *sum. */
ALWAYS_INLINE void
AddL2(Float8 *sum, Float8 a, Float8 b)
{
	float32x4_t low = vsubq_f32(a.low, b.low);
	float32x4_t high = vsubq_f32(a.high, b.high);

	sum->low = vfmaq_f32(sum->low, low, low);
	sum->high = vfmaq_f32(sum->high, high, high);
}

/* Add eight products to *sum. */
ALWAYS_INLINE void
AddDot(Float8 *sum, Float8 a, Float8 b)
{
	sum->low = vfmaq_f32(sum->low, a.low, b.low);
	sum->high = vfmaq_f32(sum->high, a.high, b.high);
}

ALWAYS_INLINE void
AddTerm(Float8 *sum, Float8 a, Float8 b, bool is_dot)
{
	if (is_dot)
		AddDot(sum, a, b);
	else
		AddL2(sum, a, b);
}

/* Sum over i < dim of (a[i] - b[i])^2, or of a[i] * b[i]. */
ALWAYS_INLINE float
FloatSum(const void *a, PipeannStorage sa, const void *b, PipeannStorage sb,
		 int dim, bool is_dot)
{
	Float8		s0 = {vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)};
	Float8		s1 = s0;
	int			i = 0;

	for (; i + 16 <= dim; i += 16)
	{
		AddTerm(&s0, Load8(a, sa, i), Load8(b, sb, i), is_dot);
		AddTerm(&s1, Load8(a, sa, i + 8), Load8(b, sb, i + 8), is_dot);
	}
	if (i + 8 <= dim)
	{
		AddTerm(&s0, Load8(a, sa, i), Load8(b, sb, i), is_dot);
		i += 8;
	}
	if (i < dim)
		AddTerm(&s1, LoadTail(a, sa, i, dim), LoadTail(b, sb, i, dim),
				is_dot);
	return vaddvq_f32(vaddq_f32(vaddq_f32(s0.low, s0.high),
								vaddq_f32(s1.low, s1.high)));
}

/* 16 bytes of an integer vector from element i on. */
ALWAYS_INLINE uint8x16_t
LoadBytes(const void *v, int i)
{
	return vld1q_u8((const uint8 *) v + i);
}

/* The dim - i < 16 bytes from element i on, then zeros. */
ALWAYS_INLINE uint8x16_t
LoadBytesTail(const void *v, int i, int dim)
{
	uint8		copy[16] = {0};

	memcpy(copy, (const uint8 *) v + i, dim - i);
	return vld1q_u8(copy);
}

/*
 * Add the squared differences of 16 bytes to four sums. The difference of two
 * signed bytes fits an unsigned byte, like that of two unsigned ones.
 */
ALWAYS_INLINE uint32x4_t
AddBytesL2(uint32x4_t sum, uint8x16_t a, uint8x16_t b, bool is_signed)
{
	uint8x16_t	d = vabdq_u8(a, b);

	if (is_signed)
		d = vreinterpretq_u8_s8(vabdq_s8(vreinterpretq_s8_u8(a),
										 vreinterpretq_s8_u8(b)));
	sum = vpadalq_u16(sum, vmull_u8(vget_low_u8(d), vget_low_u8(d)));
	return vpadalq_u16(sum, vmull_high_u8(d, d));
}

/* Add the products of 16 bytes to four sums, modulo 2^32. */
ALWAYS_INLINE uint32x4_t
AddBytesDot(uint32x4_t sum, uint8x16_t a, uint8x16_t b, bool is_signed)
{
	if (is_signed)
	{
		int8x16_t	x = vreinterpretq_s8_u8(a);
		int8x16_t	y = vreinterpretq_s8_u8(b);
		int32x4_t	s = vreinterpretq_s32_u32(sum);

		s = vpadalq_s16(s, vmull_s8(vget_low_s8(x), vget_low_s8(y)));
		s = vpadalq_s16(s, vmull_high_s8(x, y));
		return vreinterpretq_u32_s32(s);
	}
	sum = vpadalq_u16(sum, vmull_u8(vget_low_u8(a), vget_low_u8(b)));
	return vpadalq_u16(sum, vmull_high_u8(a, b));
}

ALWAYS_INLINE uint32x4_t
AddBytesTerm(uint32x4_t sum, uint8x16_t a, uint8x16_t b, bool is_signed,
			 bool is_dot)
{
	return is_dot ? AddBytesDot(sum, a, b, is_signed) :
		AddBytesL2(sum, a, b, is_signed);
}

/*
 * Bytes against bytes, exact: the sum stays below 2^31 up to 33,025
 * dimensions.
 */
ALWAYS_INLINE float
BytePair(const void *a, const void *b, int dim, bool is_signed, bool is_dot)
{
	uint32x4_t	s0 = vdupq_n_u32(0);
	uint32x4_t	s1 = vdupq_n_u32(0);
	int			i = 0;

	for (; i + 32 <= dim; i += 32)
	{
		s0 = AddBytesTerm(s0, LoadBytes(a, i), LoadBytes(b, i),
						  is_signed, is_dot);
		s1 = AddBytesTerm(s1, LoadBytes(a, i + 16), LoadBytes(b, i + 16),
						  is_signed, is_dot);
	}
	if (i + 16 <= dim)
	{
		s0 = AddBytesTerm(s0, LoadBytes(a, i), LoadBytes(b, i),
						  is_signed, is_dot);
		i += 16;
	}
	if (i < dim)
		s1 = AddBytesTerm(s1, LoadBytesTail(a, i, dim),
						  LoadBytesTail(b, i, dim), is_signed, is_dot);
	return (float) (int32) vaddvq_u32(vaddq_u32(s0, s1));
}

static float
L2Float4(const float *q, const void *v, int dim)
{
	return FloatSum(q, PIPEANN_FLOAT4, v, PIPEANN_FLOAT4, dim, false);
}

static float
L2Float2(const float *q, const void *v, int dim)
{
	return FloatSum(q, PIPEANN_FLOAT4, v, PIPEANN_FLOAT2, dim, false);
}

static float
L2Int8(const float *q, const void *v, int dim)
{
	return FloatSum(q, PIPEANN_FLOAT4, v, PIPEANN_INT8, dim, false);
}

static float
L2Uint8(const float *q, const void *v, int dim)
{
	return FloatSum(q, PIPEANN_FLOAT4, v, PIPEANN_UINT8, dim, false);
}

static float
DotFloat4(const float *q, const void *v, int dim)
{
	return FloatSum(q, PIPEANN_FLOAT4, v, PIPEANN_FLOAT4, dim, true);
}

static float
DotFloat2(const float *q, const void *v, int dim)
{
	return FloatSum(q, PIPEANN_FLOAT4, v, PIPEANN_FLOAT2, dim, true);
}

static float
DotInt8(const float *q, const void *v, int dim)
{
	return FloatSum(q, PIPEANN_FLOAT4, v, PIPEANN_INT8, dim, true);
}

static float
DotUint8(const float *q, const void *v, int dim)
{
	return FloatSum(q, PIPEANN_FLOAT4, v, PIPEANN_UINT8, dim, true);
}

static float
L2PairFloat4(const void *a, const void *b, int dim)
{
	return FloatSum(a, PIPEANN_FLOAT4, b, PIPEANN_FLOAT4, dim, false);
}

static float
L2PairFloat2(const void *a, const void *b, int dim)
{
	return FloatSum(a, PIPEANN_FLOAT2, b, PIPEANN_FLOAT2, dim, false);
}

static float
L2PairInt8(const void *a, const void *b, int dim)
{
	return BytePair(a, b, dim, true, false);
}

static float
L2PairUint8(const void *a, const void *b, int dim)
{
	return BytePair(a, b, dim, false, false);
}

static float
DotPairFloat4(const void *a, const void *b, int dim)
{
	return FloatSum(a, PIPEANN_FLOAT4, b, PIPEANN_FLOAT4, dim, true);
}

static float
DotPairFloat2(const void *a, const void *b, int dim)
{
	return FloatSum(a, PIPEANN_FLOAT2, b, PIPEANN_FLOAT2, dim, true);
}

static float
DotPairInt8(const void *a, const void *b, int dim)
{
	return BytePair(a, b, dim, true, true);
}

static float
DotPairUint8(const void *a, const void *b, int dim)
{
	return BytePair(a, b, dim, false, true);
}

/* Plain C: there is no gather, nor would it help (pq_scan.h). */
static void
PqScan(const float *table, int nchunks, const uint8 *const *codes, int n,
	   float *out)
{
	PqScanBody(table, nchunks, codes, n, out);
}

const PipeannKernels PipeannKernelsNeon = {
	.name = "neon",
	.l2 = {NULL, L2Float4, L2Float2, L2Int8, L2Uint8},
	.dot = {NULL, DotFloat4, DotFloat2, DotInt8, DotUint8},
	.l2_pair = {NULL, L2PairFloat4, L2PairFloat2, L2PairInt8, L2PairUint8},
	.dot_pair = {NULL, DotPairFloat4, DotPairFloat2, DotPairInt8,
	DotPairUint8},
	.pq_scan = PqScan,
	BULK_KERNELS(Neon)
};

#endif							/* __aarch64__ */
