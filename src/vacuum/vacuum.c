/*
 * vacuum.c
 *		Removing dead rows: VACUUM's callbacks, the order of its steps, and all of them
 *		but the repair of the graph (repair.c).
 *
 * src/README, "vacuum/: removing dead rows", explains the order of the steps,
 * and what an interrupted VACUUM leaves to the next.
 */
#include "postgres.h"

#include <math.h>

#include "access/relation.h"
#include "attributes/attributes.h"
#include "base/pause.h"
#include "build/build.h"
#include "catalog/index.h"
#include "commands/progress.h"
#include "commands/vacuum.h"
#include "distance/distance.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "recall/recall.h"
#include "storage/freespace.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "vacuum/passes.h"
#include "vacuum/vacuum.h"

/* VACUUM's first pass: removing dead TIDs, and noting what is left. */

static void
NoteWork(PipeannVacuum *v)
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
 * the page, so they are not noted; inserts try the last page in any case.
 */
static void
NoteFree(PipeannVacuum *v, uint32 page, Page buffer, bool changed)
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

typedef void (*SlotVisit) (PipeannVacuum *v, uint32 id, PipeannSlot *slot);

/* Visit the slots of a page that are in use. */
static void
VisitSlots(PipeannVacuum *v, uint32 number, char *nodes, SlotVisit visit)
{
	const PipeannLayout *l = &v->view.meta.layout;

	for (uint32 i = 0; i < l->slots_per_page; i++)
	{
		PipeannSlot *slot = PipeannSlotAt(l, nodes, i);

		if (slot->flags & PIPEANN_SLOT_USED)
			visit(v, PipeannVacuumId(v, number, i), slot);
	}
}

/* The same, to change them; the page is locked exclusively. */
static void
ChangeSlots(PipeannVacuum *v, uint32 number, Buffer buffer, SlotVisit change)
{
	GenericXLogState *xlog = GenericXLogStart(v->view.index);
	Page		page = GenericXLogRegisterBuffer(xlog, buffer, 0);

	VisitSlots(v, number, PipeannPagePayload(page), change);
	PipeannPageSeal(page, BufferGetBlockNumber(buffer));
	GenericXLogFinish(xlog);
}

static bool
IsDead(const PipeannVacuum *v, const PipeannRow *row)
{
	ItemPointerData tid = row->tid;

	return v->callback != NULL && !PIPEANN_PLANTED("dead-row") &&
		v->callback(&tid, v->callback_state);
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
		if (IsDead(v, row))
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
	const PipeannLayout *l = &v->view.meta.layout;
	PipeannRowList list = PipeannAnyRows(l, slot);
	PipeannRow *row = list.rows;
	char	   *kept = (char *) list.rows;
	uint32		removed = 0;
	uint32		node = slot->flags & PIPEANN_SLOT_EXT ? slot->owner : id;

	for (uint32 i = 0; i < list.n; i++)
	{
		uint32		size = PipeannRowSize(l, row);
		PipeannRow *next = PipeannRowNext(l, row);

		if (IsDead(v, row))
		{
			v->parts_died |= PipeannRowIsOutOfLine(l, row);
			removed++;
		}
		else
		{
			memmove(kept, row, size);
			kept += size;
		}
		row = next;
	}
	if (removed > 0)
		slot->ntids = list.n - removed;
	v->stats->tuples_removed += removed;
	if (removed > 0 && node < v->ids)
		PipeannBitsAdd(&v->trimmed, node);
	if (IsEmptyExt(slot))
		slot->flags |= PIPEANN_SLOT_CLOSED;
}

/*
 * Note in the metapage, for index-only scans and maps of rows, that rows are
 * being removed, or no longer are. If an interrupted VACUUM left `removals`
 * odd it says so already.
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

/* Add a slot to the set to which it belongs now. */
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
		if (slot->owner < v->ids)
			PipeannBitsAdd(&v->owners, slot->owner);
	}
}

