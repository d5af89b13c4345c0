/*
 * only.h
 *		Index-only scans; private to scan/.
 */
#ifndef PIPEANN_ONLY_H
#define PIPEANN_ONLY_H

#include "access/relscan.h"
#include "scan/left_out.h"
#include "scan/rows.h"

typedef struct PipeannOnly PipeannOnly;

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

#endif							/* PIPEANN_ONLY_H */
