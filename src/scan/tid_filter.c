/*
 * tid_filter.c
 *		TID filters: scans among rows of the table that are given by their TIDs.
 *
 * The search scans the codes of these rows and no others. Rows without a known
 * node are compared by their vectors in the table, or, if there are many, found
 * among the nearest of all rows (src/README, "rows that other indexes find").
 */
#include "postgres.h"

#include "base/id_set.h"
#include "base/pause.h"
#include "miscadmin.h"
#include "scan/state.h"
#include "storage/lmgr.h"
#include "utils/rel.h"

/*
 * The nodes of rows of the table, by the map of rows that the cache keeps. It
 * is made by a pass over the index when it is needed and there is none, and
 * again when many rows have been inserted.
 */

/* The map is made again if more than one in this many wanted rows, and nodes, are new. */
#define NEW_PART 16

/* Heavyweight page lock: one session makes a map of rows at a time. */
#define ROW_MAP_LOCK 4

/* Rows that a pass has memory for at first. */
#define FIRST_ROWS 65536

typedef struct Gathering
{
	const PipeannIndexView *view;
	bool		too_many;
	uint64		n;
	uint64		size;
	PipeannMappedRow *rows;
} Gathering;

static void
GatherRows(Gathering *g, uint32 id, PipeannRowList list)
{
	const PipeannLayout *l = &g->view->meta.layout;
	const PipeannRow *row = list.rows;

	g->too_many = g->too_many || !PipeannMayMapRows((double) g->n + list.n);
	if (g->too_many)
		return;
	while (g->n + list.n > g->size)
	{
		g->size *= 2;
		g->rows = repalloc_huge(g->rows,
								mul_size(g->size, sizeof(PipeannMappedRow)));
	}
	for (uint32 i = 0; i < list.n; i++, row = PipeannRowNext(l, row))
	{
		if (!ItemPointerIsValid(&row->tid))
			continue;
		g->rows[g->n].tid = row->tid;
		g->rows[g->n++].id = id;
	}
}

static void
GatherPage(Gathering *g, uint32 page, const char *slots)
{
	const PipeannLayout *l = &g->view->meta.layout;

	for (uint32 i = 0; i < l->slots_per_page; i++)
	{
		const PipeannSlot *slot = PipeannSlotAt(l, slots, i);

		if (PipeannSlotIsNode(slot))
			GatherRows(g, page * l->slots_per_page + i,
					   PipeannSlotRows(l, slot));
		else if (PipeannSlotIsTidsOf(slot, slot->owner))
			GatherRows(g, slot->owner, PipeannExtRows(l, slot));
	}
}

/*
 * The view's metapage is older than all pages read, so its `removals` is valid
 * for every row found. If it is outdated already the map would be useless.
 * While one session makes a map others do without.
 */
static void
MakeMap(const PipeannIndexView *view)
{
	Gathering	g = {.view = view,.size = FIRST_ROWS};
	uint32		pages = PipeannViewPages(view);
	BufferAccessStrategy strategy;

	if (!PipeannMayMapRows((double) view->meta.nodes) ||
		!view->cache->may_map_rows ||
		PipeannMetaRemovals(view->index) != view->meta.removals ||
		!ConditionalLockPage(view->index, ROW_MAP_LOCK, ExclusiveLock))
		return;
	g.rows = MemoryContextAllocHuge(CurrentMemoryContext,
									mul_size(g.size, sizeof(PipeannMappedRow)));
	strategy = GetAccessStrategy(BAS_BULKREAD);
	for (uint32 page = 0; page < pages && !g.too_many; page++)
	{
		Buffer		buffer;

		CHECK_FOR_INTERRUPTS();
		buffer = PipeannReadBuffer(view->index,
								   PipeannViewBlock(view, page),
								   PIPEANN_GRAPH, BUFFER_LOCK_SHARE, true,
								   strategy);
		if (!PageIsNew(BufferGetPage(buffer)))
			GatherPage(&g, page, PipeannPagePayload(BufferGetPage(buffer)));
		UnlockReleaseBuffer(buffer);
	}
	FreeAccessStrategy(strategy);
	PIPEANN_PAUSE("row-map");
	if (!g.too_many)
		PipeannCacheMapRows(view->cache, &view->meta, g.rows,
							g.n);
	UnlockPage(view->index, ROW_MAP_LOCK, ExclusiveLock);
	pfree(g.rows);
}

/* How many ids are not below nids. */
static uint32
CountUnknown(const uint32 *ids, uint32 n, uint32 nids)
{
	uint32		unknown = 0;

	for (uint32 i = 0; i < n; i++)
		unknown += ids[i] >= nids;
	return unknown;
}

/* Whether a map that gave these nodes is good enough, compared with one made now. */
static bool
IsGoodEnough(const PipeannIndexView *view, const uint32 *ids, uint32 n,
			 uint64 nodes)
{
	return CountUnknown(ids, n, PIPEANN_INVALID_ID) <= n / NEW_PART ||
		view->meta.nodes <= nodes + nodes / NEW_PART;
}

