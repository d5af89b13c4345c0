/*
 * attributes.c
 *		Attribute codes: what a node's rows have in the filter columns, in a few
 *		bytes beside the code of its vector.
 *
 * They are what tells, without a page of the index, that a node has no row that
 * matches a condition. They may let a node pass that has none, and never hold up one
 * that has: a node's code covers all of its rows.
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "attributes/coding.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* ---------- columns ---------- */

/* Without samples arrays are taken to have a few elements. */
#define ARRAY_WIDTH 4

/* By an index's own account, or of a format that has none by the type. */
static int
WidthOf(const PipeannAttributes *a, const PipeannWidths *widths,
		Oid type, bool is_array)
{
	if (widths != NULL && !a->by_type)
		return Max(widths->of[a->n], 1);
	if (is_array)
		return a->by_type ? 2 : ARRAY_WIDTH;
	return type == BOOLOID || type_is_enum(type) ? 1 : 2;
}

/*
 * What compares the values of a column. False if it has no codes: if nothing does, or
 * what is equal under its collation need not have the same bytes.
 *
 * Codes of a format before 6 were made by the column's type. If the operator class
 * compares in another way nothing is known by them.
 */
static bool
ChooseOrder(PipeannAttributes *a, PipeannAttribute *attribute, Oid type)
{
	Oid			collation = attribute->type->attcollation;
	PipeannOrder by_type;
	bool		has_type;
	bool		has_class;

	if (OidIsValid(collation) && !get_collation_isdeterministic(collation))
		return false;
	has_type = PipeannOrderOfType(type, attribute->is_array, collation,
								  &by_type);
	attribute->order = by_type;
	attribute->is_known = true;
	if (a->index == NULL)
		return has_type;
	has_class = PipeannOrderOfClass(a->index, attribute->position, type,
									attribute->is_array, collation,
									&attribute->order);
	attribute->is_known = has_type == has_class && (!has_class ||
													(by_type.function == attribute->order.function &&
													 by_type.collation == attribute->order.collation));
	a->differs |= !attribute->is_known;
	if (!a->by_class)
		return has_type;
	attribute->is_known = true;
	return has_class;
}

/* Add a column, if it has codes. */
static void
AddAttribute(PipeannAttributes *a, const PipeannWidths *widths, int position,
			 int number)
{
	PipeannAttribute *attribute = &a->attributes[a->n];
	Form_pg_attribute type = TupleDescAttr(a->values, number);
	Oid			base = getBaseType(type->atttypid);
	Oid			element = get_base_element_type(base);

	attribute->position = position;
	attribute->number = number;
	attribute->plane = a->bytes;
	attribute->type = type;
	attribute->is_array = OidIsValid(element);
	attribute->width = WidthOf(a, widths, base, attribute->is_array);
	if (!ChooseOrder(a, attribute, attribute->is_array ? element : base))
		return;
	if (attribute->is_known)
		fmgr_info(attribute->order.function, &attribute->function);
	a->columns = number + 1;
	a->bytes += attribute->width;
	a->n++;
}

static PipeannAttributes *
New(TupleDesc values, const PipeannWidths *widths)
{
	PipeannAttributes *a = palloc0(sizeof(PipeannAttributes));

	a->values = values;
	a->by_type = widths != NULL && widths->of[0] == 0;
	a->tuple = palloc(PIPEANN_ROW_SIZE);
	a->scratch = AllocSetContextCreate(CurrentMemoryContext,
									   "pipeann attributes",
									   ALLOCSET_SMALL_SIZES);
	return a;
}

static PipeannAttributes *
Describe(Relation index, uint32 format, const PipeannWidths *widths)
{
	PipeannColumns columns = PipeannIndexColumns(index);
	PipeannAttributes *a = New(columns.values, widths);
	int			keys = IndexRelationGetNumberOfKeyAttributes(index);

	a->index = index;
	a->by_class = format >= PIPEANN_FORMAT_CLASSES;
	for (int i = 0; i < keys; i++)
		if (i != columns.vector)
			AddAttribute(a, widths, i, PipeannValueNumber(&columns, i));
	return a;
}

PipeannAttributes *
PipeannAttributesDescribe(Relation index, uint32 format)
{
	return Describe(index, format, NULL);
}

bool
PipeannAttributesDiffer(const PipeannAttributes *a)
{
	return a->differs;
}

