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
	return (int) (search->params.ef * search->stretch);
}

/* Candidates that are explored unless the search ends early. */
static inline int
PipeannListToExplore(const PipeannSearch *search)
{
	return Max(PipeannListEf(search), search->params.min_list);
}

/* The distance of the nearest candidate, by its code; infinity if there is none. */
static inline float
PipeannListNearest(const PipeannSearch *search)
{
	return search->pool.count > 0 ? search->pool.items[0].dist : INFINITY;
}

/* list.c */
extern void PipeannListBegin(PipeannSearch *search);
extern void PipeannListSetForReads(PipeannSearch *search);
extern bool PipeannListIsBeyond(PipeannSearch *search);
extern void PipeannListSetEf(PipeannSearch *search, int ef);
extern float PipeannHorizonOfCodes(const PipeannSearch *search);
extern void PipeannListSetBound(PipeannSearch *search);
extern void PipeannListForgetEarlyEnd(PipeannSearch *search);
extern bool PipeannListRefill(PipeannSearch *search);

/* Whether the whole list was explored even though the search could have ended early. */
static inline bool
PipeannListIsExplored(PipeannSearch *search)
{
	return PipeannPoolFirstOpen(&search->pool) >=
		Min(search->pool.count, search->pool.matching > 0 ?
			search->pool.length : PipeannListToExplore(search));
}

#endif							/* PIPEANN_SEARCH_LIST_H */
