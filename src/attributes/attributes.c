#include "postgres.h"

#include "access/transam.h"
#include "attributes/coding.h"
#include "base/pause.h"
#include "catalog/pg_collation_d.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/*
 * attributes.c
 *		Attribute codes: which values a node's rows have in the filter columns,
 *		in a few bytes besides the code of its vector. They show, without
 *		reading a page of the index, that a node has no row that matches a
 *		condition. They may let a node pass that has none, but never reject one
 *		that has: a node's code covers all of its rows.
 */

/* ---------- columns ---------- */

/*
 * Choose the function that compares the values of a column, by its type (for
 * arrays, the elements' type) and operator class. False, and the column has no
 * codes, if there is none, or if values that are equal under its collation may
 * differ in their bytes.
 */
static bool
ChooseOrder(PipeannAttributes *a, PipeannAttribute *attribute, Oid type)
{
	Oid			collation = attribute->type->attcollation;
	int			position = attribute->position;
	PipeannOrder *order = &attribute->order;

	if ((OidIsValid(collation) && !get_collation_isdeterministic(collation)) ||
		!attribute->codec->find_order(type,
									  a->index == NULL ? InvalidOid : a->index->rd_opfamily[position],
									  a->index == NULL ? InvalidOid : a->index->rd_opcintype[position],
									  order))
		return false;
	/*
	 * For PostgreSQL's own functions values are equal if they have the same bytes, under
	 * any deterministic collation. So they are called with C, which never changes, as a
	 * collation's order may. Other functions may do anything with a collation.
	 */
	order->collation = OidIsValid(collation) && order->function < FirstGenbkiObjectId ?
		C_COLLATION_OID : collation;
	return true;
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
	attribute->codec = OidIsValid(element) ? &PipeannElementCodec :
		&PipeannValueCodec;
	attribute->width = widths != NULL ? Max(widths->of[a->n], 1) :
		attribute->codec->first_width(base);
	if (!ChooseOrder(a, attribute, OidIsValid(element) ? element : base))
		return;
	fmgr_info(attribute->order.function, &attribute->function);
	a->columns = number + 1;
	a->bytes += attribute->width;
	a->n++;
}

static PipeannAttributes *
New(TupleDesc values)
{
	PipeannAttributes *a = palloc0(sizeof(PipeannAttributes));

	a->values = values;
	a->tuple = palloc(PIPEANN_ROW_SIZE);
	a->scratch = AllocSetContextCreate(CurrentMemoryContext,
									   "pipeann attributes",
									   ALLOCSET_SMALL_SIZES);
	return a;
}

/* The filter columns of an index; widths is NULL before it has codes. */
PipeannAttributes *
PipeannAttributesDescribe(Relation index, const PipeannWidths *widths)
{
	PipeannColumns columns = PipeannIndexColumns(index);
	PipeannAttributes *a = New(columns.values);
	int			keys = IndexRelationGetNumberOfKeyAttributes(index);

	a->index = index;
	for (int i = 0; i < keys; i++)
		if (i != columns.vector)
			AddAttribute(a, widths, i, PipeannValueNumber(&columns, i));
	return a;
}

/* The filter columns that an index with the first n of these values would have. */
PipeannAttributes *
PipeannAttributesForesee(TupleDesc values, int n)
{
	PipeannAttributes *a = New(values);

	for (int i = 0; i < n; i++)
		AddAttribute(a, NULL, i, i);
	return a;
}

void
PipeannAttributesUseHistogram(PipeannAttributes *a, const char *histogram)
{
	for (int i = 0; i < a->n; i++)
	{
		PipeannAttribute *attribute = &a->attributes[i];

		attribute->histogram = histogram == NULL ? NULL :
			histogram + (Size) attribute->plane * PIPEANN_HISTOGRAM_BYTES;
		attribute->histogram_size = (Size) attribute->width *
			PIPEANN_HISTOGRAM_BYTES;
	}
}

