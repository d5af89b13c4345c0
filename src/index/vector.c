/*
 * vector.c
 *		From a value of an indexed column to the vector that the index stores and searches
 *		for, and back; what half precision and bytes lose of it.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "access/htup_details.h"
#include "access/transam.h"
#include "base/metric.h"
#include "catalog/pg_type.h"
#include "distance/sparse.h"
#include "index/index.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* ---------- from a value of an indexed column to its vector, and back ---------- */

const PipeannTypeInfo PipeannTypes[PIPEANN_NUM_TYPES] = {
	[PIPEANN_VECTOR] = {"vector", PIPEANN_FLOAT4, PIPEANN_MAX_DIM},
	[PIPEANN_HALFVEC] = {"halfvec", PIPEANN_FLOAT2, PIPEANN_MAX_DIM},
	[PIPEANN_BIT] = {"bit", PIPEANN_BITS, PIPEANN_MAX_BITS, true},
	[PIPEANN_SPARSEVEC] = {"sparsevec", PIPEANN_SPARSE1000, PIPEANN_MAX_SPARSE_DIM, true},
	[PIPEANN_SPARSEVEC_L1] = {"sparsevec", PIPEANN_ROOTS1000, PIPEANN_MAX_SPARSE_DIM, true}
};

/* A sparsevec, which is followed by nnz indices and as many values. */
typedef struct SparseValue
{
	int32		vl_len_;
	int32		dim;
	int32		nnz;
	int32		unused;
	int32		indices[FLEXIBLE_ARRAY_MEMBER];
} SparseValue;

/* The type of vectors that an operator class for a type is for; PIPEANN_NUM_TYPES: of none. */
PipeannType
PipeannTypeOf(Oid oid)
{
	PipeannType type = PIPEANN_VECTOR;
	HeapTuple	tuple = oid != BITOID && oid < FirstNormalObjectId ? NULL :
		SearchSysCache1(TYPEOID, ObjectIdGetDatum(oid));

	if (!HeapTupleIsValid(tuple))
		return PIPEANN_NUM_TYPES;
	while (type < PIPEANN_NUM_TYPES &&
		   strcmp(NameStr(((Form_pg_type) GETSTRUCT(tuple))->typname), PipeannTypes[type].name) != 0)
		type++;
	ReleaseSysCache(tuple);
	return type;
}

/* The position of the vector among an index's columns. */
int
PipeannVectorPosition(Relation index)
{
	int			n = IndexRelationGetNumberOfKeyAttributes(index);

	for (int i = 0; i < n; i++)
		if (PipeannTypeOf(index->rd_opcintype[i]) != PIPEANN_NUM_TYPES)
			return i;
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("pipeann index \"%s\" needs a vector among its key columns",
					RelationGetRelationName(index)),
			 errhint("Name the vector's operator class, as in (embedding vector_l2_ops, tenant_id).")));
}

/* Whether an operator class has a metric's distance. */
static bool
HasMetric(Relation index, int position, PipeannMetric metric)
{
	Oid			type = index->rd_opcintype[position];

	return OidIsValid(get_opfamily_member(index->rd_opfamily[position], type, type, metric));
}

/*
 * In vectors of this few dimensions most elements are not zero, and roots do not preserve
 * the order of distances: for Manhattan distance their codes are compared by that itself.
 */
#define FEW_DIMENSIONS 16

PipeannType
PipeannIndexType(Relation index)
{
	int			position = PipeannVectorPosition(index);
	PipeannType type = PipeannTypeOf(index->rd_opcintype[position]);

	return type == PIPEANN_SPARSEVEC && HasMetric(index, position, PIPEANN_L1) &&
		TupleDescAttr(RelationGetDescr(index), position)->atttypmod > FEW_DIMENSIONS ?
		PIPEANN_SPARSEVEC_L1 : type;
}

