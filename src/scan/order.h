/*
 * order.h
 *		The order in which a scan returns rows; private to scan/.
 */
#ifndef PIPEANN_SCAN_ORDER_H
#define PIPEANN_SCAN_ORDER_H

#include "scan/state.h"

/* The most rows that the executor may hold back to sort them. */
#define PIPEANN_MOST_HELD 1000

/* Tell the executor the distance of the rows that come next. */
extern void PipeannStoreDistance(IndexScanDesc scan, const PipeannScan *state,
								 double value);

/* Tell the executor a result's distance, or the least that it may be. */
extern void PipeannSetDistance(IndexScanDesc scan, PipeannScan *state,
							   const PipeannResult *result);

/* The next rows are not compared, and come after those that were. */
extern void PipeannEndComparing(IndexScanDesc scan, PipeannScan *state);

/*
 * Whether the order of a result taken just now and of one before or behind it
 * is not known.
 */
extern bool PipeannIsInDoubt(PipeannScan *state, const PipeannResult *result);

/* Whether a result would be out of order after a row at another distance. */
extern bool PipeannIsLate(const PipeannScan *state, float dist, float before);

/*
 * Hold back a result whose order is in doubt, at the distance of its vector as the
 * table has it. A result without a row that the snapshot sees is dropped.
 */
extern void PipeannHoldBack(IndexScanDesc scan, PipeannScan *state,
							const PipeannResult *result);

#endif							/* PIPEANN_SCAN_ORDER_H */
