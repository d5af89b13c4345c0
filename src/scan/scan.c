/*
 * scan.c
 *		Index scans, which return rows in the order of their distances.
 *
 * In this order: a scan's query and its conditions on filter columns;
 * index-only scans; the rows that the index leaves out; how a scan begins; and
 * the access method's callbacks, of which pipeanngettuple() is the main one.
 * stream.c puts the results of the search in order.
 */
#include "postgres.h"

#include <math.h>

#include "access/amapi.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/relscan.h"
#include "access/skey.h"
#include "access/tableam.h"
#include "attributes/attributes.h"
#include "base/pause.h"
#include "catalog/index.h"
#include "distance/sparse.h"
#include "executor/executor.h"
#include "io/io.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "pgstat.h"
#include "scan/state.h"
#include "storage/bufmgr.h"
#include "utils/array.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* ---------- query and conditions ---------- */

/* The most nodes that a search explores before its first row because many rows are wanted. */
#define MOST_AT_ONCE 1000

/*
 * The parameters that settings give a scan for this many rows. With a target recall the
 * list is at least as long as those with which recall was measured, as in strict order.
 * If more rows are wanted than an early end makes final, there is no early end, and in
 * strict order the list is long enough for the search not to go on.
 */
PipeannSearchParams
PipeannScanParams(const PipeannMeta *meta, double rows)
{
	bool		strict = pipeann_iterative_scan == PIPEANN_ITERATIVE_STRICT;
	int			list = pipeann_target_recall == 0 ? 0 :
		PipeannCurveList(meta, pipeann_target_recall, rows);
	PipeannSearchParams params = PipeannParamsOf(list > 0 ? list : pipeann_ef_search,
												 strict || list > 0);

	params.policy = PipeannPolicies[pipeann_search_mode];
	params.width = pipeann_pipeline_width;
	params.max_pages = PipeannMaxPages(&meta->layout);
	/* a list with room for all nodes is explored as a whole */
	params.may_end_early = (uint32) params.ef < meta->nodes;
	if (list == 0 || rows <= PIPEANN_EARLY_RESULTS)
		return params;
	params.may_end_early = false;
	if (strict)
		params.min_list = (int) Min(rows * PIPEANN_STRICT_PART, MOST_AT_ONCE);
	return params;
}

/*
 * The query's vector in the form that searches use. NULL has no distances, and
 * a zero vector no cosines: then *comparable is false, and rows are in any
 * order.
 */
static const float *
ScanQuery(IndexScanDesc scan, const PipeannLayout *l, bool *comparable)
{
	Datum		value = scan->orderByData->sk_argument;
	Size		bytes = mul_size(PipeannFloats(l->storage, l->dim), sizeof(float));
	const float *x;
	float	   *query;

	/* its operator family may have been given others since */
	if (scan->orderByData->sk_strategy != (l->metric == PIPEANN_SPARSE_L1 ? PIPEANN_L1 : l->metric))
		elog(ERROR, "index \"%s\" is not by this distance", RelationGetRelationName(scan->indexRelation));
	*comparable = !(scan->orderByData->sk_flags & SK_ISNULL);
	if (!*comparable)
		return palloc0(bytes);
	PipeannCheckQuery(scan->indexRelation, value);
	x = PipeannDatumElements(l->type, value, l->dim);
	if (l->metric != PIPEANN_COSINE)
		return x;
	*comparable = PipeannNorm(x, l->dim) > 0;
	query = palloc(bytes);
	PipeannQueryOf(l, x, query);
	return query;
}

/* The conditions on filter columns, decided by the values in the index. */
struct PipeannFilter
{
	const PipeannIndexView *view;
	TupleDesc	values;
	bool		is_void;
	int			n;
	PipeannCondition *conditions;
	int			columns;		/* number of leading values that are looked
								 * at */
	char	   *tuple;			/* room for a row */
	MemoryContext scratch;		/* memory that operators leave allocated */
};

