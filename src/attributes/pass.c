/*
 * pass.c
 *		Conditions on filter columns as sets of attribute codes.
 *
 * Of each column that has conditions it is worked out which codes a node may have
 * that has a matching row. Then a look into a bit set tells whether a node may.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/skey.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_database.h"
#include "attributes/coding.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

/* Bytes of a bit set for one byte; a set of wide codes has one for each first byte. */
#define ROW 32
#define NARROW_BYTES ROW
#define WIDE_BYTES (256 * ROW)

/* The codes that pass, of one column. */
typedef struct Set
{
	const PipeannAttribute *attribute;
	Size		size;
	uint8	   *bits;
} Set;

static void
AddCode(uint8 *row, uint32 byte)
{
	row[byte / 8] |= 1 << byte % 8;
}

static Set
NewSet(const PipeannAttribute *attribute)
{
	Set			set = {.attribute = attribute};

	set.size = attribute->width == 1 ? NARROW_BYTES : WIDE_BYTES;
	set.bits = palloc0(set.size);
	return set;
}

/* Codes that mean any value always pass. */
static void
AddAny(Set *set)
{
	if (set->attribute->width == 1)
		AddCode(set->bits, PIPEANN_MIXED);
	else
		memset(set->bits, 0xFF, ROW);
}

/* Where nothing was written there is no row. */
static void
RemoveUnwritten(Set *set)
{
	set->bits[0] &= ~1;
}

static uint32
MostNumber(const PipeannAttribute *attribute)
{
	return attribute->width == 1 ? PIPEANN_MOST_NARROW : PIPEANN_MOST_WIDE;
}

/* Add the numbers from .. to. */
static void
AddNumbers(Set *set, uint32 from, uint32 to)
{
	if (set->attribute->width == 1)
	{
		for (uint32 i = from; i <= to; i++)
			AddCode(set->bits, PIPEANN_FIRST_NARROW + i);
		return;
	}
	while (from <= to)
	{
		uint32		first = from / PIPEANN_WIDE_BASE;
		uint32		last = Min(to, first * PIPEANN_WIDE_BASE +
							   PIPEANN_WIDE_BASE - 1);
		uint8	   *row = set->bits + (Size) (1 + first) * ROW;

		if (last - from == PIPEANN_WIDE_BASE - 1)
			memset(row, 0xFF, ROW);
		else
			for (uint32 i = from; i <= last; i++)
				AddCode(row, 1 + i % PIPEANN_WIDE_BASE);
		from = last + 1;
	}
}

/* ---------- values in order ---------- */

/* How the boundaries of a column are compared with the argument of a condition. */
typedef struct Comparison
{
	const PipeannAttributes *a;
	const PipeannAttribute *attribute;
	FmgrInfo	less;
	FmgrInfo	equal;
} Comparison;

static bool
FindOperator(const Comparison *c, ScanKey key, int strategy, FmgrInfo *function)
{
	Relation	index = c->a->index;
	int			position = c->attribute->position;
	Oid			left = index->rd_opcintype[position];
	Oid			right = OidIsValid(key->sk_subtype) ? key->sk_subtype : left;
	Oid			operator = get_opfamily_member(index->rd_opfamily[position],
											   left, right, strategy);

	if (!OidIsValid(operator) ||
		!PipeannOrderHas(&c->attribute->order, operator, strategy))
		return false;
	fmgr_info(get_opcode(operator), function);
	return true;
}

static bool
Compares(FmgrInfo *function, const Comparison *c, uint32 i, Datum argument)
{
	return DatumGetBool(FunctionCall2Coll(function, c->attribute->order.collation,
										  PipeannBookBoundary(c->a, c->attribute, i),
										  argument));
}

/* The argument's number, as if it were a value of the column. */
static uint32
NumberOf(Comparison *c, Datum argument)
{
	uint32		n = PipeannBookLength(c->a, c->attribute);
	uint32		low = 0;
	uint32		high = n;

	while (low < high)
	{
		uint32		middle = (low + high) / 2;

		if (Compares(&c->less, c, middle, argument))
			low = middle + 1;
		else
			high = middle;
	}
	return 1 + 2 * low + (low < n && Compares(&c->equal, c, low, argument));
}

