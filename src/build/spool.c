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

#include "build/spool.h"
#include "distance/distance.h"
#include "miscadmin.h"
#include "utils/memutils.h"

void
PipeannSpoolInit(PipeannTeam *team, PipeannSpool *s, int dim,
				 PipeannMetric metric, PipeannStorage wanted,
				 BlockNumber nblocks)
{
	memset(s, 0, sizeof(*s));
	s->dim = dim;
	s->metric = metric;
	s->wanted = wanted;
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
	bool		as_uint8 = PipeannVectorFits(x, PIPEANN_UINT8, s->dim);
	bool		as_int8 = (fits[PIPEANN_INT8] || !as_uint8) &&
		PipeannVectorFits(x, PIPEANN_INT8, s->dim);

	fits[PIPEANN_UINT8] &= as_uint8;
	fits[PIPEANN_INT8] &= as_int8;
	if (as_uint8)
		return PIPEANN_UINT8;
	if (fits[PIPEANN_FLOAT2])
		fits[PIPEANN_FLOAT2] = PipeannIsStorable(x, norm, PIPEANN_FLOAT2,
												 s->dim);
	return as_int8 ? PIPEANN_INT8 : PIPEANN_FLOAT4;
}

static void
Count(PipeannSpool *s, const ItemPointerData *tid, Size bytes)
{
	BlockNumber block = ItemPointerGetBlockNumber(tid);

	if (block >= s->nblocks)
		elog(ERROR, "row (%u,%u) is beyond the end of the table", block,
			 ItemPointerGetOffsetNumber(tid));
	s->starts[block + 1]++;
	s->stats.rows++;
	s->stats.bytes += sizeof(PipeannSpoolRow) + bytes;
}

bool
PipeannSpoolAdd(PipeannSpool *s, Datum value, const ItemPointerData *tid)
{
	MemoryContext old = MemoryContextSwitchTo(s->row_context);
	const float *x = PipeannDatumElements(value, s->dim);
	PipeannSpoolRow row = {.norm = PipeannNorm(x, s->dim),.tid = *tid};
	bool		indexable = PipeannIsIndexable(s->metric, row.norm);
	Size		bytes;

	if (indexable)
	{
		PipeannRequireFit(s->wanted, x, s->dim);
		row.form = FormOf(s, x, row.norm);
		bytes = s->dim * PipeannElementSize(row.form);
		s->stats.max_norm = Max(s->stats.max_norm, row.norm);
		PipeannVectorFromFloat(x, row.form, s->dim, s->scratch);
		MemoryContextSwitchTo(old);
		BufFileWrite(s->file, &row, sizeof(row));
		BufFileWrite(s->file, s->scratch, bytes);
		Count(s, tid, bytes);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(s->row_context);
	return indexable;
}

static void
Merge(PipeannSpoolStats *into, const PipeannSpoolStats *from)
{
	into->rows += from->rows;
	into->bytes += from->bytes;
	into->heap_tuples += from->heap_tuples;
	into->broken_hot_chain |= from->broken_hot_chain;
	into->max_norm = Max(into->max_norm, from->max_norm);
	for (int i = 0; i < PIPEANN_NUM_STORAGE; i++)
		into->fits[i] &= from->fits[i];
}

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
			s->starts[b + 1] += s->starts[b];
	PipeannTeamMeet(team);
	MemoryContextDelete(s->row_context);
}

/* False at the end of the file. */
static bool
ReadRow(PipeannSpool *s, PipeannSpoolRow *row)
{
	size_t		got = BufFileRead(s->file, row, sizeof(*row));
	size_t		size;

	if (got == 0)
		return false;
	size = s->dim * PipeannElementSize(row->form);
	if (got != sizeof(*row) || BufFileRead(s->file, s->scratch, size) != size)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read from a temporary file of an index build")));
	return true;
}

void
PipeannSpoolRead(PipeannSpool *s, PipeannSpoolTake take, void *arg)
{
	BlockNumber block = InvalidBlockNumber;
	float	   *x = palloc(mul_size(s->dim, sizeof(float)));
	uint32		number = 0;
	PipeannSpoolRow row;

	if (BufFileSeek(s->file, 0, 0, SEEK_SET) != 0)
		elog(ERROR, "could not rewind a temporary file");
	while (ReadRow(s, &row))
	{
		CHECK_FOR_INTERRUPTS();
		if (ItemPointerGetBlockNumber(&row.tid) != block)
		{
			block = ItemPointerGetBlockNumber(&row.tid);
			number = s->starts[block];
		}
		PipeannVectorToFloat(s->scratch, row.form, s->dim, x);
		take(&row, x, number++, arg);
	}
	pfree(x);
}

void
PipeannSpoolFree(PipeannTeam *team, PipeannSpool *s)
{
	BufFileClose(s->file);
	PipeannTeamFree(team, s->starts);
	pfree(s->scratch);
}
