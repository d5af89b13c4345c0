/*
 * values.c
 *		The codec of values in order: the number of a value by a histogram.
 *
 * A code is a number: 0 for NULL, 1 + p for position p. The column's histogram
 * has n boundaries in order; position 2 * i + 1 is boundary i itself, 2 * i is
 * between boundaries i - 1 and i. So a frequent value has a code of its own,
 * and a range of values is a range of codes.
 *
 * A code of zeroes has not been written. In one byte the number is stored plus 2,
 * and 1 means any value, for a node whose rows differ. In two bytes the number is
 * written to base 255, so that no byte is 0, and a code means any value if only
 * its first byte is 0. A reader may see one byte of a change and not the other,
 * so only the first byte changes when a node's code becomes "any value".
 *
 * Bytes behind these two are a Bloom filter of the numbers of the node's rows. It is
 * there in nodes with one value as well: a reader that sees "any value" but not yet the
 * filter's change misses only a row that its snapshot does not see.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/nbtree.h"
#include "access/skey.h"
#include "access/stratnum.h"
#include "access/tupmacs.h"
#include "attributes/coding.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_database.h"
#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/*
 * Orders of values by operators.
 *
 * A type may have another order and equality than the column's operator class: citext
 * takes the class of text, whose operators tell "A" from "a". So codes follow the
 * default B-tree operator class of the type that the column's class is for, and only a
 * condition whose operator is in that family, with the same meaning, uses them.
 */

StaticAssertDecl(PIPEANN_LESS_STRATEGY - BTLessStrategyNumber ==
				 PIPEANN_GREATER_STRATEGY - BTGreaterStrategyNumber,
				 "strategies are not in the order of B-trees");

/* Whether an operator is that of our strategy in the order. */
static bool
IsOperatorOf(const PipeannOrder *order, Oid operator, int strategy)
{
	return get_op_opfamily_strategy(operator, order->family) ==
		strategy - PIPEANN_LESS_STRATEGY + BTLessStrategyNumber;
}

/* The order of the type that an operator class is for, or of a column's own. */
static bool
FindOrder(Oid type, Oid family, Oid intype, PipeannOrder *order)
{
	const TypeCacheEntry *entry = lookup_type_cache(OidIsValid(family) ? intype : type,
													TYPECACHE_BTREE_OPFAMILY |
													TYPECACHE_CMP_PROC);
	Oid			equal = get_opfamily_member(family, intype, intype,
											PIPEANN_EQUAL_STRATEGY);

	order->family = entry->btree_opf;
	order->function = entry->cmp_proc;
	return OidIsValid(order->function) &&
		(!OidIsValid(family) ||
		 (OidIsValid(equal) && IsOperatorOf(order, equal, PIPEANN_EQUAL_STRATEGY)));
}

/*
 * The histograms of the codec of values: boundaries between them.
 *
 * A histogram is the number of boundaries, the place of each, and the boundaries
 * themselves, as values of the column's type. It is read in place, in memory that
 * was loaded from pages: nothing in it is relied on before it is checked.
 */

/* The largest number of a code of one byte, and of two. */
#define MOST_NARROW 253
#define MOST_WIDE (255 * 255 - 1)

static uint32
MostNumber(const PipeannAttribute *attribute)
{
	return attribute->width == 1 ? MOST_NARROW : MOST_WIDE;
}

static uint32
MostBoundaries(const PipeannAttribute *attribute)
{
	return MostNumber(attribute) / 2 - 1;
}

/* Boundaries of an attribute, 0 if it has no histogram. Errors if that is broken. */
static uint32
HistogramLength(const PipeannAttributes *a, const PipeannAttribute *attribute)
{
	uint32		n;

	if (attribute->histogram == NULL)
		return 0;
	n = *(const uint32 *) attribute->histogram;
	if (n > MostBoundaries(attribute) ||
		n > attribute->histogram_size / sizeof(uint32) - 1)
		PipeannBrokenHistogram(a);
	return n;
}