/* Whether the database's own collation is C. */
static bool
DefaultIsC(void)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID,
										ObjectIdGetDatum(MyDatabaseId));
	bool		isnull;
	Datum		name;
	bool		result = false;

	if (!HeapTupleIsValid(tuple))
		return false;
	name = SysCacheGetAttr(DATABASEOID, tuple, Anum_pg_database_datcollate,
						   &isnull);
	if (!isnull && ((Form_pg_database) GETSTRUCT(tuple))->datlocprovider ==
		COLLPROVIDER_LIBC)
	{
		const char *locale = TextDatumGetCString(name);

		result = strcmp(locale, "C") == 0 || strcmp(locale, "POSIX") == 0;
	}
	ReleaseSysCache(tuple);
	return result;
}

/* Whether values that the codes have in order are in that of the column. */
static bool
IsInOrder(const PipeannAttribute *attribute)
{
	Oid			collation = attribute->type->attcollation;

	return collation == attribute->order.collation ||
		(collation == DEFAULT_COLLATION_OID && DefaultIsC());
}

/* Numbers from .. to; none if `from` is greater. */
typedef struct Numbers
{
	uint32		from;
	uint32		to;
} Numbers;

/*
 * Numbers of boundaries are even, and have one value; others have all between two
 * boundaries, so that the argument's own number may be on either side.
 */
static Numbers
NumbersBy(const PipeannAttribute *attribute, int strategy, uint32 number)
{
	Numbers		numbers = {.from = 1,.to = MostNumber(attribute)};
	bool		is_boundary = number % 2 == 0;

	switch (strategy)
	{
		case PIPEANN_LESS_STRATEGY:
			numbers.to = is_boundary ? number - 1 : number;
			break;
		case PIPEANN_LESS_EQUAL_STRATEGY:
			numbers.to = number;
			break;
		case PIPEANN_EQUAL_STRATEGY:
			numbers.from = numbers.to = number;
			break;
		case PIPEANN_GREATER_EQUAL_STRATEGY:
			numbers.from = number;
			break;
		case PIPEANN_GREATER_STRATEGY:
			numbers.from = is_boundary ? number + 1 : number;
			break;
	}
	return numbers;
}

/*
 * Set numbers[] to those with which a value may meet a condition: as many ranges, which
 * are returned, as it has arguments, or one.
 */
static int
NumbersOf(PipeannAttributes *a, const PipeannAttribute *attribute,
		  const PipeannCondition *condition, Numbers *numbers)
{
	ScanKey		key = condition->key;
	Comparison	c = {.a = a,.attribute = attribute};

	numbers[0].from = key->sk_flags & SK_SEARCHNULL ? 0 : 1;
	numbers[0].to = key->sk_flags & SK_SEARCHNULL ? 0 : MostNumber(attribute);
	if ((key->sk_flags & (SK_SEARCHNULL | SK_SEARCHNOTNULL)) ||
		!FindOperator(&c, key, PIPEANN_LESS_STRATEGY, &c.less) ||
		!FindOperator(&c, key, PIPEANN_EQUAL_STRATEGY, &c.equal) ||
		(key->sk_strategy != PIPEANN_EQUAL_STRATEGY && !IsInOrder(attribute)))
		return 1;
	for (int i = 0; i < condition->narguments; i++)
		numbers[i] = NumbersBy(attribute, key->sk_strategy,
							   NumberOf(&c, condition->arguments[i]));
	return condition->narguments;
}

static void
AddOrdered(PipeannAttributes *a, const PipeannCondition *condition, Set *set)
{
	Numbers    *numbers = palloc(mul_size(Max(condition->narguments, 1),
										  sizeof(Numbers)));
	int			n = NumbersOf(a, set->attribute, condition, numbers);

	AddAny(set);
	for (int i = 0; i < n; i++)
		AddNumbers(set, numbers[i].from, numbers[i].to);
	pfree(numbers);
}

/* ---------- the whole ---------- */

/* Take those out of a set that are not in another. */
static void
Intersect(Set *set, const Set *other)
{
	for (Size i = 0; i < set->size; i++)
		set->bits[i] &= other->bits[i];
}

/* The sets of what passes all conditions on a column. */
static void
FillSets(PipeannAttributes *a, const PipeannAttribute *attribute,
		 const PipeannCondition *conditions, int n, PipeannCodeColumn *column)
{
	Set			set = NewSet(attribute);

	memset(set.bits, 0xFF, set.size);
	for (int i = 0; i < n; i++)
	{
		Set			one;

		if (conditions[i].number != attribute->number)
			continue;
		one = NewSet(attribute);
		AddOrdered(a, &conditions[i], &one);
		Intersect(&set, &one);
		pfree(one.bits);
	}
	RemoveUnwritten(&set);
	if (column->width == 1)
		memcpy(column->first, set.bits, ROW);
	else
	{
		column->second = set.bits;
		PipeannCodeColumnFill(column);
	}
}

