/*
 * place.c
 *		Finding room for slots and codes, and writing them there.
 */
#include "postgres.h"

#include "base/pause.h"
#include "index/index.h"
#include "storage/lmgr.h"
#include "utils/rel.h"

/*
 * Graph pages with free slots, in PostgreSQL's free space map: a hint, which is not
 * WAL-logged, and may be lost, or name pages that are full or no graph pages.
 */

/* The least free space that is noted. */
#define SOME_SPACE (BLCKSZ / 256)

/* Note how many slots of a graph page are free. */
void
PipeannFreeRecord(const PipeannIndexView *view, uint32 page, uint32 slots)
{
	const PipeannLayout *l = &view->meta.layout;

	RecordPageWithFreeSpace(view->index, PipeannViewBlock(view, page),
							Max((Size) slots * (BLCKSZ - SOME_SPACE) /
								l->slots_per_page,
								slots > 0 ? SOME_SPACE : 0));
}

/*
 * A graph page that has free slots according to the map, or INVALID_ID. `full`
 * is the page returned before, if it had none, or INVALID_ID. Looks for an
 * empty page first, which has room for later near nodes as well.
 */
static uint32
FreeSearch(const PipeannIndexView *view, uint32 full)
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
											  PipeannViewBlock(view, full), 0, 1);
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (blkno == InvalidBlockNumber)
			return PIPEANN_INVALID_ID;
		page = PipeannPageAt(&view->meta.extents, &view->meta.layout, blkno);
		if (page < view->meta.graph_pages)
			return page;
		blkno = RecordAndGetPageWithFreeSpace(view->index, blkno, 0, 1);
	}
}

/* Attempts with pages of the free space map, which others may have filled. */
#define MAX_FREE_TRIES 16

/* Lock a block of a page that may have been given out and never written. */
static Buffer
LockBlock(const PipeannIndexView *view, BlockNumber blkno, PipeannKind kind)
{
	Buffer		buffer = PipeannGetBlock(view->index, blkno, RBM_NORMAL);

	if (!PageIsNew(BufferGetPage(buffer)))
		PipeannPageCheck(view->index, BufferGetPage(buffer), blkno, kind);
	return buffer;
}

/* Begin to change a page that is locked; a new one becomes one of this kind and generation. */
static void
BeginPage(const PipeannIndexView *view, Buffer buffer, PipeannKind kind,
		  uint32 generation, PipeannPageUpdate *update)
{
	update->buffer = buffer;
	update->is_new = PageIsNew(BufferGetPage(buffer));
	update->state = GenericXLogStart(view->index);
	update->page = GenericXLogRegisterBuffer(update->state, buffer,
											 update->is_new ?
											 GENERIC_XLOG_FULL_IMAGE : 0);
	if (update->is_new)
		PipeannPageInit(update->page, kind, generation);
}

/* Begin to change a slot. */
void
PipeannSlotBegin(const PipeannIndexView *view, uint32 id,
				 PipeannPageUpdate *update)
{
	const PipeannLayout *l = &view->meta.layout;
	Buffer		buffer = PipeannLockGraphPage(view, PipeannIdPage(l, id),
											  BUFFER_LOCK_EXCLUSIVE, NULL);

	BeginPage(view, buffer, PIPEANN_GRAPH, 0, update);
	update->slot = PipeannSlotAt(l, PipeannPagePayload(update->page),
								 PipeannIdSlot(l, id));
}

/* Copy slot id (slot_size bytes) out of shared_buffers. */
void
PipeannSlotCopy(const PipeannIndexView *view, uint32 id, PipeannSlot *slot)
{
	const PipeannLayout *l = &view->meta.layout;
	uint32		page = PipeannIdPage(l, id);
	BlockNumber blkno = PipeannViewBlock(view, page);
	char	   *out = (char *) slot;
	Size		left = l->slot_size;

	for (int i = 0; i < l->node_pages; i++)
	{
		Buffer		buffer = i == 0 ?
			PipeannLockGraphPage(view, page, BUFFER_LOCK_SHARE, NULL) :
			PipeannReadBuffer(view->index, blkno + i, PIPEANN_GRAPH,
							  BUFFER_LOCK_SHARE, true, NULL);
		Size		part = Min(left, (Size) PIPEANN_PAYLOAD);
		const char *in = PipeannPagePayload(BufferGetPage(buffer));

		if (l->node_pages == 1)
			in += (Size) PipeannIdSlot(l, id) * l->slot_size;
		memcpy(out, in, part);
		UnlockReleaseBuffer(buffer);
		out += part;
		left -= part;
	}
}

/*
 * Copy a graph page's slots to nodes[node_pages payloads], to be looked at
 * without a lock. False if the page was given out but never written.
 */
