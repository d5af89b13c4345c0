/*
 * pages.c
 *		Pages at hand, and the scoring of their nodes.
 */
#include "search/state.h"

#include <math.h>

#include "base/pause.h"
#include "distance/distance.h"

/* Computing distances: of candidates by their codes, and of nodes by their vectors. */

/* Compute the query's table of code distances, once. */
void
PipeannMakeTable(PipeannSearch *search)
{
	if (search->has_table)
		return;					/* it was made for the walk before this code scan */
	PipeannPqTable(&search->codes->pq, search->layout->metric, search->query,
				   search->table);
	search->has_table = true;
}

/* Whether a candidate gets into the pool; sets whether it matches as far as codes show. */
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
	const PipeannCodes *codes = search->codes;
	int			taken = 0;

	if (n == 0)
		return;
	for (int i = 0; i < n; i += PIPEANN_MOST_GATHERED)
	{
		int			count = Min(n - i, PIPEANN_MOST_GATHERED);

		if (codes->loader != NULL)
			PipeannGatherCodes(codes, search->batch.ids + i, count, search->batch.codes + i);
		PipeannPqScan(&codes->pq, search->layout->metric, search->table,
					  search->batch.codes + i, count, search->batch.dists + i);
	}
	PipeannCountCodeReads(search);
	search->source->counters->code_distances += n;
	for (int i = 0; i < n; i++)
	{
		PipeannCandidate *item = &search->batch.items[taken];
		float		dist = search->batch.dists[i];
		bool		matches;

		if (!Takes(search, search->batch.ids[i], dist, &matches))
		{
			PipeannPoolDiscard(&search->pool, search->batch.ids[i], dist);
			continue;
		}
		item->id = search->batch.ids[i];
		item->dist = dist;
		item->matches = matches;
		item->ref = PIPEANN_NO_REF;
		PipeannSetPage(search, item);
		taken++;
	}
	PipeannPoolMerge(&search->pool, search->batch.items, taken);
}

/*
 * Make the page-mates of entry points candidates (LAANN, algorithm 2). The
 * pages need not have been read: ids follow from the page number, and
 * distances from codes. Slots that a build leaves free are not considered.
 */
void
PipeannAddEntryPages(PipeannSearch *search)
{
	const PipeannLayout *l = search->layout;
	int			n = 0;

	for (int i = 0; i < search->nentry_pages; i++)
	{
		uint32		first = PipeannIdPage(l, search->entry_points[i]) *
			l->slots_per_page;

		if (n + (int) l->fill > search->batch.size)
		{
			PipeannBatchToPool(search, n);
			n = 0;
		}
		for (uint32 id = first; id < first + l->fill; id++)
			n = PipeannBatchAdd(search, n, &id, 1);
	}
	PipeannBatchToPool(search, n);
	search->nentry_pages = 0;
}

/*
 * The order key of a stored vector; query is in the form of the storage's kernels
 * (stored_query).
 */
float
PipeannExactDistance(const PipeannLayout *layout, const void *query,
					 const void *vector, PipeannStorage storage, float aux)
{
	if (layout->metric == PIPEANN_L2)
		return PipeannKernel->l2[storage] (query, vector, layout->dim);
	if (layout->metric == PIPEANN_IP)
		return -PipeannKernel->dot[storage] (query, vector, layout->dim);
	if (layout->metric == PIPEANN_COSINE)
		return -PipeannKernel->dot[storage] (query, vector, layout->dim) * aux;
	if (layout->metric == PIPEANN_L1)
		return PipeannKernel->l1[storage] (query, vector, layout->dim);
	if (layout->metric == PIPEANN_JACCARD)
		return PipeannKernel->jaccard(query, vector, layout->dim);
	/* the storage's sum in place of squared differences: for bits, the number that differ */
	return PipeannKernel->l2[storage] (query, vector, layout->dim);
}

/* End the search if a live node is what it was looking for. */
static void
LookWhetherEnds(PipeannSearch *search, uint32 id, const PipeannSlot *slot)
{
	if (search->params.ends_at == NULL || search->has_ended ||
		!search->params.ends_at(id, slot, search->params.arg))
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
												   search->params.arg);
	else
		dist = PipeannSlotDistance(search, slot);
	search->source->counters->exact_distances++;
	if (wanted)
	{
		float		error = PipeannSlotError(l, slot);
		PipeannRowList rows = PipeannSlotRows(l, slot);
		PipeannResult result = {.id = id,.ext_tids = slot->ext_tids,.dist = dist,.most = dist};

		if (error > 0 && !PIPEANN_PLANTED("order-recheck"))
			PipeannBoundsOf(&search->bounds, dist, error, slot->aux, &result.dist,
							&result.most);
		PipeannResultsAdd(&search->results, &result, &rows);
		if (search->termination.on)
			PipeannTerminationFound(&search->termination, dist,
									(uint32) search->results.count - 1);
	}
	LookWhetherEnds(search, id, slot);
	return dist;
}

