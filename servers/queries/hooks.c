/*
 * hooks.c
 *		Loading of the library, and the planner's hooks.
 *
 * pipeann is loaded first, if it is not loaded. So its hook was set before ours,
 * whatever is preloaded in which order, and ours calls it: it plans what we make of
 * a query, and the plan that we change has all of its changes.
 */
#include "postgres.h"

#include "cells/cells.h"
#include "fmgr.h"
#include "optimizer/planner.h"
#include "queries/queries.h"

#if PG_VERSION_NUM >= 180000
PG_MODULE_MAGIC_EXT(.name = "pipeann_servers", .version = PIPEANN_VERSION);
#else
PG_MODULE_MAGIC;
#endif

PGDLLEXPORT void _PG_init(void);

static planner_hook_type former_planner;
static create_upper_paths_hook_type former_upper_paths;

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
	bool		one_message;
	PlannedStmt *stmt;

	if (!*pipeann_core->rewrites_plans ||
		!PipeannRewritePerPartition(query, params))
		return PlanQuery(query, text, cursor_options, params);
	one_message = PipeannIsSteady(query);
	stmt = PlanQuery(query, text, cursor_options, params);
	PipeannRunAsync(stmt);
	if (one_message)
		PipeannAskInOneMessage(stmt);
	return stmt;
}

static void
AddUpperPaths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input,
			  RelOptInfo *output, void *extra)
{
	if (former_upper_paths != NULL)
		former_upper_paths(root, stage, input, output, extra);
	if (*pipeann_core->rewrites_plans && stage == UPPERREL_FINAL)
		PipeannSendLimit(root, input, output, extra);
}

void
_PG_init(void)
{
	PipeannFindCore();
	PipeannSettingsInit();
	PipeannCellsPreload();
	*pipeann_core->ask_part = PipeannAskPart;
	RegisterCustomScanMethods(&PipeannOneMessageMethods);
	former_planner = planner_hook;
	planner_hook = PlanAndRewrite;
	former_upper_paths = create_upper_paths_hook;
	create_upper_paths_hook = AddUpperPaths;
}