/* Pages added during the pass hold no row that was dead when it began. */
static void
RemoveRows(PipeannVacuum *v)
{
	const PipeannMeta *meta = &v->view.meta;

	v->removing = v->view.meta.removals % 2 == 1;
	PipeannVacuumBeginPass(v);
	if (v->info->report_progress)
		pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_TOTAL, v->pages);
	for (uint32 page = 0; page < v->pages; page++)
	{
		Buffer		buffer = PipeannVacuumPage(v, page, BUFFER_LOCK_SHARE);

		if (PageNeedsCleaning(v, BufferGetPage(buffer)))
		{
			LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
			NoteWork(v);
			NoteRemoving(v, true);
			LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
			ChangeSlots(v, page, buffer, CleanSlot);
		}
		VisitSlots(v, page, PipeannPagePayload(BufferGetPage(buffer)), NoteSlot);
		NoteFree(v, page, BufferGetPage(buffer), false);
		UnlockReleaseBuffer(buffer);
		if (v->info->report_progress)
			pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_DONE, page + 1);
	}
	/*
	 * Before `removals` becomes even, update the map of rows. What an
	 * interrupted VACUUM removed may be unknown here, and is unknown to a
	 * VACUUM that only finishes its work.
	 */
	if (v->removing && meta->removals % 2 == 0 && v->view.cache != NULL &&
		v->callback != NULL)
		PipeannCacheForgetRows(v->view.cache, meta, v->callback,
							   v->callback_state);
	NoteRemoving(v, false);
}

/*
 * Unlinking closed overflow slots from their chains, which makes them garbage. Scans
 * that still have the id of one notice that it is not theirs (index/chain.c).
 */

/*
 * A walk along the overflow slots of a node. Their numbers fall from each to
 * the next, so a cycle is noticed at once.
 */
typedef struct ChainWalk
{
	uint32		owner;			/* the node */
	bool		begun;
	uint32		number;			/* of the slot passed last */
} ChainWalk;

static void
ChainError(const PipeannVacuum *v, const ChainWalk *walk, uint32 id)
{
	PipeannCorrupted(v->view.index,
					 "has a broken chain of overflow slots at slot %u of node %u",
					 id, walk->owner);
}

/*
 * Skip the closed slots of a chain from id on. Returns the first open one, or
 * INVALID_ID, and sets *after to the next slot.
 */
static uint32
NextOpen(const PipeannVacuum *v, ChainWalk *walk, uint32 id, uint32 *after)
{
	bool		open = false;

	*after = PIPEANN_INVALID_ID;
	while (id != PIPEANN_INVALID_ID && !open)
	{
		PipeannSlot *slot;
		Buffer		buffer = PipeannReadSlot(&v->view, id, v->info->strategy, &slot);
		bool		ours = PipeannSlotIsTidsOf(slot, walk->owner) &&
			(!walk->begun || (int32) (slot->number - walk->number) < 0);

		walk->begun = true;
		walk->number = slot->number;
		*after = slot->ext_tids;
		open = !(slot->flags & PIPEANN_SLOT_CLOSED);
		UnlockReleaseBuffer(buffer);
		if (!ours)
			ChainError(v, walk, id);
		if (!open)
			id = *after;
	}
	return id;
}

/* The first overflow slot of a node, or INVALID_ID if it is no node. */
static uint32
FirstOverflow(const PipeannVacuum *v, uint32 owner)
{
	PipeannSlot *slot;
	Buffer		buffer = PipeannReadSlot(&v->view, owner, v->info->strategy, &slot);
	uint32		first = PipeannSlotIsNode(slot) ? slot->ext_tids :
		PIPEANN_INVALID_ID;

	UnlockReleaseBuffer(buffer);
	return first;
}

/*
 * Set the link in slot id, the node's or one of its overflow slots', from
 * "from" to "to". False if the link has changed.
 */