/* The same of two bytes as a range, if each condition is met by one. */
static void
FillRange(PipeannAttributes *a, const PipeannAttribute *attribute,
		  const PipeannCondition *conditions, int n, PipeannCodeColumn *column)
{
	Numbers		all = {.from = 0,.to = PIPEANN_MOST_WIDE};

	for (int i = 0; i < n; i++)
	{
		Numbers		one;

		if (conditions[i].number != attribute->number)
			continue;
		(void) NumbersOf(a, attribute, &conditions[i], &one);
		all.from = Max(all.from, one.from);
		all.to = Min(all.to, one.to);
	}
	column->from = all.from > all.to ? PIPEANN_NO_WIDE :
		PipeannWideCode(all.from);
	column->to = all.from > all.to ? PIPEANN_NO_WIDE :
		PipeannWideCode(all.to);
}

/* Add a test of an ordered code, if there are conditions on its column. */
static void
AddOrderedTest(PipeannAttributes *a, const PipeannAttribute *attribute,
			   const PipeannCondition *conditions, int n,
			   PipeannCodeFilter *filter)
{
	int			most = 0;		/* arguments that a condition has, or 1 */
	PipeannCodeColumn *column;

	for (int i = 0; i < n; i++)
		if (conditions[i].number == attribute->number)
			most = Max(most, Max(conditions[i].narguments, 1));
	if (most == 0 || PipeannFilterRoom(filter) == 0)
		return;
	column = PipeannAddTest(filter, attribute, 0);
	column->width = Min(attribute->width, 2);
	if (most == 1 && column->width == 2)
		FillRange(a, attribute, conditions, n, column);
	else
		FillSets(a, attribute, conditions, n, column);
}

/* Of nodes with several values those pass that may have one that a condition names. */
static void
PassNumbers(PipeannAttributes *a, const PipeannAttribute *attribute,
			const PipeannCondition *condition, PipeannCodeFilter *filter)
{
	ScanKey		key = condition->key;
	Comparison	c = {.a = a,.attribute = attribute};
	uint32	   *numbers = palloc0(mul_size(condition->narguments + 1,
										   sizeof(uint32)));

	if (key->sk_flags & SK_SEARCHNULL)
		PipeannNumbersPass(attribute, numbers, 1, filter);
	else if ((key->sk_flags & SK_SEARCHNOTNULL) == 0 &&
			 key->sk_strategy == PIPEANN_EQUAL_STRATEGY &&
			 FindOperator(&c, key, PIPEANN_LESS_STRATEGY, &c.less) &&
			 FindOperator(&c, key, PIPEANN_EQUAL_STRATEGY, &c.equal))
	{
		for (int i = 0; i < condition->narguments; i++)
			numbers[i] = NumberOf(&c, condition->arguments[i]);
		PipeannNumbersPass(attribute, numbers, condition->narguments, filter);
	}
	pfree(numbers);
}

static void
AddColumn(PipeannAttributes *a, PipeannAttribute *attribute,
		  const PipeannCondition *conditions, int n, PipeannCodeFilter *filter)
{
	if (!attribute->is_array)
		AddOrderedTest(a, attribute, conditions, n, filter);
	for (int i = 0; i < n; i++)
	{
		if (conditions[i].number != attribute->number)
			continue;
		if (attribute->is_array)
			PipeannElementsPass(a, attribute, &conditions[i], filter);
		else if (PipeannSetBytes(attribute) > 0)
			PassNumbers(a, attribute, &conditions[i], filter);
	}
}

PipeannCodeFilter *
PipeannAttributesFilter(PipeannAttributes *a,
						const PipeannCondition *conditions, int n)
{
	PipeannCodeFilter *filter = palloc(sizeof(PipeannCodeFilter));

	filter->n = 0;
	filter->precision = 1;
	for (int i = 0; i < a->n; i++)
		if (a->attributes[i].is_known)
			AddColumn(a, &a->attributes[i], conditions, n, filter);
	return filter->n > 0 ? filter : NULL;
}
