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
#include "plan/distance.h"
#include "plan/merge.h"
#include "plan/stand_in.h"

/* Scans of ours, in the order of a distance. */
static int
CountScans(const List *plans)
{
	int			n = 0;
	ListCell   *cell;

	foreach(cell, plans)
	{
		const Plan *plan = lfirst(cell);

		if (IsA(plan, IndexScan))
			n += ((const IndexScan *) plan)->indexorderby != NIL &&
				PipeannIsIndex(((const IndexScan *) plan)->indexid);
		else if (IsA(plan, IndexOnlyScan))
			n += ((const IndexOnlyScan *) plan)->indexorderby != NIL &&
				PipeannIsIndex(((const IndexOnlyScan *) plan)->indexid);
	}
	return n;
}

static bool
IsByDistance(const MergeAppend *merge)
{
	return merge->numCols == 1 &&
		merge->sortOperators[0] == Float8LessOperator &&
		!merge->nullsFirst[0] && CountScans(merge->mergeplans) > 1;
}

static Plan *
MakeNode(const Limit *limit, MergeAppend *merge)
{
	CustomScan *node = PipeannStandIn(&merge->plan, &PipeannMergeMethods);
	Plan	   *plan = &node->scan.plan;

	plan->extParam = bms_copy(limit->plan.extParam);
	plan->allParam = bms_copy(limit->plan.allParam);
	node->custom_exprs = list_make1(copyObject(limit->limitCount));
	if (limit->limitOffset != NULL)
		node->custom_exprs = lappend(node->custom_exprs,
									 copyObject(limit->limitOffset));
	node->custom_private = list_make1_int(merge->sortColIdx[0]);
	return plan;
}

/* Between the two there may be a node that computes columns. */
void
PipeannLimitMerge(Limit *limit)
{
	Plan	  **place = &limit->plan.lefttree;

	if (limit->limitCount == NULL || limit->limitOption != LIMIT_OPTION_COUNT)
		return;
	if (IsA(*place, Result) && (*place)->lefttree != NULL &&
		(*place)->qual == NIL && ((Result *) *place)->resconstantqual == NULL)
		place = &(*place)->lefttree;
	if (IsA(*place, MergeAppend) && IsByDistance((MergeAppend *) *place))
		*place = MakeNode(limit, (MergeAppend *) *place);
}
