/*
 * vacuum.c
 *		Removing dead rows: VACUUM's callbacks, and the order of its steps.
 *
 * A pass over the graph pages removes dead TIDs from nodes and overflow slots.
 * Nodes that have no row left leave the neighbour lists, and then their slots
 * are freed. Which nodes are dead can be seen from the pages alone, so a
 * VACUUM finishes the work of one that was interrupted; a flag in the metapage
 * tells it to do so even if no other row is dead. See src/README,
 * "vacuum/: dead rows out".
 */
#include "postgres.h"

#include "base/pause.h"
#include "vacuum/passes.h"
#include "vacuum/vacuum.h"
#include "build/build.h"
#include "commands/progress.h"
#include "commands/vacuum.h"
#include "io/io.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/freespace.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/spccache.h"

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

	PipeannVacuumNoteWork(v);
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

	PipeannVacuumClean(v);
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
		PipeannVacuumRelease(v);
		UnlockPage(v->view.index, PIPEANN_MAINTENANCE_LOCK, ExclusiveLock);
		ReportRepair(v, entry_dead);
	}
	if (v->trimmed.count > 0 && PipeannVacuumHasAttributes(v))
	{
		LockPage(v->view.index, PIPEANN_MAINTENANCE_LOCK, ExclusiveLock);
		PipeannVacuumShrinkCodes(v);
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
	PipeannRetrainIfDrifted(info->index);
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
