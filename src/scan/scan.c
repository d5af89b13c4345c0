/*
 * scan.c
 *		Index scans, which return rows in the order of their distances.
 */
#include "postgres.h"

#include <math.h>

#include "access/relscan.h"
#include "access/xlog.h"
#include "base/pause.h"
#include "base/planted.h"
#include "io/io.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "scan/state.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

PipeannCounters PipeannLastCounters;
int			PipeannLastMode;

IndexScanDesc
pipeannbeginscan(Relation index, int nkeys, int norderbys)
{
	IndexScanDesc scan = RelationGetIndexScan(index, nkeys, norderbys);
	PipeannScan *state = palloc0(sizeof(PipeannScan));

	state->context = AllocSetContextCreate(CurrentMemoryContext,
										   "pipeann scan",
										   ALLOCSET_DEFAULT_SIZES);
	state->scan = scan;
	scan->opaque = state;
	if (norderbys > 0)
	{
		scan->xs_orderbyvals = palloc0(sizeof(Datum) * norderbys);
		scan->xs_orderbynulls = palloc(sizeof(bool) * norderbys);
		memset(scan->xs_orderbynulls, true, sizeof(bool) * norderbys);
	}
	return scan;
}

/* Memory, reads in flight and the cache are released with the context. */
static void
ResetScan(PipeannScan *state)
{
	if (state->only != NULL)
		PipeannOnlyEnd(state->only);
	if (state->left_out != NULL)
		PipeannLeftOutEnd(state->left_out);
	state->only = NULL;
	state->left_out = NULL;
	state->known = NULL;
	state->nheld = 0;
	state->last_dist = -INFINITY;
	MemoryContextReset(state->context);
	state->started = false;
	state->source = NULL;
	state->search = NULL;
	state->filter = NULL;
	state->tid_filter = NULL;
	state->exhausted = false;
	state->late = false;
	state->taken = 0;
	state->looked_at = 0;
	state->farthest = -INFINITY;
	state->recheck = false;
	state->held = 0;
	state->rows_left = 0;
	state->chain.next = PIPEANN_INVALID_ID;
}

/* What a session remembers of an index until its relcache entry is made anew. */
typedef struct LastScan
{
	int			rows;			/* that were wanted */
} LastScan;

static int
RowsOfLastScan(Relation index)
{
	return index->rd_amcache == NULL ? 1 :
		((LastScan *) index->rd_amcache)->rows;
}

/* What one scan leaves to the next: pages often used, rows wanted. */
static void
LeaveToNext(const PipeannScan *state)
{
	Relation	index = state->view.index;

	if (index->rd_amcache == NULL)
		index->rd_amcache = MemoryContextAlloc(index->rd_indexcxt,
											   sizeof(LastScan));
	((LastScan *) index->rd_amcache)->rows =
		(int) Min((uint64) state->looked_at, PIPEANN_MAX_PREFETCH);
	if (state->view.cache != NULL)
		PipeannHotBringInWanted(index, &state->view.meta.layout,
								state->view.map, &state->view.cache->hot,
								PipeannSourceUses(state->source));
}

static PipeannScanContext
ContextOf(IndexScanDesc scan, ScanKey key)
{
	const PipeannScanContext *context = key == NULL ||
		scan->numberOfOrderBys == 0 ? NULL : PIPEANN_SCAN_CONTEXT(key);

	return context != NULL ? *context : (PipeannScanContext) {0};
}

void
pipeannrescan(IndexScanDesc scan, ScanKey keys, int nkeys, ScanKey orderbys,
			  int norderbys)
{
	PipeannScan *state = scan->opaque;
	bool		forget = PIPEANN_PLANTED("rescan-vector") && state->started;

	(void) nkeys;
	(void) norderbys;
	if (state->started)
		LeaveToNext(state);
	ResetScan(state);
	state->heeds = ContextOf(scan, orderbys);
	if (scan->numberOfOrderBys > 0)
		memset(scan->xs_orderbynulls, true,
			   sizeof(bool) * scan->numberOfOrderBys);
	if (keys && scan->numberOfKeys > 0)
		memmove(scan->keyData, keys,
				scan->numberOfKeys * sizeof(ScanKeyData));
	if (orderbys && scan->numberOfOrderBys > 0 && !forget)
		memmove(scan->orderByData, orderbys,
				scan->numberOfOrderBys * sizeof(ScanKeyData));
}

/* Whether all nodes are to be explored before a row is returned. */
static bool
WantsWhole(const PipeannScan *state)
{
	const PipeannFill *fill = state->heeds.fill;

	return fill != NULL && fill->whole &&
		pipeann_iterative_scan != PIPEANN_ITERATIVE_OFF;
}

static void
FirstRun(PipeannScan *state)
{
	PipeannIndexView *view = &state->view;

	if (view->cache != NULL)
	{
		while (PipeannSearchRun(state->search) && WantsWhole(state))
			CHECK_FOR_INTERRUPTS();
		state->exhausted = WantsWhole(state);
	}
	else
	{
		PipeannSearchExact(state->search, PipeannViewPages(view));
		state->exhausted = true;
	}
	if (state->replica)
		PipeannCheckPacking(view);
}

