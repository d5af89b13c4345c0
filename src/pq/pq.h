/*
 * pq.h
 *		Product quantisation: training, encoding, query tables.
 *
 * This room knows vectors as arrays of floats. It must not know an index or a
 * server.
 *
 * A vector of dim dimensions is cut into nsubvectors subvectors of consecutive
 * dimensions. Each is replaced by the number of the nearest of 256 centroids
 * (Jegou et al., Product Quantization for Nearest Neighbor Search; used as in
 * DiskANN and PipeANN). Byte j of a code belongs to subvector j; subvectors
 * are ordered so that any prefix of a code is spread over the whole vector.
 */
#ifndef PIPEANN_PQ_H
#define PIPEANN_PQ_H

#include "base/base.h"
#include "base/team.h"
#include "distance/distance.h"

#define PIPEANN_CENTROIDS 256

/* The most bytes of a code. */
#define PIPEANN_MAX_PQ_BYTES 1024

typedef struct PipeannPq
{
	int			dim;
	int			nsubvectors;	/* bytes of a code, 1 .. dim */
	bool		bits;			/* a code is the vector's bits: a centroid for each
								 * pattern of a byte */
	const int  *start;			/* [nsubvectors] its first dimension */
	const int  *len;			/* [nsubvectors] its dimensions, >= 1 */
	const Size *offset;			/* [nsubvectors] of its part of centroids[] */
	const float *centroids;		/* dim * 256 floats; subvector j: [len][256] */
	const uint16 *halves;		/* centroids[] in half precision, or NULL */
} PipeannPq;

/*
 * In memory codes are stored in blocks of this many: first those of the vectors,
 * then the first bytes of all attribute codes of the block, the second bytes, and
 * so on. So one byte of all nodes can be scanned without reading the others.
 */
#define PIPEANN_CODE_BLOCK_SHIFT 10
#define PIPEANN_CODE_BLOCK (1U << PIPEANN_CODE_BLOCK_SHIFT)

/* The offset of a vector's code in an array of codes that begins with a block. */
static inline Size
PipeannCodeOffset(uint32 at, uint32 pq_bytes, uint32 attr_bytes)
{
	return (Size) at * pq_bytes +
		(Size) (at >> PIPEANN_CODE_BLOCK_SHIFT) * PIPEANN_CODE_BLOCK *
		attr_bytes;
}

/* ... and byte number `plane` of an attribute code. */
static inline Size
PipeannAttributeOffset(uint32 at, uint32 pq_bytes, uint32 attr_bytes,
					   uint32 plane)
{
	uint32		in_block = at & (PIPEANN_CODE_BLOCK - 1);

	return PipeannCodeOffset(at - in_block, pq_bytes, attr_bytes) +
		(Size) PIPEANN_CODE_BLOCK * (pq_bytes + plane) + in_block;
}

/* pq.c */
extern PipeannPq PipeannPqNew(PipeannStorage storage, int dim,
							  int nsubvectors);
extern int	PipeannPqAutoBytes(PipeannStorage storage, int dim);
extern void PipeannPqEncodeMany(const PipeannPq *pq, const float *x, int n,
								uint8 *codes, Size code_stride, float *errors);
extern void PipeannPqDecode(const PipeannPq *pq, const uint8 *code, float *x);
extern void PipeannPqByCode(const PipeannPq *pq, float *by_code);
extern void PipeannPqDecodeFrom(const PipeannPq *pq, const float *by_code,
								const uint8 *code, float *x);
extern bool PipeannPqHalves(const PipeannPq *pq, uint16 *halves);
extern void PipeannPqTable(const PipeannPq *pq, PipeannMetric metric,
						   const float *q, float *table);
extern void PipeannPqTrain(PipeannTeam *team, const PipeannPq *layout,
						   const float *samples, uint32 n, uint64 seed,
						   float *centroids);

/*
 * The order key for a sum of table entries, except for bits. For normalised
 * vectors x and q, -q * x is half of the squared distance, minus 1. For a
 * code's vector c in place of x the two differ: the error of -q * c is q * (x
 * - c), a part of which depends on x alone, however near q is. The error of
 * the squared distance is (q - x) * (x - c) and half of the code's own error:
 * it is the smaller the nearer q is. Among vectors in similar directions that
 * makes the difference.
 */
static inline float
PipeannPqKey(PipeannMetric metric, float sum)
{
	return metric == PIPEANN_COSINE ? 0.5f * sum - 1.0f : sum;
}

/* Code distances by a query's table: order keys, exact for bits. */
static inline void
PipeannPqScan(const PipeannPq *pq, PipeannMetric metric, const float *table,
			  const uint8 *const *codes, int n, float *out)
{
	if (pq->bits)
		PipeannKernel->bit_scan(table, pq->nsubvectors, codes, n,
								metric == PIPEANN_JACCARD, out);
	else
	{
		PipeannKernel->pq_scan(table, pq->nsubvectors, codes, n, out);
		for (int i = 0; metric == PIPEANN_COSINE && i < n; i++)
			out[i] = PipeannPqKey(metric, out[i]);
	}
}

/*
 * Computing the table of a wide vector takes as long as reading the centroids:
 * 1.6 MB for 1,536 dimensions, which do not stay in a CPU cache between queries.
 */
#define PIPEANN_HALVES_FROM 512

/* Whether PipeannPqTable() uses centroids in half precision, for which memory is needed. */
static inline bool
PipeannPqHasHalves(PipeannMetric metric, int dim)
{
	return dim >= PIPEANN_HALVES_FROM &&
		(metric == PIPEANN_L2 || metric == PIPEANN_COSINE);
}

/* The number of floats in centroids[]: dim * 256. */
static inline Size
PipeannPqCentroidCount(int dim)
{
	return mul_size(dim, PIPEANN_CENTROIDS);
}

/* Encode x[dim] into code[nsubvectors]; returns the squared distance of both. */
static inline float
PipeannPqEncode(const PipeannPq *pq, const float *x, uint8 *code)
{
	float		error;

	PipeannPqEncodeMany(pq, x, 1, code, pq->nsubvectors, &error);
	return error;
}

#endif							/* PIPEANN_PQ_H */
