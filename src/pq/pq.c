/*
 * pq.c
 *		Product quantisation: layout of a code, encoding, query tables.
 *
 * Jegou, Douze, Schmid: Product Quantization for Nearest Neighbor Search,
 * IEEE TPAMI 33(1), 2011. Training is in train.c.
 */
#include "pq/pq.h"

#include "distance/distance.h"

/*
 * Bounds of the automatic code size, in bytes; of very wide vectors a byte stands for
 * eight dimensions (docs/decisions.md, "Codes of wide vectors").
 */
#define MIN_AUTO_BYTES 16
#define MAX_AUTO_BYTES 96
#define WIDE_DIMENSIONS 8

/*
 * Vectors that are encoded subvector by subvector: enough of them that the
 * centroids are brought to the first-level cache for many, and no more than
 * fit the second-level one.
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
 * Sets the arrays start, len, offset[nsubvectors]. They depend on dim and
 * nsubvectors alone, so only the centroids are stored.
 *
 * Runs are cut at multiples of dim / nsubvectors, so their lengths differ by
 * one at most. Byte j of a code belongs to run number j in bit-reversed order
 * (of the numbers below nsubvectors): the first two bytes are from the two
 * halves of the vector, the first four from its quarters, and so on.
 *
 * Indexes on disk depend on this function: never change its result.
 */
static void
CutRuns(int dim, int nsubvectors, int *start, int *len, Size *offset)
{
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
}

/* A quantiser without centroids, in memory of the present context. */
PipeannPq
PipeannPqNew(int dim, int nsubvectors)
{
	int		   *start = PipeannAlloc(nsubvectors * sizeof(int));
	int		   *len = PipeannAlloc(nsubvectors * sizeof(int));
	Size	   *offset = PipeannAlloc(nsubvectors * sizeof(Size));

	CutRuns(dim, nsubvectors, start, len, offset);
	return (PipeannPq) {
		.dim = dim,.nsubvectors = nsubvectors,.start = start,.len = len,
		.offset = offset
	};
}

/*
 * The bytes of a code for pq_bytes = 0.
 *
 * Half a byte for each dimension, or of wide vectors an eighth of one; as a multiple of 8
 * and within bounds.
 */
int
PipeannPqAutoBytes(int dim)
{
	int			bytes = ((dim + 1) / 2 + 7) / 8 * 8;
	int			wide = dim / WIDE_DIMENSIONS / 8 * 8;

	bytes = Max(bytes, MIN_AUTO_BYTES);
	bytes = Min(bytes, Max(MAX_AUTO_BYTES, wide));
	bytes = Min(bytes, PIPEANN_MAX_PQ_BYTES);
	return Min(bytes, dim);
}

/*
 * Encode x[n][dim], to codes + i * code_stride. Takes less time than one
 * by one, from two vectors on.
 */
void
PipeannPqEncodeMany(const PipeannPq *pq, const float *x, int n, uint8 *codes,
					Size code_stride)
{
	for (int i = 0; i < n; i += ENCODE_BLOCK)
		for (int j = 0; j < pq->nsubvectors; j++)
		{
			PipeannNearest out = {.codes = codes + i * code_stride + j,
			.code_stride = code_stride};

			PipeannKernel->centroid_nearest(x + (Size) i * pq->dim +
											pq->start[j], pq->dim,
											Min(n - i, ENCODE_BLOCK),
											pq->centroids + pq->offset[j],
											pq->len[j], &out);
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

/*
 * Of normalised vectors x and q, -q * x is half of the squared distance, less 1. Of
 * a code's vector c in the place of x the two are not the same: -q * c errs by what
 * q * (x - c) is, which has a part that x alone brings, however near q is. The
 * squared distance errs by (q - x) * (x - c) and half of the code's own error, so the
 * less the nearer. Among vectors in like directions that is all that tells them apart.
 */
static void
MakeCosine(float *row, int nsubvectors)
{
	for (int i = 0; i < PIPEANN_CENTROIDS; i++)
		row[i] = 0.5f * row[i] - 1.0f / nsubvectors;
}

/*
 * Compute the table of query q[dim], table[nsubvectors][256]: parts of the
 * order key (search/search.h) of q and a code. For cosine q, and what codes
 * stand for, must be normalised.
 */
void
PipeannPqTable(const PipeannPq *pq, PipeannMetric metric, const float *q,
			   float *table)
{
	for (int j = 0; j < pq->nsubvectors; j++)
	{
		const float *x = q + pq->start[j];
		const float *centroids = pq->centroids + pq->offset[j];
		float	   *row = table + (Size) j * PIPEANN_CENTROIDS;

		if (metric == PIPEANN_IP)
			PipeannKernel->centroid_dot(x, centroids, pq->len[j], row);
		else
			PipeannKernel->centroid_l2(x, centroids, pq->len[j], row);
		if (metric == PIPEANN_COSINE)
			MakeCosine(row, pq->nsubvectors);
	}
}
