/*
 * plan.h
 *		Making queries and plans for the nearest rows cheaper. This room knows
 *		plan trees, and what a scan knows of its rows. It must not
 * know how a search finds rows.
 */
#ifndef PIPEANN_PLAN_H
#define PIPEANN_PLAN_H

struct IndexOptInfo;
struct IndexPath;
struct PlannerInfo;
struct RelOptInfo;

extern bool pipeann_rewrite_plans;	/* settings */
extern bool pipeann_bitmap_scan;

/* wanted.c */
extern void PipeannTakeOffVectors(struct PlannerInfo *root,
								  const struct IndexOptInfo *index,
								  double returned, double *startup_cost,
								  double *total_cost);
extern bool PipeannWantsFew(const struct PlannerInfo *root, double rows);
extern double PipeannWantedRows(const struct PlannerInfo *root, double rows);

/* within.c */
extern double PipeannShareReached(struct PlannerInfo *root,
								  const struct IndexPath *path);
extern void PipeannEstimateWithin(struct PlannerInfo *root,
								  struct RelOptInfo *table);

/* plan.c */
extern void PipeannPlanInit(void);

#if PG_VERSION_NUM >= 180000
/* explain.c */
extern void PipeannExplainInit(void);
#endif

#endif							/* PIPEANN_PLAN_H */
