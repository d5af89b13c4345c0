/*
 * finished.c
 *		From the top of a finished plan down to the scans of pipeann indexes.
 *
 * On the way it is found out which columns of a scan are read. Nodes that are
 * not known to pass rows on are taken to read everything, whatever is in them:
 * sorts, merges, aggregates, set operations, and nodes of other extensions.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "plan/columns.h"
#include "plan/distance.h"
#include "plan/fill.h"
#include "plan/finished.h"
#include "plan/merge.h"
#include "plan/vector.h"

typedef struct Rewriting
{
	PlannedStmt *stmt;
	bool		is_cursor;
} Rewriting;

static void Rewrite(const Rewriting *r, Plan *plan, const Bitmapset *wanted);

static void
RewriteAll(const Rewriting *r, const List *plans, const Bitmapset *wanted)
{
	ListCell   *cell;

	foreach(cell, plans)
		Rewrite(r, lfirst(cell), wanted);
}

/* A node that may read all columns of its children, wherever they are. */
static void
RewriteBelow(const Rewriting *r, const Plan *plan)
{
	const Bitmapset *all = bms_make_singleton(PIPEANN_ALL_COLUMNS);

	Rewrite(r, outerPlan(plan), all);
	Rewrite(r, innerPlan(plan), all);
	if (IsA(plan, Append))
		RewriteAll(r, ((const Append *) plan)->appendplans, all);
	else if (IsA(plan, MergeAppend))
		RewriteAll(r, ((const MergeAppend *) plan)->mergeplans, all);
	else if (IsA(plan, CustomScan))
		RewriteAll(r, ((const CustomScan *) plan)->custom_plans, all);
}

/* A node that reads of its children what its expressions and keys name. */
static void
RewriteChildren(const Rewriting *r, const Plan *plan,
				const Bitmapset *wanted)
{
	if (IsA(plan, SubqueryScan))
	{
		const SubqueryScan *scan = (const SubqueryScan *) plan;

		Rewrite(r, scan->subplan,
				PipeannColumnsRead(plan, scan->scan.scanrelid, wanted));
		return;
	}
	if (outerPlan(plan) != NULL)
		Rewrite(r, outerPlan(plan),
				PipeannColumnsRead(plan, OUTER_VAR, wanted));
	if (innerPlan(plan) != NULL)
		Rewrite(r, innerPlan(plan),
				PipeannColumnsRead(plan, INNER_VAR, wanted));
}

static void
Rewrite(const Rewriting *r, Plan *plan, const Bitmapset *wanted)
{
	if (plan == NULL)
		return;
	check_stack_depth();
	PipeannLeaveOutUnread(plan, wanted);
	switch (nodeTag(plan))
	{
		case T_IndexScan:
			PipeannTakeVectors(r->stmt, (IndexScan *) plan, wanted);
			break;
		case T_Limit:
			PipeannLimitMerge((Limit *) plan);
			RewriteChildren(r, plan, wanted);
			PipeannFillLimit(r->stmt, (Limit *) plan, r->is_cursor);
			break;
		case T_Hash:
		case T_HashJoin:
		case T_IncrementalSort:
		case T_LockRows:
		case T_Material:
		case T_Memoize:
		case T_NestLoop:
		case T_ProjectSet:
		case T_Result:
		case T_Sort:
		case T_SubqueryScan:
		case T_Unique:
			RewriteChildren(r, plan, wanted);
			break;
		case T_Agg:
			if (((const Agg *) plan)->chain == NIL)
				RewriteChildren(r, plan, wanted);
			else
				RewriteBelow(r, plan);
			break;
		default:
			RewriteBelow(r, plan);
			break;
	}
}

/* The plan of a query, or of one inside it. */
static void
RewriteQuery(const Rewriting *r, Plan *plan)
{
	if (plan != NULL)
		Rewrite(r, plan, PipeannColumnsReturned(plan->targetlist));
}

void
PipeannRewritePlan(PlannedStmt *stmt, bool is_cursor)
{
	Rewriting	r = {.stmt = stmt,.is_cursor = is_cursor};
	ListCell   *cell;

	RewriteQuery(&r, stmt->planTree);
	PipeannFillDrains(stmt, &stmt->planTree, false);
	foreach(cell, stmt->subplans)
	{
		RewriteQuery(&r, lfirst(cell));
		PipeannFillDrains(stmt, (Plan **) &lfirst(cell), false);
	}
}
