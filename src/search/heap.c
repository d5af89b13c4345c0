/*
 * heap.c
 *		The nearest of many: a heap, and a selection without one.
 */
#include "search/pool.h"

static void
SiftDown(PipeannDiscard *heap, uint64 n, uint64 at)
{
	PipeannDiscard moved = heap[at];

	for (;;)
	{
		uint64		child = 2 * at + 1;

		if (child >= n)
			break;
		if (child + 1 < n && PipeannIsNearer(&heap[child + 1], &heap[child]))
			child++;
		if (!PipeannIsNearer(&heap[child], &moved))
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = moved;
}

/* Order items as a heap, nearest first; take the first of it. */
void
PipeannHeapMake(PipeannDiscard *items, uint64 n)
{
	for (uint64 i = n / 2; i-- > 0;)
		SiftDown(items, n, i);
}

PipeannDiscard
PipeannHeapTake(PipeannDiscard *heap, uint64 *n)
{
	PipeannDiscard nearest = heap[0];

	heap[0] = heap[--*n];
	if (*n > 0)
		SiftDown(heap, *n, 0);
	return nearest;
}

/*
 * Have what is nearer than a pivot before what is farther. If the first item is
 * the pivot and nothing is nearer, high becomes -1.
 */
static void
Split(PipeannDiscard *items, int64 *low, int64 *high)
{
	PipeannDiscard pivot = items[(*low + *high) / 2];

	while (*low <= *high)
	{
		PipeannDiscard swapped;

		while (PipeannIsNearer(&items[*low], &pivot))
			(*low)++;
		while (PipeannIsNearer(&pivot, &items[*high]))
			(*high)--;
		if (*low > *high)
			break;
		swapped = items[*low];
		items[(*low)++] = items[*high];
		items[(*high)--] = swapped;
	}
}

/*
 * Have the nearest `wanted` in front, in any order; returns the last of them.
 * Distances are numbers.
 */
PipeannDiscard
PipeannSelectNearest(PipeannDiscard *items, uint64 n, uint64 wanted)
{
	int64		at = (int64) wanted - 1;
	int64		first = 0;
	int64		last = (int64) n - 1;

	while (first < last)
	{
		int64		low = first;
		int64		high = last;

		Split(items, &low, &high);
		if (at <= high)
			last = high;
		else if (at >= low)
			first = low;
		else
			break;
	}
	return items[at];
}
