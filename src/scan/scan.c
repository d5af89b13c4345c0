/*
 * scan.c
 *		Index scans, which return rows in the order of their distances.
 */
#include "postgres.h"

#include <math.h>

#include "access/relscan.h"
#include "access/xlog.h"
#include "scan/horizon.h"
#include "scan/state.h"
#include "base/pause.h"
#include "catalog/pg_type_d.h"
#include "io/io.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* The most rows that the executor may hold back to sort them. */
#define MOST_HELD 1000

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
	state->only = NULL;
	state->held_back = NULL;
	state->last_held = -INFINITY;
	MemoryContextReset(state->context);
	state->started = false;
	state->source = NULL;
	state->search = NULL;
	state->filter = NULL;
	state->among = NULL;
	state->exhausted = false;
	state->taken = 0;
	state->looked_at = 0;
	state->reach = -INFINITY;
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
	PipeannCacheBringInWanted(state->view.index, &state->view.meta.layout,
							  state->view.map, state->view.cache,
							  PipeannSourceUses(state->source));
}

void
pipeannrescan(IndexScanDesc scan, ScanKey keys, int nkeys, ScanKey orderbys,
			  int norderbys)
{
	PipeannScan *state = scan->opaque;

	(void) nkeys;
	(void) norderbys;
	if (state->started)
		LeaveToNext(state);
	ResetScan(state);
	state->horizon = PipeannHorizonOf(orderbys);
	state->wanted = PipeannAmongOf(orderbys);
	if (scan->numberOfOrderBys > 0)
		memset(scan->xs_orderbynulls, true,
			   sizeof(bool) * scan->numberOfOrderBys);
	if (keys && scan->numberOfKeys > 0)
		memmove(scan->keyData, keys,
				scan->numberOfKeys * sizeof(ScanKeyData));
	if (orderbys && scan->numberOfOrderBys > 0)
		memmove(scan->orderByData, orderbys,
				scan->numberOfOrderBys * sizeof(ScanKeyData));
}

static void
FirstRun(PipeannScan *state)
{
	PipeannIndexView *view = &state->view;

	if (view->cache != NULL)
		(void) PipeannSearchRun(state->search);
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
	PipeannHorizon *horizon = state->horizon;

	if (horizon == NULL || !horizon->entering || state->searched)
		return false;
	horizon->entered = state->view.cache == NULL ? 0 :
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
	return PipeannSearchIsRanked(state->search) ? PG_UINT64_MAX :
		explored / PIPEANN_STRICT_PART;
}

static void
StoreDistance(IndexScanDesc scan, const PipeannScan *state, double value)
{
	Oid			type = FLOAT8OID;
	IndexOrderByDistance distance = {.value = value};

	/* in an index-only scan the executor compares nothing */
	index_store_float8_orderby_distances(scan, &type, &distance,
										 state->recheck && state->only == NULL);
}

/* The next rows are not compared, and come after those that were. */
static void
EndComparing(IndexScanDesc scan, PipeannScan *state)
{
	state->recheck = false;
	state->held = 0;
	StoreDistance(scan, state,
				  PipeannSqlDistance(state->view.meta.layout.metric,
									 state->reach));
}

/*
 * Whether the order of a result taken just now and of one before or behind it
 * is not known.
 */
static bool
IsInDoubt(PipeannScan *state, const PipeannResult *result)
{
	const PipeannResult *next = PipeannSearchPeek(state->search);

	return state->comparable && result->most > result->dist &&
		(result->dist <= state->reach ||
		 (next != NULL && next->dist <= result->most) ||
		 PipeannAmongNextUnknown(state->among) <= result->most);
}

/*
 * Rows whose vectors were rounded are in order only as far as their distances
 * are known. If the order of a result's rows and others is in doubt, the
 * executor gets a lower bound of the distance and has to recheck: it computes
 * the distance itself, and holds the row back until bounds have grown past it.
 *
 * Where thousands of rows are nearer to each other than half precision can
 * tell, a LIMIT must not have all of them sorted: at most MOST_HELD at a time
 * are.
 */
static void
SetDistance(IndexScanDesc scan, PipeannScan *state,
			const PipeannResult *result)
{
	bool		in_doubt = IsInDoubt(state, result);

	state->reach = Max(state->reach, result->most);
	state->recheck = in_doubt && state->held < MOST_HELD;
	if (state->recheck)
	{
		state->held += result->nrows;
		StoreDistance(scan, state,
					  PipeannBoundsFloor(PipeannSearchBounds(state->search),
										 result->dist, result->most));
	}
	else if (in_doubt)
		EndComparing(scan, state);
	else
	{
		state->held = 0;
		StoreDistance(scan, state,
					  PipeannSqlDistance(state->view.meta.layout.metric,
										 result->dist));
	}
}

/* In strict order a search that can tell says when a nearer row may come. */
static bool
IsInOrder(PipeannScan *state)
{
	return pipeann_iterative_scan != PIPEANN_ITERATIVE_STRICT ||
		PipeannSearchEndedEarly(state->search) ||
		PipeannSearchIsSettled(state->search);
}

