/*
 * collect.c
 *		Gathering a table's vectors for a build.
 *
 * Vectors are kept as they will be stored. With storage = auto they start as
 * bytes; the first one that bytes cannot hold widens all that are there, once
 * or twice in a build. Equal vectors are kept once, with all their rows.
 */
#include "postgres.h"

#include <math.h>

#include "am/collect.h"
#include "common/hashfn.h"
#include "kernel/kernel.h"

#define FIRST_SIZE 1024

/*
 * That fewer vectors than this fit bytes says nothing of those to come: with
 * all of them rounded, a search could not tell one from the other.
 */
#define MIN_BYTE_VECTORS 1000

static void *
Grow(void *array, uint32 n, Size element)
{
	Size		size = mul_size(n, element);

	return array == NULL ? PipeannAlloc(size) : PipeannRealloc(array, size);
}

static void
GrowTable(PipeannCollection *c, uint32 slots)
{
	if (c->table != NULL)
		pfree(c->table);
	c->table = PipeannAlloc(mul_size(slots, sizeof(uint32)));
	c->table_mask = slots - 1;
}

void
PipeannCollectionInit(PipeannCollection *c, int dim, PipeannMetric metric,
					  PipeannStorage storage)
{
	memset(c, 0, sizeof(*c));
	c->dim = dim;
	c->metric = metric;
	c->auto_storage = storage == PIPEANN_STORAGE_AUTO;
	c->storage = c->auto_storage ? PIPEANN_UINT8 : storage;
	c->stride = mul_size(dim, PipeannElementSize(c->storage));
	c->scratch = palloc(mul_size(dim, sizeof(float)));
	c->min = INFINITY;
	c->max = -INFINITY;
}

static char *
At(const PipeannCollection *c, uint32 i)
{
	return c->data + (Size) i * c->stride;
}

static uint32
HashOf(const PipeannCollection *c, const char *vector)
{
	return hash_bytes((const unsigned char *) vector, (int) c->stride);
}

/*
 * Position in the table of an equal vector, or of the empty place for it.
 */
static uint32
FindEqual(const PipeannCollection *c, const char *vector)
{
	uint32		at = HashOf(c, vector) & c->table_mask;

	while (c->table[at] != PIPEANN_INVALID_ID &&
		   memcmp(At(c, c->table[at]), vector, c->stride) != 0)
		at = (at + 1) & c->table_mask;
	return at;
}

static void
Rehash(PipeannCollection *c)
{
	memset(c->table, 0xFF, mul_size((Size) c->table_mask + 1, sizeof(uint32)));
	for (uint32 i = 0; i < c->n; i++)
	{
		if (i % 1024 == 0)
			CHECK_FOR_INTERRUPTS();
		c->table[FindEqual(c, At(c, i))] = i;
	}
}

static void
MakeRoom(PipeannCollection *c)
{
	if (c->n < c->size)
		return;
	if (c->size > PG_UINT32_MAX / 4)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many rows for a pipeann index")));
	c->size = c->size == 0 ? FIRST_SIZE : c->size * 2;
	c->data = Grow(c->data, c->size, c->stride);
	c->norms = Grow(c->norms, c->size, sizeof(double));
	c->tids = Grow(c->tids, c->size, sizeof(ItemPointerData));
	c->dup_heads = Grow(c->dup_heads, c->size, sizeof(uint32));
	GrowTable(c, c->size * 2);
	Rehash(c);
}

/*
 * Convert what is there to a wider storage.
 */
static void
Widen(PipeannCollection *c, PipeannStorage storage)
{
	Size		stride = mul_size(c->dim, PipeannElementSize(storage));
	char	   *data = Grow(NULL, Max(c->size, 1), stride);
	float	   *x = palloc(mul_size(c->dim, sizeof(float)));

	for (uint32 i = 0; i < c->n; i++)
	{
		if (i % 1024 == 0)
			CHECK_FOR_INTERRUPTS();
		PipeannVectorToFloat(At(c, i), c->storage, c->dim, x);
		PipeannVectorFromFloat(x, storage, c->dim, data + (Size) i * stride);
	}
	pfree(x);
	if (c->data != NULL)
		pfree(c->data);
	c->data = data;
	c->storage = storage;
	c->stride = stride;
	if (c->table != NULL)
		Rehash(c);
}

/*
 * Bytes if they can hold all seen so far and x, else floats.
 */
