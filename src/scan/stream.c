/*
 * stream.c
 *		A scan's results, in one order, and the settings that they follow.
 *
 * What the search finds, and what is known with its exact distance (rows of a TID
 * filter that have no node, and results held back), are two heaps. Whichever has the
 * nearest result is next. A result that comes after a farther one is left out here,
 * and nowhere else. The executor is told the distance, and the operating system of
 * the pages that are read next.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "base/pause.h"
#include "catalog/pg_type_d.h"
#include "distance/distance.h"
#include "io/io.h"
#include "miscadmin.h"
#include "scan/state.h"
#include "storage/bufmgr.h"
#include "utils/float.h"
#include "utils/spccache.h"

/* The settings of scans. */
int			pipeann_ef_search;
int			pipeann_iterative_scan;
int			pipeann_max_scan_tuples;
double		pipeann_scan_mem_multiplier;
int			pipeann_search_mode;
int			pipeann_pipeline_width;
int			pipeann_prefetch_rows;
uint32		pipeann_disabled;

/*
 * Killed nodes: searches skip nodes whose rows a scan found dead.
 *
 * The executor tells the scan whether the row that it fetched last is dead to
 * all snapshots (kill_prior_tuple). If all rows of a node are dead, the node
 * is killed: the cache keeps that with the LSN of the page from which the rows
 * were read. Later searches that see the page with this LSN skip the node, so
 * that rows deleted and not yet vacuumed take no places among their results.
 * (nbtree keeps such hints, as LP_DEAD flags, on the page.)
 *
 * A hint holds as long as the page does not change: before the place of a dead
 * row in the table is used again, VACUUM must remove its TID from the index.
 * So nobody has to take hints back. Pages that are not WAL-logged have no LSN
 * to go by, and in recovery the executor tells nothing.
 */

/*
 * For PipeannSearchParams: the killed nodes of a page, bit i for slot i; sets
 * *version to the page's LSN. arg is the PipeannKilledRows.
 */
static uint64
KilledOfPage(uint32 page, const char *nodes, uint64 *version, void *arg)
{
	PipeannKilledRows *killed = arg;
	const PageHeaderData *header = (const PageHeaderData *)
		(nodes - PIPEANN_CONTENTS_OFFSET);

	*version = PageXLogRecPtrGet(header->pd_lsn);
	return PipeannKilledGet(killed->view->cache->killed, page, *version);
}

static void
KilledBegin(PipeannScan *state, PipeannSearchParams *params)
{
	PipeannKilledRows *killed = &state->killed;

	killed->active = false;
	killed->view = NULL;
	if (!state->scan->ignore_killed_tuples || state->view.cache == NULL ||
		!RelationNeedsWAL(state->view.index))
		return;
	killed->view = &state->view;
	params->killed = KilledOfPage;
	params->killed_arg = killed;
}

/*
 * From now on rows of this result are returned. One without a node, or with rows in
 * overflow slots, is never killed: its page's LSN does not cover these.
 */
static void
SetKilledNode(PipeannKilledRows *killed, const PipeannSearch *search,
			  const PipeannResult *result)
{
	killed->active = killed->view != NULL &&
		result->id != PIPEANN_INVALID_ID &&
		result->ext_tids == PIPEANN_INVALID_ID;
	if (!killed->active)
		return;
	killed->id = result->id;
	killed->rows_left = result->nrows;
	killed->lsn = PipeannSearchVersion(search, result);
}

/*
 * The row returned last is dead to everybody. What is left of such rows is not what
 * was asked for.
 */
void
PipeannStreamNoteDead(PipeannScan *state)
{
	PipeannKilledRows *killed = &state->killed;
	const PipeannLayout *l = &state->view.meta.layout;

	state->looked_at--;
	if (!killed->active || --killed->rows_left > 0)
		return;
	killed->active = false;
	PipeannKilledSet(killed->view->cache->killed,
					 PipeannIdPage(l, killed->id), killed->lsn,
					 PipeannIdSlot(l, killed->id));
}

