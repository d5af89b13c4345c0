/*
 * baton.c
 *		Exchanging a search's list with servers that have the same index and
 *		another part of it in memory (BatANN). Only ids of candidates are sent,
 *		and an id is a mere hint that need not be true: its code says how near
 *		the node is, and no row of it is returned before its page is read here.
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

/* Turn n ids that another server has found into candidates, as far as the list has room. */
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
 * Continue the search of another server, whose list has these ids, the first
 * of them explored, as far as the policy goes here.
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
