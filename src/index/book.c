/*
 * book.c
 *		The books of attribute codes: boundaries between values.
 *
 * A book is the number of boundaries, the place of each, and the boundaries
 * themselves, as values of the column's type. It is read where it is, in memory that
 * was loaded from pages: nothing in it is relied on before it is checked.
 */
#include "postgres.h"

#include "access/tupmacs.h"
#include "index/attributes.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* Longer values have no code of their own. */
#define MOST_VALUE_BYTES 256

static void
BrokenBook(const PipeannAttributes *a)
{
	ereport(ERROR,
			(errcode(ERRCODE_INDEX_CORRUPTED),
			 errmsg("index \"%s\" has an invalid book of attribute codes",
					RelationGetRelationName(a->index)),
			 errhint("Run REINDEX INDEX \"%s\".",
					 RelationGetRelationName(a->index))));
}

void
PipeannAttributesUseBook(PipeannAttributes *a, const char *book)
{
	for (int i = 0; i < a->n; i++)
	{
		PipeannAttribute *attribute = &a->attributes[i];

		attribute->book = book == NULL ? NULL :
			book + (Size) attribute->plane * PIPEANN_BOOK_BYTES;
		attribute->book_size = (Size) attribute->width * PIPEANN_BOOK_BYTES;
	}
}

static uint32
MostBoundaries(const PipeannAttribute *attribute)
{
	return (attribute->width == 1 ? PIPEANN_MOST_NARROW : PIPEANN_MOST_WIDE) /
		2 - 1;
}

uint32
PipeannBookLength(const PipeannAttributes *a, const PipeannAttribute *attribute)
{
	uint32		n;

	if (attribute->book == NULL)
		return 0;
	n = *(const uint32 *) attribute->book;
	if (n > MostBoundaries(attribute) ||
		n > attribute->book_size / sizeof(uint32) - 1)
		BrokenBook(a);
	return n;
}

/* Bytes of a value of variable length, 0 if it is not a plain one. */
static Size
VariableSize(int16 length, const char *at, Size left)
{
	if (length == -2)
		return strnlen(at, left) < left ? strnlen(at, left) + 1 : 0;
	if (left < VARHDRSZ || !VARATT_IS_4B_U(at))
		return 0;
	return VARSIZE_4B(at) >= VARHDRSZ ? VARSIZE_4B(at) : 0;
}

Datum
PipeannBookBoundary(const PipeannAttributes *a,
					const PipeannAttribute *attribute, uint32 i)
{
	const uint32 *places = (const uint32 *) attribute->book + 1;
	uint32		place = places[i];
	Form_pg_attribute type = attribute->type;
	Size		size = 0;

	if (place < attribute->book_size &&
		place == att_align_nominal(place, type->attalign))
		size = type->attlen > 0 ? (Size) type->attlen :
			VariableSize(type->attlen, attribute->book + place,
						 attribute->book_size - place);
	if (size == 0 || size > attribute->book_size - place)
		BrokenBook(a);
	return fetch_att(attribute->book + place, type->attbyval, type->attlen);
}

/* ---------- training ---------- */

typedef struct Samples
{
	PipeannAttribute *attribute;
	Datum	   *values;
	uint32		n;
} Samples;

static int
CompareValues(const void *x, const void *y, void *arg)
{
	PipeannAttribute *attribute = arg;

	return DatumGetInt32(FunctionCall2Coll(&attribute->function,
										   attribute->collation,
										   *(const Datum *) x,
										   *(const Datum *) y));
}

/* Write a value at *place; false if there is no room. */
static bool
PutValue(const PipeannAttribute *attribute, char *book, Size *place,
		 Datum value)
{
	Form_pg_attribute type = attribute->type;
	Size		at = att_align_nominal(*place, type->attalign);
	Size		size = datumGetSize(value, type->attbyval, type->attlen);

	if (at + size > attribute->book_size)
		return false;
	if (type->attbyval)
		store_att_byval(book + at, value, type->attlen);
	else
		memcpy(book + at, DatumGetPointer(value), size);
	*place = at + size;
	return true;
}

