/*
 * engine.c
 *		A search from beginning to end: whether it walks the graph or scans codes,
 *		where it begins, its memory, and its runs.
 */
#include "search/state.h"

#include <float.h>
#include <math.h>

#include "base/pause.h"
#include "distance/distance.h"

/*
 * The filter strategy: whether a search with conditions walks the graph or scans
 * the codes of what matches.
 */

/*
 * Costs, in code distances computed at random places in memory: looking at a
 * byte of an attribute code, exploring a node, reading a page, and the fixed
 * cost of a code scan.
 */
#define BYTE_COST 0.01
#define EXPLORE_COST 60
#define READ_COST 1500
#define CODE_SCAN_COST 1000

/* What finding the entry points costs. */
#define ENTRY_COST 2000

/* The share of walks in doubt that have to be followed by a code scan. */
#define WALK_FAILS 0.8

/*
 * The share of all nodes that pass is weighted like this many entries near the query.
 * Without that a single entry would decide if few match.
 */
#define PRIOR_ENTRIES 2

/*
 * The list is stretched by a power of the share that matches. It has at least this part
 * of the nodes among which ten matches are expected, and at most MOST_STRETCH * ef.
 */
#define STRETCH 0.3
#define NODES_OF_RESULT 1
#define MOST_STRETCH 20

/* Behind the list matching candidates are explored, up to this part of ef. */
#define MATCHING_PART 0.3

/* Matching nodes that a walk meets for each result. */
#define MET_OF_RESULT 1.5

/*
 * Pages that a walk reads for each node of ef, times a power of the share that
 * matches; and pages that a code scan reads.
 */
#define READS_OF_NODE 0.3
#define READS_POWER 0.4
#define READS_OF_CODE_SCAN 20

/*
 * The cost of going through the attribute codes of nodes and columns, and the codes of
 * the share that passes; in code distances.
 */
double
PipeannCodeScanCost(double nodes, int columns, double share)
{
	return CODE_SCAN_COST + nodes * (columns * BYTE_COST + share);
}

/* By how much the list of a walk is longer where this share of the nodes matches. */
double
PipeannListStretch(double share, int ef)
{
	double		nodes = NODES_OF_RESULT * PIPEANN_EARLY_RESULTS / share;

	return Min(Max(pow(share, -STRETCH), nodes / ef), MOST_STRETCH);
}

static double
CodeScanCost(const PipeannSearch *search)
{
	const PipeannCodeFilter *filter = search->params.code_filter;

	return PipeannCodeScanCost(search->codes->ncodes,
							   filter == NULL ? 0 : filter->n, search->share);
}

/* How many nodes that pass are likely to include `matching` nodes that match. */
static int
PassingOf(const PipeannSearch *search, double matching)
{
	return (int) (matching *
				  Min(search->near_share / PipeannMatchShare(search),
					  MOST_STRETCH));
}

/*
 * The cost of a walk, and of the code scan that may have to follow it: if the power of
 * the share does not stretch the list enough, so few nodes match that there may be none
 * nearby.
 */
static double
WalkCost(const PipeannSearch *search)
{
	bool		in_doubt = NODES_OF_RESULT * PIPEANN_EARLY_RESULTS >
		PipeannMatchShare(search) * pow(PipeannMatchShare(search), -STRETCH) *
		search->params.ef;

	/* its list, or until it has met enough that match */
	double		length = Max(search->stretch * search->params.ef +
							 search->most_matching * (1 - search->near_share),
							 MET_OF_RESULT * PIPEANN_EARLY_RESULTS / PipeannMatchShare(search));

	return length * EXPLORE_COST +
		(in_doubt ? WALK_FAILS * CodeScanCost(search) : 0);
}

/* Set the share of nodes near the query that pass, and what follows from it. */
static void
SetNearShare(PipeannSearch *search, double share)
{
	search->near_share = Max(share, LEAST_SHARE);
	search->stretch = PipeannListStretch(PipeannMatchShare(search),
										 search->params.ef);
	search->most_matching = PipeannMatchShare(search) >= 1 ? 0 :
		PassingOf(search, MATCHING_PART * search->params.ef);
}

