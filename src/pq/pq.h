/*
 * pq.h
 *		Product quantisation: training, encoding, query tables.
 *
 * This room knows vectors as arrays of floats. It must not know an index or a
 * server.
 *
 * A vector of dim dimensions is cut into nchunks runs of consecutive
 * dimensions. Each run is replaced by the number of the nearest of 256
 * centroids (Jegou et al., Product Quantization for Nearest Neighbor Search;
 * used as in DiskANN and PipeANN). Byte j of a code belongs to chunk j; chunks
 * are ordered so that any prefix of a code is spread over the whole vector.
 */
#ifndef PIPEANN_PQ_H
#define PIPEANN_PQ_H

#include "base/base.h"
#include "base/team.h"

#define PIPEANN_CENTROIDS 256

typedef struct PipeannPq
{
	int			dim;
	int			nchunks;		/* bytes of a code, 1 .. dim */
	const int  *start;			/* [nchunks] first dimension of chunk j */
	const int  *len;			/* [nchunks] dimensions of chunk j, >= 1 */
	const Size *offset;			/* [nchunks] of its centroids in centroids[] */
	const float *centroids;		/* dim * 256 floats; chunk j: [len][256] */
	uint64		key;			/* the same of equal centroids, or 0 */
} PipeannPq;

/*
 * Sets the arrays start, len, offset[nchunks]. They depend on dim and nchunks
 * alone, so only the centroids are stored.
 */
extern void PipeannPqLayout(int dim, int nchunks, int *start, int *len,
							Size *offset);

/* A quantiser without centroids, in memory of the present context. */
extern PipeannPq PipeannPqNew(int dim, int nchunks);

/* The number of floats in centroids[]: dim * 256. */
extern Size PipeannPqCentroidCount(int dim);

/* The bytes of a code for pq_bytes = 0. */
extern int	PipeannPqAutoBytes(int dim);

/*
 * Train a chunk's part of centroids[dim * 256] on samples[n][dim] by Lloyd's
 * iterations. Deterministic for a given seed. n must be at least 1; if it is
 * less than 256, centroids repeat samples.
 */
extern void PipeannPqTrainChunk(const PipeannPq *layout, int chunk,
								const float *samples, uint32 n, uint64 seed,
								float *centroids);

/* Train all chunks. All members call. */
extern void PipeannPqTrain(PipeannTeam *team, const PipeannPq *layout,
						   const float *samples, uint32 n, uint64 seed,
						   float *centroids);

/* Encode x[dim] into code[nchunks]. */
extern void PipeannPqEncode(const PipeannPq *pq, const float *x, uint8 *code);

/*
 * Encode x[n][dim], to codes + i * code_stride. Takes less time than one
 * by one, from two vectors on.
 */
extern void PipeannPqEncodeMany(const PipeannPq *pq, const float *x, int n,
								uint8 *codes, Size code_stride);

/* Decode a code into x[dim]. */
extern void PipeannPqDecode(const PipeannPq *pq, const uint8 *code, float *x);

/*
 * Compute the table of query q[dim], table[nchunks][256]: parts of the order key
 * (search/search.h) of q and a code. For cosine q, and what codes stand for, must be
 * normalised.
 */
extern void PipeannPqTable(const PipeannPq *pq, PipeannMetric metric,
						   const float *q, float *table);

/*
 * In memory codes stand in blocks of so many: first those of the vectors, then the
 * first bytes of all attribute codes of the block, the second bytes, and so on. So
 * one byte of all nodes can be gone through without a look at others.
 */
#define PIPEANN_CODE_BLOCK_SHIFT 10
#define PIPEANN_CODE_BLOCK (1U << PIPEANN_CODE_BLOCK_SHIFT)

/* Where a run of codes has that of a vector; runs begin with a block. */
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

#endif							/* PIPEANN_PQ_H */
