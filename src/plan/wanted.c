/*
 * wanted.c
 *		How many rows a query wants of a scan in the order of a distance, and what it
 *		costs others to read their vectors.
 *
 * Such a scan leaves rows out (src/README, "what may change, and when"). That is right
 * for the nearest few, and wrong for a query that wants all rows.
 *
 * A plan that sorts rows by distance reads the vectors of all that match, and if they
 * are in TOAST the planner counts nothing for that. A scan of ours reads none. As it
 * cannot make others dearer it becomes cheaper by as much, for the rows that are
 * wanted. For all rows it is never cheaper than reading the table is.
 */
#include "postgres.h"

#include <math.h>

#include "access/heaptoast.h"
#include "index/index.h"
#include "nodes/nodeFuncs.h"
#include "nodes/pathnodes.h"
#include "optimizer/optimizer.h"
#include "optimizer/paths.h"
#include "plan/plan.h"
#include "scan/scan.h"
#include "utils/float.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/spccache.h"

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
 * Whether a query wants few rows because one around it has a limit, or EXISTS
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
 * that come in order, and one that a scan may return.
 */
bool
PipeannWantsFew(const PlannerInfo *root, double rows)
{
	return (HasLimit(root->parse) || IsBelowLimit(root)) &&
		PipeannWantedRows(root, rows) <= pipeann_max_scan_tuples &&
		!CountsOtherRows(root->parse) && PassesWindows(root) &&
		!IsMinMax(root);
}

/* ---------- vectors in TOAST ---------- */

/*
 * What a vector in TOAST costs by itself: pages; or, if pages are at hand, operators, as
 * the planner counts them for a look-up of a few rows in an index of two levels;
 */
#define TOAST_PAGES 2.0
#define TOAST_OPERATORS 130

/* and what is left of a cost at least. */
#define LEAST_SHARE 0.01

/*
 * Whether the table has most of the vectors in TOAST.
 *
 * They are narrower in the table's pages than vectors are. Without statistics it
 * is taken that those are in TOAST that a page's share of a row has no room for. An
 * index on an expression has no column that the table could have there.
 */
static bool
VectorsInToast(Relation index)
{
	AttrNumber	column = PipeannVectorColumn(index);
	int			whole = (int) PipeannValueBytes(PipeannIndexType(index),
												PipeannIndexDimensions(index));
	int			stored;

	if (column == 0 || PipeannIsOfSparse(PipeannIndexType(index)))
		return false;
	stored = get_attavgwidth(index->rd_index->indrelid, column);
	return stored > 0 ? stored < whole / 2 :
		whole > (int) TOAST_TUPLE_THRESHOLD;
}

/*
 * The bytes of each vector in TOAST, 0 if they are not there. An index of which
 * there is nothing but a planner's idea is not asked.
 */
static double
BytesInToast(const IndexOptInfo *info)
{
	Relation	index = RelationIdGetRelation(info->indexoid);
	double		bytes = 0;

	if (!RelationIsValid(index))
		return 0;
	if (VectorsInToast(index))
		bytes = PipeannValueBytes(PipeannIndexType(index),
								  PipeannIndexDimensions(index));
	RelationClose(index);
	return bytes;
}

/*
 * What others pay for the vectors of this many rows. It is no more than reading all of
 * TOAST takes in the order of the table, which is the order of most of it.
 */
static Cost
CostOfVectors(const RelOptInfo *table, double rows, double bytes)
{
	double		page_cost;
	double		next_page_cost;
	double		pages = table->tuples * ceil(bytes / TOAST_MAX_CHUNK_SIZE) /
		EXTERN_TUPLES_PER_PAGE;

	get_tablespace_page_costs(table->reltablespace, &page_cost,
							  &next_page_cost);
	return Min(rows * page_cost * TOAST_PAGES,
			   pages * next_page_cost +
			   rows * TOAST_OPERATORS * cpu_operator_cost);
}

/* What all rows of the table that match cost in any order, as far as it is known. */
static Cost
CheapestTotal(const RelOptInfo *table)
{
	Cost		cheapest = get_float8_infinity();
	ListCell   *cell;

	foreach(cell, table->pathlist)
	{
		const Path *path = lfirst(cell);

		if (path->param_info == NULL && path->pathkeys == NIL)
			cheapest = Min(cheapest, path->total_cost);
	}
	return cheapest;
}

/*
 * Make the cost of a scan by an index of ours less by what every other
 * plan pays for vectors in TOAST, and no path counts. The table's conditions leave
 * `returned` rows.
 */
void
PipeannTakeOffVectors(PlannerInfo *root, const IndexOptInfo *index,
					  double returned, double *startup_cost,
					  double *total_cost)
{
	double		wanted = PipeannWantedRows(root, returned);
	double		cost = *startup_cost +
		(*total_cost - *startup_cost) * wanted / returned;
	double		bytes = BytesInToast(index);
	double		share;

	if (bytes == 0)
		return;
	share = Max(1 - CostOfVectors(index->rel, returned, bytes) / cost,
				LEAST_SHARE);
	*startup_cost *= share;
	*total_cost = Min(*total_cost, Max(*total_cost * share,
									   CheapestTotal(index->rel)));
}