static bool
SetLink(PipeannVacuum *v, const ChainWalk *walk, uint32 id, uint32 from,
		uint32 to)
{
	PipeannPageUpdate update;
	bool		ours;

	PipeannSlotBegin(&v->view, id, &update);
	ours = id == walk->owner ? PipeannSlotIsNode(update.slot) :
		PipeannSlotIsTidsOf(update.slot, walk->owner);
	if (!ours || update.slot->ext_tids != from)
	{
		PipeannPageAbort(&update);
		if (!ours)
			ChainError(v, walk, id);
		return false;
	}
	update.slot->ext_tids = to;
	if (PipeannSlotIsDead(update.slot))
	{
		PipeannBitsRemove(&v->live, id);
		PipeannBitsAdd(&v->dead, id);
		if (update.slot->flags & PIPEANN_SLOT_OUT_OF_LINE)
			v->parts_died = true;
	}
	PipeannPageEnd(&update);
	return true;
}

static void
CleanChain(PipeannVacuum *v, uint32 owner)
{
	ChainWalk	walk = {.owner = owner};
	uint32		at = owner;
	uint32		next = FirstOverflow(v, owner);

	while (next != PIPEANN_INVALID_ID)
	{
		uint32		after;
		uint32		open = NextOpen(v, &walk, next, &after);

		if (open != next && !SetLink(v, &walk, at, next, open))
		{
			/* an insert has put a slot in front of the chain */
			walk.begun = false;
			at = owner;
			next = FirstOverflow(v, owner);
			continue;
		}
		at = open;
		next = after;
	}
}

/*
 * Replacing dead nodes in the entry graph by live ones. Edges of the entry
 * graph are between positions, so they stay, and lead to about the same
 * vectors as before.
 */

typedef struct EntryRepair
{
	PipeannVacuum *v;
	PipeannBits taken;			/* nodes of the entry graph */
	uint32	   *ids;			/* [entry_count] of these, as they will be */
	PipeannSlot *slot;
	float	   *x;
	float	   *y;
} EntryRepair;

/*
 * The nearest to e->x of a node's neighbours that are in a set, and not in the entry
 * graph; INVALID_ID if there is none.
 */
static uint32
NearestNeighbor(EntryRepair *e, uint32 id, const PipeannBits *set)
{
	const PipeannIndexView *view = &e->v->view;
	const PipeannPq *pq = &view->codes.pq;
	uint32		nearest = PIPEANN_INVALID_ID;
	float		least = INFINITY;

	PipeannSlotCopy(view, id, e->slot);
	for (int i = 0; i < PipeannSlotDegree(&view->meta.layout, e->slot); i++)
	{
		uint32		neighbor = e->slot->neighbors[i];
		float		dist;

		if (neighbor >= e->v->ids || neighbor >= view->codes.ncodes ||
			PipeannBitsHas(&e->taken, neighbor) || !PipeannBitsHas(set, neighbor))
			continue;
		PipeannPqDecode(pq, PipeannCodeAt(&view->codes, neighbor), e->y);
		dist = PipeannKernel->l2[PIPEANN_FLOAT4] (e->x, e->y, pq->dim);
		if (dist < least)
		{
			nearest = neighbor;
			least = dist;
		}
	}
	return nearest;
}

/*
 * The node that replaces an entry's dead one, or INVALID_ID: a live neighbour,
 * or a live neighbour of the nearest dead one.
 */
static uint32
FindReplacement(EntryRepair *e, uint32 position)
{
	const PipeannCodes *codes = &e->v->view.codes;
	uint32		id = e->ids[position];
	uint32		heir;
	uint32		dead;

	PipeannPqDecode(&codes->pq, codes->entry_codes + (Size) position * codes->pq.nsubvectors, e->x);
	heir = NearestNeighbor(e, id, &e->v->live);
	if (heir != PIPEANN_INVALID_ID)
		return heir;
	dead = NearestNeighbor(e, id, &e->v->dead);
	return dead == PIPEANN_INVALID_ID ? dead :
		NearestNeighbor(e, dead, &e->v->live);
}

static bool
IsDeadEntry(const EntryRepair *e, uint32 position)
{
	uint32		id = e->ids[position];

	return id < e->v->ids && PipeannBitsHas(&e->v->dead, id);
}

