/*
 * one_message.c
 *		Scans of partitions on other servers, one message for each.
 *
 * postgres_fdw begins a transaction at a server, declares a cursor, fetches from it,
 * closes it and commits: each is a message whose answer it waits for, mostly one
 * server after the other. A statement that stands alone, and scans each server once,
 * needs only the query. So a node of ours takes the Append's place, and has it as
 * its child. Whether the statement stands alone is not known before it is run.
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_language_d.h"
#include "catalog/pg_proc.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "queries/one_message.h"
#include "queries/queries.h"
#include "utils/syscache.h"

/* What is looked for in a statement. */
typedef struct Search
{
	List	   *rtable;
	int			nscans;			/* of other servers, anywhere */
	Plan	  **place;			/* of the Append that has most of them */
	int			nbelow;			/* scans below it */
} Search;

/*
 * Whether a function may ask servers itself, and would have to see the same state as the
 * statement. Immutable and built-in functions do not.
 */
static bool
MayAsk(Oid function, void *arg)
{
	HeapTuple	row = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	bool		asks = true;

	if (HeapTupleIsValid(row))
	{
		Form_pg_proc form = (Form_pg_proc) GETSTRUCT(row);

		asks = form->provolatile != PROVOLATILE_IMMUTABLE &&
			(function >= FirstGenbkiObjectId ||
			 form->prolang == SQLlanguageId);
		ReleaseSysCache(row);
	}
	return asks;
}

static bool
Asks(Node *node, void *arg)
{
	if (node == NULL)
		return false;
	if (check_functions_in_node(node, MayAsk, arg))
		return true;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, Asks, arg, 0);
	return expression_tree_walker(node, Asks, arg);
}

bool
PipeannIsSteady(Query *query)
{
	return !contain_volatile_functions((Node *) query) &&
		!Asks((Node *) query, NULL);
}

/* The number of scans of other servers below an Append of ours; 0 if a server has two. */
static int
CountServers(const Append *append, List *rtable)
{
	List	   *servers = NIL;
	ListCell   *cell;

	if (!PipeannIsOfParts(append, rtable))
		return 0;
	foreach(cell, append->appendplans)
	{
		const Plan *plan = lfirst(cell);

		if (!PipeannIsSendable(plan, rtable))
			continue;
		if (list_member_oid(servers, ((const ForeignScan *) plan)->fs_server))
			return 0;
		servers = lappend_oid(servers, ((const ForeignScan *) plan)->fs_server);
	}
	return list_length(servers);
}

static bool
Look(Plan **place, void *arg)
{
	Plan	   *plan = *place;
	Search	   *search = arg;

	if (IsA(plan, ForeignScan))
		search->nscans++;
	else if (IsA(plan, Append))
	{
		int			n = CountServers((Append *) plan, search->rtable);

		if (n > search->nbelow)
		{
			search->place = place;
			search->nbelow = n;
		}
	}
	return pipeann_core->visit_plans(plan, Look, search);
}

/* A server that is scanned elsewhere, too, would be read at two moments. */
void
PipeannAskInOneMessage(PlannedStmt *stmt)
{
	Search		search = {.rtable = stmt->rtable};
	Append	   *append;
	CustomScan *node;
	PipeannOneMessage parts;

	if (!PipeannOnlyReads(stmt))
		return;
	(void) pipeann_core->visit_plans(stmt, Look, &search);
	if (search.nbelow == 0 || search.nbelow != search.nscans)
		return;
	append = (Append *) *search.place;
	node = pipeann_core->wrap(&append->plan, &PipeannOneMessageMethods);
	node->custom_private = PipeannDescribeScans(append, stmt);
	PipeannOneMessageOf(node, &parts);
	/* one server alone need not be asked, if rows are divided by cells */
	if (search.nbelow > 1 || parts.cells != NULL)
		*search.place = (Plan *) node;
}
