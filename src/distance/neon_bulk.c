/*
 * neon_bulk.c
 *		Kernels for 64-bit ARM and many centroids, vectors or elements.
 */
#include "distance/bulk.h"

#if defined(__aarch64__)

#include "distance/neon.h"
#include "distance/pq_scan.h"
#include "distance/unroll.h"

/*
 * Distances to 32 centroids at a time, in eight accumulators, so that
 * additions overlap and sums stay in registers.
 */
#define CENTROID_VECTORS 8
#define CENTROID_GROUP (4 * CENTROID_VECTORS)
#define CENTROID_GROUPS (PQ_ROW / CENTROID_GROUP)

/* sum: of the 32 centroids that centroids points to. */
ALWAYS_INLINE void
SumGroup(const float *x, const float *centroids, int len, bool is_dot,
		 float32x4_t *sum)
{
	UNROLL(8)
	for (int j = 0; j < CENTROID_VECTORS; j++)
		sum[j] = vdupq_n_f32(0.0f);
	for (int d = 0; d < len; d++)
	{
		const float *row = centroids + (Size) d * PQ_ROW;
		float32x4_t value = vdupq_n_f32(x[d]);

		UNROLL(8)
		for (int j = 0; j < CENTROID_VECTORS; j++)
		{
			float32x4_t c = vld1q_f32(row + 4 * j);

			if (is_dot)
				sum[j] = vfmsq_f32(sum[j], value, c);
			else
			{
				c = vsubq_f32(value, c);
				sum[j] = vfmaq_f32(sum[j], c, c);
			}
		}
	}
}

ALWAYS_INLINE void
Centroids(const float *x, const float *centroids, int len, float *out,
		  bool is_dot)
{
	for (int k = 0; k < PQ_ROW; k += CENTROID_GROUP)
	{
		float32x4_t sum[CENTROID_VECTORS];

		SumGroup(x, centroids + k, len, is_dot, sum);
		UNROLL(8)
		for (int j = 0; j < CENTROID_VECTORS; j++)
			vst1q_f32(out + k + 4 * j, sum[j]);
	}
}

void
PipeannNeonCentroidL2(const float *x, const float *centroids, int len,
					  float *out)
{
	Centroids(x, centroids, len, out, false);
}

void
PipeannNeonCentroidDot(const float *x, const float *centroids, int len,
					   float *out)
{
	Centroids(x, centroids, len, out, true);
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

		SumGroup(x, centroids + k, len, false, sum);
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

void
PipeannNeonCentroidNearest(const float *x, Size stride, int n,
						   const float *centroids, int len,
						   const PipeannNearest *out)
{
	uint8	   *codes = out->codes;
	Size		code_stride = out->code_stride;
	float	   *distances = out->distances;
	float		distance[PQ_ROW];

	for (int i = 0; i < n; i++)
	{
		int			nearest = NearestCentroid(x + i * stride, centroids, len,
											  distance);

		codes[i * code_stride] = nearest;
		if (distances != NULL)
			distances[i] = distance[nearest];
	}
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

void
PipeannNeonDotTile(const int16 *const *rows, const int16 *panel, int dim,
				   int32 *out)
{
	DotHalfTile(rows, panel, dim, out);
	DotHalfTile(rows + HALF_TILE, panel, dim,
				out + HALF_TILE * PIPEANN_TILE_COLUMNS);
}

uint64
PipeannNeonEqual16(const uint16 *a, int n, uint16 value)
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

void
PipeannNeonKeepMembers(const uint8 *bytes, int n, const uint8 *set,
					   uint64 *mask)
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

void
PipeannNeonKeepRange(const uint8 *high, const uint8 *low, int n, uint16 from,
					 uint16 to, uint64 *mask)
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

uint16
PipeannNeonMost16(const uint16 *a, int n)
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
	int			i = 0;

	for (; i + 8 <= dim; i += 8)
		Store8(dst + i, Load8(src, storage, i));
	if (i < dim)
	{
		float		floats[8];

		Store8(floats, LoadTail(src, storage, i, dim));
		memcpy(dst + i, floats, (dim - i) * sizeof(float));
	}
}

void
PipeannNeonFloat2ToFloat(const void *src, int dim, float *dst)
{
	ToFloat(src, PIPEANN_FLOAT2, dim, dst);
}

void
PipeannNeonInt8ToFloat(const void *src, int dim, float *dst)
{
	ToFloat(src, PIPEANN_INT8, dim, dst);
}

void
PipeannNeonUint8ToFloat(const void *src, int dim, float *dst)
{
	ToFloat(src, PIPEANN_UINT8, dim, dst);
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

void
PipeannNeonToFixed(const float *x, const float *offset, float scale, int dim,
				   int16 *out)
{
	int			i = 0;

	for (; i + 8 <= dim; i += 8)
		vst1q_s16(out + i, Fix8(Load8(x, PIPEANN_FLOAT4, i),
								Load8(offset, PIPEANN_FLOAT4, i), scale));
	if (i < dim)
	{
		int16		fixed[8];

		vst1q_s16(fixed, Fix8(LoadTail(x, PIPEANN_FLOAT4, i, dim),
							  LoadTail(offset, PIPEANN_FLOAT4, i, dim),
							  scale));
		memcpy(out + i, fixed, (dim - i) * sizeof(int16));
	}
}

#endif							/* __aarch64__ */
