/*
 * distance_bound.h
 *		How a scan heeds a distance bound; private to scan/.
 */
#ifndef PIPEANN_SCAN_DISTANCE_BOUND_H
#define PIPEANN_SCAN_DISTANCE_BOUND_H

#include "scan/scan.h"

/*
 * The searches have been run: as many rows as are wanted are expected to be within
 * the distance of what they have found. There may be no distance bound.
 */
extern void PipeannDistanceBoundExpect(PipeannDistanceBound *bound, PipeannMetric metric);

/* A search was run: how far what it has found can be believed. There may be no bound. */
extern void PipeannDistanceBoundTrust(PipeannDistanceBound *bound,
									  const PipeannLayout *l,
									  const PipeannSearch *search);

/* Whether a result is not wanted. There may be no distance bound, and no result. */
extern bool PipeannDistanceBoundHides(const PipeannDistanceBound *bound,
									  PipeannMetric metric,
									  const PipeannResult *result);

/* How many of the next results are within it, up to a few. */
extern int	PipeannDistanceBoundWithin(const PipeannDistanceBound *bound,
									   PipeannMetric metric, PipeannSearch *search);

/* Set a search's parameters by it. */
extern void PipeannDistanceBoundBegin(PipeannDistanceBound *bound,
									  PipeannSearchParams *params);

#endif							/* PIPEANN_SCAN_DISTANCE_BOUND_H */
