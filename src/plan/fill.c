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

#include "miscadmin.h"
#include "plan/bitmap.h"
#include "plan/distance.h"
#include "plan/fill.h"
#include "plan/steady.h"
#include "plan/wrapper.h"

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

static bool
IsScanOfOurs(Oid index, const List *distances)
{
	return list_length(distances) == 1 && PipeannIsIndex(index);
}

/* Whether a plan's rows come from scans of ours, in their order. */
static bool
IsFromScans(const Plan *plan)
{
	ListCell   *cell;

	if (plan == NULL)
		return false;
	check_stack_depth();
	switch (nodeTag(plan))
	{
		case T_IndexScan:
			return IsScanOfOurs(((const IndexScan *) plan)->indexid,
								((const IndexScan *) plan)->indexorderby);
		case T_IndexOnlyScan:
			return IsScanOfOurs(((const IndexOnlyScan *) plan)->indexid,
								((const IndexOnlyScan *) plan)->indexorderby);
		case T_SubqueryScan:
			return IsFromScans(((const SubqueryScan *) plan)->subplan);
		case T_MergeAppend:
			foreach(cell, ((const MergeAppend *) plan)->mergeplans)
				if (IsFromScans(lfirst(cell)))
					return true;
			return false;
		case T_CustomScan:
			return IsFromScans(outerPlan(plan)) ||
				PipeannScanOfBitmap((const CustomScan *) plan) != NULL;
		case T_IncrementalSort:
		case T_NestLoop:
		case T_ProjectSet:
		case T_Result:
		case T_Unique:
		case T_WindowAgg:
			return IsFromScans(outerPlan(plan));
		default:
			return false;
	}
}

/* Whether PostgreSQL finds the scan of a cursor's table there (execCurrent.c). */
static bool
IsPlaceOfCursor(const Plan *plan)
{
	return !IsA(plan, CustomScan) && !IsA(plan, NestLoop) &&
		!IsA(plan, WindowAgg);
}

/*
 * Where a limit has scans of ours below it that may come to their end before
 * it is filled, put a node of ours between them. To be done when the columns of what
 * is below are what they will be. What is below may be run twice, so it must be steady
 * (steady.h), and the limit is evaluated twice. The place of a cursor is where the
 * only scan of its table is (UPDATE ... WHERE CURRENT OF): rows must not be kept above
 * that.
 *
 * How many rows there are is not known, and the planner may be wrong by any factor.
 */
void
PipeannFillLimit(PlannedStmt *stmt, Limit *limit, bool is_cursor)
{
	Plan	  **place = PlaceBelow(limit);

	if (limit->limitCount == NULL || !IsFromScans(*place) ||
		(is_cursor && IsPlaceOfCursor(*place)) ||
		PipeannHasVolatile(limit->limitCount, stmt) ||
		PipeannHasVolatile(limit->limitOffset, stmt) ||
		!PipeannIsSteadyPlan(stmt, *place))
		return;
	*place = &PipeannWrapBelow(limit, *place,
							   &PipeannFillMethods)->scan.plan;
}

/* A node that keeps all rows of what has scans of ours for it. */
static void
FillAll(PlannedStmt *stmt, Plan **place)
{
	if (IsFromScans(*place) && PipeannIsSteadyPlan(stmt, *place))
		*place = &PipeannWrapBelow(NULL, *place,
								   &PipeannFillMethods)->scan.plan;
}

/* Whether a node hands up no row before it has had all of its child's. */
static bool
IsDrain(const Plan *plan)
{
	switch (nodeTag(plan))
	{
		case T_Agg:
		case T_Hash:
		case T_SetOp:
		case T_Sort:
			return true;
		default:
			return false;
	}
}

/*
 * Put such a node, for all rows, where something wants all of them before it hands
 * up one. The planner may take a scan of ours as what reads least, below a sort in
 * another order, as there is a limit somewhere above.
 */
void
PipeannFillDrains(PlannedStmt *stmt, Plan **place, bool drained)
{
	Plan	   *plan = *place;
	ListCell   *cell;

	if (plan == NULL)
		return;
	check_stack_depth();
	switch (nodeTag(plan))
	{
		case T_CustomScan:
		case T_IndexScan:
		case T_IndexOnlyScan:
		case T_MergeAppend:
			if (drained)
				FillAll(stmt, place);
			return;
		case T_SubqueryScan:
			PipeannFillDrains(stmt, &((SubqueryScan *) plan)->subplan, drained);
			return;
		case T_Append:
			foreach(cell, ((Append *) plan)->appendplans)
				PipeannFillDrains(stmt, (Plan **) &lfirst(cell), drained);
			return;
		case T_Limit:
			drained = false;
			break;
		default:
			drained |= IsDrain(plan);
			break;
	}
	PipeannFillDrains(stmt, &plan->lefttree, drained);
	PipeannFillDrains(stmt, &plan->righttree, drained);
}
