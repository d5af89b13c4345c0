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

/* only.c */
typedef struct PipeannOnly PipeannOnly;

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

/* table.c */
extern bool PipeannTableSees(IndexScanDesc scan, const ItemPointerData *tid,
							 bool *dead);
extern bool PipeannTableVector(IndexScanDesc scan, const ItemPointerData *tid,
							   int dim, float *x);
extern bool PipeannTableVectorOf(IndexScanDesc scan,
								 const PipeannIndexView *view,
								 const PipeannResult *result,
								 PipeannRowList rows, float *x);

/* only.c */
extern PipeannOnly *PipeannOnlyBegin(IndexScanDesc scan,
									 const PipeannIndexView *view);
extern void PipeannOnlyEnd(PipeannOnly *only);
extern bool PipeannOnlyTake(PipeannOnly *only, uint32 id,
							const PipeannRow *row, bool *dead);
extern void PipeannOnlyTakeLeftOut(PipeannOnly *only,
								   PipeannLeftOut *left_out);
extern bool PipeannOnlySkips(PipeannOnly *only, BlockNumber block);

/* held.c */
extern PipeannHeld *PipeannHeldBegin(void);
extern void PipeannHeldAdd(PipeannHeld *held, const PipeannResult *result,
						   PipeannRowList rows, float dist);
extern PipeannHeldResult *PipeannHeldTake(PipeannHeld *held, float next);
extern bool PipeannHeldIsEmpty(const PipeannHeld *held);

#endif							/* PIPEANN_ONLY_H */
