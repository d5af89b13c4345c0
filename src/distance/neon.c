/*
 * neon.c
 *		Distance kernels for 64-bit ARM with Advanced SIMD, which all of them
 *		have.
 *
 * Uses only ARMv8.0, which can convert from half precision.
 */
#include "distance/distance.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#include "distance/common.h"

#define KERNEL
#define INLINE ALWAYS_INLINE

/* Two registers, as many elements are converted at once. */
typedef struct Floats
{
	float32x4_t low;
	float32x4_t high;
} Floats;

typedef uint8x16_t Bytes;
typedef uint32x4_t Ints;

#define LANES 8
#define BYTES 16
#define CENTROID_VECTORS 8		/* half of the registers */

#define FLOATS(low, high) ((Floats) {low, high})

/* What one instruction does to four floats of a, or of a and b, done to eight. */
#define OF_ONE(name, instruction) \
INLINE Floats \
name(Floats a) \
{ \
	return FLOATS(instruction(a.low), instruction(a.high)); \
}

#define OF_TWO(name, instruction) \
INLINE Floats \
name(Floats a, Floats b) \
{ \
	return FLOATS(instruction(a.low, b.low), instruction(a.high, b.high)); \
}

OF_ONE(Absolute, vabsq_f32)
OF_TWO(Add, vaddq_f32)
OF_TWO(Sub, vsubq_f32)
OF_TWO(Mul, vmulq_f32)
OF_TWO(Least, vminnmq_f32)
OF_TWO(Most, vmaxnmq_f32)

INLINE Floats
MulAdd(Floats a, Floats b, Floats sum)
{
	return FLOATS(vfmaq_f32(sum.low, a.low, b.low), vfmaq_f32(sum.high, a.high, b.high));
}

INLINE Floats
NegMulAdd(Floats a, Floats b, Floats sum)
{
	return FLOATS(vfmsq_f32(sum.low, a.low, b.low), vfmsq_f32(sum.high, a.high, b.high));
}

INLINE Floats
SetAll(float x)
{
	return FLOATS(vdupq_n_f32(x), vdupq_n_f32(x));
}

INLINE Floats
LoadFloats(const float *from)
{
	return FLOATS(vld1q_f32(from), vld1q_f32(from + 4));
}

INLINE void
Store(float *to, Floats v)
{
	vst1q_f32(to, v.low);
	vst1q_f32(to + 4, v.high);
}

#define SumFloats(v) vaddvq_f32(vaddq_f32((v).low, (v).high))
#define LeastLane(v) SetAll(vminnmvq_f32(vminnmq_f32((v).low, (v).high)))

/* Four of eight numbers of a quantised vector, those from lane `from` on. */
INLINE float32x4_t
SqLoad4(uint8x16_t bytes, int bits, int from, float scale)
{
	const SqLanes *lanes = SqLanesFor(bits);
	uint8x16_t	places = vld1q_u8((const uint8 *) lanes->bytes + 4 * from);
	int32x4_t	numbers = vreinterpretq_s32_u8(vqtbl1q_u8(bytes, places));

	numbers = vshlq_s32(numbers, vld1q_s32(lanes->shift + from));
	numbers = vshlq_s32(numbers, vdupq_n_s32(bits - 32));
	return vmulq_n_f32(vcvtq_f32_s32(numbers), scale);
}

/*
 * Elements i .. i + 7 as floats, of a quantised vector with this scale; storage is a
 * constant where inlined.
 */
