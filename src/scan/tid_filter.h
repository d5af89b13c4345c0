/*
 * tid_filter.h
 *		A TID filter: a scan among rows that are given; private to scan/.
 */
#ifndef PIPEANN_SCAN_TID_FILTER_H
#define PIPEANN_SCAN_TID_FILTER_H

#include "scan/scan.h"

typedef struct PipeannTidFilterState PipeannTidFilterState;

/*
 * Find the nodes of the rows, in CurrentMemoryContext, and set a search's parameters
 * by them. Rows of which no node is known are read from the table.
 */
extern PipeannTidFilterState *PipeannTidFilterBegin(IndexScanDesc scan,
													const PipeannTidFilter *rows,
													PipeannIndexView *view,
													const float *query,
													PipeannSearchParams *params);

/* Whether a row of a node is among those that are wanted of it. */
extern bool PipeannTidFilterHas(const PipeannTidFilterState *filter,
								const ItemPointerData *tid);

/* How far the nearest row is of which no node is known; infinite if there is none. */
extern float PipeannTidFilterNextUnknown(const PipeannTidFilterState *filter);

/* Take that row if it is no farther than this; else a list without rows. */
extern PipeannRowList PipeannTidFilterTakeUnknown(PipeannTidFilterState *filter,
												  float farthest, float *dist);

/* Heavyweight page lock: one session makes a map of rows at a time. */
#define PIPEANN_ROW_MAP_LOCK 4

/* row_map.c: the nodes of rows, INVALID_ID where it is not known */
extern void PipeannFindNodes(const PipeannIndexView *view,
							 const PipeannTidFilter *rows, uint32 *ids);

#endif							/* PIPEANN_SCAN_TID_FILTER_H */
