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

/*
 * Distance between a query, float[dim], and a stored vector of dim elements. For a
 * quantised vector the query has to be rotated, for one of bits it is bits, and for a
 * sparse one sparse (PipeannQueryFor()).
 */
typedef float (*PipeannQueryFn) (const void *q, const void *v, int dim);

/* Distance between two stored vectors of dim elements of the same storage. */
typedef float (*PipeannPairFn) (const void *a, const void *b, int dim);

/*
 * Stored elements src[dim] as floats. src need not be aligned. Those of a
 * quantised vector are rotated (PipeannVectorToFloat() rotates them back).
 */
typedef void (*PipeannToFloatFn) (const void *src, int dim, float *dst);

/*
 * A tile: inner products of ROWS rows with COLUMNS columns at once. Vectors in
 * tiles have a multiple of PIPEANN_TILE_DIM dimensions (padded with zeros), and
 * elements of at most PIPEANN_FIXED_MAX in size.
 */
#define PIPEANN_TILE_ROWS 12
#define PIPEANN_TILE_COLUMNS 16
#define PIPEANN_TILE_DIM 2
#define PIPEANN_FIXED_MAX 32000

/* int16 numbers of a panel: the columns of a tile, by PipeannTilePanel(). */
#define PIPEANN_PANEL_SIZE(dim) ((Size) (dim) * PIPEANN_TILE_COLUMNS)

/* Where to store the nearest centroids of vectors. */
typedef struct PipeannNearest
{
	uint8	   *codes;			/* the number of vector i: [i * code_stride] */
	Size		code_stride;
	float	   *distances;		/* of vector i: [i]; may be NULL */
} PipeannNearest;

typedef struct PipeannKernels
{
	const char *name;			/* "scalar", "avx2", "avx512", "neon" */

	/*
	 * Squared L2, inner product and L1, indexed by PipeannStorage. L1 is not
	 * for rotated vectors; for bits it is the squared L2.
	 */
	PipeannQueryFn l2[PIPEANN_NUM_STORAGE];
	PipeannQueryFn dot[PIPEANN_NUM_STORAGE];
	PipeannQueryFn l1[PIPEANN_NUM_STORAGE];
	PipeannPairFn l2_pair[PIPEANN_NUM_STORAGE];
	PipeannPairFn dot_pair[PIPEANN_NUM_STORAGE];
	PipeannPairFn l1_pair[PIPEANN_NUM_STORAGE];
	PipeannPairFn jaccard;		/* of bits */

	/*
	 * Code distances: out[i] = sum over c < nsubvectors of
	 * table[c * 256 + codes[i][c]], for i < n. The kernel prefetches ahead;
	 * codes[i] points to at least nsubvectors readable bytes (no alignment, no
	 * slack after them).
	 */
	void		(*pq_scan) (const float *table, int nsubvectors,
							const uint8 *const *codes, int n, float *out);

	/*
	 * The same for codes that are bits, and a query of as many bytes: the number of
	 * bits in which they differ, or that divided by the number of ones that either has.
	 */
	void		(*bit_scan) (const void *query, int bytes,
							 const uint8 *const *codes, int n, bool jaccard,
							 float *out);

	/*
	 * A row of a distance table, or the distances of an encoder: for each of
	 * the 256 centroids of a subvector, out[k] = sum over d < len of
	 * (x[d] - centroids[d * 256 + k])^2, for dot the negative sum of products,
	 * for l1 the sum of the differences' sizes. centroids is transposed, [len][256];
	 * half_centroid_l2 has them in half precision.
	 */
	void		(*centroid_l2) (const float *x, const float *centroids, int len,
								float *out);
	void		(*half_centroid_l2) (const float *x, const uint16 *centroids, int len, float *out);
	void		(*centroid_dot) (const float *x, const float *centroids,
								 int len, float *out);
	void		(*centroid_l1) (const float *x, const float *centroids, int len,
								float *out);

	/*
	 * The nearest of 256 centroids to each of n vectors, x + i * stride, with
	 * its distance as centroid_l2 computes it. The first of several that are
	 * equally near; number 0 if all distances are NaN.
	 */
	void		(*centroid_nearest) (const float *x, Size stride, int n,
									 const float *centroids, int len,
									 const PipeannNearest *out);

	/*
	 * A tile: out[r * 16 + c] = sum over d < dim of rows[r][d] times element d of column c, for
	 * the 12 rows, which need not be aligned nor differ, and the 16 columns of the panel, which
	 * is read fastest from the start of a cache line. Exact, if the sum fits an int32.
	 */
	void		(*dot_tile) (const int16 *const *rows, const int16 *panel,
							 int dim, int32 *out);

	/* The same of bits, 16 in a number: how many differ, or how many ones are common. */
	void		(*bit_tile) (const int16 *const *rows, const int16 *panel,
							 int dim, bool common, int32 *out);

	/*
	 * From a tile's inner products to distances, in place: half of the squared
	 * distance between vectors r and c is tile[r * 16 + c] = row_norms[r] +
	 * column_norms[c] - tile[r * 16 + c], or 0 if that is negative; norms are
	 * halves of squared lengths. Bit c of near[r] is set if it is less than
	 * row_limits[r], or than column_limits[c].
	 */
	void		(*tile_near) (const int32 *row_norms,
							  const int32 *column_norms,
							  const int32 *row_limits,
							  const int32 *column_limits, int32 *tile,
							  uint16 *near);

	/*
	 * Short arrays of 16-bit numbers; n is a multiple of 8 and not 0. Bit i of
	 * equal16() is set if a[i] == value, for i < n <= 64. most16() is the
	 * greatest of a[n].
	 */
	uint64		(*equal16) (const uint16 *a, int n, uint16 value);
	uint16		(*most16) (const uint16 *a, int n);

	/* Clear bit i of mask if bytes[i] is not in a set of bytes; i < n, a multiple of 64. */
	void		(*keep_members) (const uint8 *bytes, int n, const uint8 *set,
								 uint64 *mask);

	/*
	 * The same where the number 256 * high[i] + low[i] is not from .. to, from <= to;
	 * where high[i] alone is 0 it counts as if it were.
	 */
	void		(*keep_range) (const uint8 *high, const uint8 *low, int n,
							   uint16 from, uint16 to, uint64 *mask);

	/* Indexed by PipeannStorage; exact, so all sets give the same. */
	PipeannToFloatFn to_float[PIPEANN_NUM_STORAGE];

	/*
	 * The rotation of x[dim] that precedes scalar quantisation, in place, or back
	 * (common.h); and a rotated vector in numbers of a given width. All sets give the
	 * same.
	 */
	void		(*rotate) (float *x, int dim, bool back);
	void		(*quantize) (const float *x, int bits, int dim, void *dst);

	/*
	 * Fixed-point numbers: out[d] = (x[d] - offset[d]) * scale, rounded to the
	 * nearest (ties to even) and clamped to PIPEANN_FIXED_MAX in size, for d
	 * < dim. All sets give the same. Nothing may be not a number.
	 */
	void		(*to_fixed) (const float *x, const float *offset, float scale,
							 int dim, int16 *out);

	/*
	 * Half precision (IEEE 754 binary16), rounded to the nearest, ties to even;
	 * infinity beyond its range. All sets give the same. out need not be
	 * aligned.
	 */
	void		(*to_half) (const float *x, int dim, void *out);
} PipeannKernels;

