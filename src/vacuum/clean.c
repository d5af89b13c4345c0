/*
 * clean.c
 *		VACUUM's first pass removes dead TIDs, and notes what is left.
 *
 * A page is looked at under a share lock. Only a page with something to remove
 * is locked exclusively and written.
 */
#include "postgres.h"

#include "base/planted.h"
#include "vacuum/passes.h"
#include "commands/progress.h"
#include "pgstat.h"
#include "utils/rel.h"

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
	v->parts_died |= PipeannRowIsApart(&v->view.meta.layout, row);
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
	PipeannVacuumNoteFree(v, number, page, false);
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
		PipeannVacuumNoteWork(v);
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
void
PipeannVacuumClean(PipeannVacuum *v)
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
