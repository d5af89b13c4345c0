/*
 * limit.c
 *		Keeping to the memory that a search may have for pages.
 *
 * A page has done what it is there for when its nodes are scored and those that
 * are candidates are explored. Results have their own distances and TIDs. So most
 * pages that are at hand can be given back at any time, and what is kept of them
 * (PipeannPageRef) sees to it that nothing is scored twice if one comes again.
 */
#include "search/pages.h"
#include "search/policy.h"

/*
 * At least half of the limit is for pages that candidates wait for: to make room
 * for a large beam they would all be read again.
 */
#define KEPT_PART 2

static uint32
MostKept(const PipeannSearch *search, uint32 room)
{
	uint32		most = search->params.max_pages;

	return Max(most - Min(room, most / KEPT_PART), 1);
}

static bool
WaitsForPage(const PipeannCandidate *item)
{
	return !item->explored && item->ref != PIPEANN_NO_REF;
}

/*
 * Keep the pages of candidates that were chosen, since nobody asks for those
 * again, and of the nearest others. The nearest of all is kept whatever the limit:
 * it is explored next, so that the search goes on.
 */
static void
MarkKept(PipeannSearch *search, uint32 most)
{
	const PipeannPool *pool = &search->pool;
	uint32		kept = 0;

	for (int i = 0; i < pool->count; i++)
		if (WaitsForPage(&pool->items[i]) && pool->items[i].beam != 0)
			search->refs[pool->items[i].ref].kept = true;
	for (int i = 0; i < pool->count && kept < most; i++)
	{
		const PipeannCandidate *item = &pool->items[i];

		if (!WaitsForPage(item) || search->refs[item->ref].kept)
			continue;
		search->refs[item->ref].kept = true;
		kept += PipeannIsReady(search, item);
	}
}

/* Give back what is not kept, but for reads in flight. */
static void
ReleaseOthers(PipeannSearch *search)
{
	for (uint32 i = 0; i < search->nrefs; i++)
	{
		PipeannPageRef *ref = &search->refs[i];

		if (ref->frame != NULL && !ref->kept &&
			ref->frame->state == PIPEANN_FRAME_READY)
		{
			search->source->release(search->source, ref->frame);
			ref->frame = NULL;
			search->nheld--;
		}
		ref->kept = false;
	}
}

/* Candidates whose pages are gone ask for them again. */
static void
ForgetReleased(PipeannSearch *search)
{
	PipeannPool *pool = &search->pool;

	for (int i = 0; i < pool->count; i++)
	{
		PipeannCandidate *item = &pool->items[i];

		if (!WaitsForPage(item) || search->refs[item->ref].frame != NULL)
			continue;
		item->ref = PIPEANN_NO_REF;
		item->absent = 0;
		pool->first_unread = Min(pool->first_unread, i);
	}
	pool->first_unseen = 0;
}

/*
 * Score pages that came, and give back what the search can do without, so
 * that there is room for others.
 */
void
PipeannTrimPages(PipeannSearch *search, uint32 room)
{
	while (PipeannScoreNext(search))
		;
	MarkKept(search, MostKept(search, room));
	ReleaseOthers(search);
	ForgetReleased(search);
}