/*
 * Prefetching the table pages of the rows that a scan returns next.
 *
 * The rows nearest to a query may be anywhere in their table, and the executor
 * reads their pages one after the other. For a table on disk, ten of them take
 * as long as the search. So the operating system is asked for the pages of
 * several rows at once, and for those of a row that the search is sure of while
 * the search still waits for pages of its own.
 *
 * Nobody tells a scan how many rows are wanted of it: a LIMIT 1, and most
 * partitions of a table that are searched together, never want a second one. But
 * the next scan of an index is likely to be asked for as many as the last one of
 * this session. The first of a session asks for one, and for others when a second
 * row is wanted.
 */

/*
 * The number of rows to ask for: that of the setting, or none if the table's
 * tablespace is not read ahead. Only of heaps is it known that TIDs name
 * blocks.
 */
static int
MostRows(Relation table)
{
	if (!PipeannIsHeap(table) ||
		get_tablespace_io_concurrency(table->rd_rel->reltablespace) == 0)
		return 0;
	return pipeann_prefetch_rows;
}

/* Whether a page is among those asked for last; notes that it is. */
static bool
WasAsked(PipeannPrefetch *prefetch, BlockNumber block)
{
	uint32		n = Min(prefetch->nasked, PIPEANN_ASKED);

	for (uint32 i = 0; i < n; i++)
		if (prefetch->asked[i] == block)
			return true;
	prefetch->asked[prefetch->nasked++ % PIPEANN_ASKED] = block;
	return false;
}

/* Ask for the pages of a list's rows, up to `most`; returns of how many. */
static int
Ask(PipeannPrefetch *prefetch, PipeannRowList list, int most)
{
	const PipeannRow *row = list.rows;
	int			n = (int) Min(list.n, (uint32) most);

	for (int i = 0; i < n; i++, row = PipeannRowNext(prefetch->layout, row))
	{
		BlockNumber block = ItemPointerGetBlockNumberNoCheck(&row->tid);

		if (!WasAsked(prefetch, block) &&
			(prefetch->only == NULL ||
			 !PipeannOnlySkips(prefetch->only, block)))
			(void) PrefetchBuffer(prefetch->table, MAIN_FORKNUM, block);
	}
	return n;
}

/* How many results the search may ask for before it ends. */
static int
PrefetchEarly(const PipeannPrefetch *prefetch)
{
	return Min(prefetch->expected, prefetch->at_once);
}

/* For PipeannSearchParams: asks for a result's rows. */
static void
PrefetchSettled(PipeannRowList rows, void *arg)
{
	PipeannPrefetch *prefetch = arg;

	(void) Ask(prefetch, rows, PrefetchEarly(prefetch));
}

/* In an index-only scan pages that it will not read are left out. */
static void
PrefetchBegin(PipeannScan *state, PipeannSearchParams *params)
{
	PipeannPrefetch *prefetch = &state->prefetch;

	prefetch->at_once = MostRows(state->scan->heapRelation);
	prefetch->taken = prefetch->until = prefetch->vectors_until = 0;
	prefetch->nasked = 0;
	prefetch->table = state->scan->heapRelation;
	prefetch->layout = &state->view.meta.layout;
	prefetch->only = state->only;
	params->settled = PrefetchSettled;
	params->settled_arg = prefetch;
	params->most_settled = PrefetchEarly(prefetch);
}

/* How many rows to ask for at a time when so many were taken. */
static int
RowsWanted(const PipeannPrefetch *prefetch, uint64 taken)
{
	int			wanted = prefetch->at_once - (int) (taken % prefetch->at_once);

	if (taken > 0)
		return wanted;
	return prefetch->expected > 1 ? Min(wanted, prefetch->expected) : 0;
}

/*
 * When `taken` results were taken and the next one is about to be, ask the
 * operating system for the pages of the next ones, up to `most`, unless that was
 * done.
 *
 * Rows in overflow slots are left out.
 */
