/*
 * sibling.c
 *		One codebook for the indexes of several partitions.
 *
 * A query for the nearest rows of a table with partitions computes the distances to
 * a codebook's centroids once for all indexes that have the same. So a partition's
 * index takes the codebook of another one, unless its vectors have others that fit
 * them better: of a few subvectors centroids are trained, and both are compared
 * on samples that were not trained on.
 */
#include "postgres.h"

#include "build/coding.h"

#include <float.h>

#include "distance/distance.h"
#include "utils/rel.h"

/* A codebook that errs by so much more is as good. */
#define AS_GOOD 1.05

/* One in so many subvectors is compared, but a few at the least. */
#define COMPARED_PART 8
#define LEAST_COMPARED 4

/*
 * One in so many samples compares. What differs by chance alone is then far less
 * than what may.
 */
#define COMPARING_PART 4

#define SEED UINT64CONST(0x7369626c696e67)

/* Move count of n samples, evenly spaced, to the end. */
void
PipeannMoveSamples(float *samples, uint32 n, int dim, uint32 count)
{
	Size		size = mul_size(dim, sizeof(float));
	float	   *row = palloc(size);

	for (uint32 i = 0; i < count; i++)
	{
		float	   *from = samples + (Size) ((uint64) i * n / count) * dim;
		float	   *to = samples + (Size) (n - 1 - i) * dim;

		memcpy(row, from, size);
		memcpy(from, to, size);
		memcpy(to, row, size);
	}
	pfree(row);
}

static int
SubvectorsCompared(const PipeannPq *pq)
{
	return Min(Max(pq->nsubvectors / COMPARED_PART, LEAST_COMPARED),
			   pq->nsubvectors);
}

/* Number i of the subvectors that are compared. */
static int
SubvectorAt(const PipeannPq *pq, int i)
{
	return (int) ((int64) i * pq->nsubvectors / SubvectorsCompared(pq));
}

static void
TrainCompared(PipeannTeam *team, const PipeannPq *pq, const float *samples,
			  uint32 n, float *centroids)
{
	uint64		from;
	uint64		to;

	PipeannTeamBegin(team, SubvectorsCompared(pq), 1);
	while (PipeannTeamNext(team, &from, &to))
		PipeannPqTrainSubvector(pq, SubvectorAt(pq, (int) from), samples, n,
								SEED, centroids);
	PipeannTeamEnd(team);
}

/* The squared error of a vector in one subvector. */
static float
SubvectorError(const PipeannPq *pq, const float *centroids, const float *x,
			   int subvector)
{
	float		distances[PIPEANN_CENTROIDS];
	float		least = FLT_MAX;

	PipeannKernel->centroid_l2(x + pq->start[subvector],
							   centroids + pq->offset[subvector],
							   pq->len[subvector],
							   distances);
	for (int k = 0; k < PIPEANN_CENTROIDS; k++)
		least = Min(least, distances[k]);
	return least;
}

static double
ComparedError(const PipeannPq *pq, const float *centroids, const float *x,
			  uint32 n)
{
	double		sum = 0;

	for (uint32 i = 0; i < n; i++)
		for (int j = 0; j < SubvectorsCompared(pq); j++)
			sum += SubvectorError(pq, centroids, x + (Size) i * pq->dim,
								  SubvectorAt(pq, j));
	return sum;
}

/* Whether their codebook is as good for samples as one of the samples' own. */
static bool
IsAsGood(PipeannTeam *team, const PipeannPq *pq, const PipeannSamples *s,
		 const float *theirs, float *own)
{
	uint32		n = s->n - s->aside;
	uint32		comparing = n / COMPARING_PART;
	uint32		trained = n - comparing;
	uint32		compared = s->n - trained;
	const float *x = s->x + (Size) trained * pq->dim;

	if (PipeannTeamLeads(team))
		PipeannMoveSamples(s->x, n, pq->dim, comparing);
	PipeannTeamMeet(team);
	TrainCompared(team, pq, s->x, trained, own);
	return ComparedError(pq, theirs, x, compared) <=
		AS_GOOD * ComparedError(pq, own, x, compared);
}

/*
 * Take the codebook of another partition's index if it is about as good for
 * samples as one of their own. Those aside stay where they are, the others may be
 * put in another order. True if centroids, which the team shares, are that
 * codebook. All members call.
 */
bool
PipeannSiblingCodebook(PipeannTeam *team, const PipeannCoding *k,
					   const PipeannSamples *samples, float *centroids)
{
	const PipeannPq *pq = &k->pq;
	Size		size = mul_size(PipeannPqCentroidCount(pq->dim), sizeof(float));
	float	   *theirs;
	bool	   *found;
	bool		taken;

	if (samples->aside == 0 || !k->index->rd_rel->relispartition)
		return false;
	theirs = PipeannTeamAlloc(team, size);
	found = PipeannTeamAlloc(team, sizeof(bool));
	if (PipeannTeamLeads(team))
		*found = PipeannReadSibling(k->index, pq, k->layout.metric, theirs);
	PipeannTeamMeet(team);
	taken = *found && IsAsGood(team, pq, samples, theirs, centroids);
	PipeannTeamMeet(team);
	if (taken && PipeannTeamLeads(team))
		memcpy(centroids, theirs, size);
	PipeannTeamMeet(team);
	PipeannTeamFree(team, found);
	PipeannTeamFree(team, theirs);
	return taken;
}
