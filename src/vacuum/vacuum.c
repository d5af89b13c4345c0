/*
 * vacuum.c
 *		Removing dead rows: VACUUM's callbacks, the order of its steps, and the
 *		first and the last of them.
 *
 * A pass over the graph pages removes dead TIDs from nodes and overflow slots.
 * Nodes that have no row left leave the neighbour lists, and then their slots
 * are freed. Which nodes are dead can be seen from the pages alone, so a
 * VACUUM finishes the work of one that was interrupted; a flag in the metapage
 * tells it to do so even if no other row is dead. See src/README,
 * "vacuum/: dead rows out".
 */
#include "postgres.h"

#include "attributes/attributes.h"
#include "base/pause.h"
#include "base/planted.h"
#include "commands/progress.h"
#include "commands/vacuum.h"
#include "io/io.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "build/build.h"
#include "storage/freespace.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/spccache.h"
#include "vacuum/passes.h"
#include "vacuum/vacuum.h"

/*
 * VACUUM takes out of attribute codes what no row has any more.
 *
 * Codes of slots that are going to be freed are cleared, so that no search looks at
 * them for what their last nodes had. That is done before a slot is free: later an
 * insert may have taken it and written a code. Nodes that lost some of their rows get
 * the code of those that are left, unless that are very many.
 */

/* Set freed[] to which codes of a page are of slots to be freed; false if none is. */
static bool
FindFreed(const PipeannVacuum *v, uint32 code_page, uint32 per_page,
		  bool *freed)
{
	bool		any = false;

	for (uint32 i = 0; i < per_page; i++)
	{
		uint64		id = (uint64) code_page * per_page + i;

		freed[i] = id < v->ids && PipeannVacuumFreesSlot(v, (uint32) id);
		any |= freed[i];
	}
	return any;
}

/*
 * Clear the codes of slots to be freed, and write anew those of nodes
 * that lost rows; the latter with the maintenance lock, so that codes are not being
 * made anew.
 */
static void
VacuumClearCodes(PipeannVacuum *v)
{
	uint32		per_page = PipeannCodesPerPage(&v->view.meta.layout);
	uint32		pages = v->view.meta.code_pages;
	uint32	   *changed;
	bool	   *freed;
	uint32		n = 0;

	if (!PipeannVacuumHasAttributes(v))
		return;
	changed = palloc(mul_size(Max(pages, 1), sizeof(uint32)));
	freed = palloc(per_page);
	for (uint32 page = 0; page < pages; page++)
	{
		if (!FindFreed(v, page, per_page, freed))
			continue;
		PipeannVacuumDelay();
		PipeannClearAttributes(&v->view, page, freed);
		changed[n++] = page;
	}
	PIPEANN_PAUSE("vacuum-codes-cleared");
	PipeannNoteCodePages(&v->view, changed, n);
	pfree(changed);
	pfree(freed);
}

/* Whether the code of a node in memory may cover more than its rows have. */
static bool
MayShrink(const PipeannVacuum *v, const PipeannAttributes *a, uint32 id)
{
	const PipeannCodes *codes = &v->view.codes;
	uint8		code[PIPEANN_MAX_ATTRIBUTE_BYTES];

	if (id >= codes->ncodes)
		return false;
	for (uint32 i = 0; i < codes->attr_bytes; i++)
		code[i] = *PipeannAttributeAt(codes, id, i);
	return PipeannAttributesMayShrink(a, code);
}

