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
 * The same below a limit that is of use to it: custom_exprs are what that wants, NULL
 * for all rows, and what it leaves out, if anything is. Without a limit it is all rows.
 */
extern CustomScan *PipeannWrapBelow(const Limit *limit, Plan *plan,
									const CustomScanMethods *methods);

#endif							/* PIPEANN_PLAN_WRAPPER_H */
