/*
 * engine.c
 *		A search from beginning to end: its memory, its runs, alone or in rounds
 *		with others, and its results.
 */
#include "search/pages.h"

#include <float.h>
#include <math.h>

#include "base/planted.h"
#include "search/policy.h"
#include "search/code_scan.h"
#include "search/filter_strategy.h"
#include "search/list.h"
#include "search/state.h"
#include "search/together.h"

/*
 * Searches of several indexes for one query, run in rounds.
 *
 * In a round each search explores what is at hand, and then asks for the page of
 * its nearest candidate that is not, if it wants it. The pages of all searches are
 * on their way at the same time, and what each of them brings is known to all
 * before the next round. A search in memory asks for none, and is done in the
 * first round.
 *
 * How near the query an index has rows is not known before its search has come
 * there. So each reads one page at the least. Near nodes share pages, and codes
 * tell what is behind the edges of those that came: what is left to be read is
 * mostly what is within the bound. A search may find much nearer rows by its
 * first reads, less with each more.
 */

#define BEAM 1

/*
 * Nodes in memory that all searches explore before they look again, while nothing
 * was read; and each at the least. Fewer are less work, and find less, with equal
 * lists.
 */
#define WIDTH 16
#define LEAST_WIDTH 2

/* Pages that all searches ask for in a round, if they are few. */
#define READS 5

/*
 * Of the nearest candidates so many are explored, once something was read, if they
 * are on pages that the search has, and so many if their pages are in memory.
 */
#define FREE 100
#define FREE_IN_MEMORY 20

/*
 * What a search reads for after its first page: so many times the factor of an
 * early end beyond the bound, the less the more searches there are. With each page
 * it is less, the sooner the shorter the list is.
 */
#define GAIN 40.0f
#define WANING 5.0f
#define LEAST_EF 10

/*
 * A search has found where it begins, and is run with the others from now on.
 */
static void
RoundsJoin(PipeannTogether *together, PipeannSearch *search)
{
	PipeannSearch **place = &together->first;
	float		dist = PipeannListNearest(search);

	while (*place != NULL && PipeannListNearest(*place) <= dist)
		place = &(*place)->behind;
	search->behind = *place;
	*place = search;
}

/* Codes that tell nothing have a search go on alone. */
static inline bool
TakesPart(const PipeannSearch *search)
{
	return search->params.together != NULL;
}

/*
 * How far a candidate may be that is worth a read, apart from the bound: nothing is
 * before the first read, or where no bound is known.
 */
static float
ReadBound(const PipeannSearch *search)
{
	float		gain = GAIN / sqrtf(search->params.together->searches);
	float		kept = 1 - sqrtf(WANING / Max(search->params.ef, LEAST_EF));

	if (search->reads == 0 || !search->termination.on)
		return -INFINITY;
	return PipeannTerminationWiderBound(&search->termination,
										gain * powf(kept, search->reads - 1));
}

/* Whether a candidate that is not at hand has to be read. */
static bool
IsWorthRead(const PipeannSearch *search, int position, float bound)
{
	const PipeannPool *pool = &search->pool;

	return PipeannPoolWants(pool, position) ||
		(position < pool->length && pool->items[position].dist <= bound);
}

static inline bool
IsFree(const PipeannCandidate *item)
{
	return !item->explored && item->beam == 0;
}

/* Whether to explore a candidate if that costs no read. */
static bool
IsWantedFree(PipeannSearch *search, int position)
{
	const PipeannCandidate *item = &search->pool.items[position];

	if (!IsFree(item))
		return false;
	if (PipeannPoolWants(&search->pool, position) || position < FREE_IN_MEMORY)
		return PipeannIsAtHand(search, position);
	return PipeannIsReady(search, item);
}

/* Choose the nearest candidates at hand; returns how many. */
static int
ChooseAtHand(PipeannSearch *search)
{
	PipeannPool *pool = &search->pool;
	int			width = search->reads > 0 ? PIPEANN_BATCH_NODES :
		Max(WIDTH / search->params.together->searches, LEAST_WIDTH);
	int			least = search->reads > 0 ? FREE : 0;
	int			n = 0;

	PipeannKeepLimit(search, width);
	PipeannPrefetchNearest(search, width);
	for (int i = PipeannPoolFirstOpen(pool);
		 n < width && i < pool->count &&
		 (i < least || PipeannPoolWants(pool, i)); i++)
	{
		if (!IsWantedFree(search, i))
			continue;
		PipeannChoose(search, i, BEAM);
		n++;
	}
	return n;
}

