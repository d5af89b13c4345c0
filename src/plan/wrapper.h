/*
 * wrapper.h
 *		Nodes of ours that take another one's place; private to plan/.
 */
#ifndef PIPEANN_PLAN_WRAPPER_H
#define PIPEANN_PLAN_WRAPPER_H

#include "nodes/extensible.h"
#include "nodes/plannodes.h"

extern CustomScan *PipeannWrap(Plan *plan, const CustomScanMethods *methods);
extern CustomScan *PipeannWrapBelow(const Limit *limit, Plan *plan,
									const CustomScanMethods *methods);

#endif							/* PIPEANN_PLAN_WRAPPER_H */