static void
VacuumShrinkCodes(PipeannVacuum *v)
{
	PipeannIndexView *view = &v->view;
	uint32		per_page = PipeannCodesPerPage(&view->meta.layout);
	uint32	   *changed;
	uint32		n = 0;
	PipeannNodeCode node = {.view = view};

	PipeannRefreshView(view);
	if (!PipeannVacuumHasAttributes(v))
		return;
	node.attributes = PipeannAttributesOpen(view->index, view->meta.format,
											&view->meta.layout,
											&view->meta.widths,
											view->cache->histograms);
	changed = palloc(mul_size(Max(view->meta.code_pages, 1), sizeof(uint32)));
	for (uint32 id = 0; id < v->ids; id++)
	{
		uint32		page = id / per_page;

		if (!PipeannBitsHas(&v->trimmed, id) || !PipeannBitsHas(&v->live, id) ||
			!MayShrink(v, node.attributes, id))
			continue;
		PipeannVacuumDelay();
		if (PipeannNodeCodeMake(&node, id) &&
			PipeannChangeAttributes(view, view->meta.generation, id,
									PipeannNodeCodePut, &node) &&
			(n == 0 || changed[n - 1] != page))
			changed[n++] = page;
	}
	PipeannNoteCodePages(view, changed, n);
	pfree(changed);
}

/* VACUUM's last pass frees the slots to which nothing leads any more. */

static bool
HasFreed(const PipeannVacuum *v, uint32 page)
{
	for (uint32 i = 0; i < v->view.meta.layout.slots_per_page; i++)
		if (PipeannVacuumFreesSlot(v, PipeannVacuumId(v, page, i)))
			return true;
	return false;
}

/* Clear the header only: the next user of the slot sets all of it. */
static void
FreeSlot(PipeannVacuum *v, PipeannSlot *slot)
{
	if (PipeannSlotIsNode(slot))
		v->freed++;
	memset(slot, 0, PIPEANN_SLOT_HEADER);
}

/* Note in the metapage that there is work for VACUUM. */
static void
VacuumNoteWork(PipeannVacuum *v)
{
	PipeannMetaUpdate update;

	if (v->noted)
		return;
	PipeannMetaBegin(v->view.index, &update);
	update.meta->flags |= PIPEANN_META_REPAIRING;
	PipeannMetaEnd(&update);
	v->noted = true;
}

/*
 * Note a page's free slots in the free space map, and count the page.
 *
 * Slots that a build leaves free (fillfactor) are for new nodes near those of
 * the page, so they do not count; the last page is tried by inserts in any
 * case.
 */
static void
VacuumNoteFree(PipeannVacuum *v, uint32 page, Page buffer, bool changed)
{
	const PipeannLayout *l = &v->view.meta.layout;
	uint32		used = 0;

	for (uint32 i = 0; i < l->slots_per_page; i++)
		if (PipeannSlotAt(l, PipeannPagePayload(buffer), i)->flags &
			PIPEANN_SLOT_USED)
			used++;
	if (used >= l->fill || page + 1 >= v->view.meta.graph_pages)
		return;
	v->free_pages++;
	PipeannFreeRecord(&v->view, page, l->fill - used);
	if (used > 0)
		return;
	v->stats->pages_deleted += l->node_pages;
	v->stats->pages_free += l->node_pages;
	if (changed)
		v->stats->pages_newly_deleted += l->node_pages;
}

static void
ReleasePage(PipeannVacuum *v, uint32 number)
{
	const PipeannLayout *l = &v->view.meta.layout;
	Buffer		buffer = PipeannVacuumPage(v, number, BUFFER_LOCK_EXCLUSIVE);
	GenericXLogState *xlog;
	Page		page;

	if (!BufferIsValid(buffer))
		return;
	xlog = GenericXLogStart(v->view.index);
	page = GenericXLogRegisterBuffer(xlog, buffer, 0);
	for (uint32 i = 0; i < l->slots_per_page; i++)
	{
		PipeannSlot *slot = PipeannSlotAt(l, PipeannPagePayload(page), i);

		if (PipeannVacuumFreesSlot(v, PipeannVacuumId(v, number, i)) &&
			!PipeannSlotIsLive(slot))
			FreeSlot(v, slot);
	}
	PipeannPageSeal(page, BufferGetBlockNumber(buffer));
	GenericXLogFinish(xlog);
	VacuumNoteFree(v, number, BufferGetPage(buffer), true);
	UnlockReleaseBuffer(buffer);
}

