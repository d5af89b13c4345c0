/*
 * filter_strategy.h
 *		The filter strategy: whether a search with conditions walks the graph or scans
 *		the codes of what matches; private to search/.
 */
#ifndef PIPEANN_SEARCH_FILTER_STRATEGY_H
#define PIPEANN_SEARCH_FILTER_STRATEGY_H

#include "search/state.h"

/*
 * Before a search begins: choose whether it scans the codes of the nodes that match
 * or may walk the graph, and how much longer its list is then.
 */
extern void PipeannChooseFilterStrategy(PipeannSearch *search);

/*
 * Choose again, once it is known how many of the entries nearest to the query pass,
 * and before any page is asked for. What matches may be all near the query, or far.
 */
extern void PipeannChooseFilterStrategyNear(PipeannSearch *search, int passing,
											 int entries);

/*
 * Whether a search that is about to walk has found that pages have to be read, and
 * a code scan reads so much less that it is worth more code distances.
 */
extern bool PipeannShouldScanCodesUnread(const PipeannSearch *search);

/* Whether a search that walks has gone so far that a code scan takes less. */
extern bool PipeannShouldScanCodes(const PipeannSearch *search);

/* Whether a first walk may have missed what is nearest. */
extern bool PipeannWalkIsInDoubt(const PipeannSearch *search);

#endif							/* PIPEANN_SEARCH_FILTER_STRATEGY_H */
