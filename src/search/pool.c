/*
 * pool.c
 *		The candidate pool.
 */
#include "search/pool.h"

#include <limits.h>
#include <math.h>

#define HEAP_ITEM PipeannDiscard
#include "search/heap.h"

#define FIRST_DISCARDS 1024

/* Candidates that are merged in one go. */
#define MERGE_BATCH 16

/*
 * Make an empty pool without an overflow area, reusing the memory of one that
 * is no longer wanted, or of all zeroes.
 */
void
PipeannPoolReset(PipeannPool *pool, int length)
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
void
PipeannPoolWiden(PipeannPool *pool, int length, int capacity)
{
	pool->length = Max(pool->length, length);
	capacity = Max(pool->length, capacity);
	PIPEANN_RESERVE(pool->items, pool->items_size, capacity);
	pool->capacity = Max(pool->capacity, capacity);
}

/* Keep a candidate for later for which there is no room. */
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

/* Those behind the head that do not match leave; only the first n may not. */
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
void
PipeannPoolSetHead(PipeannPool *pool, int head, int matching)
{
	pool->head = head;
	pool->matching = matching;
	PipeannPoolWiden(pool, head + matching, head + matching + MERGE_BATCH);
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
 * Fill the pool with the best of the discards behind what it has, which none is nearer
 * than. The caller sets page and ref of what came in.
 */
void
PipeannPoolFill(PipeannPool *pool, int length)
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
void
PipeannPoolRefill(PipeannPool *pool, int length)
{
	/* what the pool still holds is explored, or competes like the discards */
	while (pool->count > 0)
		DropLast(pool);
	pool->first_open = pool->first_unread = pool->first_unseen = 0;
	pool->head = INT_MAX;
	pool->matching = 0;
	PipeannPoolFill(pool, length);
}
