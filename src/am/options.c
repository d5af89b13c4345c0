/*
 * options.c
 *		Index options (WITH), and those of filter columns.
 */
#include "postgres.h"

#include "access/reloptions.h"
#include "am/am.h"
#include "attributes/attributes.h"
#include "fmgr.h"
#include "index/index.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(pipeann_column_options);

static relopt_kind pipeann_relopt_kind;

static relopt_enum_elt_def storage_values[] = {
	{"auto", PIPEANN_STORAGE_AUTO},
	{"float4", PIPEANN_FLOAT4},
	{"float2", PIPEANN_FLOAT2},
	{"int8", PIPEANN_INT8},
	{"uint8", PIPEANN_UINT8},
	{(const char *) NULL}
};

void
PipeannOptionsInit(void)
{
	pipeann_relopt_kind = add_reloption_kind();
	add_int_reloption(pipeann_relopt_kind, "m",
					  "A node has at most 2 * m neighbours, 0 for auto",
					  PIPEANN_DEFAULT_M, PIPEANN_AUTO_M, PIPEANN_MAX_M,
					  AccessExclusiveLock);
	add_int_reloption(pipeann_relopt_kind, "ef_construction",
					  "Length of the candidate list while building",
					  PIPEANN_DEFAULT_EF_CONSTRUCTION,
					  PIPEANN_MIN_EF_CONSTRUCTION,
					  PIPEANN_MAX_EF_CONSTRUCTION, AccessExclusiveLock);
	add_int_reloption(pipeann_relopt_kind, "pq_bytes",
					  "Bytes of a code in memory per vector, 0 for auto",
					  0, 0, PIPEANN_MAX_PQ_BYTES, AccessExclusiveLock);
	add_enum_reloption(pipeann_relopt_kind, "storage",
					   "How elements are stored", storage_values,
					   PIPEANN_STORAGE_AUTO,
					   "Valid values are \"auto\", \"float4\", \"float2\", \"int8\" and \"uint8\".",
					   AccessExclusiveLock);

	/*
	 * PostgreSQL looks up the lock that ALTER TABLE or ALTER INDEX takes by
	 * the option's name, whatever the relation is, and takes the strongest.
	 * Those of tables and of other indexes must not become stronger by ours.
	 */
	add_int_reloption(pipeann_relopt_kind, "fillfactor",
					  "Percentage of a page that a build fills",
					  PIPEANN_DEFAULT_FILLFACTOR, PIPEANN_MIN_FILLFACTOR, 100,
					  ShareUpdateExclusiveLock);
}

bytea *
pipeannoptions(Datum reloptions, bool validate)
{
	static const relopt_parse_elt table[] = {
		{"m", RELOPT_TYPE_INT, offsetof(PipeannOptions, m)},
		{"ef_construction", RELOPT_TYPE_INT,
		offsetof(PipeannOptions, ef_construction)},
		{"pq_bytes", RELOPT_TYPE_INT, offsetof(PipeannOptions, pq_bytes)},
		{"storage", RELOPT_TYPE_ENUM, offsetof(PipeannOptions, storage)},
		{"fillfactor", RELOPT_TYPE_INT, offsetof(PipeannOptions, fillfactor)},
	};

	PipeannOptions *options = (PipeannOptions *)
		build_reloptions(reloptions, validate, pipeann_relopt_kind,
						 sizeof(PipeannOptions), table, lengthof(table));

	/* 0 means no choice, but the bounds have to admit it */
	if (validate && options != NULL && options->m != PIPEANN_AUTO_M &&
		options->m < PIPEANN_MIN_M)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("value %d out of bounds for option \"m\"",
						options->m),
				 errdetail("Valid values are between \"%d\" and \"%d\", and \"%d\" for auto.",
						   PIPEANN_MIN_M, PIPEANN_MAX_M, PIPEANN_AUTO_M)));
	return (bytea *) options;
}

/* Support function of the operator classes of filter columns. */
Datum
pipeann_column_options(PG_FUNCTION_ARGS)
{
	local_relopts *options = (local_relopts *) PG_GETARG_POINTER(0);

	init_local_reloptions(options, sizeof(PipeannColumnOptions));
	add_local_int_reloption(options, "code_bytes",
							"Bytes of an attribute code in memory, 0 for auto",
							0, 0, PIPEANN_MOST_WIDTH,
							offsetof(PipeannColumnOptions, code_bytes));
	PG_RETURN_VOID();
}
