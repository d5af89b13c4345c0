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

/* Make the pool empty, as long as it is while nothing was read. */
extern void PipeannListBegin(PipeannSearch *search);

/* Make the pool as long as it is from the first read on. */
extern void PipeannListNoteFirstRead(PipeannSearch *search);

/* Set beyond which distance nothing need be explored. */
extern void PipeannListSetBound(PipeannSearch *search);

/* From now on all of the list is explored, and no more. */
extern void PipeannListForgetEarlyEnd(PipeannSearch *search);

/*
 * As PipeannListForgetEarlyEnd(), and have nothing that the codes tell used by
 * other searches.
 */
extern void PipeannListDistrustCodes(PipeannSearch *search);

/* Whether all of the list is explored, although it need not be. */
extern bool PipeannListIsExplored(PipeannSearch *search);

/*
 * Fill the pool with the best of what fell out of it; returns whether there was
 * anything. The caller sets page and ref of what came in.
 */
extern bool PipeannListRefill(PipeannSearch *search);

#endif							/* PIPEANN_SEARCH_LIST_H */
