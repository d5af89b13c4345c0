/*
 * train.c
 *		What attribute codes are made by: samples of rows.
 *
 * Samples tell how wide a column's code should be, and what stands in its book. A
 * column has one width for as long as the index has codes; its book is made anew
 * with them.
 */
#include "postgres.h"

#include "attributes/coding.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* Longer values have no code of their own. */
#define MOST_VALUE_BYTES 256

/* Of arrays, which may be long, fewer tell enough. */
#define ARRAY_SAMPLES 2000

typedef struct Samples
{
	PipeannAttribute *attribute;
	Datum	   *values;
	uint32		n;
} Samples;

/* A value in the form that a book has; false if it is too long for that. */
static bool
TakeValue(const PipeannAttribute *attribute, Datum value, Datum *taken)
{
	Form_pg_attribute type = attribute->type;

	if (type->attlen == -1)
		value = PointerGetDatum(PG_DETOAST_DATUM_COPY(value));
	if (!attribute->is_array &&
		datumGetSize(value, type->attbyval, type->attlen) > MOST_VALUE_BYTES)
		return false;
	*taken = type->attlen == -1 ? value :
		datumCopy(value, type->attbyval, type->attlen);
	return true;
}

static bool
IsSampled(const Samples *s, uint32 i, uint32 n)
{
	return !s->attribute->is_array || i % (1 + n / ARRAY_SAMPLES) == 0;
}

/* Samples of all columns, at most [n] each. */
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
		const PipeannRow *row = row_at(i, 0, arg);

		CHECK_FOR_INTERRUPTS();
		if (row == NULL || !PipeannDeformRowTo(a->values, a->columns, row,
											   a->tuple, values, isnull))
			continue;
		for (int j = 0; j < a->n; j++)
		{
			Samples    *s = &samples[j];
			int			number = s->attribute->number;

			if (s->attribute->is_known && !isnull[number] && IsSampled(s, i, n) &&
				TakeValue(s->attribute, values[number], &s->values[s->n]))
				s->n++;
		}
	}
	return samples;
}

static MemoryContext
EnterSamples(void)
{
	return MemoryContextSwitchTo(AllocSetContextCreate(CurrentMemoryContext,
													   "pipeann attribute samples",
													   ALLOCSET_DEFAULT_SIZES));
}

static void
LeaveSamples(MemoryContext former)
{
	MemoryContextDelete(MemoryContextSwitchTo(former));
}

void
PipeannAttributesTrain(PipeannAttributes *a, PipeannRowAt row_at, void *arg,
					   uint32 n, char *books)
{
	MemoryContext former = EnterSamples();
	Samples    *samples = TakeSamples(a, row_at, arg, n);

	PipeannAttributesUseBook(a, books);
	for (int j = 0; j < a->n; j++)
	{
		PipeannAttribute *attribute = &a->attributes[j];
		Samples    *s = &samples[j];
		char	   *book = books + (Size) attribute->plane * PIPEANN_BOOK_BYTES;

		memset(book, 0, attribute->book_size);
		if (!attribute->is_array)
			PipeannBookTrain(attribute, s->values, s->n, book);
		else if (!a->by_type)
			PipeannElementsTrain(attribute, s->values, s->n, book);
	}
	LeaveSamples(former);
}

/* ---------- widths ---------- */

/* Rows of a node that are looked at. */
#define MOST_ROWS_OF_NODE 16

/*
 * Where the rows of so many nodes differ, bytes are added in which each value has so
 * many bits.
 */
#define MANY_MIXED 0.05
#define BITS_OF_VALUE 10
#define LEAST_SET_BYTES 2

/* Nodes that have several values, and how many they have in sum. */
typedef struct Mixture
{
	uint32		nodes;
	uint64		values;
} Mixture;

/* A node's different values of a column. */
typedef struct NodeValues
{
	uint32		n;
	bool		has_null;
	Datum		values[MOST_ROWS_OF_NODE];
} NodeValues;

static void
AddNodeValue(PipeannAttribute *attribute, Datum value, bool isnull,
			 NodeValues *node)
{
	node->has_null |= isnull;
	if (isnull || node->n == MOST_ROWS_OF_NODE)
		return;
	for (uint32 i = 0; i < node->n; i++)
		if (DatumGetInt32(FunctionCall2Coll(&attribute->function,
											attribute->order.collation,
											node->values[i], value)) == 0)
			return;
	if (TakeValue(attribute, value, &node->values[node->n]))
		node->n++;
}

/* Look at the other rows of a node that has several. */
static void
AddNode(PipeannAttributes *a, PipeannRowAt row_at, void *arg, uint32 node,
		Mixture *mixtures)
{
	NodeValues *found;
	const PipeannRow *row;

	if (row_at(node, 1, arg) == NULL)
		return;
	found = palloc0(mul_size(Max(a->n, 1), sizeof(NodeValues)));
	for (uint32 j = 0; j < MOST_ROWS_OF_NODE &&
		 (row = row_at(node, j, arg)) != NULL; j++)
	{
		Datum		values[INDEX_MAX_KEYS];
		bool		isnull[INDEX_MAX_KEYS];

		if (!PipeannDeformRowTo(a->values, a->columns, row, a->tuple, values,
								isnull))
			continue;
		for (int k = 0; k < a->n; k++)
			if (a->attributes[k].is_known && !a->attributes[k].is_array)
				AddNodeValue(&a->attributes[k],
							 values[a->attributes[k].number],
							 isnull[a->attributes[k].number], &found[k]);
	}
	for (int k = 0; k < a->n; k++)
		if (found[k].n + found[k].has_null > 1)
		{
			mixtures[k].nodes++;
			mixtures[k].values += found[k].n + found[k].has_null;
		}
	pfree(found);
}

static int
ChooseWidth(const Samples *s, const Mixture *mixture, uint32 nodes)
{
	PipeannAttribute *attribute = s->attribute;
	double		values;

	if (attribute->is_array)
		return s->n == 0 ? attribute->width :
			PipeannElementsWidth(attribute, s->values, s->n);
	if (mixture->nodes == 0 || mixture->nodes < MANY_MIXED * nodes)
		return s->n == 0 || attribute->width == 1 ? attribute->width :
			PipeannBookWidth(attribute, s->values, s->n);
	values = (double) mixture->values / mixture->nodes;
	return Min(2 + Max((int) (values * BITS_OF_VALUE / 8 + 0.5),
					   LEAST_SET_BYTES), PIPEANN_MOST_WIDTH);
}

int
PipeannAttributesChoose(PipeannAttributes *a, PipeannRowAt row_at, void *arg,
						uint32 n, PipeannWidths *widths)
{
	MemoryContext former = EnterSamples();
	Samples    *samples = TakeSamples(a, row_at, arg, n);
	Mixture    *mixtures = palloc0(mul_size(Max(a->n, 1), sizeof(Mixture)));
	int			bytes = 0;

	for (uint32 i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		AddNode(a, row_at, arg, i, mixtures);
	}
	memset(widths, 0, sizeof(*widths));
	for (int j = 0; j < a->n; j++)
	{
		int			wanted = PipeannWantedWidth(a, &a->attributes[j]);

		widths->of[j] = wanted > 0 ? wanted :
			ChooseWidth(&samples[j], &mixtures[j], n);
		bytes += widths->of[j];
	}
	LeaveSamples(former);
	return bytes;
}
