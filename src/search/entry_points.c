/*
 * entry_points.c
 *		Where a search begins: a greedy search of the entry graph.
 *
 * Entry points are ordered by their whole codes. (PipeANN 4.2.2 computes the table
 * under the first reads and orders by raw vectors of the sample, which we do not
 * keep in memory.)
 */
#include "search/entry_points.h"

#include <math.h>

#include "distance/distance.h"
#include "search/pages.h"
#include "search/together.h"
#include "search/filter_strategy.h"

/*
 * The list's length goes with that of the pool: at least twice PipeANN's mem_L of
 * 10, and so that hard queries do not begin in the wrong place.
 */
#define LEAST_ENTRIES 20
#define MOST_ENTRIES PIPEANN_MAX_ENTRY_POINTS
#define ENTRY_PART 2

/*
 * One of several searches needs fewer, as what it does not find nearby others may
 * have. If it has to read, it needs more: with their page-mates they tell which
 * page is the one to be read.
 */
#define LEAST_TOGETHER 8
#define READING_TOGETHER 32

/*
 * Half of the list is explored before the first pages are asked for, the rest
 * only while they are read: in memory the pool soon finds what the rest would
 * have found.
 */
#define PART_IN_MEMORY 2

/*
 * Pages asked for at once. The pool is filled while they are on their way, and
 * tells what is read next. (PipeANN begins with 4, which costs a read.)
 */
#define FIRST_READS 2

/* Positions visited by lists of the least length, and by longer ones. */
#define LEAST_VISITED 1024
#define VISITED_PER_ENTRY 32