/*
 * Open the filter columns, in CurrentMemoryContext; NULL if the layout has no attribute
 * codes. histograms are PipeannHistogramsBytes() of a generation, or NULL; they must stay.
 */
PipeannAttributes *
PipeannAttributesOpen(Relation index, const PipeannLayout *l,
					  const PipeannWidths *widths, const char *histogram)
{
	PipeannAttributes *a;

	if (l->attr_bytes == 0)
		return NULL;
	a = PipeannAttributesDescribe(index, widths);
	if (a->bytes != l->attr_bytes)
		PipeannCorrupted(index, "has attribute codes of %d bytes, not %d",
						 l->attr_bytes, a->bytes);
	PipeannAttributesUseHistogram(a, histogram);
	return a;
}

/* ---------- codes ---------- */

/* Set code to that of a whole row of node id. */
void
PipeannAttributesEncode(PipeannAttributes *a, uint32 id,
						const PipeannRow *row, uint8 *code)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	MemoryContext old;

	if (!PipeannDeformRow(a->values, a->columns, row, a->tuple, values,
						  isnull))
		PipeannCorrupted(a->index, "has an invalid row in node %u", id);
	old = MemoryContextSwitchTo(a->scratch);
	for (int i = 0; i < a->n; i++)
	{
		PipeannAttribute *attribute = &a->attributes[i];
		int			number = attribute->number;

		attribute->codec->encode(a, attribute, values[number],
								 isnull[number], code + attribute->plane);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(a->scratch);
}

/* Change a code so that it covers everything. */
static void
MixCode(const PipeannAttributes *a, uint8 *code)
{
	for (int i = 0; i < a->n; i++)
	{
		const PipeannAttribute *attribute = &a->attributes[i];

		attribute->codec->mix(attribute, code + attribute->plane);
	}
}

/* Whether a code was written: it then has other bits than zeroes. */
static bool
IsWritten(const PipeannAttribute *attribute, const uint8 *code)
{
	return memcmp(code, (uint8[PIPEANN_MOST_WIDTH]) {0}, attribute->width) != 0;
}

/*
 * Change a node's code so that it also covers what another code covers. One
 * that was not written yet then covers everything.
 */
void
PipeannAttributesMerge(const PipeannAttributes *a, const uint8 *other,
					   uint8 *code)
{
	for (int i = 0; i < a->n; i++)
	{
		const PipeannAttribute *attribute = &a->attributes[i];
		uint8	   *to = code + attribute->plane;

		if (IsWritten(attribute, to))
			attribute->codec->merge(attribute, other + attribute->plane, to);
		else
			attribute->codec->mix(attribute, to);
	}
}

/* Whether a code may cover more than one row does. */
bool
PipeannAttributesMayShrink(const PipeannAttributes *a, const uint8 *code)
{
	for (int i = 0; i < a->n; i++)
	{
		const PipeannAttribute *attribute = &a->attributes[i];
		const uint8 *from = code + attribute->plane;

		if (IsWritten(attribute, from) && attribute->codec->may_shrink(attribute, from))
			return true;
	}
	return false;
}

/* Whether a node's code covers a row's, and so need not change for it. */
bool
PipeannAttributesCover(const PipeannAttributes *a, const uint8 *code,
					   const uint8 *row)
{
	for (int i = 0; i < a->n; i++)
	{
		const PipeannAttribute *attribute = &a->attributes[i];
		const uint8 *from = code + attribute->plane;
		uint8		merged[PIPEANN_MOST_WIDTH];

		memcpy(merged, from, attribute->width);
		attribute->codec->merge(attribute, row + attribute->plane, merged);
		if (!IsWritten(attribute, from) ||
			memcmp(merged, from, attribute->width) != 0)
			return false;
	}
	return true;
}

/*
 * The codes with which a node may have a matching row; NULL if no condition is on a
 * column that has codes.
 */
