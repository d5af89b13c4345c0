/*
 * pages.h
 *		The pages that a search has asked for; private to search/.
 */
#ifndef PIPEANN_SEARCH_PAGES_H
#define PIPEANN_SEARCH_PAGES_H

#include "search/state.h"

extern bool PipeannLookUpPage(PipeannSearch *search, int position);

/* Whether a candidate's page is at hand. */
static inline bool
PipeannIsReady(const PipeannSearch *search, const PipeannCandidate *item)
{
	const PipeannFrame *frame;

	if (item->ref == PIPEANN_NO_REF)
		return false;
	frame = search->refs[item->ref].frame;
	return frame != NULL && frame->state == PIPEANN_FRAME_READY;
}

/*
 * Whether a candidate's page is at hand, or can be had without a read; looks
 * it up once.
 */
static inline bool
PipeannIsAtHand(PipeannSearch *search, int position)
{
	const PipeannCandidate *item = &search->pool.items[position];

	if (item->ref != PIPEANN_NO_REF)
		return PipeannIsReady(search, item);
	return !item->absent && PipeannLookUpPage(search, position);
}

/*
 * Set what a new candidate does not know yet: its page, and where that is in
 * the page table if it is at hand or on its way.
 */
static inline void
PipeannSetPage(PipeannSearch *search, PipeannCandidate *item)
{
	uint32		at;

	item->page = PipeannIdPage(search->layout, item->id);
	if (PipeannIdSetGet(&search->pages, item->page, &at) &&
		search->refs[at].frame != NULL)
		item->ref = at;
}

/* Whether a slot's bit is set. */
static inline bool
PipeannHasSlotBit(uint64 bits, uint32 slot)
{
	return slot < PIPEANN_MASKED_SLOTS && ((bits >> slot) & 1);
}

/* Whether more pages are at hand or on their way than the search may keep. */
static inline bool
PipeannHoldsTooMany(const PipeannSearch *search)
{
	return search->nheld > search->params.max_pages;
}

extern void PipeannTrimPages(PipeannSearch *search, uint32 room);

/*
 * Do so if the search holds too many. Nodes may join the pool: positions in it are
 * not to be relied on any more.
 */
static inline void
PipeannKeepLimit(PipeannSearch *search, uint32 room)
{
	if (unlikely(PipeannHoldsTooMany(search)))
		PipeannTrimPages(search, room);
}

/* pages.c */
extern void PipeannRequestPage(PipeannSearch *search, int position);
extern void PipeannRequestPageOf(PipeannSearch *search, uint32 id, float dist);
extern void PipeannRequestAgain(PipeannSearch *search, uint32 at);
extern void PipeannNotePage(PipeannSearch *search, PipeannFrame *frame);
extern void PipeannPrefetchNearest(PipeannSearch *search, int width);
extern const PipeannSlot *PipeannGetSlot(PipeannSearch *search,
										 PipeannPageRef *ref, uint32 slot);
extern void PipeannNoteKilled(PipeannSearch *search, PipeannPageRef *ref);
extern void PipeannQueueScoring(PipeannSearch *search, uint32 at);
extern void PipeannScoreWholePage(PipeannSearch *search, uint32 at);
extern void PipeannReleasePages(PipeannSearch *search);

/* limit.c */
extern void PipeannScoreReleasedPages(PipeannSearch *search);

#endif							/* PIPEANN_SEARCH_PAGES_H */
