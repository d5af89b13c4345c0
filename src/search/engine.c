/*
 * engine.c
 *		A search from beginning to end: its memory, its runs, and its results.
 */
#include "search/by_node.h"

#include "base/planted.h"
#include "search/explore.h"
#include "search/list.h"
#include "search/pages.h"
#include "search/code_scan.h"
#include "search/rounds.h"
#include "search/filter_strategy.h"

/* The set of nodes visited begins with room for those of ef explored. */
#define MIN_VISITED 4096
#define MAX_VISITED 65536
#define FIRST_PAGES 1024

/*
 * Searches together begin with less: each does a part of the work, and the memory of
 * all of them should stay in the processor's cache.
 */
#define TOGETHER_VISITED 1024
#define TOGETHER_PAGES 128

/*
 * Pages in memory for each one read from which on a search explores its whole
 * list. An early end saves reads; in memory a shorter list takes no longer at
 * equal recall.
 */
#define MOST_HITS 8

PipeannSearch *
PipeannSearchCreate(void)
{
	PipeannSearch *search = PipeannAllocZero(sizeof(PipeannSearch));

	search->refs = PipeannAlloc(FIRST_PAGES * sizeof(PipeannPageRef));
	search->refs_size = FIRST_PAGES;
	search->unscored = PipeannAlloc(FIRST_PAGES * sizeof(uint32));
	search->unscored_size = FIRST_PAGES;
	return search;
}

/* A larger array in the place of one whose contents are not wanted. */
static void *
Replaced(void *array, int n, Size element)
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
	search->own_table = Replaced(search->own_table, nchunks,
								 PIPEANN_CENTROIDS * sizeof(float));
	search->table_size = nchunks;
}

static void
ReserveBatch(PipeannSearch *search, int size)
{
	if (size <= search->batch_size)
		return;
	search->batch_ids = Replaced(search->batch_ids, size, sizeof(uint32));
	search->batch_codes = Replaced(search->batch_codes, size, sizeof(uint8 *));
	search->batch_dists = Replaced(search->batch_dists, size, sizeof(float));
	search->batch = Replaced(search->batch, size, sizeof(PipeannCandidate));
	memset(search->batch, 0, size * sizeof(PipeannCandidate));
	search->batch_size = size;
}

/*
 * So large that it need not grow: about half of the neighbours of a node explored
 * were visited before, a search that reads may explore two lists, and the set
 * stays at most half full.
 */
static uint32
FirstVisited(const PipeannSearch *search)
{
	const PipeannTogether *together = search->params.together;
	uint64		wanted = (uint64) search->pool.length *
		search->layout->max_degree * 4;
	uint32		slots = together == NULL ? MIN_VISITED : TOGETHER_VISITED;

	if (together != NULL)
		wanted = wanted * 2 / Max(together->searches, 1);

	while (slots < wanted && slots < MAX_VISITED)
		slots *= 2;
	return slots;
}

