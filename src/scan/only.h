/*
 * only.h
 *		Index-only scans; private to scan/.
 */
#ifndef PIPEANN_ONLY_H
#define PIPEANN_ONLY_H

#include "access/relscan.h"
#include "lib/pairingheap.h"
#include "scan/left_out.h"
#include "scan/rows.h"

/* table.c */

/* Whether the scan's snapshot sees a row; sets *dead if nobody does any more. */
extern bool PipeannTableSees(IndexScanDesc scan, const ItemPointerData *tid,
							 bool *dead);

/* Read a row's vector to x[dim]. False if the snapshot does not see the row. */
extern bool PipeannTableVector(IndexScanDesc scan, const ItemPointerData *tid,
							   int dim, float *x);

/* Read the vector of the first row of a result that the snapshot sees to x[dim]. */
extern bool PipeannTableVectorOf(IndexScanDesc scan,
								 const PipeannIndexView *view,
								 const PipeannResult *result,
								 PipeannRowList rows, float *x);

/* only.c */
typedef struct PipeannOnly PipeannOnly;

/*
 * Begin an index-only scan, before the search, in CurrentMemoryContext. End
 * releases what the context does not.
 */
extern PipeannOnly *PipeannOnlyBegin(IndexScanDesc scan,
									 const PipeannIndexView *view);
extern void PipeannOnlyEnd(PipeannOnly *only);

/*
 * Whether the snapshot sees a row of node id; then sets the scan's xs_hitup, for
 * as long as no other row is taken. Sets *dead if nobody sees the row any more.
 */
extern bool PipeannOnlyTake(PipeannOnly *only, uint32 id,
							const PipeannRow *row, bool *dead);

/* Take the row to which left_out has come, which the index leaves out. */
extern void PipeannOnlyTakeLeftOut(PipeannOnly *only,
								   PipeannLeftOut *left_out);

/*
 * Whether a page of the table will not be read for its rows, as far as can be
 * told: all see them, and vectors of earlier ones were not read there.
 */
extern bool PipeannOnlySkips(PipeannOnly *only, BlockNumber block);

/*
 * held.c: results whose order among one another depends on their vectors before
 * rounding, nearest first
 */
typedef struct PipeannHeld PipeannHeld;
typedef struct PipeannHeldResult
{
	pairingheap_node node;
	PipeannResult result;		/* dist and most: of the exact vector */
	PipeannRow	rows[FLEXIBLE_ARRAY_MEMBER];	/* result.bytes of them */
} PipeannHeldResult;

extern PipeannHeld *PipeannHeldBegin(void);

/* Hold a result with its rows, at its exact distance. */
extern void PipeannHeldAdd(PipeannHeld *held, const PipeannResult *result,
						   PipeannRowList rows, float dist);

/*
 * Take the nearest held result, if no other result can come before it. `next` is
 * the least distance that a result may have which is not held, or infinity. NULL if
 * there is no such held result.
 */
extern PipeannHeldResult *PipeannHeldTake(PipeannHeld *held, float next);
extern bool PipeannHeldIsEmpty(const PipeannHeld *held);

#endif							/* PIPEANN_ONLY_H */
