/*
 * left_out.h
 *		Rows that the index leaves out; private to scan/.
 */
#ifndef PIPEANN_SCAN_LEFT_OUT_H
#define PIPEANN_SCAN_LEFT_OUT_H

#include "access/htup.h"
#include "scan/scan.h"

typedef struct PipeannLeftOut PipeannLeftOut;

/*
 * Begin to look for them in the table, in CurrentMemoryContext. NULL if the index
 * knows that there are none, or the scan wants none.
 */
extern PipeannLeftOut *PipeannLeftOutBegin(IndexScanDesc scan,
										   const PipeannIndexView *view);

/*
 * The next one: those whose distance is no number first, then those without any. It
 * meets the predicate of a partial index; the scan's conditions are for others to
 * look at. Ends when `most` rows of the table were looked at.
 */
extern bool PipeannLeftOutNext(PipeannLeftOut *left_out, int64 most,
							   ItemPointer tid);

/* What an index-only scan returns of it, in CurrentMemoryContext. */
extern HeapTuple PipeannLeftOutTuple(PipeannLeftOut *left_out);

extern void PipeannLeftOutEnd(PipeannLeftOut *left_out);

#endif							/* PIPEANN_SCAN_LEFT_OUT_H */
