/*
 * pages.c
 *		Extent map and pages, and sweeps over the graph pages.
 */
#include "postgres.h"

#include "verify/verify.h"
#include "io/io.h"
#include "miscadmin.h"
#include "utils/rel.h"

/* Blocks that a sweep prefetches. */
#define PREFETCH_BLOCKS 32

/* Raise ERRCODE_INDEX_CORRUPTED, for a node or, if id is INVALID_ID, the index. */
void
PipeannCheckReport(const PipeannCheck *check, uint32 id, const char *what)
{
	const PipeannLayout *l = &check->view.meta.layout;
	const char *name = RelationGetRelationName(check->view.index);
	const char *where = id == PIPEANN_INVALID_ID ? "" :
		psprintf("node %u at block %u ", id,
				 PipeannGraphBlock(check->view.map, l, PipeannIdPage(l, id)));

	ereport(ERROR,
			(errcode(ERRCODE_INDEX_CORRUPTED),
			 errmsg("index \"%s\" is corrupted: %s%s", name, where, what),
			 errhint("Run REINDEX INDEX \"%s\".", name)));
}

static void
ReportBlock(const PipeannCheck *check, BlockNumber blkno, const char *what)
{
	PipeannCheckReport(check, PIPEANN_INVALID_ID,
					   psprintf("block %u %s", blkno, what));
}

/* Refresh the view, and with it the pages and ids to be checked. */
void
PipeannCheckRefresh(PipeannCheck *check)
{
	PipeannIndexView *view = &check->view;
	uint32		size;

	PipeannRefreshView(view);
	if (check->attributes != NULL)
		PipeannAttributesUseHistogram(check->attributes, view->cache->histograms);
	if (view->meta.packings != check->packings)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("index \"%s\" was packed anew while it was checked",
						RelationGetRelationName(view->index)),
				 errhint("Run pipeann_check() again.")));
	check->pages = PipeannViewPages(view);
	check->ids = check->pages * view->meta.layout.slots_per_page;
	if (check->ids <= check->size)
		return;
	size = check->ids + check->ids / 16;
	check->seen = PipeannRealloc(check->seen, size);
	memset(check->seen + check->size, 0, size - check->size);
	check->size = size;
}

static void
Prefetch(const PipeannCheck *check, const uint8 *wanted, uint32 page)
{
	const PipeannLayout *l = &check->view.meta.layout;
	BlockNumber blkno;

	if (page >= check->pages || (wanted != NULL && !wanted[page]))
		return;
	blkno = PipeannGraphBlock(check->view.map, l, page);
	for (int i = 0; i < l->node_pages; i++)
		PrefetchBuffer(check->view.index, MAIN_FORKNUM, blkno + i);
}

/* Copy the payload of one block; false if it is new. */
static bool
CopyBlock(const PipeannCheck *check, BlockNumber blkno, char *out)
{
	Buffer		buffer = PipeannReadBuffer(check->view.index, blkno,
										   PIPEANN_GRAPH, BUFFER_LOCK_SHARE,
										   true, check->strategy);
	bool		is_new = PageIsNew(BufferGetPage(buffer));

	if (!is_new)
		memcpy(out, PipeannPagePayload(BufferGetPage(buffer)),
			   PIPEANN_PAYLOAD);
	UnlockReleaseBuffer(buffer);
	return !is_new;
}

/* Copy a graph page; its later blocks are written before the first one. */
static bool
CopyPage(const PipeannCheck *check, uint32 page, char *nodes)
{
	const PipeannLayout *l = &check->view.meta.layout;
	BlockNumber blkno = PipeannGraphBlock(check->view.map, l, page);

	if (!CopyBlock(check, blkno, nodes))
		return false;
	if (!PipeannSlotIsNode(PipeannSlotAt(l, nodes, 0)))
		return true;
	for (int i = 1; i < l->node_pages; i++)
		if (!CopyBlock(check, blkno + i, nodes + (Size) i * PIPEANN_PAYLOAD))
			ReportBlock(check, blkno + i, "is empty but belongs to a node");
	return true;
}

/*
 * Read graph pages in file order and visit all their slots. If wanted is not
 * NULL, reads only the pages whose byte in wanted[pages] is set, and clears
 * it.
 */
void
PipeannCheckSweep(PipeannCheck *check, uint8 *wanted, PipeannCheckVisit visit)
{
	const PipeannLayout *l = &check->view.meta.layout;
	uint32		ahead = Max(PREFETCH_BLOCKS / l->node_pages, 1);

	for (uint32 page = 0; page < ahead; page++)
		Prefetch(check, wanted, page);
	for (uint32 page = 0; page < check->pages; page++)
	{
		CHECK_FOR_INTERRUPTS();
		Prefetch(check, wanted, page + ahead);
		if (wanted != NULL && !wanted[page])
			continue;
		if (wanted != NULL)
			wanted[page] = 0;
		if (!CopyPage(check, page, check->nodes))
			continue;
		for (uint32 i = 0; i < l->slots_per_page; i++)
			visit(check, page * l->slots_per_page + i,
				  PipeannSlotAt(l, check->nodes, i));
	}
}

