/*
 * estimate.c
 *		pipeann_build_estimate(): what CREATE INDEX would take.
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
#include "miscadmin.h"
#include "optimizer/plancat.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(pipeann_build_estimate);

/* Blocks that are looked at: the error of a count is then a few per cent. */
#define SAMPLE_BLOCKS 1000

/* ---------- table, column, options ---------- */

static Relation
OpenTable(Oid relid)
{
	Relation	table = relation_open(relid, AccessShareLock);

	if (table->rd_rel->relkind != RELKIND_RELATION &&
		table->rd_rel->relkind != RELKIND_MATVIEW)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table or materialized view",
						RelationGetRelationName(table))));
	if (RELATION_IS_OTHER_TEMP(table))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot access temporary tables of other sessions")));
	if (pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE,
					   RelationGetRelationName(table));
	return table;
}

/*
 * Whether an operator class of this access method takes a column's type for that of a
 * vector, and which that is.
 */
static bool
IsIndexable(Oid am, Oid column, PipeannType *type)
{
	CatCList   *classes = SearchSysCacheList1(CLAAMNAMENSP,
											  ObjectIdGetDatum(am));
	Oid			proc = InvalidOid;
	bool		found = false;

	for (int i = 0; i < classes->n_members; i++)
	{
		HeapTuple	tuple = &classes->members[i]->tuple;

		Form_pg_opclass opclass = (Form_pg_opclass) GETSTRUCT(tuple);

		if (opclass->opcintype == column &&
			OidIsValid(get_opfamily_proc(opclass->opcfamily, column, column,
										 PIPEANN_METRIC_PROC)))
		{
			found = true;
			proc = get_opfamily_proc(opclass->opcfamily, column, column,
									 PIPEANN_TYPE_PROC);
		}
	}
	ReleaseSysCacheList(classes);
	*type = PipeannTypeByProc(proc);
	return found;
}

static void
NoColumn(Relation table, const char *column)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg("column \"%s\" of relation \"%s\" does not exist",
					column, RelationGetRelationName(table))));
}

/* Type and dimensions of the column. */
static void
CheckColumn(Relation table, const char *column, Oid am, PipeannBuildInput *in)
{
	AttrNumber	number = get_attnum(RelationGetRelid(table), column);
	Oid			type;
	int32		typmod;
	Oid			collation;

	if (number == InvalidAttrNumber)
		NoColumn(table, column);
	get_atttypetypmodcoll(RelationGetRelid(table), number, &type, &typmod,
						  &collation);
	if (!IsIndexable(am, getBaseType(type), &in->type))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" is of type %s, which no operator class of pipeann is for",
						column, format_type_be(type))));
	in->dim = PipeannLayoutDimensions(in->type,
									  PipeannTypmodDimensions(in->type, typmod));
}

static List *
AddNames(List *list, ArrayType *names)
{
	Datum	   *elements;
	int			n;

	deconstruct_array(names, NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR,
					  &elements, NULL, &n);
	for (int i = 0; i < n; i++)
		list = lappend(list, NameStr(*DatumGetName(elements[i])));
	return list;
}

/* The columns of these names, as an index would have their values, or NULL. */
static TupleDesc
ValueColumns(Relation table, const List *names)
{
	int			n = list_length(names);
	TupleDesc	desc;

	if (n == 0)
		return NULL;
	if (n >= INDEX_MAX_KEYS)
		ereport(ERROR,
				(errcode(ERRCODE_TOO_MANY_COLUMNS),
				 errmsg("cannot use more than %d columns in an index",
						INDEX_MAX_KEYS)));
	desc = CreateTemplateTupleDesc(n);
	for (int i = 0; i < n; i++)
	{
		const char *name = list_nth(names, i);
		AttrNumber	number = get_attnum(RelationGetRelid(table), name);

		if (number <= InvalidAttrNumber)
			NoColumn(table, name);
		TupleDescCopyEntry(desc, i + 1, RelationGetDescr(table), number);
	}
	return desc;
}