INLINE Floats
Load(const void *v, PipeannStorage storage, int i, float scale)
{
	/* loads by byte, as a vector on a page need not be aligned */
	const uint8 *p = (const uint8 *) v + i * PipeannElementSize(storage);
	Floats		result;

	if (PipeannSqBits(storage) > 0)
	{
		int			bits = PipeannSqBits(storage);
		uint8x16_t	bytes = vld1q_u8((const uint8 *) v + i / 8 * bits);

		result.low = SqLoad4(bytes, bits, 0, scale);
		result.high = SqLoad4(bytes, bits, 4, scale);
	}
	else if (storage == PIPEANN_FLOAT4)
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

#define LoadBytes(v, i) vld1q_u8((const uint8 *) (v) + (i))
#define NoInts() vdupq_n_u32(0)
#define AddInts vaddq_u32
#define SumInts(v) ((int32) vaddvq_u32(v))

INLINE uint8x16_t
LastBytes(uint8x16_t v, int n)
{
	static const uint8 mask[32] = {
		[16] = 255, 255, 255, 255, 255, 255, 255, 255,
		255, 255, 255, 255, 255, 255, 255, 255
	};

	return vandq_u8(v, vld1q_u8(mask + n));
}

INLINE float32x4_t
LastOfFour(float32x4_t v, int n)
{
	return vreinterpretq_f32_u8(LastBytes(vreinterpretq_u8_f32(v), 4 * n));
}

INLINE Floats
LastLanes(Floats v, int n)
{
	return FLOATS(LastOfFour(v.low, Max(n - 4, 0)), LastOfFour(v.high, Min(n, 4)));
}

INLINE uint8x16_t
ByteDifference(uint8x16_t a, uint8x16_t b, bool is_signed)
{
	return is_signed ? vreinterpretq_u8_s8(vabdq_s8(vreinterpretq_s8_u8(a), vreinterpretq_s8_u8(b))) :
		vabdq_u8(a, b);
}

/* In four sums of four each, modulo 2^32. */
INLINE uint32x4_t
AddByteProducts(uint32x4_t sum, uint8x16_t a, uint8x16_t b, bool is_signed)
{
	int8x16_t	x = vreinterpretq_s8_u8(a);
	int8x16_t	y = vreinterpretq_s8_u8(b);
	int32x4_t	s = vreinterpretq_s32_u32(sum);

	if (!is_signed)
	{
		sum = vpadalq_u16(sum, vmull_u8(vget_low_u8(a), vget_low_u8(b)));
		return vpadalq_u16(sum, vmull_high_u8(a, b));
	}
	s = vpadalq_s16(s, vmull_s8(vget_low_s8(x), vget_low_s8(y)));
	return vreinterpretq_u32_s32(vpadalq_s16(s, vmull_high_s8(x, y)));
}

/* Bits of 16 bytes that are all ones or zeroes. */
static inline uint32
BitsOf16(uint8x16_t bytes)
{
	static const uint8 place[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
	uint8x16_t	bits = vandq_u8(bytes, vld1q_u8(place));

	return vaddv_u8(vget_low_u8(bits)) |
		(uint32) vaddv_u8(vget_high_u8(bits)) << 8;
}

/* Ones where floats are equal, in 16 bits each. */
INLINE uint16x8_t
EqualLanes(Floats a, Floats b)
{
	return vuzp1q_u16(vreinterpretq_u16_u32(vceqq_f32(a.low, b.low)),
					  vreinterpretq_u16_u32(vceqq_f32(a.high, b.high)));
}

INLINE uint32
EqualBits16(Floats a, Floats b, Floats value)
{
	return BitsOf16(vuzp1q_u8(vreinterpretq_u8_u16(EqualLanes(a, value)),
							  vreinterpretq_u8_u16(EqualLanes(b, value))));
}

/* A bit for each of 32 floats that equals value, the first one lowest. */
INLINE uint64
EqualBits(const Floats *v, Floats value)
{
	return EqualBits16(v[0], v[1], value) |
		(uint64) EqualBits16(v[2], v[3], value) << 16;
}

/* Rounded to nearest, ties to even. */
INLINE void
StoreInt16(int16 *out, Floats v)
{
	vst1q_s16(out, vcombine_s16(vqmovn_s32(vcvtnq_s32_f32(v.low)),
								vqmovn_s32(vcvtnq_s32_f32(v.high))));
}

INLINE void
StoreHalf(uint16 *out, Floats v)
{
	vst1q_u8((uint8 *) out,
			 vreinterpretq_u8_f16(vcombine_f16(vcvt_f16_f32(v.low), vcvt_f16_f32(v.high))));
}

/* Half of the rows of a tile: their sums take 24 of the 32 registers. */
#define HALF_TILE (PIPEANN_TILE_ROWS / 2)

/*
 * Loads take the pairs of the panel apart again, since products are added up
 * by one instruction only if those of a pair are not side by side.
 */
INLINE void
DotHalfTile(const int16 *const *rows, const int16 *panel, int dim, int32 *out)
{
	int32x4_t	sum[HALF_TILE][4];

	UNROLL(6)
	for (int r = 0; r < HALF_TILE; r++)
		sum[r][0] = sum[r][1] = sum[r][2] = sum[r][3] = vdupq_n_s32(0);
	for (int d = 0; d < dim; d += PIPEANN_TILE_DIM)
	{
		const int16 *columns = panel + PIPEANN_PANEL_SIZE(d);
		int16x8x2_t a = vld2q_s16(columns);
		int16x8x2_t b = vld2q_s16(columns + PIPEANN_TILE_COLUMNS);

		UNROLL(6)
		for (int r = 0; r < HALF_TILE; r++)
		{
			int16x4_t	pair =
				vreinterpret_s16_s32(vdup_n_s32(LoadPair(rows[r] + d)));
			int32x4_t  *s = sum[r];

			s[0] = vmlal_lane_s16(s[0], vget_low_s16(a.val[0]), pair, 0);
			s[1] = vmlal_high_lane_s16(s[1], a.val[0], pair, 0);
			s[2] = vmlal_lane_s16(s[2], vget_low_s16(b.val[0]), pair, 0);
			s[3] = vmlal_high_lane_s16(s[3], b.val[0], pair, 0);
			s[0] = vmlal_lane_s16(s[0], vget_low_s16(a.val[1]), pair, 1);
			s[1] = vmlal_high_lane_s16(s[1], a.val[1], pair, 1);
			s[2] = vmlal_lane_s16(s[2], vget_low_s16(b.val[1]), pair, 1);
			s[3] = vmlal_high_lane_s16(s[3], b.val[1], pair, 1);

			/* row by row: in gcc's order there are too few registers */
			__asm__ volatile ("":"+w" (s[0]), "+w" (s[1]), "+w" (s[2]),
							  "+w" (s[3]));
		}
	}
	UNROLL(6)
	for (int r = 0; r < HALF_TILE; r++)
		UNROLL(4)
		for (int i = 0; i < 4; i++)
			vst1q_s32(out + r * PIPEANN_TILE_COLUMNS + 4 * i, sum[r][i]);
}

/* A pair of dimensions of all columns is in four registers. */
INLINE void
BitHalfTile(const int16 *const *rows, const int16 *panel, int dim, bool common, int32 *out)
{
	uint32x4_t	sum[HALF_TILE][4];

	UNROLL(6)
	for (int r = 0; r < HALF_TILE; r++)
		sum[r][0] = sum[r][1] = sum[r][2] = sum[r][3] = vdupq_n_u32(0);
	for (int d = 0; d < dim; d += PIPEANN_TILE_DIM)
		UNROLL(6)
		for (int r = 0; r < HALF_TILE; r++)
			UNROLL(4)
			for (int i = 0; i < 4; i++)
			{
				uint8x16_t	pair = vreinterpretq_u8_s32(vdupq_n_s32(LoadPair(rows[r] + d)));
				uint8x16_t	columns =
					vreinterpretq_u8_s16(vld1q_s16(panel + PIPEANN_PANEL_SIZE(d) + 8 * i));

				pair = common ? vandq_u8(pair, columns) : veorq_u8(pair, columns);
				sum[r][i] = vpadalq_u16(sum[r][i], vpaddlq_u8(vcntq_u8(pair)));
			}
	UNROLL(6)
	for (int r = 0; r < HALF_TILE; r++)
		UNROLL(4)
		for (int i = 0; i < 4; i++)
			vst1q_u32((uint32 *) out + r * PIPEANN_TILE_COLUMNS + 4 * i, sum[r][i]);
}

INLINE void
Tile(const int16 *const *rows, const int16 *panel, int dim, TileTerm term, int32 *out)
{
	for (int r = 0; r < PIPEANN_TILE_ROWS; r += HALF_TILE)
		if (term == TILE_PRODUCTS)
			DotHalfTile(rows + r, panel, dim, out + r * PIPEANN_TILE_COLUMNS);
		else
			BitHalfTile(rows + r, panel, dim, term == TILE_COMMON,
						out + r * PIPEANN_TILE_COLUMNS);
}

static uint64
Equal16(const uint16 *a, int n, uint16 value)
{
	static const uint8 place[8] = {1, 2, 4, 8, 16, 32, 64, 128};
	uint8x8_t	weights = vld1_u8(place);
	uint16x8_t	wanted = vdupq_n_u16(value);
	uint64		bits = 0;

	for (int i = 0; i < n; i += 8)
	{
		uint8x8_t	equal = vmovn_u16(vceqq_u16(vld1q_u16(a + i), wanted));

		bits |= (uint64) vaddv_u8(vand_u8(equal, weights)) << i;
	}
	return bits;
}

static void
KeepMembers(const uint8 *bytes, int n, const uint8 *set, uint64 *mask)
{
	static const uint8 place[16] = {1, 2, 4, 8, 16, 32, 64, 128};
	uint8x16_t	low = vld1q_u8(set);
	uint8x16_t	high = vld1q_u8(set + 16);
	uint8x16_t	places = vld1q_u8(place);
	uint8x16x2_t both = {{low, high}};

	for (int i = 0; i < n; i += 64)
	{
		uint64		members = 0;

		for (int j = 0; j < 64; j += 16)
		{
			uint8x16_t	all = vld1q_u8(bytes + i + j);
			uint8x16_t	entry = vqtbl2q_u8(both, vshrq_n_u8(all, 3));
			uint8x16_t	bit = vqtbl1q_u8(places,
										 vandq_u8(all, vdupq_n_u8(7)));

			members |= (uint64) BitsOf16(vtstq_u8(entry, bit)) << j;
		}
		mask[i / 64] &= members;
	}
}

static void
KeepRange(const uint8 *high, const uint8 *low, int n, uint16 from, uint16 to,
		  uint64 *mask)
{
	uint16x8_t	first = vdupq_n_u16(from);
	uint16x8_t	span = vdupq_n_u16((uint16) (to - from));

	for (int i = 0; i < n; i += 64)
	{
		uint64		members = 0;

		for (int j = 0; j < 64; j += 16)
		{
			uint8x16_t	h = vld1q_u8(high + i + j);
			uint8x16_t	l = vld1q_u8(low + i + j);
			uint16x8_t	a = vreinterpretq_u16_u8(vzip1q_u8(l, h));
			uint16x8_t	b = vreinterpretq_u16_u8(vzip2q_u8(l, h));
			uint8x16_t	within = vcombine_u8(vmovn_u16(vcleq_u16(vsubq_u16(a, first), span)),
											 vmovn_u16(vcleq_u16(vsubq_u16(b, first), span)));
			uint8x16_t	any = vandq_u8(vceqzq_u8(h), vtstq_u8(l, l));

			members |= (uint64) BitsOf16(vorrq_u8(within, any)) << j;
		}
		mask[i / 64] &= members;
	}
}

static uint16
Most16(const uint16 *a, int n)
{
	uint16x8_t	most = vld1q_u16(a);

	for (int i = 8; i < n; i += 8)
		most = vmaxq_u16(most, vld1q_u16(a + i));
	return vmaxvq_u16(most);
}

#define TileNear PortableTileNear
#define SET PipeannKernelsNeon
#define SET_NAME "neon"
#include "distance/kernels.h"

#endif							/* __aarch64__ */