/*
 * Add a page's live nodes to the results, except those scored already, and
 * those not wanted. With join all of them go to the pool, too.
 *
 * A node whose page is here costs no read to explore: if it is near enough for
 * the pool, it belongs there even though no node explored so far has an edge to
 * it. It joins by the distance of its code, as every candidate does: among poor
 * codes exact distances would all come first, or all last. The codes of
 * out-of-line vectors, for which the codebook was not made, are so poor that they
 * would keep nearer nodes on other pages out of the pool: such nodes do not join.
 */
static void
ScorePage(PipeannSearch *search, uint32 page, const char *nodes, uint64 scored,
		  bool join)
{
	const PipeannLayout *l = search->layout;
	int			n = 0;

	for (uint32 i = 0; i < l->slots_per_page; i++)
	{
		const PipeannSlot *slot = PipeannSlotAt(l, nodes, i);
		uint32		id = page * l->slots_per_page + i;

		if (!PipeannSlotIsLive(slot) || PipeannHasSlotBit(scored, i))
			continue;
		if (PipeannIsWanted(search, id, slot))
			(void) PipeannScoreSlot(search, id, slot, true);
		if (join && !PipeannIsPoorlyCoded(l, slot))
			n = PipeannBatchAdd(search, n, &id, 1);
	}
	if (join)
		PipeannBatchToPool(search, n);
	PipeannListSetBound(search);
}

/*
 * Announcing results that are likely to be returned, while the search waits.
 *
 * A result is settled when it is among the nearest that are wanted, and all
 * candidates left are, by their codes, farther. That is how an early end is
 * found, too (list.c). But here a wrong guess only costs a page of the table,
 * read for nothing. So codes are assumed to have average errors.
 */

/*
 * Call params.settled for each settled result, once. Does nothing unless a
 * page is being read.
 */
static void
TellSettled(PipeannSearch *search)
{
	PipeannTermination *termination = &search->termination;
	int			n = Min(search->params.most_settled, termination->count);
	PipeannPool *pool = &search->pool;
	float		left = INFINITY;	/* all candidates left are farther */

	if (!termination->on || search->source->in_flight == 0 || n == 0)
		return;
	if (PipeannPoolFirstOpen(pool) < pool->count)
		left = pool->items[pool->first_open].dist -
			PipeannTerminationMargin(termination, 0);
	for (int i = 0; i < n && termination->nearest[i].dist <= left; i++)
	{
		PipeannNearResult *nearest = &termination->nearest[i];
		const PipeannResult *result = &search->results.items[nearest->result];

		if (!nearest->told)
			search->params.settled(PipeannSearchRows(search, result),
								   search->params.arg);
		nearest->told = true;
	}
}

/* Start the queued reads, and announce settled results. */
void
PipeannStartReads(PipeannSearch *search)
{
	search->source->submit(search->source);
	TellSettled(search);
}

/*
 * Score one page that waits for it; false if there is none. Its nodes may join
 * the pool: positions in it are no longer valid.
 */
bool
PipeannScoreNext(PipeannSearch *search)
{
	PipeannPageRef *ref;

	if (search->unscored == PIPEANN_NO_REF)
		return false;
	ref = &search->refs[search->unscored];
	search->unscored = ref->next_unscored;
	ScorePage(search, ref->page, ref->frame->nodes, ref->slots,
			  PipeannWantsPageMates(search));
	return true;
}

/* Score pages until another page arrives, or wait for it. */
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
	TellSettled(search);
	frame = search->source->next(search->source, true);
	if (frame != NULL)
		PipeannNotePage(search, frame);
}

/* The pages that a search has requested. */

static uint32
AddRef(PipeannSearch *search, uint32 page)
{
	uint32		at;

	if (PipeannIdSetGet(&search->pages, page, &at))
		return at;
	at = search->pages.used;
	if (at == search->refs_size)
		PIPEANN_RESERVE(search->refs, search->refs_size,
						search->refs_size * 2);
	search->refs[at] = (PipeannPageRef) {.page = page};
	PipeannIdSetPut(&search->pages, page, at);
	return at;
}

