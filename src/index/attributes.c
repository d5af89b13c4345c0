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

#include "catalog/pg_collation_d.h"
#include "catalog/pg_type_d.h"
#include "index/attributes.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/typcache.h"

/* ---------- columns ---------- */

/*
 * Under a deterministic collation equal is what has the same bytes, so bytes are
 * compared and hashed: that stays as it is when the collation's order changes.
 * False if the column's equality is another one.
 */
static bool
ChooseCollation(PipeannAttribute *attribute)
{
	Oid			collation = attribute->type->attcollation;

	attribute->collation = OidIsValid(collation) ? C_COLLATION_OID :
		InvalidOid;
	return !OidIsValid(collation) || get_collation_isdeterministic(collation);
}

static int
WidthOf(Oid type)
{
	return type == BOOLOID || type_is_enum(type) ? 1 : 2;
}

/* False if the column has no codes. */
static bool
InitAttribute(PipeannAttribute *attribute)
{
	Oid			type = getBaseType(attribute->type->atttypid);
	Oid			element = get_base_element_type(type);
	TypeCacheEntry *entry;
	const FmgrInfo *function;

	attribute->is_array = OidIsValid(element);
	attribute->width = attribute->is_array ? 2 : WidthOf(type);
	entry = lookup_type_cache(attribute->is_array ? element : type,
							  TYPECACHE_HASH_PROC_FINFO |
							  TYPECACHE_CMP_PROC_FINFO);
	function = attribute->is_array ? &entry->hash_proc_finfo :
		&entry->cmp_proc_finfo;
	if (!OidIsValid(function->fn_oid) || !ChooseCollation(attribute))
		return false;
	fmgr_info_copy(&attribute->function, unconstify(FmgrInfo *, function),
				   CurrentMemoryContext);
	return true;
}

static PipeannAttributes *
Describe(Relation index)
{
	PipeannAttributes *a = palloc0(sizeof(PipeannAttributes));
	PipeannColumns columns = PipeannIndexColumns(index);
	int			keys = IndexRelationGetNumberOfKeyAttributes(index);

	a->index = index;
	a->values = columns.values;
	for (int i = 0; i < keys; i++)
	{
		PipeannAttribute *attribute = &a->attributes[a->n];

		if (i == columns.vector)
			continue;
		attribute->position = i;
		attribute->number = PipeannValueNumber(&columns, i);
		attribute->plane = a->bytes;
		attribute->type = TupleDescAttr(a->values, attribute->number);
		if (!InitAttribute(attribute))
			continue;
		a->columns = attribute->number + 1;
		a->bytes += attribute->width;
		a->n++;
	}
	return a;
}

int
PipeannAttributeBytes(Relation index)
{
	return Describe(index)->bytes;
}

