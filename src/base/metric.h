/*
 * metric.h
 *		The properties of metrics. A metric is an entry of PipeannMetrics[], a
 *		kernel (PipeannExactDistance()), tables of code distances
 *		(PipeannPqTable()), bounds of the effect of rounding
 *		(storage/bounds.c), and an operator class for each type.
 */
#ifndef PIPEANN_METRIC_H
#define PIPEANN_METRIC_H

#include "base/base.h"

typedef struct PipeannMetricInfo
{
	const char *name;

	PipeannMetric graph;		/* by which graphs are built, pruned and packed (graph.h) */

	/*
	 * An order key grows by this power of a distance from zero; 0 if there is no zero
	 * to measure from.
	 */
	int			power;

	double		(*distance) (double key);	/* SQL's distance for an order key */
} PipeannMetricInfo;

extern const PipeannMetricInfo PipeannMetrics[PIPEANN_NUM_METRICS + 1];

/* Whether vectors of the type can be compared by the metric. */
static inline bool
PipeannIsMetricOf(PipeannMetric metric, PipeannType type)
{
	if (type == PIPEANN_BIT)
		return metric == PIPEANN_HAMMING || metric == PIPEANN_JACCARD;
	if (type == PIPEANN_SPARSEVEC_L1)
		return metric == PIPEANN_SPARSE_L1;
	return metric <= PIPEANN_L1;
}

/* Whether a number from a catalog or from disk is a metric's. */
static inline bool
PipeannIsMetric(int number)
{
	return number >= PIPEANN_L2 && number <= PIPEANN_NUM_METRICS;
}

/* Jaccard distance, from how many ones only one of two vectors has, and how many both have. */
static inline float
PipeannJaccard(float different, float common)
{
	return common > 0 ? different / (different + common) : 1;
}

#endif							/* PIPEANN_METRIC_H */
