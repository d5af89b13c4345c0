/*
 * distance.h
 *		SIMD distance kernels and their choice at run time.
 *
 * This room knows arrays of elements and the processor. It must not know what
 * the vectors are for.
 *
 * There is one portable binary: each instruction set has a file of its own,
 * compiled with target attributes, and PipeannKernelsInit() picks the best set
 * that this processor has. Every set computes the same as the scalar one,
 * except for rounding, as it adds floats in another order.
 */
#ifndef PIPEANN_KERNEL_H
#define PIPEANN_KERNEL_H

#include "base/base.h"

/* Distance between a query (float[dim]) and a stored vector of dim elements. */
typedef float (*PipeannQueryFn) (const float *q, const void *v, int dim);

/* Distance between two stored vectors of dim elements of the same storage. */
typedef float (*PipeannPairFn) (const void *a, const void *b, int dim);

typedef struct PipeannKernels
{
	const char *name;			/* "scalar", "avx2", "avx512", "neon" */

	/* Squared L2 and inner product, indexed by PipeannStorage. */
	PipeannQueryFn l2[PIPEANN_NUM_STORAGE];
	PipeannQueryFn dot[PIPEANN_NUM_STORAGE];
	PipeannPairFn l2_pair[PIPEANN_NUM_STORAGE];
	PipeannPairFn dot_pair[PIPEANN_NUM_STORAGE];

	/*
	 * Code distances: out[i] = sum over c < nchunks of
	 * table[c * 256 + codes[i][c]], for i < n. The kernel prefetches ahead;
	 * codes[i] points to at least nchunks readable bytes (no alignment, no
	 * slack after them).
	 */
	void		(*pq_scan) (const float *table, int nchunks,
							const uint8 *const *codes, int n, float *out);

	/*
	 * A row of a distance table, or the distances of an encoder: for each of
	 * the 256 centroids of a chunk, out[k] = sum over d < len of
	 * (x[d] - centroids[d * 256 + k])^2, or for dot the negative sum of
	 * products. centroids is transposed: [len][256].
	 */
	void		(*centroid_l2) (const float *x, const float *centroids, int len,
								float *out);
	void		(*centroid_dot) (const float *x, const float *centroids,
								 int len, float *out);
} PipeannKernels;

/* The set in use; never NULL (scalar until PipeannKernelsInit() has run). */
extern const PipeannKernels *PipeannKernel;

extern const PipeannKernels PipeannKernelsScalar;
#if defined(__x86_64__)
extern const PipeannKernels PipeannKernelsAvx2;
extern float PipeannAvx2L2PairFloat2(const void *a, const void *b, int dim);
extern float PipeannAvx2DotPairFloat2(const void *a, const void *b, int dim);
extern bool PipeannCpuHasAvx2(void);
extern const PipeannKernels PipeannKernelsAvx512;
extern bool PipeannCpuHasAvx512(void);
#endif
#if defined(__aarch64__)
extern const PipeannKernels PipeannKernelsNeon;
#endif

/* Set PipeannKernel to the best kernels of this processor. Idempotent. */
extern void PipeannKernelsInit(void);

/*
 * Conversion between float and half precision (IEEE 754 binary16), rounding to
 * nearest, ties to even; overflow gives infinity. Portable, and not fast.
 */
extern uint16 PipeannFloatToHalf(float f);
extern float PipeannHalfToFloat(uint16 h);

/*
 * Convert elements: src[dim] in storage to dst[dim], and back. To integers,
 * rounds and clamps to their range.
 */
extern void PipeannVectorToFloat(const void *src, PipeannStorage storage,
								 int dim, float *dst);
extern void PipeannVectorFromFloat(const float *src, PipeannStorage storage,
								   int dim, void *dst);

/* Whether the storage holds every element of src[dim] exactly. */
extern bool PipeannVectorFits(const float *src, PipeannStorage storage,
							  int dim);

#endif							/* PIPEANN_KERNEL_H */
