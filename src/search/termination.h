/*
 * termination.h
 *		Early termination: when a search may end before its list is explored.
 *
 * The nearest rows are unlikely to change when every candidate left is, by its
 * code, much farther than the last of them. So easy queries end early and hard
 * ones go on. (The idea to end by the distance of the k-th nearest, times a
 * factor, instead of by the list's length is from Al-Jazzazi et al., Distance
 * Adaptive Beam Search for Provably Accurate Graph-Based Nearest Neighbor
 * Search, 2025. There distances are exact. Codes err, so their error counts too.)
 */
#ifndef PIPEANN_TERMINATION_H
#define PIPEANN_TERMINATION_H

#include "base/base.h"

/* Results that may be believed after an early end: the usual LIMIT. */
#define PIPEANN_EARLY_RESULTS 10

/* By how much codes err: code less exact distance, over a sample of nodes. */
typedef struct PipeannErrors
{
	double		sum;
	double		sum_of_squares;
	int			samples;
} PipeannErrors;

/* One of the nearest results. */
typedef struct PipeannNearResult
{
	float		dist;			/* exact */
	uint32		result;			/* its number among the results of the run */
	bool		told;			/* settled.h */
} PipeannNearResult;

typedef struct PipeannTermination
{
	bool		on;
	PipeannMetric metric;
	float		factor;			/* of squared distances */
	float		deviations;		/* of the codes' error */
	PipeannNearResult nearest[PIPEANN_EARLY_RESULTS];	/* sorted */
	int			count;
	PipeannErrors errors;
} PipeannTermination;

/*
 * The longer the list would be, the surer the end has to be. It is not on for
 * inner products: they have no zero to measure from, and the way to a large one
 * does not lead through large ones only.
 */
extern void PipeannTerminationInit(PipeannTermination *termination, PipeannMetric metric,
							  int ef);

/* A node was found at this exact distance: the result of this number. */
extern void PipeannTerminationFound(PipeannTermination *termination,
									float exact, uint32 result);

/* Take over what another search knows of such codes; own errors count more. */
extern void PipeannTerminationKnow(PipeannTermination *termination,
								   const PipeannErrors *errors);

/* Whether the error of another code is wanted. */
extern bool PipeannTerminationWantsError(const PipeannTermination *termination);
extern void PipeannTerminationError(PipeannTermination *termination, float error);

/*
 * By how much codes may exceed exact distances, if they err by so many standard
 * deviations more than on average; infinity while too little is known.
 */
extern float PipeannTerminationMargin(const PipeannTermination *termination,
									  float deviations);

/*
 * Candidates whose codes are farther than this need not be explored. Infinity
 * while too little is known, or when it is not on.
 */
extern float PipeannTerminationBound(const PipeannTermination *termination);

/* The bound if the factor were larger by so many times itself. */
extern float PipeannTerminationWiderBound(const PipeannTermination *termination,
										  float factors);

/* The bound if the last of the nearest results were at the distance of this code. */
extern float PipeannTerminationBoundOf(const PipeannTermination *termination,
									   float code);

/*
 * The bound for nodes that come in the order of their codes: by what codes err, and
 * without the factor.
 */
extern float PipeannTerminationErrorBound(const PipeannTermination *termination);

#endif							/* PIPEANN_TERMINATION_H */
