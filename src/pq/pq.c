/*
 * pq.c
 *		Product quantisation: layout of a code, encoding, query tables; training.
 *
 * Jegou, Douze, Schmid: Product Quantization for Nearest Neighbor Search,
 * IEEE TPAMI 33(1), 2011.
 */
#include "pq/pq.h"

#include <float.h>
#include <math.h>

#include "base/random.h"
#include "distance/distance.h"

/*
 * Bounds of the automatic code size, in bytes. A byte stands for two dimensions, beyond the
 * middle bound for four, and beyond the last for eight (docs/decisions.md, "Bytes of a code").
 */
#define MIN_AUTO_BYTES 16
#define MIDDLE_AUTO_BYTES 96
#define MAX_AUTO_BYTES 192

/*
 * Vectors encoded together, subvector by subvector: enough of them to make it
 * pay that the centroids are loaded into the first-level cache, and no more
 * than fit in the second-level cache.
 */
#define ENCODE_BLOCK 32

/* The `bits` low bits of value in reverse order. */
static int
ReverseBits(int value, int bits)
{
	int			result = 0;

	for (int i = 0; i < bits; i++)
		result |= ((value >> i) & 1) << (bits - 1 - i);
	return result;
}

/*
 * A quantiser of vectors of this storage without centroids, in CurrentMemoryContext.
 * How vectors are cut depends on dim and nsubvectors alone, so only the centroids
 * are stored. Subvectors are cut at multiples of dim / nsubvectors, so their lengths
 * differ by one at most. Byte j of a code belongs to the j-th subvector in
 * bit-reversed order (of the numbers below nsubvectors): the first two bytes are
 * from the two halves of the vector, the first four from its quarters, and so on.
 * Indexes on disk depend on this function: never change its result.
 */
PipeannPq
PipeannPqNew(PipeannStorage storage, int dim, int nsubvectors)
{
	int		   *start = PipeannAlloc(nsubvectors * sizeof(int));
	int		   *len = PipeannAlloc(nsubvectors * sizeof(int));
	Size	   *offset = PipeannAlloc(nsubvectors * sizeof(Size));
	int			bits = 0;
	int			j = 0;

	Assert(nsubvectors >= 1 && nsubvectors <= dim);

	while ((1 << bits) < nsubvectors)
		bits++;
	for (int i = 0; i < (1 << bits); i++)
	{
		int64		run = ReverseBits(i, bits);

		if (run >= nsubvectors)
			continue;
		start[j] = (int) (run * dim / nsubvectors);
		len[j] = (int) ((run + 1) * dim / nsubvectors) - start[j];
		offset[j] = (Size) start[j] * PIPEANN_CENTROIDS;
		j++;
	}
	Assert(j == nsubvectors);
	return (PipeannPq) {
		.dim = dim,.nsubvectors = nsubvectors,.start = start,.len = len,
		.offset = offset,.bits = storage == PIPEANN_BITS && dim <= 8 * nsubvectors
	};
}

/*
 * The bytes of a code for pq_bytes = 0.
 *
 * Half a byte for each dimension, for wide vectors a fourth, and for very wide ones
 * an eighth; as a multiple of 8 and within bounds. Bits are taken as they are, and
 * sparse vectors' projections, which code scans go through, get an eighth.
 */
int
PipeannPqAutoBytes(PipeannStorage storage, int dim)
{
	int			bytes = ((dim + 1) / 2 + 7) / 8 * 8;
	int			wide = PipeannIsSparse(storage) ? 0 : dim / 4 / 8 * 8;
	int			very_wide = dim / 8 / 8 * 8;

	if (storage == PIPEANN_BITS)
		return Min((dim + 7) / 8, PIPEANN_MAX_PQ_BYTES);
	wide = Max(Min(wide, MAX_AUTO_BYTES), MIDDLE_AUTO_BYTES);
	bytes = Max(bytes, MIN_AUTO_BYTES);
	bytes = Min(bytes, Max(wide, very_wide));
	bytes = Min(bytes, PIPEANN_MAX_PQ_BYTES);
	return Min(bytes, dim);
}

