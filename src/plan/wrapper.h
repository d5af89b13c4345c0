/*
 * wrapper.h
 *		Nodes of ours that take another one's place; private to plan/.
 */
#ifndef PIPEANN_PLAN_WRAPPER_H
#define PIPEANN_PLAN_WRAPPER_H

#include "nodes/extensible.h"
#include "nodes/plannodes.h"

/* A node that has this one as its child, and hands up the same columns. */
extern CustomScan *PipeannWrap(Plan *plan, const CustomScanMethods *methods);

/*
 * The same node below a limit: its custom_exprs are the rows that the limit wants,
 * NULL for all of them, and the rows that it leaves out, if any. Without a limit,
 * all rows.
 */
extern CustomScan *PipeannWrapBelow(const Limit *limit, Plan *plan,
									const CustomScanMethods *methods);

#endif							/* PIPEANN_PLAN_WRAPPER_H */