/* Bytes of a value of variable length, 0 if it is not a plain varlena. */
static Size
VariableSize(int16 length, const char *at, Size left)
{
	if (length == -2)
		return strnlen(at, left) < left ? strnlen(at, left) + 1 : 0;
	if (left < VARHDRSZ || !VARATT_IS_4B_U(at))
		return 0;
	return VARSIZE_4B(at) >= VARHDRSZ ? VARSIZE_4B(at) : 0;
}

static Datum
HistogramBoundary(const PipeannAttributes *a,
				  const PipeannAttribute *attribute, uint32 i)
{
	const uint32 *places = (const uint32 *) attribute->histogram + 1;
	uint32		place = places[i];
	Form_pg_attribute type = attribute->type;
	Size		size = 0;

	if (place < attribute->histogram_size &&
		place == att_align_nominal(place, type->attalign))
		size = type->attlen > 0 ? (Size) type->attlen :
			VariableSize(type->attlen, attribute->histogram + place,
						 attribute->histogram_size - place);
	if (size == 0 || size > attribute->histogram_size - place)
		PipeannBrokenHistogram(a);
	return fetch_att(attribute->histogram + place, type->attbyval, type->attlen);
}

/* ---------- training ---------- */

/* A column with at most this many different values has a code of one byte. */
#define MOST_NARROW_VALUES 60

/*
 * If the rows of this share of nodes differ, bytes are added for a Bloom
 * filter with BITS_OF_VALUE bits for each value.
 */
#define MANY_MIXED 0.05
#define BITS_OF_VALUE 10
#define LEAST_SET_BYTES 2

static int
CompareValues(const void *x, const void *y, void *arg)
{
	return PipeannCompareValues(arg, *(const Datum *) x, *(const Datum *) y);
}

/* Write a value at *place; false if there is no room. */
static bool
PutValue(const PipeannAttribute *attribute, char *histogram, Size *place,
		 Datum value)
{
	Form_pg_attribute type = attribute->type;
	Size		at = att_align_nominal(*place, type->attalign);
	Size		size = datumGetSize(value, type->attbyval, type->attlen);

	if (at + size > attribute->histogram_size)
		return false;
	if (type->attbyval)
		store_att_byval(histogram + at, value, type->attlen);
	else
		memcpy(histogram + at, DatumGetPointer(value), size);
	*place = at + size;
	return true;
}

/*
 * Choose `most` boundaries at even distances of the sorted samples. A value
 * more frequent than that distance is chosen more than once, and so is surely
 * a boundary. False if the histogram has no room for them.
 */
static bool
WriteBoundaries(PipeannAttribute *attribute, const Datum *values, uint32 all,
				uint32 most, char *histogram)
{
	uint32	   *places = (uint32 *) histogram + 1;
	uint32		wanted = Min(most, all);
	Size		place = sizeof(uint32) * ((Size) wanted + 1);
	uint32		n = 0;
	Datum		last = (Datum) 0;

	memset(histogram, 0, attribute->histogram_size);
	if (place > attribute->histogram_size)
		return false;
	for (uint32 i = 0; i < wanted; i++)
	{
		Datum		value = values[(uint64) i * all / wanted];

		if (n > 0 && CompareValues(&last, &value, attribute) == 0)
			continue;
		place = att_align_nominal(place, attribute->type->attalign);
		places[n] = (uint32) place;
		if (!PutValue(attribute, histogram, &place, value))
			return false;
		last = value;
		n++;
	}
	*(uint32 *) histogram = n;
	return true;
}

static void
HistogramTrain(const PipeannAttributes *a, PipeannAttribute *attribute,
			   const PipeannSamples *samples, char *histogram)
{
	uint32		most = MostBoundaries(attribute);

	if (samples->n == 0)
		return;
	qsort_arg(samples->values, samples->n, sizeof(Datum), CompareValues,
			  attribute);
	while (!WriteBoundaries(attribute, samples->values, samples->n, most,
							histogram))
		most /= 2;
}

