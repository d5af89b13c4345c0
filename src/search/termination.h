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

/*
 * Errors are sampled where the search explores, from the first candidates on.
 * These were chosen by their codes, as the candidates left were: both have more
 * codes that are too small than a random sample would.
 */
#define PIPEANN_MIN_SAMPLES 10
#define PIPEANN_MAX_SAMPLES 64

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
	bool		told;			/* it is settled */
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

/* Whether the error of another code is wanted. */
static inline bool
PipeannTerminationWantsError(const PipeannTermination *termination)
{
	return termination->on && termination->errors.samples < PIPEANN_MAX_SAMPLES;
}

static inline void
PipeannTerminationError(PipeannTermination *termination, float error)
{
	PipeannErrors *errors = &termination->errors;

	errors->sum += error;
	errors->sum_of_squares += (double) error * error;
	errors->samples++;
}

/*
 * The margin by the factor: in order keys, of which for cosine 1 + key is half the
 * squared distance.
 */
static inline float
PipeannTerminationFactor(const PipeannTermination *termination, float key)
{
	return termination->factor *
		(termination->metric == PIPEANN_COSINE ? 1 + key : key);
}

/* list.c */
extern void PipeannTerminationInit(PipeannTermination *termination,
								   PipeannMetric metric, int ef);
extern void PipeannTerminationFound(PipeannTermination *termination,
									float exact, uint32 result);
extern float PipeannTerminationMargin(const PipeannTermination *termination,
									  float deviations);
extern float PipeannTerminationBound(const PipeannTermination *termination);

#endif							/* PIPEANN_TERMINATION_H */
