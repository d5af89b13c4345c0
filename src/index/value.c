/*
 * value.c
 *		From a datum to the vector that the index stores and searches for.
 */
#include "postgres.h"

#include <math.h>

#include "access/heaptoast.h"
#include "index/index.h"
#include "fmgr.h"
#include "distance/distance.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* The metric of an index's operator class. */
PipeannMetric
PipeannIndexMetric(Relation index)
{
	FmgrInfo   *proc = index_getprocinfo(index, PipeannVectorPosition(index) + 1,
										 PIPEANN_METRIC_PROC);
	int			metric = DatumGetInt32(FunctionCall0Coll(proc, InvalidOid));

	if (metric < PIPEANN_L2 || metric > PIPEANN_COSINE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("operator class of index \"%s\" has an unknown metric %d",
						RelationGetRelationName(index), metric)));
	return metric;
}

/* Dimensions by a column's type modifier. Errors if it declares none. */
int
PipeannTypmodDimensions(int32 typmod)
{
	if (typmod < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("column does not have dimensions"),
				 errhint("Declare them in the column's type, as in vector(768), or cast to it in the index expression.")));
	if (typmod > PIPEANN_MAX_DIM)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("column cannot have more than %d dimensions for a pipeann index",
						PIPEANN_MAX_DIM)));
	return typmod;
}

/*
 * The elements of a possibly toasted vector datum, float[dim], in
 * CurrentMemoryContext. Errors if it has another number of dimensions.
 *
 * The length is checked against the datum's size as well, lest a broken one
 * lead beyond its memory.
 */
const float *
PipeannDatumElements(Datum value, int dim)
{
	PipeannVector *vector = (PipeannVector *) PG_DETOAST_DATUM(value);

	if (vector->dim != dim)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("expected %d dimensions, not %d", dim, vector->dim)));
	if (VARSIZE(vector) < offsetof(PipeannVector, x) + sizeof(float) * dim)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("vector is shorter than its %d dimensions", dim)));
	for (int i = 0; i < dim; i++)
		if (unlikely(!isfinite(vector->x[i])))
			ereport(ERROR,
					(errcode(ERRCODE_DATA_EXCEPTION),
					 errmsg("vector element %d is not a finite number", i + 1)));
	return vector->x;
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
			return norm > 0 ? (float) (1 / norm) : 0;
		case PIPEANN_IP:
			rest = (double) max_norm * max_norm - norm * norm;
			return rest > 0 ? (float) sqrt(rest) : 0;
		default:
			return 0;
	}
}

/* out[dim] = x / |x|, or x itself if that is zero. */
void
PipeannNormalize(const float *x, int dim, float *out)
{
	double		norm = PipeannNorm(x, dim);

	for (int i = 0; i < dim; i++)
		out[i] = norm > 0 ? (float) (x[i] / norm) : x[i];
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
	int			whole = offsetof(PipeannVector, x) +
		sizeof(float) * PipeannIndexDimensions(index);
	int			stored;

	if (column == 0)
		return false;
	stored = get_attavgwidth(index->rd_index->indrelid, column);
	return stored > 0 ? stored < whole / 2 :
		whole > (int) TOAST_TUPLE_THRESHOLD;
}
