/*
 * list.h
 *		How many candidates a search explores; private to search/.
 */
#ifndef PIPEANN_SEARCH_LIST_H
#define PIPEANN_SEARCH_LIST_H

#include <math.h>

#include "search/state.h"

/* ef, or more where a part of the candidates does not match. */
static inline int
PipeannListEf(const PipeannSearch *search)
{
	return (int) (Max(search->params.ef, 1) * search->stretch);
}

/* Candidates that are explored unless the search ends early. */
static inline int
PipeannListToExplore(const PipeannSearch *search)
{
	return Max(Max(PipeannListEf(search), search->params.min_list), 1);
}

/* L: the pool is longer where the search may end early. */
static inline int
PipeannListLength(const PipeannSearch *search)
{
	return search->termination.on ? PipeannListEf(search) :
		search->pool.length;
}

/* The distance of the nearest candidate, by its code; infinity if there is none. */
static inline float
PipeannListNearest(const PipeannSearch *search)
{
	return search->pool.count > 0 ? search->pool.items[0].dist : INFINITY;
}

extern void PipeannListBegin(PipeannSearch *search);
extern void PipeannListNoteFirstRead(PipeannSearch *search);
extern void PipeannListSetBound(PipeannSearch *search);
extern void PipeannListForgetEarlyEnd(PipeannSearch *search);
extern void PipeannListDistrustCodes(PipeannSearch *search);
extern bool PipeannListIsExplored(PipeannSearch *search);
extern bool PipeannListRefill(PipeannSearch *search);

#endif							/* PIPEANN_SEARCH_LIST_H */
