/*
 * collect.c
 *		Collecting a table's vectors in memory for a build.
 *
 * Vectors are kept in the form in which they will be stored. With storage =
 * auto they start as bytes; the first vector that bytes cannot hold has all of
 * them converted, which happens once or twice in a build. Floats become
 * half-precision values when there are enough vectors to judge; if a vector
 * comes later that half precision does not suit, all have to be collected
 * again. Equal vectors are kept once, with all their rows. "Twins" are vectors
 * that are equal in half precision but not before.
 */
#include "postgres.h"

#include <math.h>

#include "build/build.h"
#include "common/hashfn.h"
#include "distance/distance.h"

#define FIRST_SIZE 1024

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
					  PipeannStorage storage, bool half_precision)
{
	memset(c, 0, sizeof(*c));
	c->dim = dim;
	c->metric = metric;
	c->auto_storage = storage == PIPEANN_STORAGE_AUTO;
	c->storage = c->auto_storage ? PIPEANN_UINT8 : storage;
	c->half_unfit = !half_precision;
	c->few_twins = c->auto_storage && half_precision;
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

/* If few_twins is set twins hash alike, so that they are counted. */
static uint32
HashOf(const PipeannCollection *c, const char *vector,
	   const PipeannRounding *rounding)
{
	uint32		hash = hash_bytes((const unsigned char *) vector,
								  (int) c->stride);

	return c->roundings == NULL || c->few_twins ? hash :
		hash ^ rounding->hash;
}

/*
 * The place in the table of an equal vector, or the empty place for it. Sets
 * *twins to the number of twins passed on the way.
 */
static uint32
FindEqual(const PipeannCollection *c, const char *vector,
		  const PipeannRounding *rounding, int *twins)
{
	uint32		at = HashOf(c, vector, rounding) & c->table_mask;

	*twins = 0;
	for (; c->table[at] != PIPEANN_INVALID_ID; at = (at + 1) & c->table_mask)
	{
		uint32		i = c->table[at];

		if (memcmp(At(c, i), vector, c->stride) != 0)
			continue;
		if (c->roundings == NULL || c->roundings[i].hash == rounding->hash)
			break;
		(*twins)++;
	}
	return at;
}

static const PipeannRounding *
RoundingOf(const PipeannCollection *c, uint32 i)
{
	return c->roundings != NULL ? &c->roundings[i] : NULL;
}

static void
Rehash(PipeannCollection *c)
{
	int			twins;

	memset(c->table, 0xFF, mul_size((Size) c->table_mask + 1, sizeof(uint32)));
	for (uint32 i = 0; i < c->n; i++)
	{
		if (i % 1024 == 0)
			CHECK_FOR_INTERRUPTS();
		c->table[FindEqual(c, At(c, i), RoundingOf(c, i), &twins)] = i;
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
	if (c->storage == PIPEANN_FLOAT2)
		c->roundings = Grow(c->roundings, c->size, sizeof(PipeannRounding));
	c->norms = Grow(c->norms, c->size, sizeof(double));
	c->tids = Grow(c->tids, c->size, sizeof(ItemPointerData));
	c->dup_heads = Grow(c->dup_heads, c->size, sizeof(uint32));
	if (c->has_values)
		c->values_at = Grow(c->values_at, c->size, sizeof(uint64));
	GrowTable(c, c->size * 2);
	Rehash(c);
}

/* Convert all vectors to another storage, which can hold them. */
static void
Convert(PipeannCollection *c, PipeannStorage storage)
{
	Size		stride = mul_size(c->dim, PipeannElementSize(storage));
	char	   *data = Grow(NULL, Max(c->size, 1), stride);
	float	   *x = palloc(mul_size(c->dim, sizeof(float)));

	if (storage == PIPEANN_FLOAT2)
		c->roundings = Grow(NULL, Max(c->size, 1), sizeof(PipeannRounding));
	for (uint32 i = 0; i < c->n; i++)
	{
		if (i % 1024 == 0)
			CHECK_FOR_INTERRUPTS();
		PipeannVectorToFloat(At(c, i), c->storage, c->dim, x);
		PipeannVectorFromFloat(x, storage, c->dim, data + (Size) i * stride);
		if (c->roundings != NULL)
			(void) PipeannRound(x, c->norms[i], c->dim, &c->roundings[i]);
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

/* Whole numbers that are the rounding of another vector do not fit bytes. */
static bool
FitsBytes(const PipeannCollection *c, const float *x, PipeannStorage storage,
		  const PipeannRounding *known)
{
	return PipeannVectorFits(x, storage, c->dim) &&
		!(c->signed_zeros && PipeannHasNegativeZero(x, c->dim)) &&
		(known == NULL || known->hash == PipeannVectorHash(x, c->dim));
}

/* The same of the first vectors, which are all that are known so far. */
static bool
AreFarFromZero(const PipeannCollection *c)
{
	float		aux[PIPEANN_MIN_JUDGED];
	PipeannVectors v = {
		.n = PIPEANN_MIN_JUDGED,.dim = c->dim,.storage = c->storage,
		.metric = c->metric,.data = c->data,.stride = c->stride,.aux = aux
	};

	for (uint32 i = 0; i < v.n; i++)
		aux[i] = PipeannAux(c->metric, c->norms[i], (float) c->max_norm);
	return PipeannIsFarFromZero(&v);
}

/* Half precision as soon as PIPEANN_MIN_JUDGED vectors show that it suits them. */
static PipeannStorage
ChooseFloatStorage(PipeannCollection *c, const float *x, double norm,
				   const PipeannRounding *known)
{
	if (known != NULL)
		return PIPEANN_FLOAT2;
	c->half_unfit |= c->dim < PIPEANN_MIN_HALF_DIM ||
		!PipeannIsStorable(x, norm, PIPEANN_FLOAT2, c->dim);
	if (c->half_unfit || c->n < PIPEANN_MIN_JUDGED)
		return PIPEANN_FLOAT4;
	c->half_unfit = AreFarFromZero(c);
	return c->half_unfit ? PIPEANN_FLOAT4 : PIPEANN_FLOAT2;
}

/* Convert to a storage that holds all vectors so far and x. */
static void
ChooseStorage(PipeannCollection *c, const float *x, double norm,
			  const PipeannRounding *known)
{
	PipeannStorage storage = c->storage;

	if (storage == PIPEANN_FLOAT2 ||
		(storage == PIPEANN_FLOAT4 && c->half_unfit))
		return;
	for (int i = 0; i < c->dim; i++)
	{
		c->min = Min(c->min, x[i]);
		c->max = Max(c->max, x[i]);
	}
	if (storage == PIPEANN_FLOAT4)
		storage = ChooseFloatStorage(c, x, norm, known);
	else if (FitsBytes(c, x, storage, known))
		return;
	else if (storage == PIPEANN_UINT8 && c->min >= -128 && c->max <= 127 &&
			 FitsBytes(c, x, PIPEANN_INT8, known))
		storage = PIPEANN_INT8;
	else
		storage = ChooseFloatStorage(c, x, norm, known);
	if (storage != c->storage)
		Convert(c, storage);
}

/* Keep a row with values; returns where. */
static uint64
KeepValues(PipeannCollection *c, const PipeannRow *row)
{
	Size		size = row->info & PIPEANN_ROW_SIZE;
	Size		at = c->values_bytes;

	if (at + size > c->values_size)
	{
		c->values_size = Max(FIRST_SIZE * 64, mul_size(c->values_size, 2));
		c->values = c->values == NULL ? PipeannAlloc(c->values_size) :
			PipeannRealloc(c->values, c->values_size);
	}
	memcpy(c->values + at, row, size);
	c->values_bytes += size;
	return at;
}

void
PipeannCollectionAddRow(PipeannCollection *c, uint32 i, const PipeannRow *row)
{
	if (c->ndups == c->dups_size)
	{
		c->dups_size = Max(FIRST_SIZE, c->dups_size * 2);
		c->dups = Grow(c->dups, c->dups_size, sizeof(PipeannDuplicate));
		if (c->has_values)
			c->dup_values_at = Grow(c->dup_values_at, c->dups_size,
									sizeof(uint64));
	}
	c->dups[c->ndups].tid = row->tid;
	if (c->has_values)
		c->dup_values_at[c->ndups] = KeepValues(c, row);
	c->dups[c->ndups].next = c->dup_heads[i];
	c->dup_heads[i] = c->ndups++;
}

/* Sets *rounding for half precision. False if it loses too much. */
static bool
TakeRounding(const PipeannCollection *c, const float *x, double norm,
			 const PipeannRounding *known, PipeannRounding *rounding)
{
	if (c->storage != PIPEANN_FLOAT2)
		return true;
	if (known == NULL)
		return PipeannRound(x, norm, c->dim, rounding);
	*rounding = *known;
	return true;
}

static uint32
AddVector(PipeannCollection *c, double norm, const PipeannRounding *rounding,
		  const PipeannRow *row)
{
	memcpy(At(c, c->n), c->scratch, c->stride);
	if (c->roundings != NULL)
		c->roundings[c->n] = *rounding;
	c->norms[c->n] = norm;
	c->max_norm = Max(c->max_norm, norm);
	c->tids[c->n] = row->tid;
	if (c->has_values)
		c->values_at[c->n] = KeepValues(c, row);
	c->dup_heads[c->n] = PIPEANN_INVALID_ID;
	return c->n++;
}

uint32
PipeannCollectionAdd(PipeannCollection *c, const float *x, double norm,
					 const PipeannRounding *known, const PipeannRow *row)
{
	PipeannRounding rounding = {0};
	int			twins;
	uint32		at;

	if (c->auto_storage)
		ChooseStorage(c, x, norm, known);
	else
		PipeannRequireFit(c->storage, x, c->dim);
	c->lost |= !TakeRounding(c, x, norm, known, &rounding) && c->auto_storage;
	if (c->lost)
		return PIPEANN_INVALID_ID;
	MakeRoom(c);
	PipeannVectorFromFloat(x, c->storage, c->dim, c->scratch);
	at = FindEqual(c, c->scratch, &rounding, &twins);
	c->lost = c->few_twins && twins > PIPEANN_MOST_TWINS;
	if (c->lost)
		return PIPEANN_INVALID_ID;
	if (c->table[at] != PIPEANN_INVALID_ID)
	{
		PipeannCollectionAddRow(c, c->table[at], row);
		return c->table[at];
	}
	c->table[at] = c->n;
	return AddVector(c, norm, &rounding, row);
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

void
PipeannCollectionFinish(PipeannCollection *c)
{
	if (c->auto_storage && c->n < PIPEANN_MIN_JUDGED &&
		c->storage != PIPEANN_FLOAT4 && c->storage != PIPEANN_FLOAT2)
		Convert(c, PIPEANN_FLOAT4);
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
	FreeArray(c->roundings);
	FreeArray(c->norms);
	FreeArray(c->tids);
	FreeArray(c->dup_heads);
	FreeArray(c->dups);
	FreeArray(c->values);
	FreeArray(c->values_at);
	FreeArray(c->dup_values_at);
	FreeArray(c->table);
	pfree(c->scratch);
	memset(c, 0, sizeof(*c));
}
