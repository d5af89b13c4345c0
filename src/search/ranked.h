/*
 * ranked.h
 *		Searching among the few nodes that match, without the graph; private to
 *		search/.
 */
#ifndef PIPEANN_SEARCH_RANKED_H
#define PIPEANN_SEARCH_RANKED_H

#include "search/state.h"

/*
 * Before a search begins: choose whether it ranks the nodes that match or walks the
 * graph, and how much longer its list is then.
 */
extern void PipeannChooseWay(PipeannSearch *search);

/*
 * Whether a search that is about to walk has found that pages have to be read, and
 * ranking reads so much less that it is worth more code distances.
 */
extern bool PipeannShouldRankUnread(const PipeannSearch *search);

/* Whether a search that walks has gone so far that ranking takes less. */
extern bool PipeannShouldRank(const PipeannSearch *search);

/* From now on go through the nodes that match, but for those scored already. */
extern void PipeannBeginRanking(PipeannSearch *search);

/* A run of such a search; false if nothing was left. */
extern bool PipeannRunRanked(PipeannSearch *search);

#endif							/* PIPEANN_SEARCH_RANKED_H */