PipeannCodeFilter *
PipeannAttributesFilter(PipeannAttributes *a,
						const PipeannCondition *conditions, int n)
{
	PipeannCodeFilter *filter = palloc(sizeof(PipeannCodeFilter));
	PipeannCondition *own = palloc(mul_size(Max(n, 1), sizeof(*own)));

	filter->n = 0;
	filter->precision = 1;
	for (int i = 0; i < a->n; i++)
	{
		PipeannAttribute *attribute = &a->attributes[i];
		int			nown = 0;

		for (int j = 0; j < n; j++)
			if (conditions[j].number == attribute->number)
				own[nown++] = conditions[j];
		if (nown > 0)
			attribute->codec->pass(a, attribute, own, nown, filter);
	}
	pfree(own);
	return filter->n > 0 ? filter : NULL;
}

/* ---------- samples ---------- */

/*
 * Samples decide how wide a column's code is, and what its histogram contains.
 * A column has one width for as long as the index has codes; its histogram is
 * made again with them.
 */

/* A value in the form used in a histogram; false if it is too long. */
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
		if (row == NULL || !PipeannDeformRow(a->values, a->columns, row,
											 a->tuple, values, isnull))
			continue;
		for (int j = 0; j < a->n; j++)
		{
			PipeannAttribute *attribute = &a->attributes[j];
			PipeannSamples *s = &samples[j];
			int			number = attribute->number;

			if (!isnull[number] &&
				i % (1 + n / attribute->codec->most_samples) == 0 &&
				TakeValue(attribute, values[number], &s->values[s->n]))
				s->n++;
		}
	}
	return samples;
}

/* Make histograms of n samples, and use them. */
void
PipeannAttributesTrain(PipeannAttributes *a, PipeannRowAt row_at, void *arg,
					   uint32 n, char *histograms)
{
	MemoryContext former = MemoryContextSwitchTo(a->scratch);
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
	MemoryContextSwitchTo(former);
	MemoryContextReset(a->scratch);
}

/* The most rows of a node that are sampled. */
#define MOST_ROWS_OF_NODE 16

