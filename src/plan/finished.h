/*
 * finished.h
 *		Finished plans, changed so that distances cost less; private to plan/.
 */
#ifndef PIPEANN_PLAN_FINISHED_H
#define PIPEANN_PLAN_FINISHED_H

#include "nodes/plannodes.h"

extern void PipeannRewritePlan(PlannedStmt *stmt);

#endif							/* PIPEANN_PLAN_FINISHED_H */
