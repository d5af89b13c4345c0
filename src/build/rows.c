/*
 * rows.c
 *		From the spool to rows in memory, and from these to nodes.
 *
 * Equal vectors become one node, with all their rows. "Twins" are vectors that
 * are equal in half precision but not before.
 */
#include "postgres.h"

#include "build/rows.h"
#include "common/hashfn.h"
#include "distance/distance.h"
#include "miscadmin.h"

/* Rows of one part when equal ones are looked for. */
#define PART_ROWS 131072

/* Rows made nodes at once by one member. */
#define RUN 1024

#define FIRST_SLOTS 1024

/* ---------- loading ---------- */

typedef struct Loading
{
	PipeannRows *rows;
	float		max_norm;
} Loading;

static void
LoadRow(const PipeannSpoolRow *row, const float *x,
		const PipeannSpoolPlace *place, void *arg)
{
	Loading    *l = arg;
	PipeannRows *rows = l->rows;
	uint32		i = place->number;
	const PipeannVectors *v = &rows->vectors;
	char	   *at = (char *) PipeannVectorAt(v, i);

	PipeannVectorFromFloat(x, v->storage, v->dim, at);
	rows->tids[i] = row->tid;
	rows->hash[i] = hash_bytes((const unsigned char *) at, (int) v->stride);
	if (rows->roundings != NULL)
		(void) PipeannRound(x, row->norm, v->dim, &rows->roundings[i]);
	if (v->aux != NULL)
		((float *) v->aux)[i] = PipeannAux(v->metric, row->norm, l->max_norm);
	if (rows->values == NULL)
		return;
	rows->values_at[i] = place->at;
	memcpy(rows->values + place->at, place->row,
		   place->row->info & PIPEANN_ROW_SIZE);
}

static void
Load(PipeannTeam *team, PipeannSpool *spool, PipeannStorage storage,
	 PipeannRows *rows)
{
	PipeannVectors *v = &rows->vectors;
	Loading		l = {rows, (float) spool->stats.max_norm};

	v->n = (uint32) spool->stats.rows;
	v->dim = spool->dim;
	v->storage = storage;
	v->metric = spool->metric;
	v->stride = spool->dim * PipeannElementSize(storage);
	v->max_norm = l.max_norm;
	v->data = PipeannTeamAlloc(team, mul_size(v->n, v->stride));
	v->aux = v->metric == PIPEANN_L2 ? NULL :
		PipeannTeamAlloc(team, mul_size(v->n, sizeof(float)));
	rows->roundings = storage != PIPEANN_FLOAT2 ? NULL :
		PipeannTeamAlloc(team, mul_size(v->n, sizeof(PipeannRounding)));
	rows->tids = PipeannTeamAlloc(team, mul_size(v->n,
												 sizeof(ItemPointerData)));
	rows->hash = PipeannTeamAlloc(team, mul_size(v->n, sizeof(uint32)));
	if (spool->columns.values != NULL)
	{
		rows->values = PipeannTeamAlloc(team, spool->stats.sizes.bytes);
		rows->values_at = PipeannTeamAlloc(team, mul_size(v->n,
														  sizeof(uint64)));
	}
	PipeannSpoolRead(spool, LoadRow, &l);
	PipeannTeamMeet(team);
}

static void
Unload(PipeannTeam *team, PipeannRows *rows)
{
	PipeannTeamFree(team, (void *) rows->vectors.data);
	if (rows->vectors.aux != NULL)
		PipeannTeamFree(team, (void *) rows->vectors.aux);
	if (rows->roundings != NULL)
		PipeannTeamFree(team, rows->roundings);
	PipeannTeamFree(team, rows->tids);
	PipeannTeamFree(team, rows->hash);
	if (rows->values_at != NULL)
		PipeannTeamFree(team, rows->values_at);
}

/* ---------- equal vectors ---------- */

/* A hash table of the different vectors of one part. */
typedef struct Table
{
	const PipeannRows *rows;
	uint32	   *slots;			/* rows, or INVALID */
	uint32		size;			/* a power of 2 */
	uint32		used;
	int			twins;			/* the most passed at once */
} Table;