static void
StartScan(IndexScanDesc scan, PipeannScan *state)
{
	if (scan->orderByData == NULL || scan->numberOfOrderBys < 1)
		elog(ERROR, "cannot scan pipeann index without order");
	if (scan->numberOfOrderBys > 1)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot scan pipeann index in the order of several distances")));

	/* a page that VACUUM has changed meanwhile may be used: see src/README */
	if (!IsMVCCSnapshot(scan->xs_snapshot))
		elog(ERROR, "non-MVCC snapshots are not supported with pipeann");

	pgstat_count_index_scan(scan->indexRelation);
#if PG_VERSION_NUM >= 180000
	if (scan->instrument)
		scan->instrument->nsearches++;
#endif
	state->prefetch.expected = RowsOfLastScan(scan->indexRelation);
	PipeannScanStart(scan, state);
	state->started = true;
	state->searched = false;
}

/* Find where the search begins, if others have to do that before it is run. */
static bool
IsEntering(PipeannScan *state)
{
	PipeannDistanceBound *bound = state->heeds.bound;

	if (bound == NULL || !bound->entering || state->searched)
		return false;
	bound->entered = state->view.cache == NULL ? 0 :
		PipeannSearchEnter(state->search);
	return true;
}

/*
 * Whether a row of the present node, or one without a node, matches the scan's
 * conditions.
 */
static bool
Matches(IndexScanDesc scan, PipeannScan *state, const PipeannRow *row)
{
	scan->xs_recheck = false;
	if (state->tid_filter != NULL && state->chain.owner != PIPEANN_INVALID_ID &&
		!PipeannTidFilterHas(state->tid_filter, &row->tid))
		return false;
	return state->filter == NULL ||
		PipeannFilterMatches(state->filter, state->chain.owner, row,
							 &scan->xs_recheck);
}

/*
 * Whether the search has come to its end, and not to one that it was set: then rows
 * that the index leaves out are next. If others were left out as they came late, who
 * fills a limit may want those first.
 */
static bool
IsAtEnd(PipeannScan *state)
{
	bool		at_end = state->exhausted &&
		state->looked_at < PipeannMostToLookAt(state) &&
		pipeann_iterative_scan != PIPEANN_ITERATIVE_OFF &&
		state->heeds.bound == NULL &&
		!state->is_void;

	if (!at_end || !state->late || state->heeds.fill == NULL)
		return at_end;
	state->heeds.fill->late = true;
	return false;
}

static const PipeannRow *
NextLeftOut(IndexScanDesc scan, PipeannScan *state)
{
	PipeannRow *row = &state->row_left_out;

	if (!IsAtEnd(state))
		return NULL;
	if (state->left_out == NULL)
		state->left_out = PipeannLeftOutBegin(scan, &state->view);
	if (state->left_out == NULL ||
		!PipeannLeftOutNext(state->left_out, PipeannMostToLookAt(state), &row->tid))
		return NULL;
	scan->xs_recheck = scan->numberOfKeys > 0;
	return row;
}

/* The next row to return, or NULL at the end. */
static const PipeannRow *
NextRow(IndexScanDesc scan, PipeannScan *state)
{
	while (state->rows_left > 0 || PipeannStreamLoad(state))
	{
		const PipeannRow *row = state->next_row;
		bool		dead;

		CHECK_FOR_INTERRUPTS();
		state->next_row = PipeannRowNext(&state->view.meta.layout, row);
		state->rows_left--;
		if (!Matches(scan, state, row))
			continue;
		state->looked_at++;
		if (state->only == NULL ||
			PipeannOnlyTake(state->only, state->chain.owner, row, &dead))
			return row;
		if (dead)
			PipeannStreamNoteDead(state);
	}
	return NextLeftOut(scan, state);
}

bool
pipeanngettuple(IndexScanDesc scan, ScanDirection dir)
{
	PipeannScan *state = scan->opaque;
	MemoryContext old = MemoryContextSwitchTo(state->context);
	const PipeannRow *row;

	Assert(ScanDirectionIsForward(dir));
	(void) dir;
	PipeannScanRowIs(NULL);
	if (!state->started)
		StartScan(scan, state);
	else if (scan->kill_prior_tuple)
		PipeannStreamNoteDead(state);
	if (!state->searched && !IsEntering(state))
	{
		if (state->is_void)
			state->exhausted = true;
		else
			FirstRun(state);
		PipeannDistanceBoundSearched(state->heeds.bound, &state->view.meta.layout,
									 state->exhausted ? NULL : state->search);
		PIPEANN_PAUSE("scan-searched");
		state->searched = true;
	}

	row = state->searched ? NextRow(scan, state) : NULL;
	if (row != NULL)
	{
		scan->xs_heaptid = row->tid;
		PipeannScanRowIs(state);
	}
	MemoryContextSwitchTo(old);
	return row != NULL;
}

void
pipeannendscan(IndexScanDesc scan)
{
	PipeannScan *state = scan->opaque;

	if (state->started)
	{
		PipeannLastCounters = state->counters;
		PipeannLastMode = state->mode;
		PipeannStatsAdd(PipeannCacheStats(), scan->indexRelation,
						&state->counters);
		LeaveToNext(state);
	}
	if (state->only != NULL)
		PipeannOnlyEnd(state->only);
	if (state->left_out != NULL)
		PipeannLeftOutEnd(state->left_out);
	MemoryContextDelete(state->context);
	pfree(state);
	scan->opaque = NULL;
}