/*
 * Let the search go on, if it must, until there is a next result. False if
 * there is none for now.
 */
static bool
ContinueSearch(PipeannScan *state)
{
	if (!state->exhausted)
		PipeannHorizonHeed(state->horizon, state->search);
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
		if (state->looked_at >= pipeann_max_scan_tuples ||
			!PipeannSearchRun(state->search))
			state->exhausted = true;
		if (state->replica)
			PipeannCheckPacking(&state->view);
	}
	return !PipeannHorizonHides(state->horizon, state->view.meta.layout.metric,
								PipeannSearchPeek(state->search));
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
 * In an index-only scan, hold back a result whose order is in doubt, at the
 * distance of its vector as the table has it. One without a row that the
 * snapshot sees is dropped.
 */
static void
HoldBack(IndexScanDesc scan, PipeannScan *state, const PipeannResult *result)
{
	const PipeannLayout *l = &state->view.meta.layout;
	PipeannRowList list = PipeannSearchRows(state->search, result);

	state->reach = Max(state->reach, result->most);
	if (PipeannTableVectorOf(scan, &state->view, result, list, state->exact))
		PipeannHeldAdd(state->held_back, result, list,
					   PipeannExactDistance(l, state->query, state->exact,
											PIPEANN_FLOAT4,
											PipeannAux(l->metric,
													   PipeannNorm(state->exact, l->dim),
													   0)));
	state->recheck = !PipeannHeldIsEmpty(state->held_back);
}

/*
 * Load the rows of a result that was held back, if it comes before the next
 * one of the search. False if there is none such.
 */
static bool
LoadHeld(IndexScanDesc scan, PipeannScan *state, const PipeannResult *next)
{
	PipeannHeldResult *held;

	if (state->held_back == NULL)
		return false;
	held = PipeannHeldTake(state->held_back,
						   next != NULL ? next->dist : INFINITY);
	state->recheck = !PipeannHeldIsEmpty(state->held_back);
	if (held == NULL)
		return false;
	if (held->result.dist < state->last_held &&
		pipeann_iterative_scan == PIPEANN_ITERATIVE_STRICT)
		state->counters.rows_out_of_order += held->result.nrows;
	else
	{
		PipeannRowList list = {
			held->rows, held->result.nrows, held->result.bytes
		};

		state->last_held = held->result.dist;
		StoreDistance(scan, state,
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

	if (state->among == NULL)
		return false;
	list = PipeannAmongTakeUnknown(state->among,
								   next != NULL ? next->dist : INFINITY,
								   &result.dist);
	if (list.n == 0)
		return false;
	result.most = result.dist;
	state->last_dist = result.dist;
	SetDistance(scan, state, &result);
	LoadRows(state, &result, list);
	PipeannKilledSetNode(&state->killed, state->search, NULL);
	return true;
}

/* How many results are likely to be taken next. */
static uint64
MostToPrefetch(const PipeannScan *state)
{
	if (PipeannSearchIsTogether(state->search))
		return PipeannHorizonWithin(state->horizon,
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
	if (state->taken > 1 && result->dist < state->last_dist &&
		pipeann_iterative_scan == PIPEANN_ITERATIVE_STRICT)
	{
		state->counters.rows_out_of_order += result->nrows;
		PipeannKilledSetNode(&state->killed, state->search, NULL);
		return true;
	}
	state->last_dist = result->dist;
	if (state->held_back != NULL && IsInDoubt(state, result))
	{
		HoldBack(scan, state, result);
		return true;
	}
	SetDistance(scan, state, result);
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
	if (state->recheck && state->held >= MOST_HELD)
		EndComparing(scan, state);
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
	if (state->among != NULL && state->chain.owner != PIPEANN_INVALID_ID &&
		!PipeannAmongHas(state->among, &row->tid))
		return false;
	return state->filter == NULL ||
		PipeannFilterMatches(state->filter, state->chain.owner, row,
							 &scan->xs_recheck);
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
			PipeannKilledNoteRow(&state->killed);
	}
	return NULL;
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
		PipeannKilledNoteRow(&state->killed);
	if (!state->searched && !IsEntering(state))
	{
		if (PipeannFilterIsVoid(state->filter))
			state->exhausted = true;
		else
			FirstRun(state);
		PipeannHorizonExpect(state->horizon, state->view.meta.layout.metric);
		PIPEANN_PAUSE("scan-searched");
		state->searched = true;
	}

	row = state->searched ? NextRow(scan, state) : NULL;
	if (row != NULL)
	{
		scan->xs_heaptid = row->tid;
		state->row.id = state->chain.owner;
		PipeannScanRowReach(&state->row);
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
		PipeannStatsAdd(scan->indexRelation, &state->counters);
		LeaveToNext(state);
	}
	if (state->only != NULL)
		PipeannOnlyEnd(state->only);
	MemoryContextDelete(state->context);
	pfree(state);
	scan->opaque = NULL;
}