/* Pack a vector's bits, each subvector's into a byte, from the highest bit on. */
static void
PackSubvectors(const PipeannPq *pq, const float *x, uint8 *code)
{
	for (int j = 0; j < pq->nsubvectors; j++)
	{
		int			byte = 0;

		for (int d = 0; d < pq->len[j]; d++)
			byte |= (x[pq->start[j] + d] != 0) << (7 - d);
		code[j] = (uint8) byte;
	}
}

/*
 * Encode x[n][dim], to codes + i * code_stride, and set errors[n]: the squared distance
 * of each code from its vector. Faster than one by one for two vectors or more.
 */
void
PipeannPqEncodeMany(const PipeannPq *pq, const float *x, int n, uint8 *codes,
					Size code_stride, float *errors)
{
	float		distances[ENCODE_BLOCK];

	memset(errors, 0, n * sizeof(float));
	for (int i = 0; pq->bits && i < n; i++)
		PackSubvectors(pq, x + (Size) i * pq->dim, codes + i * code_stride);
	for (int i = 0; !pq->bits && i < n; i += ENCODE_BLOCK)
		for (int j = 0; j < pq->nsubvectors; j++)
		{
			int			count = Min(n - i, ENCODE_BLOCK);
			PipeannNearest out = {.codes = codes + i * code_stride + j,
			.code_stride = code_stride,.distances = distances};

			PipeannKernel->centroid_nearest(x + (Size) i * pq->dim +
											pq->start[j], pq->dim, count,
											pq->centroids + pq->offset[j],
											pq->len[j], &out);
			for (int k = 0; k < count; k++)
				errors[i + k] += distances[k];
		}
}

/*
 * The centroids one after the other, by_code[subvector][256][len], for
 * PipeannPqDecodeFrom(): subvector j's begin at pq->offset[j], as in pq->centroids.
 */
void
PipeannPqByCode(const PipeannPq *pq, float *by_code)
{
	for (int j = 0; j < pq->nsubvectors; j++)
		for (int d = 0; d < pq->len[j]; d++)
			for (int i = 0; i < PIPEANN_CENTROIDS; i++)
				by_code[pq->offset[j] + i * pq->len[j] + d] =
					pq->centroids[pq->offset[j] + d * PIPEANN_CENTROIDS + i];
}

/*
 * Decode a code into x[dim]: this reads a cache line for each subvector, not for each
 * element. Copies of the usual lengths are short enough for many cache misses to overlap.
 */
void
PipeannPqDecodeFrom(const PipeannPq *pq, const float *by_code,
					const uint8 *code, float *x)
{
	for (int j = 0; j < pq->nsubvectors; j++)
	{
		int			len = pq->len[j];
		const float *centroid = by_code + pq->offset[j] + code[j] * len;
		float	   *to = x + pq->start[j];

		if (len == 8)
			memcpy(to, centroid, 8 * sizeof(float));
		else if (len == 4)
			memcpy(to, centroid, 4 * sizeof(float));
		else if (len == 2)
			memcpy(to, centroid, 2 * sizeof(float));
		else
			for (int d = 0; d < len; d++)
				to[d] = centroid[d];
	}
}

/* Decode a code into x[dim]. */
void
PipeannPqDecode(const PipeannPq *pq, const uint8 *code, float *x)
{
	for (int j = 0; j < pq->nsubvectors; j++)
	{
		const float *centroids = pq->centroids + pq->offset[j] + code[j];

		for (int d = 0; d < pq->len[j]; d++)
			x[pq->start[j] + d] = centroids[(Size) d * PIPEANN_CENTROIDS];
	}
}

/* The Jaccard distance near which a table is exact. */
#define JACCARD_NEAR 0.5f

/* Rounding may lose this part of a subvector's variance; codes lose a tenth of it or more. */
#define MOST_ROUNDING 1e-5

