/*
 * steady.h
 *		Plans that may be run twice; private to plan/.
 */
#ifndef PIPEANN_PLAN_STEADY_H
#define PIPEANN_PLAN_STEADY_H

#include "nodes/plannodes.h"

extern bool PipeannIsSteadyPlan(PlannedStmt *stmt, const Plan *plan);
extern bool PipeannHasVolatile(Node *node, PlannedStmt *stmt);

#endif							/* PIPEANN_PLAN_STEADY_H */
