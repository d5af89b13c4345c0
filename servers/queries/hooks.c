/*
 * hooks.c
 *		Loading of the library, its settings, and the planner's hooks.
 *
 * The library of pipeann itself is loaded first if it is not there. So its hook was
 * set before ours, whatever is preloaded in which order, and ours calls it: what is
 * made of a query here is planned there, and the plan that is finished here is one in
 * which all other changes have been made.
 */
#include "postgres.h"

#include "fmgr.h"
#include "optimizer/planner.h"
#include "queries/queries.h"
#include "utils/guc.h"
#include "utils/varlena.h"

#if PG_VERSION_NUM >= 180000
PG_MODULE_MAGIC_EXT(.name = "pipeann_servers", .version = PIPEANN_VERSION);
#else
PG_MODULE_MAGIC;
#endif

PGDLLEXPORT void _PG_init(void);

double		pipeann_shard_coverage;
char	   *pipeann_part_servers;
int			pipeann_part_timeout;

static bool
CheckPartServers(char **value, void **extra, GucSource source)
{
	List	   *names;

	if (SplitIdentifierString(pstrdup(*value), ',', &names))
		return true;
	GUC_check_errdetail("List syntax is invalid.");
	return false;
}

static void
InitSettings(void)
{
	DefineCustomRealVariable("pipeann_servers.shard_coverage",
							 "Share of the nearest rows that is expected of the servers asked, where rows are divided by cells.",
							 "Others are asked if fewer rows than wanted are found. 1 asks all servers.",
							 &pipeann_shard_coverage, 0.97, 0, 1, PGC_USERSET,
							 GUC_EXPLAIN, NULL, NULL, NULL);
	DefineCustomStringVariable("pipeann_servers.part_servers",
							   "Foreign servers that have the same indexes, each with a part in memory.",
							   "The first has part 1. In mode baton they go on with searches that want pages of their part.",
							   &pipeann_part_servers, "", PGC_SUSET,
							   GUC_LIST_INPUT, CheckPartServers, NULL, NULL);
	DefineCustomIntVariable("pipeann_servers.part_timeout",
							"How long a search waits for other servers, all their answers together.",
							"After that it goes on alone.",
							&pipeann_part_timeout, 1000, 1, 60000,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);
	MarkGUCPrefixReserved("pipeann_servers");
}

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

	if (!pipeann_core->rewrites_plans() ||
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
	if (pipeann_core->rewrites_plans() && stage == UPPERREL_FINAL)
		PipeannSendLimit(root, input, output, extra);
}

void
_PG_init(void)
{
	PipeannFindCore();
	InitSettings();
	*pipeann_core->ask_part = PipeannAskPart;
	RegisterCustomScanMethods(&PipeannOneMessageMethods);
	former_planner = planner_hook;
	planner_hook = PlanAndRewrite;
	former_upper_paths = create_upper_paths_hook;
	create_upper_paths_hook = AddUpperPaths;
}
