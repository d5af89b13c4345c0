/*
 * list.c
 *		The candidate pool, how many of its candidates a search explores, and when it may
 *		end before that.
 */
#include "search/state.h"

#include <limits.h>
#include <math.h>

#include "base/metric.h"

#define HEAP_ITEM PipeannDiscard
#include "search/heap.h"

/* ---------- the pool ---------- */

#define FIRST_DISCARDS 1024

/* Candidates that are merged in one go. */
#define MERGE_BATCH 16

/*
 * Make an empty pool without an overflow area, reusing the memory of one that
 * is no longer wanted, or of all zeroes.
 */
static void
PoolReset(PipeannPool *pool, int length)
{
	PIPEANN_RESERVE(pool->items, pool->items_size, length);
	PIPEANN_RESERVE(pool->discards, pool->discards_size, FIRST_DISCARDS);
	pool->length = pool->capacity = length;
	pool->head = INT_MAX;
	pool->matching = 0;
	pool->count = 0;
	pool->bound = INFINITY;
	pool->least = 0;
	pool->first_open = pool->first_unread = pool->first_unseen = 0;
	memset(pool->chosen, 0, sizeof(pool->chosen));
	pool->ndiscards = 0;
}

/* Make a pool at least this long, and of at least this capacity. */
static void
PoolWiden(PipeannPool *pool, int length, int capacity)
{
	pool->length = Max(pool->length, length);
	capacity = Max(pool->length, capacity);
	PIPEANN_RESERVE(pool->items, pool->items_size, capacity);
	pool->capacity = Max(pool->capacity, capacity);
}

/* There is no room for a candidate: keep it for later. */
void
PipeannPoolDiscard(PipeannPool *pool, uint32 id, float dist)
{
	if (pool->ndiscards == pool->discards_size)
		PIPEANN_RESERVE(pool->discards, pool->discards_size,
						pool->discards_size * 2);
	pool->discards[pool->ndiscards].dist = dist;
	pool->discards[pool->ndiscards].id = id;
	pool->ndiscards++;
}

/*
 * Find for each of n candidates the first of count positions whose distance is
 * greater, or count, by bisection. Which half is the right one cannot be foretold,
 * so it is not chosen by a branch; and each step waits for the one before it, so
 * the candidates take their steps in turns.
 */
static void
FindPositions(const PipeannCandidate *items, int count,
			  const PipeannCandidate *wanted, int n, int *positions)
{
	for (int i = 0; i < n; i++)
		positions[i] = 0;
	while (count > 1)
	{
		int			half = count / 2;

		for (int i = 0; i < n; i++)
			positions[i] += half &
				-(int) (items[positions[i] + half - 1].dist <= wanted[i].dist);
		count -= half;
	}
	for (int i = 0; count > 0 && i < n; i++)
		positions[i] += items[positions[i]].dist <= wanted[i].dist;
}

/* Put a candidate that leaves the pool where it can be found again. */
static void
Leave(PipeannPool *pool, const PipeannCandidate *item)
{
	if (item->explored)
		return;
	pool->chosen[item->beam]--;
	PipeannPoolDiscard(pool, item->id, item->dist);
}

/*
 * Drop the last candidate to make room. It is kept for later unless it is
 * explored.
 */
static void
DropLast(PipeannPool *pool)
{
	Leave(pool, &pool->items[--pool->count]);
}

static void
NoteInserted(PipeannPool *pool, int position)
{
	pool->first_open = Min(pool->first_open, position);
	pool->first_unread = Min(pool->first_unread, position);
	pool->first_unseen = Min(pool->first_unseen, position);
}

/* By insertion, since they are few. Equal ones keep their order. */
static void
SortByDistance(PipeannCandidate *items, int n)
{
	for (int i = 1; i < n; i++)
	{
		PipeannCandidate item = items[i];
		int			at = i;

		for (; at > 0 && items[at - 1].dist > item.dist; at--)
			items[at] = items[at - 1];
		items[at] = item;
	}
}

/*
 * Insert few candidates, the farthest first: what is between two of them is
 * moved once, to its final place.
 */
static void
MergeFew(PipeannPool *pool, PipeannCandidate *items, int n)
{
	int			positions[MERGE_BATCH];
	int			end;

	SortByDistance(items, n);
	while (pool->count + n > pool->capacity)
	{
		if (pool->count == 0 ||
			items[n - 1].dist >= pool->items[pool->count - 1].dist)
		{
			n--;
			PipeannPoolDiscard(pool, items[n].id, items[n].dist);
		}
		else
			DropLast(pool);
	}
	if (n == 0)
		return;

	end = pool->count;
	pool->count += n;
	pool->chosen[0] += n;
	FindPositions(pool->items, end, items, n, positions);
	for (int i = n - 1; i >= 0; i--)
	{
		/* a distance may be no number: stay before the one inserted last */
		int			at = Min(positions[i], end);

		memmove(&pool->items[at + i + 1], &pool->items[at],
				(end - at) * sizeof(PipeannCandidate));
		pool->items[at + i] = items[i];
		end = at;
	}
	NoteInserted(pool, end);
}

