/*
 * cells.c
 *		The cells near a vector.
 *
 * A row's cell decides in which partition it is stored, so it must be the same on
 * every processor and for all time. Kernels add in different orders, so they round
 * differently: they only say which centroids may be the nearest. If these are
 * several, plain C decides, whose steps have the same result everywhere.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "cells/cells.h"
#include "core/core.h"
#include "distance/distance.h"

#define BLOCK PIPEANN_CELL_BLOCK

/* The largest relative error of a kernel's distance, per element. */
#define ROUNDING (1.0 / (1 << 21))

/* The metric of an operator, if vectors have cells by it; or 0. */
PipeannMetric
PipeannCellsMetric(const char *operator)
{
	return strcmp(operator, "<->") == 0 ? PIPEANN_L2 :
		strcmp(operator, "<#>") == 0 ? PIPEANN_IP :
		strcmp(operator, "<=>") == 0 ? PIPEANN_COSINE : 0;
}

const char *
PipeannCellsOperator(const PipeannCells *cells)
{
	return cells->metric == PIPEANN_L2 ? "<->" :
		cells->metric == PIPEANN_IP ? "<#>" : "<=>";
}

int
PipeannCellsBlocks(const PipeannCells *cells)
{
	return (cells->n + BLOCK - 1) / BLOCK;
}

/* Make n cells, whose centroids are not set. */
PipeannCells *
PipeannCellsNew(PipeannMetric metric, int dim, int n)
{
	PipeannCells *cells = palloc0(sizeof(PipeannCells));
	Size		all;

	cells->metric = metric;
	cells->dim = dim;
	cells->n = n;
	all = mul_size(PipeannCellsBlocks(cells) * BLOCK, PipeannCellElements(cells));
	cells->centroids = palloc_extended(mul_size(all, sizeof(float)), MCXT_ALLOC_HUGE);
	for (Size i = 0; i < all; i++)
		cells->centroids[i] = FLT_MAX;
	cells->rows = palloc0(mul_size(n, sizeof(uint32)));
	cells->x = palloc(mul_size(PipeannCellElements(cells), sizeof(float)));
	cells->distance = palloc(mul_size(PipeannCellsBlocks(cells) * BLOCK,
									  sizeof(float)));
	return cells;
}

/* The first element of a cell's centroid; the next one is BLOCK further. */
float *
PipeannCellCentroid(const PipeannCells *cells, int cell)
{
	return cells->centroids + cell % BLOCK +
		(Size) (cell / BLOCK) * BLOCK * PipeannCellElements(cells);
}

/* Copy the centroids, one after the other, to elements[]; or from there. */
void
PipeannCellsCopy(const PipeannCells *cells, float *elements, bool back)
{
	for (int i = 0; i < cells->n; i++)
		for (int d = 0; d < PipeannCellElements(cells); d++, elements++)
		{
			float	   *element = PipeannCellCentroid(cells, i) + (Size) d * BLOCK;

			if (back)
				*element = *elements;
			else
				*elements = *element;
		}
}

/*
 * The embedded vector (src/graph/graph.h), x[PipeannCellElements()]. A product of two
 * floats is exact in double, so it does not matter whether a compiler fuses it with the
 * sum. For inner product a query's length does not matter to the order of rows: it is
 * given that of embedded rows, so that distances are those of a row in its place.
 */
void
PipeannCellsEmbed(const PipeannCells *cells, const float *v, bool is_query,
				  float *x)
{
	double		square = 0;
	double		scale = 1;

	if (cells->metric != PIPEANN_L2)
		for (int d = 0; d < cells->dim; d++)
			square += (double) v[d] * v[d];
	if (cells->metric == PIPEANN_COSINE && square > 0)
		scale = 1 / sqrt(square);
	if (cells->metric == PIPEANN_IP)
	{
		double		left = (double) cells->max_norm * cells->max_norm - square;

		if (is_query && square > 0 && cells->max_norm > 0)
			scale = cells->max_norm / sqrt(square);
		x[cells->dim] = is_query || left <= 0 ? 0 : (float) sqrt(left);
	}
	for (int d = 0; d < cells->dim; d++)
		x[d] = (float) (v[d] * scale);
}

/* Set distance[] to the distances of x from all centroids; returns the least. */
static float
Compare(const PipeannCells *cells, const float *x)
{
	int			elements = PipeannCellElements(cells);
	float		least;

	for (int b = 0; b < PipeannCellsBlocks(cells); b++)
		pipeann_core->kernels->centroid_l2(x, cells->centroids + (Size) b * BLOCK * elements,
								   elements, cells->distance + b * BLOCK);
	least = cells->distance[0];
	for (int i = 1; i < cells->n; i++)
		least = cells->distance[i] < least ? cells->distance[i] : least;
	return least;
}

/* The squared distance, by steps that have the same result everywhere. */
double
PipeannCellDistance(const PipeannCells *cells, int cell, const float *x)
{
	const float *centroid = PipeannCellCentroid(cells, cell);
	double		sum = 0;

	for (int d = 0; d < PipeannCellElements(cells); d++)
	{
		float		between = x[d] - centroid[(Size) d * BLOCK];

		sum += (double) between * between;
	}
	return sum;
}

/* The cell of an embedded vector: the first one of several that are equally near. */
int
PipeannCellNearest(const PipeannCells *cells, const float *x)
{
	int			elements = PipeannCellElements(cells);
	float		least = Compare(cells, x);
	/* the largest distance of a centroid that may be as near as the nearest */
	float		limit = (float) (least * (1 + ROUNDING * (elements + 4)) +
								 elements * (double) FLT_MIN);
	int			nearest = -1;
	double		distance = -1;	/* of the nearest, once it was computed */

	for (int i = 0; i < cells->n; i++)
	{
		double		other;

		if (cells->distance[i] > limit)
			continue;
		if (nearest < 0)
		{
			nearest = i;
			continue;
		}
		if (distance < 0)
			distance = PipeannCellDistance(cells, nearest, x);
		other = PipeannCellDistance(cells, i, x);
		if (other < distance)
		{
			nearest = i;
			distance = other;
		}
	}
	return nearest;
}

/* Set near[] to all cells, with their distances from an embedded vector. */
void
PipeannCellsDistances(const PipeannCells *cells, const float *x,
					  PipeannNearCell *near)
{
	(void) Compare(cells, x);
	for (int i = 0; i < cells->n; i++)
	{
		near[i].distance = cells->distance[i];
		near[i].rows = (float) (cells->rows[i] / cells->all_rows);
	}
}

/* The squared distance of embedded vectors that an operator's distance from a query stands for. */
double
PipeannCellsSquare(const PipeannCells *cells, const float *v, double distance)
{
	double		square = 0;

	switch (cells->metric)
	{
		case PIPEANN_L2:
			return distance * distance;
		case PIPEANN_COSINE:
			return 2 * distance;
		default:
			for (int d = 0; d < cells->dim; d++)
				square += (double) v[d] * v[d];
			return square > 0 ? 2 * cells->max_norm *
				(cells->max_norm + distance / sqrt(square)) : 0;
	}
}
