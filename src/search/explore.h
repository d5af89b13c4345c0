/*
 * explore.h
 *		Exploring candidates, and waiting for their pages; private to search/.
 */
#ifndef PIPEANN_SEARCH_EXPLORE_H
#define PIPEANN_SEARCH_EXPLORE_H

#include "search/entry_points.h"
#include "search/score.h"

/*
 * Make the nodes of pages at hand candidates, if they may be: to be called
 * before anything is decided. If they may not, pages are scored when there is
 * nothing better to do.
 */
static inline void
PipeannAddPageMates(PipeannSearch *search)
{
	if (search->nentry_pages > 0 && search->reads > 0)
		PipeannAddEntryPages(search);
	if (search->nunscored > 0 && PipeannWantsPageMates(search))
		while (PipeannScoreNext(search))
			;
}

extern void PipeannExplore(PipeannSearch *search, int position);
extern int	PipeannExploreToBatch(PipeannSearch *search, int position, int n);
extern int	PipeannNearestReady(PipeannSearch *search);
extern void PipeannAwaitPage(PipeannSearch *search);

#endif							/* PIPEANN_SEARCH_EXPLORE_H */
