/*
 * pool.c
 *		The candidate pool.
 */
#include "search/pool.h"

#include <math.h>

#define FIRST_DISCARDS 1024

void
PipeannPoolInit(PipeannPool *pool, int length)
{
	memset(pool, 0, sizeof(*pool));
	pool->length = pool->capacity = length;
	pool->bound = INFINITY;
	pool->items = PipeannAlloc(mul_size(length, sizeof(PipeannCandidate)));
	pool->discards_size = FIRST_DISCARDS;
	pool->discards = PipeannAlloc(mul_size(FIRST_DISCARDS,
										   sizeof(PipeannDiscard)));
}

void
PipeannPoolWiden(PipeannPool *pool, int length, int capacity)
{
	pool->length = Max(pool->length, length);
	capacity = Max(pool->length, capacity);
	if (capacity <= pool->capacity)
		return;
	pool->items = PipeannRealloc(pool->items,
								 mul_size(capacity, sizeof(PipeannCandidate)));
	pool->capacity = capacity;
}

void
PipeannPoolDiscard(PipeannPool *pool, uint32 id, float dist)
{
	if (pool->ndiscards == pool->discards_size)
	{
		pool->discards_size *= 2;
		pool->discards = PipeannRealloc(pool->discards,
										mul_size(pool->discards_size,
												 sizeof(PipeannDiscard)));
	}
	pool->discards[pool->ndiscards].dist = dist;
	pool->discards[pool->ndiscards].id = id;
	pool->ndiscards++;
}

/*
 * First position whose distance is greater.
 */
static int
InsertPosition(const PipeannPool *pool, float dist)
{
	int			low = 0;
	int			high = pool->count;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (pool->items[middle].dist <= dist)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/*
 * Drop the last candidate to make room; an explored one is done with.
 */
static void
DropLast(PipeannPool *pool)
{
	PipeannCandidate *last = &pool->items[--pool->count];

	if (!last->explored)
		PipeannPoolDiscard(pool, last->id, last->dist);
}

int
PipeannPoolInsert(PipeannPool *pool, uint32 id, float dist)
{
	int			position;
	PipeannCandidate *item;

	if (pool->count == pool->capacity)
	{
		if (dist >= pool->items[pool->count - 1].dist)
		{
			PipeannPoolDiscard(pool, id, dist);
			return -1;
		}
		DropLast(pool);
	}

	position = InsertPosition(pool, dist);
	item = &pool->items[position];
	memmove(item + 1, item,
			(pool->count - position) * sizeof(PipeannCandidate));
	pool->count++;
	item->dist = dist;
	item->id = id;
	item->page = PIPEANN_NO_PAGE;
	item->ref = PIPEANN_NO_REF;
	item->absent = 0;
	item->beam = 0;
	item->explored = 0;

	pool->first_open = Min(pool->first_open, position);
	pool->first_unread = Min(pool->first_unread, position);
	return position;
}

/* By insertion: they are few. Equal ones keep their order. */
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
 * One by one, each takes a binary search and moves half of the pool: with the
 * neighbours of a node together that is done once.
 */
void
PipeannPoolMerge(PipeannPool *pool, PipeannCandidate *items, int n)
{
	int			from;
	int			to;

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

	from = pool->count - 1;
	pool->count += n;
	for (to = pool->count - 1; n > 0; to--)
	{
		if (from >= 0 && pool->items[from].dist > items[n - 1].dist)
			pool->items[to] = pool->items[from--];
		else
			pool->items[to] = items[--n];
	}
	pool->first_open = Min(pool->first_open, to + 1);
	pool->first_unread = Min(pool->first_unread, to + 1);
}

int
PipeannPoolFirstOpen(PipeannPool *pool)
{
	while (pool->first_open < pool->count &&
		   pool->items[pool->first_open].explored)
		pool->first_open++;
	return pool->first_open;
}

int
PipeannPoolFirstUnread(PipeannPool *pool)
{
	while (pool->first_unread < pool->count &&
		   pool->items[pool->first_unread].ref != PIPEANN_NO_REF)
		pool->first_unread++;
	return pool->first_unread;
}

/*
 * Order the discards as a heap, nearest first.
 */
static void
SiftDown(PipeannDiscard *heap, uint64 n, uint64 at)
{
	PipeannDiscard moved = heap[at];

	for (;;)
	{
		uint64		child = 2 * at + 1;

		if (child >= n)
			break;
		if (child + 1 < n && heap[child + 1].dist < heap[child].dist)
			child++;
		if (heap[child].dist >= moved.dist)
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = moved;
}

static PipeannDiscard
TakeNearest(PipeannPool *pool)
{
	PipeannDiscard nearest = pool->discards[0];

	pool->discards[0] = pool->discards[--pool->ndiscards];
	if (pool->ndiscards > 0)
		SiftDown(pool->discards, pool->ndiscards, 0);
	return nearest;
}

void
PipeannPoolRefill(PipeannPool *pool, int length)
{
	/* what the pool still holds is explored, or competes like the discards */
	while (pool->count > 0)
		DropLast(pool);
	pool->first_open = pool->first_unread = 0;

	for (uint64 i = pool->ndiscards / 2; i-- > 0;)
		SiftDown(pool->discards, pool->ndiscards, i);
	while (pool->count < length && pool->ndiscards > 0)
	{
		PipeannDiscard next = TakeNearest(pool);

		PipeannPoolInsert(pool, next.id, next.dist);
	}
}