/* The pool's candidates on the frame's page share it. */
static void
HoldFrame(PipeannSearch *search, uint32 at, PipeannFrame *frame, float dist)
{
	PipeannPool *pool = &search->pool;
	PipeannPageRef *ref = &search->refs[at];

	search->nheld++;
	ref->frame = frame;
	ref->dist = dist;
	frame->user = (void *) (uintptr_t) at;
	if (frame->hit)
		search->hits++;
	else if (search->reads++ == 0)
		PipeannListSetLength(search);
	for (int i = 0; i < pool->count; i++)
		if (pool->items[i].page == ref->page)
			pool->items[i].ref = at;
	if (frame->state == PIPEANN_FRAME_READY)
		PipeannNotePage(search, frame);
}

/* Request a page unless it is at hand or on its way. */
static void
Request(PipeannSearch *search, uint32 page, int slot, float dist)
{
	uint32		at = AddRef(search, page);

	if (search->refs[at].frame == NULL)
		HoldFrame(search, at, search->source->request(search->source, page, slot), dist);
}

/* The same for a node's page. */
void
PipeannRequestPageOf(PipeannSearch *search, uint32 id, float dist)
{
	Request(search, PipeannIdPage(search->layout, id), PipeannWantedSlot(search, id), dist);
}

/*
 * Look a candidate's page up; true if it is at hand now.
 */
bool
PipeannLookUpPage(PipeannSearch *search, int position)
{
	PipeannCandidate *item = &search->pool.items[position];
	PipeannFrame *frame =
		search->source->request_resident(search->source, item->page,
										 PipeannWantedSlot(search, item->id));

	if (frame == NULL)
	{
		item->absent = 1;
		return false;
	}
	HoldFrame(search, AddRef(search, item->page), frame, item->dist);
	return true;
}

/* Queue the page of refs[at], which is at hand, for scoring of all nodes. */
static void
QueueScoring(PipeannSearch *search, uint32 at)
{
	search->refs[at].next_unscored = search->unscored;
	search->unscored = at;
}

/*
 * Queue the page of refs[at], which is at hand, for scoring of the nodes not
 * scored yet, as they are in the current version of the page.
 */
static void
ScoreWholePage(PipeannSearch *search, uint32 at)
{
	PipeannPageRef *ref = &search->refs[at];

	if (ref->frame->slot != PIPEANN_ALL_SLOTS)
		search->source->load(search->source, ref->frame, PIPEANN_ALL_SLOTS);
	ref->by_node = false;
	QueueScoring(search, at);
}

/* Note that a page has arrived. */
void
PipeannNotePage(PipeannSearch *search, PipeannFrame *frame)
{
	uint32		at = (uint32) (uintptr_t) frame->user;
	PipeannPageRef *ref = &search->refs[at];

	search->pool.first_unseen = 0;
	if (ref->by_node && search->params.by_page)
	{
		ScoreWholePage(search, at);
		return;
	}
	if (ref->scored)
		return;
	ref->scored = true;
	ref->by_node = frame->slot != PIPEANN_ALL_SLOTS;
	if (!ref->by_node)
		QueueScoring(search, at);
}

/* A slot of a page at hand; valid until another slot of it is requested. */
const PipeannSlot *
PipeannGetSlot(PipeannSearch *search, PipeannPageRef *ref, uint32 slot)
{
	PipeannFrame *frame = ref->frame;

	if (frame->slot != PIPEANN_ALL_SLOTS && frame->slot != (int) slot)
		search->source->load(search->source, frame, slot);
	return PipeannSlotAt(search->layout, frame->nodes, slot);
}

/*
 * Searches in memory score the nodes that they explore, not whole pages.
 *
 * Page-mates save reads. If nothing is read, copying a page and scoring all of
 * its nodes takes longer than exploring one of them: a longer list gives the
 * same recall in less time. So until its first read a search takes from pages
 * in memory the slots that it explores, and scores those.
 *
 * A longer list does not help where codes do not show which nodes are near. Then
 * the nodes of all pages that the search has visited are scored in the end.
 */

/*
 * Codes are in doubt when the standard deviation of their errors, among the
 * nodes explored, is half that of these nodes' distances or more. For good
 * codes it is less than 0.4 of that; for codes of a fourth of the bytes, or of
 * two bytes for points of a plane, 0.7 and more.
 */
#define DOUBT 0.5
#define FEWEST_KNOWN 8

/* From now on score whole pages, including those at hand. */
static void
ScoreWholePages(PipeannSearch *search)
{
	search->params.by_page = true;
	for (uint32 i = 0; i < search->pages.used; i++)
	{
		const PipeannPageRef *ref = &search->refs[i];

		/* a page that was released may be on its way again, and is scored when it arrives */
		if (ref->by_node && PipeannRefIsReady(ref))
			ScoreWholePage(search, i);
	}
}

/*
 * A candidate that has rows was explored: score it, if its page was not
 * scored, and note the error of its code. (Its exact distance was computed
 * when its page arrived, but is not kept with it.) The codebook was not made
 * for out-of-line vectors: their codes put all codes in doubt, and the search
 * does not end early.
 */
