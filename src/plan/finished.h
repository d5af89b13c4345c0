/*
 * finished.h
 *		Finished plans, changed so that distances cost less; private to plan/.
 */
#ifndef PIPEANN_PLAN_FINISHED_H
#define PIPEANN_PLAN_FINISHED_H

#include "nodes/plannodes.h"

extern void PipeannRewritePlan(PlannedStmt *stmt, bool is_cursor);

#endif							/* PIPEANN_PLAN_FINISHED_H */