/* As WITH would take them; the access method knows how. */
static const PipeannOptions *
ParseOptions(Oid am, ArrayType *options)
{
	IndexAmRoutine *routine = GetIndexAmRoutineByAmId(am, false);

	return (const PipeannOptions *)
		index_reloptions(routine->amoptions, PointerGetDatum(options), true);
}

/* ---------- rows ---------- */

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
 * The table's rows as the planner counts them, or if it has no statistics as
 * many as the sample has in proportion; only those that are not NULL.
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

static void
ReadSample(PipeannBuildInput *in, const char *column, const char *from)
{
	int			columns = 1 + (in->values != NULL ? in->values->natts : 0);
	StringInfoData list;

	initStringInfo(&list);
	appendStringInfoString(&list, column);
	for (int i = 1; i < columns; i++)
		appendStringInfo(&list, ", %s",
						 quote_identifier(NameStr(TupleDescAttr(in->values,
																i - 1)->attname)));
	Select(psprintf("SELECT %s FROM %s WHERE %s IS NOT NULL", list.data, from,
					column), PIPEANN_ESTIMATE_SAMPLE);
	in->nsample = (int) SPI_processed;
	in->sample = palloc(mul_size(Max(in->nsample, 1) * columns, sizeof(Datum)));
	in->nulls = palloc(mul_size(Max(in->nsample, 1), columns));
	for (int i = 0; i < in->nsample; i++)
		for (int j = 0; j < columns; j++)
			in->sample[i * columns + j] =
				SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc,
							  j + 1, &in->nulls[i * columns + j]);
}

/* Everything that the estimate takes from the table, and the estimate. */
static void
Estimate(Relation table, const char *column, PipeannBuildInput *in,
		 PipeannBuildEstimate *estimate)
{
	const char *name = quote_identifier(column);
	Oid			schema = RelationGetNamespace(table);
	double		fraction;
	char	   *from;

	in->nblocks = RelationGetNumberOfBlocks(table);
	fraction = Min(1.0, (double) SAMPLE_BLOCKS / Max(in->nblocks, 1));
	from = psprintf("ONLY %s TABLESAMPLE pg_catalog.system (%.17g) REPEATABLE (0)",
					quote_qualified_identifier(get_namespace_name(schema),
											   RelationGetRelationName(table)),
					fraction * 100);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	in->rows = EstimateRows(table, fraction, name, from);
	ReadSample(in, name, from);
	PipeannEstimateBuild(in, estimate);
	SPI_finish();
}

/* pipeann_build_estimate(regclass, name, text[], name[], name[]) */
Datum
pipeann_build_estimate(PG_FUNCTION_ARGS)
{
	Relation	table = OpenTable(PG_GETARG_OID(0));
	const char *column = NameStr(*PG_GETARG_NAME(1));
	Oid			am = get_index_am_oid("pipeann", false);
	PipeannBuildInput in = {0};
	PipeannBuildEstimate estimate;
	TupleDesc	desc;
	List	   *names;
	Datum		values[5];
	bool		nulls[5] = {0};
	int			n = 0;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	CheckColumn(table, column, am, &in);
	in.options = ParseOptions(am, PG_GETARG_ARRAYTYPE_P(2));
	names = AddNames(NIL, PG_GETARG_ARRAYTYPE_P(4));
	in.nfilter = list_length(names);
	if (in.nfilter > PIPEANN_MAX_FILTER_COLUMNS)
		ereport(ERROR,
				(errcode(ERRCODE_TOO_MANY_COLUMNS),
				 errmsg("cannot use more than %d key columns beside the vector in a pipeann index",
						PIPEANN_MAX_FILTER_COLUMNS)));
	in.values = ValueColumns(table,
							 AddNames(names, PG_GETARG_ARRAYTYPE_P(3)));
	Estimate(table, column, &in, &estimate);
	relation_close(table, AccessShareLock);
	values[n++] = Int64GetDatum((int64) estimate.memory_one_pass);
	values[n++] = Int64GetDatum((int64) estimate.temp_bytes);
	values[n++] = Int64GetDatum((int64) estimate.index_bytes);
	values[n++] = Int64GetDatum((int64) estimate.code_bytes);
	values[n++] = Int64GetDatum((int64) estimate.shared_memory);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc),
													  values, nulls)));
}
