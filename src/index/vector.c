/*
 * vector.c
 *		The vector that the index stores and searches for, and what half precision and
 *		bytes lose of it.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "access/heaptoast.h"
#include "base/metric.h"
#include "index/index.h"
#include "fmgr.h"
#include "distance/sparse.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/* The metric of an index's operator class. */
PipeannMetric
PipeannIndexMetric(Relation index)
{
	FmgrInfo   *proc = index_getprocinfo(index, PipeannVectorPosition(index) + 1,
										 PIPEANN_METRIC_PROC);
	int			metric = DatumGetInt32(FunctionCall0Coll(proc, InvalidOid));

	if (!PipeannIsMetric(metric))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("operator class of index \"%s\" has an unknown metric %d",
						RelationGetRelationName(index), metric)));
	return metric == PIPEANN_L1 && PipeannIndexType(index) == PIPEANN_SPARSEVEC_L1 ?
		PIPEANN_SPARSE_L1 : metric;
}

/* Euclidean norm. */
double
PipeannNorm(const float *x, int dim)
{
	double		sum = 0;

	for (int i = 0; i < dim; i++)
		sum += (double) x[i] * x[i];
	return sqrt(sum);
}

/* The aux of a slot for a vector of this norm (see storage/slot.h). */
float
PipeannAux(PipeannMetric metric, double norm, float max_norm)
{
	double		rest;

	switch (metric)
	{
		case PIPEANN_COSINE:
			return norm > 0 ? (float) (1 / Max(norm, PIPEANN_LEAST_NORM)) : 0;
		case PIPEANN_IP:
			rest = (double) max_norm * max_norm - norm * norm;
			return rest > 0 ? (float) sqrt(rest) : 0;
		default:
			return 0;
	}
}

/* out[dim] = x / |x|; shorter if its aux is. */
static void
Normalize(const float *x, int dim, float *out)
{
	double		norm = Max(PipeannNorm(x, dim), PIPEANN_LEAST_NORM);

	for (int i = 0; i < dim; i++)
		out[i] = (float) (x[i] / norm);
}

/*
 * The query of searches for a whole vector: a copy at to, which may be x, with a length
 * of 1 for cosine.
 */
void
PipeannQueryOf(const PipeannLayout *l, const float *x, float *to)
{
	int			floats = PipeannFloatsOf(l->storage, l->dim, x);

	if (l->metric != PIPEANN_COSINE)
	{
		memmove(to, x, mul_size(floats, sizeof(float)));
		return;
	}
	Normalize(x, l->dim, to);
	if (PipeannIsSparse(l->storage))
		PipeannSparseNormalize(PipeannSparseBehind(x), PipeannSparseBehind(to));
}

/*
 * Whether the table has most of the vectors in TOAST.
 *
 * They are narrower in the table's pages than vectors are. Without statistics it
 * is taken that those are in TOAST that a page's share of a row has no room for. An
 * index on an expression has no column that the table could have there.
 */
bool
PipeannVectorsInToast(Relation index)
{
	AttrNumber	column = PipeannVectorColumn(index);
	int			whole = (int) PipeannValueBytes(PipeannIndexType(index),
												PipeannIndexDimensions(index));
	int			stored;

	if (column == 0 || PipeannIsOfSparse(PipeannIndexType(index)))
		return false;
	stored = get_attavgwidth(index->rd_index->indrelid, column);
	return stored > 0 ? stored < whole / 2 :
		whole > (int) TOAST_TUPLE_THRESHOLD;
}

/*
 * What storage loses of a vector.
 *
 * Half-precision values take half the room of floats, so that twice as many
 * nodes share a page, and rarely change the order of rows; quantised ones of 12 to 14
 * bits take less, where more nodes share a page then. What they lose is
 * kept as a bound (PipeannRounding). Where the bound says so, the executor
 * compares the rows' own vectors (scan/stream.c).
 *
 * Bytes hold whole numbers, but for the sign of zero: no distance tells 0 and -0
 * apart, but a query that returns the vector must return the row's own (src/README).
 */

/*
 * The most that a vector may lose for half precision to suit it, relative to its
 * norm: twice as much as rounding to 11 bits loses. The same suits vectors of which
 * scalar quantisation to 12 bits loses twice the usual.
 */
#define MOST_LOST (1.0 / 1024)

/* Longer vectors are not rounded: the squares of their errors would be no floats. */
#define MOST_NORM 1e22

/* Elements of half precision that are looked at together. */
#define BLOCK 64

/* Euclidean distance of a vector from its form in a storage that rounds. */
static double
Lost(const float *x, const char *form, PipeannStorage storage, int dim)
{
	int			block = storage == PIPEANN_FLOAT2 ? BLOCK : dim;
	double		sum[2] = {0};

	for (int i = 0; i < dim; i += block)
	{
		int			n = Min(dim - i, block);
		float		rounded[PIPEANN_SQ_MAX_DIM];

		PipeannVectorToFloat(form + i * sizeof(uint16), storage, n, rounded);
		for (int k = 0; k < n; k++)
		{
			double		lost = (double) x[i + k] - rounded[k];

			sum[k & 1] += lost * lost;
		}
	}
	return sqrt(sum[0] + sum[1]);
}

