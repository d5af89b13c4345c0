/*
 * one_message_cells.c
 *		Whether the rows of a table are divided among its partitions by cells.
 *
 * They are if the table is partitioned by LIST (pipeann_cell(name, column)), by the
 * column and for the operator by which a query is ordered. Which cells a partition
 * has is in its bounds, which are read when the query is run.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/partition.h"
#include "catalog/pg_type_d.h"
#include "cells/cells.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "queries/one_message.h"
#include "queries/queries.h"
#include "utils/lsyscache.h"
#include "utils/partcache.h"
#include "utils/rel.h"

typedef struct Search
{
	List	   *rtable;
	Oid			found;
} Search;

/* Find the relation of ours that a plan reads. */
static bool
FindRelation(Plan **place, void *arg)
{
	Search	   *search = arg;
	Index		number = 0;

	switch (nodeTag(*place))
	{
		case T_SeqScan:
		case T_IndexScan:
		case T_IndexOnlyScan:
		case T_BitmapHeapScan:
		case T_TidScan:
		case T_TidRangeScan:
		case T_ForeignScan:
			number = ((Scan *) *place)->scanrelid;
			break;
		default:
			break;
	}
	if (number > 0 && PipeannIsMarked(rt_fetch(number, search->rtable)))
	{
		search->found = rt_fetch(number, search->rtable)->relid;
		return true;
	}
	return pipeann_core->visit_plans(*place, FindRelation, arg);
}

static Oid
RelationOf(Plan *part, List *rtable)
{
	Search		search = {rtable, InvalidOid};

	(void) FindRelation(&part, &search);
	return search.found;
}

/*
 * The name of the cells by which a table is partitioned, if they are those of this
 * column; or NULL.
 */
static const char *
CellsOf(Relation table, const char *column)
{
	PartitionKey key = RelationGetPartitionKey(table);
	const char *cells = NULL;
	const Var  *vector;

	if (key == NULL || key->strategy != PARTITION_STRATEGY_LIST ||
		key->partnatts != 1 || key->partattrs[0] != 0 ||
		key->parttypid[0] != INT4OID)
		return NULL;
	vector = (const Var *) PipeannCellVector(linitial(key->partexprs),
													 &cells);
	if (vector == NULL || !IsA(vector, Var) || vector->varattno <= 0 ||
		strcmp(NameStr(TupleDescAttr(RelationGetDescr(table),
									 vector->varattno - 1)->attname), column) != 0)
		return NULL;
	return cells;
}

/* The name of the only column that an expression of a part names; or NULL. */
static const char *
ColumnOf(const OpExpr *distance, List *rtable)
{
	const List *columns = pull_var_clause((Node *) distance, 0);
	const Var  *column;

	if (list_length(columns) != 1)
		return NULL;
	column = linitial(columns);
	if (!list_member_ptr(distance->args, column))
		return NULL;
	return get_attname(rt_fetch(column->varno, rtable)->relid, column->varattno,
					   true);
}

void
PipeannFindCells(PipeannOneMessage *parts, const Append *append, List *rtable)
{
	ListCell   *cell;
	Relation	table;
	const char *column;

	if (parts->distance == NULL || parts->limit == NULL ||
		(column = ColumnOf(parts->distance, rtable)) == NULL)
		return;
	foreach(cell, append->appendplans)
	{
		Oid			part = RelationOf(lfirst(cell), rtable);
		Oid			parent = OidIsValid(part) ? get_partition_parent(part, true) :
			InvalidOid;

		if (list_nth(parts->scans, foreach_current_index(cell)) != NULL &&
			list_nth(parts->bounded, foreach_current_index(cell)) == NULL)
			return;
		parts->partitions = lappend_oid(parts->partitions, part);
		if (!OidIsValid(part))
			continue;
		if (OidIsValid(parts->table) && parts->table != parent)
			return;
		parts->table = parent;
	}
	if (!OidIsValid(parts->table))
		return;
	table = table_open(parts->table, NoLock);
	parts->cells = CellsOf(table, column);
	table_close(table, NoLock);
	if (parts->cells != NULL &&
		PipeannCellsCount(parts->cells, parts->distance->opno) == 0)
		parts->cells = NULL;
}
