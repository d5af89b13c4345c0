/*
 * heap.c
 *		The nearest of many: a heap, and a selection without one.
 */
#include "pool/pool.h"

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

/* Have what is nearer than a pivot before what is farther. */
static void
Split(PipeannDiscard *items, uint64 *low, uint64 *high)
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

PipeannDiscard
PipeannSelectNearest(PipeannDiscard *items, uint64 n, uint64 wanted)
{
	uint64		first = 0;
	uint64		last = n - 1;

	while (first < last)
	{
		uint64		low = first;
		uint64		high = last;

		Split(items, &low, &high);
		if (wanted - 1 <= high)
			last = high;
		else if (wanted - 1 >= low)
			first = low;
		else
			break;
	}
	return items[wanted - 1];
}
