/*
 * start.c
 *		The beginning of an index scan: its settings, view, query, conditions and
 *		search, the nodes that it skips, and the table pages that it asks for.
 */
#include "postgres.h"

#include "access/relscan.h"
#include "access/skey.h"
#include "access/xlog.h"
#include "attributes/attributes.h"
#include "base/planted.h"
#include "distance/distance.h"
#include "io/io.h"
#include "miscadmin.h"
#include "scan/distance_bound.h"
#include "scan/filter.h"
#include "scan/only.h"
#include "scan/prefetch.h"
#include "scan/rows.h"
#include "scan/state.h"
#include "storage/bufmgr.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/spccache.h"

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

/* Begin a scan. False if nothing may be noted of it, and nothing be skipped. */
static bool
KilledBegin(PipeannKilledRows *killed, IndexScanDesc scan,
			PipeannIndexView *view)
{
	killed->active = false;
	killed->view = NULL;
	if (!scan->ignore_killed_tuples || view->cache == NULL ||
		!RelationNeedsWAL(view->index))
		return false;
	killed->view = view;
	return true;
}

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

/*
 * From now on rows of this result are returned, or of none if it is NULL.
 *
 * A node with rows in overflow slots is never killed: its page's LSN does not
 * cover them.
 */
void
PipeannKilledSetNode(PipeannKilledRows *killed, const PipeannSearch *search,
					 const PipeannResult *result)
{
	killed->active = killed->view != NULL && result != NULL &&
		result->ext_tids == PIPEANN_INVALID_ID;
	if (!killed->active)
		return;
	killed->id = result->id;
	killed->rows_left = result->nrows;
	killed->lsn = PipeannSearchVersion(search, result);
}

/* The row returned last is dead to everybody. */
void
PipeannKilledNoteRow(PipeannKilledRows *killed)
{
	const PipeannLayout *l;

	if (!killed->active || --killed->rows_left > 0)
		return;
	l = &killed->view->meta.layout;
	killed->active = false;
	PipeannKilledSet(killed->view->cache->killed,
					 PipeannIdPage(l, killed->id), killed->lsn,
					 PipeannIdSlot(l, killed->id));
}

/* The settings of scans, and a search's parameters by them. */

int			pipeann_ef_search;
int			pipeann_iterative_scan;
int			pipeann_max_scan_tuples;
double		pipeann_scan_mem_multiplier;
int			pipeann_search_mode;
int			pipeann_pipeline_width;
int			pipeann_prefetch_rows;
uint32		pipeann_disabled;

/*
 * In strict order only the nearer half of the explored nodes may be returned.
 * Most scans want ten rows: with a shorter list the search would soon have to
 * go on, when rows have been returned and nearer ones that it then finds are
 * lost.
 */
static int
MinList(void)
{
	return pipeann_iterative_scan == PIPEANN_ITERATIVE_STRICT ?
		PIPEANN_STRICT_PART * PIPEANN_EARLY_RESULTS : 0;
}

PipeannSearchParams
PipeannScanParams(void)
{
	PipeannSearchParams params = {0};

	params.policy = PipeannPolicies[pipeann_search_mode];
	params.ef = pipeann_ef_search;
	params.min_list = MinList();
	params.may_end_early = true;
	params.width = pipeann_pipeline_width;
	params.disabled = pipeann_disabled;
	return params;
}

/*
 * The query's vector as searches want it.
 *
 * A NULL has no distances, and zero has no cosines: then *comparable is false,
 * and rows come in any order.
 */
static const float *
ScanQuery(IndexScanDesc scan, const PipeannLayout *l,
		  bool *comparable)
{
	const float *x;
	float	   *normalized;

	*comparable = !(scan->orderByData->sk_flags & SK_ISNULL);
	if (!*comparable)
		return palloc0(mul_size(l->dim, sizeof(float)));
	x = PipeannDatumElements(scan->orderByData->sk_argument, l->dim);
	if (l->metric != PIPEANN_COSINE)
		return x;
	*comparable = PipeannNorm(x, l->dim) > 0;
	normalized = palloc(mul_size(l->dim, sizeof(float)));
	PipeannNormalize(x, l->dim, normalized);
	return normalized;
}

