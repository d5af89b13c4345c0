/*
 * bytes.h
 *		Many or wide centroids as bytes, to see which of them may be the nearest of all.
 *
 * Where they fit no cache of the processor, reading them takes longer than comparing
 * them. As bytes they are a fourth. It is known how far each one is from
 * its bytes at the most, so that all which may be the nearest are compared as they are.
 * (Computes without a server, for the unit tests.)
 */
#ifndef PIPEANN_CELLS_BYTES_H
#define PIPEANN_CELLS_BYTES_H

#include "base/base.h"

#include <float.h>

/* By more than this part, for each element, no kernel's distance is wrong. */
#define PIPEANN_CELL_ROUNDING (1.0 / (1 << 21))

/* A vector less the mean is bytes times scale, but for an error. */
typedef struct PipeannByteVector
{
	double		scale;
	double		square;			/* of the length of bytes times scale */
	double		error;			/* no more than this, in length */
} PipeannByteVector;

typedef struct PipeannByteCentroids
{
	int			n;
	int			elements;
	const float *centroids;		/* [n][elements] */
	const struct PipeannKernels *kernels;
	float	   *mean;
	int8	   *bytes;			/* [n][elements] */
	PipeannByteVector *about;	/* [n] */

	/* work space, of a vector and of its distances */
	int16	   *fixed;
	int8	   *x;
	double	   *squares;		/* [n] */
} PipeannByteCentroids;

/* What others may have by a kernel that are, or are as near as, the nearest. */
static inline float
PipeannCellLimit(float least, int elements)
{
	return (float) (least * (1 + PIPEANN_CELL_ROUNDING * (elements + 4)) +
					elements * (double) FLT_MIN);
}

extern PipeannByteCentroids *PipeannByteCentroidsMake(const struct PipeannKernels *kernels,
													  const float *centroids, int n,
													  int elements);

/* Sets distance[] to all squared distances from x[elements], about. */
extern void PipeannByteDistances(const PipeannByteCentroids *c, const float *x,
								 float *distance);

/*
 * Sets distance[] to those, as a kernel computes them, of all that may be the nearest, and
 * to infinity of others; returns the least.
 */
extern float PipeannByteNearest(const PipeannByteCentroids *c, const float *x,
								float *distance);

#endif							/* PIPEANN_CELLS_BYTES_H */
