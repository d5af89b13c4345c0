/*
 * pool.c
 *		What if exact distances, where they are known, ordered the pool?
 */
#include "codes.h"

#define ENTRIES 10				/* nearest of the entry graph, by code */

typedef struct Item
{
	float		dist;
	uint32		id;
	bool		explored;
} Item;

typedef struct Pooled
{
	const Index *index;
	const float *query;
	float		square;			/* of the query's length */
	int			ef;
	PoolRule	rule;
	Item	   *pool;
	int			count;
	bool	   *visited;		/* [ids] */
	bool	   *read;			/* [pages] */
	Item	   *results;
	int			nresults;
	double		error;			/* sum of code - exact over nodes seen */
	uint32		seen;
	Found	   *found;
} Pooled;

static float
ExactOf(const Pooled *e, uint32 id)
{
	const PipeannLayout *l = &e->index->layout;
	const PipeannSlot *slot = IndexSlot(e->index, id);

	return PipeannExactDistance(l, e->query, PipeannSlotVector(l, slot),
								l->storage, slot->aux);
}

/* On the scale of exact distances. */
static float
CodeOf(const Pooled *e, uint32 id)
{
	float		d = CodesDistance(id);

	return e->index->layout.metric == PIPEANN_L2 ? d + e->square : d / 2;
}

static float
Correction(const Pooled *e)
{
	return e->rule == POOL_CORRECTED && e->seen > 0 ? (float) (e->error / e->seen) : 0;
}

static void
Push(Pooled *e, uint32 id, float dist)
{
	int			at = e->count;

	if (at == e->ef)
	{
		if (dist >= e->pool[at - 1].dist)
			return;
		at--;
	}
	else
		e->count++;
	for (; at > 0 && e->pool[at - 1].dist > dist; at--)
		e->pool[at] = e->pool[at - 1];
	e->pool[at].dist = dist;
	e->pool[at].id = id;
	e->pool[at].explored = false;
}

static void
Consider(Pooled *e, uint32 id)
{
	if (id >= e->index->vectors.n || e->visited[id])
		return;
	e->visited[id] = true;
	e->found->code_distances++;
	if (e->rule != POOL_CODE && e->read[PipeannIdPage(&e->index->layout, id)])
		Push(e, id, ExactOf(e, id));
	else
		Push(e, id, CodeOf(e, id) - Correction(e));
}

static int
CompareItems(const void *a, const void *b)
{
	float		x = ((const Item *) a)->dist;
	float		y = ((const Item *) b)->dist;

	return x < y ? -1 : x > y;
}

static void
ReadPage(Pooled *e, uint32 page)
{
	const PipeannLayout *l = &e->index->layout;

	e->read[page] = true;
	e->found->reads++;
	for (uint32 i = 0; i < l->slots_per_page; i++)
	{
		uint32		id = page * l->slots_per_page + i;

		if (id >= e->index->vectors.n)
			break;
		e->results[e->nresults].dist = ExactOf(e, id);
		e->results[e->nresults++].id = id;
		if (e->visited[id])
		{
			e->error += CodeOf(e, id) - ExactOf(e, id);
			e->seen++;
		}
	}
	if (e->rule == POOL_CODE)
		return;
	for (int i = 0; i < e->count; i++)
		if (PipeannIdPage(l, e->pool[i].id) == page)
			e->pool[i].dist = ExactOf(e, e->pool[i].id);
	/* a sort by insertion: almost in order, and stable */
	for (int i = 1; i < e->count; i++)
	{
		Item		moved = e->pool[i];
		int			at = i;

		for (; at > 0 && e->pool[at - 1].dist > moved.dist; at--)
			e->pool[at] = e->pool[at - 1];
		e->pool[at] = moved;
	}
}

/* Best first, a read at a time, from the entries nearest by code. */
void
CodesSearchPool(const Index *index, const float *query, int ef,
				PoolRule rule, Found *found)
{
	const PipeannLayout *l = &index->layout;
	Pooled		e;
	uint32		n = index->codes.entry_count;
	Item	   *entries = palloc(n * sizeof(Item));
	int			at;

	memset(found, 0, sizeof(*found));
	memset(&e, 0, sizeof(e));
	e.index = index;
	e.query = query;
	e.square = PipeannKernel->dot[PIPEANN_FLOAT4] (query, query, l->dim);
	e.ef = ef;
	e.rule = rule;
	e.found = found;
	e.pool = palloc((ef + 1) * sizeof(Item));
	e.visited = palloc0(index->ids);
	e.read = palloc0(index->pages);
	e.results = palloc((Size) index->ids * sizeof(Item));
	for (uint32 i = 0; i < n; i++)
	{
		entries[i].id = index->codes.entry_ids[i];
		entries[i].dist = CodesDistance(entries[i].id);
	}
	qsort(entries, n, sizeof(Item), CompareItems);
	for (uint32 i = 0; i < Min(n, ENTRIES); i++)
		for (uint32 j = 0; j < l->fill; j++)
			Consider(&e, PipeannIdPage(l, entries[i].id) * l->slots_per_page +
					 j);

	for (;;)
	{
		const PipeannSlot *slot;
		uint32		id;

		for (at = 0; at < e.count && e.pool[at].explored; at++)
			;
		if (at == e.count)
			break;
		id = e.pool[at].id;
		if (!e.read[PipeannIdPage(l, id)])
		{
			ReadPage(&e, PipeannIdPage(l, id));
			continue;
		}
		e.pool[at].explored = true;
		found->explored++;
		slot = IndexSlot(index, id);
		for (int i = 0; i < slot->degree; i++)
			Consider(&e, slot->neighbors[i]);
	}
	qsort(e.results, e.nresults, sizeof(Item), CompareItems);
	for (int i = 0; i < CODES_K; i++)
		found->nodes[i] = i < e.nresults ? index->order[e.results[i].id] :
			PIPEANN_INVALID_ID;
	free(e.pool);
	free(e.visited);
	free(e.read);
	free(e.results);
	free(entries);
}
