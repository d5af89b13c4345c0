/*
 * engine.c
 *		The steps that every policy is made of.
 */
#include "search/engine.h"

#include <math.h>

#include "distance/distance.h"

/* The set of nodes visited begins with room for those of ef explored. */
#define MIN_VISITED 4096
#define MAX_VISITED 65536
#define FIRST_PAGES 1024

/*
 * A continued search explores as many candidates again as it has explored so
 * far, but no more than this at a time: the pool is a sorted array.
 */
#define MAX_POOL 1000

/* Length of LAANN's candidate pool, in units of L (its mu). */
#define OVERFLOW 2.4f

/*
 * Searches that may end early go on when they are hard, for up to this many
 * candidates more: with what easy ones save that gives as good results on
 * average. What is on pages at hand is explored so while others are read, which
 * costs no reads and saves some. (With a list twice as long instead, at ef = 10
 * to 22, SIFT and MiniLM read a tenth more pages at equal recall.) However
 * precise the codes are, a part of the list is explored: the short way to what
 * is near may not be through what is near by now.
 */
#define BEYOND 100
#define LEAST_PART 4

/*
 * Pages in memory for each one read from which on a search explores its whole
 * list. An early end saves reads; in memory a shorter list takes no longer at
 * equal recall. (GloVe, at 0.95, an early end takes 0.85 to 0.86 of the time
 * with up to 30 % of the pages resident, as long with 60, 1.11 times with 90.)
 */
#define MOST_HITS 8

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

/*
 * About half of the neighbours of a node explored were visited before, a search
 * that reads may explore two lists, and the set stays at most half full: growing
 * it took 3 % of a search's time.
 */
static uint32
FirstVisited(const PipeannLayout *layout, int length)
{
	uint64		wanted = (uint64) length * layout->max_degree * 4;
	uint32		slots = MIN_VISITED;

	while (slots < wanted && slots < MAX_VISITED)
		slots *= 2;
	return slots;
}

static void
InitPool(PipeannSearch *search, int ef)
{
	if (search->params.may_end_early &&
		PipeannIsOn(search, PIPEANN_ADAPTIVE_STOP))
		PipeannTerminationInit(&search->termination, search->layout->metric, ef);
	PipeannPoolReset(&search->pool, PipeannLengthInMemory(search));
	search->pool.least = (ef + LEAST_PART - 1) / LEAST_PART;
}

/*
 * What a list of this length takes with the overflow area. A list that goes beyond
 * twice ef has its own already: more is explored for nothing where processors are
 * wanted by others. (8 clients on a fast disk, SIFT: 0.87 of the queries.)
 */
static int
CapacityFor(const PipeannSearch *search, int length)
{
	int			wanted = search->termination.on ?
		Min(length, 2 * Max(search->params.ef, 1)) : length;

	return search->params.mode == PIPEANN_LOOK_AHEAD && search->reads > 0 &&
		PipeannIsOn(search, PIPEANN_OVERFLOW_POOL) ?
		Max(length, (int) (wanted * OVERFLOW)) : length;
}

/*
 * Now there may be time to explore what overflows, and something to be gained by
 * an early end: in memory a larger pool only takes longer to keep sorted.
 */
static void
FirstRead(PipeannSearch *search)
{
	int			length = search->termination.on ?
		Max(search->params.ef, 1) + BEYOND : PipeannListToExplore(search);

	if (search->continued)
		length = search->pool.length;
	search->pool.length = length;
	PipeannPoolWiden(&search->pool, length, CapacityFor(search, length));
}

static void
CountPage(PipeannSearch *search, bool hit)
{
	if (hit)
		search->hits++;
	else if (search->reads++ == 0)
		FirstRead(search);
}

PipeannSearch *
PipeannSearchCreate(void)
{
	PipeannSearch *search = PipeannAllocZero(sizeof(PipeannSearch));

	search->refs = PipeannAlloc(FIRST_PAGES * sizeof(PageRef));
	search->refs_size = FIRST_PAGES;
	search->unscored = PipeannAlloc(FIRST_PAGES * sizeof(uint32));
	search->unscored_size = FIRST_PAGES;
	return search;
}

