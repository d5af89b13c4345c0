/*
 * columns.c
 *		Options and columns of an index.
 */
#include "postgres.h"

#include "index/index.h"
#include "utils/rel.h"

/* An index's options. */

/* The options of an index without WITH. */
static const PipeannOptions default_options = {
	.m = PIPEANN_DEFAULT_M,
	.ef_construction = PIPEANN_DEFAULT_EF_CONSTRUCTION,
	.pq_bytes = 0,
	.storage = PIPEANN_STORAGE_AUTO,
	.fillfactor = PIPEANN_DEFAULT_FILLFACTOR,
};

const PipeannOptions *
PipeannGetOptions(Relation index)
{
	if (index->rd_options != NULL)
		return (const PipeannOptions *) index->rd_options;
	return &default_options;
}

/* Errors if options do not go together. */
void
PipeannCheckOptions(const PipeannOptions *options)
{
	if (options->ef_construction < 2 * PipeannInitialM(options))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ef_construction must be greater than or equal to 2 * m")));
}

/*
 * The columns of an index: one vector, filter columns, included columns.
 *
 * Filter columns are key columns, and may stand before the vector and behind
 * it. The vector's operator class has a metric; that tells it from the others.
 */

static bool
IsVector(Relation index, int position)
{
	return OidIsValid(index_getprocid(index, position + 1,
									  PIPEANN_METRIC_PROC));
}

/* The position of the vector among an index's columns. */
int
PipeannVectorPosition(Relation index)
{
	int			n = IndexRelationGetNumberOfKeyAttributes(index);

	for (int i = 0; i < n; i++)
		if (IsVector(index, i))
			return i;
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("pipeann index \"%s\" needs a vector among its key columns",
					RelationGetRelationName(index)),
			 errhint("Name the vector's operator class, as in (embedding vector_l2_ops, tenant_id).")));
}

/* Errors if the key columns are not one vector and a few others. */
void
PipeannCheckColumns(Relation index)
{
	int			n = IndexRelationGetNumberOfKeyAttributes(index);

	for (int i = PipeannVectorPosition(index) + 1; i < n; i++)
		if (IsVector(index, i))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("pipeann index \"%s\" has more than one vector among its key columns",
							RelationGetRelationName(index)),
					 errhint("Make an index for each.")));
	if (n - 1 > PIPEANN_MAX_FILTER_COLUMNS)
		ereport(ERROR,
				(errcode(ERRCODE_TOO_MANY_COLUMNS),
				 errmsg("cannot use more than %d key columns beside the vector in a pipeann index",
						PIPEANN_MAX_FILTER_COLUMNS)));
}

PipeannColumns
PipeannIndexColumns(Relation index)
{
	TupleDesc	all = RelationGetDescr(index);
	PipeannColumns columns = {.vector = PipeannVectorPosition(index)};

	if (!PipeannIndexHasValues(index))
		return columns;
	columns.values = CreateTemplateTupleDesc(all->natts - 1);
	for (int i = 0; i < all->natts - 1; i++)
		TupleDescCopyEntry(columns.values, i + 1, all,
						   PipeannValuePosition(&columns, i) + 1);
	return columns;
}

/* Take the vector out of all columns' values. */
void
PipeannWithoutVector(const PipeannColumns *columns, const Datum *all,
					 const bool *all_null, Datum *values, bool *isnull)
{
	for (int i = 0; i < columns->values->natts; i++)
	{
		int			position = PipeannValuePosition(columns, i);

		values[i] = all[position];
		isnull[i] = all_null[position];
	}
}
