/*
 * bytes.c
 *		Which of wide centroids may be the nearest, by their bytes.
 *
 * By the triangle inequality a distance between two vectors differs from that between
 * their bytes by the sum of both errors at the most. Errors are measured, in double, so
 * how a vector came to its bytes does not matter.
 */
#include "cells/bytes.h"

#include <math.h>

#include "distance/distance.h"

#define MOST 127.0

/* What arithmetic in double may be wrong by, as a part; far more than it is. */
#define DOUBLE_ROUNDING 1e-9

/*
 * What a squared distance between bytes may be wrong by, as a part of both squared
 * lengths: the kernel gives the product as a float.
 */
#define PRODUCT_ROUNDING (1.0 / (1 << 20))

static void
ToBytes(const PipeannByteCentroids *c, const float *x, int8 *bytes,
		PipeannByteVector *about)
{
	double		most = 0;
	double		error = 0;
	int64		square = 0;

	for (int d = 0; d < c->elements; d++)
		most = Max(most, fabs((double) x[d] - c->mean[d]));
	about->scale = most / MOST;
	/* what is too small for a float's scale is nothing but error */
	if (about->scale < FLT_MIN)
	{
		about->scale = 0;
		memset(c->fixed, 0, c->elements * sizeof(int16));
	}
	else
		c->kernels->to_fixed(x, c->mean, (float) (1 / about->scale), c->elements, c->fixed);
	for (int d = 0; d < c->elements; d++)
		bytes[d] = (int8) Max(Min(c->fixed[d], (int) MOST), (int) -MOST);
	for (int d = 0; d < c->elements; d++)
	{
		double		left = (double) x[d] - c->mean[d] - about->scale * bytes[d];

		error += left * left;
		square += bytes[d] * bytes[d];
	}
	about->square = about->scale * about->scale * square;
	about->error = sqrt(error) * (1 + DOUBLE_ROUNDING) + DOUBLE_ROUNDING * most;
}

PipeannByteCentroids *
PipeannByteCentroidsMake(const PipeannKernels *kernels, const float *centroids, int n,
						 int elements)
{
	PipeannByteCentroids *c = palloc(sizeof(PipeannByteCentroids));

	c->n = n;
	c->elements = elements;
	c->centroids = centroids;
	c->kernels = kernels;
	c->mean = palloc(elements * sizeof(float));
	c->bytes = PipeannAlloc((Size) n * elements);
	c->about = palloc(n * sizeof(PipeannByteVector));
	c->fixed = palloc(elements * sizeof(int16));
	c->x = palloc(elements);
	c->squares = palloc(n * sizeof(double));
	for (int d = 0; d < elements; d++)
	{
		double		sum = 0;

		for (int i = 0; i < n; i++)
			sum += centroids[(Size) i * elements + d];
		c->mean[d] = (float) (sum / n);
	}
	for (int i = 0; i < n; i++)
		ToBytes(c, centroids + (Size) i * elements, c->bytes + (Size) i * elements,
				&c->about[i]);
	return c;
}

/* Set squares[] to the squared distances between bytes. */
static void
Compare(const PipeannByteCentroids *c, const float *x, PipeannByteVector *about)
{
	ToBytes(c, x, c->x, about);
	for (int i = 0; i < c->n; i++)
	{
		double		product = c->kernels->dot_pair[PIPEANN_INT8]
			(c->x, c->bytes + (Size) i * c->elements, c->elements);

		c->squares[i] = about->square + c->about[i].square -
			2 * about->scale * c->about[i].scale * product;
	}
}

/* Errors are at right angles to all else, as good as always. */
void
PipeannByteDistances(const PipeannByteCentroids *c, const float *x, float *distance)
{
	PipeannByteVector about;

	Compare(c, x, &about);
	for (int i = 0; i < c->n; i++)
		distance[i] = (float) Max(c->squares[i] + about.error * about.error +
								  c->about[i].error * c->about[i].error, 0);
}

static float
Exact(const PipeannByteCentroids *c, const float *x, int i)
{
	return c->kernels->l2_pair[PIPEANN_FLOAT4] (x, c->centroids + (Size) i * c->elements,
												   c->elements);
}

float
PipeannByteNearest(const PipeannByteCentroids *c, const float *x, float *distance)
{
	PipeannByteVector about;
	int			first = 0;
	float		least;
	double		length;			/* the nearest is no farther */

	Compare(c, x, &about);
	for (int i = 1; i < c->n; i++)
		if (c->squares[i] < c->squares[first])
			first = i;
	least = Exact(c, x, first);
	length = sqrt((double) PipeannCellLimit(least, c->elements));
	for (int i = 0; i < c->n; i++)
	{
		double		most = (length + about.error + c->about[i].error) * (1 + DOUBLE_ROUNDING);

		distance[i] = INFINITY;
		if (c->squares[i] - (about.square + c->about[i].square) * PRODUCT_ROUNDING > most * most)
			continue;
		distance[i] = Exact(c, x, i);
		if (distance[i] < least)
		{
			least = distance[i];
			length = sqrt((double) PipeannCellLimit(least, c->elements));
		}
	}
	return least;
}
