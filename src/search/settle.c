/*
 * settle.c
 *		When a search may end before its list is explored.
 */
#include "search/settle.h"

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
PipeannSettleInit(PipeannSettle *settle, PipeannMetric metric, int ef)
{
	memset(settle, 0, sizeof(*settle));
	settle->on = metric != PIPEANN_IP;
	settle->metric = metric;
	settle->factor = FACTOR * powf(ef / 100.0f, GROWTH);
	settle->deviations = DEVIATIONS * powf(ef / 100.0f, GROWTH);
}

void
PipeannSettleFound(PipeannSettle *settle, float exact)
{
	float	   *nearest = settle->nearest;
	int			at = settle->count;

	if (at == PIPEANN_SETTLED)
	{
		if (!(exact < nearest[at - 1]))
			return;
		at--;
	}
	else
		settle->count++;
	for (; at > 0 && nearest[at - 1] > exact; at--)
		nearest[at] = nearest[at - 1];
	nearest[at] = exact;
}

bool
PipeannSettleWantsError(const PipeannSettle *settle)
{
	return settle->on && settle->samples < MAX_SAMPLES;
}

void
PipeannSettleError(PipeannSettle *settle, float error)
{
	settle->sum += error;
	settle->sum_of_squares += (double) error * error;
	settle->samples++;
}

/* What codes may add to an exact distance. */
static float
ErrorMargin(const PipeannSettle *settle)
{
	double		mean = settle->sum / settle->samples;
	double		variance = settle->sum_of_squares / settle->samples -
		mean * mean;

	return (float) (mean + settle->deviations * sqrt(Max(variance, 0)));
}

/* In order keys: for cosine, 1 + key is half the squared distance. */
static float
FactorMargin(const PipeannSettle *settle, float key)
{
	return settle->factor *
		(settle->metric == PIPEANN_COSINE ? 1 + key : key);
}

float
PipeannSettleBound(const PipeannSettle *settle)
{
	float		last = settle->nearest[PIPEANN_SETTLED - 1];

	if (!settle->on || settle->count < PIPEANN_SETTLED ||
		settle->samples < MIN_SAMPLES)
		return INFINITY;
	return last + Max(FactorMargin(settle, last), ErrorMargin(settle));
}