/* A larger array in the place of one whose contents are not wanted. */
static void *
Again(void *array, int n, Size element)
{
	void	   *larger = PipeannAlloc(mul_size(n, element));

	if (array != NULL)
		pfree(array);
	return larger;
}

static void
ReserveTable(PipeannSearch *search, int nchunks)
{
	if (nchunks <= search->table_size)
		return;
	search->table = Again(search->table, nchunks,
						  PIPEANN_CENTROIDS * sizeof(float));
	search->table_size = nchunks;
}

static void
ReserveBatch(PipeannSearch *search, int size)
{
	if (size <= search->batch_size)
		return;
	search->batch_ids = Again(search->batch_ids, size, sizeof(uint32));
	search->batch_codes = Again(search->batch_codes, size, sizeof(uint8 *));
	search->batch_dists = Again(search->batch_dists, size, sizeof(float));
	search->batch = Again(search->batch, size, sizeof(PipeannCandidate));
	memset(search->batch, 0, size * sizeof(PipeannCandidate));
	search->batch_size = size;
}

static void
ReserveMemory(PipeannSearch *search)
{
	const PipeannLayout *layout = search->layout;
	const PipeannCodes *codes = search->codes;

	PipeannResultsReset(&search->results);
	PipeannIdSetReset(&search->pages, FIRST_PAGES, true);
	if (codes == NULL)
		return;
	ReserveTable(search, codes->pq.nchunks);
	InitPool(search, Max(search->params.ef, 1));
	PipeannIdSetReset(&search->visited,
					  FirstVisited(layout, search->pool.length), false);
	ReserveBatch(search, Max(layout->max_degree * PIPEANN_TOGETHER,
							 Max(layout->slots_per_page,
								 codes->entry_degree)));
}

void
PipeannSearchBegin(PipeannSearch *search, const PipeannLayout *layout,
				   const PipeannCodes *codes, PipeannPageSource *source,
				   const float *query, const PipeannSearchParams *params)
{
	PipeannMemory former = PipeannMemoryEnter(search);

	memset(search, 0, offsetof(PipeannSearch, pool));
	search->layout = layout;
	search->codes = codes;
	search->source = source;
	search->counters = source->counters;
	search->query = query;
	search->params = *params;
	if (layout->storage == PIPEANN_FLOAT2)
		PipeannBoundsInit(&search->bounds, layout, query);
	if (layout->slots_per_page > PIPEANN_KNOWN_SLOTS)
		search->params.switches &= ~PIPEANN_NODE_HITS;
	if (params->width > 0)
		source->max_in_flight = Min(source->max_in_flight, params->width);
	search->passed_over = PIPEANN_INVALID_ID;
	ReserveMemory(search);
	PipeannMemoryLeave(former);
}

/*
 * The page table.
 */
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
											   sizeof(PageRef)));
		search->refs_size *= 2;
	}
	at = search->nrefs++;
	search->refs[at].page = page;
	search->refs[at].scored = false;
	search->refs[at].by_slot = false;
	search->refs[at].slots = 0;
	search->refs[at].killed = 0;
	search->refs[at].version = 0;
	search->refs[at].frame = NULL;
	PipeannIdSetPut(&search->pages, page, at);
	return at;
}

/*
 * Set what a new candidate does not know yet: its page, and whether that is
 * at hand or on its way.
 */
static void
LinkCandidate(PipeannSearch *search, PipeannCandidate *item)
{
	uint32		at;

	item->page = PipeannIdPage(search->layout, item->id);
	if (PipeannIdSetGet(&search->pages, item->page, &at) &&
		search->refs[at].frame != NULL)
		item->ref = at;
}

/* The pool's candidates on this page are at hand with it. */
static void
LinkPage(PipeannSearch *search, uint32 page, uint32 at)
{
	PipeannPool *pool = &search->pool;

	for (int i = 0; i < pool->count; i++)
		if (pool->items[i].page == page)
			pool->items[i].ref = at;
}

static void
HoldFrame(PipeannSearch *search, uint32 at, PipeannFrame *frame, float dist)
{
	PageRef    *ref = &search->refs[at];

	search->nheld++;
	ref->frame = frame;
	ref->dist = dist;
	frame->user = (void *) (uintptr_t) at;
	CountPage(search, frame->hit);
	LinkPage(search, ref->page, at);
	if (frame->state == PIPEANN_FRAME_READY)
		PipeannArrive(search, frame);
}