/* The elements of = ANY; NULLs match nothing. */
static void
TakeElements(PipeannCondition *condition)
{
	ArrayType  *array = DatumGetArrayTypeP(condition->key->sk_argument);
	ArrayIterator iterator = array_create_iterator(array, 0, NULL);
	Datum		element;
	bool		isnull;

	condition->arguments =
		palloc(mul_size(ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array)),
						sizeof(Datum)));
	while (array_iterate(iterator, &element, &isnull))
		if (!isnull)
			condition->arguments[condition->narguments++] = element;
}

/* Add a key's condition; one on the vector is decided at once. */
static void
AddCondition(PipeannFilter *filter, const PipeannColumns *columns, ScanKey key)
{
	PipeannCondition *condition = &filter->conditions[filter->n];

	if (key->sk_attno - 1 == columns->vector)
	{
		/* rows without a vector are not in the index */
		filter->is_void |= (key->sk_flags & SK_SEARCHNOTNULL) == 0;
		return;
	}
	if (PIPEANN_PLANTED("filter-condition"))
		return;
	condition->key = key;
	condition->number = PipeannValueNumber(columns, key->sk_attno - 1);
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

/* Whether no row can match a scan's conditions. */
static bool
IsVoid(const PipeannScan *state)
{
	return state->filter != NULL && state->filter->is_void;
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
 * removed its parts meanwhile this is unknown, and *recheck is set. Errors if
 * the row is broken.
 */
static bool
FilterMatches(PipeannFilter *filter, uint32 id, const PipeannRow *row,
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
		row = PipeannReadRow(filter->view, row, true);
		*recheck = row == NULL;
	}
	matches = matches && !*recheck;
	if (matches && !PipeannDeformRow(filter->values, filter->columns, row,
									 filter->tuple, values, isnull))
		PipeannCorrupted(filter->view->index, "has an invalid row in node %u", id);
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
 * For PipeannSearchParams: whether a node may have a row that matches.
 *
 * Rows in overflow slots are not looked at here, as a search calls this for
 * many nodes that it does not return.
 */
static bool
FilterMatchesNode(uint32 id, const PipeannSlot *slot, void *arg)
{
	PipeannFilter *filter = ((PipeannScan *) arg)->filter;
	const PipeannLayout *l = &filter->view->meta.layout;
	PipeannRowList list = PipeannSlotRows(l, slot);
	const PipeannRow *row = list.rows;
	bool		recheck;

	if (slot->ext_tids != PIPEANN_INVALID_ID)
		return true;
	for (uint32 i = 0; i < list.n; i++, row = PipeannRowNext(l, row))
		if (PipeannRowIsOutOfLine(l, row) ||
			FilterMatches(filter, id, row, &recheck))
			return true;
	return false;
}

/*
 * The attribute codes with which a node may have a matching row; NULL if codes
 * cannot decide.
 */
static const PipeannCodeFilter *
FilterCodes(const PipeannFilter *filter)
{
	const PipeannIndexView *view = filter->view;
	PipeannAttributes *attributes;

	if (view->cache == NULL || filter->is_void)
		return NULL;
	attributes = PipeannAttributesOfView(view);
	return attributes == NULL ? NULL :
		PipeannAttributesFilter(attributes, filter->conditions, filter->n);
}

/* ---------- index-only scans ---------- */

/*
 * Rows from the index alone, if the visibility map says that the table need
 * not be read. src/README explains why that is reliable. The vector is
 * returned as an expanded object that reads it in the table when it is used,
 * which few queries do: a user gets the row's own, bit for bit.
 */

/*
 * Reads the vector into the row's memory: the caller's context may not support
 * freeing (that of a sort since PostgreSQL 17).
 */
static Size
FlatSize(ExpandedObjectHeader *header)
{
	PipeannOnly *only = (PipeannOnly *) header;
	MemoryContext old = MemoryContextSwitchTo(only->row);

	if (only->value == NULL)
	{
		only->looked = true;
		only->value = PipeannTableVector(only->scan, &only->tid);
		if (only->value == NULL)
			PipeannCorrupted(only->view->index, "has an invalid row in node %u", only->id);
	}
	MemoryContextSwitchTo(old);
	return VARSIZE(only->value);
}

/* FlatSize() was called before. */
static void
Flatten(ExpandedObjectHeader *header, void *result, Size size)
{
	memcpy(result, ((PipeannOnly *) header)->value, size);
}

static const ExpandedObjectMethods late_methods = {FlatSize, Flatten};

/* Begin an index-only scan, before the search, in CurrentMemoryContext. */
static PipeannOnly *
OnlyBegin(IndexScanDesc scan, const PipeannIndexView *view)
{
	PipeannOnly *only = palloc0(sizeof(PipeannOnly));

	only->scan = scan;
	only->view = view;
	only->row = AllocSetContextCreate(CurrentMemoryContext,
									  "pipeann index-only row",
									  ALLOCSET_DEFAULT_SIZES);
	only->columns = PipeannIndexColumns(view->index);
	only->map = InvalidBuffer;
	only->sure = view->meta.removals % 2 == 0;
	EOH_init_header(&only->vector, &late_methods, CurrentMemoryContext);
	scan->xs_hitupdesc = RelationGetDescr(view->index);
	return only;
}

/* The order of the two questions matters: see src/README. */
static bool
IsSurelyVisible(PipeannOnly *only, const ItemPointerData *tid)
{
	if (!PipeannIsAllVisible(only, ItemPointerGetBlockNumber(tid)))
		return false;
	only->sure = PipeannMetaRemovals(only->view->index) ==
		only->view->meta.removals;
	return only->sure;
}

/*
 * heap_form_tuple() would flatten an expanded object. It copies an indirect
 * pointer, which has the same size.
 */
static HeapTuple
FormTuple(PipeannOnly *only, Datum *values, bool *isnull)
{
	TupleDesc	desc = only->scan->xs_hitupdesc;
	int			vector = only->columns.vector;
	char		pointer[EXPANDED_POINTER_SIZE];
	HeapTuple	tuple;
	bool		null;

	StaticAssertStmt(sizeof(varatt_indirect) == sizeof(varatt_expanded),
					 "an expanded object's pointer does not fit");
	memcpy(pointer, only->vector.eoh_ro_ptr, sizeof(pointer));
	SET_VARTAG_EXTERNAL(pointer, VARTAG_INDIRECT);
	values[vector] = PointerGetDatum(pointer);
	isnull[vector] = false;
	tuple = heap_form_tuple(desc, values, isnull);
	SET_VARTAG_EXTERNAL(DatumGetPointer(heap_getattr(tuple, vector + 1, desc,
													 &null)),
						VARTAG_EXPANDED_RO);
	return tuple;
}

/*
 * Whether the snapshot sees a row of node id; then sets the scan's xs_hitup, valid
 * until the next row is taken. Sets *dead if no snapshot sees the row any more.
 */
static bool
OnlyTake(PipeannOnly *only, uint32 id, const PipeannRow *row, bool *dead)
{
	int			vector = only->columns.vector;
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	ItemPointerData at = row->tid;
	MemoryContext old;

	*dead = false;
	if (!IsSurelyVisible(only, &at) &&
		!table_index_fetch_tuple_check(only->scan->heapRelation, &at,
									   only->scan->xs_snapshot, dead))
		return false;
	MemoryContextReset(only->row);
	only->value = NULL;
	old = MemoryContextSwitchTo(only->row);
	only->id = id;
	only->tid = row->tid;
	if (PipeannRowIsOutOfLine(&only->view->meta.layout, row))
		row = PipeannReadRow(only->view, row, false);
	if (!PipeannDeformRow(only->columns.values, only->columns.values->natts, row, NULL, values, isnull))
		PipeannCorrupted(only->view->index, "has an invalid row in node %u", id);
	for (int i = only->columns.values->natts; i > vector; i--)
	{
		values[i] = values[i - 1];
		isnull[i] = isnull[i - 1];
	}
	only->scan->xs_hitup = FormTuple(only, values, isnull);
	MemoryContextSwitchTo(old);
	return true;
}

/* ---------- rows that the index leaves out ---------- */

/*
 * Rows without a vector, and for cosine those whose vector is zero. They come last,
 * when the executor wants more rows, and are read from the table (src/README).
 */

struct PipeannLeftOut
{
	IndexScanDesc scan;
	const PipeannIndexView *view;
	IndexInfo  *info;
	MemoryContext memory;		/* of the rows; */
	MemoryContext scratch;		/* and of a vector */
	List	   *rows;			/* found in the blocks read last, with the index's columns */
	int			next;			/* of these, to be returned */
	BlockNumber block;			/* to be read next */
	int64		looked_at;		/* rows of the table */
	bool		nulls;			/* this pass is for rows without a vector */
	bool		wants_nulls;
	bool		met_nulls;		/* the first pass has found some */
	PipeannRow	row;			/* the last one returned */
};

/*
 * Begin to look for left-out rows in the table, in CurrentMemoryContext. NULL
 * if there are none by the metapage, or the scan wants none.
 */
static PipeannLeftOut *
LeftOutBegin(IndexScanDesc scan, const PipeannIndexView *view)
{
	bool		zeroes = view->meta.layout.metric == PIPEANN_COSINE;
	bool		nulls = true;
	PipeannLeftOut *left_out;

	/* IS NOT NULL on the vector rules out all rows without one */
	for (int i = 0; i < scan->numberOfKeys; i++)
		if (scan->keyData[i].sk_attno == PipeannVectorPosition(view->index) + 1 &&
			(scan->keyData[i].sk_flags & SK_SEARCHNOTNULL))
			nulls = false;
	if ((view->meta.flags & PIPEANN_META_ALL_ROWS) || !(zeroes || nulls))
		return NULL;
	left_out = palloc0(sizeof(PipeannLeftOut));
	left_out->scan = scan;
	left_out->view = view;
	left_out->info = BuildIndexInfo(view->index);
	/* the scan's snapshot decides which rows there are, not what VACUUM may remove */
	left_out->info->ii_Concurrent = true;
	left_out->memory = AllocSetContextCreate(CurrentMemoryContext, "pipeann rows left out",
											 ALLOCSET_DEFAULT_SIZES);
	left_out->scratch = AllocSetContextCreate(left_out->memory, "pipeann vector",
											  ALLOCSET_DEFAULT_SIZES);
	left_out->nulls = !zeroes;
	left_out->wants_nulls = nulls;
	return left_out;
}

/* Keep a row if it is one that this pass looks for. */
static void
TakeLeftOut(Relation index, ItemPointer tid, Datum *values, bool *isnull, bool alive, void *arg)
{
	PipeannLeftOut *left_out = arg;
	const PipeannLayout *l = &left_out->view->meta.layout;
	int			vector = PipeannVectorPosition(index);
	MemoryContext old = MemoryContextSwitchTo(left_out->scratch);
	bool		found = isnull[vector] == left_out->nulls &&
		(isnull[vector] ||
		 !PipeannIsIndexable(l->metric, PipeannNorm(PipeannDatumElements(l->type, values[vector], l->dim), l->dim)));

	left_out->met_nulls |= isnull[vector];
	MemoryContextReset(left_out->scratch);
	MemoryContextSwitchTo(left_out->memory);
	if (found)
	{
		left_out->rows = lappend(left_out->rows, heap_form_tuple(RelationGetDescr(index), values, isnull));
		((HeapTuple) llast(left_out->rows))->t_self = *tid;
	}
	MemoryContextSwitchTo(old);
}

/*
 * Read more of the table as a build would: a few blocks, and later as many as fit in work_mem, as
 * each time takes other buffers. Policies may hide rows from the current user, and expressions are
 * evaluated as they were when the row was indexed: as the table's owner, not with the user's rights.
 */
static void
ReadLeftOut(PipeannLeftOut *left_out)
{
	Relation	table = left_out->scan->heapRelation;
	TableScanDesc scan = table_beginscan_strat(table, left_out->scan->xs_snapshot, 0, NULL, true, false);
	BlockNumber blocks = RelationGetNumberOfBlocks(table) - left_out->block;
	Oid			user;
	int			rights;

	left_out->rows = NIL;
	left_out->next = 0;
	MemoryContextResetOnly(left_out->memory);
	/* limited here, as PostgreSQL wants to be given scans of whole tables only */
	if (PipeannIsHeap(table))
	{
		blocks = Min(blocks, Max(32, Min(left_out->block, (BlockNumber) (work_mem / (BLCKSZ / 1024)))));
		heap_setscanlimits(scan, left_out->block, blocks);
	}
	GetUserIdAndSecContext(&user, &rights);
	SetUserIdAndSecContext(table->rd_rel->relowner, rights | SECURITY_RESTRICTED_OPERATION);
	left_out->looked_at += (int64)
		table_index_build_scan(table, left_out->view->index, left_out->info, true, false,
							   TakeLeftOut, left_out, scan);
	SetUserIdAndSecContext(user, rights);
	left_out->block += blocks;
}

/*
 * The next left-out row: first those whose distance is NaN, then those without
 * a distance. It meets the predicate of a partial index; the scan's conditions
 * are not checked here. Ends when `most` rows of the table were read.
 */
static bool
LeftOutNext(PipeannLeftOut *left_out, int64 most)
{
	HeapTuple	row;

	while (left_out->next == list_length(left_out->rows))
	{
		CHECK_FOR_INTERRUPTS();
		if (left_out->looked_at >= most)
			return false;
		if (left_out->block < RelationGetNumberOfBlocks(left_out->scan->heapRelation))
			ReadLeftOut(left_out);
		else if (left_out->nulls || !left_out->wants_nulls || !left_out->met_nulls)
			return false;
		else
		{
			left_out->nulls = true;
			left_out->block = 0;
		}
	}
	row = list_nth(left_out->rows, left_out->next++);
	left_out->row.tid = row->t_self;
	if (left_out->scan->xs_want_itup)
		left_out->scan->xs_hitup = row;
	return true;
}

/* ---------- how a scan begins ---------- */

static float
OutOfLineDistance(uint32 id, const PipeannSlot *slot, void *arg)
{
	PipeannScan *state = arg;
	const PipeannLayout *l = &state->view.meta.layout;

	if (!PipeannChainVector(&state->view, id, slot, state->exact))
		return INFINITY;
	return PipeannWholeDistance(l, state->query, state->exact, slot->aux);
}

/*
 * An index without codes, of which each search reads all pages, stays in shared_buffers if
 * these are no more than this part of them.
 */
#define KEPT_PART 4

/* Open the index, and begin a search by the scan's keys. Errors if it cannot be scanned so. */
static void
BeginSearch(IndexScanDesc scan, PipeannScan *state)
{
	const PipeannLayout *l = &state->view.meta.layout;
	PipeannScanContext *from_plan = &state->from_plan;
	Relation	index = scan->indexRelation;
	int64		wanted = PipeannRowsWanted(from_plan->limit);
	PipeannSearchParams params;

	if (scan->orderByData == NULL || scan->numberOfOrderBys < 1)
		elog(ERROR, "cannot scan pipeann index without order");
	if (scan->numberOfOrderBys > 1)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot scan pipeann index in the order of several distances")));

	/* a page that VACUUM has changed meanwhile may be used: see src/README */
	if (!IsMVCCSnapshot(scan->xs_snapshot))
		elog(ERROR, "non-MVCC snapshots are not supported with pipeann");

	/*
	 * On a replica nobody waits for old snapshots before an index made CONCURRENTLY is valid:
	 * it may lack rows that one of these sees.
	 */
	if (scan->xs_snapshot->takenDuringRecovery &&
		XidInMVCCSnapshot(HeapTupleHeaderGetXmin(index->rd_indextuple->t_data),
						  scan->xs_snapshot))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("index \"%s\" is newer than the snapshot of this transaction",
						RelationGetRelationName(index)),
				 errhint("Run the transaction again.")));

	pgstat_count_index_scan(index);
#if PG_VERSION_NUM >= 180000
	if (scan->instrument)
		scan->instrument->nsearches++;
#endif
	PipeannOpenView(&state->view, index);
	params = PipeannScanParams(&state->view.meta, wanted == PG_INT64_MAX ?
							   PIPEANN_EARLY_RESULTS : wanted);
	state->query = ScanQuery(scan, l, &state->comparable);
	state->filter = FilterBegin(scan, &state->view);
	state->exhausted = IsVoid(state);
	state->exact = PipeannArray(float, PipeannFloats(l->storage, l->dim));
	state->source = PipeannViewSource(&state->view, &state->counters);
	state->source->keeps = state->view.cache == NULL && pipeann_hot_pages &&
		(uint64) PipeannViewPages(&state->view) * l->node_pages <= (uint64) NBuffers / KEPT_PART;
	params.out_of_line_distance = OutOfLineDistance;
	params.arg = state;
	if (state->filter != NULL)
	{
		params.matches = FilterMatchesNode;
		params.code_filter = FilterCodes(state->filter);
	}
	if (scan->xs_want_itup)
		state->only = OnlyBegin(scan, &state->view);
	PipeannStreamBegin(state, &params);
	if (from_plan->tid_filter != NULL && state->view.cache != NULL)
		state->tid_filter = PipeannTidFilterBegin(state, &params);
	if (!state->comparable || (from_plan->fill != NULL && from_plan->fill->whole))
		from_plan->bound = NULL;
	params.one_of_several = from_plan->bound != NULL && (uint32) params.ef < state->view.meta.nodes;
	if (pipeann_search_mode == PIPEANN_BATON)
		PipeannBatonBegin(state, &params);
	PipeannLastMode = pipeann_search_mode;
	state->search = PipeannReuseSearch();
	PipeannSearchBegin(state->search, l,
					   state->view.cache != NULL ? &state->view.codes : NULL,
					   state->source, state->query, &params);
	state->rows = palloc(Max(PipeannExtBytes(l), PipeannInlineBytes(l)));
}