static bool
AreTwins(const PipeannRows *rows, uint32 a, uint32 b)
{
	return rows->roundings != NULL &&
		rows->roundings[a].hash != rows->roundings[b].hash;
}

/* The slot of a vector equal to that of a row, or the empty slot for it. */
static uint32
FindSlot(Table *t, uint32 row)
{
	const PipeannVectors *v = &t->rows->vectors;
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
		if (!AreTwins(t->rows, row, other))
			break;
		twins++;
	}
	t->twins = Max(t->twins, twins);
	return at;
}

static void
GrowTable(Table *t)
{
	uint32	   *former = t->slots;
	uint32		size = t->size;

	t->size = size * 2;
	t->slots = PipeannAlloc(mul_size(t->size, sizeof(uint32)));
	memset(t->slots, 0xFF, mul_size(t->size, sizeof(uint32)));
	for (uint32 i = 0; i < size; i++)
		if (former[i] != PIPEANN_INVALID_ID)
			t->slots[FindSlot(t, former[i])] = former[i];
	pfree(former);
}

/*
 * Find equal vectors among the rows of one part. Returns the most twins of a
 * vector; ends early beyond PIPEANN_MOST_TWINS, which make it slow.
 */
static int
FindEqualOfPart(PipeannRows *rows, uint32 part, uint32 parts)
{
	Table		t = {.rows = rows,.size = FIRST_SLOTS};

	t.slots = PipeannAlloc(mul_size(t.size, sizeof(uint32)));
	memset(t.slots, 0xFF, mul_size(t.size, sizeof(uint32)));
	for (uint32 row = 0; row < rows->vectors.n && t.twins <= PIPEANN_MOST_TWINS; row++)
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
			GrowTable(&t);
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
	int		   *twins = PipeannTeamAlloc(team, mul_size(parts, sizeof(int)));
	int			most = 0;
	uint64		from;
	uint64		to;

	rows->again = PipeannTeamAlloc(team, n);
	rows->number = PipeannTeamAlloc(team, mul_size(n, sizeof(uint32)));
	PipeannTeamBegin(team, parts, 1);
	while (PipeannTeamNext(team, &from, &to))
		twins[from] = FindEqualOfPart(rows, (uint32) from, parts);
	PipeannTeamEnd(team);
	for (uint32 i = 0; i < parts; i++)
		most = Max(most, twins[i]);
	rows->distinct = n;
	for (uint32 row = 0; row < n; row++)
		rows->distinct -= rows->again[row];
	PipeannTeamFree(team, twins);
	return most;
}

/* ---------- the storage ---------- */

static PipeannStorage
FirstChoice(const PipeannSpool *s)
{
	if (s->wanted != PIPEANN_STORAGE_AUTO)
		return s->wanted;
	if (s->stats.rows < PIPEANN_MIN_JUDGED)
		return PIPEANN_FLOAT4;
	if (s->stats.fits[PIPEANN_UINT8])
		return PIPEANN_UINT8;
	if (s->stats.fits[PIPEANN_INT8])
		return PIPEANN_INT8;
	if (s->stats.fits[PIPEANN_FLOAT2] && s->dim >= PIPEANN_MIN_HALF_DIM)
		return PIPEANN_FLOAT2;
	return PIPEANN_FLOAT4;
}

void
PipeannRowsLoad(PipeannTeam *team, PipeannSpool *s, PipeannRows *rows)
{
	PipeannStorage storage = FirstChoice(s);
	bool		unfit;
	int			twins;

	memset(rows, 0, sizeof(*rows));
	rows->auto_storage = s->wanted == PIPEANN_STORAGE_AUTO;
	Load(team, s, storage, rows);
	twins = FindEqual(team, rows);
	if (!rows->auto_storage || storage == PIPEANN_FLOAT4)
		return;
	unfit = rows->distinct < PIPEANN_MIN_JUDGED ||
		(storage == PIPEANN_FLOAT2 &&
		 (twins > PIPEANN_MOST_TWINS || PipeannIsFarFromZero(&rows->vectors)));
	if (!unfit)
		return;
	PipeannTeamFree(team, rows->again);
	PipeannTeamFree(team, rows->number);
	PipeannTeamMeet(team);
	Unload(team, rows);
	if (rows->values != NULL)
		PipeannTeamFree(team, rows->values);
	Load(team, s, PIPEANN_FLOAT4, rows);
	(void) FindEqual(team, rows);
}

