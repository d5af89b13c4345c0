/*
 * encode.c
 *		Time of encoding vectors and of training centroids, for each kernel set.
 *
 * Encoding is measured one by one and 64 vectors at once, training with all its
 * iterations, each divided by the vectors.
 */
#include "micro.h"

#include "pq/pq.h"

#define VECTORS 4096
#define SAMPLES 20000
#define ROUNDS 5

/* Uniform noise: Lloyd's iterations go on for as long as they may. */
static float *
MakeVectors(int dim, int n)
{
	float	   *v = palloc(sizeof(float) * n * dim);
	uint64		random = 88172645463325252u;

	for (Size i = 0; i < (Size) n * dim; i++)
	{
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		v[i] = (float) (random >> 40) / 16777216.0f;
	}
	return v;
}

/* ns per vector, `many` vectors at once. */
static double
MeasureEncode(const PipeannPq *pq, const float *x, int many, uint8 *codes)
{
	double		best = 1e18;
	float	   *errors = palloc(many * sizeof(float));

	for (int r = 0; r < ROUNDS; r++)
	{
		double		start = Now();

		for (int i = 0; i < VECTORS; i += many)
			PipeannPqEncodeMany(pq, x + (Size) i * pq->dim, many,
								codes + (Size) i * pq->nsubvectors,
								pq->nsubvectors, errors);
		best = Min(best, (Now() - start) / VECTORS);
	}
	pfree(errors);
	return best;
}

static void
MeasureSet(const PipeannKernels *set, PipeannPq *pq, const float *x)
{
	uint8	   *codes = palloc((Size) VECTORS * pq->nsubvectors);
	double		train = Now();

	PipeannKernel = set;
	PipeannPqTrain(PipeannTeamAlone(), pq, x, SAMPLES, 1,
				   (float *) pq->centroids);
	train = (Now() - train) / SAMPLES;
	printf("%-7s %5d %6d %9.0f %9.0f %9.0f\n", set->name, pq->dim,
		   pq->nsubvectors, train, MeasureEncode(pq, x, 1, codes),
		   MeasureEncode(pq, x, 64, codes));
	fflush(stdout);
	pfree(codes);
}

static void
Measure(int dim, int nsubvectors)
{
	float	   *x = MakeVectors(dim, SAMPLES);
	PipeannPq	pq = PipeannPqNew(PIPEANN_FLOAT4, dim, nsubvectors);

	pq.centroids = palloc(sizeof(float) * PipeannPqCentroidCount(dim));
	for (int i = 0; i < NUM_SETS; i++)
		if (Runs(sets[i]))
			MeasureSet(sets[i], &pq, x);
	pfree((void *) pq.centroids);
	pfree(x);
}

int
main(void)
{
	printf("ns a vector\nkernels   dim  bytes     train       one        64\n");
	Measure(128, 64);
	Measure(384, 96);
	return 0;
}
