/*
 * train.c
 *		Training of the product quantiser's centroids.
 *
 * Each subvector is clustered by itself: k-means++ seeding (Arthur and
 * Vassilvitskii, SODA 2007) on a part of the samples, then Lloyd's iterations
 * on all of them. The results depend on the seed, the samples, and the
 * rounding of the kernels in use; not on the order of the subvectors.
 */
#include "pq/pq.h"

#include "base/random.h"
#include "distance/distance.h"

#define MAX_ITERATIONS 12

/* Stop when an iteration lowers the error by less than this part. */
#define MIN_IMPROVEMENT 0.002

/* Samples for seeding, in blocks of 256; seeding is sequential work. */
#define MAX_SEED_BLOCKS 16

/* Samples between two checks for interrupts. */
#define INTERRUPT_SAMPLES 256

/* The clustering of one subvector. */
typedef struct Clustering
{
	uint32		n;				/* samples */
	int			len;			/* dimensions of the subvector */
	float	   *samples;		/* [n][len] */
	float	   *distance;		/* [n] squared, to the nearest centroid */
	double	   *sum;			/* [256][len] of a centroid's samples */
	uint32		count[PIPEANN_CENTROIDS];	/* of a centroid's samples */
	float	   *seeds;			/* [MAX_SEED_BLOCKS][len][256] */
	float	   *seed;			/* [len] one of them */
	float	   *centroids;		/* [len][256], the result */
	uint64		random;			/* state of the generator */
} Clustering;

/* Uniform in [0, 1). */
static double
RandomFraction(uint64 *state)
{
	return (double) (PipeannRandomNext(state) >> 11) * (1.0 / 9007199254740992.0);
}

/* Copy a subvector's dimensions out of the samples. */
static void
GatherSamples(Clustering *c, const float *samples, int dim, int start)
{
	for (uint32 i = 0; i < c->n; i++)
	{
		memcpy(c->samples + (Size) i * c->len,
			   samples + (Size) i * dim + start, sizeof(float) * c->len);
		if (i % INTERRUPT_SAMPLES == 0)
			CHECK_FOR_INTERRUPTS();
	}
}

static void
SetCentroid(Clustering *c, int k, const float *x)
{
	for (int d = 0; d < c->len; d++)
		c->centroids[(Size) d * PIPEANN_CENTROIDS + k] = x[d];
}

/*
 * Choose samples for seeding, a random one from each of as many equal parts of
 * them, so that none comes twice. They are stored like centroids, so that one
 * kernel call measures the distances from a seed to a block of 256. Returns
 * the number of blocks.
 */
static int
ChooseSeeds(Clustering *c)
{
	int			nblocks = Min(c->n / PIPEANN_CENTROIDS, MAX_SEED_BLOCKS);
	uint32		nseeds = nblocks * PIPEANN_CENTROIDS;

	for (uint32 i = 0; i < nseeds; i++)
	{
		uint32		low = (uint64) c->n * i / nseeds;
		uint32		high = (uint64) c->n * (i + 1) / nseeds;
		uint32		pick = low + PipeannRandomNext(&c->random) % (high - low);
		const float *x = c->samples + (Size) pick * c->len;
		float	   *block = c->seeds +
			(Size) (i / PIPEANN_CENTROIDS) * c->len * PIPEANN_CENTROIDS;

		for (int d = 0; d < c->len; d++)
			block[(Size) d * PIPEANN_CENTROIDS + i % PIPEANN_CENTROIDS] = x[d];
	}
	return nblocks;
}

/* Copy seed i into c->seed. */
static void
GetSeed(Clustering *c, int i)
{
	const float *block = c->seeds +
		(Size) (i / PIPEANN_CENTROIDS) * c->len * PIPEANN_CENTROIDS;

	for (int d = 0; d < c->len; d++)
		c->seed[d] = block[(Size) d * PIPEANN_CENTROIDS +
						   i % PIPEANN_CENTROIDS];
}

/*
 * Lower nearest[], the seeds' distances to the nearest centroid, by those to
 * c->seed, the newest centroid. Returns the sum of nearest[].
 */
static double
LowerSeedDistances(Clustering *c, int nblocks, float *nearest)
{
	double		total = 0.0;

	for (int b = 0; b < nblocks; b++)
	{
		float		distance[PIPEANN_CENTROIDS];
		float	   *row = nearest + b * PIPEANN_CENTROIDS;

		PipeannKernel->centroid_l2(c->seed,
								   c->seeds + (Size) b * c->len *
								   PIPEANN_CENTROIDS, c->len, distance);
		for (int k = 0; k < PIPEANN_CENTROIDS; k++)
		{
			row[k] = distance[k] < row[k] ? distance[k] : row[k];
			total += row[k];
		}
	}
	return total;
}

/*
 * Pick a seed with a probability proportional to its distance. Any seed will
 * do if all distances are zero (fewer distinct seeds than centroids) or the
 * total overflowed.
 */
static int
PickSeed(Clustering *c, const float *nearest, int nseeds, double total)
{
	double		rest = RandomFraction(&c->random) * total;

	if (!(total > 0.0 && total - total == 0.0))
		return (int) (PipeannRandomNext(&c->random) % nseeds);
	for (int i = 0; i < nseeds - 1; i++)
	{
		rest -= nearest[i];
		if (rest < 0.0)
			return i;
	}
	return nseeds - 1;
}

