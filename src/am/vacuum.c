/*
 * vacuum.c
 *		Removing dead rows.
 *
 * One pass over the graph pages in file order takes dead TIDs out of nodes and
 * overflow slots. A node without rows stays in the graph as a tombstone:
 * searches pass through it but never return it, and a row with its vector
 * brings it back to life.
 */
#include "postgres.h"

#include "am/am.h"
#include "commands/vacuum.h"
#include "io/io.h"
#include "utils/memutils.h"
#include "utils/rel.h"

typedef struct VacuumState
{
	IndexVacuumInfo *info;
	IndexBulkDeleteResult *stats;
	IndexBulkDeleteCallback callback;
	void	   *callback_state;
	PipeannIndexView view;
	BufferAccessStrategy strategy;
} VacuumState;

/*
 * The TIDs that stand in a slot of either kind.
 */
static ItemPointerData *
SlotTids(const PipeannLayout *l, PipeannSlot *slot, int *n)
{
	if (slot->flags & PIPEANN_SLOT_EXT)
	{
		*n = Min(slot->ntids, PipeannExtTids(l));
		return (ItemPointerData *) PipeannSlotBody(slot);
	}
	*n = PipeannSlotInlineTids(l, slot);
	return PipeannSlotTids(l, slot);
}

/*
 * Take the dead TIDs out; returns how many that were.
 */
static int
CleanSlot(VacuumState *state, PipeannSlot *slot)
{
	int			n;
	int			kept = 0;
	ItemPointerData *tids = SlotTids(&state->view.meta.layout, slot, &n);

	for (int i = 0; i < n; i++)
		if (!state->callback(&tids[i], state->callback_state))
			tids[kept++] = tids[i];
	if (kept < n)
		slot->ntids = kept;
	state->stats->num_index_tuples += kept;
	return n - kept;
}

/*
 * Clean a copy of the page; keep it if anything changed.
 */
static void
CleanPage(VacuumState *state, BlockNumber blkno)
{
	const PipeannLayout *l = &state->view.meta.layout;
	Relation	index = state->info->index;
	Buffer		buffer = PipeannReadBuffer(index, blkno, PIPEANN_GRAPH,
										   BUFFER_LOCK_EXCLUSIVE, true,
										   state->strategy);
	GenericXLogState *xlog;
	Page		page;
	int			removed = 0;

	if (PageIsNew(BufferGetPage(buffer)))
	{
		UnlockReleaseBuffer(buffer);
		return;
	}
	xlog = GenericXLogStart(index);
	page = GenericXLogRegisterBuffer(xlog, buffer, 0);
	for (uint32 i = 0; i < l->slots_per_page; i++)
	{
		PipeannSlot *slot = PipeannSlotAt(l, PipeannPagePayload(page), i);

		if (slot->flags & PIPEANN_SLOT_USED)
			removed += CleanSlot(state, slot);
	}
	if (removed > 0)
	{
		PipeannPageSeal(page, blkno);
		GenericXLogFinish(xlog);
	}
	else
		GenericXLogAbort(xlog);
	UnlockReleaseBuffer(buffer);
	state->stats->tuples_removed += removed;
}

static void
DelayPoint(void)
{
#if PG_VERSION_NUM >= 180000
	vacuum_delay_point(false);
#else
	vacuum_delay_point();
#endif
}

/*
 * Pages added while this runs hold no row that was dead when it began.
 */
static void
CleanPages(VacuumState *state)
{
	const PipeannIndexView *view = &state->view;
	const PipeannLayout *l = &view->meta.layout;
	uint32		pages = PipeannSourceCountPages(view->index, l, view->map,
												view->meta.graph_pages);

	for (uint32 page = 0; page < pages; page++)
	{
		DelayPoint();
		CleanPage(state, PipeannGraphBlock(view->map, l, page));
	}
}

IndexBulkDeleteResult *
pipeannbulkdelete(IndexVacuumInfo *info, IndexBulkDeleteResult *stats,
				  IndexBulkDeleteCallback callback, void *callback_state)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pipeann vacuum",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old;
	VacuumState state;

	if (stats == NULL)
		stats = palloc0(sizeof(IndexBulkDeleteResult));
	stats->num_index_tuples = 0;

	old = MemoryContextSwitchTo(context);
	memset(&state, 0, sizeof(state));
	state.info = info;
	state.stats = stats;
	state.callback = callback;
	state.callback_state = callback_state;
	state.strategy = info->strategy;
	PipeannOpenView(&state.view, info->index);
	CleanPages(&state);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return stats;
}

IndexBulkDeleteResult *
pipeannvacuumcleanup(IndexVacuumInfo *info, IndexBulkDeleteResult *stats)
{
	if (info->analyze_only)
		return stats;
	PipeannRecodeIfDrifted(info->index);

	/* bulkdelete was not called: nothing was dead */
	if (stats == NULL)
		return NULL;
	stats->num_pages = RelationGetNumberOfBlocks(info->index);
	return stats;
}
