/*
 * finished.h
 *		Finished plans, changed so that distances cost less; private to plan/.
 */
#ifndef PIPEANN_PLAN_FINISHED_H
#define PIPEANN_PLAN_FINISHED_H

#include "nodes/plannodes.h"

/* Plans below a limit may be run twice if they have nothing volatile (fill.h). */
extern void PipeannRewritePlan(PlannedStmt *stmt, bool may_run_twice,
							   bool is_cursor);

#endif							/* PIPEANN_PLAN_FINISHED_H */