static void
PrefetchRows(PipeannPrefetch *prefetch, PipeannSearch *search, uint64 taken,
			 uint64 most)
{
	const PipeannResult *results[PIPEANN_MAX_PREFETCH];
	int			wanted;
	int			rows = 0;
	int			n;
	int			i;

	prefetch->taken = taken;
	if (prefetch->at_once == 0 || taken < prefetch->until)
		return;
	wanted = RowsWanted(prefetch, taken);
	wanted = (int) Min(most, (uint64) wanted);
	n = PipeannSearchNext(search, results, wanted);
	for (i = 0; i < n && rows < wanted; i++)
		rows += Ask(prefetch, PipeannSearchRows(search, results[i]),
					wanted - rows);
	prefetch->until = taken + i;
}

/*
 * Results whose exact distances are known, nearest first.
 *
 * Of a rounded vector only bounds of its distance are known. In a plain index
 * scan the executor computes the distance of a row whose order is in doubt, and
 * holds it back. Where it does not (HoldsBack()) the scan itself does, until no
 * nearer one can come.
 */

/* The most results that the scan holds back, or rows that the executor does. */
#define PIPEANN_MOST_HELD 1000

typedef struct Known
{
	pairingheap_node node;
	PipeannResult result;		/* dist and most: of the exact vector */
	PipeannRow	rows[FLEXIBLE_ARRAY_MEMBER];	/* result.bytes of them */
} Known;

/* Ties are broken as in the search, and those of rows without a node by TID. */
static int
Compare(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	const Known *x = pairingheap_const_container(Known, node, a);
	const Known *y = pairingheap_const_container(Known, node, b);
	ItemPointerData x_tid = x->rows[0].tid;
	ItemPointerData y_tid = y->rows[0].tid;

	(void) arg;
	if (x->result.dist != y->result.dist)
		return x->result.dist < y->result.dist ? 1 : -1;
	if (x->result.id != y->result.id)
		return x->result.id < y->result.id ? 1 : -1;
	return ItemPointerCompare(&y_tid, &x_tid);
}

/*
 * Add a result, in CurrentMemoryContext, with its rows and their exact vector. One
 * that the index cannot have is left out.
 */
void
PipeannStreamAdd(PipeannScan *state, const PipeannResult *result,
				 PipeannRowList rows, const float *x)
{
	const PipeannLayout *l = &state->view.meta.layout;
	double		norm = PipeannNorm(x, l->dim);
	Known	   *known;

	if (!PipeannIsIndexable(l->metric, norm))
		return;
	if (state->known == NULL)
		state->known = pairingheap_allocate(Compare, NULL);
	known = palloc(offsetof(Known, rows) + rows.bytes);
	known->result = *result;
	known->result.nrows = rows.n;
	known->result.bytes = rows.bytes;
	known->result.dist = known->result.most =
		PipeannExactDistance(l, state->query, x, PIPEANN_FLOAT4,
							 PipeannAux(l->metric, norm, 0));
	memcpy(known->rows, rows.rows, rows.bytes);
	pairingheap_add(state->known, &known->node);
	state->nheld += result->id != PIPEANN_INVALID_ID;
}

static Known *
NearestKnown(const PipeannScan *state)
{
	return state->known == NULL || pairingheap_is_empty(state->known) ? NULL :
		pairingheap_container(Known, node, pairingheap_first(state->known));
}

/*
 * Take the nearest known result, if it comes before the search's next one, which may
 * be NULL. Where thousands of nodes are nearer to each other than half precision can
 * tell, a LIMIT must not have all of them read.
 */
static Known *
TakeKnown(PipeannScan *state, const PipeannResult *next)
{
	Known	   *known = NearestKnown(state);

	if (known == NULL ||
		(next != NULL && known->result.dist > next->dist &&
		 state->nheld < PIPEANN_MOST_HELD))
		return NULL;
	(void) pairingheap_remove_first(state->known);
	state->nheld -= known->result.id != PIPEANN_INVALID_ID;
	return known;
}

/*
 * Hold back a result whose order is in doubt, at the distance of its vector as the
 * table has it. A result without a row that the snapshot sees is dropped.
 */
static void
HoldBack(PipeannScan *state, const PipeannResult *result)
{
	PipeannRowList list = PipeannSearchRows(state->search, result);

	CHECK_FOR_INTERRUPTS();
	state->farthest = Max(state->farthest, result->most);
	if (PipeannTableVectorOf(state->scan, &state->view, result, list,
							 state->exact))
		PipeannStreamAdd(state, result, list, state->exact);
}

