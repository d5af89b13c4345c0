/*
 * plan.h
 *		Queries and plans for the nearest rows, changed so that they cost less.
 *
 * This room knows plan trees, and what a scan can tell of its row. It must not
 * know how a search finds rows.
 */
#ifndef PIPEANN_PLAN_H
#define PIPEANN_PLAN_H

struct PlannerInfo;
struct IndexOptInfo;

extern bool pipeann_rewrite_plans;	/* settings */
extern bool pipeann_bitmap_scan;

/*
 * toast_cost.c: make the cost of a scan by an index of ours less by what every other
 * plan pays for vectors in TOAST, and no path counts. The table's conditions leave
 * `returned` rows.
 */
extern void PipeannTakeOffVectors(struct PlannerInfo *root,
								  const struct IndexOptInfo *index,
								  double returned, double *startup_cost,
								  double *total_cost);

/*
 * wanted.c: whether it is known that a query wants no more than a number of the rows
 * that come in order, and one that a scan may return; and how many of so many.
 */
extern bool PipeannWantsFew(const struct PlannerInfo *root, double rows);
extern double PipeannWantedRows(const struct PlannerInfo *root, double rows);

/* plan.c: let all plans that the server makes from now on pass through here. */
extern void PipeannPlanInit(void);

/* interface.c: let libraries find the interface (interface.h) from now on. */
extern void PipeannInterfaceInit(void);

#endif							/* PIPEANN_PLAN_H */
