/*
 * row_map.c
 *		The nodes of rows of the table, by the map of rows that the cache keeps.
 *
 * The map is made by a pass over the index when it is wanted and there is none, and
 * when many rows have come. While VACUUM removes rows there is none; on a standby one
 * has to be made anew afterwards.
 */
#include "postgres.h"

#include "base/pause.h"
#include "io/io.h"
#include "miscadmin.h"
#include "scan/tid_filter.h"
#include "storage/lmgr.h"

/* The map is made anew if of the rows wanted, and of all nodes, so many are new. */
#define NEW_PART 16

/* Memory for rows in a pass at first. */
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

static void
Gather(Gathering *g)
{
	const PipeannIndexView *view = g->view;
	const PipeannLayout *l = &view->meta.layout;
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
	uint32		pages = PipeannSourceCountPages(view->index, l, view->map,
												view->meta.graph_pages);

	for (uint32 page = 0; page < pages && !g->too_many; page++)
	{
		Buffer		buffer;

		CHECK_FOR_INTERRUPTS();
		buffer = PipeannReadBuffer(view->index,
								   PipeannGraphBlock(view->map, l, page),
								   PIPEANN_GRAPH, BUFFER_LOCK_SHARE, true,
								   strategy);
		if (!PageIsNew(BufferGetPage(buffer)))
			GatherPage(g, page, PipeannPagePayload(BufferGetPage(buffer)));
		UnlockReleaseBuffer(buffer);
	}
	FreeAccessStrategy(strategy);
}

/* Whether maintenance_work_mem holds a map of so many rows in the making. */
bool
PipeannMayMapRows(double rows)
{
	return rows * sizeof(PipeannMappedRow) <= maintenance_work_mem * 1024.0;
}

/*
 * The view's metapage is older than all pages that are read: what it says of removals
 * holds of every row found. If it is too old already the map would be of no use. While
 * one session makes a map others do without.
 */
static void
MakeMap(const PipeannIndexView *view)
{
	Gathering	g = {.view = view,.size = FIRST_ROWS};

	if (!PipeannMayMapRows((double) view->meta.nodes) ||
		!PipeannCacheMayMapRows(view->cache) ||
		PipeannMetaRemovals(view->index) != view->meta.removals ||
		!ConditionalLockPage(view->index, PIPEANN_ROW_MAP_LOCK, ExclusiveLock))
		return;
	g.rows = MemoryContextAllocHuge(CurrentMemoryContext,
									mul_size(g.size, sizeof(PipeannMappedRow)));
	Gather(&g);
	PIPEANN_PAUSE("row-map");
	if (!g.too_many)
		PipeannCacheMapRows(view->index, view->cache, &view->meta, g.rows,
							g.n);
	UnlockPage(view->index, PIPEANN_ROW_MAP_LOCK, ExclusiveLock);
	pfree(g.rows);
}

static uint32
CountUnknown(const uint32 *ids, uint32 n)
{
	uint32		unknown = 0;

	for (uint32 i = 0; i < n; i++)
		unknown += ids[i] == PIPEANN_INVALID_ID;
	return unknown;
}

/* Whether a map that knows these nodes is as good as one made now would be. */
static bool
IsGoodEnough(const PipeannIndexView *view, const uint32 *ids, uint32 n,
			 uint64 nodes)
{
	return CountUnknown(ids, n) <= n / NEW_PART ||
		view->meta.nodes <= nodes + nodes / NEW_PART;
}

/* The nodes of rows, INVALID_ID where it is not known. */
void
PipeannFindNodes(const PipeannIndexView *view, const PipeannTidFilter *rows,
				 uint32 *ids)
{
	uint32		removals = view->meta.removals;
	uint64		nodes;
	bool		found = removals % 2 == 0 &&
		PipeannRowMapFind(PipeannCacheRowMap(view->cache), removals, rows->tids,
						  rows->n, ids, &nodes);

	if (removals % 2 == 0 &&
		!(found && IsGoodEnough(view, ids, rows->n, nodes)))
	{
		MakeMap(view);
		found = PipeannRowMapFind(PipeannCacheRowMap(view->cache), removals,
								  rows->tids, rows->n, ids, &nodes);
	}
	if (!found)
		memset(ids, 0xFF, mul_size(rows->n, sizeof(uint32)));
}
