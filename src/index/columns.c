/*
 * columns.c
 *		The columns of an index, and the values of filter and included columns, which
 *		rows carry.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/heaptoast.h"
#include "access/itup.h"
#include "access/toast_internals.h"
#include "index/index.h"
#include "utils/rel.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/*
 * The columns of an index: one vector, filter columns, included columns.
 *
 * Filter columns are key columns, and may come before and after the vector,
 * which is distinguished by the type that its operator class is for.
 */

PipeannColumns
PipeannIndexColumns(Relation index)
{
	TupleDesc	all = RelationGetDescr(index);
	PipeannColumns columns = {.vector = PipeannVectorPosition(index)};

	if (!PipeannIndexHasValues(index))
		return columns;
	columns.values = CreateTemplateTupleDesc(all->natts - 1);
	for (int i = 0; i < all->natts - 1; i++)
		TupleDescCopyEntry(columns.values, i + 1, all,
						   PipeannValuePosition(&columns, i) + 1);
	return columns;
}

/* Copy all columns' values except the vector. */
void
PipeannWithoutVector(const PipeannColumns *columns, const Datum *all,
					 const bool *all_null, Datum *values, bool *isnull)
{
	for (int i = 0; i < columns->values->natts; i++)
	{
		int			position = PipeannValuePosition(columns, i);

		values[i] = all[position];
		isnull[i] = all_null[position];
	}
}

/*
 * Rows.
 *
 * A row with values is an index tuple of them, without the vector. It is
 * formed as PostgreSQL forms index tuples: long values are compressed, none is
 * out of line. The padding at its end is left out.
 */

/* Bytes of a tuple of these values before padding. */
static Size
TupleBytes(TupleDesc desc, Datum *values, bool *isnull)
{
	unsigned short info = 0;

	for (int i = 0; i < desc->natts; i++)
		if (isnull[i])
			info = INDEX_NULL_MASK;
	return IndexInfoFindDataOffset(info) +
		heap_compute_data_size(desc, values, isnull);
}

/*
 * A value as index_form_tuple() would store it. It is done here so that an
 * error about too long a row can have a hint.
 */
static Datum
Shrink(Form_pg_attribute att, Datum value)
{
	struct varlena *varlena = (struct varlena *) DatumGetPointer(value);
	Datum		compressed;

	if (VARATT_IS_EXTERNAL(varlena))
	{
		varlena = detoast_external_attr(varlena);
		value = PointerGetDatum(varlena);
	}
	if (VARATT_IS_EXTENDED(varlena) || VARSIZE(varlena) <= TOAST_INDEX_TARGET ||
		(att->attstorage != TYPSTORAGE_EXTENDED &&
		 att->attstorage != TYPSTORAGE_MAIN))
		return value;
	compressed = toast_compress_datum(value, att->attcompression);
	return DatumGetPointer(compressed) == NULL ? value : compressed;
}

/*
 * A row of an index, palloc'd, of all its columns' values. Errors with
 * ERRCODE_PROGRAM_LIMIT_EXCEEDED if they are too long. The row is not out of
 * line, however long it is.
 */
PipeannRow *
PipeannFormRow(const PipeannColumns *columns, const Datum *values,
			   const bool *isnull, const ItemPointerData *tid)
{
	TupleDesc	desc = columns->values;
	Datum		small[INDEX_MAX_KEYS];
	bool		null[INDEX_MAX_KEYS];
	PipeannRow *row;
	Size		size;

	if (desc == NULL)
	{
		row = palloc0(sizeof(PipeannRow));
		row->tid = *tid;
		return row;
	}
	PipeannWithoutVector(columns, values, isnull, small, null);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!null[i] && att->attlen == -1)
			small[i] = Shrink(att, small[i]);
	}
	size = TupleBytes(desc, small, null);
	if (MAXALIGN(size) > PIPEANN_ROW_SIZE)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("values of %zu bytes besides the vector exceed the maximum of %d for a pipeann index",
						size, PIPEANN_ROW_SIZE & ~7),
				 errdetail("They are those of row (%u,%u).",
						   ItemPointerGetBlockNumberNoCheck(tid),
						   ItemPointerGetOffsetNumberNoCheck(tid)),
				 errhint("Leave columns with values as long as this out of the index.")));
	row = (PipeannRow *) index_form_tuple(desc, small, null);
	row->tid = *tid;
	row->info = (row->info & ~PIPEANN_ROW_SIZE) | ((size + 1) & ~(Size) 1);
	return row;
}

/* Bytes of the variable-length value at `at`; 0 if it needs more than `left`. */
static Size
VariableBytes(int attlen, const char *at, Size left)
{
	Size		size;

	if (attlen == -2)
		return strnlen(at, left) < left ? strnlen(at, left) + 1 : 0;
	if (VARATT_IS_1B_E(at))
		return 0;
	if (!VARATT_IS_1B(at) && left < VARHDRSZ)
		return 0;
	size = VARSIZE_ANY(at);
	return size <= left &&
		size >= (VARATT_IS_1B(at) ? VARHDRSZ_SHORT : VARHDRSZ) ? size : 0;
}

/* The offset after the value that begins at off, when aligned, or 0 if it is truncated. */
static Size
TakeValue(Form_pg_attribute att, const char *data, Size off, Size end,
		  Datum *value)
{
	Size		size;

	if (off >= end)
		return 0;
	off = att->attlen == -1 ?
		att_align_pointer(off, att->attalign, -1, data + off) :
		att_align_nominal(off, att->attalign);
	if (off >= end)
		return 0;
	size = att->attlen > 0 ? (Size) att->attlen :
		VariableBytes(att->attlen, data + off, end - off);
	if (size == 0 || size > end - off)
		return 0;
	*value = fetch_att(data + off, att->attbyval, att->attlen);
	return off + size;
}

/*
 * Get the first n values of a whole row, copied to tuple, which has PIPEANN_ROW_SIZE bytes and is
 * aligned; or if it is NULL to CurrentMemoryContext. False if they are broken.
 */
bool
PipeannDeformRow(TupleDesc desc, int n, const PipeannRow *row, char *tuple,
				 Datum *values, bool *isnull)
{
	Size		size = row->info & PIPEANN_ROW_SIZE;
	Size		begin = IndexInfoFindDataOffset(row->info);
	bits8	   *nulls;
	Size		off = begin;

	if (tuple == NULL)
		tuple = palloc(Max(size, begin));
	nulls = (bits8 *) (tuple + sizeof(IndexTupleData));
	/* attributes are aligned relative to the tuple's beginning */
	memcpy(tuple, row, size);
	for (int i = 0; i < n; i++)
	{
		isnull[i] = (row->info & INDEX_NULL_MASK) && size >= begin &&
			att_isnull(i, nulls);
		values[i] = (Datum) 0;
		if (isnull[i])
			continue;
		off = TakeValue(TupleDescAttr(desc, i), tuple, off, size, &values[i]);
		if (off == 0)
			return false;
	}
	return true;
}
