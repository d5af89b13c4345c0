/*
 * results.h
 *		Nodes found, nearest first: a heap with the TIDs beside it.
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

	ItemPointerData *tids;
	uint32		ntids;
	uint32		tids_size;
} PipeannResults;

extern void PipeannResultsInit(PipeannResults *results);

/* The same of what is no longer wanted, or all zeroes, with memory that it has. */
extern void PipeannResultsReset(PipeannResults *results);
extern void PipeannResultsAdd(PipeannResults *results,
							  const PipeannResult *result,
							  const ItemPointerData *tids);
extern const PipeannResult *PipeannResultsPeek(PipeannResults *results);
extern const PipeannResult *PipeannResultsPop(PipeannResults *results);

/* The first n results in order, or as many as there are; they stay. */
extern int	PipeannResultsNext(PipeannResults *results,
							   const PipeannResult **next, int n);

#endif							/* PIPEANN_RESULTS_H */
