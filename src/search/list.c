/*
 * list.c
 *		How many candidates a search explores, and when it may end before that
 *		(pool.h).
 */
#include "search/state.h"

#include <math.h>

#include "base/metric.h"

/* ---------- early termination ---------- */

/*
 * How much farther is enough to end, at ef = 100: a factor of squared
 * distances, but no less than some standard deviations of the codes' error.
 * With the factor alone a search would end before it has distinguished rows
 * that differ by less than their codes' errors; with the deviations alone it
 * would read more at equal recall. Both grow a little slower than ef. From ef
 * = 100 on they give about the recall that the list would; with a small ef the
 * search reads less and finds less, along the same curve.
 */
#define FACTOR 0.1f
#define DEVIATIONS 3.3f
#define GROWTH 0.8f

/* The longer the list, the more certain an early end has to be. */
static void
SetMargins(PipeannTermination *termination, int ef)
{
	termination->factor = FACTOR * powf(ef / 100.0f, GROWTH);
	if (PipeannMetrics[termination->metric].power == 1)
		termination->factor = sqrtf(1 + termination->factor) - 1;
	termination->deviations = DEVIATIONS * powf(ef / 100.0f, GROWTH);
}

/*
 * There is no early end for inner products: they have no zero to measure from,
 * and the way to a large one does not lead through large ones only.
 */
