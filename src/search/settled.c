/*
 * settled.c
 *		Results that are likely to be returned, told while a search waits.
 *
 * A result is settled when it is among the nearest that are wanted, and all
 * candidates left are, by their codes, farther. That is how an early end is found,
 * too (termination.h). But here a wrong answer only costs a page of the table that
 * is read in vain. So codes are taken to err as they do on average.
 */
#include "search/settled.h"

#include <math.h>

/* What is nearer than all candidates left. */
static float
SettledDistance(PipeannSearch *search)
{
	PipeannPool *pool = &search->pool;
	int			open = PipeannPoolFirstOpen(pool);

	return open == pool->count ? INFINITY :
		pool->items[open].dist -
		PipeannTerminationMargin(&search->termination, 0);
}

/*
 * Tell params.settled of the results that are settled, of each once. Does nothing
 * unless a page is being read.
 */
void
PipeannTellSettled(PipeannSearch *search)
{
	PipeannTermination *termination = &search->termination;
	int			n = Min(search->params.most_settled, termination->count);
	float		distance;

	if (!termination->on || search->source->in_flight == 0 || n == 0)
		return;
	distance = SettledDistance(search);
	for (int i = 0; i < n && termination->nearest[i].dist <= distance; i++)
	{
		PipeannNearResult *nearest = &termination->nearest[i];
		const PipeannResult *result = &search->results.items[nearest->result];

		if (!nearest->told)
			search->params.settled(PipeannResultsRows(&search->results, result),
								   search->params.settled_arg);
		nearest->told = true;
	}
}