/*
 * Before a search begins: choose whether it scans the codes of the nodes that match
 * or may walk the graph, and how much longer its list is then.
 */
static void
ChooseFilterStrategy(PipeannSearch *search)
{
	search->stretch = search->share = 1;
	if (search->codes == NULL)
		return;
	search->code_scan.chosen = search->params.wanted_nodes != NULL || PipeannScansSparse(search);
	if (search->params.code_filter == NULL || search->code_scan.chosen)
		return;
	search->share = Max(PipeannSharePassing(search->codes,
											search->params.code_filter),
						LEAST_SHARE);
	SetNearShare(search, search->share);
	/* no walk is shorter than one in which all match */
	search->code_scan.chosen = ENTRY_COST + search->params.ef * EXPLORE_COST >= CodeScanCost(search);
}

/*
 * Choose again, once it is known how many of the entries nearest to the query pass, and
 * before any page is requested. Matching nodes may all be near the query, or all far.
 */
static void
ChooseFilterStrategyNear(PipeannSearch *search, int passing, int entries)
{
	double		share = passing == entries ? 1 :
		(passing + PRIOR_ENTRIES * search->share) / (entries + PRIOR_ENTRIES);

	SetNearShare(search, share);
	search->code_scan.chosen = WalkCost(search) > CodeScanCost(search);
	if (!search->code_scan.chosen)
		PipeannListBegin(search);
}

/*
 * Whether a search that is about to walk had better scan codes: it has to read
 * pages, and the reads that a code scan saves cost more than its code distances.
 */
static bool
ShouldScanCodesUnread(const PipeannSearch *search)
{
	double		reads = READS_OF_NODE * search->params.ef *
		pow(PipeannMatchShare(search), -READS_POWER);

	return search->params.code_filter != NULL && search->reads > 0 &&
		reads * READ_COST > CodeScanCost(search) + READS_OF_CODE_SCAN * READ_COST;
}

/*
 * Whether a first walk may have missed what is nearest.
 *
 * If most of the candidates nearer than what was found are not explored, there
 * may be matching nodes to which no explored node leads.
 */
static bool
WalkIsInDoubt(const PipeannSearch *search)
{
	const PipeannPool *pool = &search->pool;
	int			wanted;
	int			passing = 0;
	int			at = 0;
	uint64		nearer;

	if (search->params.code_filter == NULL || pool->matching == 0)
		return false;
	wanted = PassingOf(search, PIPEANN_EARLY_RESULTS);
	for (; at < pool->count && passing < wanted; at++)
		passing += pool->items[at].matches;
	if (passing < wanted)
		return true;
	nearer = at;
	for (uint64 i = 0; i < pool->ndiscards; i++)
		nearer += pool->discards[i].dist < pool->items[at - 1].dist;
	return nearer > search->explored;
}

/*
 * Where a search begins: a greedy search of the entry graph.
 *
 * Entry points are ordered by their whole codes. (PipeANN 4.2.2 computes the table
 * under the first reads and orders by raw vectors of the sample, which we do not
 * keep in memory.)
 */

/*
 * The entry list's length is proportional to the pool's, and at least twice
 * PipeANN's mem_L of 10, so that hard queries do not begin in the wrong place.
 */
#define LEAST_ENTRIES 20
#define MOST_ENTRIES PIPEANN_MAX_ENTRY_POINTS
#define ENTRY_PART 2

/*
 * Half of the list is explored before the first pages are requested, the rest
 * only while they are read: if all pages are in memory the walk soon finds
 * what the rest would have found.
 */
#define PART_BEFORE_READS 2

/*
 * Pages requested at once. The pool is filled while they are being read, and
 * decides what is read next. (PipeANN begins with 4, which costs one more read.)
 */
#define FIRST_READS 2

/* Room for visited positions: at least, and for each entry of the list. */
#define LEAST_VISITED 1024
#define VISITED_PER_ENTRY 32

typedef struct EntryCandidate
{
	float		dist;
	uint32		position;		/* in the entry graph */
	uint32		id;				/* below ncodes; entry_ids[] may have another by now */
	bool		explored;
} EntryCandidate;

