/*
 * estimate.c
 *		pipeann_build_estimate(): an estimate of what CREATE INDEX takes.
 */
#include "postgres.h"

#include "access/amapi.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/reloptions.h"
#include "build/build.h"
#include "catalog/pg_opclass.h"
#include "catalog/pg_type_d.h"
#include "commands/defrem.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "optimizer/plancat.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(pipeann_build_estimate);

/* Sampled blocks: with these the error of a count is a few per cent. */
#define SAMPLE_BLOCKS 1000

/* Whether an operator class of this access method is for a type. */
static bool
HasClass(Oid am, Oid type)
{
	CatCList   *classes = SearchSysCacheList1(CLAAMNAMENSP,
											  ObjectIdGetDatum(am));
	bool		found = false;

	for (int i = 0; i < classes->n_members; i++)
		found |= ((Form_pg_opclass) GETSTRUCT(&classes->members[i]->tuple))->opcintype == type;
	ReleaseSysCacheList(classes);
	return found;
}

/* Append names to a query's list of columns; returns how many. */
static int
AppendNames(StringInfo list, ArrayType *names)
{
	Datum	   *elements;
	int			n;

	deconstruct_array(names, NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR,
					  &elements, NULL, &n);
	for (int i = 0; i < n; i++)
		appendStringInfo(list, ", %s", quote_identifier(NameStr(*DatumGetName(elements[i]))));
	return n;
}

static void
Select(const char *query, uint64 most)
{
	if (SPI_execute(query, true, (long) most) != SPI_OK_SELECT)
		elog(ERROR, "could not read a sample: %s", query);
}

static int64
Count(int column)
{
	bool		isnull;

	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0],
									   SPI_tuptable->tupdesc, column,
									   &isnull));
}

/*
 * The number of the table's rows by the planner's statistics, or without any
 * in proportion to the sample; only those that are not NULL.
 */
static uint64
EstimateRows(Relation table, double fraction, const char *column,
			 const char *from)
{
	BlockNumber pages;
	double		rows;
	double		allvisfrac;
	int64		seen;
	int64		not_null;

	Select(psprintf("SELECT pg_catalog.count(*), pg_catalog.count(%s) FROM %s",
					column, from), 0);
	seen = Count(1);
	not_null = Count(2);
	rows = seen / fraction;
	if (fraction < 1 && table->rd_rel->reltuples >= 0)
		estimate_rel_size(table, NULL, &pages, &rows, &allvisfrac);
	return seen == 0 ? (uint64) rows : (uint64) (rows * not_null / seen);
}

/* Set the column's type, and the values that an index would have of the other columns, or NULL. */
static void
TakeColumns(PipeannBuildInput *in, Oid am, TupleDesc columns)
{
	Form_pg_attribute vector = TupleDescAttr(columns, 0);

	in->type = PipeannTypeOf(getBaseType(vector->atttypid));
	if (in->type == PIPEANN_NUM_TYPES || !HasClass(am, getBaseType(vector->atttypid)))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" is of type %s, for which pipeann has no operator class",
						NameStr(vector->attname), format_type_be(vector->atttypid))));
	in->dim = PipeannLayoutDimensions(in->type,
									  PipeannTypmodDimensions(in->type, vector->atttypmod));
	if (columns->natts == 1)
		return;
	in->values = CreateTemplateTupleDesc(columns->natts - 1);
	for (int i = 1; i < columns->natts; i++)
		TupleDescCopyEntry(in->values, i, columns, i + 1);
}

/* Read a sample and statistics of a table; list has the columns, the vector first. */
static void
ReadTable(Relation table, const char *column, const char *list, Oid am,
		  PipeannBuildInput *in)
{
	BlockNumber blocks = RelationGetNumberOfBlocks(table);
	double		fraction = Min(1.0, (double) SAMPLE_BLOCKS / Max(blocks, 1));
	char	   *from;
	int			n;

	from = psprintf("ONLY %s TABLESAMPLE pg_catalog.system (%.17g) REPEATABLE (0)",
					quote_qualified_identifier(get_namespace_name(RelationGetNamespace(table)),
											   RelationGetRelationName(table)),
					fraction * 100);
	in->rows = EstimateRows(table, fraction, column, from);
	Select(psprintf("SELECT %s FROM %s WHERE %s IS NOT NULL", list, from, column),
		   PIPEANN_ESTIMATE_SAMPLE);
	TakeColumns(in, am, SPI_tuptable->tupdesc);
	n = SPI_tuptable->tupdesc->natts;
	in->nsample = (int) SPI_processed;
	in->sample = palloc(mul_size(Max(in->nsample, 1) * n, sizeof(Datum)));
	in->nulls = palloc(mul_size(Max(in->nsample, 1), n));
	for (int i = 0; i < in->nsample; i++)
		heap_deform_tuple(SPI_tuptable->vals[i], SPI_tuptable->tupdesc,
						  in->sample + i * n, in->nulls + i * n);
}

/* pipeann_build_estimate(regclass, name, text[], name[], name[]) */
Datum
pipeann_build_estimate(PG_FUNCTION_ARGS)
{
	Relation	table = relation_open(PG_GETARG_OID(0), AccessShareLock);
	const char *column = quote_identifier(NameStr(*PG_GETARG_NAME(1)));
	Oid			am = get_index_am_oid("pipeann", false);
	PipeannBuildInput in = {0};
	PipeannBuildEstimate estimate;
	StringInfoData list;
	TupleDesc	desc;
	Datum		values[5];
	bool		nulls[5] = {0};
	int			n = 0;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (table->rd_rel->relkind != RELKIND_RELATION &&
		table->rd_rel->relkind != RELKIND_MATVIEW)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table or materialized view",
						RelationGetRelationName(table))));
	/* as WITH would parse them */
	in.options = (const PipeannOptions *)
		index_reloptions(GetIndexAmRoutineByAmId(am, false)->amoptions,
						 PointerGetDatum(PG_GETARG_ARRAYTYPE_P(2)), true);
	initStringInfo(&list);
	appendStringInfoString(&list, column);
	in.nfilter = AppendNames(&list, PG_GETARG_ARRAYTYPE_P(4));
	if (in.nfilter > PIPEANN_MAX_FILTER_COLUMNS)
		ereport(ERROR,
				(errcode(ERRCODE_TOO_MANY_COLUMNS),
				 errmsg("cannot use more than %d key columns besides the vector in a pipeann index",
						PIPEANN_MAX_FILTER_COLUMNS)));
	if (in.nfilter + AppendNames(&list, PG_GETARG_ARRAYTYPE_P(3)) >= INDEX_MAX_KEYS)
		ereport(ERROR,
				(errcode(ERRCODE_TOO_MANY_COLUMNS),
				 errmsg("cannot use more than %d columns in an index",
						INDEX_MAX_KEYS)));
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	ReadTable(table, column, list.data, am, &in);
	PipeannEstimateBuild(&in, &estimate);
	SPI_finish();
	relation_close(table, AccessShareLock);
	values[n++] = Int64GetDatum((int64) estimate.memory_one_pass);
	values[n++] = Int64GetDatum((int64) estimate.temp_bytes);
	values[n++] = Int64GetDatum((int64) estimate.index_bytes);
	values[n++] = Int64GetDatum((int64) estimate.code_bytes);
	values[n++] = Int64GetDatum((int64) estimate.shared_memory);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc),
													  values, nulls)));
}
