/*
 * rows.c
 *		Loading rows into memory from a source, and making nodes from rows.
 *
 * Equal vectors become one node, with all their rows. "Twins" are vectors that
 * are equal when rounded but not before.
 */
#include "postgres.h"

#include <math.h>

#include "build/internal.h"
#include "common/hashfn.h"
#include "distance/sparse.h"
#include "miscadmin.h"

/* Rows in each part in which equal vectors are looked for. */
#define PART_ROWS 131072

/* Rows of which one member makes nodes at a time. */
#define RUN 1024

#define FIRST_SLOTS 1024

/*
 * With more twins than this half precision is not used: a search cannot find
 * its way among thousands of them, as their distances are equal, and the
 * executor would have to sort them.
 */
#define MOST_TWINS 100

/* ---------- loading ---------- */

typedef struct Loading
{
	PipeannRows *rows;
	bool		twins;			/* have one hash, and are counted */
} Loading;

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

static void
LoadVector(const Loading *l, const PipeannSourceRow *row, const float *x)
{
	PipeannRows *rows = l->rows;
	uint32		i = row->number;
	const PipeannVectors *v = &rows->vectors;
	char	   *at = (char *) PipeannVectorAt(v, i);

	if (rows->longer.forms != NULL)
		LoadLong(rows, i, PipeannSparseBehind(x));
	PipeannVectorFromFloat(x, v->storage, v->dim, at);
	rows->hash[i] = hash_bytes((const unsigned char *) at, (int) v->stride);
	if (v->aux != NULL)
		((float *) v->aux)[i] = PipeannAux(v->metric, row->norm, v->max_norm);
	if (rows->roundings == NULL)
		return;
	if (PipeannIsSparse(v->storage))
		rows->roundings[i] = (PipeannRounding) {
			.hash = PipeannHashOf(v->storage, x, v->dim)
		};
	else
		PipeannRound(x, row->norm, at, v->storage, v->dim, &rows->roundings[i]);
	if (!l->twins)
		rows->hash[i] ^= rows->roundings[i].hash;
}

static void
LoadRow(const PipeannSourceRow *row, const float *x, void *arg)
{
	const Loading *l = arg;
	PipeannRows *rows = l->rows;

	if (rows->values != NULL)
		memcpy(rows->values + row->at, row->row,
			   row->row->info & PIPEANN_ROW_SIZE);
	LoadVector(l, row, x);
	rows->tids[row->number] = row->tid;
	if (rows->values_at != NULL)
		rows->values_at[row->number] = row->at;
}

static void
Load(PipeannTeam *team, PipeannRowSource *source, PipeannStorage storage,
	 PipeannRows *rows)
{
	PipeannVectors *v = &rows->vectors;
	Loading		l = {
		.rows = rows,
		.twins = source->wanted == PIPEANN_STORAGE_AUTO
	};

	memset(rows, 0, sizeof(*rows));
	v->n = source->n;
	v->dim = source->dim;
	v->storage = storage;
	v->metric = source->metric;
	v->stride = PipeannVectorBytes(storage, source->dim);
	v->max_norm = (float) source->max_norm;
	v->data = PipeannTeamAlloc(team, mul_size(v->n, v->stride));
	v->aux = !PipeannHasAux(v->metric) ? NULL :
		PipeannTeamArray(team, float, v->n);
	if (source->long_bytes > 0)
	{
		rows->longer.forms = PipeannTeamAlloc(team, source->long_bytes);
		rows->longer.at = PipeannTeamArray(team, uint64, v->n);
		rows->long_bytes = PipeannTeamArray(team, pg_atomic_uint64, 1);
		if (PipeannTeamLeads(team))
			pg_atomic_init_u64(rows->long_bytes, 0);
		PipeannTeamMeet(team);
	}
	rows->roundings = source->long_bytes == 0 &&
		(!PipeannIsRounding(storage) || storage == source->whole) ? NULL :
		PipeannTeamArray(team, PipeannRounding, v->n);
	rows->tids = PipeannTeamArray(team, ItemPointerData, v->n);
	rows->hash = PipeannTeamArray(team, uint32, v->n);
	if (source->has_values)
	{
		rows->values = PipeannTeamAlloc(team, source->value_bytes);
		rows->values_at = PipeannTeamArray(team, uint64, v->n);
	}
	rows->near = *v;
	source->read(source, LoadRow, &l);
	PipeannTeamMeet(team);
}

/* Free all but values and long vectors, which pass to the nodes. */
void
PipeannRowsFree(PipeannTeam *team, PipeannRows *rows)
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

		if (row % RUN == 0)
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
FirstChoice(const PipeannRowSource *s)
{
	bool		bytes = s->fits[PIPEANN_UINT8] || s->fits[PIPEANN_INT8];

	if (s->wanted != PIPEANN_STORAGE_AUTO)
		return s->wanted;
	if (s->n < MIN_JUDGED)
		return s->whole;
	if (bytes)
		return s->fits[PIPEANN_UINT8] ? PIPEANN_UINT8 : PIPEANN_INT8;
	return s->whole != PIPEANN_FLOAT2 && s->fits[PIPEANN_FLOAT2] &&
		s->dim >= MIN_HALF_DIM ?
		s->rounding : s->whole;
}

/* Whether a storage chosen before all rows were loaded turns out not to suit them. */
static bool
IsUnfit(const PipeannRowSource *s, const PipeannRows *rows, int twins)
{
	PipeannStorage storage = rows->vectors.storage;

	if (s->wanted != PIPEANN_STORAGE_AUTO || storage == s->whole)
		return false;
	return rows->distinct < MIN_JUDGED ||
		(PipeannIsRounding(storage) &&
		 (twins > MOST_TWINS || IsFarFromZero(&rows->vectors)));
}

/*
 * Choose a storage, and load the source's rows in it; find equal vectors. All
 * members call.
 */
void
PipeannRowsLoad(PipeannTeam *team, PipeannRowSource *source, PipeannRows *rows)
{
	Load(team, source, FirstChoice(source), rows);
	if (!IsUnfit(source, rows, FindEqual(team, rows)))
		return;
	PipeannTeamMeet(team);
	PipeannTeamFree(team, rows->values);
	PipeannTeamFree(team, rows->longer.forms);
	PipeannRowsFree(team, rows);
	Load(team, source, source->whole, rows);
	(void) FindEqual(team, rows);
}

/* Set near to reduced vectors, if a graph built from these is as good. All members call. */
void
PipeannRowsReduce(PipeannTeam *team, PipeannRows *rows)
{
	if (PipeannReduce(team, &rows->vectors, &rows->near) &&
		PipeannTeamLeads(team))
		ereport(DEBUG1,
				(errmsg_internal("the graph is built by %d principal axes of %d dimensions",
								 rows->near.dim, rows->vectors.dim)));
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
 * Make nodes of the rows for which again[] is false, with the node numbers in
 * number[]. All members call.
 */
void
PipeannRowsToNodes(PipeannTeam *team, const PipeannRows *rows,
				   PipeannNodes *nodes)
{
	AllocateNodes(team, rows, nodes);
	PipeannTeamEach(team, row, rows->vectors.n, RUN)
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
}