bool
PipeannGraphPageCopy(const PipeannIndexView *view, uint32 page, char *nodes)
{
	BlockNumber blkno = PipeannViewBlock(view, page);

	for (int i = 0; i < view->meta.layout.node_pages; i++)
	{
		Buffer		buffer = PipeannReadBuffer(view->index, blkno + i,
											   PIPEANN_GRAPH,
											   BUFFER_LOCK_SHARE, true, NULL);
		bool		is_new = PageIsNew(BufferGetPage(buffer));

		if (!is_new)
			memcpy(nodes + (Size) i * PIPEANN_PAYLOAD,
				   PipeannPagePayload(BufferGetPage(buffer)), PIPEANN_PAYLOAD);
		UnlockReleaseBuffer(buffer);
		if (is_new)
			return false;
	}
	return true;
}

/*
 * The later blocks are written before the first one, which marks the slot as
 * used: so a reader that sees the first sees all of them. The first block is
 * locked meanwhile; later blocks are only ever locked after it.
 */
static void
WriteTails(PipeannIndexView *view, BlockNumber blkno, const PipeannSlot *slot)
{
	Size		done = PIPEANN_PAYLOAD;

	for (int i = 1; i < view->meta.layout.node_pages; i++)
	{
		Size		part = Min(view->meta.layout.slot_size - done,
							   (Size) PIPEANN_PAYLOAD);
		PipeannPageUpdate update;

		update.buffer = PipeannGetBlock(view->index, blkno + i, RBM_ZERO_AND_LOCK);
		update.state = GenericXLogStart(view->index);
		update.page = GenericXLogRegisterBuffer(update.state, update.buffer,
												GENERIC_XLOG_FULL_IMAGE);
		PipeannPageInit(update.page, PIPEANN_GRAPH, 0);
		PipeannPageFill(update.page, part, true);
		memcpy(PipeannPagePayload(update.page), (const char *) slot + done, part);
		PipeannPageEnd(&update);
		done += part;
	}
}

static int
FindFree(const PipeannLayout *l, Page page)
{
	for (int i = 0; i < l->slots_per_page; i++)
		if (!(PipeannSlotAt(l, PipeannPagePayload(page), i)->flags &
			  PIPEANN_SLOT_USED))
			return i;
	return -1;
}

/* Write the slot to a graph page if that has room. */
static bool
TryPage(PipeannIndexView *view, uint32 page_number, const PipeannSlot *slot,
		uint32 *id)
{
	const PipeannLayout *l = &view->meta.layout;
	BlockNumber blkno = PipeannViewBlock(view, page_number);
	Buffer		buffer = PipeannLockSeen(view->index, blkno, PipeannViewSeen(view),
										 page_number, BUFFER_LOCK_EXCLUSIVE);
	PipeannPageUpdate update;
	int			at;
	bool		is_full;

	if (!BufferIsValid(buffer))
		buffer = LockBlock(view, blkno, PIPEANN_GRAPH);
	at = FindFree(l, BufferGetPage(buffer));
	if (at < 0)
	{
		UnlockReleaseBuffer(buffer);
		return false;
	}
	*id = page_number * l->slots_per_page + at;
	WriteTails(view, blkno, slot);
	BeginPage(view, buffer, PIPEANN_GRAPH, 0, &update);
	PipeannPageFill(update.page, Min((Size) (at + 1) * l->slot_size,
									 PIPEANN_PAYLOAD), update.is_new);
	memcpy(PipeannSlotAt(l, PipeannPagePayload(update.page), at), slot,
		   Min(l->slot_size, (uint32) PIPEANN_PAYLOAD));
	is_full = FindFree(l, update.page) < 0;
	PipeannPageEnd(&update);
	if (is_full && (view->meta.flags & PIPEANN_META_HAS_FREE))
		PipeannFreeRecord(view, page_number, 0);
	return true;
}

/*
 * Give out another graph page, unless another backend just did: then the caller
 * tries that one first.
 */
static void
AddGraphPage(PipeannIndexView *view)
{
	PipeannMetaUpdate update;
	const PipeannLayout *l = &view->meta.layout;
	uint32		seen = view->meta.graph_pages;

	if ((uint64) (seen + 1) * l->slots_per_page >= PIPEANN_INVALID_ID ||
		PipeannBlocksInUse(&view->meta.extents, l, seen + 1, true) > MaxBlockNumber)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("index \"%s\" has reached its largest size",
						RelationGetRelationName(view->index))));
	if (seen % l->stripe_pages == 0)
		PipeannFreeReserve(view->index, &view->meta);
	PipeannMetaBegin(view->index, &update);
	if (update.meta->graph_pages != seen)
		PipeannMetaAbort(&update);
	else
	{
		update.meta->graph_pages++;
		PipeannMetaEnd(&update);
		PIPEANN_PAUSE("page-given-out");
	}
	PipeannRefreshView(view);
}

/*
 * Whether the last graph page has been written since it was given out. Until
 * then no other is given out, so the file lacks one page at most.
 */
