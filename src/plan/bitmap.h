/*
 * bitmap.h
 *		The nearest of the rows that other indexes find; private to plan/.
 */
#ifndef PIPEANN_PLAN_BITMAP_H
#define PIPEANN_PLAN_BITMAP_H

#include "nodes/extensible.h"
#include "nodes/pathnodes.h"

/*
 * bitmap.c: where a scan of ours has conditions on other columns that other indexes
 * answer, add a path of both.
 */
extern void PipeannAddBitmapPaths(PlannerInfo *root, RelOptInfo *table);

/*
 * bitmap_exec.c: how it is run. The node's children are the scan of ours, with all
 * conditions and the columns of the node, and what makes the bitmap.
 */
extern const CustomScanMethods PipeannBitmapMethods;

/* The scan of ours below such a node, whose rows it hands up; NULL of any other node. */
extern Plan *PipeannScanOfBitmap(const CustomScan *node);

#endif							/* PIPEANN_PLAN_BITMAP_H */
