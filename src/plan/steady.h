/*
 * steady.h
 *		Plans that may be run twice; private to plan/.
 */
#ifndef PIPEANN_PLAN_STEADY_H
#define PIPEANN_PLAN_STEADY_H

#include "nodes/plannodes.h"

/*
 * Whether what a plan of a statement evaluates each time it is run, in sub-plans too,
 * has nothing volatile. Not so if anything in it is not known.
 */
extern bool PipeannIsSteadyPlan(PlannedStmt *stmt, const Plan *plan);

/* Whether an expression of a statement, or a sub-plan in it, has something volatile. */
extern bool PipeannHasVolatile(Node *node, PlannedStmt *stmt);

#endif							/* PIPEANN_PLAN_STEADY_H */
