/*
 * entry.c
 *		From nothing to a filled pool: the entry graph, and the query's table
 *		computed under the first reads.
 *
 * Entry points are ranked by a prefix of the code, which needs only as many
 * rows of the table. With those the first pages are asked for; the other rows
 * are computed while they are being read. (PipeANN does the same with the raw
 * vectors of its sample, which we do not keep in memory.)
 */
#include "search/engine.h"

#include <math.h>

#include "kernel/kernel.h"

#define ENTRY_EF 10				/* PipeANN's mem_L */
#define FIRST_READS 4			/* PipeANN's first width */
#define PREFIX_PARTS 4			/* the prefix is a fourth of the code ... */
#define MIN_PREFIX 8			/* ... but at least this long */

typedef struct EntryCandidate
{
	float		dist;
	uint32		position;		/* in the entry graph */
	bool		explored;
} EntryCandidate;

typedef struct EntryList
{
	EntryCandidate items[ENTRY_EF];
	int			count;
	uint8	   *visited;		/* bitmap over positions */
} EntryList;

static bool
Visit(EntryList *list, uint32 position)
{
	uint8		bit = 1 << (position & 7);

	if (list->visited[position >> 3] & bit)
		return false;
	list->visited[position >> 3] |= bit;
	return true;
}

static void
Insert(EntryList *list, uint32 position, float dist)
{
	int			at = list->count;

	if (at == ENTRY_EF)
	{
		if (dist >= list->items[ENTRY_EF - 1].dist)
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
}

static void
ScoreEntries(PipeannSearch *search, EntryList *list, const uint32 *positions,
			 int n, int prefix)
{
	const PipeannCodes *codes = search->codes;
	int			m = 0;

	for (int i = 0; i < n; i++)
	{
		if (positions[i] >= codes->entry_count || !Visit(list, positions[i]))
			continue;
		if (codes->entry_ids[positions[i]] >= codes->ncodes)
			continue;
		search->batch_ids[m] = positions[i];
		search->batch_codes[m] =
			PipeannCodeAt(codes, codes->entry_ids[positions[i]]);
		__builtin_prefetch(search->batch_codes[m]);
		m++;
	}
	PipeannKernel->pq_scan(search->table, prefix, search->batch_codes, m,
						   search->batch_dists);
	search->counters->code_distances += m;
	for (int i = 0; i < m; i++)
		Insert(list, search->batch_ids[i], search->batch_dists[i]);
}

/*
 * Greedy search of the entry graph from its medoid, which stands first.
 */
static void
SearchEntryGraph(PipeannSearch *search, EntryList *list, int prefix)
{
	const PipeannCodes *codes = search->codes;
	uint32		start = 0;
	int			next = 0;

	list->count = 0;
	list->visited = PipeannAllocZero(codes->entry_count / 8 + 1);
	ScoreEntries(search, list, &start, 1, prefix);
	while (next < list->count)
	{
		uint32		position = list->items[next].position;
		int			degree = Min(codes->entry_nneighbors[position],
								 codes->entry_degree);

		list->items[next].explored = true;
		ScoreEntries(search, list,
					 codes->entry_neighbors +
					 (Size) position * codes->entry_degree, degree, prefix);
		for (next = 0; next < list->count; next++)
			if (!list->items[next].explored)
				break;
	}
	pfree(list->visited);
}

/*
 * All nodes of the pages found are candidates (LAANN, algorithm 2). Slots that
 * a build leaves free may hold none.
 */
static void
SeedPool(PipeannSearch *search, const EntryList *list)
{
	const PipeannLayout *l = search->layout;

	for (int i = 0; i < list->count; i++)
	{
		uint32		id = search->codes->entry_ids[list->items[i].position];
		uint32		first = PipeannIdPage(l, id) * l->slots_per_page;
		int			n = 0;

		if (PipeannIsOn(search, PIPEANN_PAGE_SEEDS))
			for (uint32 j = 0; j < l->fill; j++)
				n = PipeannBatchAdd(search, n, first + j);
		else
			n = PipeannBatchAdd(search, n, id);
		PipeannPushBatch(search, n);
	}
}

/*
 * The entry of the recent query whose nearest result is nearest to this query,
 * if that is nearer than best, else -1.
 */
static int
NearestRecent(PipeannSearch *search, float best, int prefix)
{
	const PipeannCodes *codes = search->codes;
	int			found = -1;
	int			end;

	for (int i = 0; i < PIPEANN_RECENT_QUERIES; i = end)
	{
		int			n = 0;

		end = Min(i + search->batch_size, PIPEANN_RECENT_QUERIES);
		for (int j = i; j < end; j++)
		{
			uint32		id = codes->recent->ids[j][0];

			if (id >= codes->ncodes)
				continue;
			search->batch_ids[n] = j;
			search->batch_codes[n] = PipeannCodeAt(codes, id);
			__builtin_prefetch(search->batch_codes[n]);
			n++;
		}
		PipeannKernel->pq_scan(search->table, prefix, search->batch_codes, n,
							   search->batch_dists);
		search->counters->code_distances += n;
		for (int j = 0; j < n; j++)
			if (search->batch_dists[j] < best)
			{
				best = search->batch_dists[j];
				found = search->batch_ids[j];
			}
	}
	return found;
}

/*
 * AIO-ANN's result initialisation: begin where a recent query like this one
 * ended. Asks for the page of its nearest result; the results are pushed when
 * the table is complete.
 */
static int
EnterRecent(PipeannSearch *search, const EntryList *list, int prefix)
{
	float		best = list->count > 0 ? list->items[0].dist : INFINITY;
	int			entry;

	if (!PipeannIsOn(search, PIPEANN_RESULT_SEEDS) ||
		search->codes->recent == NULL)
		return -1;
	entry = NearestRecent(search, best, prefix);
	if (entry >= 0)
	{
		uint32		id = search->codes->recent->ids[entry][0];

		if (id < search->codes->ncodes)
			PipeannRequestNode(search, id, best);
	}
	return entry;
}

static void
SeedRecent(PipeannSearch *search, int entry)
{
	int			n = 0;

	if (entry < 0)
		return;
	for (int i = 0; i < PIPEANN_RECENT_IDS; i++)
		n = PipeannBatchAdd(search, n, search->codes->recent->ids[entry][i]);
	PipeannPushBatch(search, n);
}

void
PipeannEnter(PipeannSearch *search)
{
	const PipeannCodes *codes = search->codes;
	int			nchunks = codes->pq.nchunks;
	int			prefix = Min(nchunks, Max(MIN_PREFIX, nchunks / PREFIX_PARTS));
	int			reads = search->params.width > 0 ?
		Min(search->params.width, FIRST_READS) : FIRST_READS;
	EntryList	list;
	int			recent;

	PipeannPqTable(&codes->pq, search->layout->metric, search->query, 0,
				   prefix, search->table);
	SearchEntryGraph(search, &list, prefix);
	recent = EnterRecent(search, &list, prefix);
	for (int i = 0; i < Min(list.count, reads); i++)
		PipeannRequestNode(search, codes->entry_ids[list.items[i].position],
						   list.items[i].dist);
	search->source->submit(search->source);
	PipeannPqTable(&codes->pq, search->layout->metric, search->query, prefix,
				   nchunks, search->table);
	SeedPool(search, &list);
	SeedRecent(search, recent);
}
