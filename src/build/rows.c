/*
 * rows.c
 *		Loading rows into memory from a source, and making nodes from rows.
 *
 * Equal vectors become one node, with all their rows. "Twins" are vectors that
 * are equal when rounded but not before.
 */
#include "postgres.h"

#include <math.h>

#include "base/metric.h"
#include "build/internal.h"
#include "common/hashfn.h"
#include "distance/sparse.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/* Rows in each part in which equal vectors are looked for. */
#define PART_ROWS 131072

/* Rows of which one member makes nodes at a time. */
#define SLICE 1024

#define FIRST_SLOTS 1024

/*
 * With more twins than this half precision is not used: a search cannot find
 * its way among thousands of them, as their distances are equal, and the
 * executor would have to sort them.
 */
#define MOST_TWINS 100

/* ---------- a table's rows in temporary files, the spool ---------- */

/*
 * Each process writes the rows that it scans to a file of its own, each vector
 * in the smallest storage that holds it exactly. When all rows are scanned it
 * is known which storage suits all vectors, and how many rows each block of
 * the table has. So a row's number in the order of TIDs is known without
 * sorting: a block's rows are in one file, one after the other. Which process
 * scanned what no longer matters.
 */

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

/* Prepare to scan a table of nblocks blocks, for this layout. All members call. */
void
PipeannSpoolInit(PipeannTeam *team, PipeannSpool *s, PipeannColumns columns,
				 PipeannLayout wanted, BlockNumber nblocks)
{
	memset(s, 0, sizeof(*s));
	s->columns = columns;
	if (columns.values != NULL)
	{
		s->row = palloc(PIPEANN_ROW_SIZE);
		s->bytes = PipeannTeamArray(team, uint64, (Size) nblocks + 1);
	}
	s->dim = wanted.dim;
	s->metric = PipeannMetrics[wanted.metric].graph;
	s->wanted = wanted.storage;
	s->whole = PipeannTypes[wanted.type].storage;
	s->type = wanted.type;
	s->nblocks = nblocks;
	s->file = BufFileCreateTemp(false);
	s->starts = PipeannTeamArray(team, uint32, (Size) nblocks + 1);
	s->scratch = palloc(sizeof(float) * PipeannFloats(s->whole, wanted.dim));
	s->row_context = AllocSetContextCreate(CurrentMemoryContext,
										   "pipeann build row",
										   ALLOCSET_DEFAULT_SIZES);
	memset(s->stats.fits, true, sizeof(s->stats.fits));
}

/* The smallest storage that holds x exactly; notes which storages do not. */
static PipeannStorage
FormOf(PipeannSpool *s, const float *x, double norm)
{
	bool	   *fits = s->stats.fits;
	bool		as_uint8;
	bool		as_int8;

	if (PipeannIsSparse(s->whole))
		return PipeannSparseFor(s->whole, PipeannSparseOf(PipeannSparseBehind(x)).n);
	if (s->wanted == s->whole)
		return s->whole;
	as_uint8 = PipeannVectorFits(x, PIPEANN_UINT8, s->dim);
	as_int8 = (fits[PIPEANN_INT8] || !as_uint8) &&
		PipeannVectorFits(x, PIPEANN_INT8, s->dim);
	fits[PIPEANN_UINT8] &= as_uint8;
	fits[PIPEANN_INT8] &= as_int8;
	if (as_uint8)
		return PIPEANN_UINT8;
	if (fits[PIPEANN_FLOAT2] && s->whole != PIPEANN_FLOAT2)
		fits[PIPEANN_FLOAT2] = PipeannIsStorable(x, norm, PIPEANN_FLOAT2,
												 s->dim);
	return as_int8 ? PIPEANN_INT8 : s->whole;
}

/*
 * Add a row of all the index's columns, if it can be indexed. Errors if a storage
 * that was chosen does not suit it, or its values are too long.
 */
