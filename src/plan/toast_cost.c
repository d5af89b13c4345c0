/*
 * toast_cost.c
 *		What it costs others to read vectors from TOAST.
 *
 * Whoever sorts rows by distance reads the vectors of all that match, and if they
 * are in TOAST the planner counts nothing for that. A scan of ours reads none. As it
 * cannot make others dearer it becomes cheaper by as much, for the rows that are
 * wanted. For all rows it is never cheaper than reading the table is.
 */
#include "postgres.h"

#include "index/index.h"
#include "nodes/pathnodes.h"
#include "optimizer/optimizer.h"
#include "plan/plan.h"
#include "utils/float.h"
#include "utils/rel.h"
#include "utils/spccache.h"

/* What a vector in TOAST costs by itself: pages, or operators if pages are at hand; */
#define TOAST_PAGES 2.0
#define TOAST_OPERATORS 50

/* and what is left of a cost at least. */
#define LEAST_SHARE 0.01

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
	if (PipeannVectorsInToast(index))
		bytes = sizeof(float) * PipeannIndexDimensions(index);
	RelationClose(index);
	return bytes;
}

/*
 * What others pay for the vectors of so many rows. It is no more than reading all of
 * TOAST takes in the order of the table, which is the order of most of it.
 */
static Cost
CostOfVectors(const RelOptInfo *table, double rows, double bytes)
{
	double		page_cost;
	double		next_page_cost;

	get_tablespace_page_costs(table->reltablespace, &page_cost,
							  &next_page_cost);
	return Min(rows * page_cost * TOAST_PAGES,
			   table->tuples * bytes / BLCKSZ * next_page_cost +
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
