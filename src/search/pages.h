/*
 * pages.h
 *		Pages at hand, the scoring of their nodes, and exploring candidates one by one
 *		and in beams, which are chosen together; private to search/. Those that leave
 *		the pool leave their beam, too.
 */
#ifndef PIPEANN_SEARCH_PAGES_H
#define PIPEANN_SEARCH_PAGES_H

#include "search/state.h"

static inline int
PipeannBatchAddOne(PipeannSearch *search, int n, uint32 id, bool in_memory)
{
	if (id >= search->codes->ncodes)
		return n;
	search->batch.ids[n] = id;
	if (in_memory)
	{
		search->batch.codes[n] = PipeannCodeInMemory(search->codes, id);
		__builtin_prefetch(search->batch.codes[n]);
	}
	return n + PipeannIdSetAdd(&search->visited, id);
}

/*
 * Put nodes in the batch that were not visited before; returns the new length.
 * About every other neighbour was, so that this is no branch: the place of one
 * that was goes to the next. There is room for all that are looked at. Codes that
 * may not be in memory are gathered when the batch is measured.
 */
static inline int
PipeannBatchAdd(PipeannSearch *search, int n, const uint32 *ids, int count)
{
	if (likely(search->codes->loader == NULL))
		for (int i = 0; i < count; i++)
			n = PipeannBatchAddOne(search, n, ids[i], true);
	else
		for (int i = 0; i < count; i++)
			n = PipeannBatchAddOne(search, n, ids[i], false);
	return n;
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
 * Whether the nodes of pages at hand are candidates of a walk. They are only once
 * something was read, since what they save is reads.
 */
static inline bool
PipeannWantsPageMates(const PipeannSearch *search)
{
	return search->reads > 0 && !search->code_scan.begun;
}

/* The exact distance of a node by what its slot has. */
static inline float
PipeannSlotDistance(const PipeannSearch *search, const PipeannSlot *slot)
{
	const PipeannLayout *l = search->layout;

	return PipeannExactDistance(l, search->stored_query,
								PipeannSlotVector(l, slot), l->storage, slot->aux);
}

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

/* Whether a node was scored already, as a page-mate or before the code scan began. */
static inline bool
PipeannIsScored(const PipeannSearch *search, uint32 id)
{
	const PipeannLayout *l = search->layout;
	const PipeannPageRef *ref;
	uint32		at;

	if (!PipeannIdSetGet(&search->pages, PipeannIdPage(l, id), &at))
		return false;
	ref = &search->refs[at];
	return ref->scored && (!ref->by_node ||
						   PipeannHasSlotBit(ref->slots, PipeannIdSlot(l, id)));
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
extern void PipeannMakeTable(PipeannSearch *search);
extern void PipeannBatchToPool(PipeannSearch *search, int n);
extern void PipeannAddEntryPages(PipeannSearch *search);
extern float PipeannScoreSlot(PipeannSearch *search, uint32 id,
							  const PipeannSlot *slot, bool wanted);
extern bool PipeannScoreNext(PipeannSearch *search);
extern void PipeannAwaitPage(PipeannSearch *search);
extern void PipeannNoteExplored(PipeannSearch *search, PipeannPageRef *ref,
								const PipeannCandidate *item,
								const PipeannSlot *slot);
extern void PipeannScoreRest(PipeannSearch *search);
extern void PipeannRequestPage(PipeannSearch *search, int position);
extern void PipeannRequestPageOf(PipeannSearch *search, uint32 id, float dist);
extern void PipeannNotePage(PipeannSearch *search, PipeannFrame *frame);
extern void PipeannStartReads(PipeannSearch *search);
extern void PipeannPrefetchNearest(PipeannSearch *search, int width);
extern const PipeannSlot *PipeannGetSlot(PipeannSearch *search,
										 PipeannPageRef *ref, uint32 slot);

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
	if (search->unscored != PIPEANN_NO_REF && PipeannWantsPageMates(search))
		while (PipeannScoreNext(search))
			;
}

/* pipeline_width, or else a policy's own. */
static inline int
PipeannWidth(const PipeannSearch *search, int own)
{
	return search->params.width > 0 ? search->params.width : own;
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

#endif							/* PIPEANN_SEARCH_PAGES_H */
