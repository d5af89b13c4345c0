/*
 * foreign_limit.c
 *		Limits of queries for the nearest rows of a foreign table.
 *
 * To the planner a path on which the table's server limits and orders the rows is
 * one among others. It loses against sorting fetched rows if few rows are expected
 * to match, or against a limit at this end if the number of rows is not known yet.
 * The estimate is often made without statistics, and if it is wrong a whole table is
 * fetched. The server knows its table, and may have an index that returns rows in
 * order. So whenever the limit can be sent, it is.
 */
#include "postgres.h"

#include "foreign/fdwapi.h"
#include "optimizer/optimizer.h"
#include "queries/queries.h"

static bool
IsForNearest(const Query *query)
{
	const OpExpr *first;

	if (query->commandType != CMD_SELECT || query->rowMarks != NIL ||
		query->limitCount == NULL || query->sortClause == NIL)
		return false;
	first = (const OpExpr *) get_sortgroupclause_tle(linitial(query->sortClause),
													 query->targetList)->expr;
	return IsA(first, OpExpr) && pipeann_core->is_distance(first->opno);
}

/*
 * The path whose limit is at the other end, or NULL. All other paths of a query with a
 * limit have a node for it.
 */
static Path *
RemotelyLimited(const List *paths)
{
	ListCell   *cell;

	foreach(cell, paths)
		if (IsA(lfirst(cell), ForeignPath))
			return lfirst(cell);
	return NULL;
}

/* Have the wrapper make that path where no other can displace it. */
static void
AskAgain(PlannerInfo *root, RelOptInfo *input, RelOptInfo *final, void *extra)
{
	List	   *paths = final->pathlist;
	void	   *fdw_private = final->fdw_private;

	final->pathlist = NIL;
	final->fdw_private = NULL;
	final->fdwroutine->GetForeignUpperPaths(root, UPPERREL_FINAL, input, final,
											extra);
	if (RemotelyLimited(final->pathlist) != NULL)
		return;
	final->pathlist = paths;
	final->fdw_private = fdw_private;
}

void
PipeannSendLimit(PlannerInfo *root, RelOptInfo *input, RelOptInfo *final,
				 void *extra)
{
	Path	   *path;

	/* other wrappers may not expect to be asked twice */
	if (final->fdwroutine == NULL || !PipeannIsPostgres(final->serverid) ||
		final->fdwroutine->GetForeignUpperPaths == NULL ||
		bms_membership(root->all_baserels) != BMS_SINGLETON ||
		!IsForNearest(root->parse))
		return;
	if (RemotelyLimited(final->pathlist) == NULL)
		AskAgain(root, input, final, extra);
	path = RemotelyLimited(final->pathlist);
	if (path != NULL)
		final->pathlist = list_make1(path);
}
