/*
 * train.c
 *		Centroids of cells: k-means of a sample.
 *
 * Lloyd's iterations, as codebooks have them (src/pq/pq.c), but over blocks of 256
 * centroids: seeds are samples, as k-means++ finds no better ones for this many.
 */
#include "postgres.h"

#include "base/random.h"
#include "cells/cells.h"
#include "core/core.h"
#include "distance/distance.h"
#include "miscadmin.h"

#define BLOCK PIPEANN_CELL_BLOCK

/* The most iterations; they end when one lowers the error by less than this part. */
#define ITERATIONS 12
#define MIN_IMPROVEMENT 0.002

/* Samples that are compared with a block at once. */
#define TOGETHER 256

typedef struct Training
{
	PipeannCells *cells;
	int			elements;
	const float *samples;		/* [n][elements] */
	uint32		n;
	uint16	   *nearest;		/* [n] cell of each */
	float	   *distance;		/* [n] from its centroid */
} Training;

static void
PutCentroid(const Training *t, int cell, uint32 sample)
{
	float	   *centroid = PipeannCellCentroid(t->cells, cell);

	for (int d = 0; d < t->elements; d++)
		centroid[(Size) d * BLOCK] = t->samples[(Size) sample * t->elements + d];
}

/* Seeds: one sample from each of n equal parts of the samples. */
static void
Seed(const Training *t, uint64 seed)
{
	for (int i = 0; i < t->cells->n; i++)
	{
		uint32		from = (uint64) t->n * i / t->cells->n;
		uint32		to = (uint64) t->n * (i + 1) / t->cells->n;

		PutCentroid(t, i, from + PipeannRandomBelow(&seed, to - from));
	}
}

/* Find the nearest cell of each sample; returns the sum of squared distances. */
static double
Assign(Training *t)
{
	const PipeannCells *cells = t->cells;
	double		error = 0;
	uint8		code[TOGETHER];
	float		distance[TOGETHER];
	PipeannNearest out = {code, 1, distance};

	memset(cells->rows, 0, cells->n * sizeof(uint32));
	for (uint32 i = 0; i < t->n; i += TOGETHER)
	{
		int			count = Min(t->n - i, TOGETHER);

		for (int b = 0; b < PipeannCellsBlocks(cells); b++)
		{
			CHECK_FOR_INTERRUPTS();
			pipeann_core->kernels->centroid_nearest(t->samples + (Size) i * t->elements,
											t->elements, count,
											PipeannCellCentroid(cells, b * BLOCK),
											t->elements, &out);
			for (int k = 0; k < count; k++)
				if (b == 0 || distance[k] < t->distance[i + k])
				{
					/* (a sample may be as far as the centroids that a block lacks) */
					t->nearest[i + k] = Min(b * BLOCK + code[k], cells->n - 1);
					t->distance[i + k] = distance[k];
				}
		}
		for (int k = 0; k < count; k++)
		{
			cells->rows[t->nearest[i + k]]++;
			error += t->distance[i + k];
		}
	}
	return error;
}

/* An empty cell gets the sample that is farthest from its centroid. */
static void
Refill(Training *t, int cell)
{
	uint32		farthest = 0;

	for (uint32 i = 1; i < t->n; i++)
		if (t->distance[i] > t->distance[farthest])
			farthest = i;
	t->distance[farthest] = 0;
	PutCentroid(t, cell, farthest);
}

/* Move centroids to the means of their samples. */
static void
Move(Training *t)
{
	const PipeannCells *cells = t->cells;
	double	   *sum = palloc_extended(mul_size(mul_size(cells->n, t->elements), sizeof(double)),
									  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);

	for (uint32 i = 0; i < t->n; i++)
	{
		double	   *of = sum + (Size) t->nearest[i] * t->elements;

		for (int d = 0; d < t->elements; d++)
			of[d] += t->samples[(Size) i * t->elements + d];
	}
	for (int i = 0; i < cells->n; i++)
	{
		float	   *centroid = PipeannCellCentroid(cells, i);

		CHECK_FOR_INTERRUPTS();
		if (cells->rows[i] == 0)
			Refill(t, i);
		else
			for (int d = 0; d < t->elements; d++)
				centroid[(Size) d * BLOCK] =
					(float) (sum[(Size) i * t->elements + d] / cells->rows[i]);
	}
	pfree(sum);
}

/*
 * Make cells from samples[n][PipeannCellElements()], n at least the number of cells, and
 * count the samples of each. Returns the centroids as they are stored.
 */
char *
PipeannCellsTrain(PipeannCells *cells, const float *samples, uint32 n, uint64 seed)
{
	Training	t = {cells, PipeannCellElements(cells), samples, n};
	double		last = 0;
	char	   *centroids;

	t.nearest = palloc_extended(mul_size(n, sizeof(uint16)), MCXT_ALLOC_HUGE);
	t.distance = palloc_extended(mul_size(n, sizeof(float)), MCXT_ALLOC_HUGE);
	Seed(&t, seed);
	for (int i = 0; i < ITERATIONS; i++)
	{
		double		error = Assign(&t);

		Move(&t);
		if (i > 0 && !(error < last * (1 - MIN_IMPROVEMENT)))
			break;
		last = error;
	}
	centroids = PipeannCellsRound(cells);
	(void) Assign(&t);
	pfree(t.nearest);
	pfree(t.distance);
	return centroids;
}
