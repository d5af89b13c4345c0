/*
 * bitmap.h
 *		The nearest of the rows that other indexes find; private to plan/.
 */
#ifndef PIPEANN_PLAN_BITMAP_H
#define PIPEANN_PLAN_BITMAP_H

#include "nodes/extensible.h"
#include "nodes/pathnodes.h"

/*
 * bitmap_exec.c: how it is run. The node's children are the scan of ours, with all
 * conditions and the columns of the node, and what makes the bitmap.
 */
extern const CustomScanMethods PipeannBitmapMethods;

/* bitmap.c */
extern void PipeannAddBitmapPaths(PlannerInfo *root, RelOptInfo *table);

/* bitmap_exec.c */
extern Plan *PipeannScanOfBitmap(const CustomScan *node);

#endif							/* PIPEANN_PLAN_BITMAP_H */