static void
ReserveMemory(PipeannSearch *search)
{
	const PipeannLayout *layout = search->layout;
	const PipeannCodes *codes = search->codes;

	PipeannResultsReset(&search->results);
	PipeannIdSetReset(&search->pages, search->params.together == NULL ?
					  FIRST_PAGES : TOGETHER_PAGES, true);
	if (codes == NULL)
		return;
	ReserveTable(search, codes->pq.nchunks);
	PipeannListBegin(search);
	if (search->scans_codes)
		return;					/* it never comes to the graph */
	PipeannIdSetReset(&search->visited, FirstVisited(search), false);
	ReserveBatch(search, Max(layout->max_degree * PIPEANN_BATCH_NODES,
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
	if (layout->slots_per_page > PIPEANN_MASKED_SLOTS)
		search->params.disabled |= PIPEANN_NODE_HITS;
	if (params->width > 0)
		source->max_in_flight = Min(source->max_in_flight, params->width);
	PipeannChooseFilterStrategy(search);
	ReserveMemory(search);
	if (codes != NULL && params->policy->begin != NULL)
		params->policy->begin(search);
	PipeannMemoryLeave(former);
}

void
PipeannSearchReleasePages(PipeannSearch *search)
{
	while (PipeannScoreNext(search))
		;
	PipeannReleasePages(search);
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

/*
 * Make the best of what fell out of the pool candidates again; false if that is
 * nothing.
 */
static bool
Continue(PipeannSearch *search)
{
	TrimPages(search);
	if (!PipeannListRefill(search))
		return false;
	for (int i = 0; i < search->pool.count; i++)
		PipeannSetPage(search, &search->pool.items[i]);
	return true;
}

/* Have results of all pages that the search came by, if they are to be. */
static void
ScoreRest(PipeannSearch *search)
{
	PipeannScorePagesIfInDoubt(search);
	PipeannScoreReleasedPages(search);
	while (PipeannScoreNext(search))
		;
}

static void
RunPolicy(PipeannSearch *search)
{
	search->params.policy->run(search);
	ScoreRest(search);
}

/*
 * What may be a result and the graph did not lead to is found by its codes: nodes of
 * a group that no edge leads to from where the search began, too.
 */
static bool
ScanRest(PipeannSearch *search)
{
	if (PIPEANN_PLANTED("group"))
		return false;
	PipeannBeginCodeScan(search);
	return PipeannRunCodeScan(search);
}

/*
 * Whether a walk has explored all that edges lead to, and there is more: however
 * long its list is, what it did not meet may be nearer than what it found.
 */
static bool
IsUsedUp(PipeannSearch *search)
{
	PipeannPool *pool = &search->pool;

	return pool->ndiscards == 0 &&
		PipeannPoolFirstOpen(pool) == pool->count &&
		search->explored < search->codes->ncodes;
}

float
PipeannSearchEnter(PipeannSearch *search)
{
	search->has_begun = true;
	PipeannAddEntryPoints(search);
	PipeannAddPageMates(search);
	PipeannRoundsJoin(search->params.together, search);
	return PipeannListNearest(search);
}

static void
RunList(PipeannSearch *search)
{
	RunPolicy(search);
	if (search->termination.on && PipeannListIsExplored(search))
		PipeannListForgetEarlyEnd(search);
	if (search->termination.on && search->reads * MOST_HITS < search->hits)
	{
		PipeannListForgetEarlyEnd(search);
		RunPolicy(search);
	}
}

/* Explore the list, or what of it is wanted beside those of other indexes. */
static void
RunTogether(PipeannSearch *search)
{
	if (search->params.together != NULL)
	{
		PipeannRoundsRun(search->params.together);
		ScoreRest(search);
	}
	if (search->params.together == NULL)
		RunList(search);
}

bool
PipeannSearchRun(PipeannSearch *search)
{
	if (search->scans_codes)
		return PipeannRunCodeScan(search);
	if (!search->started && !search->has_begun)
	{
		PipeannAddEntryPoints(search);
		if (search->scans_codes || PipeannShouldScanCodesUnread(search))
			return PipeannRunCodeScan(search);
		PipeannAddPageMates(search);
	}
	if (!search->started)
		search->started = true;
	else if (search->termination.on)
		PipeannListForgetEarlyEnd(search);
	else if (PipeannShouldScanCodes(search) || !Continue(search))
		return ScanRest(search);
	RunTogether(search);
	if (IsUsedUp(search) || PipeannWalkIsInDoubt(search))
		(void) ScanRest(search);
	return true;
}

bool
PipeannSearchIsTogether(const PipeannSearch *search)
{
	return search->params.together != NULL;
}

bool
PipeannSearchEndedEarly(const PipeannSearch *search)
{
	return search->termination.on;
}

const PipeannBounds *
PipeannSearchBounds(const PipeannSearch *search)
{
	return &search->bounds;
}

uint64
PipeannSearchExplored(const PipeannSearch *search)
{
	return search->matching;
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

PipeannRowList
PipeannSearchRows(const PipeannSearch *search, const PipeannResult *result)
{
	return PipeannResultsRows(&search->results, result);
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

/* A page of which all slots, or one, are at hand; else NULL. */
static PipeannPageRef *
PageAtHand(const PipeannSearch *search, uint32 page)
{
	uint32		at;
	PipeannPageRef *ref;

	if (!PipeannIdSetGet(&search->pages, page, &at))
		return NULL;
	ref = &search->refs[at];
	return ref->frame != NULL && ref->frame->state == PIPEANN_FRAME_READY ?
		ref : NULL;
}

const char *
PipeannSearchPage(const PipeannSearch *search, uint32 page)
{
	const PipeannPageRef *ref = PageAtHand(search, page);

	return ref != NULL && ref->frame->slot == PIPEANN_ALL_SLOTS ?
		ref->frame->nodes : NULL;
}

const PipeannSlot *
PipeannSearchLoadSlot(PipeannSearch *search, uint32 id)
{
	PipeannPageRef *ref = PageAtHand(search,
									 PipeannIdPage(search->layout, id));

	return ref == NULL ? NULL :
		PipeannGetSlot(search, ref, PipeannIdSlot(search->layout, id));
}
