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
	float	   *query;			/* of length 1 for cosine */
	uint32		own;			/* the node that it is the vector of, which does not
								 * count, or INVALID_ID */
	int			number;			/* among all queries of a curve */
	int			k;				/* neighbours that are wanted */
	int			n;				/* true ones that there are */
	float	   *nearest;		/* their order keys, sorted */
} PipeannAsked;

extern double pipeann_target_recall;	/* setting */

#define PIPEANN_MOST_TARGET 0.999

/* found.c */
extern PipeannSearchParams PipeannParamsOf(int list, bool strict);
extern int	PipeannFind(PipeannIndexView *view, PipeannPageSource *source,
						   const PipeannSearchParams *params,
						   const PipeannAsked *asked, int k,
						   PipeannResult *nearest);
extern int	PipeannFoundBy(const PipeannSearch *search,
						   const PipeannAsked *asked, int k);
extern PipeannSearch *PipeannBeginGrowing(PipeannIndexView *view,
										  PipeannPageSource *source,
										  const PipeannAsked *asked, int list);
extern int	PipeannFoundOf(const PipeannAsked *asked,
						   const PipeannResult *nearest, int n, int k);

/* exact.c */
extern void PipeannAnswerExactly(PipeannIndexView *view, PipeannAsked *asked,
								 int n);

/* source.c */
extern PipeannPageSource *PipeannCopySource(const PipeannIndexView *view,
											PipeannCounters *counters);
extern void PipeannCopyBegin(PipeannPageSource *source, bool read);

/* curve.c */
extern bool PipeannReadNode(const PipeannIndexView *view, uint32 id,
							char *page, float *x);
extern PipeannCurve PipeannCurveMeasure(PipeannIndexView *view,
										PipeannAsked *asked, int n, int k);
extern void PipeannCurveKeep(Relation index, const PipeannCurve *curve);
extern void PipeannCurveOfOwn(PipeannTeam *team, Relation index);
extern void PipeannCurveOfBuild(PipeannTeam *team, Relation index,
								const PipeannMeta *meta);
extern bool PipeannCurveIsStale(const PipeannMeta *meta);
extern int	PipeannCurveList(const PipeannMeta *meta, double target, double k,
							 PipeannCurvePlace place);

#endif							/* PIPEANN_RECALL_H */