PipeannAttributes *
PipeannAttributesForesee(TupleDesc values, int n)
{
	PipeannAttributes *a = New(values, NULL);

	for (int i = 0; i < n; i++)
		AddAttribute(a, NULL, i, i);
	return a;
}

int
PipeannWantedWidth(const PipeannAttributes *a, const PipeannAttribute *attribute)
{
	const PipeannColumnOptions *options = NULL;

	if (a->index != NULL)
		options = (const PipeannColumnOptions *)
			RelationGetIndexAttOptions(a->index, false)[attribute->position];
	return options == NULL ? 0 : options->code_bytes;
}

PipeannAttributes *
PipeannAttributesOpen(Relation index, uint32 format, const PipeannLayout *l,
					  const PipeannWidths *widths, const char *book)
{
	PipeannAttributes *a;

	if (l->attr_bytes == 0)
		return NULL;
	a = Describe(index, format, widths);
	if (a->bytes != l->attr_bytes)
		ereport(ERROR,
				(errcode(ERRCODE_INDEX_CORRUPTED),
				 errmsg("index \"%s\" has attribute codes of %d bytes, not %d",
						RelationGetRelationName(index), l->attr_bytes,
						a->bytes),
				 errhint("Run REINDEX INDEX \"%s\".",
						 RelationGetRelationName(index))));
	PipeannAttributesUseBook(a, book);
	return a;
}

/* ---------- codes ---------- */

