/*
 * stream.c
 *		A scan's results, in one order, and the settings that they follow.
 *
 * Results of the search are in one heap. In another are those measured by the
 * table's vectors: rows of a TID filter that have no node, and results held
 * back. The nearest of both comes next. A result that comes after a farther one
 * is left out here, and nowhere else. This file also gives the executor the
 * distances, and prefetches pages of the table.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "access/genam.h"
#include "access/relscan.h"
#include "access/tableam.h"
#include "base/pause.h"
#include "catalog/index.h"
#include "catalog/pg_type_d.h"
#include "distance/sparse.h"
#include "executor/executor.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "scan/state.h"
#include "storage/bufmgr.h"
#include "utils/float.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/spccache.h"

/* The settings of scans. */
int			pipeann_ef_search;
int			pipeann_iterative_scan;
int			pipeann_max_scan_tuples;
double		pipeann_scan_mem_multiplier;
int			pipeann_search_mode;
int			pipeann_pipeline_width;
int			pipeann_prefetch_rows;
int			pipeann_parts;
int			pipeann_part;

/*
 * Prefetching the table pages of the rows that a scan returns next.
 *
 * Reading ten pages of a table from disk, one after the other, takes as long
 * as the search. One of several scans for one limit prefetches one page, and
 * others when a second row is wanted: most of them never return one.
 */

/* Whether a page was requested of late; notes that it is now. */
static bool
WasPrefetched(PipeannPrefetch *prefetch, BlockNumber block)
{
	uint32		n = Min(prefetch->nasked, PIPEANN_ASKED);

	for (uint32 i = 0; i < n; i++)
		if (prefetch->asked[i] == block)
			return true;
	prefetch->asked[prefetch->nasked++ % PIPEANN_ASKED] = block;
	return false;
}

/*
 * Prefetch the pages of up to `most` rows of a list; returns of how many rows.
 * An index-only scan does not read all-visible pages, unless it had to read
 * vectors of earlier rows from the table.
 */
static int
Ask(PipeannScan *state, PipeannRowList list, int most)
{
	const PipeannRow *row = list.rows;
	int			n = (int) Min(list.n, (uint32) most);

	for (int i = 0; i < n;
		 i++, row = PipeannRowNext(&state->view.meta.layout, row))
	{
		BlockNumber block = ItemPointerGetBlockNumberNoCheck(&row->tid);

		if (!WasPrefetched(&state->prefetch, block) &&
			(state->only == NULL || state->only->looked ||
			 !PipeannIsAllVisible(state->only, block)))
			(void) PrefetchBuffer(state->scan->heapRelation, MAIN_FORKNUM, block);
	}
	return n;
}

/* For PipeannSearchParams: prefetches a result's rows. */
static void
PrefetchSettled(PipeannRowList rows, void *arg)
{
	PipeannScan *state = arg;

	(void) Ask(state, rows, state->prefetch.first);
}

/*
 * A row's vector in the table, in CurrentMemoryContext; NULL if the snapshot
 * does not see the row, or it has none. As in an insert, the index's
 * expression is evaluated as the current user.
 */
struct varlena *
PipeannTableVector(IndexScanDesc scan, const ItemPointerData *tid)
{
	Relation	index = scan->indexRelation;
	AttrNumber	column = PipeannVectorColumn(index);
	TupleTableSlot *row = table_slot_create(scan->heapRelation, NULL);
	IndexFetchTableData *fetch = table_index_fetch_begin(scan->heapRelation);
	ItemPointerData at = *tid;
	int			vector = 0;
	EState	   *estate = NULL;
	bool		again = false;
	bool		dead = false;
	bool		found;
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS] = {true};
	struct varlena *value;

	found = table_index_fetch_tuple(fetch, &at, scan->xs_snapshot, row, &again, &dead);
	if (found && column != InvalidAttrNumber)
		values[0] = slot_getattr(row, column, &isnull[0]);
	else if (found)
	{
		estate = CreateExecutorState();
		vector = PipeannVectorPosition(index);
		GetPerTupleExprContext(estate)->ecxt_scantuple = row;
		FormIndexDatum(BuildIndexInfo(index), row, estate, values, isnull);
	}
	value = isnull[vector] ? NULL : PG_DETOAST_DATUM_COPY(values[vector]);
	if (estate != NULL)
		FreeExecutorState(estate);
	ExecDropSingleTupleTableSlot(row);
	table_index_fetch_end(fetch);
	return value;
}