/* Dimensions by a column's type modifier. Errors if it declares none. */
int
PipeannTypmodDimensions(PipeannType type, int32 typmod)
{
	if (typmod < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("column does not have dimensions"),
				 errhint("Declare them in the column's type, as in %s(768), or cast to it in the index expression.",
						 PipeannTypes[type].name)));
	if (typmod > PipeannTypes[type].max_dim)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("column cannot have more than %d dimensions for a pipeann index",
						PipeannTypes[type].max_dim)));
	return typmod;
}

/* The elements as floats: in place, or in CurrentMemoryContext. */
static const float *
AsFloats(PipeannStorage storage, const void *elements, int dim)
{
	float	   *x;

	if (storage == PIPEANN_FLOAT4)
		return elements;
	x = palloc(mul_size(dim, sizeof(float)));
	PipeannVectorToFloat(elements, storage, dim, x);
	return x;
}

/* Errors if a value has another number of dimensions, as its type's operators do. */
static void
CheckDimensions(PipeannType type, const PipeannValue *value, int dim)
{
	int			have = type == PIPEANN_BIT || PipeannIsOfSparse(type) ?
		value->bits : value->dim;

	if (have == dim)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_DATA_EXCEPTION),
			 type == PIPEANN_BIT ?
			 errmsg("different bit lengths %d and %d", dim, have) :
			 PipeannIsOfSparse(type) ?
			 errmsg("different sparsevec dimensions %d and %d", dim, have) :
			 errmsg("expected %d dimensions, not %d", dim, have)));
}

static void
CheckFinite(const char *name, const float *x, const int32 *indices, int n)
{
	for (int i = 0; i < n; i++)
		if (unlikely(!isfinite(x[i])))
			ereport(ERROR,
					(errcode(ERRCODE_DATA_EXCEPTION),
					 errmsg("%s element %d is not a finite number", name,
							(indices == NULL ? i : indices[i]) + 1)));
}

static void
BrokenValue(const char *name, int dim)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("%s is shorter than its %d dimensions", name, dim)));
}

/* A whole sparse vector (distance/sparse.h). */
static const float *
SparseElements(PipeannType type, const SparseValue *value)
{
	const char *name = PipeannTypes[type].name;
	int32	   *form;
	float	   *x;

	if (value->nnz < 0 || value->nnz > PIPEANN_MAX_NONZERO ||
		VARSIZE(value) < offsetof(SparseValue, indices) +
		2 * sizeof(int32) * value->nnz)
		BrokenValue(name, value->dim);
	x = palloc(sizeof(float) * (PIPEANN_SPARSE_DIM + 1 + 2 * value->nnz));
	form = PipeannSparseBehind(x);
	form[0] = value->nnz;
	memcpy(form + 1, value->indices, 2 * sizeof(int32) * value->nnz);
	CheckFinite(name, PipeannSparseOf(form).values, value->indices, value->nnz);
	PipeannSparseProject(form, value->nnz, type == PIPEANN_SPARSEVEC_L1, x);
	return x;
}

/*
 * A possibly toasted value in CurrentMemoryContext. Errors if it has another number of
 * dimensions, which is not checked for sparse vectors (see PipeannCheckQuery()).
 *
 * The length is checked against the datum's size as well, so that a broken one
 * does not lead beyond its memory.
 */
const PipeannValue *
PipeannDatumValue(PipeannType type, Datum datum, int dim)
{
	const PipeannValue *value = (const PipeannValue *) PG_DETOAST_DATUM(datum);

	if (PipeannIsOfSparse(type))
		return value;
	CheckDimensions(type, value, dim);
	if (VARSIZE(value) < PipeannValueBytes(type, dim))
		BrokenValue(PipeannTypes[type].name, dim);
	return value;
}

/* Its elements, float[dim]; the whole of a sparse one. */
const float *
PipeannDatumElements(PipeannType type, Datum datum, int dim)
{
	const PipeannValue *value = PipeannDatumValue(type, datum, dim);
	const float *x;

	if (PipeannIsOfSparse(type))
		return SparseElements(type, (const SparseValue *) value);
	x = AsFloats(PipeannTypes[type].storage, value->elements, dim);
	CheckFinite(PipeannTypes[type].name, x, NULL, dim);
	return x;
}

