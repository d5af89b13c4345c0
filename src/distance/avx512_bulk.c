/*
 * avx512_bulk.c
 *		Kernels for AVX-512 and many centroids, vectors or elements.
 */
#include "distance/bulk.h"

#if defined(__x86_64__)

#include "distance/avx512.h"
#include "distance/pq_scan.h"
#include "distance/unroll.h"

/*
 * Distances to all 256 centroids at once; the sums take half of the registers.
 */
#define CENTROID_VECTORS 16

AVX512_INLINE void
SumAll(const float *x, const float *centroids, int len, bool is_dot,
	   __m512 *sum)
{
	UNROLL(16)
	for (int j = 0; j < CENTROID_VECTORS; j++)
		sum[j] = _mm512_setzero_ps();
	for (int d = 0; d < len; d++)
	{
		const float *row = centroids + (Size) d * PQ_ROW;
		__m512		value = _mm512_set1_ps(x[d]);

		UNROLL(16)
		for (int j = 0; j < CENTROID_VECTORS; j++)
		{
			__m512		c = _mm512_loadu_ps(row + 16 * j);

			if (is_dot)
				sum[j] = _mm512_fnmadd_ps(value, c, sum[j]);
			else
			{
				c = _mm512_sub_ps(value, c);
				sum[j] = _mm512_fmadd_ps(c, c, sum[j]);
			}
		}
	}
}

AVX512_INLINE void
Centroids(const float *x, const float *centroids, int len, float *out,
		  bool is_dot)
{
	__m512		sum[CENTROID_VECTORS];

	SumAll(x, centroids, len, is_dot, sum);
	UNROLL(16)
	for (int j = 0; j < CENTROID_VECTORS; j++)
		_mm512_storeu_ps(out + 16 * j, sum[j]);
}

AVX512 void
PipeannAvx512CentroidL2(const float *x, const float *centroids, int len,
						float *out)
{
	Centroids(x, centroids, len, out, false);
}

AVX512 void
PipeannAvx512CentroidDot(const float *x, const float *centroids, int len,
						 float *out)
{
	Centroids(x, centroids, len, out, true);
}

/* The smallest lane, in all lanes. */
AVX512_INLINE __m512
LeastLane(__m512 v)
{
	__m512d		all = _mm512_castps_pd(v);
	__m256		half = _mm256_castpd_ps(_mm512_extractf64x4_pd(all, 1));
	__m128		s;

	half = _mm256_min_ps(_mm512_castps512_ps256(v), half);
	s = _mm_min_ps(_mm256_castps256_ps128(half),
				   _mm256_extractf128_ps(half, 1));
	s = _mm_min_ps(s, _mm_movehl_ps(s, s));
	s = _mm_min_ss(s, _mm_movehdup_ps(s));
	return _mm512_set1_ps(_mm_cvtss_f32(s));
}

/* A bit for each of 64 floats that equals value, the first one lowest. */
AVX512_INLINE uint64
EqualBits(const __m512 *v, __m512 value)
{
	uint64		bits = 0;

	UNROLL(4)
	for (int i = 0; i < 4; i++)
		bits |= (uint64) _mm512_cmp_ps_mask(v[i], value, _CMP_EQ_OQ) <<
			(16 * i);
	return bits;
}

/*
 * Keeps the least distances of each group of four registers, so that only the
 * group of the nearest centroid is looked through for its place. A distance
 * that is not a number does not count: the minimum is the second operand then.
 */
AVX512_INLINE int
NearestCentroid(const float *x, const float *centroids, int len,
				float *distance)
{
	__m512		sum[CENTROID_VECTORS];
	__m512		low[4];
	__m512		least;
	uint64		places;
	int			first;

	SumAll(x, centroids, len, false, sum);
	UNROLL(4)
	for (int g = 0; g < 4; g++)
		low[g] = _mm512_set1_ps(__builtin_inff());
	UNROLL(16)
	for (int j = 0; j < CENTROID_VECTORS; j++)
	{
		low[j / 4] = _mm512_min_ps(sum[j], low[j / 4]);
		_mm512_storeu_ps(distance + 16 * j, sum[j]);
	}
	least = LeastLane(_mm512_min_ps(_mm512_min_ps(low[0], low[1]),
									_mm512_min_ps(low[2], low[3])));
	first = __builtin_ctzll(EqualBits(low, least)) / 16 * 64;
	UNROLL(4)
	for (int i = 0; i < 4; i++)
		low[i] = _mm512_loadu_ps(distance + first + 16 * i);
	places = EqualBits(low, least);
	return places == 0 ? 0 : first + __builtin_ctzll(places);
}

