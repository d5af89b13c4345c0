/*
 * steady.c
 *		Plans that may be run twice, as nothing that they evaluate is volatile.
 *
 * What is evaluated once for a statement (its initial plans, common table expressions,
 * other servers' rows behind a cursor) is not run again with the plan that reads it.
 */
#include "postgres.h"

#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "plan/bitmap.h"
#include "plan/fill.h"
#include "plan/merge.h"
#include "plan/steady.h"
#include "utils/lsyscache.h"

static bool
IsVolatile(Oid function, void *arg)
{
	(void) arg;
	return func_volatile(function) == PROVOLATILE_VOLATILE;
}

static const Plan *
PlanOf(const PlannedStmt *stmt, const SubPlan *node)
{
	return list_nth(stmt->subplans, node->plan_id - 1);
}

/*
 * Whether an expression of a statement, or a sub-plan in it, has something volatile.
 */
bool
PipeannHasVolatile(Node *node, PlannedStmt *stmt)
{
	if (node == NULL)
		return false;
	if (IsA(node, NextValueExpr) ||
		check_functions_in_node(node, IsVolatile, NULL) ||
		(IsA(node, SubPlan) &&
		 !PipeannIsSteadyPlan(stmt, PlanOf(stmt, (SubPlan *) node))))
		return true;
	return expression_tree_walker(node, PipeannHasVolatile, (void *) stmt);
}

static bool
IsOurs(const CustomScan *scan)
{
	return scan->methods == &PipeannMergeMethods ||
		scan->methods == &PipeannBitmapMethods ||
		scan->methods == &PipeannFillMethods;
}

/* What a scan evaluates beside its columns and conditions. */
static bool
ScanExpressions(const Plan *plan, List **found)
{
	switch (nodeTag(plan))
	{
		case T_SeqScan:
		case T_SubqueryScan:
		case T_CteScan:
			break;
		case T_IndexScan:
			*found = list_make2(((const IndexScan *) plan)->indexqual,
								((const IndexScan *) plan)->indexorderby);
			break;
		case T_IndexOnlyScan:
			*found = list_make2(((const IndexOnlyScan *) plan)->indexqual,
								((const IndexOnlyScan *) plan)->indexorderby);
			break;
		case T_BitmapIndexScan:
			*found = list_make1(((const BitmapIndexScan *) plan)->indexqual);
			break;
		case T_BitmapHeapScan:
			*found = list_make1(((const BitmapHeapScan *) plan)->bitmapqualorig);
			break;
		case T_TidScan:
			*found = list_make1(((const TidScan *) plan)->tidquals);
			break;
		case T_FunctionScan:
			*found = list_make1(((const FunctionScan *) plan)->functions);
			break;
		case T_ValuesScan:
			*found = list_make1(((const ValuesScan *) plan)->values_lists);
			break;
		case T_ForeignScan:
			*found = list_make1(((const ForeignScan *) plan)->fdw_exprs);
			break;
		case T_CustomScan:
			*found = list_make1(((const CustomScan *) plan)->custom_exprs);
			return IsOurs((const CustomScan *) plan);
		default:
			return false;
	}
	return true;
}

/* The same of a node that has rows of others. */
static bool
OtherExpressions(const Plan *plan, List **found)
{
	switch (nodeTag(plan))
	{
		case T_Agg:
		case T_Append:
		case T_BitmapAnd:
		case T_BitmapOr:
		case T_IncrementalSort:
		case T_LockRows:
		case T_Material:
		case T_MergeAppend:
		case T_ProjectSet:
		case T_Sort:
		case T_Unique:
			break;
		case T_Hash:
			*found = list_make1(((const Hash *) plan)->hashkeys);
			break;
		case T_Memoize:
			*found = list_make1(((const Memoize *) plan)->param_exprs);
			break;
		case T_NestLoop:
			*found = list_make1(((const Join *) plan)->joinqual);
			break;
		case T_MergeJoin:
			*found = list_make2(((const Join *) plan)->joinqual,
								((const MergeJoin *) plan)->mergeclauses);
			break;
		case T_HashJoin:
			*found = list_make2(((const Join *) plan)->joinqual,
								((const HashJoin *) plan)->hashclauses);
			break;
		case T_Limit:
			*found = list_make2(((const Limit *) plan)->limitCount,
								((const Limit *) plan)->limitOffset);
			break;
		case T_Result:
			*found = list_make1(((const Result *) plan)->resconstantqual);
			break;
		case T_WindowAgg:
			*found = list_make2(((const WindowAgg *) plan)->startOffset,
								((const WindowAgg *) plan)->endOffset);
			break;
		default:
			return false;
	}
	return true;
}

/* The children of a node, but for the two that any node may have. */
static List *
OtherChildren(const Plan *plan)
{
	switch (nodeTag(plan))
	{
		case T_Append:
			return ((const Append *) plan)->appendplans;
		case T_MergeAppend:
			return ((const MergeAppend *) plan)->mergeplans;
		case T_BitmapAnd:
			return ((const BitmapAnd *) plan)->bitmapplans;
		case T_BitmapOr:
			return ((const BitmapOr *) plan)->bitmapplans;
		case T_SubqueryScan:
			return list_make1(((const SubqueryScan *) plan)->subplan);
		case T_CustomScan:
			return ((const CustomScan *) plan)->custom_plans;
		default:
			return NIL;
	}
}

/* Most are plain columns. */
static bool
HasVolatileTarget(const List *targets, PlannedStmt *stmt)
{
	ListCell   *cell;

	foreach(cell, targets)
	{
		Node	   *expr = (Node *) lfirst_node(TargetEntry, cell)->expr;

		if (!IsA(expr, Var) && PipeannHasVolatile(expr, stmt))
			return true;
	}
	return false;
}

/*
 * Whether what a plan of a statement evaluates each time it is run, in sub-plans too,
 * has nothing volatile. Not so if anything in it is not known.
 */
bool
PipeannIsSteadyPlan(PlannedStmt *stmt, const Plan *plan)
{
	List	   *expressions = NIL;
	ListCell   *cell;

	if (plan == NULL)
		return true;
	check_stack_depth();
	if (!ScanExpressions(plan, &expressions) &&
		!OtherExpressions(plan, &expressions))
		return false;
	if (HasVolatileTarget(plan->targetlist, stmt) ||
		PipeannHasVolatile((Node *) plan->qual, stmt) ||
		PipeannHasVolatile((Node *) expressions, stmt))
		return false;
	foreach(cell, OtherChildren(plan))
		if (!PipeannIsSteadyPlan(stmt, lfirst(cell)))
			return false;
	return PipeannIsSteadyPlan(stmt, plan->lefttree) &&
		PipeannIsSteadyPlan(stmt, plan->righttree);
}