/* The same for a row's value that is to be indexed. */
const float *
PipeannRowElements(PipeannType type, Datum value, int dim)
{
	const float *x = PipeannDatumElements(type, value, dim);

	if (PipeannIsOfSparse(type) &&
		PipeannSparseOf(PipeannSparseBehind(x)).n > PIPEANN_MAX_INDEXED_NONZERO)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("%s cannot have more than %d non-zero elements for pipeann index",
						PipeannTypes[type].name, PIPEANN_MAX_INDEXED_NONZERO)));
	return x;
}

/* Errors if a sparse query has other dimensions than the indexed column. */
void
PipeannCheckQuery(Relation index, Datum value)
{
	PipeannType type = PipeannIndexType(index);

	if (PipeannIsOfSparse(type))
		CheckDimensions(type, (PipeannValue *) PG_DETOAST_DATUM(value),
						PipeannIndexDimensions(index));
}

/* ---------- what an index stores of it, and searches for ---------- */

/* The metric of an index's operator class. */
PipeannMetric
PipeannIndexMetric(Relation index)
{
	int			position = PipeannVectorPosition(index);
	PipeannMetric metric = 0;
	int			n = 0;

	for (PipeannMetric m = PIPEANN_L2; m <= PIPEANN_JACCARD; m++)
		if (HasMetric(index, position, m))
		{
			metric = m;
			n++;
		}
	if (n != 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("operator class of index \"%s\" has %d distances instead of one",
						RelationGetRelationName(index), n)));
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

/* out[dim] = x / |x|; shorter if aux is limited. */
static void
Normalize(const float *x, int dim, float *out)
{
	double		norm = Max(PipeannNorm(x, dim), PIPEANN_LEAST_NORM);

	for (int i = 0; i < dim; i++)
		out[i] = (float) (x[i] / norm);
}

/*
 * The query of searches for a whole vector: a copy in to[], which may be x,
 * normalised for cosine.
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
 * What a storage loses of a vector. Half-precision values take half the room
 * of floats, so that twice as many nodes share a page, and rarely change the
 * order of rows; quantised ones of 12 to 14 bits take less, and are used if
 * more nodes share a page then. A bound of the loss is stored
 * (PipeannRounding). Rows that it leaves in doubt are compared by their own
 * vectors (scan/stream.c).
 *
 * Bytes represent whole numbers, but not the sign of zero, which no distance distinguishes.
 */

/*
 * The most that a vector may lose for half precision to suit it, relative to
 * its norm: twice as much as rounding to 11 bits loses. For scalar
 * quantisation to 12 bits this is twice the usual loss.
 */
#define MOST_LOST (1.0 / 1024)

/* Longer vectors are not rounded: the squares of their errors would overflow. */
#define MOST_NORM 1e22

/* Half-precision elements that are handled together. */
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

/* The hash of a PipeannRounding: zeroes of both signs have the same. */
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

/* The same for a whole vector of an index with this storage. */
uint32
PipeannHashOf(PipeannStorage storage, const float *x, int dim)
{
	const void *form = PipeannSparseBehind(x);

	return PipeannIsSparse(storage) ?
		VectorHash(form, PipeannSparseWords(form)) :
		VectorHash(x, dim);
}

/*
 * Set *rounding to what x[dim] with this norm has lost in its form, in a storage that rounds.
 * Errors if x does not fit, which can happen only with a storage that the user chose.
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

/*
 * Whether a vector has to be out of line, as it does not suit the storage.
 *
 * Half precision or quantisation chosen by the user rounds every vector.
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
	return !PipeannIsStorable(x, norm, l->storage, l->dim);
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

/* Whether x[dim] suits a storage; integers have to represent it exactly. */
bool
PipeannIsStorable(const float *x, double norm, PipeannStorage storage, int dim)
{
	char		form[PIPEANN_MAX_DIM * sizeof(uint16)];

	if (!PipeannIsRounding(storage))
		return PipeannVectorFits(x, storage, dim);
	PipeannVectorFromFloat(x, storage, dim, form);
	return norm <= MOST_NORM && Lost(x, form, storage, dim) <= norm * MOST_LOST;
}