/* ---------- the scan ---------- */

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
	}
	return scan;
}

/* Memory, reads in flight and the cache are released with the context. */
static void
EndParts(PipeannScan *state)
{
	if (state->only != NULL && BufferIsValid(state->only->map))
		ReleaseBuffer(state->only->map);
	state->scan->xs_hitup = NULL;
}

/* Bring in a page that was read, for the next scans. */
static void
BringIn(const PipeannScan *state)
{
	if (pipeann_hot_pages && state->source->wanted != PIPEANN_INVALID_ID &&
		PipeannIsOwnPage(&state->view.meta, state->source->wanted))
		PipeannSourceBringIn(state->source, state->source->wanted);
}

void
pipeannrescan(IndexScanDesc scan, ScanKey keys, int nkeys, ScanKey orderbys,
			  int norderbys)
{
	PipeannScan *state = scan->opaque;
	bool		forget = PIPEANN_PLANTED("rescan-vector") && state->search != NULL;

	if (state->search != NULL)
		BringIn(state);
	EndParts(state);
	MemoryContextReset(state->context);
	memset((char *) state + offsetof(PipeannScan, from_plan), 0,
		   sizeof(PipeannScan) - offsetof(PipeannScan, from_plan));
	state->last_dist = state->farthest = -INFINITY;
	state->chain.next = PIPEANN_INVALID_ID;
	if (keys && scan->numberOfKeys > 0)
		memmove(scan->keyData, keys,
				scan->numberOfKeys * sizeof(ScanKeyData));
	if (scan->numberOfOrderBys == 0)
		return;
	memset(scan->xs_orderbynulls, true, sizeof(bool) * scan->numberOfOrderBys);
	if (orderbys && PIPEANN_SCAN_CONTEXT(orderbys) != NULL)
		state->from_plan = *(PipeannScanContext *) PIPEANN_SCAN_CONTEXT(orderbys);
	if (orderbys && !forget)
		memmove(scan->orderByData, orderbys,
				scan->numberOfOrderBys * sizeof(ScanKeyData));
}