/* Pages that a search keeps at hand. */
static uint32
ScanMaxPages(const PipeannLayout *l)
{
	double		bytes = pipeann_scan_mem_multiplier * work_mem * 1024.0;

	return (uint32) Min(bytes / ((double) l->node_pages * BLCKSZ),
						(double) PG_INT32_MAX);
}

/*
 * The conditions on filter columns, decided by the values in the index.
 *
 * The executor hands over the conditions on key columns as scan keys. A row in
 * the index has the values of these columns, so no page of the table is read for
 * a row that does not match.
 */

struct PipeannFilter
{
	const PipeannIndexView *view;
	TupleDesc	values;
	bool		is_void;
	int			n;
	PipeannCondition  *conditions;
	int			columns;		/* of the values, those before which are looked
								 * at */
	char	   *tuple;			/* room for a row */
	MemoryContext scratch;		/* what operators leave behind */
};

/* The elements of = ANY; NULLs match nothing. */
static void
TakeElements(PipeannCondition *condition)
{
	ArrayType  *array = DatumGetArrayTypeP(condition->key->sk_argument);
	Oid			type = ARR_ELEMTYPE(array);
	int16		length;
	bool		by_value;
	char		alignment;
	bool	   *nulls;
	int			n;

	get_typlenbyvalalign(type, &length, &by_value, &alignment);
	deconstruct_array(array, type, length, by_value, alignment,
					  &condition->arguments, &nulls, &n);
	for (int i = 0; i < n; i++)
		if (!nulls[i])
			condition->arguments[condition->narguments++] =
				condition->arguments[i];
}

/* Another of the same type, if there is one. */
static int
WrongColumn(const PipeannColumns *columns, int number)
{
	for (int i = 0; i < columns->values->natts; i++)
		if (i != number && TupleDescAttr(columns->values, i)->atttypid ==
			TupleDescAttr(columns->values, number)->atttypid)
			return i;
	return number;
}

/* Add a key's condition; one on the vector is decided at once. */
static void
AddCondition(PipeannFilter *filter, const PipeannColumns *columns, ScanKey key)
{
	PipeannCondition  *condition = &filter->conditions[filter->n];

	if (key->sk_attno - 1 == columns->vector)
	{
		/* no row without a vector is in the index */
		filter->is_void |= (key->sk_flags & SK_SEARCHNOTNULL) == 0;
		return;
	}
	condition->key = key;
	condition->number = PipeannValueNumber(columns, key->sk_attno - 1);
	if (PIPEANN_PLANTED("filter-column"))
		condition->number = WrongColumn(columns, condition->number);
	filter->columns = Max(filter->columns, condition->number + 1);
	filter->n++;
	if (key->sk_flags & (SK_SEARCHNULL | SK_SEARCHNOTNULL))
		return;
	if (key->sk_flags & SK_ISNULL)
	{
		filter->is_void = true;
		return;
	}
	if (key->sk_flags & SK_SEARCHARRAY)
		TakeElements(condition);
	else
	{
		condition->arguments = &key->sk_argument;
		condition->narguments = 1;
	}
	filter->is_void |= condition->narguments == 0;
}

/*
 * The conditions of a scan's keys, in CurrentMemoryContext; NULL if there are
 * none.
 */
static PipeannFilter *
FilterBegin(IndexScanDesc scan, const PipeannIndexView *view)
{
	PipeannFilter *filter;
	PipeannColumns columns;

	if (scan->numberOfKeys == 0)
		return NULL;
	columns = PipeannIndexColumns(scan->indexRelation);
	filter = palloc0(sizeof(PipeannFilter));
	filter->view = view;
	filter->values = columns.values;
	filter->conditions = palloc0(mul_size(scan->numberOfKeys,
										  sizeof(PipeannCondition)));
	filter->tuple = palloc(PIPEANN_ROW_SIZE);
	filter->scratch = AllocSetContextCreate(CurrentMemoryContext,
											"pipeann filter",
											ALLOCSET_SMALL_SIZES);
	for (int i = 0; i < scan->numberOfKeys; i++)
		AddCondition(filter, &columns, &scan->keyData[i]);
	return filter;
}

