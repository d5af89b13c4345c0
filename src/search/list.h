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
extern bool PipeannListRefill(PipeannSearch *search);

/*
 * As PipeannListForgetEarlyEnd(), and have nothing that the codes tell used by
 * other searches.
 */
static inline void
PipeannListDistrustCodes(PipeannSearch *search)
{
	search->params.together = NULL;
	PipeannListForgetEarlyEnd(search);
}

/* Whether all of the list is explored, although it need not be. */
static inline bool
PipeannListIsExplored(PipeannSearch *search)
{
	return PipeannPoolFirstOpen(&search->pool) >=
		Min(search->pool.count, search->pool.matching > 0 ?
			search->pool.length : PipeannListToExplore(search));
}

#endif							/* PIPEANN_SEARCH_LIST_H */