static bool
LastPageIsWritten(const PipeannIndexView *view)
{
	BlockNumber blkno;
	Buffer		buffer;
	bool		is_new;

	if (view->meta.graph_pages == 0)
		return true;
	blkno = PipeannViewBlock(view, view->meta.graph_pages - 1);
	if (blkno >= RelationGetNumberOfBlocks(view->index))
		return false;
	buffer = PipeannReadBuffer(view->index, blkno, PIPEANN_GRAPH,
							   BUFFER_LOCK_SHARE, true, NULL);
	is_new = PageIsNew(BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
	return !is_new;
}

/* Try slots that VACUUM has freed. */
static bool
TryFreePages(PipeannIndexView *view, const PipeannSlot *slot, uint32 *id)
{
	uint32		page = PIPEANN_INVALID_ID;

	if (!(view->meta.flags & PIPEANN_META_HAS_FREE))
		return false;
	for (int i = 0; i < MAX_FREE_TRIES; i++)
	{
		page = FreeSearch(view, page);
		if (page == PIPEANN_INVALID_ID)
			return false;
		if (TryPage(view, page, slot, id))
			return true;
	}
	return false;
}

/*
 * Write a slot of slot_size bytes to a free place: on graph page `near` if
 * that has one, else where VACUUM has freed one, or at the end of the index. Returns
 * its id. Refreshes the view as the index grows.
 */
uint32
PipeannPlaceSlot(PipeannIndexView *view, uint32 near, const PipeannSlot *slot)
{
	uint32		id;
	bool		begin;

	if (near != PIPEANN_INVALID_ID && TryPage(view, near, slot, &id))
		return id;
	/* a node that finds no room near itself begins a page */
	begin = PipeannSlotIsNode(slot) && slot->degree > 0 &&
		view->meta.layout.node_pages == 1 && !PipeannHasSpareSlots(view) &&
		LastPageIsWritten(view);
	if (!begin && TryFreePages(view, slot, &id))
		return id;
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (view->meta.graph_pages > 0 && !begin &&
			TryPage(view, view->meta.graph_pages - 1, slot, &id))
			return id;
		AddGraphPage(view);
		begin = false;
	}
}

static void
BeginCode(PipeannIndexView *view, uint32 id, PipeannPageUpdate *update)
{
	const PipeannMeta *meta = &view->meta;
	BlockNumber blkno = PipeannCodeBlock(&meta->extents, &meta->layout,
										 id / PipeannCodesPerPage(&meta->layout));

	BeginPage(view, LockBlock(view, blkno, PIPEANN_CODES), PIPEANN_CODES,
			  PipeannGeneration(meta), update);
}

/*
 * Change a node's codes: that of the vector to vector_code[pq_bytes], unless it is
 * NULL, and that of the attributes by calling fill, unless it is NULL. fill gets the
 * present code, or zeroes with a vector_code. It is called with the page locked, so
 * the code covers rows that have joined the node, and rows that join later find it
 * there. fill must not compare values. Returns whether anything has changed.
 */
bool
PipeannChangeCode(PipeannIndexView *view, uint32 id, const uint8 *vector_code,
				  PipeannFillAttributes fill, void *arg)
{
	const PipeannLayout *l = &view->meta.layout;
	Size		bytes = PipeannCodeBytes(l);
	uint32		at = id % PipeannCodesPerPage(l);
	uint8	   *former = palloc(bytes);
	uint8	   *code = palloc0(bytes);
	PipeannPageUpdate update;
	bool		changed;

	BeginCode(view, id, &update);
	PipeannCodeGet(l, PipeannPagePayload(update.page), at, former);
	if (vector_code == NULL)
		memcpy(code, former, bytes);
	else
		memcpy(code, vector_code, l->pq_bytes);
	if (fill != NULL)
		fill(id, code + l->pq_bytes, arg);
	changed = update.is_new || memcmp(former, code, bytes) != 0;
	if (changed)
	{
		PipeannCodePut(l, PipeannPagePayload(update.page), at, code);
		PipeannPageEnd(&update);
	}
	else
		PipeannPageAbort(&update);
	pfree(former);
	pfree(code);
	return changed;
}

/*
 * Zero the attribute codes of a code page for which which[] is true. The
 * caller then notes the change in the metapage by PipeannNoteCodePages().
 */
void
PipeannClearAttributes(PipeannIndexView *view, uint32 code_page,
					   const bool *which)
{
	const PipeannLayout *l = &view->meta.layout;
	uint32		per_page = PipeannCodesPerPage(l);
	PipeannPageUpdate update;
	char	   *payload;

	BeginCode(view, code_page * per_page, &update);
	payload = PipeannPagePayload(update.page);
	for (uint32 i = 0; i < per_page; i++)
		for (uint32 j = 0; which[i] && j < l->attr_bytes; j++)
			payload[PipeannPlaneOffset(l, j) + i] = 0;
	PipeannPageEnd(&update);
}

void
PipeannNoteCodePages(PipeannIndexView *view, const uint32 *pages, uint32 n)
{
	PipeannMetaUpdate update;

	if (n == 0)
		return;
	PipeannMetaBegin(view->index, &update);
	for (uint32 i = 0; i < n; i++)
		PipeannMetaNoteChange(update.meta, pages[i]);
	PipeannMetaEnd(&update);
	PipeannRefreshView(view);
}
