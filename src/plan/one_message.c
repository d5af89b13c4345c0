/*
 * one_message.c
 *		Scans of partitions on other servers, one message for each.
 *
 * postgres_fdw begins a transaction at a server, declares a cursor, fetches from
 * it, closes it and commits: each is a message whose answer it waits for, most of
 * them one server after the other. A statement that stands alone, and that scans
 * each server once, needs none of these but the query. So a node of ours takes the
 * Append's place, and has it as its child. Whether the statement stands alone is
 * not known before it is run.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "plan/far_scan.h"
#include "plan/one_message.h"
#include "plan/stand_in.h"

/* What is looked for in a statement. */
typedef struct Search
{
	int			nscans;			/* of other servers, anywhere */
	Plan	  **place;			/* of the Append that has most of them */
	int			nbelow;			/* scans below it */
} Search;

/* The scans of other servers that an Append has, 0 if a server has two. */
static int
CountServers(const Append *append)
{
	List	   *servers = NIL;
	ListCell   *cell;

	foreach(cell, append->appendplans)
	{
		const Plan *plan = lfirst(cell);

		if (!PipeannIsFar(plan))
			continue;
		if (list_member_oid(servers, ((const ForeignScan *) plan)->fs_server))
			return 0;
		servers = lappend_oid(servers, ((const ForeignScan *) plan)->fs_server);
	}
	return list_length(servers);
}

static void Look(Search *search, Plan **place);

static void
LookAtAll(Search *search, List *plans)
{
	ListCell   *cell;

	foreach(cell, plans)
		Look(search, (Plan **) &lfirst(cell));
}

static void
Look(Search *search, Plan **place)
{
	Plan	   *plan = *place;

	if (plan == NULL)
		return;
	check_stack_depth();
	Look(search, &outerPlan(plan));
	Look(search, &innerPlan(plan));
	if (IsA(plan, ForeignScan))
		search->nscans++;
	else if (IsA(plan, SubqueryScan))
		Look(search, &((SubqueryScan *) plan)->subplan);
	else if (IsA(plan, MergeAppend))
		LookAtAll(search, ((MergeAppend *) plan)->mergeplans);
	else if (IsA(plan, CustomScan))
		LookAtAll(search, ((CustomScan *) plan)->custom_plans);
	else if (IsA(plan, Append))
	{
		int			n = CountServers((Append *) plan);

		if (n > search->nbelow && !plan->parallel_aware)
		{
			search->place = place;
			search->nbelow = n;
		}
		LookAtAll(search, ((Append *) plan)->appendplans);
	}
}

/* A server that is scanned elsewhere too would be read at two moments. */
void
PipeannAskInOneMessage(PlannedStmt *stmt)
{
	Search		search = {0};

	if (stmt->commandType != CMD_SELECT || stmt->hasModifyingCTE ||
		stmt->rowMarks != NIL)
		return;
	Look(&search, &stmt->planTree);
	LookAtAll(&search, stmt->subplans);
	if (search.nbelow > 1 && search.nbelow == search.nscans)
		*search.place = (Plan *) PipeannStandIn(*search.place,
												 &PipeannOneMessageMethods);
}
