/*
 * order.h
 *		The order in which a scan returns rows; private to scan/.
 */
#ifndef PIPEANN_SCAN_ORDER_H
#define PIPEANN_SCAN_ORDER_H

#include "scan/state.h"

/* The most rows that the executor may hold back to sort them. */
#define PIPEANN_MOST_HELD 1000

extern void PipeannStoreDistance(IndexScanDesc scan, const PipeannScan *state,
								 double value);
extern void PipeannSetDistance(IndexScanDesc scan, PipeannScan *state,
							   const PipeannResult *result);
extern void PipeannEndComparing(IndexScanDesc scan, PipeannScan *state);
extern bool PipeannIsInDoubt(PipeannScan *state, const PipeannResult *result);
extern bool PipeannIsLate(const PipeannScan *state, float dist, float before);
extern void PipeannHoldBack(IndexScanDesc scan, PipeannScan *state,
							const PipeannResult *result);

#endif							/* PIPEANN_SCAN_ORDER_H */
