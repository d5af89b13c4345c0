/*
 * plan.h
 *		Queries and plans for the nearest rows, changed so that they cost less.
 *
 * This room knows plan trees, and what a scan can tell of its row. It must not
 * know how a search finds rows.
 */
#ifndef PIPEANN_PLAN_H
#define PIPEANN_PLAN_H

extern bool pipeann_rewrite_plans;	/* setting */

/* plan.c: let all plans that the server makes from now on pass through here. */
extern void PipeannPlanInit(void);

#endif							/* PIPEANN_PLAN_H */
