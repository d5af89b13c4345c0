/*
 * pages.c
 *		Reading the graph pages: sweeps over all of them, single slots.
 */
#include "postgres.h"

#include "verify/verify.h"
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
				 PipeannGraphBlock(&check->view.meta.extents, l, PipeannIdPage(l, id)));

	ereport(ERROR,
			(errcode(ERRCODE_INDEX_CORRUPTED),
			 errmsg("index \"%s\" is corrupted: %s%s", name, where, what),
			 errhint("Run REINDEX INDEX \"%s\".", name)));
}

/* Refresh the view, and with it the pages and ids to be checked. */
void
PipeannCheckRefresh(PipeannCheck *check)
{
	PipeannIndexView *view = &check->view;
	bool		had_codes = view->cache != NULL;
	uint32		size;

	PipeannRefreshView(view);
	if (view->meta.build_id != check->build_id || (view->cache != NULL) != had_codes)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("index \"%s\" was retrained while it was checked",
						RelationGetRelationName(view->index)),
				 errhint("Run pipeann_check() again.")));
	if (check->attributes != NULL)
		PipeannAttributesUseHistogram(check->attributes, view->cache->histograms);
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
Prefetch(const PipeannCheck *check, uint32 page)
{
	const PipeannLayout *l = &check->view.meta.layout;
	BlockNumber blkno;

	if (page >= check->pages)
		return;
	blkno = PipeannGraphBlock(&check->view.meta.extents, l, page);
	for (int i = 0; i < l->node_pages; i++)
		PrefetchBuffer(check->view.index, MAIN_FORKNUM, blkno + i);
}

/* Copy the payload of one block; false if it is new, and all zeroes. */
static bool
CopyBlock(const PipeannCheck *check, BlockNumber blkno, char *out)
{
	Buffer		buffer = PipeannReadBuffer(check->view.index, blkno,
										   PIPEANN_GRAPH, BUFFER_LOCK_SHARE,
										   true, check->strategy);
	bool		is_new = PageIsNew(BufferGetPage(buffer));

	memcpy(out, PipeannPagePayload(BufferGetPage(buffer)), PIPEANN_PAYLOAD);
	UnlockReleaseBuffer(buffer);
	return !is_new;
}

/*
 * Copy a graph page; its later blocks are written before the first one. If it was
 * never written, no slot is in use.
 */
static void
CopyPage(const PipeannCheck *check, uint32 page, char *nodes)
{
	const PipeannLayout *l = &check->view.meta.layout;
	BlockNumber blkno = PipeannGraphBlock(&check->view.meta.extents, l, page);

	(void) CopyBlock(check, blkno, nodes);
	if (!PipeannSlotIsNode(PipeannSlotAt(l, nodes, 0)))
		return;
	for (int i = 1; i < l->node_pages; i++)
		if (!CopyBlock(check, blkno + i, nodes + (Size) i * PIPEANN_PAYLOAD))
			PipeannCheckReport(check, PIPEANN_INVALID_ID,
							   psprintf("block %u is empty but belongs to a node",
										blkno + i));
}

/* Read the graph pages in file order and visit all their slots. */
void
PipeannCheckSweep(PipeannCheck *check, PipeannCheckVisit visit)
{
	const PipeannLayout *l = &check->view.meta.layout;
	uint32		ahead = Max(PREFETCH_BLOCKS / l->node_pages, 1);

	for (uint32 page = 0; page < ahead; page++)
		Prefetch(check, page);
	for (uint32 page = 0; page < check->pages; page++)
	{
		CHECK_FOR_INTERRUPTS();
		Prefetch(check, page + ahead);
		CopyPage(check, page, check->nodes);
		for (uint32 i = 0; i < l->slots_per_page; i++)
			visit(check, page * l->slots_per_page + i,
				  PipeannSlotAt(l, check->nodes, i));
	}
}

/* Copy the current version of a slot, with the vector if it is a node. False if there is none. */
bool
PipeannCheckReadSlot(const PipeannCheck *check, uint32 id, PipeannSlot *slot)
{
	const PipeannLayout *l = &check->view.meta.layout;
	char	   *nodes;

	if (id >= check->ids)
		return false;
	nodes = palloc((Size) l->node_pages * PIPEANN_PAYLOAD);
	CopyPage(check, PipeannIdPage(l, id), nodes);
	memcpy(slot, PipeannSlotAt(l, nodes, PipeannIdSlot(l, id)), l->slot_size);
	pfree(nodes);
	return true;
}