/* k-means++: each centroid is a sample far from those chosen before it. */
static void
SeedCentroids(Clustering *c)
{
	float		nearest[MAX_SEED_BLOCKS * PIPEANN_CENTROIDS];
	int			nblocks = ChooseSeeds(c);
	int			nseeds = nblocks * PIPEANN_CENTROIDS;
	int			pick = (int) (PipeannRandomNext(&c->random) % nseeds);

	for (int i = 0; i < nseeds; i++)
		nearest[i] = __builtin_inff();
	for (int k = 0; k < PIPEANN_CENTROIDS; k++)
	{
		double		total;

		CHECK_FOR_INTERRUPTS();
		GetSeed(c, pick);
		SetCentroid(c, k, c->seed);
		total = LowerSeedDistances(c, nblocks, nearest);
		pick = PickSeed(c, nearest, nseeds, total);
	}
}

/*
 * Assign every sample to its nearest centroid, and add it to that centroid's
 * sum. Returns the sum of the squared distances.
 */
static double
AssignSamples(Clustering *c)
{
	double		error = 0.0;

	memset(c->count, 0, sizeof(c->count));
	memset(c->sum, 0, sizeof(double) * PIPEANN_CENTROIDS * c->len);
	for (uint32 i = 0; i < c->n; i += INTERRUPT_SAMPLES)
	{
		uint8		nearest[INTERRUPT_SAMPLES];
		const float *x = c->samples + (Size) i * c->len;
		int			n = Min(c->n - i, INTERRUPT_SAMPLES);
		PipeannNearest out = {nearest, 1, c->distance + i};

		CHECK_FOR_INTERRUPTS();
		PipeannKernel->centroid_nearest(x, c->len, n, c->centroids, c->len,
										&out);
		for (int s = 0; s < n; s++)
		{
			double	   *sum = c->sum + (Size) nearest[s] * c->len;

			for (int d = 0; d < c->len; d++)
				sum[d] += x[(Size) s * c->len + d];
			c->count[nearest[s]]++;
			error += c->distance[i + s];
		}
	}
	return error;
}

/*
 * Give an empty cluster the sample that is farthest from its centroid, if it
 * has any distance.
 */
static void
RefillCluster(Clustering *c, int k)
{
	uint32		farthest = 0;

	CHECK_FOR_INTERRUPTS();
	for (uint32 i = 1; i < c->n; i++)
		if (c->distance[i] > c->distance[farthest])
			farthest = i;
	if (!(c->distance[farthest] > 0.0f))
		return;
	c->distance[farthest] = 0.0f;
	SetCentroid(c, k, c->samples + (Size) farthest * c->len);
}

/* Move the centroids to the means of their samples. */
static void
MoveCentroids(Clustering *c)
{
	for (int k = 0; k < PIPEANN_CENTROIDS; k++)
	{
		if (c->count[k] == 0)
		{
			RefillCluster(c, k);
			continue;
		}
		for (int d = 0; d < c->len; d++)
			c->centroids[(Size) d * PIPEANN_CENTROIDS + k] =
				(float) (c->sum[(Size) k * c->len + d] / c->count[k]);
	}
}

/* Cluster one subvector, whose samples were gathered. */
static void
ClusterSubvector(Clustering *c)
{
	double		last = 0.0;

	SeedCentroids(c);
	for (int i = 0; i < MAX_ITERATIONS; i++)
	{
		double		error = AssignSamples(c);

		MoveCentroids(c);
		if (i > 0 && !(error < last * (1.0 - MIN_IMPROVEMENT)))
			break;
		last = error;
	}
}

/*
 * Train a subvector's part of centroids[dim * 256] on samples[n][dim] by
 * Lloyd's iterations. Deterministic for a given seed. n must be at least 1; if
 * it is less than 256, centroids repeat samples.
 *
 * See pq.h. Ignores the layout's centroids. Takes about
 * 4 * n * (dim / nsubvectors + 1) bytes of working memory.
 */
void
PipeannPqTrainSubvector(const PipeannPq *layout, int subvector,
						const float *samples, uint32 n, uint64 seed,
						float *centroids)
{
	Size		len = layout->len[subvector];
	Size		row = mul_size(len, sizeof(float));
	Clustering	c;

	Assert(n >= 1);

	c.n = n;
	c.len = layout->len[subvector];
	c.centroids = centroids + layout->offset[subvector];
	c.random = seed ^ ((uint64) (subvector + 1) << 32);
	c.samples = PipeannAlloc(mul_size(row, n));
	c.distance = PipeannAlloc(mul_size(sizeof(float), n));
	c.sum = PipeannAlloc(mul_size(sizeof(double) * PIPEANN_CENTROIDS, len));
	c.seeds = PipeannAlloc(mul_size(row, MAX_SEED_BLOCKS * PIPEANN_CENTROIDS));
	c.seed = PipeannAlloc(row);
	GatherSamples(&c, samples, layout->dim, layout->start[subvector]);

	/* too few samples to cluster: each is a centroid, in turn */
	if (n <= PIPEANN_CENTROIDS)
		for (int k = 0; k < PIPEANN_CENTROIDS; k++)
			SetCentroid(&c, k, c.samples + (Size) (k % n) * c.len);
	else
		ClusterSubvector(&c);

	pfree(c.seed);
	pfree(c.seeds);
	pfree(c.sum);
	pfree(c.distance);
	pfree(c.samples);
}

/* Train all subvectors. All members call. */
void
PipeannPqTrain(PipeannTeam *team, const PipeannPq *layout,
			   const float *samples, uint32 n, uint64 seed, float *centroids)
{
	uint64		from;
	uint64		to;

	PipeannTeamBegin(team, layout->nsubvectors, 1);
	while (PipeannTeamNext(team, &from, &to))
		PipeannPqTrainSubvector(layout, (int) from, samples, n, seed,
								centroids);
	PipeannTeamEnd(team);
}
