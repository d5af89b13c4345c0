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

/* To look at an attribute code, in operators. */
#define ATTRIBUTE_COST 0.01

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

/* What rows of a path cost, by the number of rows in the index. */
typedef struct Estimate
{
	double		rows;			/* of the index */
	double		matching;		/* those that meet the index's conditions */
	int			conditions;
	double		page_cost;		/* of a page read beside others */
	double		node_cost;		/* of a node explored */
} Estimate;

/* Exploring the graph: the list is longer by what does not match (search/ranked.c). */
static double
WalkCost(const Estimate *e)
{
	double		length = Min(pipeann_ef_search *
							 sqrt(e->rows / Max(e->matching, 1)), e->rows);

	return length * e->node_cost;
}

/* Going through attribute codes, the codes of what matches, and a few pages. */
static double
RankCost(const Estimate *e)
{
	double		reads = Min(e->matching, PIPEANN_EARLY_RESULTS * 2);

	return cpu_operator_cost * (e->rows * e->conditions * ATTRIBUTE_COST +
								e->matching) + reads * e->page_cost;
}

static Estimate
EstimateOf(const struct IndexPath *path, Selectivity selectivity)
{
	Estimate	e = {.conditions = list_length(path->indexclauses)};
	double		random_page_cost;

	get_tablespace_page_costs(path->indexinfo->reltablespace,
							  &random_page_cost, NULL);
	e.rows = Max(path->indexinfo->tuples, 1);
	e.matching = Max(e.rows * selectivity, 1);
	e.page_cost = random_page_cost / OVERLAP;
	e.node_cost = e.page_cost + PIPEANN_DEFAULT_M * 2 * cpu_operator_cost;
	return e;
}

/*
 * Before the first row a search reads about as many pages as it explores
 * nodes, which are ef_search, or more where a part does not match; or it ranks what
 * matches. Every row beyond those explores one more node. Page-mates and pages in
 * shared_buffers save some reads, and OVERLAP accounts for reads in flight.
 */
void
pipeanncostestimate(struct PlannerInfo *root, struct IndexPath *path,
					double loop_count, Cost *startup_cost, Cost *total_cost,
					Selectivity *selectivity, double *correlation,
					double *pages)
{
	double		all_pages = Max(path->indexinfo->pages, 1);
	GenericCosts costs;
	Estimate	e;

	if (path->indexorderbys == NIL || WantsNullVector(path))
	{
		Refuse(path, startup_cost, total_cost, selectivity, correlation,
			   pages);
		return;
	}

	MemSet(&costs, 0, sizeof(costs));
	genericcostestimate(root, path, loop_count, &costs);
	e = EstimateOf(path, costs.indexSelectivity);
	if (e.rows < PIPEANN_MIN_CODED_NODES)
	{
		/* an index without codes is read as a whole, in order */
		*startup_cost = all_pages * seq_page_cost + e.rows * cpu_operator_cost;
		*total_cost = *startup_cost + e.matching * cpu_index_tuple_cost;
	}
	else
	{
		*startup_cost = WalkCost(&e);
		if (e.conditions > 0)
			*startup_cost = Min(*startup_cost, RankCost(&e));
		*total_cost = Max(*startup_cost,
						  e.matching * (e.node_cost + cpu_index_tuple_cost));
	}
	*selectivity = costs.indexSelectivity;
	*correlation = 0;
	*pages = Min(Min(pipeann_ef_search, e.matching), all_pages);
}