/* Drop candidates behind the head that do not match; only the first n there may not. */
static void
KeepMatching(PipeannPool *pool, int n)
{
	int			end = Min(pool->count, pool->head + n);
	int			to = pool->head;

	for (int from = pool->head; from < end; from++)
		if (pool->items[from].matches)
			pool->items[to++] = pool->items[from];
		else
			Leave(pool, &pool->items[from]);
	if (to < end)
	{
		memmove(&pool->items[to], &pool->items[end],
				(pool->count - end) * sizeof(PipeannCandidate));
		pool->count -= end - to;
		NoteInserted(pool, pool->head);
	}
}

/* Set the list's length by how many in it match. */
static void
SetLength(PipeannPool *pool)
{
	int			matching = 0;

	for (int i = 0; i < Min(pool->head, pool->count); i++)
		matching += pool->items[i].matches;
	pool->length = pool->head + Max(pool->matching - matching, 0);
}

/*
 * From now on any candidates may be among the first `head`, and behind them only
 * those that match. The list is longer than the head by `matching` of these.
 */
static void
PoolSetHead(PipeannPool *pool, int head, int matching)
{
	pool->head = head;
	pool->matching = matching;
	PoolWiden(pool, head + matching, head + matching + MERGE_BATCH);
	if (pool->count > head)
		KeepMatching(pool, pool->count - head);
	SetLength(pool);
}

/*
 * Insert candidates that were not seen before, page and ref set; changes their
 * order. Those for which there is no room go to the discards.
 */
void
PipeannPoolMerge(PipeannPool *pool, PipeannCandidate *items, int n)
{
	for (int i = 0; i < n; i += MERGE_BATCH)
	{
		MergeFew(pool, items + i, Min(n - i, MERGE_BATCH));
		if (pool->count > pool->head)
			KeepMatching(pool, Min(n, i + MERGE_BATCH));
	}
	if (pool->matching > 0)
		SetLength(pool);
}

/*
 * Append the nearest discards to the pool, up to its capacity; none is nearer than what
 * it has. Their pages are not set.
 */
static void
PoolFill(PipeannPool *pool, int length)
{
	HeapMake(pool->discards, pool->ndiscards);
	while (pool->count < length && pool->ndiscards > 0)
	{
		PipeannDiscard next = HeapTake(pool->discards, &pool->ndiscards);

		pool->items[pool->count++] = (PipeannCandidate) {
			.dist = next.dist,.id = next.id,.page = PIPEANN_NO_PAGE,
			.ref = PIPEANN_NO_REF
		};
		pool->chosen[0]++;
	}
}

/*
 * Forget the explored candidates and refill from the discards, up to a length
 * that the pool has.
 */
static void
PoolRefill(PipeannPool *pool, int length)
{
	/* what the pool still holds is explored, or competes like the discards */
	while (pool->count > 0)
		DropLast(pool);
	pool->first_open = pool->first_unread = pool->first_unseen = 0;
	pool->head = INT_MAX;
	pool->matching = 0;
	PoolFill(pool, length);
}

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
static float
TerminationBound(const PipeannTermination *termination)
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
		PoolSetHead(pool, head, pool->matching);
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
		TerminationBound(&search->termination);
	float		horizon = HorizonOfCodes(search);

	search->pool.bound = Min(horizon, early);
	/* in memory exploring too much costs less than missing the way */
	if (horizon < early && (!search->params.one_of_several || search->reads > 0))
		search->pool.least = Min(search->pool.least, BEYOND_HORIZON);
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
			PoolSetHead(pool, pool->length,
						Max(search->most_matching, search->params.min_list));
	}
	wanted = search->termination.on ? Min(pool->length, 2 * PipeannListEf(search)) :
		pool->length;
	PoolWiden(pool, pool->length, search->reads == 0 ? pool->length :
			  (int) (wanted * search->params.policy->overflow));
}

/* Make the pool empty, with the length that it has until something is read. */
void
PipeannListBegin(PipeannSearch *search)
{
	PipeannTerminationInit(&search->termination, search->layout->metric, search->params.ef);
	search->termination.on &= search->params.may_end_early;
	PoolReset(&search->pool, 0);
	PipeannListSetLength(search);
	search->pool.least = LEAST_OF(search->params.ef);
}

static void
SetPages(PipeannSearch *search, int from)
{
	for (int i = from; i < search->pool.count; i++)
		PipeannSetPage(search, &search->pool.items[i]);
}

/*
 * Change the length of the list, not to a shorter one, and how much of it is
 * explored, as if it had been so from the beginning.
 */
void
PipeannListSetEf(PipeannSearch *search, int ef)
{
	int			before = search->pool.count;

	search->params.ef = ef;
	SetMargins(&search->termination, ef);
	PipeannListSetLength(search);
	search->pool.least = LEAST_OF(ef);
	PipeannListSetBound(search);
	PoolFill(&search->pool, search->pool.capacity);
	SetPages(search, before);
}

/* From now on the whole list is explored, and no more. */
void
PipeannListForgetEarlyEnd(PipeannSearch *search)
{
	search->termination.on = false;
	PipeannListSetLength(search);
	PipeannListSetBound(search);
}

/* Refill the pool with the nearest of the candidates dropped from it; returns whether there were any. */
bool
PipeannListRefill(PipeannSearch *search)
{
	uint64		ef = PipeannListEf(search);
	int			more = (int) Min(Max(search->explored, ef), Max(MAX_POOL, ef));

	search->stage = PIPEANN_CONTINUED;
	search->pool.length = Max(search->pool.length, more);
	PipeannListSetLength(search);
	PoolRefill(&search->pool, more);
	SetPages(search, 0);
	return search->pool.count > 0;
}
