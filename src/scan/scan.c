/*
 * scan.c
 *		Index scans, which return rows in the order of their distances.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "access/relscan.h"
#include "access/xlog.h"
#include "base/pause.h"
#include "base/planted.h"
#include "catalog/pg_type_d.h"
#include "io/io.h"
#include "lib/pairingheap.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "scan/distance_bound.h"
#include "scan/only.h"
#include "scan/state.h"
#include "utils/float.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* The most rows that the executor may hold back to sort them. */
#define PIPEANN_MOST_HELD 1000

/*
 * Results held back until no nearer one can come.
 *
 * Of a rounded vector only bounds of its distance are known. In a plain index
 * scan the executor computes the distance of a row whose order is in doubt, and
 * holds it back. Where it does not (start.c, HoldsRowsBack()) the scan itself
 * does.
 *
 * Where thousands of nodes are nearer to each other than half precision can
 * tell, a LIMIT must not have all of them read: PIPEANN_MOST_HELD at a time are.
 */

typedef struct PipeannHeldResult
{
	pairingheap_node node;
	PipeannResult result;		/* dist and most: of the exact vector */
	PipeannRow	rows[FLEXIBLE_ARRAY_MEMBER];	/* result.bytes of them */
} PipeannHeldResult;

struct PipeannHeld
{
	pairingheap *heap;
	int			n;
};

/* The heap's first is the nearest; ties are broken as in the search. */
static int
Compare(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	const PipeannResult *x =
		&pairingheap_const_container(PipeannHeldResult, node, a)->result;
	const PipeannResult *y =
		&pairingheap_const_container(PipeannHeldResult, node, b)->result;

	(void) arg;
	if (x->dist != y->dist)
		return x->dist < y->dist ? 1 : -1;
	return x->id < y->id ? 1 : -1;
}

static PipeannHeld *
HeldBegin(void)
{
	PipeannHeld *held = palloc(sizeof(PipeannHeld));

	held->heap = pairingheap_allocate(Compare, NULL);
	held->n = 0;
	return held;
}

/* Hold a result with its rows, at its exact distance. */
static void
HeldAdd(PipeannHeld *held, const PipeannResult *result,
		PipeannRowList rows, float dist)
{
	PipeannHeldResult *added = palloc(offsetof(PipeannHeldResult, rows) +
									  rows.bytes);

	added->result = *result;
	added->result.dist = added->result.most = dist;
	memcpy(added->rows, rows.rows, rows.bytes);
	pairingheap_add(held->heap, &added->node);
	held->n++;
}

static bool
HeldIsEmpty(const PipeannHeld *held)
{
	return held->n == 0;
}

/*
 * Take the nearest held result, if no other result can come before it. `next` is
 * the least distance that a result may have which is not held, or infinity. NULL if
 * there is no such held result.
 */
static PipeannHeldResult *
HeldTake(PipeannHeld *held, float next)
{
	PipeannHeldResult *first;

	if (held->n == 0)
		return NULL;
	first = pairingheap_container(PipeannHeldResult, node,
								  pairingheap_first(held->heap));
	if (first->result.dist > next && held->n < PIPEANN_MOST_HELD)
		return NULL;
	(void) pairingheap_remove_first(held->heap);
	held->n--;
	return first;
}

/*
 * The order in which a scan returns rows: what the executor is told of their
 * distances, and which rows are not in order.
 */

/* Tell the executor the distance of the rows that come next. */
static void
StoreDistance(IndexScanDesc scan, const PipeannScan *state, double value)
{
	Oid			type = FLOAT8OID;
	IndexOrderByDistance distance = {.value = value};

	/* where the scan itself holds rows back the executor compares nothing */
	index_store_float8_orderby_distances(scan, &type, &distance,
										 state->recheck && state->held_back == NULL);
}

/* The next rows are not compared, and come after those that were. */
static void
EndComparing(IndexScanDesc scan, PipeannScan *state)
{
	state->recheck = false;
	state->held = 0;
	StoreDistance(scan, state,
				  PipeannSqlDistance(state->view.meta.layout.metric,
									 state->farthest));
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
		(result->dist <= state->farthest ||
		 (next != NULL && next->dist <= result->most) ||
		 PipeannTidFilterNextUnknown(state->tid_filter) <= result->most);
}

