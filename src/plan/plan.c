/*
 * plan.c
 *		From the top of a finished plan down to the scans of pipeann indexes.
 *
 * On the way it is found out which columns of a scan are read. Nodes that are
 * not known to pass rows on are taken to read everything, whatever is in them:
 * sorts, merges, aggregates, set operations, and nodes of other extensions.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "optimizer/planner.h"
#include "plan/columns.h"
#include "plan/distance.h"
#include "plan/plan.h"

bool		pipeann_rewrite_plans;

static planner_hook_type former_hook;

static void Rewrite(Plan *plan, const Bitmapset *wanted);

static void
RewriteAll(const List *plans, const Bitmapset *wanted)
{
	ListCell   *cell;

	foreach(cell, plans)
		Rewrite(lfirst(cell), wanted);
}

/* A node that may read all columns of its children, wherever they are. */
static void
RewriteBelow(const Plan *plan)
{
	const Bitmapset *all = bms_make_singleton(PIPEANN_ALL_COLUMNS);

	Rewrite(outerPlan(plan), all);
	Rewrite(innerPlan(plan), all);
	if (IsA(plan, Append))
		RewriteAll(((const Append *) plan)->appendplans, all);
	else if (IsA(plan, MergeAppend))
		RewriteAll(((const MergeAppend *) plan)->mergeplans, all);
	else if (IsA(plan, CustomScan))
		RewriteAll(((const CustomScan *) plan)->custom_plans, all);
}

/* A node that reads of its children what its expressions and keys name. */
static void
RewriteChildren(const Plan *plan, const Bitmapset *wanted)
{
	if (IsA(plan, SubqueryScan))
	{
		const SubqueryScan *scan = (const SubqueryScan *) plan;

		Rewrite(scan->subplan,
				PipeannColumnsRead(plan, scan->scan.scanrelid, wanted));
		return;
	}
	if (outerPlan(plan) != NULL)
		Rewrite(outerPlan(plan), PipeannColumnsRead(plan, OUTER_VAR, wanted));
	if (innerPlan(plan) != NULL)
		Rewrite(innerPlan(plan), PipeannColumnsRead(plan, INNER_VAR, wanted));
}

static void
Rewrite(Plan *plan, const Bitmapset *wanted)
{
	if (plan == NULL)
		return;
	check_stack_depth();
	PipeannLeaveOutUnread(plan, wanted);
	switch (nodeTag(plan))
	{
		case T_Hash:
		case T_HashJoin:
		case T_IncrementalSort:
		case T_IndexScan:
		case T_Limit:
		case T_LockRows:
		case T_Material:
		case T_Memoize:
		case T_NestLoop:
		case T_ProjectSet:
		case T_Result:
		case T_Sort:
		case T_SubqueryScan:
		case T_Unique:
			RewriteChildren(plan, wanted);
			break;
		case T_Agg:
			if (((const Agg *) plan)->chain == NIL)
				RewriteChildren(plan, wanted);
			else
				RewriteBelow(plan);
			break;
		default:
			RewriteBelow(plan);
			break;
	}
}

/* The plan of a query, or of one inside it. */
static void
RewriteQuery(Plan *plan)
{
	if (plan != NULL)
		Rewrite(plan, PipeannColumnsReturned(plan->targetlist));
}

static PlannedStmt *
PlanAndRewrite(Query *query, const char *text, int cursor_options,
			   ParamListInfo params)
{
	PlannedStmt *stmt = former_hook != NULL ?
		former_hook(query, text, cursor_options, params) :
		standard_planner(query, text, cursor_options, params);
	ListCell   *cell;

	if (!pipeann_rewrite_plans)
		return stmt;
	RewriteQuery(stmt->planTree);
	foreach(cell, stmt->subplans)
		RewriteQuery(lfirst(cell));
	return stmt;
}

void
PipeannPlanInit(void)
{
	former_hook = planner_hook;
	planner_hook = PlanAndRewrite;
}
