/*
 * medoid.c
 *		The medoid, where searches start: the node nearest to the mean.
 *
 * In the embedding of graph.h all vectors are equally long, except for L2, so
 * the node nearest to the mean is the one whose inner product with it is
 * largest.
 */
#include "base/base.h"

#include "graph/build.h"
#include "distance/distance.h"

#define MAX_SAMPLE 20000

typedef struct Mean
{
	float	   *at;				/* [dim] */
	float		aux;			/* coordinate added by the embedding of IP */
} Mean;

/* Row k of a sample of m evenly spaced rows. */
static uint32
SampleRow(const PipeannVectors *v, uint32 k, uint32 m)
{
	return (uint32) ((uint64) k * v->n / m);
}

static void
ComputeMean(const PipeannVectors *v, uint32 m, Mean *mean)
{
	double	   *sum = PipeannAllocZero(mul_size(v->dim, sizeof(double)));
	double		sum_aux = 0;
	uint32		k;
	int			d;

	for (k = 0; k < m; k++)
	{
		uint32		row = SampleRow(v, k, m);
		float		scale = v->metric == PIPEANN_COSINE ? v->aux[row] : 1.0f;

		CHECK_FOR_INTERRUPTS();
		PipeannVectorToFloat(PipeannVectorAt(v, row), v->storage, v->dim,
							 mean->at);
		for (d = 0; d < v->dim; d++)
			sum[d] += (double) mean->at[d] * scale;
		if (v->metric == PIPEANN_IP)
			sum_aux += v->aux[row];
	}
	for (d = 0; d < v->dim; d++)
		mean->at[d] = (float) (sum[d] / m);
	mean->aux = (float) (sum_aux / m);
	pfree(sum);
}

/* A number that orders rows by their distance from the mean. */
static float
FromMean(const PipeannVectors *v, const Mean *mean, uint32 row)
{
	const void *at = PipeannVectorAt(v, row);

	switch (v->metric)
	{
		case PIPEANN_COSINE:
			return -PipeannKernel->dot[v->storage] (mean->at, at, v->dim) *
				v->aux[row];
		case PIPEANN_IP:
			return -PipeannKernel->dot[v->storage] (mean->at, at, v->dim) -
				mean->aux * v->aux[row];
		default:
			return PipeannKernel->l2[v->storage] (mean->at, at, v->dim);
	}
}

uint32
PipeannMedoid(const PipeannVectors *vectors)
{
	uint32		m = Min(vectors->n, MAX_SAMPLE);
	uint32		best = 0;
	float		best_dist = 0;
	uint32		k;
	Mean		mean;

	mean.at = PipeannAlloc(mul_size(vectors->dim, sizeof(float)));
	ComputeMean(vectors, m, &mean);
	for (k = 0; k < m; k++)
	{
		uint32		row = SampleRow(vectors, k, m);
		float		dist = FromMean(vectors, &mean, row);

		CHECK_FOR_INTERRUPTS();
		if (k == 0 || dist < best_dist)
		{
			best = row;
			best_dist = dist;
		}
	}
	pfree(mean.at);
	return best;
}