/* The codec's functions to choose the width and to train. */
static int
HistogramWidth(PipeannAttribute *attribute, const PipeannSamples *samples)
{
	Datum	   *values = samples->values;
	uint32		different = 1;

	if (samples->mixed > 0 && samples->mixed >= MANY_MIXED * samples->nodes)
	{
		double		values_of_node = (double) samples->mixed_values / samples->mixed;
		int			bytes = (int) (values_of_node * BITS_OF_VALUE / 8 + 0.5);

		return Min(2 + Max(bytes, LEAST_SET_BYTES), PIPEANN_MOST_WIDTH);
	}
	if (samples->n == 0 || attribute->width == 1)
		return attribute->width;
	qsort_arg(values, samples->n, sizeof(Datum), CompareValues, attribute);
	for (uint32 i = 1; i < samples->n; i++)
		different += CompareValues(&values[i - 1], &values[i], attribute) != 0;
	return different <= MOST_NARROW_VALUES ? 1 : 2;
}

/* ---------- codes ---------- */

#define FIRST_NARROW 2			/* the number 0, in one byte */
#define WIDE_BASE 255
#define NO_CODE 0x100			/* a two-byte code that no number has */

/* Bits of a number in the Bloom filter. */
#define HASHES 4

/* Codes from 1 to this one mean any value; 0 means not written. */
static uint32
MostMixed(const PipeannAttribute *attribute)
{
	return attribute->width == 1 ? 1 : 0xFF;
}

/* The code of a number; the first of two bytes is the higher one. */
static uint32
CodeOf(const PipeannAttribute *attribute, uint32 number)
{
	return attribute->width == 1 ? FIRST_NARROW + number :
		(1 + number / WIDE_BASE) << 8 | (1 + number % WIDE_BASE);
}

static uint32
GetCode(const PipeannAttribute *attribute, const uint8 *code)
{
	return attribute->width == 1 ? code[0] : (uint32) code[0] << 8 | code[1];
}

static void
PutCode(const PipeannAttribute *attribute, uint32 value, uint8 *code)
{
	if (attribute->width > 1)
		*code++ = (uint8) (value >> 8);
	*code = (uint8) value;
}

/* The number of bytes behind, for the Bloom filter. */
static int
SetBytes(const PipeannAttribute *attribute)
{
	return Max(attribute->width - 2, 0);
}

/* Set the bits of a number in set[SetBytes()], besides those set already. */
static void
AddBits(const PipeannAttribute *attribute, uint32 number, uint8 *set)
{
	uint32		bits = 8 * (uint32) SetBytes(attribute);
	uint32		hash = PipeannHashAgain(number + 1);
	uint32		step = PipeannHashAgain(hash);

	for (uint32 i = 0; bits > 0 && i < HASHES; i++)
		PipeannSetBit(set, (hash + i * step) % bits);
}