typedef struct EntryCandidate
{
	float		dist;
	uint32		position;		/* in the entry graph */
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
Insert(EntryList *list, uint32 position, float dist)
{
	int			at = list->count;

	if (at == list->length)
	{
		if (dist >= list->items[at - 1].dist)
			return;
		at--;
	}
	else
		list->count++;
	for (; at > 0 && list->items[at - 1].dist > dist; at--)
		list->items[at] = list->items[at - 1];
	list->items[at].dist = dist;
	list->items[at].position = position;
	list->items[at].explored = false;
	list->first_open = Min(list->first_open, at);
}

/* Whether a position was visited before is no branch: see PipeannBatchAdd(). */
static void
ScoreEntries(PipeannSearch *search, EntryList *list, const uint32 *positions,
			 int n)
{
	const PipeannCodes *codes = search->codes;
	int			m = 0;

	for (int i = 0; i < n; i++)
	{
		uint32		position = positions[i];
		uint32		id;

		if (position >= codes->entry_count)
			continue;
		id = codes->entry_ids[position];
		if (id >= codes->ncodes)
			continue;
		search->batch_ids[m] = position;
		search->batch_codes[m] = PipeannCodeAt(codes, id);
		__builtin_prefetch(search->batch_codes[m]);
		m += PipeannIdSetAdd(&search->entered, position);
	}
	PipeannKernel->pq_scan(search->table, codes->pq.nsubvectors,
						   search->batch_codes, m, search->batch_dists);
	search->counters->code_distances += m;
	for (int i = 0; i < m; i++)
		Insert(list, search->batch_ids[i], search->batch_dists[i]);
}

static inline const uint32 *
NeighborsOf(const PipeannCodes *codes, const EntryCandidate *item)
{
	return codes->entry_neighbors + (Size) item->position * codes->entry_degree;
}

/* The set is kept with the search, not with what runs it. */
static void
ForgetEntered(PipeannSearch *search, int length)
{
	PipeannMemory former = PipeannMemoryEnter(search);
	uint32		slots = LEAST_VISITED;

	while (slots < (uint32) length * VISITED_PER_ENTRY)
		slots *= 2;
	PipeannIdSetReset(&search->entered, slots, false);
	PipeannMemoryLeave(former);
}

/* The entry graph's medoid stands first. */
static void
BeginEntryList(PipeannSearch *search, EntryList *list)
{
	uint32		start = 0;

	list->count = 0;
	list->first_open = 0;
	list->length = search->params.together != NULL ? READING_TOGETHER :
		Min(Max(search->params.ef / ENTRY_PART, LEAST_ENTRIES), MOST_ENTRIES);
	ForgetEntered(search, list->length);
	ScoreEntries(search, list, &start, 1);
}

/*
 * Greedy search of the entry graph, until the `wanted` nearest are explored. Can go
 * on with a larger number.
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
			__builtin_prefetch(NeighborsOf(codes, &list->items[list->first_open]));
		degree = Min(codes->entry_nneighbors[item->position],
					 codes->entry_degree);
		ScoreEntries(search, list, NeighborsOf(codes, item), degree);
	}
}

/* Without node hits no step depends on which pages are in memory. */
static int
FirstWanted(const PipeannSearch *search, const EntryList *list)
{
	return PipeannIsOn(search, PIPEANN_NODE_HITS) ?
		list->length / PART_IN_MEMORY : list->length;
}

/* The nearest `count` entries become candidates. */
static void
FillPool(PipeannSearch *search, const EntryList *list, int count)
{
	int			n = 0;

	for (int i = 0; i < count; i++)
	{
		uint32		id = search->codes->entry_ids[list->items[i].position];

		search->entry_points[i] = id;
		n = PipeannBatchAdd(search, n, id);
		if (n == search->batch_size)
		{
			PipeannBatchToPool(search, n);
			n = 0;
		}
	}
	PipeannBatchToPool(search, n);
	search->nentry_pages = PipeannIsOn(search, PIPEANN_ENTRY_PAGES) ?
		count : 0;
}

/*
 * Make the page-mates of entry points candidates.
 *
 * All nodes of the entry points' pages are candidates (LAANN, algorithm 2). The
 * pages need not have come: codes tell what is there. Slots that a build leaves
 * free may hold no node.
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

		if (n + (int) l->fill > search->batch_size)
		{
			PipeannBatchToPool(search, n);
			n = 0;
		}
		for (uint32 j = 0; j < l->fill; j++)
			n = PipeannBatchAdd(search, n, first + j);
	}
	PipeannBatchToPool(search, n);
	search->nentry_pages = 0;
}

/* No page is asked for yet. */
static void
EnterTogether(PipeannSearch *search, EntryList *list)
{
	int			wanted = Max(search->pool.least, LEAST_TOGETHER);

	SearchEntryGraph(search, list, wanted);
	FillPool(search, list, Min(list->count, wanted));
	if (search->pool.count == 0 || PipeannIsAtHand(search, 0))
		return;
	SearchEntryGraph(search, list, list->length);
	FillPool(search, list, list->count);
	PipeannAddEntryPages(search);
}

/* How many entries of the list pass the search's filter. */
static int
PassingOf(const PipeannSearch *search, const EntryList *list)
{
	const PipeannCodes *codes = search->codes;
	int			passing = 0;

	for (int i = 0; i < list->count; i++)
	{
		uint32		id = codes->entry_ids[list->items[i].position];

		passing += PipeannCodePasses(codes, search->params.code_filter, id);
	}
	return passing;
}

/*
 * Go on while the first pages are read, if the search walks.
 */
static void
EnterAlone(PipeannSearch *search, EntryList *list)
{
	int			reads = search->params.width > 0 ?
		Min(search->params.width, FIRST_READS) : FIRST_READS;

	SearchEntryGraph(search, list, FirstWanted(search, list));
	if (search->params.code_filter != NULL)
		PipeannChooseFilterStrategyNear(search, PassingOf(search, list),
										list->count);
	if (search->scans_codes)
		return;
	for (int i = 0; i < Min(list->count, reads); i++)
		PipeannRequestPageOf(search, search->codes->entry_ids[list->items[i].position],
							 list->items[i].dist);
	search->source->submit(search->source);
	if (search->reads > 0)
		SearchEntryGraph(search, list, list->length);
	FillPool(search, list, list->count);
}

/*
 * Compute the query's table, find entry points, ask for the first pages, and
 * fill the pool.
 */
void
PipeannAddEntryPoints(PipeannSearch *search)
{
	EntryList	list;

	PipeannMakeTable(search);
	BeginEntryList(search, &list);
	if (search->params.together != NULL)
		EnterTogether(search, &list);
	else
		EnterAlone(search, &list);
}