/* ---------- nodes ---------- */

static void
AllocateNodes(PipeannTeam *team, const PipeannRows *rows,
			  PipeannCollection *c, PipeannVectors *nodes)
{
	uint32		n = rows->distinct;

	*nodes = rows->vectors;
	nodes->n = n;
	nodes->data = PipeannTeamAlloc(team, mul_size(n, nodes->stride));
	if (nodes->aux != NULL)
		nodes->aux = PipeannTeamAlloc(team, mul_size(n, sizeof(float)));
	memset(c, 0, sizeof(*c));
	c->dim = nodes->dim;
	c->metric = nodes->metric;
	c->auto_storage = rows->auto_storage;
	c->storage = nodes->storage;
	c->stride = nodes->stride;
	c->max_norm = nodes->max_norm;
	c->n = n;
	c->data = (char *) nodes->data;
	c->tids = PipeannTeamAlloc(team, mul_size(n, sizeof(ItemPointerData)));
	c->dup_heads = PipeannTeamAlloc(team, mul_size(n, sizeof(uint32)));
	c->dups = PipeannTeamAlloc(team, mul_size(rows->vectors.n - n,
											  sizeof(PipeannDuplicate)));
	if (rows->roundings != NULL)
		c->roundings = PipeannTeamAlloc(team, mul_size(n,
													   sizeof(PipeannRounding)));
	if (rows->values == NULL)
		return;
	c->values = rows->values;
	c->values_at = PipeannTeamAlloc(team, mul_size(n, sizeof(uint64)));
	c->dup_values_at = PipeannTeamAlloc(team, mul_size(rows->vectors.n - n,
													   sizeof(uint64)));
}

static void
MoveRow(const PipeannRows *rows, uint32 row, PipeannCollection *c,
		PipeannVectors *nodes)
{
	uint32		node = rows->number[row];

	memcpy(c->data + (Size) node * c->stride,
		   PipeannVectorAt(&rows->vectors, row), c->stride);
	c->tids[node] = rows->tids[row];
	c->dup_heads[node] = PIPEANN_INVALID_ID;
	if (nodes->aux != NULL)
		((float *) nodes->aux)[node] = rows->vectors.aux[row];
	if (c->roundings != NULL)
		c->roundings[node] = rows->roundings[row];
	if (c->values != NULL)
		c->values_at[node] = rows->values_at[row];
}

/* The other rows of each vector. */
static void
LinkDuplicates(const PipeannRows *rows, PipeannCollection *c)
{
	for (uint32 row = 0; row < rows->vectors.n; row++)
	{
		uint32		node;

		if (row % PART_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		if (!rows->again[row])
			continue;
		node = rows->number[rows->number[row]];
		c->dups[c->ndups].tid = rows->tids[row];
		c->dups[c->ndups].next = c->dup_heads[node];
		if (c->values != NULL)
			c->dup_values_at[c->ndups] = rows->values_at[row];
		c->dup_heads[node] = c->ndups++;
	}
}

PipeannClusters *
PipeannRowsToNodes(PipeannTeam *team, PipeannRows *rows, uint64 seed,
				   PipeannCollection *c, PipeannVectors *nodes)
{
	PipeannClusters *clusters = PipeannClustersNew(team, &rows->vectors,
												   rows->again, seed,
												   rows->number);
	uint64		from;
	uint64		to;

	AllocateNodes(team, rows, c, nodes);
	PipeannTeamBegin(team, rows->vectors.n, RUN);
	while (PipeannTeamNext(team, &from, &to))
		for (uint32 row = from; row < to; row++)
			if (!rows->again[row])
				MoveRow(rows, row, c, nodes);
	PipeannTeamEnd(team);
	if (PipeannTeamLeads(team))
		LinkDuplicates(rows, c);
	PipeannTeamMeet(team);
	return clusters;
}

void
PipeannRowsFree(PipeannTeam *team, PipeannRows *rows)
{
	Unload(team, rows);
	PipeannTeamFree(team, rows->again);
	PipeannTeamFree(team, rows->number);
}
