/*
 * cost.c
 *		Cost estimates for the planner.
 */
#include "postgres.h"

#include <math.h>

#include "access/genam.h"
#include "am/am.h"
#include "scan/scan.h"
#include "nodes/pathnodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "utils/float.h"
#include "utils/selfuncs.h"
#include "utils/spccache.h"

/* Overlapping reads cost so many times less than one after another. */
#define OVERLAP 4.0

/*
 * A scan without ORDER BY distance cannot be run, nor one for rows that are not in
 * the index. So it costs as much as can be.
 */
static void
Refuse(struct IndexPath *path, Cost *startup_cost, Cost *total_cost,
	   Selectivity *selectivity, double *correlation, double *pages)
{
	*startup_cost = get_float8_infinity();
	*total_cost = get_float8_infinity();
	*selectivity = 0;
	*correlation = 0;
	*pages = 0;
#if PG_VERSION_NUM >= 180000
	path->path.disabled_nodes = 2;
#else
	(void) path;
#endif
}

/* Rows without a vector are not in the index, but a condition may want them. */
static bool
WantsNullVector(const struct IndexPath *path)
{
	ListCell   *cell;

	foreach(cell, path->indexclauses)
	{
		const IndexClause *clause = lfirst_node(IndexClause, cell);
		const Expr *expr = clause->rinfo->clause;

		if (IsA(expr, NullTest) &&
			((const NullTest *) expr)->nulltesttype == IS_NULL &&
			linitial_int(path->indexorderbycols) == clause->indexcol)
			return true;
	}
	return false;
}

/*
 * Before the first row a search reads about as many pages as it explores
 * nodes, which are ef_search; every row beyond those explores one more node.
 * Page-mates and pages in shared_buffers save some reads, and OVERLAP accounts
 * for reads in flight.
 */
void
pipeanncostestimate(struct PlannerInfo *root, struct IndexPath *path,
					double loop_count, Cost *startup_cost, Cost *total_cost,
					Selectivity *selectivity, double *correlation,
					double *pages)
{
	GenericCosts costs;
	double		random_page_cost;
	double		rows = Max(path->indexinfo->tuples, 1);
	double		first;
	double		per_node;

	if (path->indexorderbys == NIL || WantsNullVector(path))
	{
		Refuse(path, startup_cost, total_cost, selectivity, correlation,
			   pages);
		return;
	}

	MemSet(&costs, 0, sizeof(costs));
	genericcostestimate(root, path, loop_count, &costs);
	get_tablespace_page_costs(path->indexinfo->reltablespace,
							  &random_page_cost, NULL);

	first = Min(pipeann_ef_search, rows);
	per_node = random_page_cost / OVERLAP +
		PIPEANN_DEFAULT_M * 2 * cpu_operator_cost;
	if (rows < PIPEANN_MIN_CODED_NODES)
	{
		/* an index without codes is read as a whole, in order */
		*startup_cost = Max(path->indexinfo->pages, 1) * seq_page_cost +
			rows * cpu_operator_cost;
		*total_cost = *startup_cost + rows * cpu_index_tuple_cost;
	}
	else
	{
		*startup_cost = first * per_node;
		*total_cost = rows * (per_node + cpu_index_tuple_cost);
	}
	*selectivity = costs.indexSelectivity;
	*correlation = 0;
	*pages = Min(first, Max(path->indexinfo->pages, 1));
}
