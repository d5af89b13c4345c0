/*
 * one_message_scans.c
 *		What the node that asks servers in one message sends.
 *
 * It has scans of its own in the place of postgres_fdw's. These get the vector of
 * each row, to compute the distance by; the node's get the distance if nobody reads
 * the vector.
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "queries/one_message.h"
#include "queries/queries.h"

/* The distance that a part is ordered by, if nothing else is computed of its rows. */
static Expr *
DistanceOf(const ForeignScan *scan)
{
	Expr	   *distance = NULL;
	ListCell   *cell;

	foreach(cell, scan->scan.plan.targetlist)
	{
		Expr	   *expr = lfirst_node(TargetEntry, cell)->expr;

		if (IsA(expr, Var) && ((Var *) expr)->varattno > 0)
			continue;
		if (distance != NULL || !IsA(expr, OpExpr) ||
			!pipeann_core->is_distance(((OpExpr *) expr)->opno))
			return NULL;
		distance = expr;
	}
	return distance;
}

/* What a scan hands up, as columns of what the server sends. */
static List *
ColumnsSent(const ForeignScan *scan, List **sent)
{
	List	   *targets = NIL;
	ListCell   *cell;

	foreach(cell, scan->scan.plan.targetlist)
	{
		TargetEntry *target = flatCopyTargetEntry(lfirst(cell));
		TargetEntry *column = tlist_member(target->expr, *sent);

		if (column == NULL)
		{
			column = makeTargetEntry(target->expr, list_length(*sent) + 1, NULL,
									 false);
			*sent = lappend(*sent, column);
		}
		target->expr = (Expr *) makeVarFromTargetEntry(INDEX_VAR, column);
		targets = lappend(targets, target);
	}
	return targets;
}

/* The names of these, as the server has them; NIL if one has none. */
static List *
NamesSent(const ForeignScan *scan, const PipeannSentText *text,
		  const List *sent)
{
	const List *numbers = list_nth(scan->fdw_private, PIPEANN_FDW_COLUMNS);
	List	   *names = NIL;
	ListCell   *cell;

	foreach(cell, sent)
	{
		const Var  *column = (const Var *) lfirst_node(TargetEntry, cell)->expr;
		int			i = 0;

		if (!IsA(column, Var))
		{
			names = lappend(names, unconstify(char *, text->distance));
			continue;
		}
		while (i < list_length(numbers) &&
			   list_nth_int(numbers, i) != column->varattno)
			i++;
		if (i == list_length(numbers))
			return NIL;
		names = lappend(names, list_nth(text->columns, i));
	}
	return names;
}

/*
 * A scan that gets the distance from the server, and no columns but those wanted; or
 * the scan as it is, where the vector is one of them or something else is unusual.
 */
static ForeignScan *
AskForDistance(ForeignScan *scan, Expr *distance, PipeannSentText *text)
{
	ForeignScan *copy = makeNode(ForeignScan);
	List	   *numbers = NIL;
	List	   *names;
	ListCell   *cell;

	*copy = *scan;
	copy->scan.plan.targetlist = ColumnsSent(scan, &copy->fdw_scan_tlist);
	foreach(cell, pull_var_clause((Node *) distance, 0))
		if (tlist_member(lfirst(cell), copy->fdw_scan_tlist) != NULL)
			return scan;
	names = NamesSent(scan, text, copy->fdw_scan_tlist);
	if (names == NIL || scan->scan.plan.qual != NIL)
		return scan;
	text->columns = names;
	for (int i = 1; i <= list_length(names); i++)
		numbers = lappend_int(numbers, i);
	copy->fdw_recheck_quals = NIL;
	copy->fdw_private = list_copy(scan->fdw_private);
	list_nth_cell(copy->fdw_private, PIPEANN_FDW_SQL)->ptr_value =
		makeString(PipeannWriteText(text, 0));
	list_nth_cell(copy->fdw_private, PIPEANN_FDW_COLUMNS)->ptr_value = numbers;
	return copy;
}

/* The limit that is sent, as an expression; NULL if it is none that is known here. */
static Expr *
LimitOf(const ForeignScan *scan, const PipeannSentText *text)
{
	bool		is_param = text->limit[0] == '$';
	int64		n = strtoi64(text->limit + is_param, NULL, 10);

	if (!is_param)
		return (Expr *) makeConst(INT8OID, -1, InvalidOid, sizeof(int64),
								  Int64GetDatum(n), false, FLOAT8PASSBYVAL);
	return n >= 1 && n <= list_length(scan->fdw_exprs) ?
		list_nth(scan->fdw_exprs, n - 1) : NULL;
}

static void
Describe(PipeannOneMessage *parts, ForeignScan *scan)
{
	PipeannSentText text;
	Expr	   *distance = DistanceOf(scan);

	if (distance != NULL &&
		PipeannReadText(strVal(list_nth(scan->fdw_private, PIPEANN_FDW_SQL)), &text))
	{
		scan = AskForDistance(scan, distance, &text);
		parts->vector = exprType(linitial(((OpExpr *) distance)->args));
		parts->limit = LimitOf(scan, &text);
	}
	parts->scans = lappend(parts->scans, scan);
}

List *
PipeannDescribeScans(const Append *append, List *rtable)
{
	PipeannOneMessage parts = {NIL};
	ListCell   *cell;

	foreach(cell, append->appendplans)
	{
		if (PipeannIsSendable(lfirst(cell), rtable))
			Describe(&parts, lfirst(cell));
		else
			parts.scans = lappend(parts.scans, NULL);
	}
	return list_make3(parts.scans, list_make1_oid(parts.vector), parts.limit);
}

void
PipeannOneMessageOf(const CustomScan *node, PipeannOneMessage *parts)
{
	parts->scans = linitial(node->custom_private);
	parts->vector = linitial_oid(lsecond(node->custom_private));
	parts->limit = lthird(node->custom_private);
}
