/*
 * ranked.h
 *		Searching among the few nodes that match, without the graph; private to
 *		search/.
 */
#ifndef PIPEANN_SEARCH_RANKED_H
#define PIPEANN_SEARCH_RANKED_H

#include "search/state.h"

/* From now on go through the nodes that match, but for those scored already. */
extern void PipeannBeginRanking(PipeannSearch *search);

/* A run of such a search; false if nothing was left. */
extern bool PipeannRunRanked(PipeannSearch *search);

#endif							/* PIPEANN_SEARCH_RANKED_H */
