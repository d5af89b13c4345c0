/*
 * prewarm.c
 *		pipeann_prewarm(): loads an index's codes and hottest pages into memory.
 *
 * If not all graph pages fit, those to which most edges lead go first.
 */
#include "postgres.h"

#include "access/relation.h"
#include "fmgr.h"
#include "index/index.h"
#include "io/io.h"
#include "miscadmin.h"
#include "scan/scan.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(pipeann_prewarm);

/* The part of shared_buffers that prewarming may fill. */
#define PREWARM_PART 0.75

/*
 * A rank has what is left of the largest weight above a page's number: sorted, those
 * of the most weight come first.
 */
#define NO_WEIGHT PG_UINT32_MAX
#define ONE_WEIGHT (UINT64CONST(1) << 32)

typedef struct Ranking
{
	const PipeannLayout *layout;
	PipeannParts parts;			/* of which pages of the own one are read */
	uint32		npages;
	uint64	   *ranks;			/* [npages] */
} Ranking;

/* Neighbour ids come from disk, so those without a page are ignored. */
static void
CountEdges(uint32 page, const char *nodes, void *arg)
{
	Ranking    *ranking = arg;
	const PipeannLayout *l = ranking->layout;

	for (uint32 i = 0; i < l->slots_per_page; i++)
	{
		const PipeannSlot *slot = PipeannSlotAt(l, nodes, i);
		int			degree = PipeannSlotIsNode(slot) ?
			PipeannSlotDegree(l, slot) : 0;

		for (int j = 0; j < degree; j++)
		{
			uint32		to = PipeannIdPage(l, slot->neighbors[j]);

			if (to < ranking->npages && to != page)
				ranking->ranks[to] -= ONE_WEIGHT;
		}
	}
}

static int
CompareRanks(const void *a, const void *b)
{
	uint64		x = *(const uint64 *) a;
	uint64		y = *(const uint64 *) b;

	return x < y ? -1 : x > y;
}

static bool
IsOwn(const Ranking *ranking, uint32 page)
{
	return PipeannPartHasPage(&ranking->parts, (uint32) pipeann_part - 1, page);
}

/*
 * Choose the pages to read, at most room, in the order of the file; how many.
 */
static uint32
ChoosePages(const PipeannIndexView *view, Ranking *ranking, uint32 room)
{
	uint32		own = 0;

	ranking->ranks = PipeannArray(uint64, ranking->npages);
	for (uint32 i = 0; i < ranking->npages; i++)
	{
		ranking->ranks[i] = NO_WEIGHT * ONE_WEIGHT + i;
		own += IsOwn(ranking, i);
	}
	if (ranking->npages == own && own <= room)
		return own;
	if (own > room)
	{
		PipeannCounters counters = {0};
		PipeannPageSource *source = PipeannViewSource(view, &counters);

		PipeannVisitPages(source, ranking->npages, CountEdges, ranking);
		PipeannSourceClose(source);
	}
	room = Min(room, own);
	for (uint32 i = 0; i < ranking->npages; i++)
		if (!IsOwn(ranking, i))
			ranking->ranks[i] = PG_UINT64_MAX;
	qsort(ranking->ranks, ranking->npages, sizeof(uint64), CompareRanks);
	for (uint32 i = 0; i < room; i++)
		ranking->ranks[i] %= ONE_WEIGHT;
	qsort(ranking->ranks, room, sizeof(uint64), CompareRanks);
	return room;
}

/*
 * pipeann_prewarm(regclass, max_pages): loads the codes, and graph pages into
 * shared_buffers, the hottest ones if not all fit. Returns the number of
 * blocks read.
 */
Datum
pipeann_prewarm(PG_FUNCTION_ARGS)
{
	Relation	index;
	PipeannIndexView view;
	PipeannCounters counters = {0};
	PipeannPageSource *source;
	Ranking		ranking;
	int			node_pages;
	int64		room;
	uint32		pages;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	index = PipeannOpenIndex(PG_GETARG_OID(0));
	room = (int64) (NBuffers * PREWARM_PART);
	if (!PG_ARGISNULL(1))
	{
		if (PG_GETARG_INT64(1) < 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("max_pages must not be negative")));
		room = Min(room, PG_GETARG_INT64(1));
	}
	PipeannOpenView(&view, index);
	if (view.cache != NULL)
		PipeannCacheLoadAll(index, view.cache, &view.meta);
	node_pages = view.meta.layout.node_pages;
	ranking.layout = &view.meta.layout;
	ranking.parts = PipeannOwnParts(&view.meta);
	ranking.npages = PipeannViewPages(&view);
	pages = ChoosePages(&view, &ranking,
						(uint32) Min(room / node_pages, PG_UINT32_MAX));
	source = PipeannViewSource(&view, &counters);
	for (uint32 i = 0; i < pages; i++)
	{
		CHECK_FOR_INTERRUPTS();
		PipeannSourceBringIn(source, (uint32) ranking.ranks[i]);
	}
	PipeannSourceClose(source);
	pfree(ranking.ranks);
	if (view.cache != NULL)
		PipeannCacheRelease(view.cache);
	relation_close(index, AccessShareLock);
	PG_RETURN_INT64((int64) pages * node_pages);
}
