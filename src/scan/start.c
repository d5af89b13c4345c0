/*
 * start.c
 *		The beginning of an index scan: its view, query, conditions and search.
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
#include "scan/state.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

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
	state->is_void = state->filter != NULL && state->filter->is_void;
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
	if (state->filter != NULL)
	{
		params.matches = FilterMatchesNode;
		params.matches_arg = state->filter;
		params.code_filter = FilterCodes(state->filter);
	}
	if (scan->xs_want_itup)
		state->only = PipeannOnlyBegin(scan, &state->view);
	PipeannStreamBegin(state, &params);
	if (heeds->tid_filter != NULL && state->view.cache != NULL)
		state->tid_filter = PipeannTidFilterBegin(state, &params);
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
	PipeannScanRowBegin(state);
	state->rows = palloc(Max(PipeannExtBytes(l), PipeannInlineBytes(l)));
}