AVX512 void
PipeannAvx512CentroidNearest(const float *x, Size stride, int n,
							 const float *centroids, int len,
							 const PipeannNearest *out)
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

/* A register holds a pair of dimensions of all columns. */
AVX512 void
PipeannAvx512DotTile(const int16 *const *rows, const int16 *panel, int dim,
					 int32 *out)
{
	__m512i		sum[PIPEANN_TILE_ROWS];

	UNROLL(12)
	for (int r = 0; r < PIPEANN_TILE_ROWS; r++)
		sum[r] = _mm512_setzero_si512();
	for (int d = 0; d < dim; d += PIPEANN_TILE_DIM)
	{
		__m512i		columns = _mm512_loadu_si512(panel +
												 PIPEANN_PANEL_SIZE(d));

		UNROLL(12)
		for (int r = 0; r < PIPEANN_TILE_ROWS; r++)
		{
			__m512i		pair = _mm512_set1_epi32(LoadPair(rows[r] + d));

			sum[r] = _mm512_dpwssd_epi32(sum[r], pair, columns);
		}
	}
	UNROLL(12)
	for (int r = 0; r < PIPEANN_TILE_ROWS; r++)
		_mm512_storeu_si512(out + r * PIPEANN_TILE_COLUMNS, sum[r]);
}

AVX512_INLINE void
ToFloat(const void *src, PipeannStorage storage, int dim, float *dst)
{
	int			i = 0;

	for (; i + 16 <= dim; i += 16)
		_mm512_storeu_ps(dst + i, Load16(src, storage, i));
	if (i < dim)
		_mm512_mask_storeu_ps(dst + i, (__mmask16) ((1 << (dim - i)) - 1),
							  LoadTail(src, storage, i, dim - i));
}

AVX512 void
PipeannAvx512Float2ToFloat(const void *src, int dim, float *dst)
{
	ToFloat(src, PIPEANN_FLOAT2, dim, dst);
}

AVX512 void
PipeannAvx512Int8ToFloat(const void *src, int dim, float *dst)
{
	ToFloat(src, PIPEANN_INT8, dim, dst);
}

AVX512 void
PipeannAvx512Uint8ToFloat(const void *src, int dim, float *dst)
{
	ToFloat(src, PIPEANN_UINT8, dim, dst);
}

/*
 * Sixteen fixed-point numbers. Rounds as the default mode does, ties to even.
 */
AVX512_INLINE __m256i
Fix16(__m512 x, __m512 offset, float scale)
{
	__m512		v = _mm512_mul_ps(_mm512_sub_ps(x, offset),
								  _mm512_set1_ps(scale));

	v = _mm512_min_ps(v, _mm512_set1_ps(PIPEANN_FIXED_MAX));
	v = _mm512_max_ps(v, _mm512_set1_ps(-PIPEANN_FIXED_MAX));
	return _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(v));
}

AVX512 void
PipeannAvx512ToFixed(const float *x, const float *offset, float scale,
					 int dim, int16 *out)
{
	int			i = 0;

	for (; i + 16 <= dim; i += 16)
		_mm256_storeu_si256((__m256i *) (out + i),
							Fix16(_mm512_loadu_ps(x + i),
								  _mm512_loadu_ps(offset + i), scale));
	if (i < dim)
		_mm256_mask_storeu_epi16(out + i, (__mmask16) ((1 << (dim - i)) - 1),
								 Fix16(LoadTail(x, PIPEANN_FLOAT4, i, dim - i),
									   LoadTail(offset, PIPEANN_FLOAT4, i,
												dim - i), scale));
}

#endif							/* __x86_64__ */
