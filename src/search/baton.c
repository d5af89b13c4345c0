/*
 * baton.c
 *		A search's list, for servers that have the same index and another part of it in
 *		memory (BatANN).
 *
 * What travels is ids of candidates, and an id is a hint that anybody may have made up:
 * its code says how near it is, and no row of it is returned before its page is read here.
 */
#include "search/state.h"

PipeannIdList
PipeannSearchList(const PipeannSearch *search)
{
	const PipeannPool *pool = &search->pool;
	int			count = Min(pool->count, pool->length);
	PipeannIdList list = {.length = pool->length,.ids = PipeannArray(uint32, Max(count, 1))};

	for (int i = 0; i < count; i++)
		if (pool->items[i].explored)
			list.ids[list.n++] = pool->items[i].id;
	list.explored = list.n;
	for (int i = 0; i < count; i++)
		if (!pool->items[i].explored)
			list.ids[list.n++] = pool->items[i].id;
	return list;
}

/* Make candidates of n ids that another server has found, no more than the list has room for. */
void
PipeannSearchTakeIds(PipeannSearch *search, const char *ids, uint32 n)
{
	int			batch = 0;

	n = Min(n, (uint32) search->pool.length);
	for (uint32 i = 0; i < n; i++)
	{
		uint32		id;

		memcpy(&id, ids + (Size) i * sizeof(uint32), sizeof(uint32));
		if (batch == search->batch.size)
		{
			PipeannBatchToPool(search, batch);
			batch = 0;
		}
		batch = PipeannBatchAdd(search, batch, &id, 1);
	}
	PipeannBatchToPool(search, batch);
}

/*
 * Go on with the search of another server that has these ids in its list, of which it has
 * explored some, as far as its policy does here.
 */
void
PipeannSearchStep(PipeannSearch *search, const char *ids, uint32 n, uint32 explored)
{
	PipeannMakeTable(search);
	search->stage = PIPEANN_STARTED;
	PipeannSearchTakeIds(search, ids, explored);
	for (int i = 0; i < search->pool.count; i++)
		PipeannPoolSetExplored(&search->pool, i);
	PipeannSearchTakeIds(search, ids + (Size) explored * sizeof(uint32), n - explored);
	search->params.policy->run(search);
}
