/*
 * scalar_bulk.c
 *		Kernels in portable C for many centroids, vectors or elements.
 *
 * Loops are written so that compilers turn them into vector instructions:
 * rounds whose number is a constant, over arrays that nothing else points to.
 */
#include "distance/bulk.h"

#include <math.h>

#include "distance/half.h"
#include "distance/pq_scan.h"

#define NEAREST_LANES 16

void
PipeannScalarCentroidL2(const float *x, const float *centroids, int len,
						float *restrict out)
{
	for (int k = 0; k < PQ_ROW; k++)
		out[k] = 0.0f;
	for (int d = 0; d < len; d++)
	{
		const float *row = centroids + (Size) d * PQ_ROW;
		float		value = x[d];

		for (int k = 0; k < PQ_ROW; k++)
			out[k] += (value - row[k]) * (value - row[k]);
	}
}

void
PipeannScalarCentroidDot(const float *x, const float *centroids, int len,
						 float *restrict out)
{
	for (int k = 0; k < PQ_ROW; k++)
		out[k] = 0.0f;
	for (int d = 0; d < len; d++)
	{
		const float *row = centroids + (Size) d * PQ_ROW;
		float		value = x[d];

		for (int k = 0; k < PQ_ROW; k++)
			out[k] -= value * row[k];
	}
}

/*
 * The index of the smallest of distance[256], as centroid_nearest wants it.
 * Two passes, for the smallest value of each lane and then for its place in
 * that lane: compilers turn the first into vector instructions, which they
 * cannot do to a loop that carries both along.
 */
static int
NearestCentroid(const float *distance)
{
	float		lane[NEAREST_LANES];
	float		smallest = __builtin_inff();
	int			nearest = PQ_ROW;

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

void
PipeannScalarCentroidNearest(const float *x, Size stride, int n,
							 const float *centroids, int len,
							 const PipeannNearest *out)
{
	uint8	   *codes = out->codes;
	Size		code_stride = out->code_stride;
	float	   *distances = out->distances;
	float		distance[PQ_ROW];

	for (int i = 0; i < n; i++)
	{
		int			nearest;

		PipeannScalarCentroidL2(x + i * stride, centroids, len, distance);
		nearest = NearestCentroid(distance);
		codes[i * code_stride] = nearest;
		if (distances != NULL)
			distances[i] = distance[nearest];
	}
}

/* Sums wrap around, as vector instructions let them: hence unsigned. */
void
PipeannScalarDotTile(const int16 *const *rows, const int16 *panel, int dim,
					 int32 *out)
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
				sum[c] += (uint32) (a * columns[2 * c] +
									b * columns[2 * c + 1]);
		}
		for (int c = 0; c < PIPEANN_TILE_COLUMNS; c++)
			out[r * PIPEANN_TILE_COLUMNS + c] = (int32) sum[c];
	}
}

void
PipeannScalarTileNear(const int32 *row_norms, const int32 *column_norms,
					  const int32 *row_limits, const int32 *column_limits,
					  int32 *restrict tile, uint16 *near)
{
	for (int r = 0; r < PIPEANN_TILE_ROWS; r++, tile += PIPEANN_TILE_COLUMNS)
	{
		uint16		bits = 0;

		for (int c = 0; c < PIPEANN_TILE_COLUMNS; c++)
		{
			int32		d = row_norms[r] + column_norms[c] - tile[c];

			tile[c] = Max(d, 0);
		}
		for (int c = 0; c < PIPEANN_TILE_COLUMNS; c++)
			bits |= (uint16) ((tile[c] < row_limits[r]) |
							  (tile[c] < column_limits[c])) << c;
		near[r] = bits;
	}
}

uint64
PipeannScalarEqual16(const uint16 *a, int n, uint16 value)
{
	uint64		bits = 0;

	for (int i = 0; i < n; i++)
		bits |= (uint64) (a[i] == value) << i;
	return bits;
}

uint16
PipeannScalarMost16(const uint16 *a, int n)
{
	uint16		most = 0;

	for (int i = 0; i < n; i++)
		most = Max(most, a[i]);
	return most;
}

void
PipeannScalarKeepMembers(const uint8 *bytes, int n, const uint8 *set,
						 uint64 *mask)
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

void
PipeannScalarKeepRange(const uint8 *high, const uint8 *low, int n,
					   uint16 from, uint16 to, uint64 *mask)
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

void
PipeannFloat4ToFloat(const void *src, int dim, float *dst)
{
	memcpy(dst, src, dim * sizeof(float));
}

void
PipeannScalarFloat2ToFloat(const void *src, int dim, float *dst)
{
	for (int i = 0; i < dim; i++)
	{
		uint16		h;

		memcpy(&h, (const char *) src + (Size) i * sizeof(h), sizeof(h));
		dst[i] = HalfToFloat(h);
	}
}

void
PipeannScalarInt8ToFloat(const void *src, int dim, float *restrict dst)
{
	const int8 *v = src;

	for (int i = 0; i < dim; i++)
		dst[i] = v[i];
}

void
PipeannScalarUint8ToFloat(const void *src, int dim, float *restrict dst)
{
	const uint8 *v = src;

	for (int i = 0; i < dim; i++)
		dst[i] = v[i];
}

/*
 * A product of a difference cannot be contracted, so that every compiler
 * rounds twice before it comes to the integer.
 */
void
PipeannScalarToFixed(const float *x, const float *offset, float scale,
					 int dim, int16 *out)
{
	for (int i = 0; i < dim; i++)
	{
		float		value = (x[i] - offset[i]) * scale;

		value = Min(value, (float) PIPEANN_FIXED_MAX);
		value = Max(value, (float) -PIPEANN_FIXED_MAX);
		out[i] = (int16) lrintf(value);
	}
}
