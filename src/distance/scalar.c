/*
 * scalar.c
 *		Distance kernels in portable C, the reference for all other sets.
 *
 * Each uses four accumulators, so that additions overlap even if the compiler
 * does not vectorise (it may not reorder a float sum), and so that the error
 * of a long sum stays small. Loops over many numbers are written so that
 * compilers turn them into vector instructions: rounds whose number is a
 * constant, over arrays that nothing else points to.
 */
#include "distance/distance.h"

#include <math.h>

#include "distance/common.h"

ALWAYS_INLINE float
TermOf(float x, float y, Term term)
{
	return term == PRODUCTS ? x * y :
		term == SQUARES ? (x - y) * (x - y) : fabsf(x - y);
}

/* Element i, of a quantised vector with this scale. */
ALWAYS_INLINE float
ElementAt(const void *v, PipeannStorage storage, int i, float scale)
{
	return PipeannSqBits(storage) == 0 ? LoadElement(v, storage, i) :
		(float) SqNumber(v, PipeannSqBits(storage), i) * scale;
}

/* Sum over i < dim of (a[i] - b[i])^2, a[i] * b[i] or |a[i] - b[i]|. */
ALWAYS_INLINE float
FloatSum(const void *a, PipeannStorage sa, const void *b, PipeannStorage sb,
		 int dim, Term term)
{
	float		scale_a = SqScale(a, sa, dim);
	float		scale_b = SqScale(b, sb, dim);
	float		s[4] = {0};
	int			i = 0;

	for (; i + 4 <= dim; i += 4)
		for (int k = 0; k < 4; k++)
			s[k] += TermOf(ElementAt(a, sa, i + k, scale_a),
						   ElementAt(b, sb, i + k, scale_b), term);
	for (; i < dim; i++)
		s[0] += TermOf(ElementAt(a, sa, i, scale_a),
					   ElementAt(b, sb, i, scale_b), term);
	return (s[0] + s[1]) + (s[2] + s[3]);
}

/*
 * Bytes against bytes, exact: 255^2 * dim stays below 2^31 up to 33,025
 * dimensions, more than the 16,000 that the vector type allows.
 */
ALWAYS_INLINE float
BytePair(const void *a, const void *b, int dim, bool is_signed, bool is_dot)
{
	int32		sum = 0;

	for (int i = 0; i < dim; i++)
	{
		int32		x = is_signed ? ((const int8 *) a)[i] : ((const uint8 *) a)[i];
		int32		y = is_signed ? ((const int8 *) b)[i] : ((const uint8 *) b)[i];

		sum += is_dot ? x * y : (x - y) * (x - y);
	}
	return (float) sum;
}

ALWAYS_INLINE void
Centroids(const float *x, const void *centroids, PipeannStorage storage,
		  int len, float *restrict out, Term term)
{
	for (int k = 0; k < PQ_ROW; k++)
		out[k] = 0.0f;
	for (int d = 0; d < len; d++)
	{
		const char *row = (const char *) centroids +
			(Size) d * PQ_ROW * PipeannElementSize(storage);
		float		value = x[d];

		for (int k = 0; k < PQ_ROW; k++)
			out[k] += TermOf(term == PRODUCTS ? -value : value,
							 LoadElement(row, storage, k), term);
	}
}

#define NEAREST_LANES 16

/*
 * The nearest centroid, as centroid_nearest requires; sets distance[256]. Two
 * passes, for the smallest value of each lane and then for its place in that
 * lane: compilers turn the first into vector instructions, which they cannot
 * do to a loop that carries both along.
 */
static int
NearestCentroid(const float *x, const float *centroids, int len,
				float *distance)
{
	float		lane[NEAREST_LANES];
	float		smallest = __builtin_inff();
	int			nearest = PQ_ROW;

	Centroids(x, centroids, PIPEANN_FLOAT4, len, distance, SQUARES);
	for (int i = 0; i < NEAREST_LANES; i++)
		lane[i] = __builtin_inff();
	for (int k = 0; k < PQ_ROW; k += NEAREST_LANES)
		for (int i = 0; i < NEAREST_LANES; i++)
			lane[i] = distance[k + i] < lane[i] ? distance[k + i] : lane[i];
	for (int i = 0; i < NEAREST_LANES; i++)
		smallest = lane[i] < smallest ? lane[i] : smallest;

	for (int i = 0; i < NEAREST_LANES; i++)
	{
		if (lane[i] != smallest)
			continue;
		for (int k = i; k < nearest; k += NEAREST_LANES)
			if (distance[k] == smallest)
				nearest = k;
	}
	return nearest < PQ_ROW ? nearest : 0;
}

