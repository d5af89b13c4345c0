/*
 * explore.c
 *		Exploring candidates, and waiting for their pages.
 */
#include "search/explore.h"

#include "search/by_node.h"
#include "search/list.h"
#include "search/pages.h"
#include "search/settled.h"

/*
 * Note by how much a candidate's code is wrong. (Its exact distance was computed
 * when its page came, but is not kept with it.) Where there are out-of-line
 * vectors, whose codes were made for others, nobody knows, and the search does
 * not end early.
 */
static void
SampleError(PipeannSearch *search, const PipeannCandidate *item,
			const PipeannSlot *slot)
{
	const PipeannLayout *l = search->layout;

	if (!PipeannTerminationWantsError(&search->termination))
		return;
	if (slot->flags & PIPEANN_SLOT_OUT_OF_LINE)
	{
		PipeannListDistrustCodes(search);
		return;
	}
	PipeannTerminationError(&search->termination, item->dist -
							PipeannExactDistance(l, search->query,
												 PipeannSlotVector(l, slot),
												 l->storage, slot->aux));
	PipeannListSetBound(search);
}

/*
 * Explore a candidate whose page is at hand, but put its neighbours into the batch,
 * which has n by now, and not into the pool; returns how many it has then.
 * Positions in the pool stay.
 *
 * Neighbour ids come from disk: those that no code covers are passed over (by
 * PipeannBatchAdd), and a slot that is no node has none.
 */
int
PipeannExploreToBatch(PipeannSearch *search, int position, int n)
{
	const PipeannLayout *l = search->layout;
	const PipeannCandidate *item = &search->pool.items[position];
	PipeannPageRef *ref = &search->refs[item->ref];
	const PipeannSlot *slot;
	int			degree;

	PipeannPoolSetExplored(&search->pool, position);
	search->counters->nodes_explored++;
	slot = PipeannGetSlot(search, ref, PipeannIdSlot(l, item->id));
	if (!PipeannSlotIsNode(slot))
		return n;
	if (PipeannSlotIsLive(slot) &&
		!PipeannHasSlotBit(ref->killed, PipeannIdSlot(l, item->id)))
	{
		bool		wanted = PipeannIsWanted(search, item->id, slot);

		search->explored++;
		search->matching += wanted;
		if (ref->by_node)
			PipeannScoreExplored(search, ref, item, slot, wanted);
		SampleError(search, item, slot);
		PipeannLookWhetherEnds(search, item->id, slot);
	}

	degree = PipeannSlotDegree(l, slot);
	for (int i = 0; i < degree; i++)
		n = PipeannBatchAdd(search, n, slot->neighbors[i]);
	return n;
}

/* Make the neighbours of a candidate whose page is at hand candidates. */
void
PipeannExplore(PipeannSearch *search, int position)
{
	PipeannBatchToPool(search, PipeannExploreToBatch(search, position, 0));
}

/* Nearest unexplored candidate whose page is at hand, or -1. */
int
PipeannNearestReady(PipeannSearch *search)
{
	PipeannPool *pool = &search->pool;

	for (int i = PipeannPoolFirstOpen(pool); i < pool->count; i++)
		if (!pool->items[i].explored &&
			PipeannIsReady(search, &pool->items[i]))
			return i;
	return -1;
}

/* Score pages until one more comes, or wait for it. */
void
PipeannAwaitPage(PipeannSearch *search)
{
	PipeannFrame *frame;

	CHECK_FOR_INTERRUPTS();
	while (PipeannScoreNext(search))
		if ((frame = search->source->next(search->source, false)) != NULL)
		{
			PipeannNotePage(search, frame);
			return;
		}
	PipeannTellSettled(search);
	frame = search->source->next(search->source, true);
	if (frame != NULL)
		PipeannNotePage(search, frame);
}