/*
 * Choose `most` boundaries at even distances of the sorted samples. A value that is
 * there more often than that is chosen more than once, and so is a boundary in any
 * case. False if the book has no room for them.
 */
static bool
WriteBoundaries(const Samples *s, uint32 most, char *book)
{
	PipeannAttribute *attribute = s->attribute;
	uint32	   *places = (uint32 *) book + 1;
	uint32		wanted = Min(most, s->n);
	Size		place = sizeof(uint32) * ((Size) wanted + 1);
	uint32		n = 0;
	Datum		last = (Datum) 0;

	memset(book, 0, attribute->book_size);
	if (place > attribute->book_size)
		return false;
	for (uint32 i = 0; i < wanted; i++)
	{
		Datum		value = s->values[(uint64) i * s->n / wanted];

		if (n > 0 && CompareValues(&last, &value, attribute) == 0)
			continue;
		place = att_align_nominal(place, attribute->type->attalign);
		places[n] = (uint32) place;
		if (!PutValue(attribute, book, &place, value))
			return false;
		last = value;
		n++;
	}
	*(uint32 *) book = n;
	return true;
}

static void
TrainAttribute(Samples *s, char *book)
{
	PipeannAttribute *attribute = s->attribute;
	uint32		most = MostBoundaries(attribute);

	memset(book, 0, attribute->book_size);
	if (attribute->is_array || s->n == 0)
		return;
	qsort_arg(s->values, s->n, sizeof(Datum), CompareValues, attribute);
	while (!WriteBoundaries(s, most, book))
		most /= 2;
}

/* A value in the form that a book has; false if it is too long for that. */
static bool
TakeValue(const PipeannAttribute *attribute, Datum value, Datum *taken)
{
	Form_pg_attribute type = attribute->type;

	if (type->attlen == -1)
		value = PointerGetDatum(PG_DETOAST_DATUM_COPY(value));
	if (datumGetSize(value, type->attbyval, type->attlen) > MOST_VALUE_BYTES)
		return false;
	*taken = type->attlen == -1 ? value :
		datumCopy(value, type->attbyval, type->attlen);
	return true;
}

/* Samples of all columns, [n] each. */
static Samples *
TakeSamples(PipeannAttributes *a, PipeannRowAt row_at, void *arg, uint32 n)
{
	Samples    *samples = palloc0(sizeof(Samples) * Max(a->n, 1));

	for (int j = 0; j < a->n; j++)
	{
		samples[j].attribute = &a->attributes[j];
		samples[j].values = palloc(mul_size(Max(n, 1), sizeof(Datum)));
	}
	for (uint32 i = 0; i < n; i++)
	{
		Datum		values[INDEX_MAX_KEYS];
		bool		isnull[INDEX_MAX_KEYS];
		const PipeannRow *row = row_at(i, arg);

		CHECK_FOR_INTERRUPTS();
		if (row == NULL || !PipeannDeformRowTo(a->values, a->columns, row,
											   a->tuple, values, isnull))
			continue;
		for (int j = 0; j < a->n; j++)
		{
			Samples    *s = &samples[j];
			int			number = s->attribute->number;

			if (!s->attribute->is_array && !isnull[number] &&
				TakeValue(s->attribute, values[number], &s->values[s->n]))
				s->n++;
		}
	}
	return samples;
}

void
PipeannAttributesTrain(PipeannAttributes *a, PipeannRowAt row_at, void *arg,
					   uint32 n, char *book)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pipeann attribute samples",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	Samples    *samples = TakeSamples(a, row_at, arg, n);

	PipeannAttributesUseBook(a, book);
	for (int j = 0; j < a->n; j++)
		TrainAttribute(&samples[j],
					   book + (Size) a->attributes[j].plane *
					   PIPEANN_BOOK_BYTES);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}
