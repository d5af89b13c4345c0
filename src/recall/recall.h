/*
 * recall.h
 *		How many of the true nearest neighbours a search finds, and how long its list
 *		has to be to find a given share of them.
 *
 * This room knows searches and one index's pages. It must not know how scans choose
 * what they search for, nor how an index is made.
 */
#ifndef PIPEANN_RECALL_H
#define PIPEANN_RECALL_H

#include "base/team.h"
#include "index/index.h"

/* A query of an index, with its exact answer. */
typedef struct PipeannAsked
{
	float	   *query;			/* normalised for cosine */
	uint32		own;			/* node whose vector it is, which does not count;
								 * or INVALID_ID */
	int			k;				/* neighbours that are wanted */
	int			n;				/* number of true neighbours found */
	float	   *nearest;		/* their order keys, sorted */
} PipeannAsked;

extern double pipeann_target_recall;	/* setting */

#define PIPEANN_MOST_TARGET 0.999

/* asked.c */
extern void PipeannAskVector(const PipeannLayout *l, const float *x, PipeannAsked *asked);
extern bool PipeannAskOwn(const PipeannIndexView *view, int i, int n, uint64 random,
						  PipeannAsked *asked);
extern void PipeannAnswerExactly(PipeannIndexView *view, PipeannAsked *asked,
								 int n);

/* curve.c */
extern PipeannSearchParams PipeannParamsOf(int list, bool strict);
extern int	PipeannFoundByScan(PipeannIndexView *view, const PipeannSearchParams *params,
							   const PipeannAsked *asked);
extern void PipeannCurveCalibrate(PipeannIndexView *view, PipeannAsked *asked, int n, int k);
extern void PipeannCurveOfOwn(PipeannTeam *team, Relation index);
extern bool PipeannCurveIsStale(const PipeannMeta *meta);
extern int	PipeannCurveList(const PipeannMeta *meta, double target, double k);

#endif							/* PIPEANN_RECALL_H */
