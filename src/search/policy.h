/*
 * policy.h
 *		Exploring candidates one by one and in beams, which are chosen together;
 *		private to search/. Those that leave the pool leave their beam, too.
 */
#ifndef PIPEANN_SEARCH_POLICY_H
#define PIPEANN_SEARCH_POLICY_H

#include "search/pages.h"

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

/* Nodes explored in one round, unless pipeline_width says otherwise. */
#define PIPEANN_BEAM_WIDTH 8

static inline int
PipeannBeamWidth(const PipeannSearch *search)
{
	return search->params.width > 0 ? search->params.width :
		PIPEANN_BEAM_WIDTH;
}

/* policies.c */
extern bool PipeannExploreBeam(PipeannSearch *search, int beam);

/* Choose a candidate for a beam and ask for its page. */
static inline void
PipeannChoose(PipeannSearch *search, int position, int beam)
{
	PipeannPoolChoose(&search->pool, position, beam);
	if (search->pool.items[position].ref == PIPEANN_NO_REF)
		PipeannRequestPage(search, position);
}

#endif							/* PIPEANN_SEARCH_POLICY_H */