/* Explore what was chosen, and all that is at hand then. */
static void
ExploreAtHand(PipeannSearch *search)
{
	do
	{
		CHECK_FOR_INTERRUPTS();
		while (PipeannExploreBeam(search, BEAM))
			PipeannAwaitPage(search);
		PipeannAddPageMates(search);
	} while (TakesPart(search) && ChooseAtHand(search) > 0);
}

/* Ask for the pages of the nearest candidates that are not at hand. */
static void
AskForPages(PipeannSearch *search)
{
	PipeannPool *pool = &search->pool;
	int			width = Max(READS / search->params.together->searches, 1);
	float		bound = ReadBound(search);

	PipeannKeepLimit(search, width);
	for (int i = PipeannPoolFirstOpen(pool);
		 width > 0 && i < pool->count && IsWorthRead(search, i, bound); i++)
	{
		if (!IsFree(&pool->items[i]) || PipeannIsAtHand(search, i))
			continue;
		PipeannChoose(search, i, BEAM);
		width--;
	}
	PipeannStartReads(search);
}

/* Before a run, learn what others have met; after it, tell them. */
static void
TogetherLearn(const PipeannTogether *together, PipeannSearch *search)
{
	PipeannTermination *termination = &search->termination;

	termination->count = together->nnearest;
	for (int i = 0; i < termination->count; i++)
	{
		termination->nearest[i].dist = together->nearest[i];
		termination->nearest[i].told = true;	/* it is another's */
	}
	if (together->nsubvectors == search->codes->pq.nsubvectors)
		PipeannTerminationKnow(termination, &together->errors);
}

static void
TogetherTell(PipeannTogether *together, const PipeannSearch *search)
{
	const PipeannTermination *termination = &search->termination;

	together->nnearest = termination->count;
	for (int i = 0; i < termination->count; i++)
		together->nearest[i] = termination->nearest[i].dist;
	together->errors = termination->errors;
	together->nsubvectors = search->codes->pq.nsubvectors;
}

static void
Learn(const PipeannTogether *together, PipeannSearch *search)
{
	TogetherLearn(together, search);
	PipeannListSetBound(search);
}

static void
ExploreAll(PipeannTogether *together)
{
	for (PipeannSearch *search = together->first; search != NULL;
		 search = search->behind)
	{
		if (!TakesPart(search))
			continue;
		Learn(together, search);
		ExploreAtHand(search);
		TogetherTell(together, search);
	}
}

/* Returns whether any page was asked for. */
static bool
AskAll(PipeannTogether *together)
{
	bool		any = false;

	for (PipeannSearch *search = together->first; search != NULL;
		 search = search->behind)
	{
		if (!TakesPart(search))
			continue;
		Learn(together, search);
		AskForPages(search);
		any |= search->pool.chosen[BEAM] > 0;
	}
	return any;
}

/* Run all that have joined, unless they have been run. */
static void
RoundsRun(PipeannTogether *together)
{
	do
		ExploreAll(together);
	while (AskAll(together));
	together->first = NULL;
}

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

