/*
 * pq.h
 *		Product quantisation: training, encoding, query tables.
 *
 * A vector of dim dimensions is cut into nchunks runs of consecutive
 * dimensions; each run is replaced by the number of the nearest of 256
 * centroids (Jegou et al., Product Quantization for Nearest Neighbor Search;
 * used as in DiskANN and PipeANN). Byte j of a code belongs to chunk j; chunks
 * are ordered so that any prefix of a code is spread over the whole vector.
 */
#ifndef PIPEANN_PQ_H
#define PIPEANN_PQ_H

#include "base/base.h"

#define PIPEANN_CENTROIDS 256

typedef struct PipeannPq
{
	int			dim;
	int			nchunks;		/* bytes of a code, 1 .. dim */
	const int  *start;			/* [nchunks] first dimension of chunk j */
	const int  *len;			/* [nchunks] dimensions of chunk j, >= 1 */
	const Size *offset;			/* [nchunks] of its centroids in centroids[] */
	const float *centroids;		/* dim * 256 floats; chunk j: [len][256] */
} PipeannPq;

/*
 * The chunk layout is a function of (dim, nchunks) alone, so that only the
 * centroids are stored. Fills the three arrays of nchunks elements.
 */
extern void PipeannPqLayout(int dim, int nchunks, int *start, int *len,
							Size *offset);

/* Number of floats in centroids[]: dim * 256. */
extern Size PipeannPqCentroidCount(int dim);

/* Bytes of a code when the user leaves the choice to us (pq_bytes = 0). */
extern int	PipeannPqAutoBytes(int dim);

/*
 * Called between steps of the training with steps done and in total, so that
 * the caller can report progress. May be NULL.
 */
typedef void (*PipeannPqProgress) (int done, int total, void *arg);

/*
 * Train centroids[dim * 256] on n samples (float[n][dim], row-major) by Lloyd
 * iterations per chunk. Deterministic for a given seed. n may be smaller than
 * 256 (then centroids repeat samples), but at least 1.
 */
extern void PipeannPqTrain(const PipeannPq *layout, const float *samples,
						   uint32 n, uint64 seed, float *centroids,
						   PipeannPqProgress progress, void *arg);

/* Encode x[dim] into code[nchunks]. */
extern void PipeannPqEncode(const PipeannPq *pq, const float *x, uint8 *code);

/* Decode into x[dim]. */
extern void PipeannPqDecode(const PipeannPq *pq, const uint8 *code, float *x);

/*
 * The query's table, float[nchunks][256]: squared L2 distance to the centroid,
 * or for PIPEANN_IP and PIPEANN_COSINE the negative inner product (the caller
 * passes a normalised query for cosine).
 */
extern void PipeannPqTable(const PipeannPq *pq, PipeannMetric metric,
						   const float *q, float *table);

#endif							/* PIPEANN_PQ_H */