/* Let a dead entry share the node of a live one to which it leads, if there is one. */
static bool
ShareEntry(EntryRepair *e, uint32 position)
{
	const PipeannCodes *codes = &e->v->view.codes;
	const uint32 *neighbors = codes->entry_neighbors + (Size) position * codes->entry_degree;

	for (int i = 0; i < Min(codes->entry_nneighbors[position], (int) codes->entry_degree); i++)
		if (neighbors[i] < codes->entry_count && !IsDeadEntry(e, neighbors[i]))
		{
			e->ids[position] = e->ids[neighbors[i]];
			return true;
		}
	return false;
}

/*
 * Plan the entries' nodes. A dead one that nothing replaces shares the node of the
 * nearest live entry, by edges; if none is live, all share one dead node.
 */
static void
PlanEntries(EntryRepair *e)
{
	uint32		n = e->v->view.codes.entry_count;
	bool		again = true;

	for (uint32 i = 0; i < n; i++)
	{
		uint32		heir;

		CHECK_FOR_INTERRUPTS();
		if (!IsDeadEntry(e, i))
			continue;
		heir = FindReplacement(e, i);
		if (heir == PIPEANN_INVALID_ID)
			continue;
		e->ids[i] = heir;
		PipeannBitsAdd(&e->taken, heir);
	}
	while (again)
	{
		CHECK_FOR_INTERRUPTS();
		again = false;
		for (uint32 i = 0; i < n; i++)
			again |= IsDeadEntry(e, i) && ShareEntry(e, i);
	}
	for (uint32 i = 0; i < n; i++)
		if (IsDeadEntry(e, i))
			e->ids[i] = e->ids[0];
}

/*
 * Returns the number of entries that share a node. This comes before waiting for
 * inserts, so that later ones see the new nodes. The lock, which inserts take as
 * well, shuts out a backend that writes a new entry graph.
 */
static uint32
RepairEntryGraph(PipeannVacuum *v)
{
	const PipeannLayout *l = &v->view.meta.layout;
	const PipeannCodes *codes = &v->view.codes;
	uint32		per_page = PIPEANN_PAYLOAD / sizeof(uint32);
	EntryRepair e = {.v = v};
	uint32		shared;

	LockPage(v->view.index, PIPEANN_METAPAGE, ShareLock);
	PipeannRefreshView(&v->view);
	PipeannVacuumInitSet(v, &e.taken);
	e.slot = PipeannSlotAlloc(l);
	e.x = palloc(mul_size(l->dim, sizeof(float)));
	e.y = palloc(mul_size(l->dim, sizeof(float)));
	e.ids = PipeannArray(uint32, codes->entry_count);
	for (uint32 i = 0; i < codes->entry_count; i++)
		if ((e.ids[i] = codes->entry_ids[i]) < v->ids)
			PipeannBitsAdd(&e.taken, e.ids[i]);
	PlanEntries(&e);
	for (uint32 at = 0; at < codes->entry_count; at += per_page)
	{
		uint32		n = Min(codes->entry_count - at, per_page);
		PipeannMetaUpdate update;
		Buffer		buffer;

		if (memcmp(e.ids + at, codes->entry_ids + at, n * sizeof(uint32)) == 0)
			continue;
		/* in one WAL record, so that caches follow wherever VACUUM or replay ends */
		PipeannMetaBegin(v->view.index, &update);
		buffer = PipeannExtentPut(v->view.index, PipeannExtentBlock(&v->view.meta.extents) +
								  PipeannEntryPage(l) + at / per_page, PIPEANN_ENTRY,
								  e.ids + at, n * sizeof(uint32), update.state);
		update.meta->entry_changes++;
		PipeannMetaEnd(&update);
		UnlockReleaseBuffer(buffer);
	}
	v->kept = codes->entry_count > 0 ? e.ids[0] : PIPEANN_INVALID_ID;
	PipeannVacuumInitSet(v, &e.taken);
	for (uint32 i = 0; i < codes->entry_count; i++)
		if (e.ids[i] < v->ids)
			PipeannBitsAdd(&e.taken, e.ids[i]);
	shared = codes->entry_count - e.taken.count;
	PipeannRefreshView(&v->view);
	UnlockPage(v->view.index, PIPEANN_METAPAGE, ShareLock);
	return shared;
}

