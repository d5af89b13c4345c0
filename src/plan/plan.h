/*
 * plan.h
 *		Making queries and plans for the nearest rows cheaper. This room knows
 *		plan trees, and what a scan knows of its rows. It must not
 * know how a search finds rows.
 */
#ifndef PIPEANN_PLAN_H
#define PIPEANN_PLAN_H

#include "access/sysattr.h"
#include "nodes/execnodes.h"
#include "nodes/pathnodes.h"
#include "plan/interface.h"

extern bool pipeann_rewrite_plans;	/* settings */
extern bool pipeann_bitmap_scan;

/* wanted.c */
extern void PipeannTakeOffVectors(PlannerInfo *root,
								  const IndexOptInfo *index,
								  double returned, double *startup_cost,
								  double *total_cost);
extern bool PipeannWantsFew(const PlannerInfo *root, double rows);
extern double PipeannWantedRows(const PlannerInfo *root, double rows);

/* within.c */
extern double PipeannShareReached(PlannerInfo *root,
								  const IndexPath *path);
extern void PipeannEstimateWithin(PlannerInfo *root,
								  RelOptInfo *table);

/* plan.c */
extern void PipeannPlanInit(void);

#if PG_VERSION_NUM >= 180000
/* explain.c */
extern void PipeannExplainInit(void);
#endif

/* ---------- within plan/ ---------- */

/*
 * The member of a set of columns, as pull_varattnos() makes it, for a column's number in the
 * target list of a node; that of InvalidAttrNumber stands for all columns.
 */
#define PIPEANN_COLUMN(number) ((number) - FirstLowInvalidHeapAttributeNumber)

static inline bool
PipeannHasColumn(const Bitmapset *columns, AttrNumber column)
{
	return bms_is_member(PIPEANN_COLUMN(InvalidAttrNumber), columns) ||
		bms_is_member(PIPEANN_COLUMN(column), columns);
}

/*
 * tree.c: properties of a kind of node. STEADY: it evaluates its columns,
 * conditions and expressions, and nothing else. NAMES: of its children's
 * columns it reads those to which these, and its keys, refer. PASSES: it
 * returns rows of its first child one by one. ORDERED: its rows are in the
 * order of any child's except the inner one's. DRAINS: it returns no row
 * before it has read all of its child's.
 */
#define PIPEANN_PLAN_STEADY		0x01
#define PIPEANN_PLAN_NAMES		0x02
#define PIPEANN_PLAN_PASSES		0x04
#define PIPEANN_PLAN_ORDERED	0x08
#define PIPEANN_PLAN_DRAINS		0x10

extern bool PipeannPlanHas(const Plan *plan, int trait);
extern bool PipeannVisitExpressions(const Plan *plan,
									bool (*visit) (Node *, void *), void *arg);
extern bool PipeannVisitPlans(void *above, PipeannPlanVisit visit, void *arg);

/* distance.c */
extern bool PipeannIsIndex(Oid indexid);
extern bool PipeannIsMethod(Oid am);
extern Expr *PipeannMostDistance(const Plan *scan, bool *no_numbers);
extern void PipeannLeaveOutUnread(Plan *node, const Bitmapset *wanted);

/* exec.c */
extern bool PipeannTellLimit(PlanState *node, void *limit);
extern void PipeannBoundScans(PlanState *node, double most);

/*
 * exec.c: merges of the nearest rows of partitions, with one limit for all.
 * custom_private is the number of the column by which rows are merged; the
 * child is the merge as it was planned.
 */
extern const CustomScanMethods *const PipeannMergeNode;

/*
 * The nearest of the rows that other indexes find. The children are our scan,
 * with all conditions and the node's columns, and the plan that makes the bitmap.
 */
extern const CustomScanMethods *const PipeannBitmapNode;

/*
 * Limits to be filled by our scans even if rows come late. The child is the plan
 * that the node replaced. custom_exprs has the bound of the distance, if one is
 * known; custom_private says whether rows with distance NaN may be wanted then.
 */
extern const CustomScanMethods *const PipeannFillNode;

#endif							/* PIPEANN_PLAN_H */