/* The number of a value that a function compares with boundaries. */
static uint32
NumberOf(const PipeannAttributes *a, const PipeannAttribute *attribute,
		 FmgrInfo *compare, Datum value)
{
	uint32		low = 0;
	uint32		high = HistogramLength(a, attribute);

	while (low < high)
	{
		uint32		middle = (low + high) / 2;
		Datum		boundary = HistogramBoundary(a, attribute, middle);
		int			order =
			DatumGetInt32(FunctionCall2Coll(compare, attribute->order.collation,
											boundary, value));

		if (order == 0)
			return 2 * middle + 2;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return 2 * low + 1;
}

static void
Encode(const PipeannAttributes *a, PipeannAttribute *attribute, Datum value,
	   bool isnull, uint8 *code)
{
	uint32		number = isnull ? 0 :
		NumberOf(a, attribute, &attribute->function, value);

	PutCode(attribute, CodeOf(attribute, number), code);
	memset(code + 2, 0, SetBytes(attribute));
	AddBits(attribute, number, code + 2);
}

/* Make a code mean any value: the second of two bytes stays, unless it is 0. */
static void
MakeMixed(const PipeannAttribute *attribute, uint8 *code)
{
	uint32		second = GetCode(attribute, code) & MostMixed(attribute);

	PutCode(attribute, Max(second, 1), code);
}

static void
Mix(const PipeannAttribute *attribute, uint8 *code)
{
	MakeMixed(attribute, code);
	memset(code + 2, 0xFF, SetBytes(attribute));
}

static void
Merge(const PipeannAttribute *attribute, const uint8 *other, uint8 *code)
{
	if (GetCode(attribute, code) != GetCode(attribute, other))
		MakeMixed(attribute, code);
	for (int i = 2; i < attribute->width; i++)
		code[i] |= other[i];
}

static bool
MayShrink(const PipeannAttribute *attribute, const uint8 *code)
{
	return GetCode(attribute, code) <= MostMixed(attribute);
}

/* ---------- conditions ---------- */

/* Numbers of a condition that are looked for in Bloom filters. */
#define MOST_NUMBERS 8

/* Numbers from .. to; none if `from` is greater. */
typedef struct Numbers
{
	uint32		from;
	uint32		to;
} Numbers;

/*
 * Whether codes can decide a condition with arguments, which may be of another
 * type than the column; sets the function that compares these.
 */
static bool
FindComparison(const PipeannAttributes *a, const PipeannAttribute *attribute,
			   ScanKey key, FmgrInfo *compare)
{
	const PipeannOrder *order = &attribute->order;
	Oid			left = a->index->rd_opcintype[attribute->position];
	Oid			right = OidIsValid(key->sk_subtype) ? key->sk_subtype : left;
	Oid			operator =
		get_opfamily_member(a->index->rd_opfamily[attribute->position],
							left, right, key->sk_strategy);
	Oid			function = get_opfamily_proc(order->family, left, right,
											 BTORDER_PROC);

	if ((key->sk_flags & (SK_SEARCHNULL | SK_SEARCHNOTNULL)) ||
		!OidIsValid(function) ||
		!IsOperatorOf(order, operator, key->sk_strategy))
		return false;
	fmgr_info(function, compare);
	return true;
}

/*
 * Whether the database's own collation is C. (PostgreSQL's function for that is in a
 * header that needs those of ICU.)
 */
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

/* Whether the order of codes is the column's order. */
static bool
IsInOrder(const PipeannAttribute *attribute)
{
	Oid			collation = attribute->type->attcollation;

	return collation == attribute->order.collation ||
		(collation == DEFAULT_COLLATION_OID && DefaultIsC());
}

/*
 * Boundaries have even numbers, and each is one value; other numbers stand for all
 * values between two boundaries, so the argument's own number may be on either side.
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
 * Set numbers[] to the ranges of numbers with which a value may meet a
 * condition: one, or one for each argument. Returns how many.
 */
static int
NumbersOf(const PipeannAttributes *a, const PipeannAttribute *attribute,
		  const PipeannCondition *condition, Numbers *numbers)
{
	ScanKey		key = condition->key;
	FmgrInfo	compare;

	numbers[0].from = key->sk_flags & SK_SEARCHNULL ? 0 : 1;
	numbers[0].to = key->sk_flags & SK_SEARCHNULL ? 0 :
		MostNumber(attribute);
	if (!FindComparison(a, attribute, key, &compare) ||
		(key->sk_strategy != PIPEANN_EQUAL_STRATEGY && !IsInOrder(attribute)))
		return 1;
	for (int i = 0; i < condition->narguments; i++)
		numbers[i] = NumbersBy(attribute, key->sk_strategy,
							   NumberOf(a, attribute, &compare,
										condition->arguments[i]));
	return condition->narguments;
}

/* Add the codes from .. to to a bit set. */
static void
AddCodes(uint8 *bits, uint32 from, uint32 to)
{
	while (from <= to)
	{
		bool		whole = from % 8 == 0 && to - from >= 7;

		bits[from / 8] |= whole ? 0xFF : 1 << from % 8;
		from += whole ? 8 : 1;
	}
}

/* The set of codes that pass all conditions. Where no code was written there is no row. */
static void
FillSet(const PipeannAttributes *a, const PipeannAttribute *attribute,
		const PipeannCondition *conditions, int n, PipeannCodeColumn *column)
{
	Size		size = column->width == 1 ? 256 / 8 : 65536 / 8;
	uint8	   *all = palloc(size);
	uint8	   *one = palloc(size);

	memset(all, 0xFF, size);
	all[0] &= ~1;
	for (int i = 0; i < n; i++)
	{
		Numbers    *numbers = palloc(mul_size(Max(conditions[i].narguments, 1),
											  sizeof(Numbers)));
		int			count = NumbersOf(a, attribute, &conditions[i], numbers);

		memset(one, 0, size);
		AddCodes(one, 1, MostMixed(attribute));
		for (int j = 0; j < count; j++)
			if (numbers[j].from <= numbers[j].to)
				AddCodes(one, CodeOf(attribute, numbers[j].from),
						 CodeOf(attribute, numbers[j].to));
		pfree(numbers);
		for (Size j = 0; j < size; j++)
			all[j] &= one[j];
	}
	pfree(one);
	if (column->width == 1)
		memcpy(column->first, all, size);
	else
	{
		column->second = all;
		PipeannCodeColumnFill(column);
	}
}

/* Let nodes with several values pass if they may have one that meets a condition. */
static void
PassMixed(const PipeannAttributes *a, const PipeannAttribute *attribute,
		  const PipeannCondition *condition, PipeannCodeFilter *filter)
{
	ScanKey		key = condition->key;
	bool		is_null = (key->sk_flags & SK_SEARCHNULL) != 0;
	int			n = is_null ? 1 : condition->narguments;
	FmgrInfo	compare;
	PipeannCodeColumn *column;

	if (n > MOST_NUMBERS ||
		filter->n + 1 + n * HASHES > PIPEANN_MAX_CODE_COLUMNS ||
		(!is_null && (key->sk_strategy != PIPEANN_EQUAL_STRATEGY ||
					  !FindComparison(a, attribute, key, &compare))))
		return;
	/* nodes with one value pass by their ordered code */
	column = PipeannAddTest(filter, attribute, 0);
	memset(column->first, 0xFF, sizeof(column->first));
	column->first[0] &= ~1;
	column->otherwise = true;
	for (int i = 0; i < n; i++)
	{
		uint8		bits[PIPEANN_MOST_WIDTH] = {0};

		AddBits(attribute, is_null ? 0 :
				NumberOf(a, attribute, &compare, condition->arguments[i]), bits);
		PipeannAddAlternative(filter, attribute, 2, bits, SetBytes(attribute),
							  false);
	}
	filter->columns[filter->n - 1].otherwise = false;
}

static void
Pass(const PipeannAttributes *a, PipeannAttribute *attribute,
	 const PipeannCondition *conditions, int n, PipeannCodeFilter *filter)
{
	int			most = 1;		/* the most arguments of a condition */
	PipeannCodeColumn *column;

	if (filter->n == PIPEANN_MAX_CODE_COLUMNS)
		return;
	for (int i = 0; i < n; i++)
		most = Max(most, conditions[i].narguments);
	column = PipeannAddTest(filter, attribute, 0);
	column->width = Min(attribute->width, 2);
	if (most == 1 && column->width == 2)
	{
		Numbers		all = {.from = 0,.to = MOST_WIDE};

		/* each condition has one range, so all together have their intersection */
		for (int i = 0; i < n; i++)
		{
			Numbers		one;

			(void) NumbersOf(a, attribute, &conditions[i], &one);
			all.from = Max(all.from, one.from);
			all.to = Min(all.to, one.to);
		}
		column->from = all.from > all.to ? NO_CODE : CodeOf(attribute, all.from);
		column->to = all.from > all.to ? NO_CODE : CodeOf(attribute, all.to);
	}
	else
		FillSet(a, attribute, conditions, n, column);
	for (int i = 0; i < n && SetBytes(attribute) > 0; i++)
		PassMixed(a, attribute, &conditions[i], filter);
}

/* ---------- the codec ---------- */

static int
FirstWidth(Oid type)
{
	return type == BOOLOID || type_is_enum(type) ? 1 : 2;
}

const PipeannCodec PipeannValueCodec = {
	.find_order = FindOrder,
	.first_width = FirstWidth,
	.width = HistogramWidth,
	.most_samples = PG_UINT32_MAX,	/* all */
	.most_bytes = 256,
	.train = HistogramTrain,
	.encode = Encode,
	.mix = Mix,
	.merge = Merge,
	.may_shrink = MayShrink,
	.pass = Pass,
};
