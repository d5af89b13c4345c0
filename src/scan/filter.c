/*
 * filter.c
 *		The conditions on filter columns, decided by the values in the index.
 *
 * The executor hands over the conditions on key columns as scan keys. A row in
 * the index has the values of these columns, so no page of the table is read for
 * a row that does not match.
 */
#include "postgres.h"

#include "access/skey.h"
#include "attributes/attributes.h"
#include "base/planted.h"
#include "scan/filter.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

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
PipeannFilter *
PipeannFilterBegin(IndexScanDesc scan, const PipeannIndexView *view)
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
	if (matches && PipeannRowIsApart(&filter->view->meta.layout, row))
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
bool
PipeannFilterMatchesNode(uint32 id, const PipeannSlot *slot, void *arg)
{
	PipeannFilter *filter = arg;
	const PipeannLayout *l = &filter->view->meta.layout;
	PipeannRowList list = PipeannSlotRows(l, slot);
	const PipeannRow *row = list.rows;
	bool		recheck;

	if (slot->ext_tids != PIPEANN_INVALID_ID)
		return true;
	for (uint32 i = 0; i < list.n; i++, row = PipeannRowNext(l, row))
		if (PipeannRowIsApart(l, row) ||
			PipeannFilterMatches(filter, id, row, &recheck))
			return true;
	return false;
}

/*
 * The attribute codes with which a node may have a matching row; NULL if they do
 * not tell.
 */
const PipeannCodeFilter *
PipeannFilterCodes(const PipeannFilter *filter)
{
	const PipeannIndexView *view = filter->view;
	PipeannAttributes *attributes;

	if (view->cache == NULL || filter->is_void)
		return NULL;
	attributes = PipeannAttributesOpen(view->index, view->meta.format,
									   &view->meta.layout,
									   &view->meta.widths,
									   view->cache->books);
	return attributes == NULL ? NULL :
		PipeannAttributesFilter(attributes, filter->conditions, filter->n);
}
