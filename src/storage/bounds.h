/*
 * bounds.h
 *		How far a row may be from a query if its vector was rounded.
 */
#ifndef PIPEANN_BOUNDS_H
#define PIPEANN_BOUNDS_H

#include "storage/slot.h"

typedef struct PipeannBounds
{
	PipeannMetric metric;
	int			dim;
	float		arithmetic;		/* relative error of a distance */
	float		query_norm;		/* for inner products */
} PipeannBounds;

/* For distances from query[layout->dim] to nodes of this layout. */
extern void PipeannBoundsInit(PipeannBounds *bounds,
							  const PipeannLayout *layout,
							  const float *query);

/*
 * The order keys between which a row's distance is, by that of its rounded vector,
 * dist, and the node's error (PipeannSlotError) and aux. Both are dist where that
 * is no finite number.
 */
extern void PipeannBoundsOf(const PipeannBounds *bounds, float dist,
							float error, float aux, float *least, float *most);

/*
 * A lower bound of a distance whose order key is between least and most, in the
 * distance's own units, which holds for any arithmetic in single precision.
 */
extern double PipeannBoundsFloor(const PipeannBounds *bounds, float least,
								 float most);

/* An order key in SQL's units: what the metric's operator gives. */
extern double PipeannSqlDistance(PipeannMetric metric, float key);

#endif							/* PIPEANN_BOUNDS_H */
