/*
 * vector.h
 *		Vectors that an index scan's node takes from the index; private to
 *		plan/.
 */
#ifndef PIPEANN_PLAN_VECTOR_H
#define PIPEANN_PLAN_VECTOR_H

#include "nodes/plannodes.h"

/*
 * Where the node computes the distance that it is ordered by, let it take the
 * row's vector from the index, if that has it exactly and the table has it in
 * TOAST. stmt is the plan that the node belongs to.
 */
extern void PipeannTakeVectors(PlannedStmt *stmt, IndexScan *node);

#endif							/* PIPEANN_PLAN_VECTOR_H */
