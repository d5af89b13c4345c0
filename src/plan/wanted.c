/*
 * wanted.c
 *		How many rows a query wants of a scan in the order of a distance, and
 *		what reading their vectors costs other plans.
 *
 * Such a scan leaves rows out (src/README, "what may change, and when"). That is right
 * for the nearest few, and wrong for a query that wants all rows.
 *
 * A plan that sorts rows by distance reads the vectors of all that match, and if
 * they are in TOAST the planner counts nothing for that. Our scan reads none. As
 * other plans cannot be made more expensive, ours becomes cheaper by that amount,
 * for the wanted rows. For all rows it is never cheaper than reading the table.
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

/* The planner's name for the column that replaces min() and max(). */
#define MINMAX_TARGET "agg_target"

double
PipeannWantedRows(const PlannerInfo *root, double rows)
{
	if (root->limit_tuples > 0)
		return Min(root->limit_tuples, rows);
	return root->tuple_fraction >= 1 ? Min(root->tuple_fraction, rows) : rows;
}

/* Whether a query has a LIMIT, also if its value is not known yet; NULL and ALL are none. */
static bool
HasLimit(const Query *query)
{
	return query->limitCount != NULL &&
		!(IsA(query->limitCount, Const) &&
		  ((const Const *) query->limitCount)->constisnull);
}

/*
 * Whether each row that a limit counts is made from any number of others. WITH
 * TIES wants all rows that are as far as the last one.
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

/* Whether a window function reads rows after the current one. */
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

/* Whether rows pass through all windows one by one, in the scan's order. */
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

/* Whether the query wants the first row in place of min() or max(). */
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
 * Whether a query wants few rows because the query around it has a limit, or EXISTS
 * wants one row. PostgreSQL passes a limit down if the outer query joins, groups or
 * sorts nothing, but ignores windows, and since 17 sorts of set operations.
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
 * Whether a query surely wants at most this number of rows, in order, and no
 * more than a scan may return.
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
 * What reading a toasted vector costs: pages; or, if these are cached, operators, as
 * the planner counts them for a look-up of a few rows in an index of two levels;
 */
#define TOAST_PAGES 2.0
#define TOAST_OPERATORS 130

/* and the least share of a cost that remains. */
#define LEAST_SHARE 0.01

/*
 * Whether the table has most of the vectors in TOAST.
 *
 * They are narrower in the table's pages than vectors are. Without statistics
 * those are assumed to be toasted that do not fit in a row's share of a page.
 * An index on an expression has no column that the table could have there.
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
 * The bytes of each vector in TOAST, 0 if vectors are not there. Hypothetical
 * indexes are not opened.
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
 * What other plans pay for the vectors of this many rows: at most the cost of reading
 * the whole TOAST table sequentially, as most of it is in the order of the table.
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

/* The cost of all matching rows of the table in any order, by the paths known so far. */
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
 * Reduce the cost of our scan by what every other plan pays for toasted
 * vectors and no path counts. The table's conditions leave `returned` rows.
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
