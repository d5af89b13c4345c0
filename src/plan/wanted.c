/*
 * wanted.c
 *		How many rows a query wants of a scan in the order of a distance.
 *
 * Such a scan leaves rows out: those without a vector, those that strict order finds
 * too late, and those beyond max_scan_tuples. That is right for the nearest few, and
 * wrong for whoever wants all rows. So a scan of ours is for queries of which it is
 * known that they want no more than a number of its rows.
 */
#include "postgres.h"

#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "optimizer/paths.h"
#include "plan/plan.h"
#include "scan/scan.h"
#include "utils/fmgroids.h"

/* How the planner names what it asks for in the place of min() and max(). */
#define MINMAX_TARGET "agg_target"

double
PipeannWantedRows(const PlannerInfo *root, double rows)
{
	if (root->limit_tuples > 0)
		return Min(root->limit_tuples, rows);
	return root->tuple_fraction >= 1 ? Min(root->tuple_fraction, rows) : rows;
}

/* A LIMIT whose value comes later is one, LIMIT NULL and LIMIT ALL are none. */
static bool
HasLimit(const Query *query)
{
	return query->limitCount != NULL &&
		!(IsA(query->limitCount, Const) &&
		  ((const Const *) query->limitCount)->constisnull);
}

/*
 * Whether the rows that a limit counts are made of others, any number of them.
 * WITH TIES wants all rows that are as far as the last one.
 */
static bool
CountsOtherRows(const Query *query)
{
	return query->hasAggs || query->groupClause != NIL ||
		query->groupingSets != NIL || query->havingQual != NULL ||
		query->distinctClause != NIL || query->setOperations != NULL ||
		(query->limitCount != NULL &&
		 query->limitOption == LIMIT_OPTION_WITH_TIES);
}

/* A window function that reads no row behind the one that it is for is none. */
static bool
ReadsAhead(Node *node, void *arg)
{
	if (node == NULL)
		return false;
	if (IsA(node, WindowFunc))
		switch (((const WindowFunc *) node)->winfnoid)
		{
			case F_ROW_NUMBER:
			case F_RANK_:
			case F_DENSE_RANK_:
				return false;
			default:
				return true;
		}
	return expression_tree_walker(node, ReadsAhead, arg);
}

/* Whether rows come through all windows as they come from the scan, one by one. */
static bool
PassesWindows(const PlannerInfo *root)
{
	const Query *query = root->parse;
	ListCell   *cell;

	if (!query->hasWindowFuncs)
		return true;
	foreach(cell, query->windowClause)
	{
		const WindowClause *window = lfirst_node(WindowClause, cell);
		const WindowClause *first = linitial_node(WindowClause,
												  query->windowClause);

		if (window->partitionClause != NIL ||
			!equal(window->orderClause, first->orderClause))
			return false;
	}
	return pathkeys_contained_in(root->sort_pathkeys, root->window_pathkeys) &&
		!ReadsAhead((Node *) query->targetList, NULL);
}

/* The first row instead of min() or max(), which want the very first. */
static bool
IsMinMax(const PlannerInfo *root)
{
	const TargetEntry *target;

	if (root->parent_root == NULL || !root->parent_root->parse->hasAggs ||
		list_length(root->parse->targetList) == 0)
		return false;
	target = linitial_node(TargetEntry, root->parse->targetList);
	return target->resname != NULL &&
		strcmp(target->resname, MINMAX_TARGET) == 0;
}

/*
 * Whether a query wants so many rows because one around it has a limit, or EXISTS
 * wants one. PostgreSQL hands a limit down where the outer query joins, groups or
 * sorts nothing, but has forgotten windows, and since 17 what sorts a set operation.
 */
static bool
IsBelowLimit(const PlannerInfo *root)
{
	if (root->tuple_fraction < 1)
		return false;
	for (root = root->parent_root; root != NULL; root = root->parent_root)
		if (root->parse->hasWindowFuncs || root->parse->setOperations != NULL)
			return false;
	return true;
}

/*
 * Whether it is known that a query wants no more than a number of the rows
 * that come in order, and one that a scan may return; and how many of so many.
 */
bool
PipeannWantsFew(const PlannerInfo *root, double rows)
{
	return (HasLimit(root->parse) || IsBelowLimit(root)) &&
		PipeannWantedRows(root, rows) <= pipeann_max_scan_tuples &&
		!CountsOtherRows(root->parse) && PassesWindows(root) &&
		!IsMinMax(root);
}
