/*
 * termination.c
 *		When a search may end before its list is explored.
 */
#include "search/pool.h"

#include <math.h>

/*
 * How much farther is much, at ef = 100: squared distances by a factor, and no
 * less than some standard deviations of the codes' error. With the factor alone a
 * search would end before it has told apart rows that differ by less than their
 * codes err; with the deviations alone it would read more at equal recall. Both
 * grow a little slower than ef. From ef = 100 on they give about the recall that
 * the list would; with a small ef the search reads less and finds less, along the
 * same curve.
 */
#define FACTOR 0.1f
#define DEVIATIONS 3.3f
#define GROWTH 0.8f

/*
 * The longer the list would be, the surer the end has to be. It is not on for
 * inner products: they have no zero to measure from, and the way to a large one
 * does not lead through large ones only.
 */
void
PipeannTerminationInit(PipeannTermination *termination, PipeannMetric metric, int ef)
{
	memset(termination, 0, sizeof(*termination));
	termination->on = metric != PIPEANN_IP;
	termination->metric = metric;
	termination->factor = FACTOR * powf(ef / 100.0f, GROWTH);
	termination->deviations = DEVIATIONS * powf(ef / 100.0f, GROWTH);
}

/* A node was found at this exact distance: the result of this number. */
void
PipeannTerminationFound(PipeannTermination *termination, float exact,
						uint32 result)
{
	PipeannNearResult *nearest = termination->nearest;
	int			at = termination->count;

	if (at == PIPEANN_EARLY_RESULTS)
	{
		if (!(exact < nearest[at - 1].dist))
			return;
		at--;
	}
	else
		termination->count++;
	for (; at > 0 && nearest[at - 1].dist > exact; at--)
		nearest[at] = nearest[at - 1];
	nearest[at].dist = exact;
	nearest[at].result = result;
	nearest[at].told = false;
}

/* Take over what another search knows of such codes; own errors count more. */
void
PipeannTerminationKnow(PipeannTermination *termination,
					   const PipeannErrors *errors)
{
	double		part = (double) PIPEANN_MIN_SAMPLES / Max(errors->samples, 1);

	if (errors->samples < PIPEANN_MIN_SAMPLES)
		return;
	termination->errors.sum = errors->sum * part;
	termination->errors.sum_of_squares = errors->sum_of_squares * part;
	termination->errors.samples = PIPEANN_MIN_SAMPLES;
}

/*
 * By how much codes may exceed exact distances, if they err by so many standard
 * deviations more than on average; infinity while too little is known.
 */
float
PipeannTerminationMargin(const PipeannTermination *termination,
						 float deviations)
{
	const PipeannErrors *errors = &termination->errors;
	double		mean;
	double		variance;

	if (errors->samples < PIPEANN_MIN_SAMPLES)
		return INFINITY;
	mean = errors->sum / errors->samples;
	variance = errors->sum_of_squares / errors->samples - mean * mean;
	return (float) (mean + deviations * sqrt(Max(variance, 0)));
}

/* In order keys: for cosine, 1 + key is half the squared distance. */
static float
FactorMargin(const PipeannTermination *termination, float key)
{
	return termination->factor *
		(termination->metric == PIPEANN_COSINE ? 1 + key : key);
}

/* What is much farther than a distance. */
static float
MuchFarther(const PipeannTermination *termination, float dist)
{
	return dist + Max(FactorMargin(termination, dist),
					  PipeannTerminationMargin(termination,
											   termination->deviations));
}

static bool
KnowsTooLittle(const PipeannTermination *termination)
{
	return !termination->on || termination->count < PIPEANN_EARLY_RESULTS ||
		termination->errors.samples < PIPEANN_MIN_SAMPLES;
}

/*
 * The bound for nodes that come in the order of their codes: by what codes err, and
 * without the factor.
 */
float
PipeannTerminationErrorBound(const PipeannTermination *termination)
{
	return KnowsTooLittle(termination) ? INFINITY :
		termination->nearest[PIPEANN_EARLY_RESULTS - 1].dist +
		PipeannTerminationMargin(termination, termination->deviations);
}

/* The bound if the factor were larger by so many times itself. */
float
PipeannTerminationWiderBound(const PipeannTermination *termination, float factors)
{
	float		last = termination->nearest[PIPEANN_EARLY_RESULTS - 1].dist;

	return PipeannTerminationBound(termination) +
		factors * FactorMargin(termination, last);
}

/*
 * The bound if the last of the nearest results were at the distance of this code.
 */
float
PipeannTerminationBoundOf(const PipeannTermination *termination, float code)
{
	float		exact = code - PipeannTerminationMargin(termination, 0);

	if (!termination->on || termination->errors.samples < PIPEANN_MIN_SAMPLES)
		return INFINITY;
	return MuchFarther(termination, exact);
}

/*
 * Candidates whose codes are farther than this need not be explored. Infinity
 * while too little is known, or when it is not on.
 */
float
PipeannTerminationBound(const PipeannTermination *termination)
{
	return KnowsTooLittle(termination) ? INFINITY :
		MuchFarther(termination,
					termination->nearest[PIPEANN_EARLY_RESULTS - 1].dist);
}
