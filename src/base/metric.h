/*
 * metric.h
 *		What the metrics are.
 *
 * A metric is a row of PipeannMetrics[], a kernel (PipeannExactDistance()) with a row of
 * code distances (PipeannPqTable()), bounds of what rounding does to it
 * (storage/bounds.c), and an operator class for each type.
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

	double		(*distance) (double key);	/* SQL's, of an order key */
} PipeannMetricInfo;

extern const PipeannMetricInfo PipeannMetrics[PIPEANN_NUM_METRICS + 1];

/* Whether vectors of the type can be compared by it. */
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

#endif							/* PIPEANN_METRIC_H */