/*
 * Round all centroids to halves[dim * 256]. False if that loses too much of
 * what distinguishes a subvector's centroids.
 */
bool
PipeannPqHalves(const PipeannPq *pq, uint16 *halves)
{
	for (int j = 0; j < pq->nsubvectors; j++)
	{
		double		lost = 0;
		double		spread = 0;

		for (int d = 0; d < pq->len[j]; d++)
		{
			Size		at = pq->offset[j] + (Size) d * PIPEANN_CENTROIDS;
			const float *row = pq->centroids + at;
			float		back[PIPEANN_CENTROIDS];
			double		mean = 0;

			PipeannKernel->to_half(row, PIPEANN_CENTROIDS, halves + at);
			PipeannKernel->to_float[PIPEANN_FLOAT2] (halves + at, PIPEANN_CENTROIDS,
													 back);
			for (int k = 0; k < PIPEANN_CENTROIDS; k++)
				mean += row[k] / (double) PIPEANN_CENTROIDS;
			for (int k = 0; k < PIPEANN_CENTROIDS; k++)
			{
				lost += ((double) row[k] - back[k]) * ((double) row[k] - back[k]);
				spread += (row[k] - mean) * (row[k] - mean);
			}
		}
		if (!(lost <= spread * MOST_ROUNDING))
			return false;
	}
	return true;
}

/*
 * Compute the table of query q[dim], table[nsubvectors][256], from which PipeannPqScan() adds
 * up order keys (search/search.h) of q and codes. For cosine, the table of which is that of L2,
 * q and the encoded vectors must be normalised. The table of bits is the query's code.
 */
void
PipeannPqTable(const PipeannPq *pq, PipeannMetric metric, const float *q,
			   float *table)
{
	float		ones = 0;

	if (pq->bits)
	{
		PackSubvectors(pq, q, (uint8 *) table);
		return;
	}
	for (int d = 0; metric == PIPEANN_JACCARD && d < pq->dim; d++)
		ones += q[d];
	for (int j = 0; j < pq->nsubvectors; j++)
	{
		const float *x = q + pq->start[j];
		const float *centroids = pq->centroids + pq->offset[j];
		float	   *row = table + (Size) j * PIPEANN_CENTROIDS;

		if (metric == PIPEANN_IP)
			PipeannKernel->centroid_dot(x, centroids, pq->len[j], row);
		else if (metric == PIPEANN_L1)
			PipeannKernel->centroid_l1(x, centroids, pq->len[j], row);
		else if (pq->halves != NULL)
			PipeannKernel->half_centroid_l2(x, pq->halves + pq->offset[j],
											pq->len[j], row);
		else
			PipeannKernel->centroid_l2(x, centroids, pq->len[j], row);
		if (metric == PIPEANN_JACCARD)
		{
			const float near = JACCARD_NEAR;
			const float *part = q + pq->start[j];
			float		scale = (2 - near) / (2 * Max(ones, 1));
			float		own = 0;
			float		common[PIPEANN_CENTROIDS];

			/*
			 * Jaccard distance is (missing + extra) / (ones of q + extra), where missing
			 * are the ones of q that x lacks, and extra those that only x has. It is no sum
			 * over subvectors, but near a distance of J it grows with missing in proportion
			 * to 1, and with extra to 1 - J. row has squared distances. By a subvector's
			 * inner products, missing is the query's ones less these.
			 */
			PipeannKernel->centroid_dot(part, pq->centroids + pq->offset[j],
										pq->len[j], common);
			for (int d = 0; d < pq->len[j]; d++)
				own += part[d];
			for (int i = 0; i < PIPEANN_CENTROIDS; i++)
				row[i] = (near * near / 2) / pq->nsubvectors +
					scale * ((1 - near) * row[i] + near * (own + common[i]));
		}
	}
}

/* ---------- training ---------- */

/*
 * Each subvector is clustered by itself: k-means++ seeding (Arthur and
 * Vassilvitskii, SODA 2007) on a part of the samples, then Lloyd's iterations
 * on all of them. The results depend on the seed, the samples, and the
 * rounding of the kernels in use; not on the order of the subvectors.
 */

