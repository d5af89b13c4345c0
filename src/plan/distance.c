/*
 * distance.c
 *		The distances that scans of pipeann indexes are ordered by, among a
 *		plan's expressions.
 *
 * A query that is ordered by a distance has the distance in the target lists of
 * its plan's nodes, so that those above could compare rows by it. The index has
 * ordered the rows, and mostly nobody reads it; to compute it the executor
 * fetches the row's vector, from TOAST if it is long.
 *
 * A distance that nobody reads becomes a NULL. It keeps its column, so that
 * numbers and types of columns are what the nodes above were made for.
 */
#include "postgres.h"

#include "access/amapi.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "plan/bitmap.h"
#include "plan/columns.h"
#include "plan/distance.h"
#include "scan/scan.h"
#include "utils/lsyscache.h"
#include "utils/relcache.h"

/* What a node's expressions mean by Vars of varno. */
typedef struct Child
{
	const Plan *plan;			/* NULL: there is none that hands its rows up */
	int			varno;
} Child;

/*
 * Whether an index, or an access method, is one of ours.
 *
 * An index of which there is nothing but a planner's idea is not ours.
 */
bool
PipeannIsIndex(Oid indexid)
{
	Relation	index = RelationIdGetRelation(indexid);
	bool		ours;

	if (!RelationIsValid(index))
		return false;
	ours = index->rd_indam != NULL &&
		index->rd_indam->amgettuple == pipeanngettuple;
	RelationClose(index);
	return ours;
}

bool
PipeannIsMethod(Oid am)
{
	IndexAmRoutine *routine = GetIndexAmRoutineByAmId(am, true);
	bool		ours = routine != NULL &&
		routine->amgettuple == pipeanngettuple;

	if (routine != NULL)
		pfree(routine);
	return ours;
}

/* The planner exchanges the operands where the column stands on the right. */
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

static bool
IsOneOf(const Node *expr, const List *distances, Oid indexid)
{
	ListCell   *cell;

	foreach(cell, distances)
		if (IsSameDistance(expr, lfirst(cell)))
			return PipeannIsIndex(indexid);
	return false;
}

/* Whether an expression of the node's is the distance that it is ordered by. */
bool
PipeannOrdersScan(const Node *expr, const IndexScan *node)
{
	return IsOneOf(expr, node->indexorderbyorig, node->indexid);
}

/* Expressions of an index-only scan name the index's columns. */
static bool
OrdersOnlyScan(const Node *expr, const IndexOnlyScan *node)
{
	return IsOneOf(expr, node->indexorderby, node->indexid);
}

/* The child whose rows a node hands up one by one. */
static Child
ChildOf(const Plan *node)
{
	Child		child = {outerPlan(node), OUTER_VAR};

	switch (nodeTag(node))
	{
		case T_Limit:
		case T_LockRows:
		case T_Material:
		case T_NestLoop:
		case T_ProjectSet:
		case T_Result:
			return child;
		case T_SubqueryScan:
			child.plan = ((const SubqueryScan *) node)->subplan;
			child.varno = ((const SubqueryScan *) node)->scan.scanrelid;
			return child;
		case T_CustomScan:
			child.plan = PipeannScanOfBitmap((const CustomScan *) node);
			child.varno = INDEX_VAR;
			return child;
		default:
			child.plan = NULL;
			return child;
	}
}

/* Expressions of the child in the place of its columns. */
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
	return IsA(node, IndexScan) ?
		PipeannOrdersScan(expr, (const IndexScan *) node) :
		OrdersOnlyScan(expr, (const IndexOnlyScan *) node);
}

/* The entry may belong to others, too: only a copy is changed. */
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
 * Put NULL in the place of each distance that a node computes although it is not
 * among its columns that are wanted.
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
