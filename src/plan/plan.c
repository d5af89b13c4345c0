/*
 * plan.c
 *		The planner's hooks.
 *
 * Hooks are chained: others that were there first plan, and what they return
 * passes through here.
 */
#include "postgres.h"

#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "plan/bitmap.h"
#include "plan/distance.h"
#include "plan/element.h"
#include "plan/fill.h"
#include "plan/finished.h"
#include "plan/merge.h"
#include "plan/plan.h"

bool		pipeann_rewrite_plans;
bool		pipeann_bitmap_scan;

static planner_hook_type former_planner;
static set_rel_pathlist_hook_type former_rel_paths;

static PlannedStmt *
PlanQuery(Query *query, const char *text, int cursor_options,
		  ParamListInfo params)
{
	return former_planner != NULL ?
		former_planner(query, text, cursor_options, params) :
		standard_planner(query, text, cursor_options, params);
}

static PlannedStmt *
PlanAndRewrite(Query *query, const char *text, int cursor_options,
			   ParamListInfo params)
{
	PlannedStmt *stmt;

	if (!pipeann_rewrite_plans)
		return PlanQuery(query, text, cursor_options, params);
	PipeannAskForElements(query);
	stmt = PlanQuery(query, text, cursor_options, params);
	PipeannRewritePlan(stmt, (cursor_options & CURSOR_OPT_FAST_PLAN) != 0);
	return stmt;
}

static void
AddRelPaths(PlannerInfo *root, RelOptInfo *rel, Index number,
			RangeTblEntry *entry)
{
	if (former_rel_paths != NULL)
		former_rel_paths(root, rel, number, entry);
	PipeannDropRefused(rel);
	if (pipeann_bitmap_scan)
		PipeannAddBitmapPaths(root, rel);
}

/* Let all plans that the server makes from now on pass through here. */
void
PipeannPlanInit(void)
{
	RegisterCustomScanMethods(&PipeannMergeMethods);
	RegisterCustomScanMethods(&PipeannBitmapMethods);
	RegisterCustomScanMethods(&PipeannFillMethods);
	former_rel_paths = set_rel_pathlist_hook;
	set_rel_pathlist_hook = AddRelPaths;
	former_planner = planner_hook;
	planner_hook = PlanAndRewrite;
}
