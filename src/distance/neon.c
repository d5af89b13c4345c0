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

#include "distance/bits.h"
#include "distance/pq_scan.h"
#include "distance/sparse.h"
#include "distance/sq.h"

/* Eight floats. */
typedef struct Float8
{
	float32x4_t low;
	float32x4_t high;
} Float8;

/* Four of eight numbers of a quantised vector, those from lane `from` on. */
ALWAYS_INLINE float32x4_t
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
ALWAYS_INLINE Float8
Load8(const void *v, PipeannStorage storage, int i, float scale)
{
	/* loads by byte, as a vector on a page need not be aligned */
	const uint8 *p = (const uint8 *) v + i * PipeannElementSize(storage);
	Float8		result;

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
	return Load8(copy, storage, 0, 0);
}

/* Add the squares of eight differences to *sum. */
ALWAYS_INLINE void
AddL2(Float8 *sum, Float8 a, Float8 b)
{
	float32x4_t low = vsubq_f32(a.low, b.low);
	float32x4_t high = vsubq_f32(a.high, b.high);

	sum->low = vfmaq_f32(sum->low, low, low);
	sum->high = vfmaq_f32(sum->high, high, high);
}

/* Add the sizes of eight differences to *sum. */
ALWAYS_INLINE void
AddL1(Float8 *sum, Float8 a, Float8 b)
{
	sum->low = vaddq_f32(sum->low, vabdq_f32(a.low, b.low));
	sum->high = vaddq_f32(sum->high, vabdq_f32(a.high, b.high));
}

/* Add eight products to *sum. */
ALWAYS_INLINE void
AddDot(Float8 *sum, Float8 a, Float8 b)
{
	sum->low = vfmaq_f32(sum->low, a.low, b.low);
	sum->high = vfmaq_f32(sum->high, a.high, b.high);
}

ALWAYS_INLINE void
AddTerm(Float8 *sum, Float8 a, Float8 b, Term term)
{
	if (term == PRODUCTS)
		AddDot(sum, a, b);
	else if (term == SQUARES)
		AddL2(sum, a, b);
	else
		AddL1(sum, a, b);
}

/* Sum over i < dim of (a[i] - b[i])^2, a[i] * b[i] or |a[i] - b[i]|. */
ALWAYS_INLINE float
FloatSum(const void *a, PipeannStorage sa, const void *b, PipeannStorage sb,
		 int dim, Term term)
{
	float		scale_a = SqScale(a, sa, dim);
	float		scale_b = SqScale(b, sb, dim);
	Float8		s0 = {vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)};
	Float8		s1 = s0;
	int			i = 0;

	for (; i + 16 <= dim; i += 16)
	{
		AddTerm(&s0, Load8(a, sa, i, scale_a), Load8(b, sb, i, scale_b), term);
		AddTerm(&s1, Load8(a, sa, i + 8, scale_a), Load8(b, sb, i + 8, scale_b), term);
	}
	if (i + 8 <= dim)
	{
		AddTerm(&s0, Load8(a, sa, i, scale_a), Load8(b, sb, i, scale_b), term);
		i += 8;
	}
	if (i < dim)
		AddTerm(&s1, LoadTail(a, sa, i, dim), LoadTail(b, sb, i, dim),
				term);
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

/* Bytes against bytes, exact (scalar.c). */
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

/*
 * Distances to 32 centroids at a time, in eight accumulators, so that
 * additions overlap and sums stay in registers.
 */
#define CENTROID_VECTORS 8
#define CENTROID_GROUP (4 * CENTROID_VECTORS)
#define CENTROID_GROUPS (PQ_ROW / CENTROID_GROUP)

ALWAYS_INLINE float32x4_t
LoadCentroids(const void *centroids, PipeannStorage storage, int i)
{
	if (storage == PIPEANN_FLOAT2)
		return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16 *) centroids + i)));
	return vld1q_f32((const float *) centroids + i);
}