PipeannAttributes *
PipeannAttributesOpen(Relation index, const PipeannLayout *l,
					  const char *book)
{
	PipeannAttributes *a;

	if (l->attr_bytes == 0)
		return NULL;
	a = Describe(index);
	if (a->bytes != l->attr_bytes)
		ereport(ERROR,
				(errcode(ERRCODE_INDEX_CORRUPTED),
				 errmsg("index \"%s\" has attribute codes of %d bytes, not %d",
						RelationGetRelationName(index), l->attr_bytes,
						a->bytes),
				 errhint("Run REINDEX INDEX \"%s\".",
						 RelationGetRelationName(index))));
	PipeannAttributesUseBook(a, book);
	a->tuple = palloc(PIPEANN_ROW_SIZE);
	a->scratch = AllocSetContextCreate(CurrentMemoryContext,
									   "pipeann attributes",
									   ALLOCSET_SMALL_SIZES);
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
															attribute->collation,
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

uint16
PipeannElementBits(PipeannAttribute *attribute, Datum value, bool *has_nulls)
{
	ArrayType  *array = DatumGetArrayTypeP(value);
	int16		length;
	bool		by_value;
	char		alignment;
	Datum	   *elements;
	bool	   *nulls;
	uint16		bits = 0;
	int			n;

	get_typlenbyvalalign(ARR_ELEMTYPE(array), &length, &by_value, &alignment);
	deconstruct_array(array, ARR_ELEMTYPE(array), length, by_value, alignment,
					  &elements, &nulls, &n);
	*has_nulls = false;
	for (int i = 0; i < n; i++)
	{
		uint32		hash;

		*has_nulls |= nulls[i];
		if (nulls[i])
			continue;
		hash = DatumGetUInt32(FunctionCall1Coll(&attribute->function,
												attribute->collation,
												elements[i]));
		bits |= 1 << (hash % PIPEANN_BLOOM_BITS);
	}
	return bits;
}

static void
PutNumber(const PipeannAttribute *attribute, uint32 number, uint8 *code)
{
	if (attribute->width == 1)
		code[0] = (uint8) (PIPEANN_FIRST_NARROW + number);
	else
	{
		code[0] = (uint8) (1 + number / PIPEANN_WIDE_BASE);
		code[1] = (uint8) (1 + number % PIPEANN_WIDE_BASE);
	}
}

static void
EncodeValue(const PipeannAttributes *a, PipeannAttribute *attribute,
			Datum value, bool isnull, uint8 *code)
{
	if (attribute->is_array)
	{
		bool		has_nulls;
		uint16		bits = isnull ? 0 :
			PipeannElementBits(attribute, value, &has_nulls);
		uint16		inverted = ~bits;

		code[0] = inverted >> 8;
		code[1] = inverted & 0xFF;
	}
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
IsAny(const PipeannAttribute *attribute, const uint8 *code)
{
	return attribute->width == 1 ? code[0] == PIPEANN_MIXED :
		code[0] == PIPEANN_UNWRITTEN && code[1] != PIPEANN_UNWRITTEN;
}

/* Any value, of a node whose rows differ. */
static void
MakeMixed(const PipeannAttribute *attribute, uint8 *code)
{
	if (attribute->is_array)
	{
		code[0] = 1 << (PIPEANN_BLOOM_BITS - 8);
		code[1] = 0;
	}
	else if (attribute->width == 1)
		code[0] = PIPEANN_MIXED;
	else
	{
		code[0] = PIPEANN_UNWRITTEN;
		code[1] = Max(code[1], 1);
	}
}

static bool
IsUnwritten(const PipeannAttribute *attribute, const uint8 *code)
{
	return code[0] == 0 && (attribute->width == 1 || code[1] == 0);
}

void
PipeannAttributesMix(const PipeannAttributes *a, uint8 *code)
{
	for (int i = 0; i < a->n; i++)
		MakeMixed(&a->attributes[i], code + a->attributes[i].plane);
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
			to[0] &= from[0];
			to[1] &= from[1];
			if (IsUnwritten(attribute, to))
				MakeMixed(attribute, to);
		}
		else if (!IsAny(attribute, to) &&
				 memcmp(to, from, attribute->width) != 0)
			MakeMixed(attribute, to);
	}
}

void
PipeannAttributesKeepMixed(const PipeannAttributes *a, const uint8 *former,
						   uint8 *code)
{
	for (int i = 0; i < a->n; i++)
	{
		const PipeannAttribute *attribute = &a->attributes[i];
		const uint8 *from = former + attribute->plane;
		uint8	   *to = code + attribute->plane;

		if (IsUnwritten(attribute, from))
			continue;
		if (attribute->is_array)
		{
			to[0] &= from[0];
			to[1] &= from[1];
		}
		else if (IsAny(attribute, from))
			MakeMixed(attribute, to);
	}
}

bool
PipeannAttributesCover(const PipeannAttributes *a, const uint8 *code,
					   const uint8 *row)
{
	for (int i = 0; i < a->n; i++)
	{
		const PipeannAttribute *attribute = &a->attributes[i];
		const uint8 *have = code + attribute->plane;
		const uint8 *want = row + attribute->plane;

		if (IsUnwritten(attribute, have))
			return false;
		if (attribute->is_array ?
			(have[0] & ~want[0]) != 0 || (have[1] & ~want[1]) != 0 :
			!IsAny(attribute, have) &&
			memcmp(have, want, attribute->width) != 0)
			return false;
	}
	return true;
}
