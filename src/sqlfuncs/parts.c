/*
 * parts.c
 *		SQL functions for indexes with parts, one of which each server keeps in memory.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "catalog/index.h"
#include "fmgr.h"
#include "scan/scan.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/rls.h"

PG_FUNCTION_INFO_V1(pipeann_index_part);
PG_FUNCTION_INFO_V1(pipeann_search_step);

/*
 * Open a table and then its index, the usual order. Both functions reveal where
 * rows are, visible or not, so users who may not see all rows are refused.
 */
static Relation
OpenIndex(Oid relid, Relation *table)
{
	Oid			tableid = IndexGetRelation(relid, true);
	Relation	index;

	if (OidIsValid(tableid))
		LockRelationOid(tableid, AccessShareLock);
	index = PipeannOpenIndex(relid);
	*table = table_open(tableid, NoLock);
	if (check_enable_rls(tableid, InvalidOid, false) == RLS_ENABLED)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("row-level security hides rows of table \"%s\"",
						RelationGetRelationName(*table))));
	return index;
}

static void
Close(Relation index, Relation table)
{
	relation_close(index, AccessShareLock);
	table_close(table, AccessShareLock);
}

/* pipeann_index_part(regclass, vector): the part to ask for rows near a vector. */
Datum
pipeann_index_part(PG_FUNCTION_ARGS)
{
	Relation	table;
	Relation	index = OpenIndex(PG_GETARG_OID(0), &table);
	Oid			type = get_fn_expr_argtype(fcinfo->flinfo, 1);
	int			vector = PipeannVectorPosition(index);
	int			part;

	if (type != TupleDescAttr(RelationGetDescr(index), vector)->atttypid)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("index \"%s\" has no vectors of type %s",
						RelationGetRelationName(index), format_type_be(type))));
	part = PipeannScanPart(index, PG_GETARG_DATUM(1));
	Close(index, table);
	if (part == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT32(part);
}

/*
 * pipeann_search_step(regclass, bytea): a step of another server's search. A server
 * that is behind may not have the index yet, and on one that is ahead it may be gone.
 */
Datum
pipeann_search_step(PG_FUNCTION_ARGS)
{
	Oid			relid = PG_GETARG_OID(0);
	Relation	table;
	Relation	index;
	bytea	   *answer;

	if (!OidIsValid(IndexGetRelation(relid, true)))
		PG_RETURN_NULL();
	index = OpenIndex(relid, &table);
	answer = PipeannScanStep(index, PG_GETARG_BYTEA_PP(1));
	Close(index, table);
	if (answer == NULL)
		PG_RETURN_NULL();
	PG_RETURN_BYTEA_P(answer);
}
