/*
 * tid_filter.h
 *		A TID filter: a scan among rows that are given; private to scan/.
 */
#ifndef PIPEANN_SCAN_TID_FILTER_H
#define PIPEANN_SCAN_TID_FILTER_H

#include "scan/scan.h"

typedef struct PipeannTidFilterState PipeannTidFilterState;

/* Heavyweight page lock: one session makes a map of rows at a time. */
#define PIPEANN_ROW_MAP_LOCK 4

/* tid_filter.c */
extern PipeannTidFilterState *PipeannTidFilterBegin(IndexScanDesc scan,
													const PipeannTidFilter *rows,
													PipeannIndexView *view,
													const float *query,
													PipeannSearchParams *params);
extern bool PipeannTidFilterHas(const PipeannTidFilterState *filter,
								const ItemPointerData *tid);
extern float PipeannTidFilterNextUnknown(const PipeannTidFilterState *filter);
extern PipeannRowList PipeannTidFilterTakeUnknown(PipeannTidFilterState *filter,
												  float farthest, float *dist);

#endif							/* PIPEANN_SCAN_TID_FILTER_H */