typedef struct EntryList
{
	EntryCandidate items[MOST_ENTRIES];
	int			count;
	int			length;
	int			first_open;		/* all before it are explored */
} EntryList;

static void
InsertEntry(EntryList *list, const PipeannCodes *codes, uint32 position, float dist)
{
	int			at = list->count;
	uint32		id;

	if (at == list->length && dist >= list->items[at - 1].dist)
		return;
	id = *(const volatile uint32 *) &codes->entry_ids[position];
	if (id >= codes->ncodes)
		return;
	if (at == list->length)
		at--;
	else
		list->count++;
	for (; at > 0 && list->items[at - 1].dist > dist; at--)
		list->items[at] = list->items[at - 1];
	list->items[at].dist = dist;
	list->items[at].position = position;
	list->items[at].id = id;
	list->items[at].explored = false;
	list->first_open = Min(list->first_open, at);
}

/* No branch on whether a position was visited before: see PipeannBatchAdd(). */
static void
ScoreEntries(PipeannSearch *search, EntryList *list, const uint32 *positions,
			 int n)
{
	const PipeannCodes *codes = search->codes;
	int			m = 0;

	for (int i = 0; i < n; i++)
	{
		uint32		position = positions[i];

		if (position >= codes->entry_count)
			continue;
		search->batch.ids[m] = position;
		search->batch.codes[m] = codes->entry_codes +
			(Size) position * codes->pq.nsubvectors;
		__builtin_prefetch(search->batch.codes[m]);
		m += PipeannIdSetAdd(&search->entered, position);
	}
	PipeannPqScan(&codes->pq, search->layout->metric, search->table,
				  search->batch.codes, m, search->batch.dists);
	search->source->counters->code_distances += m;
	for (int i = 0; i < m; i++)
		InsertEntry(list, codes, search->batch.ids[i], search->batch.dists[i]);
}

static inline const uint32 *
EntryNeighbors(const PipeannCodes *codes, const EntryCandidate *item)
{
	return codes->entry_neighbors + (Size) item->position * codes->entry_degree;
}

/* Without the edges all entries are scored. */
static void
ScoreAllEntries(PipeannSearch *search, EntryList *list)
{
	uint32		positions[64];
	uint32		n;

	for (uint32 first = 0; first < search->codes->entry_count; first += n)
	{
		for (n = 0; n < lengthof(positions); n++)
			positions[n] = first + n;
		ScoreEntries(search, list, positions, n);
	}
	list->first_open = list->count;
}

/*
 * Position 0 is the entry graph's medoid. The set of visited positions is
 * allocated in the search's memory context, not the caller's.
 */
static void
BeginEntryList(PipeannSearch *search, EntryList *list)
{
	PipeannMemory former = PipeannMemoryEnter(search);
	uint32		slots = LEAST_VISITED;
	uint32		start = 0;

	list->count = 0;
	list->first_open = 0;
	/* one of several searches needs fewer: what it misses others may have */
	list->length = search->params.one_of_several ? LEAST_ENTRIES :
		Min(Max(search->params.ef / ENTRY_PART, LEAST_ENTRIES), MOST_ENTRIES);
	while (slots < (uint32) list->length * VISITED_PER_ENTRY)
		slots *= 2;
	PipeannIdSetReset(&search->entered, slots, false);
	PipeannMemoryLeave(former);
	if (search->codes->entry_nneighbors != NULL)
		ScoreEntries(search, list, &start, 1);
	else
		ScoreAllEntries(search, list);
}

/*
 * Greedy search of the entry graph, until the `wanted` nearest are explored.
 * May be called again with a larger number.
 */
static void
SearchEntryGraph(PipeannSearch *search, EntryList *list, int wanted)
{
	const PipeannCodes *codes = search->codes;

	while (list->first_open < Min(list->count, wanted))
	{
		EntryCandidate *item = &list->items[list->first_open++];
		int			degree;

		if (item->explored)
			continue;
		item->explored = true;
		if (list->first_open < list->count)
			__builtin_prefetch(EntryNeighbors(codes, &list->items[list->first_open]));
		degree = Min(codes->entry_nneighbors[item->position],
					 codes->entry_degree);
		ScoreEntries(search, list, EntryNeighbors(codes, item), degree);
	}
}