static void
CentroidNearest(const float *x, Size stride, int n, const float *centroids,
				int len, const PipeannNearest *out)
{
	uint8	   *codes = out->codes;
	Size		code_stride = out->code_stride;
	float	   *distances = out->distances;
	float		distance[PQ_ROW] __attribute__((aligned(64)));

	for (int i = 0; i < n; i++)
	{
		int			nearest = NearestCentroid(x + i * stride, centroids, len,
											  distance);

		codes[i * code_stride] = nearest;
		if (distances != NULL)
			distances[i] = distance[nearest];
	}
}

/* Sums wrap around, as vector instructions let them: hence unsigned. */
ALWAYS_INLINE void
Tile(const int16 *const *rows, const int16 *panel, int dim, TileTerm term, int32 *out)
{
	for (int r = 0; r < PIPEANN_TILE_ROWS; r++)
	{
		uint32		sum[PIPEANN_TILE_COLUMNS] = {0};

		for (int d = 0; d < dim; d += PIPEANN_TILE_DIM)
		{
			const int16 *columns = panel + PIPEANN_PANEL_SIZE(d);
			int32		a = rows[r][d];
			int32		b = rows[r][d + 1];

			for (int c = 0; c < PIPEANN_TILE_COLUMNS; c++)
			{
				int32		x = columns[2 * c];
				int32		y = columns[2 * c + 1];
				uint32		both = term == TILE_COMMON ? (uint32) (a & x) << 16 | (uint16) (b & y) :
					(uint32) (a ^ x) << 16 | (uint16) (b ^ y);

				sum[c] += term == TILE_PRODUCTS ? (uint32) (a * x + b * y) :
					(uint32) __builtin_popcount(both);
			}
		}
		for (int c = 0; c < PIPEANN_TILE_COLUMNS; c++)
			out[r * PIPEANN_TILE_COLUMNS + c] = (int32) sum[c];
	}
}

static uint64
Equal16(const uint16 *a, int n, uint16 value)
{
	uint64		bits = 0;

	for (int i = 0; i < n; i++)
		bits |= (uint64) (a[i] == value) << i;
	return bits;
}

static uint16
Most16(const uint16 *a, int n)
{
	uint16		most = 0;

	for (int i = 0; i < n; i++)
		most = Max(most, a[i]);
	return most;
}

static void
KeepMembers(const uint8 *bytes, int n, const uint8 *set, uint64 *mask)
{
	for (int i = 0; i < n; i += 64)
	{
		uint64		members = 0;

		for (int j = 0; j < 64; j++)
		{
			uint8		byte = bytes[i + j];

			members |= (uint64) ((set[byte / 8] >> byte % 8) & 1) << j;
		}
		mask[i / 64] &= members;
	}
}

static void
KeepRange(const uint8 *high, const uint8 *low, int n, uint16 from, uint16 to,
		  uint64 *mask)
{
	for (int i = 0; i < n; i += 64)
	{
		uint64		within = 0;

		for (int j = 0; j < 64; j++)
		{
			int			number = 256 * high[i + j] + low[i + j];
			bool		is_in = (number >= from && number <= to) ||
				(number > 0 && number < 256);

			within |= (uint64) is_in << j;
		}
		mask[i / 64] &= within;
	}
}

ALWAYS_INLINE void
ToFloat(const void *src, PipeannStorage storage, int dim, float *restrict dst)
{
	float		scale = SqScale(src, storage, dim);

	for (int i = 0; i < dim; i++)
		dst[i] = ElementAt(src, storage, i, scale);
}

/*
 * A product of a difference cannot be contracted, so every compiler rounds
 * twice before converting to the integer.
 */
static void
ToFixed(const float *x, const float *offset, float scale, int dim, int16 *out)
{
	for (int i = 0; i < dim; i++)
	{
		float		value = (x[i] - offset[i]) * scale;

		value = Min(value, (float) PIPEANN_FIXED_MAX);
		value = Max(value, (float) -PIPEANN_FIXED_MAX);
		out[i] = (int16) lrintf(value);
	}
}

static void
ToHalf(const float *x, int dim, void *out)
{
	for (int i = 0; i < dim; i++)
	{
		uint16		h = FloatToHalf(x[i]);

		memcpy((uint16 *) out + i, &h, sizeof(h));
	}
}

#define TileNear PortableTileNear
#define SET PipeannKernelsScalar
#define SET_NAME "scalar"
#define KERNEL
#include "distance/kernels.h"