/* Finding parts of vectors and rows to which nothing leads any more. */

/*
 * Remove the parts of a vector or row from v->parts. An insert writes the last
 * part first: if it was under way in the first pass only later parts may have
 * been noted, so the chain is followed to its end. The number of steps is
 * bounded, as a broken chain may have a cycle.
 */
static void
KeepParts(PipeannVacuum *v, uint32 first)
{
	const PipeannLayout *l = &v->view.meta.layout;
	uint32		left = Max(PipeannPartsOf(l, PipeannMostOutOfLine(l)),
						   PipeannPartsOf(l, PIPEANN_ROW_SIZE));
	uint32		next = first;

	while (next < v->ids && left-- > 0)
	{
		PipeannSlot *slot;
		Buffer		buffer = PipeannReadSlot(&v->view, next, v->info->strategy, &slot);

		PipeannBitsRemove(&v->parts, next);
		next = slot->ext_vec;
		UnlockReleaseBuffer(buffer);
	}
}

/* Keep the parts of a slot's vector and rows. */
static void
KeepPartsOf(PipeannVacuum *v, uint32 id, PipeannSlot *slot)
{
	const PipeannLayout *l = &v->view.meta.layout;
	PipeannRowList list = PipeannAnyRows(l, slot);
	const PipeannRow *row = list.rows;

	if (PipeannSlotIsLive(slot) && (slot->flags & PIPEANN_SLOT_OUT_OF_LINE))
		KeepParts(v, slot->ext_vec);
	for (uint32 i = 0; i < list.n; i++, row = PipeannRowNext(l, row))
		if (PipeannRowIsOutOfLine(l, row))
			KeepParts(v, PipeannRowFirstPart(row));
}

/*
 * Parts to which no live node and no row leads are garbage. They are rare, so this
 * looks for them only if a node or row with parts died or a VACUUM was interrupted.
 */
static void
FindLostParts(PipeannVacuum *v)
{
	char	   *nodes;

	if (v->parts.count == 0 || !(v->parts_died || v->interrupted))
		return;
	nodes = palloc(PIPEANN_PAYLOAD);
	PipeannVacuumBeginPass(v);
	for (uint32 page = 0; page < v->pages; page++)
	{
		PipeannVacuumCopyPage(v, page, nodes);
		VisitSlots(v, page, nodes, KeepPartsOf);
	}
	for (uint32 id = 0; id < v->ids && v->parts.count > 0; id++)
		if (PipeannBitsHas(&v->parts, id))
		{
			PipeannBitsAdd(&v->garbage, id);
			PipeannBitsRemove(&v->parts, id);
		}
	pfree(nodes);
}

/* Removing from attribute codes what no row has any more. */

/* Whether a slot will be freed. */
static bool
FreesSlot(const PipeannVacuum *v, uint32 id)
{
	return PipeannBitsHas(&v->garbage, id) || PipeannVacuumFrees(v, id);
}

/* Whether there are attribute codes. */
static bool
HasAttributes(const PipeannVacuum *v)
{
	return v->view.cache != NULL && v->view.meta.layout.attr_bytes > 0;
}

/* Set freed[] for the codes of a page that belong to slots to be freed; false if there are none. */
static bool
FindFreed(const PipeannVacuum *v, uint32 code_page, uint32 per_page,
		  bool *freed)
{
	bool		any = false;

	for (uint32 i = 0; i < per_page; i++)
	{
		uint64		id = (uint64) code_page * per_page + i;

		freed[i] = id < v->ids && FreesSlot(v, (uint32) id);
		any |= freed[i];
	}
	return any;
}