/* The nearest `count` entries become candidates. */
static void
FillPool(PipeannSearch *search, const EntryList *list, int count)
{
	int			n = 0;

	for (int i = 0; i < count; i++)
	{
		search->entry_points[i] = list->items[i].id;
		n = PipeannBatchAdd(search, n, &list->items[i].id, 1);
	}
	PipeannBatchToPool(search, n);
	search->nentry_pages = count;
}

/*
 * Compute the query's table, find entry points, request the first pages, and fill the
 * pool. The last entry points are found while pages are read, if the search walks.
 */
static void
AddEntryPoints(PipeannSearch *search)
{
	const PipeannCodes *codes = search->codes;
	const PipeannCodeFilter *filter = search->params.code_filter;
	bool		passes_on = search->params.pass_on != NULL;
	int			reads = passes_on ? 0 : Min(PipeannWidth(search, FIRST_READS),
											FIRST_READS);
	EntryList	list;

	search->stage = PIPEANN_ENTERED;
	PipeannMakeTable(search);
	BeginEntryList(search, &list);
	SearchEntryGraph(search, &list, search->params.by_page || passes_on ? list.length :
					 list.length / PART_BEFORE_READS);
	if (filter != NULL)
	{
		int			passing = 0;

		for (int i = 0; i < list.count; i++)
			passing += PipeannCodePasses(codes, filter, list.items[i].id);
		ChooseFilterStrategyNear(search, passing, list.count);
	}
	if (search->code_scan.chosen)
		return;
	for (int i = 0; i < Min(list.count, reads); i++)
		PipeannRequestPageOf(search, list.items[i].id, list.items[i].dist);
	search->source->submit(search->source);
	if (search->reads > 0)
		SearchEntryGraph(search, &list, list.length);
	FillPool(search, &list, list.count);
}

/* ---------- memory, and runs ---------- */

/* The set of nodes visited begins with room for those of ef explored. */
#define MIN_VISITED 4096
#define MAX_VISITED 65536
#define FIRST_PAGES 1024

/*
 * A search that finds more than this many pages in memory for each one read
 * explores its whole list: an early end saves reads, but in memory no more
 * time than a shorter list at equal recall.
 */
#define MOST_HITS 8

/*
 * Create a search that has not begun. All its memory comes from what is
 * CurrentMemoryContext now. Each time it begins it forgets what it did before,
 * and reuses that memory.
 */
PipeannSearch *
PipeannSearchCreate(void)
{
	return PipeannAllocZero(sizeof(PipeannSearch));
}

/*
 * Make the set of visited nodes so large that it need not grow: about half of
 * an explored node's neighbours were visited before, a search that reads may
 * explore two lists, and the set stays at most half full.
 */
static void
ReserveForWalk(PipeannSearch *search)
{
	const PipeannLayout *layout = search->layout;
	PipeannBatch *batch = &search->batch;
	uint64		visited = (uint64) search->pool.length * layout->max_degree * 4;
	uint32		slots = MIN_VISITED;
	int			size = Max(Max(layout->max_degree * PIPEANN_BATCH_NODES, PIPEANN_MAX_ENTRY_POINTS),
						   Max(layout->slots_per_page, search->codes->entry_degree));

	while (slots < visited && slots < MAX_VISITED)
		slots *= 2;
	PipeannIdSetReset(&search->visited, slots, false);
	if (search->params.left_out != NULL)
		(void) PipeannIdSetAdd(&search->visited, *search->params.left_out);
	if (size <= batch->size)
		return;
	batch->ids = PipeannResized(batch->ids, size, sizeof(uint32));
	batch->codes = PipeannResized(batch->codes, size, sizeof(uint8 *));
	batch->dists = PipeannResized(batch->dists, size, sizeof(float));
	batch->items = PipeannResized(batch->items, size, sizeof(PipeannCandidate));
	memset(batch->items, 0, size * sizeof(PipeannCandidate));
	batch->size = size;
}

/*
 * Begin a search for query[dim] (normalised for cosine). codes may be NULL
 * (an index without codes): then PipeannSearchExact() is the only way to run.
 * The arguments must outlive the search.
 */