/*
 * Copy a slot as it is now, with the vector if it is a node. False if its page
 * was never written.
 */
bool
PipeannCheckReadSlot(const PipeannCheck *check, uint32 id, PipeannSlot *slot)
{
	const PipeannLayout *l = &check->view.meta.layout;
	char	   *nodes;
	bool		found;

	if (id >= check->ids)
		return false;
	nodes = palloc((Size) l->node_pages * PIPEANN_PAYLOAD);
	found = CopyPage(check, PipeannIdPage(l, id), nodes);
	if (found)
		memcpy(slot, PipeannSlotAt(l, nodes, PipeannIdSlot(l, id)),
			   l->slot_size);
	pfree(nodes);
	return found;
}

/* Whether a slot is a node now. */
bool
PipeannCheckIsNodeNow(PipeannCheck *check, uint32 id)
{
	PipeannSlot *slot;
	bool		is_node;

	if (id < check->ids && (check->seen[id] & PIPEANN_SEEN_NODE))
		return true;
	PipeannCheckRefresh(check);
	slot = PipeannSlotAlloc(&check->view.meta.layout);
	is_node = PipeannCheckReadSlot(check, id, slot) &&
		PipeannSlotIsNode(slot);
	if (is_node)
		check->seen[id] |= PIPEANN_SEEN_NODE;
	pfree(slot);
	return is_node;
}

/*
 * Check the extent map.
 *
 * Loading the map has checked that each kind's ordinals are complete. If there
 * are as many extents as ordinals, each extent is there once.
 */
static void
CheckMap(const PipeannCheck *check)
{
	const PipeannMeta *meta = &check->view.meta;
	PipeannExtentMap map;
	uint64		sum = 0;

	PipeannExtentMapLoad(check->view.index, meta, CurrentMemoryContext, &map);
	for (int kind = 0; kind < PIPEANN_NUM_KINDS; kind++)
		sum += map.count[kind];
	if (sum != meta->extents)
		ReportBlock(check, PIPEANN_METAPAGE,
					"has an extent map whose kinds do not add up");
	if (map.count[PIPEANN_MAP] > PIPEANN_MAP_EXTENTS)
		ReportBlock(check, PIPEANN_METAPAGE, "has too many map extents");
	for (uint32 i = 0; i < map.count[PIPEANN_MAP]; i++)
		if (map.extents[PIPEANN_MAP][i] != meta->map_extents[i])
			ReportBlock(check, PIPEANN_METAPAGE,
						"lists map extents that the map does not have");
	PipeannExtentMapFree(&map);
}

/*
 * Check the first block of an extent, and the blocks left over at its end if
 * graph pages have several blocks.
 */
static void
CheckEmpty(const PipeannCheck *check, BlockNumber blkno)
{
	Buffer		buffer = ReadBufferExtended(check->view.index, MAIN_FORKNUM,
											blkno, RBM_NORMAL,
											check->strategy);
	bool		is_new;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	is_new = PageIsNew(BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
	if (!is_new)
		ReportBlock(check, blkno, "is not empty but belongs to no page");
}

/* Check an extent's blocks: pages of its kind, or empty. */
static void
CheckExtent(const PipeannCheck *check, PipeannKind kind, uint32 extent,
			uint32 swept, uint32 usable, BlockNumber blocks)
{
	BlockNumber first = extent * PIPEANN_EXTENT_BLOCKS;

	if (extent > 0 && first < blocks)
		CheckEmpty(check, first);
	for (BlockNumber i = swept + 1;
		 i < PIPEANN_EXTENT_BLOCKS && first + i < blocks; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (i <= usable)
			UnlockReleaseBuffer(PipeannReadBuffer(check->view.index,
												  first + i, kind,
												  BUFFER_LOCK_SHARE, true,
												  check->strategy));
		else
			CheckEmpty(check, first + i);
	}
}

/*
 * Check the extent map, and all blocks but those that sweeps read. Those that inserts
 * add meanwhile are left out.
 */
void
PipeannCheckOtherPages(const PipeannCheck *check)
{
	const PipeannIndexView *view = &check->view;
	const PipeannLayout *l = &view->meta.layout;
	BlockNumber blocks = RelationGetNumberOfBlocks(view->index);
	uint32		per_extent = PipeannGraphPagesPerExtent(l);

	CheckMap(check);
	for (int kind = 0; kind < PIPEANN_NUM_KINDS; kind++)
		for (uint32 i = 0; i < view->map->count[kind]; i++)
		{
			uint32		extent = view->map->extents[kind][i];
			uint32		from = Min(i * per_extent, check->pages);
			uint32		swept = Min(check->pages - from, per_extent);

			/* extents of a layout that is no longer used, or not yet */
			if (kind == PIPEANN_FREE || kind == PIPEANN_NEXT_GRAPH)
				continue;
			if (kind == PIPEANN_GRAPH)
				CheckExtent(check, kind, extent, swept * l->node_pages,
							per_extent * l->node_pages, blocks);
			else
				CheckExtent(check, kind, extent, 0, PIPEANN_EXTENT_USABLE,
							blocks);
		}
}