/*
 * The upper 16 bits of a float that is no less than value; 0 if that is too
 * large.
 */
static uint16
UpperHalf(double value)
{
	float		f = (float) value;
	uint32		bits;

	if (!(value < FLT_MAX / 2))
		return 0;
	memcpy(&bits, &f, sizeof(bits));
	/* + 1, as the conversion may have rounded down */
	return (uint16) ((bits >> 16) + 1);
}

/*
 * The hash of a PipeannRounding.
 *
 * Zeroes of both signs have one hash.
 */
static uint32
VectorHash(const float *x, int dim)
{
	uint64		hash = 0;

	for (int i = 0; i < dim; i++)
	{
		float		f = x[i] + 0.0f;
		uint32		bits;

		memcpy(&bits, &f, sizeof(bits));
		hash = (hash ^ bits) * UINT64CONST(0x9E3779B97F4A7C15);
		hash ^= hash >> 29;
	}
	return (uint32) (hash >> 32) ^ (uint32) hash;
}

/* The same of a whole vector of an index with this storage. */
uint32
PipeannHashOf(PipeannStorage storage, const float *x, int dim)
{
	const void *form = PipeannSparseBehind(x);

	return PipeannIsSparse(storage) ?
		VectorHash(form, PipeannSparseWords(form)) :
		VectorHash(x, dim);
}

/*
 * Set *rounding to what x[dim] with this norm has lost in its form, in a storage that
 * rounds. Errors if that does not hold it, which only a storage that the user chose may not.
 */
void
PipeannRound(const float *x, double norm, const void *form,
			 PipeannStorage storage, int dim, PipeannRounding *rounding)
{
	double		lost = Lost(x, form, storage, dim);

	if (norm > MOST_NORM || !isfinite(lost))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("vector does not fit the index's storage"),
				 errdetail("Storage float2 holds numbers up to 65504, sq12 to sq14 vectors of a length up to 1e22."),
				 errhint("Use storage = auto or float4.")));
	rounding->error = UpperHalf(lost + PIPEANN_ARITHMETIC_ERROR(dim) * norm);
	rounding->hash = VectorHash(x, dim);
}

static bool
IsOfBytes(const PipeannLayout *l)
{
	return l->storage == PIPEANN_INT8 || l->storage == PIPEANN_UINT8;
}

/* Whether an element of x[dim] is -0, which bytes cannot hold. */
bool
PipeannHasNegativeZero(const float *x, int dim)
{
	for (int i = 0; i < dim; i++)
		if (x[i] == 0 && signbit(x[i]))
			return true;
	return false;
}

/*
 * Whether a vector has to be out of line, as it does not suit the storage.
 *
 * Half precision or quantisation that the user chose rounds every vector.
 */
bool
PipeannIsOutOfLine(const PipeannMeta *meta, const float *x, double norm)
{
	const PipeannLayout *l = &meta->layout;

	if (PipeannIsSparse(l->storage))
		return PipeannSparseOf(PipeannSparseBehind(x)).n >
			PipeannSparseRoom(l->storage);
	if (PipeannIsRounding(l->storage) &&
		!(meta->flags & PIPEANN_META_AUTO_STORAGE))
		return false;
	if (IsOfBytes(l) && (meta->flags & PIPEANN_META_SIGNED_ZEROS) &&
		PipeannHasNegativeZero(x, l->dim))
		return true;
	return !PipeannIsStorable(x, norm, l->storage, l->dim);
}

static bool
HasZero(const float *x, int dim)
{
	for (int i = 0; i < dim; i++)
		if (x[i] == 0)
			return true;
	return false;
}

/* The exact distance of a whole vector, with its aux, from the query of a search. */
float
PipeannWholeDistance(const PipeannLayout *l, const float *query, const float *x,
					 float aux)
{
	PipeannStorage form = PipeannWholeForm(l);
	float		bits[2][PIPEANN_MAX_BITS / BITS_PER_BYTE / sizeof(float)];

	return PipeannExactDistance(l, PipeannQueryFor(form, query, l->dim, bits[0]),
								PipeannQueryFor(form, x, l->dim, bits[1]), form, aux);
}

/*
 * Set x to the whole vector in a node's slot. False if that need not be the rows' own to
 * the last bit.
 */
bool
PipeannExactVector(const PipeannMeta *meta, const PipeannSlot *slot, float *x)
{
	const PipeannLayout *l = &meta->layout;

	if (PipeannIsRounded(l) || (slot->flags & PIPEANN_SLOT_OUT_OF_LINE))
		return false;
	PipeannVectorUnpack(PipeannSlotVector(l, slot), l->storage, l->dim, x);
	return (meta->flags & PIPEANN_META_SIGNED_ZEROS) ||
		!HasZero(x, l->dim);
}

/* Whether x[dim] suits a storage; integers have to hold it exactly. */
bool
PipeannIsStorable(const float *x, double norm, PipeannStorage storage, int dim)
{
	char		form[PIPEANN_MAX_DIM * sizeof(uint16)];

	if (!PipeannIsRounding(storage))
		return PipeannVectorFits(x, storage, dim);
	PipeannVectorFromFloat(x, storage, dim, form);
	return norm <= MOST_NORM && Lost(x, form, storage, dim) <= norm * MOST_LOST;
}
