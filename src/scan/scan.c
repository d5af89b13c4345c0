/*
 * scan.c
 *		Index scans, which return rows in the order of their distances.
 */
#include "postgres.h"

#include <math.h>

#include "access/relscan.h"
#include "access/xlog.h"
#include "scan/distance_bound.h"
#include "scan/order.h"
#include "scan/state.h"
#include "base/pause.h"
#include "io/io.h"
#include "miscadmin.h"
#include "base/planted.h"
#include "pgstat.h"
#include "utils/float.h"
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
	state->held_back = NULL;
	state->last_held = -INFINITY;
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

/* What one scan leaves to the next: pages often used, rows wanted. */
static void
LeaveToNext(const PipeannScan *state)
{
	PipeannPrefetchEnd(state->view.index, state->looked_at);
	if (state->view.cache != NULL)
		PipeannHotBringInWanted(state->view.index, &state->view.meta.layout,
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
		PipeannSearchExact(state->search,
						   PipeannSourceCountPages(view->index,
												   &view->meta.layout,
												   view->map,
												   view->meta.graph_pages));
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
 * How many results may be returned before the search has to go on. In strict
 * order a nearer row that is found later is lost. That hardly ever happens to
 * the nearer half of the explored nodes, but sometimes to the others.
 *
 * A search that has ended early does not go on just because the executor holds
 * rows back until a row comes that is surely farther.
 */
static uint64
MostReturnable(const PipeannScan *state)
{
	uint64		explored = PipeannSearchExplored(state->search);

	if (PipeannSearchIsTogether(state->search))
		return PG_UINT64_MAX;
	if (PipeannSearchEndedEarly(state->search))
		return state->recheck && state->taken >= PIPEANN_EARLY_RESULTS ?
			state->taken + 1 : PIPEANN_EARLY_RESULTS;
	if (pipeann_iterative_scan != PIPEANN_ITERATIVE_STRICT)
		return explored;
	return PipeannSearchIsCodeScan(state->search) ? PG_UINT64_MAX :
		explored / PIPEANN_STRICT_PART;
}

/* In strict order a search that can tell says when a nearer row may come. */
static bool
IsInOrder(PipeannScan *state)
{
	return pipeann_iterative_scan != PIPEANN_ITERATIVE_STRICT ||
		PipeannSearchEndedEarly(state->search) ||
		PipeannSearchIsSettled(state->search);
}

static int64
MostToLookAt(const PipeannScan *state)
{
	const PipeannFill *fill = state->heeds.fill;

	return fill != NULL && fill->all ? PG_INT64_MAX : pipeann_max_scan_tuples;
}

/*
 * Let the search go on, if it must, until there is a next result. False if
 * there is none for now.
 */
static bool
ContinueSearch(PipeannScan *state)
{
	while (!state->exhausted &&
		   (state->taken >= MostReturnable(state) ||
			PipeannSearchPeek(state->search) == NULL ||
			!IsInOrder(state)))
	{
		CHECK_FOR_INTERRUPTS();
		if (PipeannSearchIsTogether(state->search) ||
			(pipeann_iterative_scan == PIPEANN_ITERATIVE_OFF &&
			 !PipeannSearchEndedEarly(state->search)))
			return false;
		if (state->looked_at >= MostToLookAt(state) ||
			!PipeannSearchRun(state->search))
			state->exhausted = true;
		if (state->replica)
			PipeannCheckPacking(&state->view);
	}
	return !PipeannDistanceBoundHides(state->heeds.bound,
									  state->view.meta.layout.metric,
									  PipeannSearchPeek(state->search));
}

/* A row that comes late is not returned, but counted. */
static void
LeaveOut(PipeannScan *state, const PipeannResult *result)
{
	state->late = true;
	state->counters.rows_out_of_order += result->nrows;
	PipeannKilledSetNode(&state->killed, state->search, NULL);
}

static void
LoadRows(PipeannScan *state, const PipeannResult *result, PipeannRowList list)
{
	memcpy(state->rows, list.rows, list.bytes);
	state->next_row = state->rows;
	state->rows_left = list.n;
	PipeannChainBegin(&state->chain, result->id, result->ext_tids);
	PipeannKilledSetNode(&state->killed, state->search, result);
}

/*
 * Load the rows of a result that was held back, if it comes before the next
 * one of the search, and the next row of which that knows nothing. False if there is
 * none such.
 */
static bool
LoadHeld(IndexScanDesc scan, PipeannScan *state, const PipeannResult *next)
{
	PipeannHeldResult *held;
	float		nearest = PipeannTidFilterNextUnknown(state->tid_filter);

	if (state->held_back == NULL)
		return false;
	if (next != NULL)
		nearest = Min(nearest, next->dist);
	held = PipeannHeldTake(state->held_back, nearest);
	state->recheck = !PipeannHeldIsEmpty(state->held_back);
	if (held == NULL)
		return false;
	if (PipeannIsLate(state, held->result.dist, state->last_held))
		LeaveOut(state, &held->result);
	else
	{
		PipeannRowList list = {
			held->rows, held->result.nrows, held->result.bytes
		};

		/* one let go as there are too many may be farther than what comes */
		state->last_held = Min(held->result.dist, nearest);
		PipeannStoreDistance(scan, state,
							 PipeannSqlDistance(state->view.meta.layout.metric,
												held->result.dist));
		LoadRows(state, &held->result, list);
	}
	pfree(held);
	return true;
}

/*
 * Load a row of which the search knows nothing, if it comes before the next result.
 * False if there is none such.
 */
static bool
LoadUnknown(IndexScanDesc scan, PipeannScan *state, const PipeannResult *next)
{
	PipeannResult result = {.id = PIPEANN_INVALID_ID,
		.ext_tids = PIPEANN_INVALID_ID};
	PipeannRowList list;

	if (state->tid_filter == NULL)
		return false;
	list = PipeannTidFilterTakeUnknown(state->tid_filter,
									   next != NULL ? next->dist : INFINITY,
									   &result.dist);
	if (list.n == 0)
		return false;
	result.most = result.dist;
	state->last_dist = result.dist;
	PipeannSetDistance(scan, state, &result);
	LoadRows(state, &result, list);
	PipeannKilledSetNode(&state->killed, state->search, NULL);
	return true;
}

/* How many results are likely to be taken next. */
static uint64
MostToPrefetch(const PipeannScan *state)
{
	if (PipeannSearchIsTogether(state->search))
		return PipeannDistanceBoundWithin(state->heeds.bound,
										  state->view.meta.layout.metric,
										  state->search);
	return state->exhausted ? PIPEANN_MAX_PREFETCH :
		MostReturnable(state) - state->taken;
}

/* The next result of the search, or NULL. */
static const PipeannResult *
TakeResult(PipeannScan *state)
{
	PipeannPrefetchRows(&state->prefetch, state->search, state->taken,
						MostToPrefetch(state));
	return PipeannSearchPop(state->search);
}

/*
 * Load the next result's rows. In strict order a result nearer than one
 * returned before is dropped.
 */
static bool
LoadResult(IndexScanDesc scan, PipeannScan *state)
{
	const PipeannResult *result;
	bool		more = ContinueSearch(state);

	if (LoadHeld(scan, state, more ? PipeannSearchPeek(state->search) : NULL) ||
		LoadUnknown(scan, state, more ? PipeannSearchPeek(state->search) : NULL))
		return true;
	result = more ? TakeResult(state) : NULL;
	if (result == NULL)
		return false;
	state->taken++;
	if (state->taken > 1 && PipeannIsLate(state, result->dist, state->last_dist))
	{
		LeaveOut(state, result);
		return true;
	}
	state->last_dist = result->dist;
	if (state->held_back != NULL && PipeannIsInDoubt(state, result))
	{
		PipeannHoldBack(scan, state, result);
		return true;
	}
	PipeannSetDistance(scan, state, result);
	LoadRows(state, result, PipeannSearchRows(state->search, result));
	return true;
}

static void
LoadExt(IndexScanDesc scan, PipeannScan *state)
{
	PIPEANN_PAUSE("scan-chain");
	state->rows_left = PipeannChainRead(&state->view, &state->chain,
										state->rows).n;
	state->next_row = state->rows;
	if (state->recheck && state->held >= PIPEANN_MOST_HELD)
		PipeannEndComparing(scan, state);
	else if (state->recheck)
		state->held += state->rows_left;
	if (state->replica)
		PipeannCheckPacking(&state->view);
}

/* Load the next row's list, if the present one is empty. False at the end. */
static bool
HasRow(IndexScanDesc scan, PipeannScan *state)
{
	while (state->rows_left == 0)
	{
		if (state->chain.next != PIPEANN_INVALID_ID)
			LoadExt(scan, state);
		else if (!LoadResult(scan, state))
			return false;
	}
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
		state->looked_at < MostToLookAt(state) &&
		pipeann_iterative_scan != PIPEANN_ITERATIVE_OFF &&
		state->heeds.bound == NULL &&
		!PipeannFilterIsVoid(state->filter);

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
		!PipeannLeftOutNext(state->left_out, MostToLookAt(state), &row->tid))
		return NULL;
	PipeannKilledSetNode(&state->killed, state->search, NULL);
	state->chain.owner = PIPEANN_INVALID_ID;
	state->recheck = false;
	PipeannStoreDistance(scan, state, get_float8_nan());
	scan->xs_recheck = scan->numberOfKeys > 0;
	if (state->only != NULL)
		PipeannOnlyTakeLeftOut(state->only, state->left_out);
	return row;
}

/* What is left of rows that nobody sees any more is not what was asked for. */
static void
NoteDead(PipeannScan *state)
{
	state->looked_at--;
	PipeannKilledNoteRow(&state->killed);
}

/* The next row to return, or NULL at the end. */
static const PipeannRow *
NextRow(IndexScanDesc scan, PipeannScan *state)
{
	while (HasRow(scan, state))
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
			NoteDead(state);
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
	PipeannScanRowLeave();
	if (!state->started)
		StartScan(scan, state);
	else if (scan->kill_prior_tuple)
		NoteDead(state);
	if (!state->searched && !IsEntering(state))
	{
		if (PipeannFilterIsVoid(state->filter))
			state->exhausted = true;
		else
			FirstRun(state);
		if (!state->exhausted)
			PipeannDistanceBoundTrust(state->heeds.bound,
								&state->view.meta.layout, state->search);
		PipeannDistanceBoundExpect(state->heeds.bound,
							 state->view.meta.layout.metric);
		PIPEANN_PAUSE("scan-searched");
		state->searched = true;
	}

	row = state->searched ? NextRow(scan, state) : NULL;
	if (row != NULL)
	{
		scan->xs_heaptid = row->tid;
		state->row.id = state->chain.owner;
		PipeannScanRowArrive(&state->row);
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
