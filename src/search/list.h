/*
 * list.h
 *		How many candidates a search explores, alone or as one of several; private to
 *		search/.
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

/*
 * Each search of several indexes for one query explores one part of the list in so
 * many at least; and of those it shares with the other searches several, as it is
 * likely to have as many of the nearest as each of them.
 */
#define PIPEANN_LEAST_PARTS 8
#define PIPEANN_SHARED_PARTS 5

/* Lists may be as long as this, from now on. */
static inline void
PipeannTogetherKeep(PipeannTogether *together, int length)
{
	together->most = Max(together->most, Min(length, PIPEANN_SHARED_DISTANCES));
}

/*
 * The distance of the code of the candidate that is the last of a list of this
 * length of all. Infinity while there are fewer, or for too long a list.
 */
static inline float
PipeannTogetherBound(const PipeannTogether *together, int length)
{
	/* a search that reads everything has no list, and nothing to stop at */
	return length < 1 || length > together->ncodes ? INFINITY :
		together->codes[length - 1];
}

/*
 * Candidates that each search explores at the least, whatever others have; length
 * is that of the list of all.
 */
static inline int
PipeannTogetherLeast(const PipeannTogether *together, int length)
{
	int			shared = length * PIPEANN_SHARED_PARTS / Max(together->searches, 1);

	return (length + shared + PIPEANN_LEAST_PARTS - 1) / PIPEANN_LEAST_PARTS;
}

/* list.c */
extern void PipeannListBegin(PipeannSearch *search);
extern void PipeannListNoteFirstRead(PipeannSearch *search);
extern bool PipeannListIsBeyond(PipeannSearch *search);
extern void PipeannListSetEf(PipeannSearch *search, int ef);
extern void PipeannListSetBound(PipeannSearch *search);
extern void PipeannListForgetEarlyEnd(PipeannSearch *search);
extern bool PipeannListRefill(PipeannSearch *search);
extern void PipeannTogetherNote(PipeannTogether *together, const float *dists,
								int n);

/* Whether all of the list is explored, although it need not be. */
static inline bool
PipeannListIsExplored(PipeannSearch *search)
{
	return PipeannPoolFirstOpen(&search->pool) >=
		Min(search->pool.count, search->pool.matching > 0 ?
			search->pool.length : PipeannListToExplore(search));
}

#endif							/* PIPEANN_SEARCH_LIST_H */
