/*
 * wrapper.c
 *		Nodes of ours that take another one's place in a finished plan.
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "plan/wrapper.h"

/*
 * Columns with the numbers and types of others, of a tuple that varno stands for: a
 * node hands up what its scan tuple has, and that is what its child hands up.
 */
static List *
SameColumns(const List *targets, int varno)
{
	List	   *columns = NIL;
	ListCell   *cell;

	foreach(cell, targets)
	{
		TargetEntry *target = flatCopyTargetEntry(lfirst(cell));

		target->expr = (Expr *) makeVar(varno, target->resno,
										exprType((Node *) target->expr),
										exprTypmod((Node *) target->expr),
										exprCollation((Node *) target->expr), 0);
		columns = lappend(columns, target);
	}
	return columns;
}

/* A node that has this one as its child, and hands up the same columns. */
CustomScan *
PipeannWrap(Plan *plan, const CustomScanMethods *methods)
{
	CustomScan *node = makeNode(CustomScan);
	Plan	   *own = &node->scan.plan;

	own->startup_cost = plan->startup_cost;
	own->total_cost = plan->total_cost;
	own->plan_rows = plan->plan_rows;
	own->plan_width = plan->plan_width;
	own->plan_node_id = plan->plan_node_id;
	own->parallel_safe = plan->parallel_safe;
	own->targetlist = SameColumns(plan->targetlist, INDEX_VAR);
	own->lefttree = plan;
	own->extParam = bms_copy(plan->extParam);
	own->allParam = bms_copy(plan->allParam);
	node->custom_scan_tlist = SameColumns(plan->targetlist, OUTER_VAR);
	node->methods = methods;
	return node;
}

/*
 * What a node below a limit has to know of it. The last of rows that are equally far
 * (WITH TIES) may be any: then all rows are wanted.
 */
static List *
Numbers(const Limit *limit)
{
	if (limit == NULL || limit->limitOption != LIMIT_OPTION_COUNT)
		return list_make1(makeNullConst(INT8OID, -1, InvalidOid));
	if (limit->limitOffset == NULL)
		return list_make1(copyObject(limit->limitCount));
	return list_make2(copyObject(limit->limitCount),
					  copyObject(limit->limitOffset));
}

/*
 * The same node below a limit: its custom_exprs are the rows that the limit wants,
 * NULL for all of them, and the rows that it leaves out, if any. Without a limit,
 * all rows.
 */
CustomScan *
PipeannWrapBelow(const Limit *limit, Plan *plan,
				 const CustomScanMethods *methods)
{
	CustomScan *node = PipeannWrap(plan, methods);
	Plan	   *own = &node->scan.plan;

	if (limit != NULL)
	{
		own->extParam = bms_union(own->extParam, limit->plan.extParam);
		own->allParam = bms_union(own->allParam, limit->plan.allParam);
	}
	node->custom_exprs = Numbers(limit);
	return node;
}
