/*
 * results.h
 *		Nodes found, nearest first: a heap with the rows beside it.
 */
#ifndef PIPEANN_RESULTS_H
#define PIPEANN_RESULTS_H

#include "search/search.h"

typedef struct PipeannResults
{
	PipeannResult *items;		/* heap order only when heaped */
	uint64		count;
	uint64		size;
	bool		heaped;
	PipeannResult taken;		/* the last one popped */

	PipeannRow *rows;			/* of all of them, one after the other */
	Size		bytes;			/* of rows */
	Size		bytes_size;
} PipeannResults;

extern void PipeannResultsReset(PipeannResults *results);
extern void PipeannResultsAdd(PipeannResults *results,
							  const PipeannResult *result,
							  const PipeannRowList *rows);

#endif							/* PIPEANN_RESULTS_H */
