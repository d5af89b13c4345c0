/*
 * spool.c
 *		A table's vectors in temporary files.
 *
 * Each process writes the rows that it scans to a file of its own, in the least
 * form that holds a vector exactly. When all are scanned it is known which
 * storage suits all of them, and how many rows each block of the table has. So
 * a row's number in the order of TIDs is known without sorting: a block's rows
 * are in one file, one after the other. Which process scanned what does not
 * matter any more.
 */
#include "postgres.h"

#include "build/rows.h"
#include "distance/distance.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/*
 * A vector in the spool, followed by its elements and, if rows have values, by
 * the row.
 */
typedef struct SpoolRow
{
	double		norm;
	ItemPointerData tid;
	uint8		form;			/* PipeannStorage that holds it exactly */
} SpoolRow;

/*
 * Prepare to scan a table of so many blocks. All members call.
 */
void
PipeannSpoolInit(PipeannTeam *team, PipeannSpool *s, PipeannColumns columns,
				 int dim, PipeannMetric metric, PipeannStorage wanted,
				 BlockNumber nblocks)
{
	memset(s, 0, sizeof(*s));
	s->columns = columns;
	if (columns.values != NULL)
	{
		s->row = palloc(PIPEANN_ROW_SIZE);
		s->bytes = PipeannTeamAlloc(team, mul_size((Size) nblocks + 1,
												   sizeof(uint64)));
	}
	s->source.dim = dim;
	s->source.metric = metric;
	s->source.wanted = wanted;
	s->nblocks = nblocks;
	s->file = BufFileCreateTemp(false);
	s->starts = PipeannTeamAlloc(team, mul_size((Size) nblocks + 1,
												sizeof(uint32)));
	s->scratch = palloc(mul_size(dim, sizeof(float)));
	s->row_context = AllocSetContextCreate(CurrentMemoryContext,
										   "pipeann build row",
										   ALLOCSET_DEFAULT_SIZES);
	memset(s->stats.fits, true, sizeof(s->stats.fits));
}

/* The least form that holds x exactly; notes what does not suit it. */
static PipeannStorage
FormOf(PipeannSpool *s, const float *x, double norm)
{
	bool	   *fits = s->stats.fits;
	bool		negative_zero = PipeannHasNegativeZero(x, s->source.dim);
	bool		as_uint8 = PipeannVectorFits(x, PIPEANN_UINT8, s->source.dim);
	bool		as_int8 = (fits[PIPEANN_INT8] || !as_uint8) &&
		PipeannVectorFits(x, PIPEANN_INT8, s->source.dim);

	fits[PIPEANN_UINT8] &= as_uint8;
	fits[PIPEANN_INT8] &= as_int8;
	s->stats.negative_zeros |= negative_zero;
	if (as_uint8 && !negative_zero)
		return PIPEANN_UINT8;
	if (fits[PIPEANN_FLOAT2])
		fits[PIPEANN_FLOAT2] = PipeannIsStorable(x, norm, PIPEANN_FLOAT2,
												 s->source.dim);
	return as_int8 && !negative_zero ? PIPEANN_INT8 : PIPEANN_FLOAT4;
}

/*
 * An error if x[dim] does not fit a storage that the user chose, which is kept; half
 * precision rounds, integers do not.
 */
static void
RequireFit(PipeannStorage storage, const float *x, int dim)
{
	if (storage == PIPEANN_STORAGE_AUTO || storage == PIPEANN_FLOAT2 ||
		PipeannVectorFits(x, storage, dim))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
			 errmsg("vector does not fit the index's storage"),
			 errdetail("Storage int8 holds whole numbers from -128 to 127, uint8 from 0 to 255."),
			 errhint("Use storage = auto or float4.")));
}

static void
Count(PipeannSpool *s, const ItemPointerData *tid, Size bytes, Size row)
{
	BlockNumber block = ItemPointerGetBlockNumber(tid);

	if (block >= s->nblocks)
		elog(ERROR, "row (%u,%u) is beyond the end of the table", block,
			 ItemPointerGetOffsetNumber(tid));
	s->starts[block + 1]++;
	s->stats.rows++;
	s->stats.bytes += sizeof(SpoolRow) + bytes + row;
	if (s->bytes == NULL)
		return;
	s->bytes[block + 1] += row;
	PipeannRowSizesAdd(&s->stats.sizes, (uint32) row);
}

/*
 * Add a row of all the index's columns, if it can be indexed. Errors if a storage
 * that was chosen does not suit it, or its values are too long.
 */
