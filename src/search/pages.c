/*
 * pages.c
 *		The pages that a search has asked for.
 */
#include "search/pages.h"

#include "search/list.h"

static uint32
AddRef(PipeannSearch *search, uint32 page)
{
	uint32		at;

	if (PipeannIdSetGet(&search->pages, page, &at))
		return at;
	if (search->nrefs == search->refs_size)
	{
		search->refs = PipeannRealloc(search->refs,
									  mul_size(search->refs_size * 2,
											   sizeof(PipeannPageRef)));
		search->refs_size *= 2;
	}
	at = search->nrefs++;
	search->refs[at].page = page;
	search->refs[at].scored = false;
	search->refs[at].by_node = false;
	search->refs[at].kept = false;
	search->refs[at].slots = 0;
	search->refs[at].killed = 0;
	search->refs[at].version = 0;
	search->refs[at].frame = NULL;
	PipeannIdSetPut(&search->pages, page, at);
	return at;
}

/* Set the ref of the pool's candidates on this page. */
static void
SetRefs(PipeannSearch *search, uint32 page, uint32 at)
{
	PipeannPool *pool = &search->pool;

	for (int i = 0; i < pool->count; i++)
		if (pool->items[i].page == page)
			pool->items[i].ref = at;
}

static void
CountPage(PipeannSearch *search, bool hit)
{
	if (hit)
		search->hits++;
	else if (search->reads++ == 0)
		PipeannListNoteFirstRead(search);
}

static void
HoldFrame(PipeannSearch *search, uint32 at, PipeannFrame *frame, float dist)
{
	PipeannPageRef *ref = &search->refs[at];

	search->nheld++;
	ref->frame = frame;
	ref->dist = dist;
	frame->user = (void *) (uintptr_t) at;
	CountPage(search, frame->hit);
	SetRefs(search, ref->page, at);
	if (frame->state == PIPEANN_FRAME_READY)
		PipeannNotePage(search, frame);
}

/* What is wanted of a node's page if it is resident. */
static int
WantedSlot(const PipeannSearch *search, uint32 id)
{
	return PipeannIsOn(search, PIPEANN_NODE_HITS) && search->reads == 0 ?
		(int) PipeannIdSlot(search->layout, id) : PIPEANN_ALL_SLOTS;
}

static void
RequestRef(PipeannSearch *search, uint32 page, uint32 id, float dist)
{
	uint32		at = AddRef(search, page);
	PipeannFrame *frame = search->source->request(search->source, page,
												  WantedSlot(search, id));

	HoldFrame(search, at, frame, dist);
}

/* Ask for a candidate's page; its page-mates in the pool share it. */
void
PipeannRequestPage(PipeannSearch *search, int position)
{
	const PipeannCandidate *item = &search->pool.items[position];

	RequestRef(search, item->page, item->id, item->dist);
}

/* Ask for the page of a node that is no candidate. */
void
PipeannRequestPageOf(PipeannSearch *search, uint32 id, float dist)
{
	uint32		page = PipeannIdPage(search->layout, id);
	uint32		at;

	if (!PipeannIdSetGet(&search->pages, page, &at))
		RequestRef(search, page, id, dist);
}

/* Ask for the page of refs[at], which was given back. */
void
PipeannRequestAgain(PipeannSearch *search, uint32 at)
{
	uint32		page = search->refs[at].page;

	HoldFrame(search, at,
			  search->source->request(search->source, page, PIPEANN_ALL_SLOTS),
			  search->refs[at].dist);
}

/*
 * Look a candidate's page up; true if it is at hand now.
 *
 * What searches together do before one reads depends on whether they have to: this
 * must not be a guess, as they begin in many places that nobody asks for in the end.
 */
bool
PipeannLookUpPage(PipeannSearch *search, int position)
{
	PipeannCandidate *item = &search->pool.items[position];
	bool		sure = search->params.together != NULL && search->reads == 0;
	PipeannFrame *frame =
		search->source->request_resident(search->source, item->page,
										 WantedSlot(search, item->id), sure);

	if (frame == NULL)
	{
		item->absent = 1;
		return false;
	}
	HoldFrame(search, AddRef(search, item->page), frame, item->dist);
	return true;
}

/*
 * A read that arrives for a candidate which has left the pool was wasted
 * (PipeANN 4.2.3 widens the pipe while few are).
 */
