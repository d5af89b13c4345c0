/*
 * element.h
 *		Conditions that a column of arrays has an element; private to plan/.
 */
#ifndef PIPEANN_PLAN_ELEMENT_H
#define PIPEANN_PLAN_ELEMENT_H

#include "nodes/parsenodes.h"

/*
 * Where a query with an order, or one inside it, asks for rows whose array has an
 * element, `x = ANY (column)`, and the column is a key column of an index of ours,
 * let it ask `column @> ARRAY[x]`, which an index can answer. Before the query is
 * planned; it returns the same rows.
 */
extern void PipeannAskForElements(Query *query);

#endif							/* PIPEANN_PLAN_ELEMENT_H */