/*
 * Tell the executor a result's distance, or the least that it may be.
 *
 * Rows whose vectors were rounded are in order only as far as their distances
 * are known. If the order of a result's rows and others is in doubt, the
 * executor gets a lower bound of the distance and has to recheck: it computes
 * the distance itself, and holds the row back until bounds have grown past it.
 *
 * Where thousands of rows are nearer to each other than half precision can
 * tell, a LIMIT must not have all of them sorted: at most PIPEANN_MOST_HELD at a time
 * are.
 */
static void
SetDistance(IndexScanDesc scan, PipeannScan *state,
			const PipeannResult *result)
{
	bool		in_doubt = IsInDoubt(state, result);

	state->farthest = Max(state->farthest, result->most);
	state->recheck = in_doubt && state->held < PIPEANN_MOST_HELD;
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

/*
 * By so much, relative to the distance, or for cosine to a vector's length, two
 * computations of one distance may differ. No order is lost by what is nearer than
 * the row before by less.
 */
#define ROUNDING (8 * FLT_EPSILON)

/*
 * Whether a result would be out of order after a row at another distance. A query
 * that has no distances has no order.
 */
static bool
IsLate(const PipeannScan *state, float dist, float before)
{
	float		scale = state->view.meta.layout.metric == PIPEANN_COSINE ? 1 :
		fabsf(before);

	return pipeann_iterative_scan != PIPEANN_ITERATIVE_RELAXED &&
		state->comparable && dist < before - ROUNDING * scale;
}

/*
 * Hold back a result whose order is in doubt, at the distance of its vector as the
 * table has it. A result without a row that the snapshot sees is dropped.
 */
static void
HoldBack(IndexScanDesc scan, PipeannScan *state,
		 const PipeannResult *result)
{
	const PipeannLayout *l = &state->view.meta.layout;
	PipeannRowList list = PipeannSearchRows(state->search, result);

	state->farthest = Max(state->farthest, result->most);
	if (PipeannTableVectorOf(scan, &state->view, result, list, state->exact))
		HeldAdd(state->held_back, result, list,
				PipeannExactDistance(l, state->query, state->exact,
									 PIPEANN_FLOAT4,
									 PipeannAux(l->metric,
												PipeannNorm(state->exact, l->dim),
												0)));
	state->recheck = !HeldIsEmpty(state->held_back);
}

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
						   PipeannCountGraphPages(view->index, &view->meta.layout,
												  view->map, view->meta.graph_pages));
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
	if (state->holds_back)
		state->held_back = HeldBegin();
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
	const PipeannResult *next = PipeannSearchPeek(state->search);

	return pipeann_iterative_scan != PIPEANN_ITERATIVE_STRICT || next == NULL ||
		PipeannSearchEndedEarly(state->search) ||
		next->most <= PipeannSearchReadTo(state->search);
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
		if (PipeannSearchIsTogether(state->search))
			break;				/* the merge knows how far it is believed */
		if (pipeann_iterative_scan == PIPEANN_ITERATIVE_OFF &&
			!PipeannSearchEndedEarly(state->search))
			return false;
		if (state->looked_at >= MostToLookAt(state) ||
			!PipeannSearchRun(state->search))
			state->exhausted = true;
		if (state->replica)
			PipeannCheckPacking(&state->view);
	}
	return !PipeannDistanceBoundHides(state->heeds.bound, state->view.meta.layout.metric,
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
	held = HeldTake(state->held_back, nearest);
	state->recheck = !HeldIsEmpty(state->held_back);
	if (held == NULL)
		return false;
	if (IsLate(state, held->result.dist, state->last_held))
		LeaveOut(state, &held->result);
	else
	{
		PipeannRowList list = {
			held->rows, held->result.nrows, held->result.bytes
		};

		/* one let go as there are too many may be farther than what comes */
		state->last_held = Min(held->result.dist, nearest);
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

	if (state->tid_filter == NULL)
		return false;
	list = PipeannTidFilterTakeUnknown(state->tid_filter,
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
	if (state->taken > 1 && IsLate(state, result->dist, state->last_dist))
	{
		LeaveOut(state, result);
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
	if (state->recheck && state->held >= PIPEANN_MOST_HELD)
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
	StoreDistance(scan, state, get_float8_nan());
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
	PipeannScanRowIs(NULL);
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
		PipeannScanRowIs(&state->row);
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
