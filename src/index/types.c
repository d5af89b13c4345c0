/*
 * types.c
 *		From a value of an indexed column to the vector that it is, and back.
 */
#include "postgres.h"

#include <math.h>

#include "index/index.h"
#include "distance/distance.h"
#include "fmgr.h"
#include "utils/rel.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

const PipeannTypeInfo PipeannTypes[PIPEANN_NUM_TYPES] = {
	[PIPEANN_VECTOR] = {"vector", PIPEANN_FLOAT4, PIPEANN_MAX_DIM},
	[PIPEANN_HALFVEC] = {"halfvec", PIPEANN_FLOAT2, PIPEANN_MAX_DIM},
	[PIPEANN_BIT] = {"bit", PIPEANN_BITS, PIPEANN_MAX_BITS, true}
};

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

PipeannType
PipeannIndexType(Relation index)
{
	return PipeannTypeByProc(index_getprocid(index,
											 PipeannVectorPosition(index) + 1,
											 PIPEANN_TYPE_PROC));
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
	if (type == PIPEANN_BIT && value->bits != dim)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("different bit lengths %d and %d", dim, value->bits)));
	if (type != PIPEANN_BIT && value->dim != dim)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("expected %d dimensions, not %d", dim, value->dim)));
}

/*
 * The elements of a possibly toasted value, float[dim], in CurrentMemoryContext.
 * Errors if it has another number of dimensions.
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

	CheckDimensions(type, vector, dim);
	if (VARSIZE(vector) < PipeannValueBytes(type, dim))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("%s is shorter than its %d dimensions", name, dim)));
	x = AsFloats(PipeannTypes[type].storage, vector->elements, dim);
	for (int i = 0; i < dim; i++)
		if (unlikely(!isfinite(x[i])))
			ereport(ERROR,
					(errcode(ERRCODE_DATA_EXCEPTION),
					 errmsg("%s element %d is not a finite number", name, i + 1)));
	return x;
}

/* Make a value of x[dim] at value, which has PipeannValueBytes(). */
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
