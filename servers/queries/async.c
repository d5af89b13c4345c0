/*
 * async.c
 *		Scans of partitions on other servers, run at the same time.
 *
 * PostgreSQL runs foreign scans below an Append at the same time if a server's
 * option says so. That is off by default, as a scan of a whole table would keep its
 * connection from others; these ask for few rows, and all of them are needed.
 *
 * Rows then come in no order, so the node above must not expect one. Therefore only
 * parts that per_partition.c has made (mark.c) run so, whose rows go straight into a
 * Sort, in a statement that changes and locks nothing. All other nodes are left as
 * they are.
 */
#include "postgres.h"

#include "foreign/fdwapi.h"
#include "foreign/foreign.h"
#include "nodes/makefuncs.h"
#include "optimizer/cost.h"
#include "parser/parse_relation.h"
#include "parser/parsetree.h"
#include "queries/queries.h"
#include "utils/lsyscache.h"

/* postgres_fdw requires only that option. Other wrappers may have reasons of their own. */
bool
PipeannIsPostgres(Oid server)
{
	const ForeignDataWrapper *wrapper =
		GetForeignDataWrapper(GetForeignServer(server)->fdwid);
	const char *handler = get_func_name(wrapper->fdwhandler);

	return handler != NULL && strcmp(handler, "postgres_fdw_handler") == 0;
}

static bool
MayBeAsked(const Plan *plan, const Append *append, List *rtable)
{
	return PipeannIsPartOf(plan, append, rtable) && !plan->async_capable &&
		PipeannIsPostgres(((const ForeignScan *) plan)->fs_server);
}

static bool
AreColumns(const List *numbers)
{
	ListCell   *cell;

	foreach(cell, numbers)
		if (lfirst_int(cell) <= 0)
			return false;
	return true;
}

/*
 * What a scan of postgres_fdw sends is in its private list, which has had the same form
 * in all versions. A scan with another form is not sendable.
 */
bool
PipeannIsSendable(const Plan *plan, List *rtable)
{
	const ForeignScan *scan = (const ForeignScan *) plan;
	const List *private;

	if (!PipeannIsPart(plan, rtable) || !plan->async_capable ||
		scan->fdw_scan_tlist != NIL || plan->initPlan != NIL)
		return false;
	private = scan->fdw_private;
	return PipeannIsPostgres(scan->fs_server) &&
		list_length(private) > PIPEANN_FDW_COLUMNS &&
		IsA(list_nth(private, PIPEANN_FDW_SQL), String) &&
		(list_nth(private, PIPEANN_FDW_COLUMNS) == NULL ||
		 IsA(list_nth(private, PIPEANN_FDW_COLUMNS), IntList)) &&
		AreColumns(list_nth(private, PIPEANN_FDW_COLUMNS));
}

bool
PipeannOnlyReads(const PlannedStmt *stmt)
{
	return stmt->commandType == CMD_SELECT && !stmt->hasModifyingCTE &&
		stmt->resultRelations == NIL && stmt->rowMarks == NIL;
}

/*
 * A part of whose columns some are not wanted, or in another order, is below a node that
 * selects them. Returns the part with the columns of that node, or NULL if the node does
 * anything else.
 */
static Plan *
PartBehind(const SubqueryScan *node, const Append *append, List *rtable)
{
	List	   *targets = NIL;
	ListCell   *cell;

	if (node->scan.plan.qual != NIL || node->scan.plan.initPlan != NIL ||
		!MayBeAsked(node->subplan, append, rtable))
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
MarkParts(Append *append, List *rtable)
{
	ListCell   *cell;

	if (list_length(append->appendplans) < 2)
		return;
	foreach(cell, append->appendplans)
	{
		Plan	   *plan = lfirst(cell);

		if (IsA(plan, SubqueryScan))
			plan = PartBehind((SubqueryScan *) plan, append, rtable);
		if (plan == NULL || !MayBeAsked(plan, append, rtable))
			continue;
		plan->async_capable = true;
		lfirst(cell) = plan;
		append->nasyncplans++;
	}
}

/* Mark the parts whose rows go into a Sort, directly or through a node that computes columns. */
static void
MarkBelow(const Sort *sort, List *rtable)
{
	Plan	   *plan = outerPlan(sort);

	if (plan != NULL && IsA(plan, Result) && outerPlan(plan) != NULL)
		plan = outerPlan(plan);
	if (plan != NULL && IsA(plan, Append) &&
		PipeannIsOfParts((const Append *) plan, rtable))
		MarkParts((Append *) plan, rtable);
}

static bool
Mark(Plan **place, void *rtable)
{
	if (IsA(*place, ModifyTable))
		return false;
	if (IsA(*place, Sort))
		MarkBelow((const Sort *) *place, rtable);
	return pipeann_core->visit_plans(*place, Mark, rtable);
}

#if PG_VERSION_NUM >= 160000
/*
 * The planner wants permissions for each relation of a query, the executor only those
 * that are to be checked: remove those of our relations.
 */
static void
DropPermissions(PlannedStmt *stmt)
{
	List	   *kept = NIL;
	ListCell   *cell;

	foreach(cell, stmt->rtable)
	{
		RangeTblEntry *entry = lfirst(cell);

		if (entry->perminfoindex == 0)
			continue;
		if (PipeannIsMarked(entry))
		{
			entry->perminfoindex = 0;
			continue;
		}
		kept = lappend(kept, getRTEPermissionInfo(stmt->permInfos, entry));
		entry->perminfoindex = list_length(kept);
	}
	stmt->permInfos = kept;
}
#endif

void
PipeannRunAsync(PlannedStmt *stmt)
{
#if PG_VERSION_NUM >= 160000
	DropPermissions(stmt);
#endif
	if (!enable_async_append || !PipeannOnlyReads(stmt))
		return;
	(void) pipeann_core->visit_plans(stmt, Mark, stmt->rtable);
}