#define MAX_ITERATIONS 12

/*
 * With this many dimensions training would take as long as building the graph. So such vectors
 * get two iterations on one of PART samples, two on twice as many, and so on, and one on all:
 * codes err by 1 % more than after twelve iterations on all, in a fifth of the time.
 */
#define WIDE_DIM 512
#define PART 4
#define PART_ITERATIONS 2

/* Stop when an iteration reduces the error by less than this part. */
#define MIN_IMPROVEMENT 0.002

/* Samples for seeding, in blocks of 256; seeding is sequential work. */
#define MAX_SEED_BLOCKS 16

/* Samples between two checks for interrupts. */
#define INTERRUPT_SAMPLES 256

/* The clustering of one subvector. */
typedef struct Clustering
{
	uint32		n;				/* samples */
	uint32		stride;			/* of samples, so that the first are evenly spaced */
	int			len;			/* dimensions of the subvector */
	float	   *samples;		/* [n][len] */
	float	   *distance;		/* [n] squared, to the nearest centroid */
	double	   *sum;			/* [256][len] of a centroid's samples */
	uint32		count[PIPEANN_CENTROIDS];	/* of a centroid's samples */
	float	   *seeds;			/* [MAX_SEED_BLOCKS][len][256] */
	uint32		seed_samples[MAX_SEED_BLOCKS * PIPEANN_CENTROIDS];
	float	   *centroids;		/* [len][256], the result */
	uint64		random;			/* state of the generator */
} Clustering;

/* Put a sample at number k of a block of 256 centroids or seeds. */
static void
PutSample(const Clustering *c, float *block, int k, uint32 sample)
{
	for (int d = 0; d < c->len; d++)
		block[(Size) d * PIPEANN_CENTROIDS + k] =
			c->samples[(Size) sample * c->len + d];
}

/*
 * Choose samples for seeding, a random one from each of equal parts of the
 * samples, so that none is chosen twice. They are stored like centroids, so
 * that one kernel call measures the distances from a seed to a block of 256.
 * Returns the number of blocks.
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

		c->seed_samples[i] = pick;
		PutSample(c, c->seeds + (Size) (i / PIPEANN_CENTROIDS) * c->len *
				  PIPEANN_CENTROIDS, i % PIPEANN_CENTROIDS, pick);
	}
	return nblocks;
}

/*
 * Update nearest[], the seeds' distances to the nearest centroid, with those
 * to x, the newest centroid. Returns the sum of nearest[].
 */