void
PipeannSearchBegin(PipeannSearch *search, const PipeannLayout *layout,
				   const PipeannCodes *codes, PipeannPageSource *source,
				   const float *query, const PipeannSearchParams *params)
{
	PipeannMemory former = PipeannMemoryEnter(search);
	int			numbers = codes == NULL ? 0 : codes->pq.nsubvectors * PIPEANN_CENTROIDS;

	memset(search, 0, offsetof(PipeannSearch, pool));
	search->code_scan.chosen = search->code_scan.begun = false;
	search->code_scan.errors = (PipeannSample) {0};
	search->unscored = PIPEANN_NO_REF;
	search->layout = layout;
	search->codes = codes;
	search->source = source;
	search->query = query;
	search->params = *params;
	search->params.ef = Max(params->ef, 1);
	PIPEANN_RESERVE(search->table, search->table_size, numbers +
					(PipeannQueryIsOther(layout->storage) ? (int) layout->dim : 0));
	search->stored_query = PipeannQueryFor(layout->storage, query, layout->dim,
										   search->table + numbers);
	if (PipeannIsRounded(layout))
		PipeannBoundsInit(&search->bounds, layout, query);
	if (layout->slots_per_page > PIPEANN_MASKED_SLOTS)
		search->params.by_page = true;
	if (params->width > 0)
		source->max_in_flight = Min(source->max_in_flight, params->width);
	ChooseFilterStrategy(search);

	PipeannResultsReset(&search->results);
	PIPEANN_RESERVE(search->refs, search->refs_size, FIRST_PAGES);
	PipeannIdSetReset(&search->pages, FIRST_PAGES, true);
	if (codes != NULL)
		PipeannListBegin(search);
	/* a code scan never walks */
	if (codes != NULL && !search->code_scan.chosen)
		ReserveForWalk(search);
	search->policy.passed_over = PIPEANN_INVALID_ID;
	PipeannMemoryLeave(former);
}

/* Release all pages. Results and rows remain. */
void
PipeannSearchReleasePages(PipeannSearch *search)
{
	while (PipeannScoreNext(search))
		;
	for (uint32 i = 0; i < search->pages.used; i++)
	{
		if (search->refs[i].frame != NULL)
			search->source->release(search->source, search->refs[i].frame);
		search->refs[i].frame = NULL;
	}
	search->nheld = 0;
}

/*
 * Find by their codes the results to which the graph did not lead, such as
 * nodes of a group that no edges connect with where the search began.
 */
static bool
ScanRest(PipeannSearch *search)
{
	if (PIPEANN_PLANTED("group"))
		return false;
	return PipeannRunCodeScan(search);
}

/*
 * Find where the search begins and request its first pages, before it is run.
 * Returns the code distance of the nearest candidate.
 */
float
PipeannSearchEnter(PipeannSearch *search)
{
	if (!search->code_scan.chosen)
		AddEntryPoints(search);
	return search->code_scan.chosen ? PipeannEnterCodeScan(search) :
		search->pool.count > 0 ? search->pool.items[0].dist : INFINITY;
}

/*
 * Tell one of several searches that nothing farther is wanted any more. (It
 * ignores that, and goes on as if alone, if its codes prove useless: pages.c.)
 */
void
PipeannSearchSetHorizon(PipeannSearch *search, float horizon)
{
	if (!search->params.one_of_several)
		return;
	search->params.has_horizon = true;
	search->params.horizon = horizon;
	if (search->codes != NULL)
		PipeannListSetBound(search);
}

static void
ExploreList(PipeannSearch *search)
{
	search->params.policy->run(search);
	PipeannScoreRest(search);
}

/*
 * Run until every one of the ef best candidates is explored, or until an early end
 * (list.c), after which the next run explores what is left of them. Called again, it
 * goes on with the next best candidates: as many as have been explored so far, up to
 * a bound. Returns false if there was nothing to explore within the horizon.
 */
