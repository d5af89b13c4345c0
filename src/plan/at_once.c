/*
 * at_once.c
 *		Scans of partitions on other servers, run at the same time.
 *
 * PostgreSQL runs foreign scans below an Append at the same time if a server's
 * option says so. It is off by default, as a scan of a whole table would keep its
 * connection from others; these ask for few rows, and all of them are needed.
 */
#include "postgres.h"

#include "foreign/fdwapi.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "optimizer/cost.h"
#include "parser/parse_relation.h"
#include "parser/parsetree.h"
#include "plan/spread.h"
#include "utils/lsyscache.h"

/* What walks through a plan. */
typedef struct Walk
{
	const PlannedStmt *stmt;
	const List *partitions;
} Walk;

/*
 * postgres_fdw asks nothing but that option. Other wrappers may have reasons of
 * their own.
 */
bool
PipeannIsPostgres(Oid server)
{
	const ForeignDataWrapper *wrapper =
		GetForeignDataWrapper(GetForeignServer(server)->fdwid);
	const char *handler = get_func_name(wrapper->fdwhandler);

	return handler != NULL && strcmp(handler, "postgres_fdw_handler") == 0;
}

/* Whether a node is the scan of one of the partitions, and nothing else. */
static bool
IsPart(const Walk *walk, const Plan *plan)
{
	const ForeignScan *scan = (const ForeignScan *) plan;

	return IsA(plan, ForeignScan) && scan->scan.scanrelid > 0 &&
		list_member_oid(walk->partitions,
						rt_fetch(scan->scan.scanrelid,
								 walk->stmt->rtable)->relid) &&
		PipeannIsPostgres(scan->fs_server);
}

/*
 * A part whose columns are not all wanted, or in another order, is behind a node
 * that only leaves some out. Returns the part with the columns of that node, or
 * NULL if the node does anything else.
 */
static Plan *
PartBehind(const Walk *walk, const SubqueryScan *node)
{
	List	   *targets = NIL;
	ListCell   *cell;

	if (node->scan.plan.qual != NIL || node->scan.plan.initPlan != NIL ||
		!IsPart(walk, node->subplan))
		return NULL;
	foreach(cell, node->scan.plan.targetlist)
	{
		const TargetEntry *target = lfirst_node(TargetEntry, cell);
		const Var  *column = (const Var *) target->expr;
		TargetEntry *copy;

		if (!IsA(column, Var) || column->varno != (int) node->scan.scanrelid ||
			column->varattno <= 0)
			return NULL;
		copy = flatCopyTargetEntry(get_tle_by_resno(node->subplan->targetlist,
													column->varattno));
		copy->resno = target->resno;
		targets = lappend(targets, copy);
	}
	node->subplan->targetlist = targets;
	return node->subplan;
}

static void
MarkParts(const Walk *walk, Append *append)
{
	ListCell   *cell;

	if (list_length(append->appendplans) < 2)
		return;
	foreach(cell, append->appendplans)
	{
		Plan	   *plan = lfirst(cell);

		if (IsA(plan, SubqueryScan))
			plan = PartBehind(walk, (SubqueryScan *) plan);
		if (plan == NULL || plan->async_capable || plan->parallel_aware ||
			!IsPart(walk, plan))
			continue;
		plan->async_capable = true;
		lfirst(cell) = plan;
		append->nasyncplans++;
	}
}

static void
Mark(const Walk *walk, Plan *plan)
{
	ListCell   *cell;

	if (plan == NULL)
		return;
	check_stack_depth();
	Mark(walk, outerPlan(plan));
	Mark(walk, innerPlan(plan));
	if (IsA(plan, SubqueryScan))
		Mark(walk, ((SubqueryScan *) plan)->subplan);
	if (!IsA(plan, Append))
		return;
	MarkParts(walk, (Append *) plan);
	foreach(cell, ((Append *) plan)->appendplans)
		Mark(walk, lfirst(cell));
}

#if PG_VERSION_NUM >= 160000
/*
 * The planner wants to have permissions with each relation of a query, the
 * executor none of which there is nothing to check.
 */
static void
DropEmptyPermissions(PlannedStmt *stmt)
{
	List	   *kept = NIL;
	ListCell   *cell;

	foreach(cell, stmt->rtable)
	{
		RangeTblEntry *entry = lfirst(cell);
		RTEPermissionInfo *permissions;

		if (entry->perminfoindex == 0)
			continue;
		permissions = getRTEPermissionInfo(stmt->permInfos, entry);
		if (permissions->requiredPerms == 0)
		{
			entry->perminfoindex = 0;
			continue;
		}
		kept = lappend(kept, permissions);
		entry->perminfoindex = list_length(kept);
	}
	stmt->permInfos = kept;
}
#endif

void
PipeannFinishSpread(PlannedStmt *stmt, const List *partitions)
{
	Walk		walk = {.stmt = stmt, .partitions = partitions};
	ListCell   *cell;

#if PG_VERSION_NUM >= 160000
	DropEmptyPermissions(stmt);
#endif
	if (!enable_async_append)
		return;
	Mark(&walk, stmt->planTree);
	foreach(cell, stmt->subplans)
		Mark(&walk, lfirst(cell));
}
