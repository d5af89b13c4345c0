/*
 * score.h
 *		Distances of candidates by their codes, and of nodes by their vectors;
 *		private to search/.
 */
#ifndef PIPEANN_SEARCH_SCORE_H
#define PIPEANN_SEARCH_SCORE_H

#include "search/state.h"

/*
 * Put a node in the batch if it was not visited before; returns the new length.
 * About every other neighbour was, so that this is no branch: the place of one
 * that was goes to the next. There is room for all that are looked at.
 */
static inline int
PipeannBatchAdd(PipeannSearch *search, int n, uint32 id)
{
	if (id >= search->codes->ncodes)
		return n;
	search->batch_ids[n] = id;
	search->batch_codes[n] = PipeannCodeAt(search->codes, id);
	__builtin_prefetch(search->batch_codes[n]);
	return n + PipeannIdSetAdd(&search->visited, id);
}

/* Whether a live node may be a result. */
static inline bool
PipeannIsWanted(const PipeannSearch *search, uint32 id,
				const PipeannSlot *slot)
{
	const PipeannSearchParams *params = &search->params;

	if (params->matches == NULL)
		return true;
	if (params->code_filter != NULL && id < search->codes->ncodes &&
		!PipeannCodePasses(search->codes, params->code_filter, id))
		return false;
	return params->matches(id, slot, params->matches_arg);
}

/*
 * Whether the nodes of pages at hand are candidates. They are only once
 * something was read, since what they save is reads.
 */
static inline bool
PipeannWantsPageMates(const PipeannSearch *search)
{
	return search->reads > 0 && PipeannIsOn(search, PIPEANN_PAGE_MATES);
}

extern void PipeannBatchToPool(PipeannSearch *search, int n);
extern void PipeannLookWhetherEnds(PipeannSearch *search, uint32 id,
								   const PipeannSlot *slot);
extern float PipeannScoreSlot(PipeannSearch *search, uint32 id,
							  const PipeannSlot *slot, bool wanted);
extern void PipeannScorePage(PipeannSearch *search, uint32 page,
							 const char *nodes, uint64 killed, bool join);
extern bool PipeannScoreNext(PipeannSearch *search);

#endif							/* PIPEANN_SEARCH_SCORE_H */