/* Whether a condition has an argument with which no row can match. */
bool
PipeannFilterIsVoid(const PipeannFilter *filter)
{
	return filter != NULL && filter->is_void;
}

static bool
Holds(const PipeannCondition *condition, Datum value, bool isnull)
{
	ScanKey		key = condition->key;

	if (key->sk_flags & SK_SEARCHNULL)
		return isnull && !PIPEANN_PLANTED("filter-null");
	if (isnull)
		return false;
	if (key->sk_flags & SK_SEARCHNOTNULL)
		return true;
	for (int i = 0; i < condition->narguments; i++)
		if (DatumGetBool(FunctionCall2Coll(&key->sk_func, key->sk_collation,
										   value, condition->arguments[i])))
			return true;
	return false;
}

/*
 * Whether a row of node id matches. If the row is out of line and VACUUM has
 * removed its parts meanwhile that is not known: then sets *recheck. Errors if the
 * row is broken.
 */
bool
PipeannFilterMatches(PipeannFilter *filter, uint32 id, const PipeannRow *row,
					 bool *recheck)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	MemoryContext old;
	bool		matches = !filter->is_void;

	*recheck = false;
	old = MemoryContextSwitchTo(filter->scratch);
	if (matches && PipeannRowIsOutOfLine(&filter->view->meta.layout, row))
	{
		row = PipeannTryReadRow(filter->view, row);
		*recheck = row == NULL;
	}
	matches = matches && !*recheck;
	if (matches && !PipeannDeformRowTo(filter->values, filter->columns, row,
									   filter->tuple, values, isnull))
		PipeannRowError(filter->view->index, id);
	for (int i = 0; matches && i < filter->n; i++)
	{
		int			number = filter->conditions[i].number;

		matches = Holds(&filter->conditions[i], values[number],
						isnull[number]);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(filter->scratch);
	return matches || *recheck;
}

/*
 * For PipeannSearchParams: whether a node may have a row that matches. arg is the
 * PipeannFilter.
 *
 * Rows in overflow slots are not looked at here: a search asks of many nodes that
 * it does not return.
 */
static bool
FilterMatchesNode(uint32 id, const PipeannSlot *slot, void *arg)
{
	PipeannFilter *filter = arg;
	const PipeannLayout *l = &filter->view->meta.layout;
	PipeannRowList list = PipeannSlotRows(l, slot);
	const PipeannRow *row = list.rows;
	bool		recheck;

	if (slot->ext_tids != PIPEANN_INVALID_ID)
		return true;
	for (uint32 i = 0; i < list.n; i++, row = PipeannRowNext(l, row))
		if (PipeannRowIsOutOfLine(l, row) ||
			PipeannFilterMatches(filter, id, row, &recheck))
			return true;
	return false;
}

/*
 * The attribute codes with which a node may have a matching row; NULL if they do
 * not tell.
 */
