/*
 * foreign_scan.c
 *		What a scan of postgres_fdw's says of what it sends.
 *
 * That is private to postgres_fdw, and has been the same in all versions since it
 * came. A scan that does not look like it is none of these.
 */
#include "postgres.h"

#include "queries/async.h"
#include "queries/foreign_scan.h"
#include "queries/mark.h"

static bool
AreColumns(const List *numbers)
{
	ListCell   *cell;

	foreach(cell, numbers)
		if (lfirst_int(cell) <= 0)
			return false;
	return true;
}

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
