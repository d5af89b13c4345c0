/*
 * left_out.h
 *		Rows that the index leaves out; private to scan/.
 */
#ifndef PIPEANN_SCAN_LEFT_OUT_H
#define PIPEANN_SCAN_LEFT_OUT_H

#include "access/htup.h"
#include "scan/scan.h"

typedef struct PipeannLeftOut PipeannLeftOut;

extern PipeannLeftOut *PipeannLeftOutBegin(IndexScanDesc scan,
										   const PipeannIndexView *view);
extern bool PipeannLeftOutNext(PipeannLeftOut *left_out, int64 most,
							   ItemPointer tid);
extern HeapTuple PipeannLeftOutTuple(PipeannLeftOut *left_out);
extern void PipeannLeftOutEnd(PipeannLeftOut *left_out);

#endif							/* PIPEANN_SCAN_LEFT_OUT_H */