void
PipeannTerminationInit(PipeannTermination *termination, PipeannMetric metric, int ef)
{
	memset(termination, 0, sizeof(*termination));
	termination->on = PipeannMetrics[metric].power > 0;
	termination->metric = metric;
	SetMargins(termination, ef);
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

/*
 * By how much code distances may exceed exact ones, if their errors are this
 * many standard deviations above average; infinity while too little is known.
 */
float
PipeannTerminationMargin(const PipeannTermination *termination,
						 float deviations)
{
	return termination->errors.n < PIPEANN_MIN_SAMPLES ? INFINITY :
		(float) PipeannSampleBound(&termination->errors, deviations);
}

/* The bound beyond which a code is far enough from this distance. */
static float
MuchFarther(const PipeannTermination *termination, float dist)
{
	return dist + Max(PipeannTerminationFactor(termination, dist),
					  PipeannTerminationMargin(termination,
											   termination->deviations));
}

/*
 * Candidates whose codes are farther than this need not be explored. Infinity
 * while too little is known, or without early termination.
 */
float
PipeannTerminationBound(const PipeannTermination *termination)
{
	return !termination->on || termination->count < PIPEANN_EARLY_RESULTS ||
		termination->errors.n < PIPEANN_MIN_SAMPLES ? INFINITY :
		MuchFarther(termination,
					termination->nearest[PIPEANN_EARLY_RESULTS - 1].dist);
}

/* ---------- the list ---------- */

/*
 * A continued search explores as many candidates again as it has explored so
 * far, but no more than this at a time: the pool is a sorted array.
 */
#define MAX_POOL 1000

/*
 * Searches that may end early go on when they are hard, for up to this many
 * candidates more: together with what easy ones save, that gives equally good
 * results on average. Candidates on pages at hand are explored while others
 * are read, which costs no reads and saves some. However precise the codes
 * are, a part of the list is explored: the short way to near nodes may not
 * lead through the nearest so far.
 */
#define BEYOND 100
#define LEAST_OF(ef) (((ef) + 3) / 4)

/*
 * A list whose nodes alone are scored gives the same recall as one whose
 * nodes' page-mates are scored, too, if it is longer by up to a sixth, in
 * proportion to the number of page-mates, of which eight count at most.
 */
#define MOST_MATES 8

/*
 * Candidates that do not match are explored only as far as they would be if they
 * did, and a little farther, as there are more of them.
 */
#define LENGTH_POWER 0.6f

static void
ShortenHead(PipeannSearch *search)
{
	const PipeannTermination *termination = &search->termination;
	PipeannPool *pool = &search->pool;
	int			last = (int) (PIPEANN_EARLY_RESULTS *
							  powf((float) PipeannMatchShare(search), -LENGTH_POWER));
	int			head = Min(pool->head, pool->count);
	float		bound;

	if (pool->count <= last || !termination->on ||
		termination->errors.n < PIPEANN_MIN_SAMPLES)
		return;
	/* as if the last of the nearest results were at the distance of this code */
	bound = MuchFarther(termination, pool->items[last].dist -
						PipeannTerminationMargin(termination, 0));
	while (head > pool->least && pool->items[head - 1].dist > bound)
		head--;
	if (head < Min(pool->head, pool->count))
		PipeannPoolSetHead(pool, head, pool->matching);
}

/* The factor is this many times that of an early end. */
#define HORIZON_FACTOR 1.1f

/*
 * Nodes whose codes are farther than this are beyond the search's horizon;
 * infinity if it has none, or too little is known of its codes' errors.
 */
static float
HorizonOfCodes(const PipeannSearch *search)
{
	const PipeannTermination *termination = &search->termination;

	if (!search->params.has_horizon)
		return INFINITY;
	/* the code distances of the first candidates explored tend to be too small */
	return search->params.horizon +
		Max(HORIZON_FACTOR * PipeannTerminationFactor(termination, search->params.horizon),
			PipeannTerminationMargin(termination,
									 Max(termination->deviations, DEVIATIONS)));
}

/* Candidates that are explored even beyond the horizon, as the way may lead through them. */
#define BEYOND_HORIZON 2

/* Whether all is explored that may be nearer than the horizon. */
bool
PipeannListIsBeyond(PipeannSearch *search)
{
	PipeannPool *pool = &search->pool;
	int			open = PipeannPoolFirstOpen(pool);

	return open >= BEYOND_HORIZON && open < pool->count &&
		pool->items[open].dist > HorizonOfCodes(search);
}

/*
 * Set the distance beyond which nothing need be explored. Before something was
 * read only its horizon, or finding what it looks for, ends a search: see
 * MOST_HITS in engine.c.
 */
void
PipeannListSetBound(PipeannSearch *search)
{
	float		early = search->reads == 0 ? INFINITY :
		PipeannTerminationBound(&search->termination);

	search->pool.bound = early;
	if (HorizonOfCodes(search) < search->pool.bound)
	{
		search->pool.bound = HorizonOfCodes(search);
		/* in memory, straying from the way costs less than missing it */
		if (!search->params.one_of_several || search->reads > 0)
			search->pool.least = Min(search->pool.least, BEYOND_HORIZON);
	}
	if (search->has_ended)
	{
		search->pool.bound = -INFINITY;
		search->pool.least = 0;
	}
	if (search->pool.matching > 0 && search->reads > 0 && !search->code_scan.begun)
		ShortenHead(search);
}

/*
 * Set the list's length: in memory, from the first read on, and once it is refilled. It is
 * longer by matching candidates if these are few. From the first read on there may be time
 * to explore the overflow area, and an early end may save reads: in memory a larger pool
 * only takes longer to keep sorted. A list longer than twice ef is large enough without an
 * overflow area: exploring more would only use CPUs that other sessions may want.
 */
void
PipeannListSetLength(PipeannSearch *search)
{
	PipeannPool *pool = &search->pool;
	int			list = PipeannListToExplore(search);
	int			mates = Min(search->layout->slots_per_page - 1, MOST_MATES);
	int			wanted;

	if (search->stage < PIPEANN_CONTINUED)
	{
		if (search->reads > 0)
			pool->length = search->termination.on ? PipeannListEf(search) + BEYOND : list;
		else
			pool->length = search->params.by_page ? list :
				list + (int) ((int64) list * mates / (6 * MOST_MATES));
		if (search->most_matching > 0)
			PipeannPoolSetHead(pool, pool->length,
							   Max(search->most_matching, search->params.min_list));
	}
	wanted = search->termination.on ? Min(pool->length, 2 * PipeannListEf(search)) :
		pool->length;
	PipeannPoolWiden(pool, pool->length, search->reads == 0 ? pool->length :
					 (int) (wanted * search->params.policy->overflow));
}

/* Make the pool empty, with the length that it has until something is read. */
void
PipeannListBegin(PipeannSearch *search)
{
	PipeannTerminationInit(&search->termination, search->layout->metric, search->params.ef);
	search->termination.on &= search->params.may_end_early && !search->params.lists_all;
	PipeannPoolReset(&search->pool, 0);
	PipeannListSetLength(search);
	search->pool.least = LEAST_OF(search->params.ef);
}

/*
 * Change the length of the list, and how much of it is explored, as if it had
 * been so from the beginning.
 */
void
PipeannListSetEf(PipeannSearch *search, int ef)
{
	search->params.ef = ef;
	SetMargins(&search->termination, ef);
	PipeannListSetLength(search);
	search->pool.least = LEAST_OF(ef);
	PipeannListSetBound(search);
}

/* From now on the whole list is explored, and no more. */
void
PipeannListForgetEarlyEnd(PipeannSearch *search)
{
	search->termination.on = false;
	PipeannListSetLength(search);
	PipeannListSetBound(search);
}

/*
 * Refill the pool with the nearest of the candidates dropped from it; returns
 * whether there were any. The caller sets their page and ref.
 */
bool
PipeannListRefill(PipeannSearch *search)
{
	uint64		ef = PipeannListEf(search);
	int			more = (int) Min(Max(search->explored, ef), Max(MAX_POOL, ef));

	search->stage = PIPEANN_CONTINUED;
	search->pool.length = Max(search->pool.length, more);
	PipeannListSetLength(search);
	PipeannPoolRefill(&search->pool, more);
	return search->pool.count > 0;
}
