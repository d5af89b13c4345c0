/*
 * score.c
 *		Distances of candidates by their codes, and of nodes by their vectors.
 */
#include "search/score.h"

#include "base/planted.h"

#include "distance/distance.h"
#include "search/list.h"
#include "search/pages.h"
#include "search/together.h"

/* Whether a candidate comes into the pool, and if it matches as far as codes tell. */
static inline bool
Takes(PipeannSearch *search, uint32 id, float dist, bool *matches)
{
	*matches = false;
	if (!PipeannPoolTakes(&search->pool, dist))
		return false;
	if (search->pool.matching == 0)
		return true;
	*matches = PipeannCodePasses(search->codes, search->params.code_filter, id);
	return *matches || PipeannPoolTakesInHead(&search->pool, dist);
}

/* Add the first n nodes of the batch to the pool, by their codes' distances. */
void
PipeannBatchToPool(PipeannSearch *search, int n)
{
	int			taken = 0;

	if (n == 0)
		return;
	PipeannKernel->pq_scan(search->table, search->codes->pq.nchunks,
						   search->batch_codes, n, search->batch_dists);
	search->counters->code_distances += n;
	if (search->params.together != NULL)
		PipeannTogetherNote(search->params.together, search->batch_dists, n);
	for (int i = 0; i < n; i++)
	{
		PipeannCandidate *item = &search->batch[taken];
		float		dist = search->batch_dists[i];
		bool		matches;

		if (!Takes(search, search->batch_ids[i], dist, &matches))
		{
			PipeannPoolDiscard(&search->pool, search->batch_ids[i], dist);
			continue;
		}
		item->id = search->batch_ids[i];
		item->dist = dist;
		item->matches = matches;
		item->ref = PIPEANN_NO_REF;
		PipeannSetPage(search, item);
		taken++;
	}
	PipeannPoolMerge(&search->pool, search->batch, taken);
	if (search->params.together != NULL)
		PipeannListSetBound(search);
}

/* The order key of one stored vector for a query, with its slot's aux. */
float
PipeannExactDistance(const PipeannLayout *layout, const float *query,
					 const void *vector, PipeannStorage storage, float aux)
{
	switch (layout->metric)
	{
		case PIPEANN_L2:
			return PipeannKernel->l2[storage] (query, vector, layout->dim);
		case PIPEANN_IP:
			return -PipeannKernel->dot[storage] (query, vector, layout->dim);
		default:
			return -PipeannKernel->dot[storage] (query, vector,
												 layout->dim) * aux;
	}
}

static void
AddResult(PipeannSearch *search, uint32 id, const PipeannSlot *slot,
		  float dist)
{
	const PipeannLayout *l = search->layout;
	float		error = PipeannSlotError(l, slot);
	PipeannRowList rows = PipeannSlotRows(l, slot);
	PipeannResult result;

	result.ext_tids = slot->ext_tids;
	result.id = id;
	result.dist = result.most = dist;
	if (error > 0 && !PIPEANN_PLANTED("order-recheck"))
		PipeannBoundsOf(&search->bounds, dist, error, slot->aux, &result.dist,
						&result.most);
	PipeannResultsAdd(&search->results, &result, &rows);
	if (search->termination.on)
		PipeannTerminationFound(&search->termination, dist,
								(uint32) search->results.count - 1);
}

/* End the search if a live node is what it was looking for. */
void
PipeannLookWhetherEnds(PipeannSearch *search, uint32 id,
					   const PipeannSlot *slot)
{
	if (search->params.ends_at == NULL || search->has_ended ||
		!search->params.ends_at(id, slot, search->params.ends_at_arg))
		return;
	search->has_ended = true;
	PipeannListSetBound(search);
}

/*
 * Compute the exact distance of the node in a slot, and add it to the results if it
 * is wanted.
 */
float
PipeannScoreSlot(PipeannSearch *search, uint32 id, const PipeannSlot *slot,
				 bool wanted)
{
	const PipeannLayout *l = search->layout;
	float		dist;

	if (slot->flags & PIPEANN_SLOT_OUT_OF_LINE)
		dist = search->params.out_of_line_distance(id, slot,
												   search->params.out_of_line_arg);
	else
		dist = PipeannExactDistance(l, search->query,
									PipeannSlotVector(l, slot), l->storage,
									slot->aux);
	search->counters->exact_distances++;
	if (wanted)
		AddResult(search, id, slot, dist);
	PipeannLookWhetherEnds(search, id, slot);
	return dist;
}

/*
 * Add a page's live nodes to the results, but for slots killed (of the first
 * 64), and those that are not wanted. With join all of them go to the pool, too.
 *
 * A node whose page is here costs no read to explore: if it is near enough for
 * the pool, it belongs there even though no node explored so far has an edge
 * to it. It joins by the distance of its code, as every candidate does: where
 * codes are poor, exact distances among them would come all first or all last.
 * The codes of out-of-line vectors, made for others, are so poor that they would
 * keep nearer nodes on other pages out of the pool: these do not join.
 */
void
PipeannScorePage(PipeannSearch *search, uint32 page, const char *nodes,
				 uint64 killed, bool join)
{
	const PipeannLayout *l = search->layout;
	int			n = 0;

	for (uint32 i = 0; i < l->slots_per_page; i++)
	{
		const PipeannSlot *slot = PipeannSlotAt(l, nodes, i);
		uint32		id = page * l->slots_per_page + i;

		if (!PipeannSlotIsLive(slot) || PipeannHasSlotBit(killed, i))
			continue;
		if (PipeannIsWanted(search, id, slot))
			(void) PipeannScoreSlot(search, id, slot, true);
		if (join && !(slot->flags & PIPEANN_SLOT_OUT_OF_LINE))
			n = PipeannBatchAdd(search, n, id);
	}
	if (join)
		PipeannBatchToPool(search, n);
	PipeannListSetBound(search);
}

/*
 * Score one page that waits for it; false if there is none. Its nodes may join
 * the pool: positions in it are not to be relied on any more.
 */
bool
PipeannScoreNext(PipeannSearch *search)
{
	PipeannPageRef *ref;

	if (search->nunscored == 0)
		return false;
	ref = &search->refs[search->unscored[--search->nunscored]];
	PipeannScorePage(search, ref->page, ref->frame->nodes, ref->killed,
					 PipeannWantsPageMates(search));
	return true;
}