/* Clear the codes of slots to be freed, before inserts can use these and write codes. */
static void
ClearCodes(PipeannVacuum *v)
{
	uint32		per_page = PipeannCodesPerPage(&v->view.meta.layout);
	uint32		pages = v->view.meta.code_pages;
	uint32	   *changed;
	bool	   *freed;
	uint32		n = 0;

	if (!HasAttributes(v))
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

/* Whether a node's code, as in memory, may cover more than its rows have. */
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

/*
 * Rewrite the codes of nodes that lost rows.
 */
static void
ShrinkCodes(PipeannVacuum *v)
{
	PipeannIndexView *view = &v->view;
	uint32		per_page = PipeannCodesPerPage(&view->meta.layout);
	uint32	   *changed;
	uint32		n = 0;
	PipeannNodeCode node = {.view = view};

	PipeannRefreshView(view);
	if (!HasAttributes(v))
		return;
	node.attributes = PipeannAttributesOfView(view);
	changed = palloc(mul_size(Max(view->meta.code_pages, 1), sizeof(uint32)));
	for (uint32 id = 0; id < v->ids; id++)
	{
		uint32		page = id / per_page;

		if (!PipeannBitsHas(&v->trimmed, id) || !PipeannBitsHas(&v->live, id) ||
			!MayShrink(v, node.attributes, id))
			continue;
		PipeannVacuumDelay();
		if (PipeannNodeCodeMake(&node, id) &&
			PipeannChangeCode(view, id, NULL, PipeannNodeCodePut, &node) &&
			(n == 0 || changed[n - 1] != page))
			changed[n++] = page;
	}
	PipeannNoteCodePages(view, changed, n);
	pfree(changed);
}

/* VACUUM's last pass: freeing the slots to which nothing leads any more. */

static bool
HasFreed(const PipeannVacuum *v, uint32 page)
{
	for (uint32 i = 0; i < v->view.meta.layout.slots_per_page; i++)
		if (FreesSlot(v, PipeannVacuumId(v, page, i)))
			return true;
	return false;
}

/* Clear only the header: the next user of the slot sets everything. */
static void
FreeSlot(PipeannVacuum *v, uint32 id, PipeannSlot *slot)
{
	if (!FreesSlot(v, id) || PipeannSlotIsLive(slot))
		return;
	if (PipeannSlotIsNode(slot))
		v->freed++;
	memset(slot, 0, PIPEANN_SLOT_HEADER);
}

/* The order of the steps. */

/* Give the first pass's sets room for v->ids ids; they keep what they have. */
static void
SizeSets(PipeannVacuum *v, uint32 old_ids)
{
	PipeannBits *const sets[] = {&v->live, &v->dead, &v->garbage, &v->parts,
	&v->trimmed, &v->owners};

	for (int i = 0; i < (int) lengthof(sets); i++)
	{
		PipeannBits old = *sets[i];

		PipeannVacuumInitSet(v, sets[i]);
		if (old.bits == NULL)
			continue;
		memcpy(sets[i]->bits, old.bits, old_ids / 8 + 1);
		sets[i]->count = old.count;
		pfree(old.bits);
	}
}

/*
 * Note in the metapage that all is done. An interrupted VACUUM may have left a wrong
 * number of nodes; the present count is right if nothing was inserted meanwhile.
 */
static void
NoteDone(PipeannVacuum *v, uint32 shared)
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
	update.meta->entries_shared = shared;
	PipeannMetaEnd(&update);
	if (v->free_pages > 0)
		FreeSpaceMapVacuum(v->view.index);
}