static void
RequestRef(PipeannSearch *search, uint32 page, uint32 id, float dist)
{
	uint32		at = AddRef(search, page);
	PipeannFrame *frame = search->source->request(search->source, page,
												  PipeannWantedSlot(search, id));

	HoldFrame(search, at, frame, dist);
}

void
PipeannRequest(PipeannSearch *search, int position)
{
	const PipeannCandidate *item = &search->pool.items[position];

	RequestRef(search, item->page, item->id, item->dist);
}

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

void
PipeannRequestNode(PipeannSearch *search, uint32 id, float dist)
{
	uint32		page = PipeannIdPage(search->layout, id);
	uint32		at;

	if (!PipeannIdSetGet(&search->pages, page, &at))
		RequestRef(search, page, id, dist);
}

/*
 * A read that arrives for a candidate which has left the pool was wasted
 * (PipeANN 4.2.3 widens the pipe while few are).
 */
static void
CountWaste(PipeannSearch *search, const PageRef *ref)
{
	const PipeannPool *pool = &search->pool;

	if (pool->count < pool->length ||
		ref->dist <= pool->items[pool->length - 1].dist)
		search->reads_in++;
	else
		search->reads_out++;
}

void
PipeannAwaitScoring(PipeannSearch *search, uint32 at)
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

float
PipeannScoreSlot(PipeannSearch *search, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = search->layout;
	float		error = PipeannSlotError(l, slot);
	PipeannResult result;
	float		dist;

	if (slot->flags & PIPEANN_SLOT_OUT_OF_LINE)
		dist = search->params.out_of_line_distance(id, slot,
											search->params.out_of_line_arg);
	else
		dist = PipeannExactDistance(l, search->query,
									PipeannSlotVector(l, slot), l->storage,
									slot->aux);
	result.ntids = PipeannSlotInlineTids(l, slot);
	result.ext_tids = slot->ext_tids;
	result.id = id;
	result.dist = result.most = dist;
	if (error > 0)
		PipeannBoundsOf(&search->bounds, dist, error, slot->aux, &result.dist,
						&result.most);
	search->counters->exact_distances++;
	PipeannResultsAdd(&search->results, &result, PipeannSlotTids(l, slot));
	if (search->termination.on)
		PipeannTerminationFound(&search->termination, dist);
	return dist;
}

static inline bool
IsKilled(uint64 killed, uint32 slot)
{
	return slot < PIPEANN_KNOWN_SLOTS && ((killed >> slot) & 1);
}

void
PipeannPushBatch(PipeannSearch *search, int n)
{
	int			taken = 0;

	if (n == 0)
		return;
	PipeannKernel->pq_scan(search->table, search->codes->pq.nchunks,
						   search->batch_codes, n, search->batch_dists);
	search->counters->code_distances += n;
	for (int i = 0; i < n; i++)
	{
		PipeannCandidate *item = &search->batch[taken];
		float		dist = search->batch_dists[i];

		if (!PipeannPoolTakes(&search->pool, dist))
		{
			PipeannPoolDiscard(&search->pool, search->batch_ids[i], dist);
			continue;
		}
		item->id = search->batch_ids[i];
		item->dist = dist;
		item->ref = PIPEANN_NO_REF;
		LinkCandidate(search, item);
		taken++;
	}
	PipeannPoolMerge(&search->pool, search->batch, taken);
}

/* Nothing is settled before anything was read: see MOST_HITS. */
static void
SetBound(PipeannSearch *search)
{
	search->pool.bound = search->reads == 0 ? INFINITY :
		PipeannTerminationBound(&search->termination);
}

/*
 * A node whose page is here costs no read to explore: if it is near enough for
 * the pool, it belongs there even though no node explored so far has an edge
 * to it. It joins by the distance of its code, as every candidate does: where
 * codes are poor, exact distances among them would come all first or all last.
 * While nothing had to be read, no node is cheaper than another, and page-mates
 * are only more of them (GloVe-100 in memory at 0.95: 0.61 ms with, 0.55 without).
 * (Wide vectors' codes, made for others, are so poor that page-mates would keep
 * nearer ones on other pages out of the pool.)
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

		if (!PipeannSlotIsLive(slot) || IsKilled(killed, i))
			continue;
		PipeannScoreSlot(search, id, slot);
		if (join && !(slot->flags & PIPEANN_SLOT_OUT_OF_LINE))
			n = PipeannBatchAdd(search, n, id);
	}
	if (join)
		PipeannPushBatch(search, n);
	SetBound(search);
}

/*
 * It is kept for a version of the page: if results are there of another, there is
 * none for both.
 */