static void
ChooseStorage(PipeannCollection *c, const float *x)
{
	for (int i = 0; i < c->dim; i++)
	{
		c->min = Min(c->min, x[i]);
		c->max = Max(c->max, x[i]);
	}
	if (c->storage == PIPEANN_FLOAT4 ||
		PipeannVectorFits(x, c->storage, c->dim))
		return;
	if (c->storage == PIPEANN_UINT8 && c->min >= -128 && c->max <= 127 &&
		PipeannVectorFits(x, PIPEANN_INT8, c->dim))
		Widen(c, PIPEANN_INT8);
	else
		Widen(c, PIPEANN_FLOAT4);
}

/*
 * A storage that the user chose is kept to; half precision rounds, whole
 * numbers do not.
 */
static void
RequireFit(const PipeannCollection *c, const float *x)
{
	if (c->storage == PIPEANN_FLOAT2 ||
		PipeannVectorFits(x, c->storage, c->dim))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
			 errmsg("vector does not fit the index's storage"),
			 errdetail("Storage int8 holds whole numbers from -128 to 127, uint8 from 0 to 255."),
			 errhint("Use storage = auto or float4.")));
}

void
PipeannCollectionAddTid(PipeannCollection *c, uint32 i,
						const ItemPointerData *tid)
{
	if (c->ndups == c->dups_size)
	{
		c->dups_size = Max(FIRST_SIZE, c->dups_size * 2);
		c->dups = Grow(c->dups, c->dups_size, sizeof(PipeannDuplicate));
	}
	c->dups[c->ndups].tid = *tid;
	c->dups[c->ndups].next = c->dup_heads[i];
	c->dup_heads[i] = c->ndups++;
}

uint32
PipeannCollectionAdd(PipeannCollection *c, const float *x, double norm,
					 ItemPointer tid)
{
	uint32		at;

	if (c->auto_storage)
		ChooseStorage(c, x);
	else
		RequireFit(c, x);
	MakeRoom(c);
	PipeannVectorFromFloat(x, c->storage, c->dim, c->scratch);
	at = FindEqual(c, c->scratch);
	if (c->table[at] != PIPEANN_INVALID_ID)
	{
		PipeannCollectionAddTid(c, c->table[at], tid);
		return c->table[at];
	}
	c->table[at] = c->n;
	memcpy(At(c, c->n), c->scratch, c->stride);
	c->norms[c->n] = norm;
	c->max_norm = Max(c->max_norm, norm);
	c->tids[c->n] = *tid;
	c->dup_heads[c->n] = PIPEANN_INVALID_ID;
	return c->n++;
}

Size
PipeannCollectionMemory(const PipeannCollection *c)
{
	Size		per_vector = c->stride + sizeof(double) +
		sizeof(ItemPointerData) + 3 * sizeof(uint32);

	return add_size(mul_size(c->size, per_vector),
					mul_size(c->dups_size, sizeof(PipeannDuplicate)));
}

void
PipeannCollectionVectors(const PipeannCollection *c, PipeannVectors *vectors)
{
	float	   *aux = NULL;

	if (c->metric != PIPEANN_L2)
	{
		aux = Grow(NULL, Max(c->n, 1), sizeof(float));
		for (uint32 i = 0; i < c->n; i++)
			aux[i] = PipeannAux(c->metric, c->norms[i], (float) c->max_norm);
	}
	vectors->n = c->n;
	vectors->dim = c->dim;
	vectors->storage = c->storage;
	vectors->metric = c->metric;
	vectors->data = c->data;
	vectors->stride = c->stride;
	vectors->aux = aux;
	vectors->max_norm = (float) c->max_norm;
}

uint32
PipeannCollectionExtraTids(const PipeannCollection *c, uint32 i)
{
	uint32		n = 0;

	for (uint32 at = c->dup_heads[i]; at != PIPEANN_INVALID_ID;
		 at = c->dups[at].next)
		n++;
	return n;
}

void
PipeannCollectionFinish(PipeannCollection *c)
{
	if (c->auto_storage && c->n < MIN_BYTE_VECTORS &&
		c->storage != PIPEANN_FLOAT4)
		Widen(c, PIPEANN_FLOAT4);
	if (c->table != NULL)
		pfree(c->table);
	c->table = NULL;
}

static void
FreeArray(void *array)
{
	if (array != NULL)
		pfree(array);
}

void
PipeannCollectionFree(PipeannCollection *c)
{
	FreeArray(c->data);
	FreeArray(c->norms);
	FreeArray(c->tids);
	FreeArray(c->dup_heads);
	FreeArray(c->dups);
	FreeArray(c->table);
	pfree(c->scratch);
	memset(c, 0, sizeof(*c));
}
