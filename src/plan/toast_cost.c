/*
 * toast_cost.c
 *		What it costs others to read vectors from TOAST.
 *
 * Whoever sorts rows by distance reads the vectors of all that match, and if they
 * are in TOAST the planner counts nothing for that. A scan of ours reads none. As it
 * cannot make others dearer it becomes cheaper by as much, for the rows that are
 * wanted.
 */
#include "postgres.h"

#include "index/index.h"
#include "nodes/pathnodes.h"
#include "plan/plan.h"
#include "utils/rel.h"
#include "utils/spccache.h"

/* Pages to be read for a vector in TOAST, and what is left of a cost at least. */
#define TOAST_PAGES 2.0
#define LEAST_SHARE 0.01

/* An index of which there is nothing but a planner's idea is not asked. */
static bool
AreInToast(const IndexOptInfo *info)
{
	Relation	index = RelationIdGetRelation(info->indexoid);
	bool		in_toast;

	if (!RelationIsValid(index))
		return false;
	in_toast = PipeannVectorsInToast(index);
	RelationClose(index);
	return in_toast;
}

double
PipeannWantedRows(const PlannerInfo *root, double rows)
{
	return root->limit_tuples > 0 ? Min(root->limit_tuples, rows) : rows;
}

void
PipeannTakeOffVectors(PlannerInfo *root, const IndexOptInfo *index,
					  double returned, double *startup_cost,
					  double *total_cost)
{
	double		wanted = PipeannWantedRows(root, returned);
	double		cost = *startup_cost +
		(*total_cost - *startup_cost) * wanted / returned;
	double		page_cost;
	double		share;

	if (!AreInToast(index))
		return;
	get_tablespace_page_costs(index->rel->reltablespace, &page_cost, NULL);
	share = Max(1 - returned * page_cost * TOAST_PAGES / cost, LEAST_SHARE);
	*startup_cost *= share;
	*total_cost *= share;
}