void
PipeannLookForKilled(PipeannSearch *search, PageRef *ref)
{
	uint64		version;

	if (search->params.killed == NULL)
		return;
	ref->killed = search->params.killed(ref->page, ref->frame->nodes, &version,
										search->params.killed_arg);
	ref->version = !ref->scored || ref->version == version ? version : 0;
}

void
PipeannArrive(PipeannSearch *search, PipeannFrame *frame)
{
	uint32		at = (uint32) (uintptr_t) frame->user;
	PageRef    *ref = &search->refs[at];

	search->pool.first_unseen = 0;
	if (!frame->hit)
		CountWaste(search, ref);
	if (ref->by_slot || !ref->scored)
		PipeannLookForKilled(search, ref);
	if (ref->scored)
		return;
	ref->scored = true;
	ref->by_slot = frame->slot != PIPEANN_ALL_SLOTS;
	if (!ref->by_slot)
		PipeannAwaitScoring(search, at);
}

bool
PipeannScoreOne(PipeannSearch *search)
{
	PageRef    *ref;

	if (search->nunscored == 0)
		return false;
	ref = &search->refs[search->unscored[--search->nunscored]];
	PipeannScorePage(search, ref->page, ref->frame->nodes, ref->killed,
					 PipeannJoinsMates(search));
	return true;
}

/* From now on all of the list is to be explored, and no more. */
static void
GoBeyondEarlyEnd(PipeannSearch *search)
{
	search->termination.on = false;
	search->pool.bound = INFINITY;
	search->pool.length = PipeannListToExplore(search);
}

/*
 * By how much a candidate's code is wrong. (Its exact distance was computed when
 * its page came, but is not kept with it.) Where there are out-of-line vectors, whose
 * codes were made for others, nobody knows.
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
		GoBeyondEarlyEnd(search);
		return;
	}
	PipeannTerminationError(&search->termination, item->dist -
					   PipeannExactDistance(l, search->query,
											PipeannSlotVector(l, slot),
											l->storage, slot->aux));
	SetBound(search);
}

/*
 * Neighbour ids come from disk: those that no code covers are passed over (by
 * PipeannBatchAdd), and a slot that is no node has none.
 */
int
PipeannAddNeighbors(PipeannSearch *search, int position, int n)
{
	const PipeannLayout *l = search->layout;
	const PipeannCandidate *item = &search->pool.items[position];
	PageRef    *ref = &search->refs[item->ref];
	const PipeannSlot *slot;
	int			degree;

	PipeannPoolExplored(&search->pool, position);
	search->counters->nodes_explored++;
	slot = PipeannSlotOf(search, ref, PipeannIdSlot(l, item->id));
	if (!PipeannSlotIsNode(slot))
		return n;
	if (PipeannSlotIsLive(slot) &&
		!IsKilled(ref->killed, PipeannIdSlot(l, item->id)))
	{
		search->explored++;
		if (ref->by_slot)
			PipeannScoreExplored(search, ref, item, slot);
		SampleError(search, item, slot);
	}

	degree = PipeannSlotDegree(l, slot);
	for (int i = 0; i < degree; i++)
		n = PipeannBatchAdd(search, n, slot->neighbors[i]);
	return n;
}

void
PipeannExplore(PipeannSearch *search, int position)
{
	PipeannPushBatch(search, PipeannAddNeighbors(search, position, 0));
}

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

/*
 * Pages of nodes already expanded need not be at hand; a page that comes up
 * again is read again.
 */
static void
TrimPages(PipeannSearch *search)
{
	if (search->nheld > search->params.max_pages)
		PipeannSearchReleasePages(search);
}