bool
PipeannSpoolAdd(PipeannSpool *s, Datum *values, bool *isnull,
				const ItemPointerData *tid)
{
	MemoryContext old = MemoryContextSwitchTo(s->row_context);
	const float *x = PipeannDatumElements(values[s->columns.vector], s->source.dim);
	SpoolRow row = {.norm = PipeannNorm(x, s->source.dim),.tid = *tid};
	bool		indexable = PipeannIsIndexable(s->source.metric, row.norm);
	const PipeannRow *with_values = NULL;
	Size		bytes;
	Size		row_bytes = 0;

	if (indexable)
	{
		RequireFit(s->source.wanted, x, s->source.dim);
		row.form = FormOf(s, x, row.norm);
		bytes = s->source.dim * PipeannElementSize(row.form);
		s->stats.max_norm = Max(s->stats.max_norm, row.norm);
		PipeannVectorFromFloat(x, row.form, s->source.dim, s->scratch);
		if (s->columns.values != NULL)
		{
			with_values = PipeannFormRow(&s->columns, values, isnull, tid);
			row_bytes = with_values->info & PIPEANN_ROW_SIZE;
		}
		MemoryContextSwitchTo(old);
		BufFileWrite(s->file, &row, sizeof(row));
		BufFileWrite(s->file, s->scratch, bytes);
		if (with_values != NULL)
			BufFileWrite(s->file, (void *) with_values, row_bytes);
		Count(s, tid, bytes, row_bytes);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(s->row_context);
	return indexable;
}

static void
ReadError(void)
{
	ereport(ERROR,
			(errcode_for_file_access(),
			 errmsg("could not read from a temporary file of an index build")));
}

/* Read a row with values to s->row. */
static void
ReadValues(PipeannSpool *s)
{
	Size		begin = sizeof(PipeannRow);
	Size		size;

	if (BufFileRead(s->file, s->row, begin) != begin)
		ReadError();
	size = s->row->info & PIPEANN_ROW_SIZE;
	if (size < begin ||
		BufFileRead(s->file, s->row + 1, size - begin) != size - begin)
		ReadError();
}

/* False at the end of the file. */
static bool
ReadRow(PipeannSpool *s, SpoolRow *row)
{
	size_t		got = BufFileRead(s->file, row, sizeof(*row));
	size_t		size;

	if (got == 0)
		return false;
	size = s->source.dim * PipeannElementSize(row->form);
	if (got != sizeof(*row) || BufFileRead(s->file, s->scratch, size) != size)
		ReadError();
	if (s->columns.values != NULL)
		ReadValues(s);
	return true;
}

/*
 * Read this process's rows again: with the elements of each as floats, and its place
 * by TID among those of all processes.
 */
static void
ReadSpool(PipeannRowSource *source, PipeannTakeRow take, void *arg)
{
	PipeannSpool *s = (PipeannSpool *) source;
	BlockNumber block = InvalidBlockNumber;
	float	   *x = palloc(mul_size(source->dim, sizeof(float)));
	PipeannSourceRow taken = {.row = s->row};
	SpoolRow	row;

	if (BufFileSeek(s->file, 0, 0, SEEK_SET) != 0)
		elog(ERROR, "could not rewind a temporary file");
	while (ReadRow(s, &row))
	{
		CHECK_FOR_INTERRUPTS();
		if (ItemPointerGetBlockNumber(&row.tid) != block)
		{
			block = ItemPointerGetBlockNumber(&row.tid);
			taken.number = s->starts[block];
			taken.at = s->bytes != NULL ? s->bytes[block] : 0;
		}
		taken.norm = row.norm;
		taken.tid = row.tid;
		PipeannVectorToFloat(s->scratch, row.form, source->dim, x);
		take(&taken, x, arg);
		taken.number++;
		taken.at += s->row != NULL ? s->row->info & PIPEANN_ROW_SIZE : 0;
	}
	pfree(x);
}

static void
Merge(PipeannSpoolStats *into, const PipeannSpoolStats *from)
{
	into->rows += from->rows;
	into->bytes += from->bytes;
	into->heap_tuples += from->heap_tuples;
	into->broken_hot_chain |= from->broken_hot_chain;
	into->left_out |= from->left_out;
	into->negative_zeros |= from->negative_zeros;
	into->max_norm = Max(into->max_norm, from->max_norm);
	into->sizes.rows += from->sizes.rows;
	into->sizes.bytes += from->sizes.bytes;
	for (int i = 0; i < PIPEANN_ROW_CLASSES; i++)
		into->sizes.count[i] += from->sizes.count[i];
	for (int i = 0; i < PIPEANN_NUM_STORAGE; i++)
		into->fits[i] &= from->fits[i];
}

/* What is known of all rows, for those who read them. */
static void
MakeSource(PipeannSpool *s)
{
	PipeannRowSource *source = &s->source;

	source->n = (uint32) s->stats.rows;
	memcpy(source->fits, s->stats.fits, sizeof(source->fits));
	source->max_norm = s->stats.max_norm;
	source->has_values = s->columns.values != NULL;
	source->value_bytes = s->stats.sizes.bytes;
	source->read = ReadSpool;
}

/* After the scan: stats and starts become those of all. All members call. */
void
PipeannSpoolFinish(PipeannTeam *team, PipeannSpool *s)
{
	PipeannSpoolStats *all =
		PipeannTeamAlloc(team, mul_size(team->members,
										sizeof(PipeannSpoolStats)));

	all[team->member] = s->stats;
	PipeannTeamMeet(team);
	s->stats = all[0];
	for (int i = 1; i < team->members; i++)
		Merge(&s->stats, &all[i]);
	PipeannTeamFree(team, all);
	if (s->stats.rows >= PG_UINT32_MAX / 4)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many rows for a pipeann index")));
	if (PipeannTeamLeads(team))
		for (BlockNumber b = 0; b < s->nblocks; b++)
		{
			s->starts[b + 1] += s->starts[b];
			if (s->bytes != NULL)
				s->bytes[b + 1] += s->bytes[b];
		}
	PipeannTeamMeet(team);
	MakeSource(s);
	MemoryContextDelete(s->row_context);
}

void
PipeannSpoolFree(PipeannTeam *team, PipeannSpool *s)
{
	BufFileClose(s->file);
	PipeannTeamFree(team, s->starts);
	if (s->bytes != NULL)
		PipeannTeamFree(team, s->bytes);
	pfree(s->scratch);
}
