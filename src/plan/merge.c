/*
 * merge.c
 *		Merges of the nearest rows of partitions, one limit for all.
 *
 * The nearest rows of a table with partitions are a merge of as many searches as
 * there are partitions, each as long as that of a table without. Above it there is
 * a limit, which nobody below knows of. So a node of ours takes the merge's place,
 * and has it as its child: it asks the partitions in another order.
 */
#include "postgres.h"

#include "catalog/pg_operator_d.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "plan/distance.h"
#include "plan/merge.h"
#include "plan/wrapper.h"

/* The node may run a scan twice. */
static bool
MayRunTwice(const Plan *plan)
{
	return !contain_volatile_functions((Node *) plan->targetlist) &&
		!contain_volatile_functions((Node *) plan->qual);
}

/* What a scan of ours is ordered by, NIL if it is none. */
static const List *
OrderOf(const Plan *plan)
{
	const List *order = NIL;
	Oid			index = InvalidOid;

	if (IsA(plan, IndexScan))
	{
		order = ((const IndexScan *) plan)->indexorderby;
		index = ((const IndexScan *) plan)->indexid;
	}
	else if (IsA(plan, IndexOnlyScan))
	{
		order = ((const IndexOnlyScan *) plan)->indexorderby;
		index = ((const IndexOnlyScan *) plan)->indexid;
	}
	return order != NIL && PipeannIsIndex(index) ? order : NIL;
}

static bool
IsSameOrder(const List *a, const List *b)
{
	const OpExpr *x = linitial(a);
	const OpExpr *y = linitial(b);

	return list_length(a) == 1 && list_length(b) == 1 && IsA(x, OpExpr) &&
		IsA(y, OpExpr) && x->opno == y->opno &&
		equal(lsecond(x->args), lsecond(y->args));
}

/*
 * Whether there are several scans of ours, and all of them from one vector by one
 * operator. A UNION ALL may have others, whose distances cannot be compared before
 * the rows are there.
 */
static bool
AreFromOneVector(const List *plans)
{
	const List *first = NIL;
	int			n = 0;
	ListCell   *cell;

	foreach(cell, plans)
	{
		const List *order = OrderOf(lfirst(cell));

		if (order == NIL)
			continue;
		if (first == NIL)
			first = order;
		if (!IsSameOrder(first, order) || !MayRunTwice(lfirst(cell)))
			return false;
		n++;
	}
	return n > 1;
}

static bool
IsByDistance(const MergeAppend *merge)
{
	return merge->numCols == 1 &&
		merge->sortOperators[0] == Float8LessOperator &&
		!merge->nullsFirst[0] && AreFromOneVector(merge->mergeplans);
}

/* The node computes what the limit is, and so does the limit itself. */
static bool
IsAlwaysTheSame(Node *limit)
{
	return !contain_volatile_functions(limit) && !contain_subplans(limit);
}

static Plan *
MakeNode(const Limit *limit, MergeAppend *merge)
{
	CustomScan *node = PipeannWrapBelow(limit, &merge->plan,
										 &PipeannMergeMethods);

	node->custom_private = list_make1_int(merge->sortColIdx[0]);
	return &node->scan.plan;
}

/*
 * Where a limit has a merge of scans of ours below it, let these know from
 * one another which rows are not wanted.
 *
 * Between the two there may be a node that computes columns.
 */
void
PipeannLimitMerge(Limit *limit)
{
	Plan	  **place = &limit->plan.lefttree;

	if (limit->limitCount == NULL ||
		limit->limitOption != LIMIT_OPTION_COUNT ||
		!IsAlwaysTheSame(limit->limitCount) ||
		!IsAlwaysTheSame(limit->limitOffset))
		return;
	if (IsA(*place, Result) && (*place)->lefttree != NULL &&
		(*place)->qual == NIL && ((Result *) *place)->resconstantqual == NULL)
		place = &(*place)->lefttree;
	if (IsA(*place, MergeAppend) && IsByDistance((MergeAppend *) *place))
		*place = MakeNode(limit, (MergeAppend *) *place);
}