static double
LowerSeedDistances(Clustering *c, const float *x, int nblocks, float *nearest)
{
	double		total = 0.0;

	for (int b = 0; b < nblocks; b++)
	{
		float		distance[PIPEANN_CENTROIDS];
		float	   *row = nearest + b * PIPEANN_CENTROIDS;

		PipeannKernel->centroid_l2(x,
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
	/* uniform in [0, 1), of the total */
	double		rest = (double) (PipeannRandomNext(&c->random) >> 11) *
		(1.0 / 9007199254740992.0) * total;

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
	PutSample(c, c->centroids, k, farthest);
}

static void
Iterate(Clustering *c, int most)
{
	double		last = 0.0;

	for (int i = 0; i < most; i++)
	{
		double		error = AssignSamples(c);

		/* move the centroids to the means of their samples */
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
		if (i > 0 && !(error < last * (1.0 - MIN_IMPROVEMENT)))
			break;
		last = error;
	}
}

/* Cluster one subvector, after its samples were gathered. */
static void
ClusterSubvector(Clustering *c)
{
	uint32		n = c->n;
	float		nearest[MAX_SEED_BLOCKS * PIPEANN_CENTROIDS];
	int			nblocks = ChooseSeeds(c);
	int			nseeds = nblocks * PIPEANN_CENTROIDS;
	int			pick = (int) (PipeannRandomNext(&c->random) % nseeds);

	/* k-means++: each centroid is a sample far from those chosen before it */
	for (int i = 0; i < nseeds; i++)
		nearest[i] = __builtin_inff();
	for (int k = 0; k < PIPEANN_CENTROIDS; k++)
	{
		uint32		sample = c->seed_samples[pick];
		double		total;

		CHECK_FOR_INTERRUPTS();
		PutSample(c, c->centroids, k, sample);
		total = LowerSeedDistances(c, c->samples + (Size) sample * c->len,
								   nblocks, nearest);
		pick = PickSeed(c, nearest, nseeds, total);
	}
	for (uint32 part = c->stride; part > 1; part /= 2)
	{
		c->n = n / part;
		Iterate(c, PART_ITERATIONS);
	}
	c->n = n;
	Iterate(c, c->stride > 1 ? 1 : MAX_ITERATIONS);
}

/*
 * Train a subvector's part of centroids[dim * 256] on samples[n][dim] by
 * Lloyd's iterations. Deterministic for a given seed. n must be at least 1; if
 * it is less than 256, centroids repeat samples.
 *
 * Takes about 4 * n * (dim / nsubvectors + 1) bytes of working memory.
 */
static void
TrainSubvector(const PipeannPq *layout, int subvector, const float *samples,
			   uint32 n, uint64 seed, float *centroids)
{
	Size		row = mul_size(layout->len[subvector], sizeof(float));
	Clustering	c;
	uint32		run;

	Assert(n >= 1);
	c.stride = layout->dim >= WIDE_DIM && n > PART * PIPEANN_CENTROIDS ?
		PART : 1;
	c.n = n / c.stride * c.stride;
	c.len = layout->len[subvector];
	c.centroids = centroids + layout->offset[subvector];
	c.random = seed ^ ((uint64) (subvector + 1) << 32);
	c.samples = PipeannAlloc(mul_size(row, n));
	c.distance = PipeannAlloc(mul_size(sizeof(float), n));
	c.sum = PipeannAlloc(mul_size(sizeof(double) * PIPEANN_CENTROIDS, c.len));
	c.seeds = PipeannAlloc(mul_size(row, MAX_SEED_BLOCKS * PIPEANN_CENTROIDS));
	/*
	 * copy a subvector's dimensions from the samples: every stride-th, then
	 * the ones after these, and so on
	 */
	run = c.n / c.stride;
	for (uint32 i = 0; i < c.n; i++)
	{
		Size		from = (Size) (i % run) * c.stride + i / run;

		memcpy(c.samples + (Size) i * c.len,
			   samples + from * layout->dim + layout->start[subvector], sizeof(float) * c.len);
		if (i % INTERRUPT_SAMPLES == 0)
			CHECK_FOR_INTERRUPTS();
	}

	/* too few samples to cluster: use them in turn as centroids */
	if (n <= PIPEANN_CENTROIDS)
		for (int k = 0; k < PIPEANN_CENTROIDS; k++)
			PutSample(&c, c.centroids, k, k % n);
	else
		ClusterSubvector(&c);

	pfree(c.seeds);
	pfree(c.sum);
	pfree(c.distance);
	pfree(c.samples);
}

/*
 * Train centroids[dim * 256], which the team shares; the layout's own are ignored. Those of
 * a layout of bits are all bit patterns of a subvector. All members call.
 */
void
PipeannPqTrain(PipeannTeam *team, const PipeannPq *layout, const float *samples,
			   uint32 n, uint64 seed, float *centroids)
{
	PipeannTeamEach(team, j, layout->nsubvectors, 1)
	{
		if (!layout->bits)
			TrainSubvector(layout, (int) j, samples, n, seed, centroids);
		for (int d = 0; layout->bits && d < layout->len[j]; d++)
			for (int i = 0; i < PIPEANN_CENTROIDS; i++)
				centroids[layout->offset[j] + d * PIPEANN_CENTROIDS + i] =
					(float) (i >> (7 - d) & 1);
	}
}
