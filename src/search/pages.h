/*
 * pages.h
 *		The pages that a search has asked for; private to search/.
 */
#ifndef PIPEANN_SEARCH_PAGES_H
#define PIPEANN_SEARCH_PAGES_H

#include "search/state.h"

/* Ask for a candidate's page; its page-mates in the pool share it. */
extern void PipeannRequestPage(PipeannSearch *search, int position);

/* Ask for the page of a node that is no candidate. */
extern void PipeannRequestPageOf(PipeannSearch *search, uint32 id, float dist);

/* Ask for the page of refs[at], which was given back. */
extern void PipeannRequestAgain(PipeannSearch *search, uint32 at);

/* Look a candidate's page up; true if it is at hand now. */
extern bool PipeannLookUpPage(PipeannSearch *search, int position);

/* Note that a page has come. */
extern void PipeannNotePage(PipeannSearch *search, PipeannFrame *frame);

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

/*
 * Have the processor fetch the width nearest nodes in no beam, while nothing has
 * to be read.
 */
extern void PipeannPrefetchNearest(PipeannSearch *search, int width);

/* A slot of a page at hand, until another of it is asked for. */
extern const PipeannSlot *PipeannGetSlot(PipeannSearch *search,
										 PipeannPageRef *ref, uint32 slot);

/* Note which nodes of a page at hand have dead rows only. */
extern void PipeannNoteKilled(PipeannSearch *search, PipeannPageRef *ref);

/* Whether a slot's bit is set. */
static inline bool
PipeannHasSlotBit(uint64 bits, uint32 slot)
{
	return slot < PIPEANN_MASKED_SLOTS && ((bits >> slot) & 1);
}

/* Have all nodes of a page at hand scored: refs[at]. */
extern void PipeannQueueScoring(PipeannSearch *search, uint32 at);

/* Have those nodes of a page at hand scored that are not yet: refs[at]. */
extern void PipeannScoreWholePage(PipeannSearch *search, uint32 at);

/* Give all pages back. */
extern void PipeannReleasePages(PipeannSearch *search);

/* Whether more pages are at hand or on their way than the search may keep. */
static inline bool
PipeannHoldsTooMany(const PipeannSearch *search)
{
	return search->nheld > search->params.max_pages;
}

/*
 * limit.c: score pages that came, and give back what the search can do without, so
 * that there is room for others
 */
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

/* limit.c: score what is left of pages given back before codes were in doubt */
extern void PipeannScoreReleasedPages(PipeannSearch *search);

#endif							/* PIPEANN_SEARCH_PAGES_H */
