/*
 * columns.h
 *		Sets of columns that a plan node puts out; private to plan/.
 *
 * A column is its number in the node's target list, from 1 on. A set that has
 * PIPEANN_ALL_COLUMNS is of all of them.
 */
#ifndef PIPEANN_COLUMNS_H
#define PIPEANN_COLUMNS_H

#include "nodes/plannodes.h"

#define PIPEANN_ALL_COLUMNS 0

static inline bool
PipeannHasColumn(const Bitmapset *columns, AttrNumber column)
{
	return bms_is_member(PIPEANN_ALL_COLUMNS, columns) ||
		bms_is_member(column, columns);
}

/* The columns that are returned: those that are not junk. */
extern Bitmapset *PipeannColumnsReturned(const List *targets);

/*
 * The columns of a child that a node reads when only `wanted` of its own are
 * wanted. The child's columns are those of varno in the node's expressions. Only
 * for nodes that plan.c knows.
 */
extern Bitmapset *PipeannColumnsRead(const Plan *node, int varno,
									 const Bitmapset *wanted);

#endif							/* PIPEANN_COLUMNS_H */