/* sum: of the 32 centroids from number `first` on. */
ALWAYS_INLINE void
SumGroup(const float *x, const void *centroids, PipeannStorage storage,
		 int first, int len, Term term, float32x4_t *sum)
{
	UNROLL(8)
	for (int j = 0; j < CENTROID_VECTORS; j++)
		sum[j] = vdupq_n_f32(0.0f);
	for (int d = 0; d < len; d++)
	{
		float32x4_t value = vdupq_n_f32(x[d]);

		UNROLL(8)
		for (int j = 0; j < CENTROID_VECTORS; j++)
		{
			float32x4_t c = LoadCentroids(centroids, storage,
										  d * PQ_ROW + first + 4 * j);

			if (term == PRODUCTS)
				sum[j] = vfmsq_f32(sum[j], value, c);
			else if (term == SQUARES)
			{
				c = vsubq_f32(value, c);
				sum[j] = vfmaq_f32(sum[j], c, c);
			}
			else
				sum[j] = vaddq_f32(sum[j], vabdq_f32(value, c));
		}
	}
}

ALWAYS_INLINE void
Centroids(const float *x, const void *centroids, PipeannStorage storage,
		  int len, float *out, Term term)
{
	for (int k = 0; k < PQ_ROW; k += CENTROID_GROUP)
	{
		float32x4_t sum[CENTROID_VECTORS];

		SumGroup(x, centroids, storage, k, len, term, sum);
		UNROLL(8)
		for (int j = 0; j < CENTROID_VECTORS; j++)
			vst1q_f32(out + k + 4 * j, sum[j]);
	}
}

/* The place of the first of 32 floats that equals value; 32 if none does. */
ALWAYS_INLINE uint32
FirstEqual(const float *at, float value)
{
	static const uint32 places[4] = {0, 1, 2, 3};
	uint32x4_t	place = vld1q_u32(places);
	uint32x4_t	first = vdupq_n_u32(CENTROID_GROUP);
	float32x4_t values = vdupq_n_f32(value);

	UNROLL(8)
	for (int j = 0; j < CENTROID_VECTORS; j++)
	{
		uint32x4_t	equal = vceqq_f32(vld1q_f32(at + 4 * j), values);

		first = vminq_u32(first, vbslq_u32(equal, place,
										   vdupq_n_u32(CENTROID_GROUP)));
		place = vaddq_u32(place, vdupq_n_u32(4));
	}
	return vminvq_u32(first);
}

/*
 * Keeps the least distance of each group, so that only the group of the
 * nearest centroid is looked through for its place. A distance that is not a
 * number does not count: the minimum is the other operand then.
 */
ALWAYS_INLINE int
NearestCentroid(const float *x, const float *centroids, int len,
				float *distance)
{
	float		least = __builtin_inff();
	int			nearest = 0;
	uint32		place;

	for (int k = 0; k < PQ_ROW; k += CENTROID_GROUP)
	{
		float32x4_t sum[CENTROID_VECTORS];
		float32x4_t low = vdupq_n_f32(__builtin_inff());
		float		group;

		SumGroup(x, centroids, PIPEANN_FLOAT4, k, len, SQUARES, sum);
		UNROLL(8)
		for (int j = 0; j < CENTROID_VECTORS; j++)
		{
			low = vminnmq_f32(low, sum[j]);
			vst1q_f32(distance + k + 4 * j, sum[j]);
		}
		group = vminvq_f32(low);
		nearest = group < least ? k : nearest;
		least = group < least ? group : least;
	}

	/* with no distance below infinity, the first group may have none at all */
	if (least == __builtin_inff())
	{
		while (nearest < PQ_ROW && distance[nearest] != least)
			nearest++;
		return nearest < PQ_ROW ? nearest : 0;
	}
	place = FirstEqual(distance + nearest, least);
	return nearest + place;
}

/* Half of the rows of a tile: their sums take 24 of the 32 registers. */
#define HALF_TILE (PIPEANN_TILE_ROWS / 2)