/*
 * Set state->exact to the table's vector of the first visible row of a list, and
 * *distance to the operator's, unless that is NULL. False if no row is visible.
 */
static bool
VectorOfAny(PipeannScan *state, PipeannRowList list, double *distance)
{
	const PipeannLayout *l = &state->view.meta.layout;
	FmgrInfo	operator;		/* the key's fn_extra is not the operator's (scan.h) */
	const PipeannRow *row = list.rows;
	struct varlena *value = NULL;
	const float *x;

	for (uint32 i = 0; value == NULL && i < list.n; i++, row = PipeannRowNext(l, row))
		value = PipeannTableVector(state->scan, &row->tid);
	if (value == NULL)
		return false;
	fmgr_info_copy(&operator, &state->scan->orderByData->sk_func, CurrentMemoryContext);
	if (distance != NULL)
		*distance = DatumGetFloat8(FunctionCall2(&operator, PointerGetDatum(value),
												 state->scan->orderByData->sk_argument));
	x = PipeannDatumElements(l->type, PointerGetDatum(value), l->dim);
	memcpy(state->exact, x, mul_size(PipeannFloatsOf(l->storage, l->dim, x), sizeof(float)));
	return true;
}

/* The same for a result. */
static bool
TableVectorOf(PipeannScan *state, const PipeannResult *result, PipeannRowList rows,
			  double *distance)
{
	MemoryContext context = AllocSetContextCreate(state->context, "pipeann table row",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	bool		found = VectorOfAny(state, rows, distance);
	void	   *copy = palloc(PipeannExtBytes(&state->view.meta.layout));
	PipeannChain chain;

	PipeannChainBegin(&chain, result->id, result->ext_tids);
	while (!found && chain.next != PIPEANN_INVALID_ID)
		found = VectorOfAny(state, PipeannChainRead(&state->view, &chain, copy), distance);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return found;
}

/*
 * Two computations of a distance, ours or the operator's, may differ by this much, relative
 * to the distance, or for cosine to a vector's length.
 */
#define SLACK (8 * FLT_EPSILON)

/* A distance as a search's order key, with which rows within it are found. NaN comes last. */
static float
KeyOf(const PipeannScan *state, double distance, double slack)
{
	if (isinf(distance) || isnan(distance))
		return isnan(distance) ? INFINITY : (float) distance;
	switch (state->view.meta.layout.metric)
	{
		case PIPEANN_L2:
			return distance < 0 ? -INFINITY :
				(float) (distance * distance * (1 + slack));
		case PIPEANN_COSINE:
			return (float) (distance - 1 + slack);
		default:
			return (float) (distance + fabs(distance) * slack);
	}
}

/*
 * Results measured by the vectors in the table, nearest first.
 *
 * For a rounded vector the search knows only bounds of the distance. A result whose
 * order is in doubt is held back here, at the distance that the operator gives
 * for its vector in the table, until no nearer one can come. (The executor can
 * reorder rows, too, but it copies whole rows, which in PostgreSQL 16.14, 18
 * and index-only scans do not come back unchanged.)
 */

typedef struct Measured
{
	pairingheap_node node;
	PipeannResult result;		/* dist and most: the distance as an order key */
	double		distance;		/* the operator's */
	PipeannRow	rows[FLEXIBLE_ARRAY_MEMBER];	/* result.bytes of them */
} Measured;

/* Ties are broken as in the search, and those of rows without a node by TID. */
static int
Compare(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	const Measured *x = pairingheap_const_container(Measured, node, a);
	const Measured *y = pairingheap_const_container(Measured, node, b);
	ItemPointerData x_tid = x->rows[0].tid;
	ItemPointerData y_tid = y->rows[0].tid;

	if (!float8_eq(x->distance, y->distance))
		return float8_lt(x->distance, y->distance) ? 1 : -1;
	if (x->result.id != y->result.id)
		return x->result.id < y->result.id ? 1 : -1;
	return ItemPointerCompare(&y_tid, &x_tid);
}

/*
 * Add a result, in CurrentMemoryContext, with its rows, at the distance of their vector in the
 * table; unless the snapshot sees none of them, or the vector is none that the index has.
 */
void
PipeannStreamAdd(PipeannScan *state, const PipeannResult *result, PipeannRowList rows)
{
	const PipeannLayout *l = &state->view.meta.layout;
	double		distance = 0;
	Measured   *measured;

	CHECK_FOR_INTERRUPTS();
	if (!TableVectorOf(state, result, rows, state->comparable ? &distance : NULL) ||
		!PipeannIsIndexable(l->metric, PipeannNorm(state->exact, l->dim)))
		return;
	if (state->measured == NULL)
		state->measured = pairingheap_allocate(Compare, NULL);
	measured = palloc(offsetof(Measured, rows) + rows.bytes);
	measured->result = *result;
	measured->result.nrows = rows.n;
	measured->result.bytes = rows.bytes;
	measured->result.dist = measured->result.most = KeyOf(state, distance, 0);
	measured->distance = distance;
	memcpy(measured->rows, rows.rows, rows.bytes);
	pairingheap_add(state->measured, &measured->node);
}

static Measured *
NearestMeasured(const PipeannScan *state)
{
	return state->measured == NULL || pairingheap_is_empty(state->measured) ? NULL :
		pairingheap_container(Measured, node, pairingheap_first(state->measured));
}

/*
 * The order key beyond which no row meets a condition on the distance, which the executor
 * checks for each row. It allows for the operator summing in another order than we do.
 */
static float
ConditionKey(const PipeannScan *state)
{
	const PipeannLayout *l = &state->view.meta.layout;
	const PipeannFill *fill = state->from_plan.fill;
	double		slack = 2 * PIPEANN_ARITHMETIC_ERROR(l->dim) + SLACK;
	float		key;

	if (fill == NULL || !state->comparable)
		return INFINITY;
	key = KeyOf(state, fill->most, slack);
	if (l->metric == PIPEANN_IP)
		key += slack * PipeannNorm(state->query, l->dim) * state->view.meta.max_norm;
	return key;
}

/*
 * The order in which a scan returns rows: the distances that the executor
 * gets, and which rows are late.
 */

/* Tell the executor the distance of the rows that come next. */
static void
StoreDistance(const PipeannScan *state, double value)
{
	Oid			type = FLOAT8OID;
	IndexOrderByDistance distance = {.value = value};

	index_store_float8_orderby_distances(state->scan, &type, &distance, false);
}

/* Whether it is unknown if a result just taken comes before or after one next to it. */
static bool
IsInDoubt(PipeannScan *state, const PipeannResult *result)
{
	const PipeannResult *next = PipeannSearchPeek(state->search);
	const Measured *measured = NearestMeasured(state);

	return state->comparable && result->most > result->dist &&
		(result->dist <= state->farthest ||
		 (next != NULL && next->dist <= result->most) ||
		 (measured != NULL && measured->result.dist <= result->most));
}

/* Whether a result comes after a farther one. A query without distances has no order. */
static bool
IsLate(const PipeannScan *state, float dist)
{
	float		before = state->last_dist;
	float		scale = state->view.meta.layout.metric == PIPEANN_COSINE ? 1 :
		fabsf(before);

	return pipeann_iterative_scan != PIPEANN_ITERATIVE_RELAXED &&
		state->comparable && dist < before - SLACK * scale;
}

/* How far the search has to go, and the next of its results. */

/*
 * Whether the search has to go on before its next result is final. A result
 * beyond what the condition on the distance allows ends the scan, so in any
 * order no nearer one may come after it. A search that has ended early does
 * not go on just to find a farther result, which would release those held
 * back.
 */
static bool
MustGoOn(PipeannScan *state)
{
	const PipeannResult *next = PipeannSearchPeek(state->search);
	const Measured *measured = NearestMeasured(state);
	bool		ends = next == NULL || next->dist > state->most;
	PipeannFrontier frontier =
		PipeannSearchFrontier(state->search,
							  ends && pipeann_iterative_scan != PIPEANN_ITERATIVE_OFF ?
							  PIPEANN_ITERATIVE_STRICT : pipeann_iterative_scan);

	if (next == NULL ? frontier.distance >= state->most && !isinf(state->most) :
		frontier.distance >= Min(next->most, state->most))
		return false;
	if (frontier.ended_early && next != NULL && measured != NULL &&
		measured->result.id != PIPEANN_INVALID_ID)
		return false;
	return next == NULL || state->taken >= frontier.results;
}

/*
 * Let the search go on, if it must, until there is a next result. NULL if there is
 * none for now.
 */
static const PipeannResult *
ContinueSearch(PipeannScan *state)
{
	const PipeannResult *next;

	while (!state->exhausted && MustGoOn(state))
	{
		CHECK_FOR_INTERRUPTS();
		if (pipeann_iterative_scan == PIPEANN_ITERATIVE_OFF &&
			!PipeannSearchFrontier(state->search, PIPEANN_ITERATIVE_OFF).ended_early)
			return NULL;
		if (state->looked_at >= PipeannMostToLookAt(state) ||
			!PipeannSearchRun(state->search))
			state->exhausted = true;
	}
	next = PipeannSearchPeek(state->search);
	return next == NULL || next->dist > state->most ? NULL : next;
}

/*
 * When a result is about to be taken, prefetch the table pages of the next
 * ones, unless that was done. Rows in overflow slots are left out.
 */
static void
PrefetchRows(PipeannScan *state)
{
	PipeannPrefetch *prefetch = &state->prefetch;
	const PipeannResult *results[PIPEANN_MAX_PREFETCH];
	PipeannFrontier frontier;
	int			wanted;
	int			rows = 0;
	int			n;
	int			i;

	if (prefetch->at_once == 0 || state->taken < prefetch->until)
		return;
	wanted = prefetch->at_once - (int) (state->taken % prefetch->at_once);
	if (state->taken == 0)
		wanted = prefetch->first > 1 ? prefetch->first : 0;
	frontier = PipeannSearchFrontier(state->search, pipeann_iterative_scan);
	if (state->from_plan.bound != NULL || state->exhausted)
		frontier.distance = INFINITY;
	n = PipeannSearchNext(state->search, results, wanted);
	for (i = 0; i < n && rows < wanted && !(results[i]->dist > state->most) &&
		 (i == 0 || state->taken + i < frontier.results || results[i]->dist <= frontier.distance); i++)
		rows += Ask(state, PipeannSearchRows(state->search, results[i]),
					wanted - rows);
	prefetch->until = state->taken + i;
}

/*
 * Load the next result's rows. One in doubt is held back, at the distance of
 * its vector in the table, or dropped if the snapshot sees none of its rows. A
 * late one is left out and counted. False at the end.
 */
static bool
LoadResult(PipeannScan *state)
{
	const PipeannResult *next = ContinueSearch(state);
	Measured	   *measured = NearestMeasured(state);
	PipeannRowList list;

	if (measured != NULL && !(measured->result.dist > state->most) &&
		(next == NULL || !(measured->result.dist > next->dist)))
	{
		(void) pairingheap_remove_first(state->measured);
		next = &measured->result;
		list = (PipeannRowList) {measured->rows, next->nrows, next->bytes};
	}
	else if (next == NULL)
		return false;
	else
	{
		measured = NULL;
		PrefetchRows(state);
		state->taken++;
		next = PipeannSearchPop(state->search);
		list = PipeannSearchRows(state->search, next);
	}

	if (IsInDoubt(state, next))
	{
		state->farthest = Max(state->farthest, next->most);
		PipeannStreamAdd(state, next, list);
	}
	else if (IsLate(state, next->dist))
	{
		state->late = true;
		state->counters.rows_out_of_order += next->nrows;
	}
	else
	{
		state->last_dist = next->most;	/* more than dist if it was not measured */
		state->farthest = Max(state->farthest, next->most);
		StoreDistance(state, PipeannSqlDistance(state->view.meta.layout.metric, next->dist));
		memcpy(state->rows, list.rows, list.bytes);
		state->left = list;
		state->left.rows = state->rows;
		PipeannChainBegin(&state->chain, next->id, next->ext_tids);
	}
	if (measured != NULL)
		pfree(measured);
	return true;
}

/*
 * Load the next rows. False at the end, after which only rows without a node
 * and a distance may come.
 */
bool
PipeannStreamLoad(PipeannScan *state)
{
	const PipeannDistanceBound *bound = state->from_plan.bound;
	const PipeannFill *fill = state->from_plan.fill;
	bool		whole = fill != NULL && fill->whole &&
		pipeann_iterative_scan != PIPEANN_ITERATIVE_OFF;

	/* the bound may have shrunk since the last row was requested */
	if (bound != NULL && !isinf(bound->distance))
	{
		state->most = Min(state->most, KeyOf(state, bound->distance, SLACK));
		PipeannSearchSetHorizon(state->search, state->most);
	}
	if (!state->searched)
	{
		/* if all rows are wanted first, until it has all */
		if (state->view.cache == NULL && !state->exhausted)
			PipeannSearchExact(state->search, PipeannViewPages(&state->view));
		else if (!state->exhausted)
			while (PipeannSearchRun(state->search) && whole &&
				   (isinf(state->most) ||
					PipeannSearchFrontier(state->search, PIPEANN_ITERATIVE_STRICT).distance < state->most))
				CHECK_FOR_INTERRUPTS();
		state->exhausted |= whole || state->view.cache == NULL;
		PIPEANN_PAUSE("scan-searched");
		state->searched = true;
	}
	while (state->left.n == 0)
	{
		if (state->chain.next != PIPEANN_INVALID_ID)
		{
			PIPEANN_PAUSE("scan-chain");
			state->left = PipeannChainRead(&state->view, &state->chain, state->rows);
		}
		else if (!LoadResult(state))
		{
			state->chain.owner = PIPEANN_INVALID_ID;
			StoreDistance(state, get_float8_nan());
			return false;
		}
	}
	return true;
}

/* How a stream begins. */

/*
 * Set the parameters by which a search depends on the stream of its results.
 * Nothing is prefetched if the tablespace has no I/O concurrency, or TIDs may
 * not name blocks, as they do in heaps.
 */
void
PipeannStreamBegin(PipeannScan *state, PipeannSearchParams *params)
{
	Relation	table = state->scan->heapRelation;

	if (PipeannIsHeap(table) &&
		get_tablespace_io_concurrency(table->rd_rel->reltablespace) > 0)
		state->prefetch.at_once = pipeann_prefetch_rows;
	state->prefetch.first = (int) Min(state->from_plan.bound != NULL ? 1 : PipeannRowsWanted(state->from_plan.limit),
									  state->prefetch.at_once);
	state->most = ConditionKey(state);
	params->has_horizon = !isinf(state->most);
	params->horizon = state->most;
	params->settled = PrefetchSettled;
	params->most_settled = state->prefetch.first;
}
