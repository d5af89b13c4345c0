/*
 * train.c
 *		What attribute codes are made by: samples of rows.
 *
 * Samples tell how wide a column's code should be, and what stands in its histogram. A
 * column has one width for as long as the index has codes; its histogram is made anew
 * with them.
 */
#include "postgres.h"

#include "attributes/coding.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* A value in the form that a histogram has; false if it is too long for that. */
static bool
TakeValue(const PipeannAttribute *attribute, Datum value, Datum *taken)
{
	Form_pg_attribute type = attribute->type;

	*taken = type->attlen == -1 ?
		PointerGetDatum(PG_DETOAST_DATUM_COPY(value)) :
		datumCopy(value, type->attbyval, type->attlen);
	return datumGetSize(*taken, type->attbyval, type->attlen) <=
		attribute->codec->most_bytes;
}

/* Samples of all columns, at most [n] each. */
static PipeannSamples *
TakeSamples(PipeannAttributes *a, PipeannRowAt row_at, void *arg, uint32 n)
{
	PipeannSamples *samples = palloc0(sizeof(PipeannSamples) * Max(a->n, 1));

	for (int j = 0; j < a->n; j++)
	{
		samples[j].values = palloc(mul_size(Max(n, 1), sizeof(Datum)));
		samples[j].nodes = n;
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
			PipeannAttribute *attribute = &a->attributes[j];
			PipeannSamples *s = &samples[j];
			int			number = attribute->number;

			if (attribute->is_known && !isnull[number] &&
				i % (1 + n / attribute->codec->most_samples) == 0 &&
				TakeValue(attribute, values[number], &s->values[s->n]))
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

/* Make histograms of n samples, and use them. */
void
PipeannAttributesTrain(PipeannAttributes *a, PipeannRowAt row_at, void *arg,
					   uint32 n, char *histograms)
{
	MemoryContext former = EnterSamples();
	PipeannSamples *samples = TakeSamples(a, row_at, arg, n);

	PipeannAttributesUseHistogram(a, histograms);
	for (int j = 0; j < a->n; j++)
	{
		PipeannAttribute *attribute = &a->attributes[j];
		char	   *histogram = histograms +
			(Size) attribute->plane * PIPEANN_HISTOGRAM_BYTES;

		memset(histogram, 0, attribute->histogram_size);
		attribute->codec->train(a, attribute, &samples[j], histogram);
	}
	LeaveSamples(former);
}

/* ---------- widths ---------- */

/* Rows of a node that are looked at. */
#define MOST_ROWS_OF_NODE 16

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
		PipeannSamples *samples)
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
			if (a->attributes[k].is_known &&
				a->attributes[k].codec->by_nodes)
				AddNodeValue(&a->attributes[k],
							 values[a->attributes[k].number],
							 isnull[a->attributes[k].number], &found[k]);
	}
	for (int k = 0; k < a->n; k++)
		if (found[k].n + found[k].has_null > 1)
		{
			samples[k].mixed++;
			samples[k].mixed_values += found[k].n + found[k].has_null;
		}
	pfree(found);
}

/* The width that a column's option asks for, or 0. */
static int
WantedWidth(const PipeannAttributes *a, const PipeannAttribute *attribute)
{
	const PipeannColumnOptions *options = NULL;

	if (a->index != NULL)
		options = (const PipeannColumnOptions *)
			RelationGetIndexAttOptions(a->index, false)[attribute->position];
	return options == NULL ? 0 : options->code_bytes;
}

/*
 * Set *widths to those of the attribute codes, as the options say or by n samples of
 * rows; if there are none, by the columns' types. Returns the bytes of all.
 */
int
PipeannAttributesChoose(PipeannAttributes *a, PipeannRowAt row_at, void *arg,
						uint32 n, PipeannWidths *widths)
{
	MemoryContext former = EnterSamples();
	PipeannSamples *samples = TakeSamples(a, row_at, arg, n);
	int			bytes = 0;

	for (uint32 i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		AddNode(a, row_at, arg, i, samples);
	}
	memset(widths, 0, sizeof(*widths));
	for (int j = 0; j < a->n; j++)
	{
		PipeannAttribute *attribute = &a->attributes[j];
		int			wanted = WantedWidth(a, attribute);

		widths->of[j] = wanted > 0 ? wanted :
			attribute->codec->width(attribute, &samples[j]);
		bytes += widths->of[j];
	}
	LeaveSamples(former);
	return bytes;
}
