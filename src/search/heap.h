/*
 * heap.h
 *		Finding the nearest items: a heap, and selection without one; private
 *		to search/.
 *
 * A file that includes this has defined HEAP_ITEM, a type with dist and id.
 * Among items at the same distance the one with the smaller id counts as
 * nearer, so that the order does not depend on timing.
 */
static inline bool
IsNearer(const HEAP_ITEM *a, const HEAP_ITEM *b)
{
	return a->dist < b->dist || (a->dist == b->dist && a->id < b->id);
}

static inline void
SiftDown(HEAP_ITEM *heap, uint64 n, uint64 at)
{
	HEAP_ITEM	moved = heap[at];

	for (;;)
	{
		uint64		child = 2 * at + 1;

		if (child >= n)
			break;
		if (child + 1 < n && IsNearer(&heap[child + 1], &heap[child]))
			child++;
		if (!IsNearer(&heap[child], &moved))
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = moved;
}

/* Order items as a heap, nearest first; HeapTake() removes the first. */
static inline void
HeapMake(HEAP_ITEM *items, uint64 n)
{
	for (uint64 i = n / 2; i-- > 0;)
		SiftDown(items, n, i);
}

static inline HEAP_ITEM
HeapTake(HEAP_ITEM *heap, uint64 *n)
{
	HEAP_ITEM	nearest = heap[0];

	heap[0] = heap[--*n];
	if (*n > 0)
		SiftDown(heap, *n, 0);
	return nearest;
}

/*
 * Partition items: those nearer than a pivot come before those farther. If the
 * first item is the pivot and nothing is nearer, high becomes -1.
 */
static inline void
Split(HEAP_ITEM *items, int64 *low, int64 *high)
{
	HEAP_ITEM	pivot = items[(*low + *high) / 2];

	while (*low <= *high)
	{
		HEAP_ITEM	swapped;

		while (IsNearer(&items[*low], &pivot))
			(*low)++;
		while (IsNearer(&pivot, &items[*high]))
			(*high)--;
		if (*low > *high)
			break;
		swapped = items[*low];
		items[(*low)++] = items[*high];
		items[(*high)--] = swapped;
	}
}

/*
 * Move the nearest `wanted` items to the front, in any order; returns the
 * farthest of them. Distances must not be NaN.
 */
static inline HEAP_ITEM
SelectNearest(HEAP_ITEM *items, uint64 n, uint64 wanted)
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
