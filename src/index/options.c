/*
 * options.c
 *		An index's options.
 */
#include "postgres.h"

#include "index/index.h"

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