/* Free the slots of dead nodes and of garbage. */
static void
VacuumRelease(PipeannVacuum *v)
{
	VacuumClearCodes(v);
	PipeannVacuumBeginPass(v);
	for (uint32 page = 0; page < v->pages; page++)
		if (HasFreed(v, page))
			ReleasePage(v, page);
}

/*
 * VACUUM's first pass removes dead TIDs, and notes what is left.
 *
 * A page is looked at under a share lock. Only a page with something to remove
 * is locked exclusively and written.
 */

static bool
IsDead(const PipeannRow *row, void *arg)
{
	PipeannVacuum *v = arg;
	ItemPointerData tid = row->tid;

	return v->callback != NULL && !PIPEANN_PLANTED("dead-row") &&
		v->callback(&tid, v->callback_state);
}

/* The same of a row that is being removed. */
static bool
RemoveIfDead(const PipeannRow *row, void *arg)
{
	PipeannVacuum *v = arg;

	if (!IsDead(row, v))
		return false;
	v->parts_died |= PipeannRowIsOutOfLine(&v->view.meta.layout, row);
	return true;
}

static bool
IsEmptyExt(const PipeannSlot *slot)
{
	return (slot->flags & PIPEANN_SLOT_EXT) && slot->length == 0 &&
		slot->ntids == 0;
}

/* Whether a slot in use has something to remove. */
static bool
NeedsCleaning(PipeannVacuum *v, const PipeannSlot *slot)
{
	const PipeannLayout *l = &v->view.meta.layout;
	PipeannRowList list = PipeannAnyRows(l, slot);
	const PipeannRow *row = list.rows;

	if (IsEmptyExt(slot) && !(slot->flags & PIPEANN_SLOT_CLOSED))
		return true;
	for (uint32 i = 0; i < list.n; i++, row = PipeannRowNext(l, row))
		if (IsDead(row, v))
			return true;
	return false;
}

static bool
PageNeedsCleaning(PipeannVacuum *v, Page page)
{
	const PipeannLayout *l = &v->view.meta.layout;

	for (uint32 i = 0; i < l->slots_per_page; i++)
	{
		PipeannSlot *slot = PipeannSlotAt(l, PipeannPagePayload(page), i);

		if ((slot->flags & PIPEANN_SLOT_USED) && NeedsCleaning(v, slot))
			return true;
	}
	return false;
}

/* Remove the dead TIDs. An overflow slot that becomes empty is closed. */
static void
CleanSlot(PipeannVacuum *v, uint32 id, PipeannSlot *slot)
{
	uint32		removed = PipeannSlotRemoveRows(&v->view.meta.layout, slot,
												RemoveIfDead, v);
	uint32		node = slot->flags & PIPEANN_SLOT_EXT ? slot->owner : id;

	v->stats->tuples_removed += removed;
	if (removed > 0 && node < v->ids)
		PipeannBitsAdd(&v->trimmed, node);
	if (IsEmptyExt(slot))
		slot->flags |= PIPEANN_SLOT_CLOSED;
}

/*
 * Say in the metapage, for index-only scans and maps of rows, that rows are being
 * removed, or that they are not any more. If an interrupted VACUUM has left it odd it says
 * so already.
 */
static void
NoteRemoving(PipeannVacuum *v, bool removing)
{
	PipeannMetaUpdate update;

	if (v->removing == removing)
		return;
	PipeannMetaBegin(v->view.index, &update);
	update.meta->removals++;
	PipeannMetaEnd(&update);
	v->removing = removing;
}

/*
 * Before scans are told that no row is being removed any more, the map of rows is
 * made to know it. What an interrupted VACUUM has removed may be unknown here, and
 * who only finishes its work cannot tell.
 */
static void
UpdateRowMap(PipeannVacuum *v)
{
	const PipeannMeta *meta = &v->view.meta;

	if (!v->removing || meta->removals % 2 == 1 || v->view.cache == NULL ||
		v->callback == NULL)
		return;
	PipeannCacheForgetRows(v->view.index, v->view.cache, meta, v->callback,
						   v->callback_state);
}