/* The position of a value among the boundaries. */
static uint32
PositionOf(const PipeannAttributes *a, PipeannAttribute *attribute,
		   Datum value)
{
	uint32		low = 0;
	uint32		high = PipeannBookLength(a, attribute);

	while (low < high)
	{
		uint32		middle = (low + high) / 2;
		int			order = DatumGetInt32(FunctionCall2Coll(&attribute->function,
															attribute->order.collation,
															PipeannBookBoundary(a, attribute, middle),
															value));

		if (order == 0)
			return 2 * middle + 1;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return 2 * low;
}

static void
PutNumber(const PipeannAttribute *attribute, uint32 number, uint8 *code)
{
	if (attribute->width == 1)
		code[0] = (uint8) (PIPEANN_FIRST_NARROW + number);
	else
	{
		code[0] = (uint8) (PipeannWideCode(number) >> 8);
		code[1] = (uint8) PipeannWideCode(number);
		memset(code + 2, 0, PipeannSetBytes(attribute));
		PipeannNumberBits(attribute, number, code + 2);
	}
}

static bool
IsMixed(const PipeannAttribute *attribute, const uint8 *code)
{
	return attribute->width == 1 ? code[0] == PIPEANN_MIXED :
		code[0] == PIPEANN_UNWRITTEN && code[1] != PIPEANN_UNWRITTEN;
}

static bool
AreAll(const uint8 *bytes, int n, uint8 value)
{
	for (int i = 0; i < n; i++)
		if (bytes[i] != value)
			return false;
	return true;
}

/* Whether it covers any value. */
static bool
IsAny(const PipeannAttribute *attribute, const uint8 *code)
{
	if (attribute->is_array)
		return code[0] == PIPEANN_ARRAY_WRITTEN &&
			AreAll(code + 1, attribute->width - 1, 0);
	return IsMixed(attribute, code) &&
		AreAll(code + 2, PipeannSetBytes(attribute), 0xFF);
}

/* Have it cover any value. */
static void
MakeMixed(const PipeannAttribute *attribute, uint8 *code)
{
	if (attribute->is_array)
	{
		memset(code, 0, attribute->width);
		code[0] = PIPEANN_ARRAY_WRITTEN;
	}
	else if (attribute->width == 1)
		code[0] = PIPEANN_MIXED;
	else
	{
		code[0] = PIPEANN_UNWRITTEN;
		code[1] = Max(code[1], 1);
		memset(code + 2, 0xFF, PipeannSetBytes(attribute));
	}
}

static void
EncodeValue(const PipeannAttributes *a, PipeannAttribute *attribute,
			Datum value, bool isnull, uint8 *code)
{
	if (!attribute->is_known)
		MakeMixed(attribute, code);
	else if (attribute->is_array)
		PipeannElementsEncode(a, attribute, value, isnull, code);
	else
		PutNumber(attribute, isnull ? 0 :
				  1 + PositionOf(a, attribute, value), code);
}

void
PipeannAttributesEncode(PipeannAttributes *a, uint32 id,
						const PipeannRow *row, uint8 *code)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	MemoryContext old;

	if (!PipeannDeformRowTo(a->values, a->columns, row, a->tuple, values,
							isnull))
		PipeannRowError(a->index, id);
	old = MemoryContextSwitchTo(a->scratch);
	for (int i = 0; i < a->n; i++)
	{
		PipeannAttribute *attribute = &a->attributes[i];
		int			number = attribute->number;

		EncodeValue(a, attribute, values[number], isnull[number],
					code + attribute->plane);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(a->scratch);
}

static bool
IsUnwritten(const PipeannAttribute *attribute, const uint8 *code)
{
	if (attribute->is_array)
		return (code[0] & PIPEANN_ARRAY_WRITTEN) == 0;
	return code[0] == PIPEANN_UNWRITTEN &&
		(attribute->width == 1 || code[1] == PIPEANN_UNWRITTEN);
}

void
PipeannAttributesMix(const PipeannAttributes *a, uint8 *code)
{
	for (int i = 0; i < a->n; i++)
		MakeMixed(&a->attributes[i], code + a->attributes[i].plane);
}

/* A node comes to have the values of both. */
static void
MergeSets(const PipeannAttribute *attribute, const uint8 *from, uint8 *to)
{
	if (memcmp(to, from, 2) != 0)
		to[0] = PIPEANN_UNWRITTEN;
	for (int i = 2; i < attribute->width; i++)
		to[i] |= from[i];
}

void
PipeannAttributesMerge(const PipeannAttributes *a, const uint8 *other,
					   uint8 *code)
{
	for (int i = 0; i < a->n; i++)
	{
		const PipeannAttribute *attribute = &a->attributes[i];
		uint8	   *to = code + attribute->plane;
		const uint8 *from = other + attribute->plane;

		if (IsUnwritten(attribute, to))
			MakeMixed(attribute, to);
		else if (attribute->is_array)
		{
			for (int j = 0; j < attribute->width; j++)
				to[j] &= from[j];
		}
		else if (PipeannSetBytes(attribute) > 0)
			MergeSets(attribute, from, to);
		else if (!IsMixed(attribute, to) &&
				 memcmp(to, from, attribute->width) != 0)
			MakeMixed(attribute, to);
	}
}

bool
PipeannAttributesMayShrink(const PipeannAttributes *a, const uint8 *code)
{
	for (int i = 0; i < a->n; i++)
		if (a->attributes[i].is_known &&
			(a->attributes[i].is_array ||
			 IsMixed(&a->attributes[i], code + a->attributes[i].plane)))
			return true;
	return false;
}

void
PipeannAttributesKeepMixed(const PipeannAttributes *a, const uint8 *former,
						   uint8 *code)
{
	for (int i = 0; i < a->n; i++)
	{
		const PipeannAttribute *attribute = &a->attributes[i];
		const uint8 *from = former + attribute->plane;

		if (IsAny(attribute, from))
			MakeMixed(attribute, code + attribute->plane);
	}
}

/* Whether all bits of b[n] are in a[n]. */
static bool
HasBits(const uint8 *a, const uint8 *b, int n)
{
	for (int i = 0; i < n; i++)
		if ((b[i] & ~a[i]) != 0)
			return false;
	return true;
}

static bool
Covers(const PipeannAttribute *attribute, const uint8 *code, const uint8 *row)
{
	if (IsUnwritten(attribute, code))
		return false;
	if (!attribute->is_known)
		return true;
	if (attribute->is_array)
		return HasBits(row, code, attribute->width);
	return HasBits(code + 2, row + 2, PipeannSetBytes(attribute)) &&
		(IsMixed(attribute, code) ||
		 memcmp(code, row, Min(attribute->width, 2)) == 0);
}

bool
PipeannAttributesCover(const PipeannAttributes *a, const uint8 *code,
					   const uint8 *row)
{
	for (int i = 0; i < a->n; i++)
	{
		const PipeannAttribute *attribute = &a->attributes[i];

		if (!Covers(attribute, code + attribute->plane,
					row + attribute->plane))
			return false;
	}
	return true;
}