/*
 * Loads take the pairs of the panel apart again, since products are added up
 * by one instruction only if those of a pair are not side by side.
 */
ALWAYS_INLINE void
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

static void
DotTile(const int16 *const *rows, const int16 *panel, int dim, int32 *out)
{
	DotHalfTile(rows, panel, dim, out);
	DotHalfTile(rows + HALF_TILE, panel, dim,
				out + HALF_TILE * PIPEANN_TILE_COLUMNS);
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

/* Bits of 16 bytes that are all ones or zeroes. */
static inline uint32
BitsOf16(uint8x16_t bytes)
{
	static const uint8 place[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
	uint8x16_t	bits = vandq_u8(bytes, vld1q_u8(place));

	return vaddv_u8(vget_low_u8(bits)) |
		(uint32) vaddv_u8(vget_high_u8(bits)) << 8;
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

ALWAYS_INLINE void
Store8(float *to, Float8 v)
{
	vst1q_f32(to, v.low);
	vst1q_f32(to + 4, v.high);
}

ALWAYS_INLINE void
ToFloat(const void *src, PipeannStorage storage, int dim, float *dst)
{
	float		scale = SqScale(src, storage, dim);
	int			i = 0;

	for (; i + 8 <= dim; i += 8)
		Store8(dst + i, Load8(src, storage, i, scale));
	if (i < dim)
	{
		float		floats[8];

		Store8(floats, LoadTail(src, storage, i, dim));
		memcpy(dst + i, floats, (dim - i) * sizeof(float));
	}
}

/* Four fixed-point numbers, rounded to nearest, ties to even. */
ALWAYS_INLINE int16x4_t
Fix4(float32x4_t x, float32x4_t offset, float scale)
{
	float32x4_t v = vmulq_n_f32(vsubq_f32(x, offset), scale);

	v = vminq_f32(v, vdupq_n_f32(PIPEANN_FIXED_MAX));
	v = vmaxq_f32(v, vdupq_n_f32(-PIPEANN_FIXED_MAX));
	return vqmovn_s32(vcvtnq_s32_f32(v));
}

ALWAYS_INLINE int16x8_t
Fix8(Float8 x, Float8 offset, float scale)
{
	return vcombine_s16(Fix4(x.low, offset.low, scale),
						Fix4(x.high, offset.high, scale));
}

static void
ToFixed(const float *x, const float *offset, float scale, int dim, int16 *out)
{
	int			i = 0;

	for (; i + 8 <= dim; i += 8)
		vst1q_s16(out + i, Fix8(Load8(x, PIPEANN_FLOAT4, i, 0),
								Load8(offset, PIPEANN_FLOAT4, i, 0), scale));
	if (i < dim)
	{
		int16		fixed[8];

		vst1q_s16(fixed, Fix8(LoadTail(x, PIPEANN_FLOAT4, i, dim),
							  LoadTail(offset, PIPEANN_FLOAT4, i, dim),
							  scale));
		memcpy(out + i, fixed, (dim - i) * sizeof(int16));
	}
}

static inline void
Half4(const float *x, char *out)
{
	vst1_u8((uint8 *) out,
			vreinterpret_u8_f16(vcvt_f16_f32(vld1q_f32(x))));
}

static void
ToHalf(const float *x, int dim, void *out)
{
	int			i = 0;

	for (; i + 4 <= dim; i += 4)
		Half4(x + i, (char *) out + i * sizeof(uint16));
	if (i < dim)
	{
		float		short_x[4] = {0};
		char		half[4 * sizeof(uint16)];

		memcpy(short_x, x + i, (dim - i) * sizeof(float));
		Half4(short_x, half);
		memcpy((char *) out + i * sizeof(uint16), half,
			   (dim - i) * sizeof(uint16));
	}
}

#define TileNear PortableTileNear
#define SET PipeannKernelsNeon
#define ONE_BY_ONE
#define SET_NAME "neon"
#define KERNEL
#include "distance/kernels.h"

#endif							/* __aarch64__ */