/* The nodes of rows; INVALID_ID for those not known. */
static void
FindNodes(const PipeannIndexView *view, const PipeannTidFilter *rows,
		  uint32 *ids)
{
	uint32		removals = view->meta.removals;
	uint64		nodes;
	bool		found = removals % 2 == 0 &&
		PipeannRowMapFind(view->cache->row_map, removals, rows->tids, rows->n,
						  ids, &nodes);

	if (removals % 2 == 0 &&
		!(found && IsGoodEnough(view, ids, rows->n, nodes)))
	{
		MakeMap(view);
		found = PipeannRowMapFind(view->cache->row_map, removals, rows->tids,
								  rows->n, ids, &nodes);
	}
	if (!found)
		memset(ids, 0xFF, mul_size(rows->n, sizeof(uint32)));
}

struct PipeannTidFilterState
{
	const PipeannTidFilter *rows;
	uint8	   *nodes;			/* a bit for each node */
	uint32		nids;			/* number of bits */
	uint8	   *nodeless;		/* a bit for each row that has no node here */
};

/*
 * To find the nearest ten of n unknown rows among N nodes a search visits about 10 *
 * N / n nodes, each of which costs NODE_COST times as much as a row in the table.
 */
#define NEAREST 10.0
#define NODE_COST 16.0

static bool
IsOfThem(uint32 id, const PipeannSlot *slot, void *arg)
{
	const PipeannTidFilterState *filter = ((PipeannScan *) arg)->tid_filter;

	return id < filter->nids && PipeannHasBit(filter->nodes, id);
}

/* Add a row without a known node to the scan's results, if the snapshot sees it. */
static void
AddUnknown(PipeannScan *state, const ItemPointerData *tid)
{
	PipeannResult result = {.id = PIPEANN_INVALID_ID,
		.ext_tids = PIPEANN_INVALID_ID};
	PipeannRow	row = {.tid = *tid,.info = sizeof(PipeannRow)};
	PipeannRowList list = {.rows = &row,.n = 1,.bytes = sizeof(PipeannRow)};

	PipeannStreamAdd(state, &result, list);
}

/*
 * Collect the nodes in ids, each once, and the rows that have none. Such a row
 * may have joined one of these nodes since: it must not be returned twice.
 */
static uint32
TakeNodes(PipeannScan *state, PipeannTidFilterState *filter, uint32 *ids)
{
	uint32		n = 0;

	for (uint32 i = 0; i < filter->rows->n; i++)
	{
		uint32		id = ids[i];

		if (id >= filter->nids)
		{
			PipeannSetBit(filter->nodeless, i);
			AddUnknown(state, &filter->rows->tids[i]);
		}
		else if (!PipeannHasBit(filter->nodes, id))
		{
			PipeannSetBit(filter->nodes, id);
			ids[n++] = id;
		}
	}
	return n;
}

/*
 * Find the nodes of the rows, in CurrentMemoryContext, and set a search's
 * parameters accordingly. Rows without a known node are read from the table.
 */
PipeannTidFilterState *
PipeannTidFilterBegin(PipeannScan *state, PipeannSearchParams *params)
{
	const PipeannTidFilter *rows = state->from_plan.tid_filter;
	PipeannTidFilterState *filter = palloc0(sizeof(PipeannTidFilterState));
	uint32	   *ids = MemoryContextAllocHuge(CurrentMemoryContext,
											 mul_size((Size) rows->n + 1,
													  sizeof(uint32)));
	uint32		unknown;

	filter->rows = rows;
	FindNodes(&state->view, rows, ids);
	filter->nids = state->view.codes.ncodes;
	filter->nodeless = PipeannNoBits(rows->n);
	unknown = CountUnknown(ids, rows->n, filter->nids);
	if ((double) unknown * unknown > NEAREST * NODE_COST * filter->nids)
	{
		pfree(ids);
		return filter;
	}
	filter->nodes = PipeannNoBits(filter->nids);
	params->nwanted_nodes = TakeNodes(state, filter, ids);
	params->wanted_nodes = ids;
	params->matches = IsOfThem;
	return filter;
}

static int
CompareTids(const void *a, const void *b)
{
	return ItemPointerCompare(unconstify(ItemPointerData *, (const ItemPointerData *) a),
							  unconstify(ItemPointerData *, (const ItemPointerData *) b));
}

/* Whether a row of a node is one of those wanted. */
bool
PipeannTidFilterHas(const PipeannTidFilterState *filter, const ItemPointerData *tid)
{
	const PipeannTidFilter *rows = filter->rows;
	const ItemPointerData *found = bsearch(tid, rows->tids, rows->n,
										   sizeof(ItemPointerData),
										   CompareTids);

	return found != NULL &&
		!PipeannHasBit(filter->nodeless, (uint32) (found - rows->tids));
}