/* Clean a page that is locked exclusively. */
static void
CleanLocked(PipeannVacuum *v, uint32 number, Buffer buffer)
{
	const PipeannLayout *l = &v->view.meta.layout;
	GenericXLogState *xlog = GenericXLogStart(v->view.index);
	Page		page = GenericXLogRegisterBuffer(xlog, buffer, 0);

	for (uint32 i = 0; i < l->slots_per_page; i++)
	{
		PipeannSlot *slot = PipeannSlotAt(l, PipeannPagePayload(page), i);

		if (slot->flags & PIPEANN_SLOT_USED)
			CleanSlot(v, PipeannVacuumId(v, number, i), slot);
	}
	PipeannPageSeal(page, BufferGetBlockNumber(buffer));
	GenericXLogFinish(xlog);
}

static void
AddOwner(PipeannVacuum *v, uint32 owner)
{
	if (v->nowners > 0 && v->owners[v->nowners - 1] == owner)
		return;
	if (v->nowners == v->owners_size)
	{
		v->owners_size = Max(64, v->owners_size * 2);
		v->owners = v->owners == NULL ?
			PipeannAlloc(mul_size(v->owners_size, sizeof(uint32))) :
			PipeannRealloc(v->owners,
						   mul_size(v->owners_size, sizeof(uint32)));
	}
	v->owners[v->nowners++] = owner;
}

/* Add a slot to the set that it belongs to now. */
static void
NoteSlot(PipeannVacuum *v, uint32 id, PipeannSlot *slot)
{
	v->stats->num_index_tuples += PipeannAnyRows(&v->view.meta.layout, slot).n;
	if (PipeannSlotIsLive(slot))
		PipeannBitsAdd(&v->live, id);
	else if (PipeannSlotIsDead(slot))
	{
		PipeannBitsAdd(&v->dead, id);
		if (slot->flags & PIPEANN_SLOT_OUT_OF_LINE)
			v->parts_died = true;
	}
	else if (slot->length > 0)
		PipeannBitsAdd(&v->parts, id);
	else if (slot->flags & PIPEANN_SLOT_CLOSED)
	{
		PipeannBitsAdd(&v->garbage, id);
		AddOwner(v, slot->owner);
	}
}

static void
NotePage(PipeannVacuum *v, uint32 number, Page page)
{
	const PipeannLayout *l = &v->view.meta.layout;

	for (uint32 i = 0; i < l->slots_per_page; i++)
	{
		PipeannSlot *slot = PipeannSlotAt(l, PipeannPagePayload(page), i);

		if (slot->flags & PIPEANN_SLOT_USED)
			NoteSlot(v, PipeannVacuumId(v, number, i), slot);
	}
	VacuumNoteFree(v, number, page, false);
}

static void
CleanPage(PipeannVacuum *v, uint32 number)
{
	Buffer		buffer = PipeannVacuumPage(v, number, BUFFER_LOCK_SHARE);

	if (!BufferIsValid(buffer))
		return;
	if (PageNeedsCleaning(v, BufferGetPage(buffer)))
	{
		LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
		VacuumNoteWork(v);
		NoteRemoving(v, true);
		LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
		CleanLocked(v, number, buffer);
	}
	NotePage(v, number, BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
}

/*
 * Remove dead TIDs, and fill the sets of live and dead nodes
 *
 * Pages added during the pass hold no row that was dead when it began.
 */
static void
VacuumClean(PipeannVacuum *v)
{
	v->removing = v->view.meta.removals % 2 == 1;
	PipeannVacuumBeginPass(v);
	if (v->info->report_progress)
		pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_TOTAL, v->pages);
	for (uint32 page = 0; page < v->pages; page++)
	{
		CleanPage(v, page);
		if (v->info->report_progress)
			pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_DONE, page + 1);
	}
	UpdateRowMap(v);
	NoteRemoving(v, false);
}