/*
 * The order in which a scan returns rows: what the executor is told of their
 * distances, and which rows are not in order.
 */

/* Tell the executor the distance of the rows that come next. */
static void
StoreDistance(const PipeannScan *state, double value)
{
	Oid			type = FLOAT8OID;
	IndexOrderByDistance distance = {.value = value};

	index_store_float8_orderby_distances(state->scan, &type, &distance,
										 state->recheck);
}

/* The next rows are not compared, and come after those that were. */
static void
EndComparing(PipeannScan *state)
{
	state->recheck = false;
	state->held = 0;
	StoreDistance(state,
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
	const Known *known = NearestKnown(state);

	return state->comparable && result->most > result->dist &&
		(result->dist <= state->farthest ||
		 (next != NULL && next->dist <= result->most) ||
		 (known != NULL && known->result.dist <= result->most));
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
SetDistance(PipeannScan *state, const PipeannResult *result)
{
	bool		in_doubt = IsInDoubt(state, result);

	state->farthest = Max(state->farthest, result->most);
	state->recheck = in_doubt && state->held < PIPEANN_MOST_HELD;
	if (state->recheck)
	{
		state->held += result->nrows;
		StoreDistance(state,
					  PipeannBoundsFloor(PipeannSearchBounds(state->search),
										 result->dist, result->most));
	}
	else if (in_doubt)
		EndComparing(state);
	else
	{
		state->held = 0;
		StoreDistance(state,
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
 * Whether a result comes after a farther one. A query that has no distances has no
 * order.
 */
static bool
IsLate(const PipeannScan *state, float dist)
{
	float		before = state->last_dist;
	float		scale = state->view.meta.layout.metric == PIPEANN_COSINE ? 1 :
		fabsf(before);

	return pipeann_iterative_scan != PIPEANN_ITERATIVE_RELAXED &&
		state->comparable && dist < before - ROUNDING * scale;
}

/*
 * How many results may be returned before the search has to go on. In strict
 * order a nearer row that is found later is lost. That hardly ever happens to
 * the nearer half of the explored nodes, but sometimes to the others.
 *
 * A search that has ended early does not go on just because the executor or the
 * scan holds rows back until a row comes that is surely farther.
 */
static uint64
MostReturnable(const PipeannScan *state)
{
	uint64		explored = PipeannSearchExplored(state->search);

	if (PipeannSearchIsTogether(state->search))
		return PG_UINT64_MAX;
	if (PipeannSearchEndedEarly(state->search))
		return state->taken >= PIPEANN_EARLY_RESULTS &&
			(state->recheck || state->nheld > 0) ?
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

/* How far results may be: no farther ones are wanted. */
static float
Bound(const PipeannScan *state)
{
	return state->heeds.bound == NULL ? INFINITY :
		PipeannDistanceBoundKey(state->heeds.bound,
								state->view.meta.layout.metric);
}

/*
 * Let the search go on, if it must, until there is a next result. NULL if there is
 * none for now.
 */
static const PipeannResult *
ContinueSearch(PipeannScan *state)
{
	const PipeannResult *next;

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
			return NULL;
		if (state->looked_at >= PipeannMostToLookAt(state) ||
			!PipeannSearchRun(state->search))
			state->exhausted = true;
		if (state->replica)
			PipeannCheckPacking(&state->view);
	}
	next = PipeannSearchPeek(state->search);
	return next == NULL || next->dist > Bound(state) ? NULL : next;
}

/* How many of the next results are within the distance bound, up to a few. */
static int
CountWithin(const PipeannScan *state)
{
	const PipeannResult *results[PIPEANN_EARLY_RESULTS];
	float		bound = Bound(state);
	int			n = PipeannSearchNext(state->search, results, lengthof(results));
	int			within = 0;

	while (within < n && !(results[within]->dist > bound))
		within++;
	return within;
}

/* How many results are likely to be taken next. */
static uint64
MostToPrefetch(const PipeannScan *state)
{
	if (PipeannSearchIsTogether(state->search))
		return CountWithin(state);
	return state->exhausted ? PIPEANN_MAX_PREFETCH :
		MostReturnable(state) - state->taken;
}

static const PipeannResult *
TakeResult(PipeannScan *state)
{
	PrefetchRows(&state->prefetch, state->search, state->taken,
				 MostToPrefetch(state));
	state->taken++;
	return PipeannSearchPop(state->search);
}

/*
 * Whether a result that was taken is next: one in doubt may be held back, and one
 * that comes late is not returned, but counted.
 */
static bool
IsNext(PipeannScan *state, const PipeannResult *result)
{
	if (state->holds_back && IsInDoubt(state, result))
	{
		HoldBack(state, result);
		return false;
	}
	if (!IsLate(state, result->dist))
		return true;
	state->late = true;
	state->counters.rows_out_of_order += result->nrows;
	return false;
}

static void
LoadRows(PipeannScan *state, const PipeannResult *result, PipeannRowList list)
{
	SetDistance(state, result);
	memcpy(state->rows, list.rows, list.bytes);
	state->next_row = state->rows;
	state->rows_left = list.n;
	PipeannChainBegin(&state->chain, result->id, result->ext_tids);
	SetKilledNode(&state->killed, state->search, result);
}

static void
LoadKnown(PipeannScan *state, Known *known, const PipeannResult *next)
{
	const PipeannResult *result = &known->result;
	PipeannRowList list = {known->rows, result->nrows, result->bytes};

	if (IsNext(state, result))
	{
		/* one let go as there are too many may be farther than what comes */
		state->last_dist = next == NULL ? result->dist :
			Min(result->dist, next->dist);
		LoadRows(state, result, list);
	}
	pfree(known);
}

/* Load the next result's rows, or leave it out, or hold it back. False at the end. */
static bool
LoadResult(PipeannScan *state)
{
	const PipeannResult *next = ContinueSearch(state);
	Known	   *known = TakeKnown(state, next);

	if (known != NULL)
		LoadKnown(state, known, next);
	else if (next != NULL)
	{
		next = TakeResult(state);
		if (!IsNext(state, next))
			return true;
		state->last_dist = next->dist;
		LoadRows(state, next, PipeannSearchRows(state->search, next));
	}
	return known != NULL || next != NULL;
}

static void
LoadExt(PipeannScan *state)
{
	PIPEANN_PAUSE("scan-chain");
	state->rows_left = PipeannChainRead(&state->view, &state->chain,
										state->rows).n;
	state->next_row = state->rows;
	if (state->recheck && state->held >= PIPEANN_MOST_HELD)
		EndComparing(state);
	else if (state->recheck)
		state->held += state->rows_left;
	if (state->replica)
		PipeannCheckPacking(&state->view);
}

/*
 * Load the next rows. False at the end: then come rows, if any, that are of no node
 * and have no distance.
 */
bool
PipeannStreamLoad(PipeannScan *state)
{
	while (state->rows_left == 0)
	{
		if (state->chain.next != PIPEANN_INVALID_ID)
			LoadExt(state);
		else if (!LoadResult(state))
		{
			state->chain.owner = PIPEANN_INVALID_ID;
			state->killed.active = false;
			state->recheck = false;
			StoreDistance(state, get_float8_nan());
			return false;
		}
	}
	return true;
}

/*
 * Whether rows in doubt are held back by the scan itself, not by the executor.
 * That does not do so in an index-only scan. Since PostgreSQL 18 it forgets where a
 * row is that it held back: FOR UPDATE takes it for an invisible one, and its ctid is
 * none (GiST's scans have the same).
 */
static bool
HoldsBack(const PipeannScan *state)
{
#if PG_VERSION_NUM >= 180000
	bool		executor_can = false;
#else
	bool		executor_can = state->only == NULL;
#endif

	return state->view.meta.layout.storage == PIPEANN_FLOAT2 &&
		state->comparable && !executor_can;
}

/* Set what a search tells and asks of the stream of its results. */
void
PipeannStreamBegin(PipeannScan *state, PipeannSearchParams *params)
{
	KilledBegin(state, params);
	PrefetchBegin(state, params);
	state->holds_back = HoldsBack(state);
}
