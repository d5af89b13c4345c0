/*
 * value_book.c
 *		The books of the codec of values: boundaries between them.
 *
 * A book is the number of boundaries, the place of each, and the boundaries
 * themselves, as values of the column's type. It is read where it is, in memory that
 * was loaded from pages: nothing in it is relied on before it is checked.
 */
#include "postgres.h"

#include "access/tupmacs.h"
#include "attributes/coding.h"
#include "utils/datum.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

static uint32
MostBoundaries(const PipeannAttribute *attribute)
{
	return PipeannMostNumber(attribute) / 2 - 1;
}

/* Boundaries of an attribute, 0 if it has no book. Errors if that is broken. */
uint32
PipeannBookLength(const PipeannAttributes *a, const PipeannAttribute *attribute)
{
	uint32		n;

	if (attribute->book == NULL)
		return 0;
	n = *(const uint32 *) attribute->book;
	if (n > MostBoundaries(attribute) ||
		n > attribute->book_size / sizeof(uint32) - 1)
		PipeannBrokenBook(a);
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
		PipeannBrokenBook(a);
	return fetch_att(attribute->book + place, type->attbyval, type->attlen);
}

/* ---------- training ---------- */

/* Values that are no more than this have a byte. */
#define MOST_NARROW_VALUES 60

/*
 * Where the rows of so many nodes differ, bytes are added in which each value has so
 * many bits.
 */
#define MANY_MIXED 0.05
#define BITS_OF_VALUE 10
#define LEAST_SET_BYTES 2

static int
CompareValues(const void *x, const void *y, void *arg)
{
	PipeannAttribute *attribute = arg;

	return DatumGetInt32(FunctionCall2Coll(&attribute->function,
										   attribute->order.collation,
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
WriteBoundaries(PipeannAttribute *attribute, const Datum *values, uint32 all,
				uint32 most, char *book)
{
	uint32	   *places = (uint32 *) book + 1;
	uint32		wanted = Min(most, all);
	Size		place = sizeof(uint32) * ((Size) wanted + 1);
	uint32		n = 0;
	Datum		last = (Datum) 0;

	memset(book, 0, attribute->book_size);
	if (place > attribute->book_size)
		return false;
	for (uint32 i = 0; i < wanted; i++)
	{
		Datum		value = values[(uint64) i * all / wanted];

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

void
PipeannBookTrain(const PipeannAttributes *a, PipeannAttribute *attribute,
				 const PipeannSamples *samples, char *book)
{
	uint32		most = MostBoundaries(attribute);

	(void) a;
	if (samples->n == 0)
		return;
	qsort_arg(samples->values, samples->n, sizeof(Datum), CompareValues,
			  attribute);
	while (!WriteBoundaries(attribute, samples->values, samples->n, most, book))
		most /= 2;
}

/* Bytes that tell which values a node has whose rows differ. */
static int
SetBytesFor(const PipeannSamples *samples)
{
	double		values = (double) samples->mixed_values / samples->mixed;

	return Max((int) (values * BITS_OF_VALUE / 8 + 0.5), LEAST_SET_BYTES);
}

/* The codec's width and train. */
int
PipeannBookWidth(PipeannAttribute *attribute, const PipeannSamples *samples)
{
	Datum	   *values = samples->values;
	uint32		different = 1;

	if (samples->mixed > 0 && samples->mixed >= MANY_MIXED * samples->nodes)
		return Min(2 + SetBytesFor(samples), PIPEANN_MOST_WIDTH);
	if (samples->n == 0 || attribute->width == 1)
		return attribute->width;
	qsort_arg(values, samples->n, sizeof(Datum), CompareValues, attribute);
	for (uint32 i = 1; i < samples->n; i++)
		different += CompareValues(&values[i - 1], &values[i], attribute) != 0;
	return different <= MOST_NARROW_VALUES ? 1 : 2;
}
