/*
 * fill.h
 *		Limits that a scan of ours is to fill, whatever comes late; private to plan/.
 */
#ifndef PIPEANN_PLAN_FILL_H
#define PIPEANN_PLAN_FILL_H

#include "nodes/extensible.h"
#include "nodes/plannodes.h"

/*
 * fill.c: where a limit has scans of ours below it that may come to their end before
 * it is filled, put a node of ours between them. To be done when the columns of what
 * is below are what they will be. What is below may be run twice, so it must be steady
 * (steady.h), and the limit is evaluated twice. The place of a cursor is where the
 * only scan of its table is (UPDATE ... WHERE CURRENT OF): rows must not be kept above
 * that.
 */
extern void PipeannFillLimit(PlannedStmt *stmt, Limit *limit, bool is_cursor);

/*
 * Put such a node, for all rows, where something wants all of them before it hands
 * up one. The planner may take a scan of ours as what reads least, below a sort in
 * another order, as there is a limit somewhere above.
 */
extern void PipeannFillDrains(PlannedStmt *stmt, Plan **place, bool drained);

/* fill_exec.c: how such a node is run; its child is the plan that had its place. */
extern const CustomScanMethods PipeannFillMethods;

#endif							/* PIPEANN_PLAN_FILL_H */
