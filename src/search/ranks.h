/*
 * ranks.h
 *		The nodes that may match, in the order of the distances of their codes;
 *		private to search/.
 */
#ifndef PIPEANN_SEARCH_RANKS_H
#define PIPEANN_SEARCH_RANKS_H

#include "search/state.h"

/* Go through the attribute codes for the nearest. */
extern void PipeannRanksBegin(PipeannSearch *search);

/* Whether any is left; if so it is items[0]. */
extern bool PipeannRanksHasNext(PipeannSearch *search);

/* Take the nearest. */
extern PipeannDiscard PipeannRanksPop(PipeannRanks *ranks);

#endif							/* PIPEANN_SEARCH_RANKS_H */
