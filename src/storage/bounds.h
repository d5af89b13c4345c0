/*
 * bounds.h
 *		How far a row may be from a query if its vector was rounded.
 */
#ifndef PIPEANN_BOUNDS_H
#define PIPEANN_BOUNDS_H

#include "base/metric.h"
#include "storage/slot.h"

typedef struct PipeannBounds
{
	PipeannMetric metric;
	int			dim;
	float		arithmetic;		/* relative error of a distance */
	float		query_norm;		/* for inner products */
	bool		orthogonal;		/* errors are, to their vectors */
} PipeannBounds;

extern void PipeannBoundsInit(PipeannBounds *bounds,
							  const PipeannLayout *layout,
							  const float *query);
extern void PipeannBoundsOf(const PipeannBounds *bounds, float dist,
							float error, float aux, float *least, float *most);

/* An order key in SQL's units: what the metric's operator gives. */
static inline double
PipeannSqlDistance(PipeannMetric metric, float key)
{
	return PipeannMetrics[metric].distance(key);
}

#endif							/* PIPEANN_BOUNDS_H */
