/*
 * free_space.c
 *		Graph pages with free slots, in PostgreSQL's free space map.
 *
 * The map is a hint: it is not WAL-logged, and may be lost, or name pages that
 * are full or no graph pages. A backend that takes a page from it checks the
 * page, and corrects the map if there is no free slot; VACUUM notes what it
 * frees. A graph page of several blocks is in the map by its first one.
 */
#include "postgres.h"

#include "index/index.h"
#include "storage/freespace.h"
#include "utils/rel.h"

/* The least free space that is noted. */
#define SOME_SPACE (BLCKSZ / 256)

/*
 * Make the map long enough for an index of so many extents, so that VACUUM can
 * note free slots even when the disk is full.
 */
void
PipeannFreeReserve(Relation index, uint32 extents)
{
	RecordPageWithFreeSpace(index, extents * PIPEANN_EXTENT_BLOCKS - 1, 0);
}

/* Note how many slots of a graph page are free. */
void
PipeannFreeRecord(const PipeannIndexView *view, uint32 page, uint32 slots)
{
	const PipeannLayout *l = &view->meta.layout;

	RecordPageWithFreeSpace(view->index, PipeannGraphBlock(view->map, l, page),
							Max((Size) slots * (BLCKSZ - SOME_SPACE) /
								l->slots_per_page,
								slots > 0 ? SOME_SPACE : 0));
}

/*
 * The ordinal of a graph extent, or INVALID_ID for extents of other kinds.
 * Extents that are used again have entries in the metapage; the ordinals of
 * the others rise with their numbers.
 */
static uint32
GraphExtent(const PipeannIndexView *view, uint32 extent)
{
	const uint32 *extents = view->map->extents[PIPEANN_GRAPH];
	uint32		first = 0;
	uint32		end = view->map->count[PIPEANN_GRAPH];

	if (extent < Min(view->meta.extents, PIPEANN_MAP_INLINE))
	{
		uint32		entry = view->meta.map[extent];

		return PIPEANN_ENTRY_KIND(entry) == PIPEANN_GRAPH ?
			PIPEANN_ENTRY_ORDINAL(entry) : PIPEANN_INVALID_ID;
	}

	while (first < end)
	{
		uint32		middle = first + (end - first) / 2;

		if (extents[middle] == extent)
			return middle;
		if (extents[middle] < extent)
			first = middle + 1;
		else
			end = middle;
	}
	return PIPEANN_INVALID_ID;
}

/* The graph page that begins at a block, or INVALID_ID. */
static uint32
BlockPage(const PipeannIndexView *view, BlockNumber blkno)
{
	const PipeannLayout *l = &view->meta.layout;
	uint32		per_extent = PipeannGraphPagesPerExtent(l);
	uint32		extent = GraphExtent(view, blkno / PIPEANN_EXTENT_BLOCKS);
	uint32		offset = blkno % PIPEANN_EXTENT_BLOCKS;
	uint64		page;

	if (extent == PIPEANN_INVALID_ID || offset == 0 ||
		(offset - 1) % l->node_pages != 0 ||
		(offset - 1) / l->node_pages >= per_extent)
		return PIPEANN_INVALID_ID;
	page = (uint64) extent * per_extent + (offset - 1) / l->node_pages;
	return page < view->meta.graph_pages ? (uint32) page : PIPEANN_INVALID_ID;
}

/*
 * A graph page that has free slots according to the map, or INVALID_ID. `full`
 * is a page named before that had none, or INVALID_ID.
 *
 * Asks for an empty page first, which has room for later near nodes as well.
 */
uint32
PipeannFreeSearch(const PipeannIndexView *view, uint32 full)
{
	BlockNumber blkno = InvalidBlockNumber;
	uint32		page;

	if (full == PIPEANN_INVALID_ID)
	{
		blkno = GetPageWithFreeSpace(view->index, BLCKSZ / 2);
		if (blkno == InvalidBlockNumber)
			blkno = GetPageWithFreeSpace(view->index, 1);
	}
	else
		blkno = RecordAndGetPageWithFreeSpace(view->index,
											  PipeannGraphBlock(view->map,
																&view->meta.layout,
																full), 0, 1);
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (blkno == InvalidBlockNumber)
			return PIPEANN_INVALID_ID;
		page = BlockPage(view, blkno);
		if (page != PIPEANN_INVALID_ID)
			return page;
		blkno = RecordAndGetPageWithFreeSpace(view->index, blkno, 0, 1);
	}
}
