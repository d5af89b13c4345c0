/*
 * cost.c
 *		Cost estimates for the planner.
 */
#include "postgres.h"

#include <math.h>

#include "access/genam.h"
#include "am/am.h"
#include "scan/scan.h"
#include "search/search.h"
#include "nodes/pathnodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "plan/plan.h"
#include "utils/selfuncs.h"
#include "utils/spccache.h"

/* Overlapping reads cost so many times less than one after another. */
#define OVERLAP 4.0

/* What a scan with conditions does before it goes through codes, in operators. */
#define CODE_SCAN_START 19000

/* Less than PostgreSQL's own, so that switching off others still leaves a scan. */
#define DISABLE_COST 1.0e9

#define REFUSED_COST 1.0e100

/*
 * A scan without ORDER BY distance cannot be run, nor one in the order of two, nor
 * one for rows that are not in the index. So it costs more than anything else, but
 * is no infinity: a limit takes a share of a difference of costs, and NaN compares
 * as equal to any.
 */
static void
Refuse(struct IndexPath *path, Cost *startup_cost, Cost *total_cost,
	   Selectivity *selectivity, double *correlation, double *pages)
{
	*startup_cost = REFUSED_COST;
	*total_cost = REFUSED_COST;
	*selectivity = 0;
	*correlation = 0;
	*pages = 0;
#if PG_VERSION_NUM >= 180000
	path->path.disabled_nodes = 2;
#else
	(void) path;
#endif
}

/* A scan that may leave out rows that are wanted is taken where nothing else can be. */
static void
Disable(struct IndexPath *path, Cost *startup_cost, Cost *total_cost)
{
#if PG_VERSION_NUM >= 180000
	/* a merge of partitions' scans forgets that, so it costs more as well */
	path->path.disabled_nodes++;
#else
	(void) path;
#endif
	*startup_cost += DISABLE_COST;
	*total_cost += DISABLE_COST;
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

/* What a scan costs, by the number of rows in the index. */
typedef struct Estimate
{
	double		rows;			/* of the index */
	double		matching;		/* those that meet the index's conditions */
	double		returned;		/* those of them that meet all others */
	double		wanted;			/* of these, by a limit; or all */
	int			conditions;
	double		page_cost;		/* of a page of the index read beside others, */
	double		late_page_cost; /* or when the search has to go on, */
	double		row_cost;		/* and of a page of the table for a row */
} Estimate;

static double
NodeCost(double page_cost)
{
	return page_cost + PIPEANN_DEFAULT_M * 2 * cpu_operator_cost;
}

/* Exploring the graph, with a list that is longer by what does not match. */
static double
WalkCost(const Estimate *e)
{
	double		length = Min(pipeann_ef_search *
							 PipeannListStretch(e->matching / e->rows,
												pipeann_ef_search), e->rows);

	return length * NodeCost(e->page_cost);
}

/* Going through attribute codes, the codes of what matches, and a few pages. */
static double
CodeScanCost(const Estimate *e)
{
	double		reads = Min(e->matching, PIPEANN_EARLY_RESULTS * 2);

	return cpu_operator_cost *
		(CODE_SCAN_START + PipeannCodeScanCost(e->rows, e->conditions,
											   e->matching / e->rows)) +
		reads * e->page_cost;
}

/*
 * The rows that are found before the search has to go on cost a page of the table
 * each, of several asked for together. Each one beyond them costs a page of the
 * table and one of the index. Returns what all rows would cost at the pace of
 * those that are wanted.
 */
static double
AllRowsCost(const Estimate *e)
{
	double		looked_at = e->wanted * e->matching / e->returned;
	double		first = Min(pipeann_ef_search / PIPEANN_STRICT_PART, looked_at);
	double		cost;

	cost = first * e->row_cost / OVERLAP +
		(looked_at - first) * (e->row_cost + NodeCost(e->late_page_cost));
	return cost * e->matching / looked_at + e->matching * cpu_index_tuple_cost;
}

/* What cost_index() will add for the table's pages is counted here already. */
static double
TableCost(struct PlannerInfo *root, const struct IndexPath *path,
		  double matching, double page_cost)
{
	const RelOptInfo *table = path->indexinfo->rel;

	if (path->path.pathtype == T_IndexOnlyScan)
		return 0;
	return Max(page_cost * (1 - index_pages_fetched(matching, table->pages,
													path->indexinfo->pages,
													root) / matching), 0);
}

static Estimate
EstimateOf(struct PlannerInfo *root, const struct IndexPath *path,
		   Selectivity selectivity)
{
	const RelOptInfo *table = path->indexinfo->rel;
	Estimate	e = {.conditions = list_length(path->indexclauses)};
	double		random_page_cost;
	double		table_page_cost;

	get_tablespace_page_costs(path->indexinfo->reltablespace,
							  &random_page_cost, NULL);
	get_tablespace_page_costs(table->reltablespace, &table_page_cost, NULL);
	e.rows = Max(path->indexinfo->tuples, 1);
	e.matching = Max(e.rows * selectivity, 1);
	e.returned = Min(Max(table->rows, 1), e.matching);
	e.wanted = PipeannWantedRows(root, e.returned);
	e.page_cost = random_page_cost / OVERLAP;
	e.late_page_cost = random_page_cost;
	e.row_cost = TableCost(root, path, e.matching, table_page_cost);
	return e;
}

/*
 * Before the first row a search reads about as many pages as it explores
 * nodes, which are ef_search, or more where a part does not match; or it scans the
 * codes of what matches. Page-mates and pages in shared_buffers save some reads, and
 * OVERLAP accounts for reads in flight.
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

	if (list_length(path->indexorderbys) != 1 || WantsNullVector(path))
	{
		Refuse(path, startup_cost, total_cost, selectivity, correlation,
			   pages);
		return;
	}

	MemSet(&costs, 0, sizeof(costs));
	genericcostestimate(root, path, loop_count, &costs);
	e = EstimateOf(root, path, costs.indexSelectivity);
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
			*startup_cost = Min(*startup_cost, CodeScanCost(&e));
		*total_cost = *startup_cost + AllRowsCost(&e);
	}
	PipeannTakeOffVectors(root, path->indexinfo, e.returned, startup_cost,
						  total_cost);
	if (!PipeannWantsFew(root, e.returned))
		Disable(path, startup_cost, total_cost);
	*selectivity = costs.indexSelectivity;
	*correlation = 0;
	*pages = Min(Min(pipeann_ef_search, e.matching), all_pages);
}