static void
CountWaste(PipeannSearch *search, const PipeannPageRef *ref)
{
	const PipeannPool *pool = &search->pool;

	if (pool->count < pool->length ||
		ref->dist <= pool->items[pool->length - 1].dist)
		search->reads_in++;
	else
		search->reads_out++;
}

/*
 * Note which nodes of a page at hand have dead rows only.
 *
 * What is known of dead rows is of one version of the page: if results are there
 * of another, there is no version for both.
 */
void
PipeannNoteKilled(PipeannSearch *search, PipeannPageRef *ref)
{
	uint64		version;

	if (search->params.killed == NULL)
		return;
	ref->killed = search->params.killed(ref->page, ref->frame->nodes, &version,
										search->params.killed_arg);
	ref->version = !ref->scored || ref->version == version ? version : 0;
}

/*
 * Have those nodes of a page at hand scored that are not yet: refs[at].
 *
 * Of nodes not scored until now it is what the page is now that counts.
 */
void
PipeannScoreWholePage(PipeannSearch *search, uint32 at)
{
	PipeannPageRef *ref = &search->refs[at];

	if (ref->frame->slot != PIPEANN_ALL_SLOTS)
		search->source->load(search->source, ref->frame, PIPEANN_ALL_SLOTS);
	PipeannNoteKilled(search, ref);
	ref->killed |= ref->slots;
	ref->by_node = false;
	PipeannQueueScoring(search, at);
}

/* Note that a page has come. */
void
PipeannNotePage(PipeannSearch *search, PipeannFrame *frame)
{
	uint32		at = (uint32) (uintptr_t) frame->user;
	PipeannPageRef *ref = &search->refs[at];

	search->pool.first_unseen = 0;
	if (!frame->hit)
		CountWaste(search, ref);
	if (ref->by_node && !PipeannIsOn(search, PIPEANN_NODE_HITS))
	{
		PipeannScoreWholePage(search, at);
		return;
	}
	if (ref->by_node || !ref->scored)
		PipeannNoteKilled(search, ref);
	if (ref->scored)
		return;
	ref->scored = true;
	ref->by_node = frame->slot != PIPEANN_ALL_SLOTS;
	if (!ref->by_node)
		PipeannQueueScoring(search, at);
}

/* Have all nodes of a page at hand scored: refs[at]. */
void
PipeannQueueScoring(PipeannSearch *search, uint32 at)
{
	if (search->nunscored == search->unscored_size)
	{
		search->unscored = PipeannRealloc(search->unscored,
										  mul_size(search->unscored_size * 2,
												   sizeof(uint32)));
		search->unscored_size *= 2;
	}
	search->unscored[search->nunscored++] = at;
}

/*
 * Have the processor fetch the width nearest nodes in no beam, while nothing has
 * to be read.
 *
 * To pin a buffer takes an atomic operation, which waits for all that was begun
 * before: without this, slots would come from memory one after the other.
 */
void
PipeannPrefetchNearest(PipeannSearch *search, int width)
{
	const PipeannPool *pool = &search->pool;

	if (search->reads > 0)
		return;
	for (int i = PipeannPoolFirstOpen(&search->pool);
		 i < pool->count && width > 0; i++)
	{
		const PipeannCandidate *item = &pool->items[i];

		if (item->explored || item->beam != 0)
			continue;
		if (!item->absent)
			search->source->prefetch(search->source, item->page,
									 WantedSlot(search, item->id));
		width--;
	}
}

/* A slot of a page at hand, until another of it is asked for. */
const PipeannSlot *
PipeannGetSlot(PipeannSearch *search, PipeannPageRef *ref, uint32 slot)
{
	PipeannFrame *frame = ref->frame;

	if (frame->slot != PIPEANN_ALL_SLOTS && frame->slot != (int) slot)
	{
		search->source->load(search->source, frame, slot);
		PipeannNoteKilled(search, ref);
	}
	return PipeannSlotAt(search->layout, frame->nodes, slot);
}

/* Give all pages back. */
void
PipeannReleasePages(PipeannSearch *search)
{
	for (uint32 i = 0; i < search->nrefs; i++)
	{
		if (search->refs[i].frame != NULL)
			search->source->release(search->source, search->refs[i].frame);
		search->refs[i].frame = NULL;
	}
	search->nheld = 0;
}