/*
 * A search that has not begun. All memory that it takes comes from the present
 * CurrentMemoryContext. Each time that it begins it forgets what it did before,
 * and uses the memory again.
 */
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
ReserveTable(PipeannSearch *search, int nsubvectors)
{
	if (nsubvectors <= search->table_size)
		return;
	search->own_table = Replaced(search->own_table, nsubvectors,
								 PIPEANN_CENTROIDS * sizeof(float));
	search->table_size = nsubvectors;
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
	ReserveTable(search, codes->pq.nsubvectors);
	PipeannListBegin(search);
	if (search->scans_codes)
		return;					/* it never comes to the graph */
	PipeannIdSetReset(&search->visited, FirstVisited(search), false);
	ReserveBatch(search, Max(layout->max_degree * PIPEANN_BATCH_NODES,
							 Max(layout->slots_per_page,
								 codes->entry_degree)));
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

/* Let go of all pages. Results and rows remain. */
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

static void
RunPolicy(PipeannSearch *search)
{
	search->params.policy->run(search);
	PipeannScoreRest(search);
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

/*
 * Find where the search begins, in memory, before it is run. All searches of a
 * PipeannTogether do this before the first of them is run: that runs all which have
 * done it. Returns the distance of the nearest candidate by its code.
 */
float
PipeannSearchEnter(PipeannSearch *search)
{
	search->has_begun = true;
	PipeannAddEntryPoints(search);
	PipeannAddPageMates(search);
	RoundsJoin(search->params.together, search);
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
		RoundsRun(search->params.together);
		PipeannScoreRest(search);
	}
	if (search->params.together == NULL)
		RunList(search);
}

/*
 * Run until every one of the ef best candidates is explored. A search that may
 * end early runs until its PIPEANN_EARLY_RESULTS nearest results are unlikely
 * to change, or 100 candidates more are explored; its next run explores what is
 * left of the ef best. Called again, it goes on with the next best candidates:
 * as many as have been explored so far, up to a bound. Returns false if there
 * was nothing to explore.
 */
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

/*
 * The farthest part of the list in so many may lack nodes, as codes err. It is to be less
 * than what a list has beyond the results that are wanted (scan/scan.c).
 */
#define FARTHEST_PART 4

/*
 * The order key of the last of a code scan's nearest results, at which it ended early, or
 * else up to which it has read what passes.
 */
static float
CodeScanTrusted(PipeannSearch *search)
{
	const PipeannTermination *termination = &search->termination;

	if (!termination->on)
		return PipeannSearchReadTo(search);
	return termination->count < PIPEANN_EARLY_RESULTS ? -FLT_MAX :
		termination->nearest[PIPEANN_EARLY_RESULTS - 1].dist;
}

/*
 * The order key up to which one of several searches and the others have found what
 * there is, once they have been run: that of the last of the nearest results after an
 * early end, else by codes that of all of their list but its farthest part. A search
 * that scans codes shares no list with others.
 */
float
PipeannSearchTrusted(PipeannSearch *search)
{
	const PipeannTogether *together = search->params.together;
	int			length = search->pool.length;

	if (PipeannSearchIsCodeScan(search))
		return CodeScanTrusted(search);
	length = Min(length - length / FARTHEST_PART, together->ncodes);
	if (search->termination.on && search->reads > 0)
		return together->nnearest < PIPEANN_EARLY_RESULTS ? -FLT_MAX :
			together->nearest[PIPEANN_EARLY_RESULTS - 1];
	return length < 1 ? -FLT_MAX : together->codes[length - 1];
}

/* Whether the search is one of several. */
bool
PipeannSearchIsTogether(const PipeannSearch *search)
{
	return search->params.together != NULL;
}

/*
 * Whether the last run ended early: no more than PIPEANN_EARLY_RESULTS results
 * may be believed.
 */
bool
PipeannSearchEndedEarly(const PipeannSearch *search)
{
	return search->termination.on;
}

/* The bounds by which the search orders rounded vectors. */
const PipeannBounds *
PipeannSearchBounds(const PipeannSearch *search)
{
	return &search->bounds;
}

/*
 * Nodes with rows that may match explored so far: as many of the best results may
 * be believed.
 */
uint64
PipeannSearchExplored(const PipeannSearch *search)
{
	return search->matching;
}

/* The version of a result's page, as killed() told it. */
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

/* All slots of a graph page that is at hand, else NULL. */
const char *
PipeannSearchPage(const PipeannSearch *search, uint32 page)
{
	const PipeannPageRef *ref = PageAtHand(search, page);

	return ref != NULL && ref->frame->slot == PIPEANN_ALL_SLOTS ?
		ref->frame->nodes : NULL;
}

/*
 * The slot of a node whose page is at hand, else NULL. Where only another slot of the
 * page is, it is loaded from the page's present version. May read, and raise errors.
 */
const PipeannSlot *
PipeannSearchLoadSlot(PipeannSearch *search, uint32 id)
{
	PipeannPageRef *ref = PageAtHand(search,
									 PipeannIdPage(search->layout, id));

	return ref == NULL ? NULL :
		PipeannGetSlot(search, ref, PipeannIdSlot(search->layout, id));
}