void
PipeannNoteExplored(PipeannSearch *search, PipeannPageRef *ref,
					const PipeannCandidate *item, const PipeannSlot *slot)
{
	bool		wanted = PipeannIsWanted(search, item->id, slot);
	bool		poorly_coded = PipeannIsPoorlyCoded(search->layout, slot);
	float		code = item->dist;

	search->explored++;
	search->matching += wanted;
	if (ref->by_node)
	{
		float		exact;

		ref->slots |= (uint64) 1 << PipeannIdSlot(search->layout, item->id);
		exact = PipeannScoreSlot(search, item->id, slot, wanted);
		PipeannSampleAdd(&search->distances, exact);
		PipeannSampleAdd(&search->errors, (double) code - exact);
		if (poorly_coded)
			ScoreWholePages(search);
	}
	else
		LookWhetherEnds(search, item->id, slot);
	if (PipeannTerminationWantsError(&search->termination, search->params.one_of_several))
	{
		if (poorly_coded)
		{
			search->params.one_of_several = search->params.has_horizon = false;
			PipeannListForgetEarlyEnd(search);
		}
		else
		{
			PipeannSampleAdd(&search->termination.errors,
							 code - PipeannSlotDistance(search, slot));
			PipeannListSetBound(search);
		}
	}
}

/* The square of the standard deviation, times n. */
static double
Spread(const PipeannSample *sample)
{
	return sample->sum_of_squares - sample->sum * sample->sum / sample->n;
}

/*
 * Keeping to the memory that a search may have for pages (src/README).
 */

/*
 * At least half of the limit is for pages that candidates wait for: if all had
 * to make room for a large beam they would be read again.
 */
#define KEPT_PART 2

static bool
WaitsForPage(const PipeannCandidate *item)
{
	return !item->explored && item->ref != PIPEANN_NO_REF;
}

/*
 * Score pages that have arrived, and give back those that the search can do
 * without, so that there is room for others. Candidates whose pages are gone
 * request them again. The pages of chosen candidates are kept, since those are
 * not requested again, and those of the nearest others. The nearest of all is
 * kept whatever the limit: it is explored next, so that the search goes on.
 */
void
PipeannTrimPages(PipeannSearch *search, uint32 room)
{
	PipeannPool *pool = &search->pool;
	uint32		limit = search->params.max_pages;
	uint32		most = Max(limit - Min(room, limit / KEPT_PART), 1);
	uint32		kept = 0;

	while (PipeannScoreNext(search))
		;
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

	/* not reads in flight */
	for (uint32 i = 0; i < search->pages.used; i++)
	{
		PipeannPageRef *ref = &search->refs[i];

		if (!ref->kept && PipeannRefIsReady(ref))
		{
			search->source->release(search->source, ref->frame);
			ref->frame = NULL;
			search->nheld--;
		}
		ref->kept = false;
	}

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
 * After the list is explored: score all pages that the search has visited, if its codes
 * are unreliable; or those of the nearest candidates, as far as they are at hand.
 */
void
PipeannScoreRest(PipeannSearch *search)
{
	const PipeannPool *pool = &search->pool;

	for (int i = 0; i < Min(pool->count, search->params.near_pages); i++)
	{
		const PipeannCandidate *item = &pool->items[i];

		if (PipeannIsReady(search, item) && search->refs[item->ref].by_node)
			ScoreWholePage(search, item->ref);
	}
	if (search->params.near_pages == 0 && !search->params.by_page &&
		search->errors.n >= FEWEST_KNOWN &&
		Spread(&search->errors) > DOUBT * DOUBT * Spread(&search->distances))
		ScoreWholePages(search);

	/* pages that were given back are read again, one after the other */
	for (uint32 i = 0; search->params.by_page && i < search->pages.used; i++)
	{
		if (!search->refs[i].by_node || search->refs[i].frame != NULL)
			continue;
		PipeannKeepLimit(search, 0);
		Request(search, search->refs[i].page, PIPEANN_ALL_SLOTS, search->refs[i].dist);
		while (!PipeannRefIsReady(&search->refs[i]))
			PipeannAwaitPage(search);
	}
	while (PipeannScoreNext(search))
		;
}

/* Scoring every node, for an index too small to have codes. */

static void
ScoreVisited(uint32 page, const char *nodes, void *arg)
{
	ScorePage(arg, page, nodes, 0, false);
}

/* Score all nodes of graph pages 0 .. pages - 1, instead of searching. */
void
PipeannSearchExact(PipeannSearch *search, uint32 pages)
{
	PipeannVisitPages(search->source, pages, ScoreVisited, search);
}
