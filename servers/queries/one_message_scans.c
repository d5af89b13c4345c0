/*
 * one_message_scans.c
 *		What the node that asks servers in one message sends.
 *
 * It has scans of its own in place of postgres_fdw's. These get the vector of each
 * row, to compute the distance; the node's get the distance itself if nothing reads
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

/* The distance by which a part is ordered, if nothing else is computed from its rows. */
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

/* A scan's target list, in terms of the columns that the server sends. */
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

/* The names of these columns at the server; NIL if one has none. */
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
		makeString(PipeannWriteText(text, 0, false));
	list_nth_cell(copy->fdw_private, PIPEANN_FDW_COLUMNS)->ptr_value = numbers;
	return copy;
}

/* The limit that is sent, as an expression; NULL if its value is not known. */
static Expr *
LimitOf(const ForeignScan *scan, const PipeannSentText *text)
{
	bool		is_param = text->limit[0] == '$';
	const char *digits = text->limit + is_param;
	size_t		length = strspn(digits, "0123456789");
	int64		n;

	/* behind the number is its type */
	if (length == 0 || length > 18 || strncmp(digits + length, "::", 2) != 0)
		return NULL;
	n = strtoi64(digits, NULL, 10);
	if (!is_param)
		return (Expr *) makeConst(INT8OID, -1, InvalidOid, sizeof(int64),
								  Int64GetDatum(n), false, FLOAT8PASSBYVAL);
	return n >= 1 && n <= list_length(scan->fdw_exprs) ?
		list_nth(scan->fdw_exprs, n - 1) : NULL;
}

/* A scan that its wrapper runs, with a largest distance. */
static ForeignScan *
InTurn(const ForeignScan *scan, const PipeannSentText *text, int param)
{
	ForeignScan *copy = makeNode(ForeignScan);
	Param	   *bound = makeNode(Param);

	*copy = *scan;
	copy->scan.plan.async_capable = false;
	bound->paramkind = PARAM_EXEC;
	bound->paramid = param;
	bound->paramtype = FLOAT8OID;
	bound->paramtypmod = -1;
	bound->location = -1;
	copy->fdw_exprs = lappend(list_copy(scan->fdw_exprs), bound);
	copy->fdw_private = list_copy(scan->fdw_private);
	list_nth_cell(copy->fdw_private, PIPEANN_FDW_SQL)->ptr_value =
		makeString(PipeannWriteText(text, list_length(copy->fdw_exprs), true));
	return copy;
}

/* Set what is sent to a part, if that has the expected form. */
static ForeignScan *
Describe(PipeannOneMessage *parts, ForeignScan *scan)
{
	Expr	   *distance = DistanceOf(scan);
	const char *sql = strVal(list_nth(scan->fdw_private, PIPEANN_FDW_SQL));
	PipeannSentText text;
	char	   *bounded;

	if (distance == NULL || !PipeannReadText(sql, &text))
		return scan;
	parts->distance = (OpExpr *) distance;
	parts->column = tlist_member(distance, scan->scan.plan.targetlist)->resno;
	parts->limit = LimitOf(scan, &text);
	parts->turns = lappend(parts->turns, InTurn(scan, &text, parts->bound));
	scan = AskForDistance(scan, distance, &text);
	bounded = PipeannWriteText(&text, list_length(scan->fdw_exprs) + 1, false);
	parts->bounded = lappend(parts->bounded, makeString(bounded));
	return scan;
}

List *
PipeannDescribeScans(const Append *append, PlannedStmt *stmt)
{
	PipeannOneMessage parts = {.bound = list_length(stmt->paramExecTypes)};
	ListCell   *cell;

	foreach(cell, append->appendplans)
	{
		ForeignScan *scan = lfirst(cell);
		int			known = list_length(parts.bounded);

		if (!PipeannIsSendable((Plan *) scan, stmt->rtable))
			scan = NULL;
		else
			scan = Describe(&parts, scan);
		parts.scans = lappend(parts.scans, scan);
		if (list_length(parts.bounded) > known)
			continue;
		parts.bounded = lappend(parts.bounded, NULL);
		parts.turns = lappend(parts.turns, NULL);
	}
	PipeannFindCells(&parts, append, stmt->rtable);
	if (parts.cells == NULL)
		return list_make5(parts.scans, NIL, list_make2(parts.limit, parts.distance),
						  list_make2_int(parts.column, 0), NIL);
	stmt->paramExecTypes = lappend_oid(stmt->paramExecTypes, FLOAT8OID);
	return list_make5(parts.scans, parts.bounded,
					  list_make2(parts.limit, parts.distance),
					  list_make2_int(parts.column, parts.bound),
					  list_make3(makeString(pstrdup(parts.cells)),
								 lcons_oid(parts.table, parts.partitions), parts.turns));
}

void
PipeannOneMessageOf(const CustomScan *node, PipeannOneMessage *parts)
{
	const List *cells = list_nth(node->custom_private, 4);

	memset(parts, 0, sizeof(PipeannOneMessage));
	parts->scans = linitial(node->custom_private);
	parts->bounded = lsecond(node->custom_private);
	parts->limit = linitial((List *) lthird(node->custom_private));
	parts->distance = lsecond((List *) lthird(node->custom_private));
	parts->column = linitial_int(lfourth(node->custom_private));
	parts->bound = lsecond_int((List *) lfourth(node->custom_private));
	if (cells == NIL)
		return;
	parts->cells = strVal(linitial(cells));
	parts->table = linitial_oid((List *) lsecond(cells));
	parts->partitions = list_copy_tail(lsecond(cells), 1);
	parts->turns = lthird(cells);
}

Expr *
PipeannQueryVector(const OpExpr *distance)
{
	Node	   *left = linitial(distance->args);

	return contain_var_clause(left) ? lsecond(distance->args) : (Expr *) left;
}
