/*
 * vector.h
 *		Vectors that an index scan's node takes from the index; private to
 *		plan/.
 */
#ifndef PIPEANN_PLAN_VECTOR_H
#define PIPEANN_PLAN_VECTOR_H

#include "nodes/plannodes.h"

extern void PipeannTakeVectors(PlannedStmt *stmt, IndexScan *node,
							   const Bitmapset *wanted);

#endif							/* PIPEANN_PLAN_VECTOR_H */
