/*
 * horizon.h
 *		How a scan heeds a horizon; private to scan/.
 */
#ifndef PIPEANN_SCAN_HORIZON_H
#define PIPEANN_SCAN_HORIZON_H

#include "scan/scan.h"

/*
 * The searches have been run: as many rows as are wanted are expected to be within
 * the distance of what they have found. There may be no horizon.
 */
extern void PipeannHorizonExpect(PipeannHorizon *horizon, PipeannMetric metric);

/* A search was run: how far what it has found can be believed. There may be no horizon. */
extern void PipeannHorizonReach(PipeannHorizon *horizon, const PipeannLayout *l,
								const PipeannSearch *search);

/* Whether a result is not wanted. There may be no horizon, and no result. */
extern bool PipeannHorizonHides(const PipeannHorizon *horizon,
								PipeannMetric metric,
								const PipeannResult *result);

/* How many of the next results are within it, up to a few. */
extern int	PipeannHorizonWithin(const PipeannHorizon *horizon,
								 PipeannMetric metric, PipeannSearch *search);

/* Set a search's parameters by it. */
extern void PipeannHorizonBegin(PipeannHorizon *horizon,
								PipeannSearchParams *params);

#endif							/* PIPEANN_SCAN_HORIZON_H */
