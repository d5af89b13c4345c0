/*
 * distance.c
 *		Distances among the columns of a plan's nodes. A query that is ordered
 *		by a distance has the distance in the target lists of its plan's nodes,
 *		so that nodes above could compare rows by it. As the index has ordered
 *		the rows, mostly nothing reads it; yet the executor fetches the row's
 *		vector to compute it, from TOAST if it is long. A distance that nothing
 *		reads becomes NULL. It keeps its column, so that numbers and types of
 *		columns are those that the nodes above expect.
 */
#include "postgres.h"

#include "access/amapi.h"
#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "plan/plan.h"
#include "scan/scan.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* What Vars of varno in a node's expressions refer to. */
typedef struct Child
{
	const Plan *plan;			/* NULL: none that passes its rows up */
	int			varno;
} Child;

/* Whether an access method, or an index, is one of ours; no hypothetical index (of an extension) is. */
bool
PipeannIsMethod(Oid am)
{
	IndexAmRoutine *routine = GetIndexAmRoutineByAmId(am, true);

	return routine != NULL && routine->amgettuple == pipeanngettuple;
}

bool
PipeannIsIndex(Oid indexid)
{
	Relation	index = RelationIdGetRelation(indexid);
	bool		ours = RelationIsValid(index) && index->rd_indam != NULL &&
		index->rd_indam->amgettuple == pipeanngettuple;

	if (RelationIsValid(index))
		RelationClose(index);
	return ours;
}

/* The planner commutes the operands if the column is on the right. */
static bool
IsSameDistance(const Node *expr, const Node *distance)
{
	const OpExpr *a = (const OpExpr *) expr;
	const OpExpr *b = (const OpExpr *) distance;

	if (equal(expr, distance))
		return true;
	return IsA(expr, OpExpr) && IsA(distance, OpExpr) &&
		list_length(a->args) == 2 && list_length(b->args) == 2 &&
		get_commutator(a->opno) == b->opno &&
		a->inputcollid == b->inputcollid &&
		equal(linitial(a->args), lsecond(b->args)) &&
		equal(lsecond(a->args), linitial(b->args));
}

/* Whether an expression is one of the distances that a scan of an index is ordered by. */
static bool
IsOneOf(const Node *expr, const List *distances, Oid indexid)
{
	ListCell   *cell;

	foreach(cell, distances)
		if (IsSameDistance(expr, lfirst(cell)))
			return PipeannIsIndex(indexid);
	return false;
}

/* The child whose rows a node passes up one by one. */
static Child
ChildOf(const Plan *node)
{
	Child		child = {NULL};
	const CustomScan *custom = (const CustomScan *) node;

	if (IsA(node, SubqueryScan))
	{
		child.plan = ((const SubqueryScan *) node)->subplan;
		child.varno = ((const SubqueryScan *) node)->scan.scanrelid;
	}
	else if (IsA(node, CustomScan) &&
			 custom->methods == PipeannBitmapNode)
	{
		child.plan = linitial(custom->custom_plans);
		child.varno = INDEX_VAR;
	}
	else if (PipeannPlanHas(node, PIPEANN_PLAN_PASSES))
	{
		child.plan = outerPlan(node);
		child.varno = OUTER_VAR;
	}
	return child;
}

/* Replace the child's columns by their expressions. */
static Node *
Expand(Node *node, void *arg)
{
	const Child *child = arg;
	const Var  *var = (const Var *) node;

	if (node != NULL && IsA(node, Var) && var->varno == child->varno)
	{
		const TargetEntry *target = get_tle_by_resno(child->plan->targetlist,
													 var->varattno);

		return target == NULL ? node : (Node *) copyObject(target->expr);
	}
	return expression_tree_mutator(node, Expand, arg);
}

static bool
IsDistance(const Plan *node, Node *expr)
{
	while (!IsA(node, IndexScan) && !IsA(node, IndexOnlyScan))
	{
		Child		child = ChildOf(node);

		if (child.plan == NULL)
			return false;
		expr = Expand(expr, &child);
		node = child.plan;
	}
	if (IsA(node, IndexScan))
		return IsOneOf(expr, ((const IndexScan *) node)->indexorderbyorig,
					   ((const IndexScan *) node)->indexid);
	/* expressions of an index-only scan refer to the index's columns */
	return IsOneOf(expr, ((const IndexOnlyScan *) node)->indexorderby,
				   ((const IndexOnlyScan *) node)->indexid);
}

/*
 * The upper bound that a condition sets for a scan's distance; NULL if it sets
 * none. Similarities are one minus the distance, and have to be above a bound,
 * as NaN is; then sets *no_numbers.
 */
static Expr *
MostByClause(const Plan *scan, const Node *clause, bool *no_numbers)
{
	const OpExpr *condition = (const OpExpr *) clause;
	const OpExpr *difference;
	Node	   *less;
	Node	   *more;

	if (!IsA(clause, OpExpr) || list_length(condition->args) != 2)
		return NULL;
	less = linitial(condition->args);
	more = lsecond(condition->args);
	switch (condition->opfuncid)
	{
		case F_FLOAT8LT:
		case F_FLOAT8LE:
			break;
		case F_FLOAT8GT:
		case F_FLOAT8GE:
			less = lsecond(condition->args);
			more = linitial(condition->args);
			break;
		default:
			return NULL;
	}
	*no_numbers = false;
	if (IsDistance(scan, less))
		return (Expr *) more;
	difference = (const OpExpr *) more;
	if (!IsA(more, OpExpr) || difference->opfuncid != F_FLOAT8MI ||
		!IsDistance(scan, lsecond(difference->args)))
		return NULL;
	*no_numbers = true;
	return (Expr *) makeFuncExpr(F_FLOAT8MI, FLOAT8OID,
								 list_make2(linitial(difference->args), less),
								 InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
}

/*
 * The distance that no row of our scan exceeds by its conditions, if that is
 * known before the scan begins; or NULL. Sets *no_numbers if rows with
 * distance NaN may still meet them.
 */
Expr *
PipeannMostDistance(const Plan *scan, bool *no_numbers)
{
	ListCell   *cell;

	foreach(cell, scan->qual)
	{
		Expr	   *most = MostByClause(scan, lfirst(cell), no_numbers);

		if (most != NULL && !contain_var_clause((Node *) most) &&
			!contain_volatile_functions((Node *) most) &&
			!contain_subplans((Node *) most))
			return copyObject(most);
	}
	return NULL;
}

/* The entry may be shared: only a copy is changed. */
static TargetEntry *
WithNull(const TargetEntry *target)
{
	const Node *expr = (const Node *) target->expr;
	TargetEntry *copy = flatCopyTargetEntry(unconstify(TargetEntry *, target));

	copy->expr = (Expr *) makeNullConst(exprType(expr), exprTypmod(expr),
										exprCollation(expr));
	return copy;
}

/*
 * Replace by NULL each distance that a node computes and that is not among its
 * wanted columns.
 */
void
PipeannLeaveOutUnread(Plan *node, const Bitmapset *wanted)
{
	for (int i = 0; i < list_length(node->targetlist); i++)
	{
		TargetEntry *target = list_nth_node(TargetEntry, node->targetlist, i);

		if (!IsA(target->expr, OpExpr) ||
			PipeannHasColumn(wanted, target->resno) ||
			!IsDistance(node, (Node *) target->expr))
			continue;
		node->targetlist = list_copy(node->targetlist);
		lfirst(list_nth_cell(node->targetlist, i)) = WithNull(target);
	}
}