/*
 * A row that the index leaves out, or NULL: after all rows of the search, if
 * it came to its own end and not to a limit that was set. If late rows were
 * left out, a fill node may want those first.
 */
static const PipeannRow *
NextLeftOut(IndexScanDesc scan, PipeannScan *state)
{
	PipeannFill *fill = state->from_plan.fill;
	const PipeannDistanceBound *bound = state->from_plan.bound;

	if (state->looked_at >= PipeannMostToLookAt(state) ||
		pipeann_iterative_scan == PIPEANN_ITERATIVE_OFF ||
		(bound != NULL && !isinf(bound->distance)) || IsVoid(state))
		return NULL;
	if (state->late && fill != NULL)
	{
		fill->late = true;
		return NULL;
	}
	if (state->most != INFINITY && !fill->no_numbers)
		return NULL;
	if (state->left_out == NULL)
		state->left_out = LeftOutBegin(scan, &state->view);
	if (state->left_out == NULL ||
		!LeftOutNext(state->left_out, PipeannMostToLookAt(state)))
		return NULL;
	scan->xs_recheck = scan->numberOfKeys > 0;
	return &state->left_out->row;
}

/* Whether the scan has looked at enough rows for the table to be sorted instead. */
static bool
GivesUp(const PipeannScan *state)
{
	PipeannFill *fill = state->from_plan.fill;

	if (fill != NULL && fill->most_rows > 0 && state->looked_at >= fill->most_rows)
		fill->gave_up = true;
	return fill != NULL && fill->gave_up;
}

