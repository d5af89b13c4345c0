/*
 * fill.c
 *		Scans below a limit that may end before it is filled.
 *
 * In strict order a scan leaves out what it finds after a farther row was returned.
 * Where few rows match, a scan finds all of them, and each that it leaves out is
 * missing: eight rows where there are nine. A node of ours above the scan keeps the
 * rows until the limit is filled. If it is not, and rows were left out, it begins
 * again with a scan that finds everything first.
 */
#include "postgres.h"

#include <math.h>

#include "optimizer/optimizer.h"
#include "plan/distance.h"
#include "plan/fill.h"
#include "plan/stand_in.h"

/* Without conditions a limit of a smaller share of the rows is sure to be filled. */
#define SURE_SHARE 0.5

/* The plan that hands up as many rows as the limit takes, or NULL. */
static Plan **
PlaceBelow(Limit *limit)
{
	Plan	  **place = &limit->plan.lefttree;

	for (;;)
	{
		Plan	   *plan = *place;

		if (plan == NULL || (plan->qual != NIL && !IsA(plan, IndexScan) &&
							 !IsA(plan, IndexOnlyScan)))
			return NULL;
		if (IsA(plan, SubqueryScan))
			place = &((SubqueryScan *) plan)->subplan;
		else if (IsA(plan, LockRows) ||
				 (IsA(plan, Result) &&
				  ((Result *) plan)->resconstantqual == NULL))
			place = &plan->lefttree;
		else
			return place;
	}
}

/* Whether a plan is a scan of ours by distance, and if so, if it has conditions. */
static bool
IsByDistance(const Plan *plan, bool *has_conditions)
{
	if (IsA(plan, IndexScan))
	{
		const IndexScan *scan = (const IndexScan *) plan;

		*has_conditions = plan->qual != NIL || scan->indexqual != NIL;
		return list_length(scan->indexorderby) == 1 &&
			PipeannIsIndex(scan->indexid);
	}
	if (IsA(plan, IndexOnlyScan))
	{
		const IndexOnlyScan *scan = (const IndexOnlyScan *) plan;

		*has_conditions = plan->qual != NIL || scan->indexqual != NIL;
		return list_length(scan->indexorderby) == 1 &&
			PipeannIsIndex(scan->indexid);
	}
	return false;
}

/* A constant of a limit; infinity if it is none, or no number. */
static double
Known(const Node *number)
{
	const Const *known = (const Const *) number;

	if (number == NULL)
		return 0;
	return IsA(number, Const) && !known->constisnull ?
		(double) DatumGetInt64(known->constvalue) : INFINITY;
}

/* The node evaluates the limit as well, and may run the scan twice. */
static bool
MayRunTwice(const Limit *limit, const Plan *scan)
{
	return !contain_volatile_functions(limit->limitCount) &&
		!contain_volatile_functions(limit->limitOffset) &&
		!contain_volatile_functions((Node *) scan->targetlist) &&
		!contain_volatile_functions((Node *) scan->qual);
}

void
PipeannFillLimit(Limit *limit)
{
	Plan	  **place = PlaceBelow(limit);
	bool		has_conditions;
	CustomScan *node;

	if (limit->limitCount == NULL || limit->limitOption != LIMIT_OPTION_COUNT ||
		place == NULL || !IsByDistance(*place, &has_conditions) ||
		!MayRunTwice(limit, *place))
		return;
	if (!has_conditions &&
		Known(limit->limitCount) + Known(limit->limitOffset) <
		SURE_SHARE * (*place)->plan_rows)
		return;
	node = PipeannStandIn(*place, &PipeannFillMethods);
	node->scan.plan.extParam = bms_union(node->scan.plan.extParam,
										 limit->plan.extParam);
	node->scan.plan.allParam = bms_union(node->scan.plan.allParam,
										 limit->plan.allParam);
	node->custom_exprs = list_make1(copyObject(limit->limitCount));
	if (limit->limitOffset != NULL)
		node->custom_exprs = lappend(node->custom_exprs,
									 copyObject(limit->limitOffset));
	*place = &node->scan.plan;
}
