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

#endif							/* PIPEANN_COLUMNS_H */
