/*
 * distance_bound.h
 *		How a scan heeds a distance bound; private to scan/.
 */
#ifndef PIPEANN_SCAN_DISTANCE_BOUND_H
#define PIPEANN_SCAN_DISTANCE_BOUND_H

#include "scan/scan.h"

extern void PipeannDistanceBoundExpect(PipeannDistanceBound *bound, PipeannMetric metric);
extern void PipeannDistanceBoundTrust(PipeannDistanceBound *bound,
									  const PipeannLayout *l,
									  PipeannSearch *search);
extern bool PipeannDistanceBoundHides(const PipeannDistanceBound *bound,
									  PipeannMetric metric,
									  const PipeannResult *result);
extern int	PipeannDistanceBoundWithin(const PipeannDistanceBound *bound,
									   PipeannMetric metric, PipeannSearch *search);
extern void PipeannDistanceBoundBegin(PipeannDistanceBound *bound,
									  PipeannSearchParams *params);

#endif							/* PIPEANN_SCAN_DISTANCE_BOUND_H */