/*
 * The next row that matches the scan's conditions, or NULL at the end. (A row
 * without a node was checked when it was read from the table.)
 */
static const PipeannRow *
NextRow(IndexScanDesc scan, PipeannScan *state)
{
	while (!GivesUp(state) && (state->left.n > 0 || PipeannStreamLoad(state)))
	{
		const PipeannRow *row = state->left.rows;
		uint32		id = state->chain.owner;
		bool		dead;

		CHECK_FOR_INTERRUPTS();
		state->left.rows = PipeannRowNext(&state->view.meta.layout, row);
		state->left.n--;
		scan->xs_recheck = false;
		if ((state->tid_filter != NULL && id != PIPEANN_INVALID_ID &&
			 !PipeannTidFilterHas(state->tid_filter, &row->tid)) ||
			(state->filter != NULL &&
			 !FilterMatches(state->filter, id, row, &scan->xs_recheck)))
			continue;
		state->looked_at++;
		if (state->only == NULL || OnlyTake(state->only, id, row, &dead))
			return row;
		if (dead)
			state->looked_at--;		/* it was dead to all */
	}
	return GivesUp(state) ? NULL : NextLeftOut(scan, state);
}

bool
pipeanngettuple(IndexScanDesc scan, ScanDirection dir)
{
	PipeannScan *state = scan->opaque;
	PipeannDistanceBound *bound;
	MemoryContext old = MemoryContextSwitchTo(state->context);
	const PipeannRow *row = NULL;

	Assert(ScanDirectionIsForward(dir));
	if (state->search == NULL)
		BeginSearch(scan, state);
	else if (scan->kill_prior_tuple)
		state->looked_at--;		/* it was dead to all */

	/* each of several scans finds how near its search begins before any is run */
	bound = state->from_plan.bound;
	if (bound != NULL && bound->entering && !state->searched)
		bound->entered = IsVoid(state) || state->view.cache == NULL ? 0 :
			PipeannSearchEnter(state->search);
	else
		row = NextRow(scan, state);
	if (row != NULL)
		scan->xs_heaptid = row->tid;
	MemoryContextSwitchTo(old);
	return row != NULL;
}

/* The counters of an open scan, over all rescans; NULL if it is not one of ours. */
const PipeannCounters *
PipeannScanCounters(IndexScanDesc scan)
{
	return scan->indexRelation->rd_indam->amgettuple != pipeanngettuple ? NULL :
		&((PipeannScan *) scan->opaque)->counters;
}

void
pipeannendscan(IndexScanDesc scan)
{
	PipeannScan *state = scan->opaque;

	if (state->search != NULL)
	{
		PipeannLastCounters = state->counters;
		PipeannStatsAdd(PipeannCacheStats(), scan->indexRelation,
						&state->counters);
		BringIn(state);
	}
	EndParts(state);
	MemoryContextDelete(state->context);
	pfree(state);
	scan->opaque = NULL;
}
