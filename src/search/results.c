/*
 * results.c
 *		Nodes found, nearest first.
 *
 * A run adds hundreds of results of which the executor takes ten, so they are
 * appended in any order and made a heap only when the first is requested.
 */
#include "search/state.h"

#include "base/pause.h"

#define HEAP_ITEM PipeannResult
#include "search/heap.h"

#define FIRST_RESULTS 512

/* Start without results, reusing memory of former ones; all zeroes is valid, too. */
void
PipeannResultsReset(PipeannResults *results)
{
	PIPEANN_RESERVE(results->items, results->size, FIRST_RESULTS);
	if (results->rows == NULL)
	{
		results->bytes_size = FIRST_RESULTS * sizeof(ItemPointerData);
		results->rows = PipeannAlloc(results->bytes_size);
	}
	results->count = 0;
	results->heaped = false;
	results->bytes = 0;
}

/* Add a result with its rows, all of which have an even number of bytes. */
void
PipeannResultsAdd(PipeannResults *results, const PipeannResult *result,
				  const PipeannRowList *rows)
{
	PipeannResult *added;

	if (results->count == results->size)
		PIPEANN_RESERVE(results->items, results->size, results->size * 2);
	while (results->bytes + rows->bytes > results->bytes_size)
	{
		results->rows = PipeannRealloc(results->rows,
									   mul_size(results->bytes_size, 2));
		results->bytes_size *= 2;
	}
	memcpy((char *) results->rows + results->bytes, rows->rows, rows->bytes);
	added = &results->items[results->count++];
	*added = *result;
	added->rows = (uint32) (results->bytes / 2);
	results->bytes += rows->bytes;
	added->nrows = (uint16) rows->n;
	added->bytes = (uint16) rows->bytes;
	if (results->heaped)
	{
		PipeannResult moved = *added;
		uint64		at = results->count - 1;

		for (; at > 0 && IsNearer(&moved, &results->items[(at - 1) / 2]); at = (at - 1) / 2)
			results->items[at] = results->items[(at - 1) / 2];
		results->items[at] = moved;
	}
}

/* The rows in a result's slot; valid until the next run. */
PipeannRowList
PipeannSearchRows(const PipeannSearch *search, const PipeannResult *result)
{
	PipeannRowList rows = {
		.rows = (PipeannRow *) ((char *) search->results.rows +
								(Size) result->rows * 2),
		.n = result->nrows,.bytes = result->bytes
	};

	return rows;
}

/* The nearest result not yet taken, or NULL. */
const PipeannResult *
PipeannSearchPeek(PipeannSearch *search)
{
	PipeannResults *results = &search->results;

	if (results->count == 0)
		return NULL;
	if (!results->heaped)
	{
		HeapMake(results->items, results->count);
		results->heaped = true;
	}
	return &results->items[0];
}

/* Take the nearest result. */
const PipeannResult *
PipeannSearchPop(PipeannSearch *search)
{
	PipeannResults *results = &search->results;

	if (PipeannSearchPeek(search) == NULL)
		return NULL;
	if (PIPEANN_PLANTED("result-order") && results->count > 1)
	{
		PipeannResult first = results->items[0];

		results->items[0] = results->items[1];
		results->items[1] = first;
	}
	results->taken = HeapTake(results->items, &results->count);
	return &results->taken;
}

/* How many results not yet taken may be within this distance. */
int
PipeannSearchWithin(const PipeannSearch *search, float dist)
{
	const PipeannResults *results = &search->results;
	int			n = 0;

	for (uint64 i = 0; i < results->count; i++)
		n += results->items[i].dist <= dist;
	return n;
}

/*
 * The first n results not yet taken in order, or as many as there are; they stay.
 * Valid until the next run or the next one taken.
 *
 * The next result in order is at the top of the heap, or a child of one found
 * before. So the children of those found are kept in order, as far as they may
 * still be wanted.
 */
int
PipeannSearchNext(PipeannSearch *search, const PipeannResult **next, int n)
{
	const PipeannResults *results = &search->results;
	int			found = 0;
	int			known = 0;

	if (n > 0 && PipeannSearchPeek(search) != NULL)
		next[known++] = &results->items[0];
	for (; found < known; found++)
	{
		uint64		child = 2 * (uint64) (next[found] - results->items) + 1;

		for (uint64 i = child; i < Min(child + 2, results->count); i++)
		{
			const PipeannResult *item = &results->items[i];
			int			at = known;

			if (known < n)
				known++;
			else if (!IsNearer(item, next[--at]))
				continue;
			for (; at > found + 1 && IsNearer(item, next[at - 1]); at--)
				next[at] = next[at - 1];
			next[at] = item;
		}
	}
	return found;
}