static void
Vacuum(PipeannVacuum *v)
{
	uint32		shared;

	PipeannOpenView(&v->view, v->info->index);
	v->nodes = v->view.meta.nodes;
	shared = v->view.meta.entries_shared;
	v->interrupted = v->noted =
		(v->view.meta.flags & PIPEANN_META_REPAIRING) != 0;
	v->ids = PipeannViewIds(&v->view);
	SizeSets(v, 0);

	RemoveRows(v);
	PIPEANN_PAUSE("vacuum-rows-removed");
	for (uint32 id = 0; id < v->ids && v->owners.count > 0; id++)
		if (PipeannBitsHas(&v->owners, id))
			CleanChain(v, id);
	if (v->noted && (v->interrupted || v->dead.count > 0 || v->garbage.count > 0 ||
					 v->parts_died))
	{
		uint32		old_ids = v->ids;

		v->view.all_entries = true;
		shared = RepairEntryGraph(v);
		PIPEANN_PAUSE("vacuum-cleaned");
		/* wait for inserts that began before all dead nodes were dead */
		NoteWork(v);
		PipeannLetInsertsIn(v->view.index, PipeannKeepInsertsOut(v->view.index));
		PipeannRefreshView(&v->view);
		v->ids = Max(old_ids, PipeannViewIds(&v->view));
		SizeSets(v, old_ids);
		FindLostParts(v);
		PipeannVacuumRepairGraph(v);
		/* free the slots of dead nodes and of garbage */
		ClearCodes(v);
		PipeannVacuumBeginPass(v);
		for (uint32 page = 0; page < v->pages; page++)
		{
			Buffer		buffer;

			if (!HasFreed(v, page))
				continue;
			buffer = PipeannVacuumPage(v, page, BUFFER_LOCK_EXCLUSIVE);
			ChangeSlots(v, page, buffer, FreeSlot);
			NoteFree(v, page, BufferGetPage(buffer), true);
			UnlockReleaseBuffer(buffer);
		}
		ereport(v->info->message_level,
				(errmsg("index \"%s\": %llu nodes without rows freed, %llu neighbor lists repaired, %llu nodes linked again, in %u passes",
						RelationGetRelationName(v->view.index),
						(unsigned long long) v->freed,
						(unsigned long long) v->lists,
						(unsigned long long) v->relinked, v->passes)));
	}
	if (v->trimmed.count > 0 && HasAttributes(v))
		ShrinkCodes(v);
	NoteDone(v, shared);
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
	PipeannVacuum v = {.info = info,.stats = stats,.callback = callback,
	.callback_state = callback_state};

	/* no retraining meanwhile: VACUUM relies on the codes that there are */
	LockPage(info->index, PIPEANN_MAINTENANCE_LOCK, ShareLock);
	stats->estimated_count = false;
	stats->num_index_tuples = 0;
	stats->pages_deleted = 0;
	stats->pages_free = 0;
	Vacuum(&v);
	UnlockPage(info->index, PIPEANN_MAINTENANCE_LOCK, ShareLock);
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

/*
 * Measure the curve again after many changes, which took far longer. One
 * measured with a user's queries is kept.
 */
static void
RenewCurve(Relation index)
{
	PipeannMeta meta;

	PipeannMetaRead(index, &meta);
	if (meta.curve.queries > 0 || !PipeannCurveIsStale(&meta))
		return;
	PipeannCurveOfOwn(PipeannTeamAlone(), index);
}

IndexBulkDeleteResult *
pipeannvacuumcleanup(IndexVacuumInfo *info, IndexBulkDeleteResult *stats)
{
	PipeannMeta meta;
	Relation	heap;

	if (info->analyze_only)
		return stats;
	heap = relation_open(IndexGetRelation(RelationGetRelid(info->index), false),
						 NoLock);
	PipeannKeepUp(heap, info->index);
	relation_close(heap, NoLock);
	if (stats == NULL)
	{
		stats = palloc0(sizeof(IndexBulkDeleteResult));
		PipeannMetaRead(info->index, &meta);
		if (meta.flags & PIPEANN_META_REPAIRING)
			VacuumIndex(info, stats, NULL, NULL);
		else
		{
			stats->num_index_tuples = info->num_heap_tuples;
			stats->estimated_count = true;
		}
	}
	RenewCurve(info->index);
	stats->num_pages = RelationGetNumberOfBlocks(info->index);
	return stats;
}