/* Enlarge a set and keep its ids. */
static void
GrowSet(PipeannVacuum *v, PipeannBits *set, uint32 old_ids)
{
	PipeannBits old = *set;

	PipeannVacuumInitSet(v, set);
	memcpy(set->bits, old.bits, old_ids / 8 + 1);
	set->count = old.count;
	pfree(old.bits);
}

/*
 * Wait for inserts that began before all dead nodes were dead. Later inserts
 * neither add rows to these nodes nor choose them as neighbours.
 */
static void
AwaitInserts(PipeannVacuum *v)
{
	uint32		old_ids = v->ids;

	VacuumNoteWork(v);
	PipeannLetInsertsIn(v->view.index, PipeannKeepInsertsOut(v->view.index));

	PipeannRefreshView(&v->view);
	v->ids = Max(old_ids, PipeannViewIds(&v->view));
	GrowSet(v, &v->live, old_ids);
	GrowSet(v, &v->dead, old_ids);
	GrowSet(v, &v->garbage, old_ids);
	GrowSet(v, &v->parts, old_ids);
	GrowSet(v, &v->trimmed, old_ids);
}

/* Set v->entry to the nodes of the entry graph; returns how many are dead. */
static uint32
FindEntryNodes(PipeannVacuum *v)
{
	uint32		dead = 0;

	PipeannVacuumInitSet(v, &v->entry);
	for (uint32 i = 0; i < v->view.codes.entry_count; i++)
	{
		uint32		id = v->view.codes.entry_ids[i];

		if (id >= v->ids)
			continue;
		PipeannBitsAdd(&v->entry, id);
		if (PipeannBitsHas(&v->dead, id))
			dead++;
	}
	return dead;
}

/*
 * All is done. An interrupted VACUUM may have left a wrong number of nodes;
 * what was counted now is right if nothing was inserted meanwhile.
 */
static void
NoteDone(PipeannVacuum *v, uint32 entry_dead)
{
	PipeannMetaUpdate update;

	if (!v->noted)
		return;
	PipeannMetaBegin(v->view.index, &update);
	update.meta->flags &= ~PIPEANN_META_REPAIRING;
	if (v->free_pages > 0)
		update.meta->flags |= PIPEANN_META_HAS_FREE;
	if (v->interrupted && update.meta->nodes == v->nodes)
		update.meta->nodes = v->live.count + v->dead.count;
	update.meta->nodes -= Min(v->freed, update.meta->nodes);
	update.meta->entry_dead = entry_dead;
	PipeannMetaEnd(&update);
	if (v->free_pages > 0)
		FreeSpaceMapVacuum(v->view.index);
}

static void
ReportRepair(const PipeannVacuum *v, uint32 entry_dead)
{
	ereport(v->info->message_level,
			(errmsg("index \"%s\": %llu nodes without rows freed, %u kept as entry points, %llu neighbor lists repaired, %llu nodes linked again, in %u passes",
					RelationGetRelationName(v->view.index),
					(unsigned long long) v->freed, entry_dead,
					(unsigned long long) v->lists,
					(unsigned long long) v->relinked, v->passes)));
}

/* Dead nodes that an earlier VACUUM left in the entry graph are no work. */
static bool
HasWork(const PipeannVacuum *v, uint32 entry_dead)
{
	return v->noted &&
		(v->interrupted || v->dead.count > entry_dead ||
		 v->garbage.count > 0 || v->parts_died);
}

/* Take dead nodes out of the graph, and keep it connected. */
static void
RepairGraph(PipeannVacuum *v)
{
	PipeannReach reach;

	PipeannVacuumInitSet(v, &v->orphaned);
	PipeannReachBegin(&reach, v);
	PipeannVacuumRepair(v, &reach);
	PipeannVacuumRelink(&reach);
	PipeannVacuumLinkNear(&reach);
}

