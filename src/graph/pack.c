/*
 * pack.c
 *		Choosing the nodes that share a page.
 *
 * Greedy, after PageANN: a page has a seed and the free nodes nearest to it
 * among its neighbours and their neighbours. The nearest free node left over
 * becomes the next seed, so that pages follow one another through space. If no
 * free node is left in reach, the latest node that was in reach of an earlier
 * page and is still free becomes the seed, and fills the page further if that
 * is not full.
 */
#include "base/base.h"

#include "base/id_set.h"
#include "base/key.h"
#include "graph/internal.h"

#define PROGRESS_STEP 1024

/* Nodes that a page leaves for later, and how many of them are kept in all. */
#define LATER_PER_PAGE 4
#define MAX_LATER 4096

typedef struct Pack
{
	const PipeannGraph *graph;
	PipeannMeasure measure;
	int			fill;
	uint32	   *order;			/* [n], the first nplaced are decided */
	uint32		nplaced;
	uint8	   *placed;			/* a bit for each node */
	uint8	   *seen;			/* a bit for each node within reach of the seed */

	/* free nodes within reach of the current seed */
	uint32	   *ids;			/* [degree * (degree + 1)] */
	float	   *dist;
	PipeannKey *keys;
	int			nids;

	uint32		later[MAX_LATER];	/* ring of nodes left for later */
	uint32		nlater;			/* nodes ever put into it */
	uint32		later_left;		/* nodes still in it */
	uint32		lowest;			/* all nodes before it are placed */
} Pack;

static inline void
Place(Pack *p, uint32 node)
{
	PipeannSetBit(p->placed, node);
	p->order[p->nplaced++] = node;
}

/* Add the free neighbours of a node that are not yet in ids[]. */
static inline void
ReachFrom(Pack *p, uint32 node)
{
	const uint32 *neighbors = PipeannNeighbors(p->graph, node);
	int			degree = p->graph->degree[node];

	for (int i = 0; i < degree; i++)
	{
		uint32		id = neighbors[i];

		if (PipeannHasBit(p->placed, id) || PipeannHasBit(p->seen, id))
			continue;
		PipeannSetBit(p->seen, id);
		p->ids[p->nids++] = id;
	}
}

/* Place the seed and free nodes near it, as far as the page has room. */
static void
PlaceAround(Pack *p, uint32 seed)
{
	int			room;
	int			most;
	int			nsorted = 0;
	int			taken;
	const uint32 *neighbors = PipeannNeighbors(p->graph, seed);
	int			degree = p->graph->degree[seed];

	Place(p, seed);
	room = (p->fill - (int) (p->nplaced % p->fill)) % p->fill;
	most = room + LATER_PER_PAGE;
	/* the free nodes within two edges of the seed */
	p->nids = 0;
	for (int i = 0; i < degree; i++)
		__builtin_prefetch(PipeannNeighbors(p->graph, neighbors[i]));
	ReachFrom(p, seed);
	for (int i = 0; i < degree; i++)
		ReachFrom(p, neighbors[i]);
	PipeannMeasureMany(&p->measure, seed, p->ids, p->nids, p->dist);
	/* the nearest, in order */
	for (int i = 0; i < p->nids; i++)
	{
		PipeannKey	key = PipeannKeyMake(p->dist[i], p->ids[i]);
		int			at = Min(nsorted, most - 1);

		p->seen[p->ids[i] / 8] = 0;
		if (nsorted == most && key > p->keys[at])
			continue;
		nsorted = at + 1;
		for (; at > 0 && p->keys[at - 1] > key; at--)
			p->keys[at] = p->keys[at - 1];
		p->keys[at] = key;
	}
	taken = Min(room, nsorted);
	for (int i = 0; i < taken; i++)
		Place(p, PipeannKeyId(p->keys[i]));
	/* the others are left for later, the nearest last, as the last is taken first */
	for (int i = nsorted - 1; i >= taken; i--)
	{
		p->later[p->nlater++ % MAX_LATER] = PipeannKeyId(p->keys[i]);
		p->later_left = Min(p->later_left + 1, MAX_LATER);
	}
}

static uint32
NextSeed(Pack *p)
{
	while (p->later_left > 0)
	{
		uint32		node = p->later[--p->nlater % MAX_LATER];

		p->later_left--;
		if (!PipeannHasBit(p->placed, node))
			return node;
	}
	while (PipeannHasBit(p->placed, p->lowest))
		p->lowest++;
	return p->lowest;
}

/*
 * Sets order[n] to a permutation of the nodes, of which order[p * fill] ..
 * order[p * fill + fill - 1] share page p; the last page may have fewer.
 */
void
PipeannGraphPack(const PipeannGraph *graph, const PipeannVectors *vectors,
				 int fill, uint32 *order, PipeannTeam *team)
{
	Size		degree = graph->max_degree;
	Size		most = Min(graph->n, mul_size(degree, degree + 1));
	uint32		reported = 0;
	Pack	   *p;

	if (graph->n == 0)
		return;
	p = palloc0(sizeof(Pack));
	p->graph = graph;
	PipeannMeasureInit(&p->measure, vectors);
	p->fill = fill;
	p->order = order;
	p->placed = PipeannNoBits(graph->n);
	p->seen = PipeannNoBits(graph->n);
	p->ids = PipeannArray(uint32, most);
	p->dist = PipeannArray(float, most);
	p->keys = PipeannArray(PipeannKey, most);
	PlaceAround(p, graph->medoid);
	while (p->nplaced < graph->n)
	{
		CHECK_FOR_INTERRUPTS();
		PlaceAround(p, NextSeed(p));
		if (p->nplaced - reported >= PROGRESS_STEP)
		{
			reported = p->nplaced;
			PipeannTeamReport(team, reported, graph->n);
		}
	}
	pfree(p->placed);
	pfree(p->seen);
	pfree(p->ids);
	pfree(p->dist);
	pfree(p->keys);
	pfree(p);
	PipeannTeamReport(team, graph->n, graph->n);
}