bool
PipeannSpoolAdd(PipeannSpool *s, Datum *values, bool *isnull, const ItemPointerData *tid)
{
	BlockNumber block = ItemPointerGetBlockNumber(tid);
	MemoryContext old = MemoryContextSwitchTo(s->row_context);
	Datum		value = values[s->columns.vector];
	/* no float is ever made of bits */
	bool		as_is = s->whole == PIPEANN_BITS;
	const float *x = as_is ? NULL : PipeannRowElements(s->type, value, s->dim);
	SpoolRow row = {.norm = as_is ? 0 : PipeannNorm(x, s->dim),.tid = *tid};
	bool		indexable = PipeannIsIndexable(s->metric, row.norm);
	const PipeannRow *with_values = NULL;
	Size		bytes;
	Size		row_bytes = 0;

	if (block >= s->nblocks)
		elog(ERROR, "row (%u,%u) is beyond the end of the table", block,
			 ItemPointerGetOffsetNumber(tid));
	if (indexable)
	{
		/* a storage that the user chose is kept; half precision rounds, integers do not */
		if (s->wanted != s->whole &&
			s->wanted != PIPEANN_STORAGE_AUTO &&
			!PipeannIsRounding(s->wanted) &&
			!PipeannVectorFits(x, s->wanted, s->dim))
			ereport(ERROR,
					(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					 errmsg("vector does not fit the index's storage"),
					 errdetail("Storage int8 holds whole numbers from -128 to 127, uint8 from 0 to 255."),
					 errhint("Use storage = auto or float4.")));
		row.form = FormOf(s, x, row.norm);
		bytes = PipeannVectorBytes(row.form, s->dim);
		s->stats.max_norm = Max(s->stats.max_norm, row.norm);
		if (as_is)
			memcpy(s->scratch, PipeannDatumValue(s->type, value, s->dim)->elements, bytes);
		else
			PipeannVectorFromFloat(x, row.form, s->dim, s->scratch);
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
		s->stats.forms[row.form]++;
		s->stats.rows++;
		s->stats.bytes += sizeof(SpoolRow) + bytes + row_bytes;
		s->starts[block + 1]++;
		if (with_values != NULL)
		{
			s->bytes[block + 1] += row_bytes;
			PipeannRowSizesAdd(&s->stats.sizes, (uint32) row_bytes);
		}
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(s->row_context);
	return indexable;
}

static void
ReadBytes(PipeannSpool *s, void *to, Size size)
{
	if (BufFileRead(s->file, to, size) != size)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read from a temporary file of an index build")));
}

/* False at the end of the file. */
static bool
ReadRow(PipeannSpool *s, SpoolRow *row)
{
	Size		got = BufFileRead(s->file, row, sizeof(*row));

	if (got == 0)
		return false;
	/* an error if only a part of the row is there */
	ReadBytes(s, (char *) row + got, sizeof(*row) - got);
	ReadBytes(s, s->scratch, PipeannVectorBytes(row->form, s->dim));
	if (s->columns.values != NULL)
	{
		ReadBytes(s, s->row, sizeof(PipeannRow));
		ReadBytes(s, s->row + 1, Max(s->row->info & PIPEANN_ROW_SIZE,
									 sizeof(PipeannRow)) - sizeof(PipeannRow));
	}
	return true;
}

/* After the scan: stats and starts become those of all. All members call. */
void
PipeannSpoolFinish(PipeannTeam *team, PipeannSpool *s)
{
	PipeannSpoolStats *all = PipeannTeamArray(team, PipeannSpoolStats, team->members);
	PipeannSpoolStats *stats = &s->stats;

	all[team->member] = s->stats;
	PipeannTeamMeet(team);
	s->stats = all[0];
	for (int i = 1; i < team->members; i++)
	{
		const PipeannSpoolStats *other = &all[i];

		stats->rows += other->rows;
		stats->bytes += other->bytes;
		stats->heap_tuples += other->heap_tuples;
		stats->broken_hot_chain |= other->broken_hot_chain;
		stats->left_out |= other->left_out;
		stats->max_norm = Max(stats->max_norm, other->max_norm);
		stats->sizes.rows += other->sizes.rows;
		stats->sizes.bytes += other->sizes.bytes;
		for (int j = 0; j < PIPEANN_ROW_CLASSES; j++)
			stats->sizes.count[j] += other->sizes.count[j];
		for (int j = 0; j < PIPEANN_NUM_STORAGE; j++)
		{
			stats->fits[j] &= other->fits[j];
			stats->forms[j] += other->forms[j];
		}
	}
	PipeannTeamFree(team, all);
	if (stats->rows >= PG_UINT32_MAX / 4)
		PipeannTooManyRows();
	if (PipeannTeamLeads(team))
		for (BlockNumber b = 0; b < s->nblocks; b++)
		{
			s->starts[b + 1] += s->starts[b];
			if (s->bytes != NULL)
				s->bytes[b + 1] += s->bytes[b];
		}
	PipeannTeamMeet(team);
	if (PipeannIsSparse(s->whole))
		s->wanted = PipeannLayoutSparse(s->whole, stats->forms, stats->rows, &s->long_bytes);
	MemoryContextDelete(s->row_context);
}

/* ---------- loading ---------- */

/* Store a form for which the storage has no room, and what distinguishes it from others. */
static void
LoadLong(PipeannRows *rows, uint32 i, const void *form)
{
	Size		bytes = PipeannSparseWords(form) * sizeof(int32);

	rows->longer.at[i] = PIPEANN_NOT_LONG;
	if (PipeannSparseOf(form).n <= PipeannSparseRoom(rows->vectors.storage))
		return;
	rows->longer.at[i] = pg_atomic_fetch_add_u64(rows->long_bytes, bytes);
	memcpy(rows->longer.forms + rows->longer.at[i], form, bytes);
}

/* Store a row's vector, which is in s->scratch; x is room for its floats. */
static void
LoadVector(const PipeannSpool *s, PipeannRows *rows, uint32 i, const SpoolRow *row, float *x)
{
	const PipeannVectors *v = &rows->vectors;
	char	   *at = (char *) PipeannVectorAt(v, i);
	double		norm = row->norm;

	if (row->form == v->storage && rows->roundings == NULL)
		memcpy(at, s->scratch, v->stride);
	else
	{
		PipeannVectorUnpack(s->scratch, row->form, s->dim, x);
		if (rows->longer.forms != NULL)
			LoadLong(rows, i, PipeannSparseBehind(x));
		PipeannVectorFromFloat(x, v->storage, v->dim, at);
	}
	rows->hash[i] = hash_bytes((const unsigned char *) at, (int) v->stride);
	if (v->aux != NULL)
		((float *) v->aux)[i] = PipeannAux(v->metric, norm, v->max_norm);
	if (rows->roundings == NULL)
		return;
	if (PipeannIsSparse(v->storage))
		rows->roundings[i] = (PipeannRounding) {
			.hash = PipeannHashOf(v->storage, x, v->dim)
		};
	else
		PipeannRound(x, norm, at, v->storage, v->dim, &rows->roundings[i]);
	/* twins have one hash, and are counted */
	if (s->wanted != PIPEANN_STORAGE_AUTO)
		rows->hash[i] ^= rows->roundings[i].hash;
}

/*
 * Load the rows that this process has scanned: each by its number in the order of TIDs
 * among the rows of all processes.
 */
static void
LoadRows(PipeannSpool *s, PipeannRows *rows)
{
	BlockNumber block = InvalidBlockNumber;
	float	   *x = PipeannArray(float, PipeannFloats(s->whole, s->dim));
	uint32		number = 0;
	uint64		at = 0;
	SpoolRow	row;

	if (BufFileSeek(s->file, 0, 0, SEEK_SET) != 0)
		elog(ERROR, "could not rewind a temporary file");
	for (; ReadRow(s, &row); number++)
	{
		CHECK_FOR_INTERRUPTS();
		if (ItemPointerGetBlockNumber(&row.tid) != block)
		{
			block = ItemPointerGetBlockNumber(&row.tid);
			number = s->starts[block];
			at = s->bytes != NULL ? s->bytes[block] : 0;
		}
		LoadVector(s, rows, number, &row, x);
		rows->tids[number] = row.tid;
		if (rows->values != NULL)
		{
			Size		size = s->row->info & PIPEANN_ROW_SIZE;

			memcpy(rows->values + at, s->row, size);
			rows->values_at[number] = at;
			at += size;
		}
	}
	pfree(x);
}

static void
Load(PipeannTeam *team, PipeannSpool *s, PipeannStorage storage,
	 PipeannRows *rows)
{
	PipeannVectors *v = &rows->vectors;

	memset(rows, 0, sizeof(*rows));
	v->n = (uint32) s->stats.rows;
	v->dim = s->dim;
	v->storage = storage;
	v->metric = s->metric;
	v->stride = PipeannVectorBytes(storage, s->dim);
	v->max_norm = (float) s->stats.max_norm;
	v->data = PipeannTeamAlloc(team, mul_size(v->n, v->stride));
	v->aux = !PipeannHasAux(v->metric) ? NULL :
		PipeannTeamArray(team, float, v->n);
	if (s->long_bytes > 0)
	{
		rows->longer.forms = PipeannTeamAlloc(team, s->long_bytes);
		rows->longer.at = PipeannTeamArray(team, uint64, v->n);
		rows->long_bytes = PipeannTeamArray(team, pg_atomic_uint64, 1);
		if (PipeannTeamLeads(team))
			pg_atomic_init_u64(rows->long_bytes, 0);
		PipeannTeamMeet(team);
	}
	rows->roundings = s->long_bytes == 0 &&
		(!PipeannIsRounding(storage) || storage == s->whole) ? NULL :
		PipeannTeamArray(team, PipeannRounding, v->n);
	rows->tids = PipeannTeamArray(team, ItemPointerData, v->n);
	rows->hash = PipeannTeamArray(team, uint32, v->n);
	if (s->columns.values != NULL)
	{
		rows->values = PipeannTeamAlloc(team, s->stats.sizes.bytes);
		rows->values_at = PipeannTeamArray(team, uint64, v->n);
	}
	rows->near = *v;
	LoadRows(s, rows);
	PipeannTeamMeet(team);
}

/* Free all but values and long vectors, which pass to the nodes. */
static void
FreeRows(PipeannTeam *team, PipeannRows *rows)
{
	if (rows->near.data != rows->vectors.data)
		PipeannTeamFree(team, rows->near.data);
	PipeannTeamFree(team, rows->vectors.data);
	PipeannTeamFree(team, rows->vectors.aux);
	PipeannTeamFree(team, rows->roundings);
	PipeannTeamFree(team, rows->longer.at);
	PipeannTeamFree(team, rows->long_bytes);
	PipeannTeamFree(team, rows->tids);
	PipeannTeamFree(team, rows->values_at);
	PipeannTeamFree(team, rows->hash);
	PipeannTeamFree(team, rows->again);
	PipeannTeamFree(team, rows->number);
}

/* ---------- equal vectors ---------- */

/* A hash table of the different vectors of one part. */
typedef struct Table
{
	const PipeannRows *rows;
	uint32	   *slots;			/* rows, or INVALID */
	uint32		size;			/* a power of 2 */
	uint32		used;
	int			twins;			/* the most that a look-up passed */
} Table;

/* The slot of a vector equal to that of a row, or the empty slot for it. */
static uint32
FindSlot(Table *t, uint32 row)
{
	const PipeannVectors *v = &t->rows->vectors;
	const PipeannRounding *roundings = t->rows->roundings;
	uint32		hash = t->rows->hash[row];
	uint32		at = hash_bytes_uint32(hash) & (t->size - 1);
	int			twins = 0;

	for (; t->slots[at] != PIPEANN_INVALID_ID; at = (at + 1) & (t->size - 1))
	{
		uint32		other = t->slots[at];

		if (t->rows->hash[other] != hash ||
			memcmp(PipeannVectorAt(v, other), PipeannVectorAt(v, row),
				   v->stride) != 0)
			continue;
		if (roundings == NULL || roundings[row].hash == roundings[other].hash)
			break;
		twins++;
	}
	t->twins = Max(t->twins, twins);
	return at;
}

/*
 * Find equal vectors among the rows of one part. Returns the most twins of a
 * vector; ends early beyond MOST_TWINS, as more would make it slow.
 */
static int
FindEqualOfPart(PipeannRows *rows, uint32 part, uint32 parts)
{
	Table		t = {.rows = rows,.size = FIRST_SLOTS};

	t.slots = PipeannArray(uint32, t.size);
	memset(t.slots, 0xFF, mul_size(t.size, sizeof(uint32)));
	for (uint32 row = 0; row < rows->vectors.n && t.twins <= MOST_TWINS; row++)
	{
		uint32		at;

		if (row % SLICE == 0)
			CHECK_FOR_INTERRUPTS();
		if (rows->hash[row] % parts != part)
			continue;
		at = FindSlot(&t, row);
		rows->again[row] = t.slots[at] != PIPEANN_INVALID_ID;
		if (rows->again[row])
		{
			rows->number[row] = t.slots[at];
			continue;
		}
		t.slots[at] = row;
		if (++t.used > t.size / 2)
		{
			uint32	   *former = t.slots;
			uint32		size = t.size;

			t.size = size * 2;
			t.slots = PipeannArray(uint32, t.size);
			memset(t.slots, 0xFF, mul_size(t.size, sizeof(uint32)));
			for (uint32 i = 0; i < size; i++)
				if (former[i] != PIPEANN_INVALID_ID)
					t.slots[FindSlot(&t, former[i])] = former[i];
			pfree(former);
		}
	}
	pfree(t.slots);
	return t.twins;
}

/* Sets again[], number[], distinct. Returns the most twins of a vector. */
static int
FindEqual(PipeannTeam *team, PipeannRows *rows)
{
	uint32		n = rows->vectors.n;
	uint32		parts = n / PART_ROWS + 8;
	int		   *twins = PipeannTeamArray(team, int, parts);
	int			most = 0;

	rows->again = PipeannTeamAlloc(team, n);
	rows->number = PipeannTeamArray(team, uint32, n);
	PipeannTeamEach(team, part, parts, 1)
		twins[part] = FindEqualOfPart(rows, (uint32) part, parts);
	for (uint32 i = 0; i < parts; i++)
		most = Max(most, twins[i]);
	rows->distinct = n;
	for (uint32 row = 0; row < n; row++)
		rows->distinct -= rows->again[row];
	PipeannTeamFree(team, twins);
	return most;
}

/* ---------- the storage ---------- */

/*
 * With fewer vectors, bytes and half precision are not chosen: they may not be
 * typical of vectors to come, which rounding might make equal.
 */
#define MIN_JUDGED 1000

/* With fewer dimensions half precision saves less than a sixth of a page. */
#define MIN_HALF_DIM 32

/*
 * How far vectors may be from zero for half precision, in units of their
 * distance from their mean: rounding errs by 2e-4 of the former, while near
 * and far vectors differ by the latter.
 */
#define MOST_OFFSET 5

/*
 * Whether half precision would lose the differences of the first MIN_JUDGED
 * vectors: they are much farther from zero than from one another. Compares
 * mean squares of the norms and of the distances from the mean; for cosine, of
 * normalised vectors, as only directions matter.
 */
static bool
IsFarFromZero(const PipeannVectors *v)
{
	double	   *mean = palloc0(mul_size(v->dim, sizeof(double)));
	float	   *x = PipeannArray(float, v->dim);
	uint32		n = Min(v->n, MIN_JUDGED);
	double		squares = 0;
	double		of_mean = 0;

	for (uint32 i = 0; i < n; i++)
	{
		double		scale = v->metric == PIPEANN_COSINE ? v->aux[i] : 1;

		PipeannVectorToFloat(PipeannVectorAt(v, i), v->storage, v->dim, x);
		for (int d = 0; d < v->dim; d++)
		{
			mean[d] += x[d] * scale / n;
			squares += pow(x[d] * scale, 2) / n;
		}
	}
	for (int d = 0; d < v->dim; d++)
		of_mean += mean[d] * mean[d];
	pfree(mean);
	pfree(x);
	return squares > (double) MOST_OFFSET * MOST_OFFSET * (squares - of_mean);
}

static PipeannStorage
FirstChoice(const PipeannSpool *s)
{
	bool		bytes = s->stats.fits[PIPEANN_UINT8] || s->stats.fits[PIPEANN_INT8];

	if (s->wanted != PIPEANN_STORAGE_AUTO)
		return s->wanted;
	if (s->stats.rows < MIN_JUDGED)
		return s->whole;
	if (bytes)
		return s->stats.fits[PIPEANN_UINT8] ? PIPEANN_UINT8 : PIPEANN_INT8;
	return s->whole != PIPEANN_FLOAT2 && s->stats.fits[PIPEANN_FLOAT2] &&
		s->dim >= MIN_HALF_DIM ?
		s->rounding : s->whole;
}

/*
 * Choose a storage, load the spool's rows in it, and find equal vectors; free the spool. All
 * members call.
 */
void
PipeannRowsLoad(PipeannTeam *team, PipeannSpool *s, PipeannRows *rows)
{
	PipeannStorage storage = FirstChoice(s);
	int			twins;

	Load(team, s, storage, rows);
	twins = FindEqual(team, rows);
	/* an automatic choice may turn out not to suit them */
	if (s->wanted == PIPEANN_STORAGE_AUTO && storage != s->whole &&
		(rows->distinct < MIN_JUDGED ||
		 (PipeannIsRounding(storage) && (twins > MOST_TWINS || IsFarFromZero(&rows->vectors)))))
	{
		PipeannTeamMeet(team);
		PipeannTeamFree(team, rows->values);
		PipeannTeamFree(team, rows->longer.forms);
		FreeRows(team, rows);
		Load(team, s, s->whole, rows);
		(void) FindEqual(team, rows);
	}
	BufFileClose(s->file);
	PipeannTeamFree(team, s->starts);
	PipeannTeamFree(team, s->bytes);
	pfree(s->scratch);
}

/* ---------- nodes ---------- */

static void
AllocateNodes(PipeannTeam *team, const PipeannRows *rows, PipeannNodes *nodes)
{
	uint32		n = rows->distinct;
	uint32		others = rows->vectors.n - n;
	PipeannVectors *v = &nodes->vectors;

	memset(nodes, 0, sizeof(*nodes));
	*v = rows->vectors;
	v->n = n;
	v->data = PipeannTeamAlloc(team, mul_size(n, v->stride));
	if (v->aux != NULL)
		v->aux = PipeannTeamArray(team, float, n);
	nodes->near = *v;
	if (rows->near.data != rows->vectors.data)
	{
		nodes->near = rows->near;
		nodes->near.n = n;
		nodes->near.data = PipeannTeamAlloc(team, mul_size(n, rows->near.stride));
	}
	nodes->tids = PipeannTeamArray(team, ItemPointerData, n);
	nodes->dup_heads = PipeannTeamArray(team, uint32, n);
	nodes->dups = PipeannTeamArray(team, PipeannDuplicate, others);
	if (rows->roundings != NULL)
		nodes->roundings = PipeannTeamArray(team, PipeannRounding, n);
	nodes->longer.forms = rows->longer.forms;
	if (rows->longer.forms != NULL)
		nodes->longer.at = PipeannTeamArray(team, uint64, n);
	if (rows->values == NULL)
		return;
	nodes->values = rows->values;
	nodes->values_at = PipeannTeamArray(team, uint64, n);
	nodes->dup_values_at = PipeannTeamArray(team, uint64, others);
}

/*
 * Make nodes of the rows, numbered so that near ones have near numbers, and free the rows.
 * Returns the first partition of the nodes. All members call.
 */
PipeannClusters *
PipeannRowsToNodes(PipeannTeam *team, PipeannRows *rows, PipeannNodes *nodes)
{
	PipeannClusters *clusters;

	if (PipeannReduce(team, &rows->vectors, &rows->near) && PipeannTeamLeads(team))
		ereport(DEBUG1,
				(errmsg_internal("the graph is built by %d principal axes of %d dimensions",
								 rows->near.dim, rows->vectors.dim)));
	clusters = PipeannClustersNew(team, &rows->near, rows->again, PIPEANN_BUILD_SEED,
								  rows->number);
	AllocateNodes(team, rows, nodes);
	PipeannTeamEach(team, row, rows->vectors.n, SLICE)
		if (!rows->again[row])
		{
			const PipeannVectors *v = &nodes->vectors;
			uint32		node = rows->number[row];

			memcpy((char *) PipeannVectorAt(v, node),
				   PipeannVectorAt(&rows->vectors, row), v->stride);
			if (nodes->near.data != v->data)
				memcpy((char *) PipeannVectorAt(&nodes->near, node),
					   PipeannVectorAt(&rows->near, row), nodes->near.stride);
			nodes->tids[node] = rows->tids[row];
			nodes->dup_heads[node] = PIPEANN_INVALID_ID;
			if (v->aux != NULL)
				((float *) v->aux)[node] = rows->vectors.aux[row];
			if (nodes->roundings != NULL)
				nodes->roundings[node] = rows->roundings[row];
			if (nodes->longer.forms != NULL)
				nodes->longer.at[node] = rows->longer.at[row];
			if (nodes->values != NULL)
				nodes->values_at[node] = rows->values_at[row];
		}
	if (PipeannTeamLeads(team))
		for (uint32 row = 0; row < rows->vectors.n; row++)
		{
			uint32		node = rows->number[rows->number[row]];

			if (row % PART_ROWS == 0)
				CHECK_FOR_INTERRUPTS();
			if (!rows->again[row])
				continue;
			nodes->dups[nodes->ndups].tid = rows->tids[row];
			nodes->dups[nodes->ndups].next = nodes->dup_heads[node];
			if (nodes->values != NULL)
				nodes->dup_values_at[nodes->ndups] = rows->values_at[row];
			nodes->dup_heads[node] = nodes->ndups++;
		}
	PipeannTeamMeet(team);
	FreeRows(team, rows);
	return clusters;
}
