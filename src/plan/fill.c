/*
 * fill.c
 *		Scans below a limit that may end before it is filled.
 *
 * In strict order a scan leaves out what it finds after a farther row was returned.
 * Where few rows match, a scan finds all of them, and each that it leaves out is
 * missing: eight rows where there are nine. A node of ours below the limit keeps the
 * rows until this is filled. If it is not, and rows were left out, it begins again
 * with scans that find everything first.
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "plan/bitmap.h"
#include "plan/distance.h"
#include "plan/fill.h"
#include "plan/stand_in.h"

/* Without conditions a limit of a smaller share of the rows is sure to be filled. */
#define SURE_SHARE 0.5

/* The scans of ours that a plan's rows come from, one row from each of theirs. */
typedef struct Sources
{
	int			scans;
	double		rows;			/* of all of them, as the planner guesses */
	bool		may_lose;		/* conditions or joins may leave rows out */
} Sources;

/*
 * The plan whose rows the limit takes as they come: what is between them leaves none
 * out, but for locking. Locks are for the row that is handed up.
 */
static Plan **
PlaceBelow(Limit *limit)
{
	Plan	  **place = &limit->plan.lefttree;

	while (*place != NULL && (*place)->qual == NIL)
	{
		Plan	   *plan = *place;

		if (IsA(plan, SubqueryScan))
			place = &((SubqueryScan *) plan)->subplan;
		else if (IsA(plan, LockRows) ||
				 (IsA(plan, Result) &&
				  ((Result *) plan)->resconstantqual == NULL))
			place = &plan->lefttree;
		else
			break;
	}
	return place;
}

static void
AddScan(Sources *sources, const Plan *plan, Oid index, const List *distances,
		const List *conditions)
{
	if (list_length(distances) != 1 || !PipeannIsIndex(index))
		return;
	sources->scans++;
	sources->rows += plan->plan_rows;
	sources->may_lose |= plan->qual != NIL || conditions != NIL;
}

/* Those that a plan's rows come from in their order. */
static void
FindScans(Sources *sources, const Plan *plan)
{
	ListCell   *cell;

	if (plan == NULL)
		return;
	check_stack_depth();
	switch (nodeTag(plan))
	{
		case T_IndexScan:
			AddScan(sources, plan, ((const IndexScan *) plan)->indexid,
					((const IndexScan *) plan)->indexorderby,
					((const IndexScan *) plan)->indexqual);
			return;
		case T_IndexOnlyScan:
			AddScan(sources, plan, ((const IndexOnlyScan *) plan)->indexid,
					((const IndexOnlyScan *) plan)->indexorderby,
					((const IndexOnlyScan *) plan)->indexqual);
			return;
		case T_SubqueryScan:
			FindScans(sources, ((const SubqueryScan *) plan)->subplan);
			break;
		case T_MergeAppend:
			foreach(cell, ((const MergeAppend *) plan)->mergeplans)
				FindScans(sources, lfirst(cell));
			return;
		case T_CustomScan:
			if (PipeannScanOfBitmap((const CustomScan *) plan) == NULL)
				FindScans(sources, outerPlan(plan));
			else
				FindScans(sources,
						  PipeannScanOfBitmap((const CustomScan *) plan));
			return;
		case T_Result:
			FindScans(sources, outerPlan(plan));
			break;
		case T_IncrementalSort:
		case T_NestLoop:
		case T_ProjectSet:
		case T_Unique:
		case T_WindowAgg:
			FindScans(sources, outerPlan(plan));
			sources->may_lose = true;
			return;
		default:
			return;
	}
	sources->may_lose |= plan->qual != NIL;
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

/* Whether PostgreSQL finds the scan of a cursor's table there (execCurrent.c). */
static bool
IsPlaceOfCursor(const Plan *plan)
{
	return !IsA(plan, CustomScan) && !IsA(plan, NestLoop) &&
		!IsA(plan, WindowAgg);
}

void
PipeannFillLimit(Limit *limit, bool is_cursor)
{
	Plan	  **place = PlaceBelow(limit);
	Sources		sources = {0};
	CustomScan *node;

	if (limit->limitCount == NULL || limit->limitOption != LIMIT_OPTION_COUNT)
		return;
	FindScans(&sources, *place);
	if (sources.scans == 0 || (is_cursor && IsPlaceOfCursor(*place)) ||
		(!sources.may_lose &&
		 Known(limit->limitCount) + Known(limit->limitOffset) <
		 SURE_SHARE * sources.rows))
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