static void
Vacuum(PipeannVacuum *v)
{
	uint32		entry_dead;

	PipeannOpenView(&v->view, v->info->index);
	v->nodes = v->view.meta.nodes;
	entry_dead = v->view.meta.entry_dead;
	v->interrupted = v->noted =
		(v->view.meta.flags & PIPEANN_META_REPAIRING) != 0;
	v->ids = PipeannViewIds(&v->view);
	PipeannVacuumInitSet(v, &v->live);
	PipeannVacuumInitSet(v, &v->dead);
	PipeannVacuumInitSet(v, &v->garbage);
	PipeannVacuumInitSet(v, &v->parts);
	PipeannVacuumInitSet(v, &v->trimmed);

	VacuumClean(v);
	PipeannVacuumOverflow(v);
	if (HasWork(v, entry_dead))
	{
		/* retraining must not meet a freed slot that is used anew */
		LockPage(v->view.index, PIPEANN_MAINTENANCE_LOCK, ExclusiveLock);
		PipeannVacuumEntryGraph(v);
		PIPEANN_PAUSE("vacuum-cleaned");
		AwaitInserts(v);
		entry_dead = FindEntryNodes(v);
		PipeannVacuumParts(v);
		RepairGraph(v);
		VacuumRelease(v);
		UnlockPage(v->view.index, PIPEANN_MAINTENANCE_LOCK, ExclusiveLock);
		ReportRepair(v, entry_dead);
	}
	if (v->trimmed.count > 0 && PipeannVacuumHasAttributes(v))
	{
		LockPage(v->view.index, PIPEANN_MAINTENANCE_LOCK, ExclusiveLock);
		VacuumShrinkCodes(v);
		UnlockPage(v->view.index, PIPEANN_MAINTENANCE_LOCK, ExclusiveLock);
	}
	NoteDone(v, entry_dead);
}

/* With callback NULL, only finish the work of an interrupted VACUUM. */
static void
VacuumIndex(IndexVacuumInfo *info, IndexBulkDeleteResult *stats,
			IndexBulkDeleteCallback callback, void *callback_state)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pipeann vacuum",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	PipeannVacuum v;

	memset(&v, 0, sizeof(v));
	v.info = info;
	v.stats = stats;
	v.callback = callback;
	v.callback_state = callback_state;
	LockPage(info->index, PIPEANN_REPACK_LOCK, ShareLock);
	stats->estimated_count = false;
	stats->num_index_tuples = 0;
	stats->pages_deleted = 0;
	stats->pages_free = 0;
	Vacuum(&v);
	UnlockPage(info->index, PIPEANN_REPACK_LOCK, ShareLock);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

IndexBulkDeleteResult *
pipeannbulkdelete(IndexVacuumInfo *info, IndexBulkDeleteResult *stats,
				  IndexBulkDeleteCallback callback, void *callback_state)
{
	if (stats == NULL)
		stats = palloc0(sizeof(IndexBulkDeleteResult));
	VacuumIndex(info, stats, callback, callback_state);
	return stats;
}

/* Whether an interrupted VACUUM has left work. */
static bool
WasInterrupted(Relation index)
{
	PipeannMeta *meta = palloc(sizeof(PipeannMeta));
	bool		interrupted;

	PipeannMetaRead(index, meta);
	interrupted = (meta->flags & PIPEANN_META_REPAIRING) != 0;
	pfree(meta);
	return interrupted;
}

IndexBulkDeleteResult *
pipeannvacuumcleanup(IndexVacuumInfo *info, IndexBulkDeleteResult *stats)
{
	if (info->analyze_only)
		return stats;
	PipeannRetrain(info->index, true);
	if (stats == NULL)
	{
		stats = palloc0(sizeof(IndexBulkDeleteResult));
		if (WasInterrupted(info->index))
			VacuumIndex(info, stats, NULL, NULL);
		else
		{
			stats->num_index_tuples = info->num_heap_tuples;
			stats->estimated_count = true;
		}
	}
	stats->num_pages = RelationGetNumberOfBlocks(info->index);
	return stats;
}