void
PipeannSearchReleasePages(PipeannSearch *search)
{
	while (PipeannScoreOne(search))
		;
	for (uint32 i = 0; i < search->nrefs; i++)
	{
		if (search->refs[i].frame != NULL)
			search->source->release(search->source, search->refs[i].frame);
		search->refs[i].frame = NULL;
	}
	search->nheld = 0;
}

bool
PipeannSearchEndedEarly(const PipeannSearch *search)
{
	return search->termination.on;
}

/*
 * Go on with the best of what fell out of the pool.
 */
static bool
Continue(PipeannSearch *search)
{
	PipeannPool *pool = &search->pool;
	uint64		most = Max(MAX_POOL, search->params.ef);
	uint64		more = Max(search->explored, (uint64) search->params.ef);

	TrimPages(search);
	search->continued = true;
	more = Min(more, most);
	PipeannPoolWiden(pool, (int) more, CapacityFor(search, (int) more));
	PipeannPoolRefill(pool, (int) more);
	for (int i = 0; i < pool->count; i++)
		LinkCandidate(search, &pool->items[i]);
	return pool->count > 0;
}

static void
RunMode(PipeannSearch *search)
{
	switch (search->params.mode)
	{
		case PIPEANN_BEST_FIRST:
			PipeannRunBestFirst(search);
			break;
		case PIPEANN_PIPE:
			PipeannRunPipe(search);
			break;
		case PIPEANN_STALE:
			PipeannRunStale(search);
			break;
		case PIPEANN_LOOK_AHEAD:
			PipeannRunLookAhead(search);
			break;
	}
	PipeannDoubtCodes(search);
	while (PipeannScoreOne(search))
		;
}

/* Whether all of the list is explored, although it need not be. */
static bool
IsListExplored(PipeannSearch *search)
{
	return PipeannPoolFirstOpen(&search->pool) >=
		Min(search->pool.count, PipeannListToExplore(search));
}

bool
PipeannSearchRun(PipeannSearch *search)
{
	if (!search->started)
	{
		search->started = true;
		PipeannEnter(search);
	}
	else if (search->termination.on)
		GoBeyondEarlyEnd(search);
	else if (!Continue(search))
		return false;

	RunMode(search);
	if (search->termination.on && IsListExplored(search))
		GoBeyondEarlyEnd(search);
	if (search->termination.on && search->reads * MOST_HITS < search->hits)
	{
		GoBeyondEarlyEnd(search);
		RunMode(search);
	}
	return true;
}

const PipeannBounds *
PipeannSearchBounds(const PipeannSearch *search)
{
	return &search->bounds;
}

uint64
PipeannSearchExplored(const PipeannSearch *search)
{
	return search->explored;
}

const PipeannResult *
PipeannSearchPeek(PipeannSearch *search)
{
	return PipeannResultsPeek(&search->results);
}

int
PipeannSearchNext(PipeannSearch *search, const PipeannResult **results, int n)
{
	return PipeannResultsNext(&search->results, results, n);
}

const PipeannResult *
PipeannSearchPop(PipeannSearch *search)
{
	return PipeannResultsPop(&search->results);
}

const ItemPointerData *
PipeannSearchTids(const PipeannSearch *search, const PipeannResult *result)
{
	return search->results.tids + result->tids;
}

uint64
PipeannSearchVersion(const PipeannSearch *search, const PipeannResult *result)
{
	uint32		at;

	if (!PipeannIdSetGet(&search->pages,
						 PipeannIdPage(search->layout, result->id), &at))
		return 0;
	return search->refs[at].version;
}

const char *
PipeannSearchPage(const PipeannSearch *search, uint32 page)
{
	uint32		at;
	const PipeannFrame *frame;

	if (!PipeannIdSetGet(&search->pages, page, &at))
		return NULL;
	frame = search->refs[at].frame;
	if (frame == NULL || frame->state != PIPEANN_FRAME_READY ||
		frame->slot != PIPEANN_ALL_SLOTS)
		return NULL;
	return frame->nodes;
}

const PipeannSlot *
PipeannSearchSlot(const PipeannSearch *search, uint32 id)
{
	const char *nodes = PipeannSearchPage(search,
										  PipeannIdPage(search->layout, id));

	if (nodes == NULL)
		return NULL;
	return PipeannSlotAt(search->layout, nodes,
						 PipeannIdSlot(search->layout, id));
}