static const PipeannCodeFilter *
FilterCodes(const PipeannFilter *filter)
{
	const PipeannIndexView *view = filter->view;
	PipeannAttributes *attributes;

	if (view->cache == NULL || filter->is_void)
		return NULL;
	attributes = PipeannAttributesOpen(view->index, view->meta.format,
									   &view->meta.layout,
									   &view->meta.widths,
									   view->cache->histograms);
	return attributes == NULL ? NULL :
		PipeannAttributesFilter(attributes, filter->conditions, filter->n);
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

/*
 * Begin a scan. only is NULL unless the scan is index-only: then pages that it
 * will not read are left out.
 */
static void
PrefetchBegin(PipeannPrefetch *prefetch, IndexScanDesc scan,
			  const PipeannLayout *layout, PipeannOnly *only)
{
	prefetch->table = scan->heapRelation;
	prefetch->layout = layout;
	prefetch->only = only;
	prefetch->at_once = MostRows(scan->heapRelation);
	prefetch->expected = RowsOfLastScan(scan->indexRelation);
	prefetch->taken = prefetch->until = prefetch->vectors_until = 0;
	prefetch->nasked = 0;
}

/* So many rows were wanted of a scan. */
void
PipeannPrefetchEnd(Relation index, uint64 rows)
{
	if (index->rd_amcache == NULL)
		index->rd_amcache = MemoryContextAlloc(index->rd_indexcxt,
											   sizeof(LastScan));
	((LastScan *) index->rd_amcache)->rows = (int) Min(rows,
													   PIPEANN_MAX_PREFETCH);
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
void
PipeannPrefetchRows(PipeannPrefetch *prefetch, PipeannSearch *search,
					uint64 taken, uint64 most)
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

static float
OutOfLineDistance(uint32 id, const PipeannSlot *slot, void *arg)
{
	PipeannScan *state = arg;
	const PipeannLayout *l = &state->view.meta.layout;

	if (!PipeannChainVector(&state->view, id, slot, state->exact))
		return INFINITY;
	return PipeannExactDistance(l, state->query, state->exact, PIPEANN_FLOAT4,
								slot->aux);
}

/*
 * Whether rows in doubt are held back by the scan itself (scan.c), not by the executor.
 * That does not do so in an index-only scan. Since PostgreSQL 18 it forgets where a
 * row is that it held back: FOR UPDATE takes it for an invisible one, and its ctid is
 * none (GiST's scans have the same).
 */
static bool
HoldsRowsBack(const PipeannScan *state)
{
#if PG_VERSION_NUM >= 180000
	bool		executor_can = false;
#else
	bool		executor_can = state->only == NULL;
#endif

	return state->view.meta.layout.storage == PIPEANN_FLOAT2 &&
		state->comparable && !executor_can;
}

/* Open the index, and begin a search by the scan's keys. */
void
PipeannScanStart(IndexScanDesc scan, PipeannScan *state)
{
	const PipeannLayout *l = &state->view.meta.layout;
	PipeannScanContext *heeds = &state->heeds;
	PipeannSearchParams params = PipeannScanParams();

	state->replica = RecoveryInProgress();
	PipeannOpenView(&state->view, scan->indexRelation);
	state->query = ScanQuery(scan, l, &state->comparable);
	state->filter = FilterBegin(scan, &state->view);
	state->exact = palloc(mul_size(l->dim, sizeof(float)));
	state->source = PipeannSourceOpen(scan->indexRelation, l, state->view.map,
									  state->view.meta.graph_pages,
									  &state->counters);
	if (state->view.cache != NULL)
		PipeannHotCountUses(&state->view.cache->hot,
							PipeannSourceUses(state->source));
	params.max_pages = ScanMaxPages(l);
	params.out_of_line_distance = OutOfLineDistance;
	params.out_of_line_arg = state;
	if (KilledBegin(&state->killed, scan, &state->view))
	{
		params.killed = KilledOfPage;
		params.killed_arg = &state->killed;
	}
	if (state->filter != NULL)
	{
		params.matches = FilterMatchesNode;
		params.matches_arg = state->filter;
		params.code_filter = FilterCodes(state->filter);
	}
	if (scan->xs_want_itup)
		state->only = PipeannOnlyBegin(scan, &state->view);
	PrefetchBegin(&state->prefetch, scan, l, state->only);
	params.settled = PrefetchSettled;
	params.settled_arg = &state->prefetch;
	params.most_settled = PrefetchEarly(&state->prefetch);
	if (heeds->tid_filter != NULL && state->view.cache != NULL)
		state->tid_filter = PipeannTidFilterBegin(scan, heeds->tid_filter,
												  &state->view, state->query,
												  &params);
	state->holds_back = HoldsRowsBack(state);
	if (!state->comparable || state->filter != NULL || state->tid_filter != NULL ||
		state->holds_back ||
		(heeds->fill != NULL && heeds->fill->whole))
		heeds->bound = NULL;
	if (heeds->bound != NULL)
		PipeannDistanceBoundBegin(heeds->bound, &params);
	state->mode = pipeann_search_mode;
	state->search = PipeannReuseSearch();
	PipeannSearchBegin(state->search, l,
					   state->view.cache != NULL ? &state->view.codes : NULL,
					   state->source, state->query, &params);
	PipeannScanRowBegin(&state->row, scan, &state->view, state->search,
						&state->prefetch, state->replica);
	state->rows = palloc(Max(PipeannExtBytes(l), PipeannInlineBytes(l)));
}
