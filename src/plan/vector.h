/*
 * vector.h
 *		Vectors that an index scan's node takes from the index; private to
 *		plan/.
 */
#ifndef PIPEANN_PLAN_VECTOR_H
#define PIPEANN_PLAN_VECTOR_H

#include "nodes/plannodes.h"

/*
 * Where the node computes the distance that it is ordered by, or returns the
 * vector in a column that is wanted, let it take that from the index, if the table
 * has vectors in TOAST. stmt is the plan that the node belongs to.
 */
extern void PipeannTakeVectors(PlannedStmt *stmt, IndexScan *node,
							   const Bitmapset *wanted);

#endif							/* PIPEANN_PLAN_VECTOR_H */