/* Count the different values of a node that has several rows, by their hashes. */
static void
CountValues(PipeannAttributes *a, PipeannRowAt row_at, void *arg, uint32 node,
			PipeannSamples *samples)
{
	uint32		found[PIPEANN_MOST_CODED][MOST_ROWS_OF_NODE];
	uint32		n[PIPEANN_MOST_CODED] = {0};
	const PipeannRow *row;

	if (row_at(node, 1, arg) == NULL)
		return;
	for (uint32 j = 0; j < MOST_ROWS_OF_NODE &&
		 (row = row_at(node, j, arg)) != NULL; j++)
	{
		Datum		values[INDEX_MAX_KEYS];
		bool		isnull[INDEX_MAX_KEYS];

		if (!PipeannDeformRow(a->values, a->columns, row, a->tuple, values,
							  isnull))
			continue;
		for (int k = 0; k < a->n; k++)
		{
			const PipeannAttribute *attribute = &a->attributes[k];
			int			number = attribute->number;
			uint32		hash = isnull[number] ? 0 :
				datum_image_hash(values[number], attribute->type->attbyval,
								 attribute->type->attlen);
			uint32		at = 0;

			while (at < n[k] && found[k][at] != hash)
				at++;
			if (at == n[k])
				found[k][n[k]++] = hash;
		}
	}
	for (int k = 0; k < a->n; k++)
		if (n[k] > 1)
		{
			samples[k].mixed++;
			samples[k].mixed_values += n[k];
		}
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
	MemoryContext former = MemoryContextSwitchTo(a->scratch);
	PipeannSamples *samples = TakeSamples(a, row_at, arg, n);
	int			bytes = 0;

	for (uint32 i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		CountValues(a, row_at, arg, i, samples);
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
	MemoryContextSwitchTo(former);
	MemoryContextReset(a->scratch);
	return bytes;
}

/* ---------- nodes ---------- */

/*
 * No code is made for a node with more overflow slots: among that many rows a
 * value is rarely in only one, and they are read with a page locked.
 */
#define MOST_OVERFLOW_SLOTS 8

/* Add what rows have to the code of their node. */
static void
AddRows(PipeannAttributes *a, const PipeannIndexView *view, uint32 id,
		PipeannRowList list, uint8 *code, bool *any)
{
	const PipeannLayout *l = &view->meta.layout;
	const PipeannRow *row = list.rows;

	for (uint32 i = 0; i < list.n; i++, row = PipeannRowNext(l, row))
	{
		uint8		one[PIPEANN_MAX_ATTRIBUTE_BYTES] = {0};
		PipeannRow *whole = NULL;

		if (PipeannRowIsOutOfLine(l, row))
		{
			whole = PipeannReadRow(view, row, true);
			if (whole == NULL)
				continue;		/* VACUUM has removed the row */
		}
		PipeannAttributesEncode(a, id, whole != NULL ? whole : row, one);
		if (*any)
			PipeannAttributesMerge(a, one, code);
		else
			memcpy(code, one, a->bytes);
		*any = true;
		if (whole != NULL)
			pfree(whole);
	}
}

/* Set code to that of all rows of a node. */
void
PipeannAttributesOfNode(PipeannAttributes *a, const PipeannIndexView *view,
						uint32 id, const PipeannSlot *slot, uint8 *code)
{
	const PipeannLayout *l = &view->meta.layout;
	bool		any = false;
	PipeannChain chain;
	void	   *copy = palloc(PipeannExtBytes(l));

	memset(code, 0, a->bytes);
	AddRows(a, view, id, PipeannSlotRows(l, slot), code, &any);
	PipeannChainBegin(&chain, id, slot->ext_tids);
	while (chain.next != PIPEANN_INVALID_ID)
		AddRows(a, view, id, PipeannChainRead(view, &chain, copy), code, &any);
	pfree(copy);
}

static uint64
AddToHash(PipeannRowList list, uint64 hash)
{
	return hash_bytes_extended((const unsigned char *) list.rows,
							   (int) list.bytes, hash);
}

/* The hash of a node's rows; copies its slot to *slot. False if there are too many. */
static bool
HashRows(const PipeannIndexView *view, uint32 id, PipeannSlot *slot,
		 uint64 *hash)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannChain chain;
	void	   *copy = palloc(PipeannExtBytes(l));
	int			slots = 0;

	PipeannSlotCopy(view, id, slot);
	*hash = AddToHash(PipeannSlotRows(l, slot), slot->ext_tids);
	PipeannChainBegin(&chain, id, slot->ext_tids);
	while (chain.next != PIPEANN_INVALID_ID && slots++ < MOST_OVERFLOW_SLOTS)
		*hash = AddToHash(PipeannChainRead(view, &chain, copy), *hash);
	pfree(copy);
	return chain.next == PIPEANN_INVALID_ID;
}

/* False if a node has too many rows for a code to be made. */
bool
PipeannNodeCodeMake(PipeannNodeCode *node, uint32 id)
{
	if (node->slot == NULL)
		node->slot = PipeannSlotAlloc(&node->view->meta.layout);
	node->known = HashRows(node->view, id, node->slot, &node->rows);
	if (node->known)
		PipeannAttributesOfNode(node->attributes, node->view, id, node->slot,
								node->code);
	PIPEANN_PAUSE("node-code-made");
	return node->known;
}

/* With the page of the code locked; arg is a PipeannNodeCode. */
void
PipeannNodeCodePut(uint32 id, uint8 *code, void *arg)
{
	const PipeannNodeCode *node = arg;
	uint64		rows;

	if (node->known && HashRows(node->view, id, node->slot, &rows) &&
		rows == node->rows)
		memcpy(code, node->code, node->attributes->bytes);
	else if (node->mix)
		MixCode(node->attributes, code);
}