/* The set in use; never NULL (scalar until PipeannKernelsInit() has run). */
extern const PipeannKernels *PipeannKernel;

extern const PipeannKernels PipeannKernelsScalar;
#if defined(__x86_64__)
extern const PipeannKernels PipeannKernelsAvx2;
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
 * Make the panel of a tile from ncolumns <= 16 columns of dim elements; those
 * missing are zeros. It is interleaved by pairs of dimensions, as instructions
 * for products of 16-bit numbers need it: element (p * 16 + c) * 2 + i of the
 * panel is element 2 * p + i of column c.
 */
extern void PipeannTilePanel(const int16 *const *columns, int ncolumns,
							 int dim, int16 *panel);

/* Dimensions that vectors may have for scalar quantisation: multiples of 16. */
#define PIPEANN_SQ_MIN_DIM 256
#define PIPEANN_SQ_MAX_DIM 4096

static inline bool
PipeannSqSuits(int dim)
{
	return dim % 16 == 0 && dim >= PIPEANN_SQ_MIN_DIM &&
		dim <= PIPEANN_SQ_MAX_DIM;
}

/*
 * The query of kernels for a storage: query[dim] itself, the sparse one behind
 * it, or another form of it in room[dim]. Rotating has an error of at most 10
 * ulp of the norm, for which PIPEANN_ARITHMETIC_ERROR() has room.
 */
extern const void *PipeannQueryFor(PipeannStorage storage, const float *query,
								   int dim, float *room);

/* Whether that form is in room. */
static inline bool
PipeannQueryIsOther(PipeannStorage storage)
{
	return PipeannSqBits(storage) > 0 || storage == PIPEANN_BITS;
}

/*
 * Convert elements: src[dim] in storage to dst[dim], and back. To integers,
 * rounds and clamps to their range; quantises finite elements. For a sparse
 * vector Unpack() gives the whole vector, and ToFloat() only the projection.
 */
extern void PipeannVectorToFloat(const void *src, PipeannStorage storage,
								 int dim, float *dst);
extern void PipeannVectorUnpack(const void *src, PipeannStorage storage,
								int dim, float *dst);
extern void PipeannVectorFromFloat(const float *src, PipeannStorage storage,
								   int dim, void *dst);

/* Whether the storage represents every element of src[dim] exactly. */
extern bool PipeannVectorFits(const float *src, PipeannStorage storage, int dim);

#endif							/* PIPEANN_KERNEL_H */