bool
PipeannSearchRun(PipeannSearch *search)
{
	PipeannPool *pool = &search->pool;

	if (search->stage == PIPEANN_NEW && !search->code_scan.chosen)
		AddEntryPoints(search);
	if (search->code_scan.chosen ||
		(search->stage < PIPEANN_STARTED && ShouldScanCodesUnread(search)))
		return PipeannRunCodeScan(search);
	if (search->stage < PIPEANN_STARTED)
	{
		PipeannAddPageMates(search);
		search->stage = PIPEANN_STARTED;
	}
	else if (PipeannListIsBeyond(search))
	{
		/* a group of nodes may be nearer while the way to it is not */
		return !search->params.one_of_several && ScanRest(search);
	}
	else if (search->termination.on)
		PipeannListForgetEarlyEnd(search);
	else if (search->explored * EXPLORE_COST > CodeScanCost(search))
		return ScanRest(search);	/* scanning all codes costs less */
	else
	{
		/* pages of explored nodes are no longer needed; if one is, it is read again */
		if (PipeannHoldsTooMany(search))
			PipeannSearchReleasePages(search);
		if (!PipeannListRefill(search))
			return ScanRest(search);
	}

	ExploreList(search);
	if (search->termination.on &&
		PipeannPoolFirstOpen(pool) >= Min(pool->count, pool->matching > 0 ? pool->length :
										  PipeannListToExplore(search)))
		PipeannListForgetEarlyEnd(search);
	if (search->termination.on && search->reads * MOST_HITS < search->hits)
	{
		PipeannListForgetEarlyEnd(search);
		ExploreList(search);
	}

	/* where edges lead no further, unseen nodes may be nearer than those found */
	if ((pool->ndiscards == 0 && PipeannPoolFirstOpen(pool) == pool->count &&
		 search->explored < search->codes->ncodes) || WalkIsInDoubt(search))
		(void) ScanRest(search);
	return true;
}

/*
 * Run with a list of this length, no shorter than before. Finds what a search
 * that begins with this length finds, except that its entry points are those
 * for the ef that it began with.
 */
void
PipeannSearchLengthen(PipeannSearch *search, int ef)
{
	if (search->stage == PIPEANN_NEW)
	{
		AddEntryPoints(search);
		PipeannAddPageMates(search);
		search->stage = PIPEANN_STARTED;
	}
	PipeannListSetEf(search, ef);
	ExploreList(search);
}

/*
 * How far the results are final in an order. Only a code scan knows a distance up to
 * which they are. After a walk, as many results are final as matching nodes were
 * explored; in strict order half of them, as the others were explored only on the way.
 */
PipeannFrontier
PipeannSearchFrontier(const PipeannSearch *search, PipeannIterativeScan order)
{
	PipeannFrontier frontier = {.results = search->matching,.distance = -INFINITY};

	if (PipeannScansSparse(search))
		frontier.results /= PIPEANN_SPARSE_READ;
	else if (search->code_scan.begun && order != PIPEANN_ITERATIVE_OFF)
	{
		frontier.results = 0;
		frontier.distance = PipeannCodeScanReadTo(search, order == PIPEANN_ITERATIVE_STRICT);
	}
	if (order == PIPEANN_ITERATIVE_STRICT)
		frontier.results /= PIPEANN_STRICT_PART;
	frontier.ended_early = search->termination.on;
	if (frontier.ended_early)
		frontier.results = PIPEANN_EARLY_RESULTS;
	return frontier;
}

/* All slots of a graph page that is at hand, else NULL. */
const char *
PipeannSearchPage(const PipeannSearch *search, uint32 page)
{
	const PipeannPageRef *ref = PipeannRefOfPage(search, page);

	return ref != NULL && PipeannRefIsReady(ref) && ref->frame->slot == PIPEANN_ALL_SLOTS ?
		ref->frame->nodes : NULL;
}

/*
 * The slot of a node whose page is at hand, else NULL. If only another slot of the page
 * is, this one is copied from the page's current version. May read, and raise errors.
 */
const PipeannSlot *
PipeannSearchLoadSlot(PipeannSearch *search, uint32 id)
{
	PipeannPageRef *ref = PipeannRefOfPage(search, PipeannIdPage(search->layout, id));

	return ref == NULL || !PipeannRefIsReady(ref) ? NULL :
		PipeannGetSlot(search, ref, PipeannIdSlot(search->layout, id));
}
