/*
 * termination.c
 *		When a search may end before its list is explored.
 */
#include "search/termination.h"

#include <math.h>

/*
 * How much farther is much, at ef = 100: squared distances by a factor, and no less
 * than some standard deviations of the codes' error (3.3). With the first alone,
 * rows that differ by less than their codes err would be settled before they are
 * told apart; with the second alone, GloVe-100 reads a fifth more pages at equal
 * recall. Both grow a little slower than ef. From ef = 100 on they give the recall
 * that the list would, or little less (GloVe-100, MiniLM, SIFT, Fashion-MNIST); with
 * a small ef less is read and less is found, along the same curve.
 */
#define FACTOR 0.1f
#define DEVIATIONS 3.3f
#define GROWTH 0.8f

/*
 * Errors are sampled where the search explores, from the first candidates on:
 * among those, as among the candidates left, codes that are too small are more
 * than their share.
 */
#define MIN_SAMPLES 10
#define MAX_SAMPLES 64

void
PipeannTerminationInit(PipeannTermination *termination, PipeannMetric metric, int ef)
{
	memset(termination, 0, sizeof(*termination));
	termination->on = metric != PIPEANN_IP;
	termination->metric = metric;
	termination->factor = FACTOR * powf(ef / 100.0f, GROWTH);
	termination->deviations = DEVIATIONS * powf(ef / 100.0f, GROWTH);
}

void
PipeannTerminationFound(PipeannTermination *termination, float exact)
{
	float	   *nearest = termination->nearest;
	int			at = termination->count;

	if (at == PIPEANN_EARLY_RESULTS)
	{
		if (!(exact < nearest[at - 1]))
			return;
		at--;
	}
	else
		termination->count++;
	for (; at > 0 && nearest[at - 1] > exact; at--)
		nearest[at] = nearest[at - 1];
	nearest[at] = exact;
}

bool
PipeannTerminationWantsError(const PipeannTermination *termination)
{
	return termination->on && termination->samples < MAX_SAMPLES;
}

void
PipeannTerminationError(PipeannTermination *termination, float error)
{
	termination->sum += error;
	termination->sum_of_squares += (double) error * error;
	termination->samples++;
}

/* What codes may add to an exact distance. */
static float
ErrorMargin(const PipeannTermination *termination)
{
	double		mean = termination->sum / termination->samples;
	double		variance = termination->sum_of_squares / termination->samples -
		mean * mean;

	return (float) (mean + termination->deviations * sqrt(Max(variance, 0)));
}

/* In order keys: for cosine, 1 + key is half the squared distance. */
static float
FactorMargin(const PipeannTermination *termination, float key)
{
	return termination->factor *
		(termination->metric == PIPEANN_COSINE ? 1 + key : key);
}

float
PipeannTerminationBound(const PipeannTermination *termination)
{
	float		last = termination->nearest[PIPEANN_EARLY_RESULTS - 1];

	if (!termination->on || termination->count < PIPEANN_EARLY_RESULTS ||
		termination->samples < MIN_SAMPLES)
		return INFINITY;
	return last + Max(FactorMargin(termination, last), ErrorMargin(termination));
}
