/*
 * types.c
 *		From a value of an indexed column to the vector that it is, and back.
 */
#include "postgres.h"

#include <math.h>

#include "index/index.h"
#include "distance/sparse.h"
#include "fmgr.h"
#include "utils/rel.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

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

/* The type by an operator class's support function for it, which may be none. */
PipeannType
PipeannTypeByProc(Oid proc)
{
	int			type = !OidIsValid(proc) ? PIPEANN_VECTOR :
		DatumGetInt32(OidFunctionCall0Coll(proc, InvalidOid));

	if (type < 0 || type >= PIPEANN_NUM_TYPES)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("operator class of a pipeann index has an unknown type %d",
						type)));
	return (PipeannType) type;
}

/*
 * In vectors of so few dimensions most elements are not zero, and roots do not tell how
 * far they are from each other: by Manhattan distance their codes are compared by that.
 */
#define FEW_DIMENSIONS 16

PipeannType
PipeannIndexType(Relation index)
{
	int			position = PipeannVectorPosition(index);
	PipeannType type = PipeannTypeByProc(index_getprocid(index, position + 1,
														 PIPEANN_TYPE_PROC));

	return type == PIPEANN_SPARSEVEC_L1 &&
		TupleDescAttr(RelationGetDescr(index), position)->atttypmod <= FEW_DIMENSIONS ?
		PIPEANN_SPARSEVEC : type;
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

/* The elements as floats: where they are, or in CurrentMemoryContext. */
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
 * The elements of a possibly toasted value, float[dim], in CurrentMemoryContext; the
 * whole of a sparse one. Errors if it has another number of dimensions, which those of
 * sparse vectors are not looked at for (PipeannCheckQuery()).
 *
 * The length is checked against the datum's size as well, lest a broken one
 * lead beyond its memory.
 */
const float *
PipeannDatumElements(PipeannType type, Datum value, int dim)
{
	const char *name = PipeannTypes[type].name;
	PipeannValue *vector = (PipeannValue *) PG_DETOAST_DATUM(value);
	const float *x;

	if (PipeannIsOfSparse(type))
		return SparseElements(type, (const SparseValue *) vector);
	CheckDimensions(type, vector, dim);
	if (VARSIZE(vector) < PipeannValueBytes(type, dim))
		BrokenValue(name, dim);
	x = AsFloats(PipeannTypes[type].storage, vector->elements, dim);
	CheckFinite(name, x, NULL, dim);
	return x;
}

/* The same of a row's value, which is to be indexed. */
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

/* Make a sparse value of dim dimensions of a whole vector; in CurrentMemoryContext. */
struct varlena *
PipeannSparseValue(const float *x, int dim)
{
	PipeannSparse v = PipeannSparseOf(PipeannSparseBehind(x));
	Size		bytes = 2 * sizeof(int32) * v.n;
	SparseValue *value = palloc0(offsetof(SparseValue, indices) + bytes);

	/* pgvector believes them */
	for (int i = 0; i < v.n; i++)
		if (v.indices[i] >= dim ||
			v.indices[i] <= (i == 0 ? -1 : v.indices[i - 1]))
			ereport(ERROR,
					(errcode(ERRCODE_INDEX_CORRUPTED),
					 errmsg("index has elements that are none of a vector of %d dimensions",
							dim)));
	SET_VARSIZE(value, offsetof(SparseValue, indices) + bytes);
	value->dim = dim;
	value->nnz = v.n;
	memcpy(value->indices, v.indices, bytes);
	return (struct varlena *) value;
}

/* Make a value of x[dim], not sparse, at value, which has PipeannValueBytes(). */
void
PipeannValueSet(PipeannType type, const float *x, int dim, void *value)
{
	PipeannValue *vector = value;

	SET_VARSIZE(vector, PipeannValueBytes(type, dim));
	vector->bits = 0;
	if (type == PIPEANN_BIT)
		vector->bits = dim;
	else
		vector->dim = (int16) dim;
	PipeannVectorFromFloat(x, PipeannTypes[type].storage, dim,
						   vector->elements);
}
