/*
 * reach.c
 *		Every node can be found: a path from the medoid to each.
 *
 * A breadth-first search from the medoid leaves a spanning tree of what it
 * reached. An edge outside the tree can be replaced without cutting anything
 * off, so a node found unreachable gets an edge from a near reached node
 * that has room, or in place of such an edge; the edge joins the tree, and the
 * search goes on from the new node. A leaf of the tree always has room or an
 * edge to spare, so a host is always found and the repair ends after one edge
 * a node at most.
 */
#include "base.h"

#include "graph/build.h"

typedef struct Reach
{
	PipeannGraph *graph;
	uint32	   *parent;			/* [n] in the tree, or INVALID: not reached */
	uint32	   *reached;		/* [n] in the order they were reached */
	uint32		nreached;
	uint32		nspread;		/* of these, whose neighbours were followed */
	uint32		hosts;			/* reached[] before it have no edge to spare */
} Reach;

Size
PipeannReachMemory(uint32 n)
{
	return mul_size(n, 2 * sizeof(uint32));
}

static void
Adopt(Reach *r, uint32 node, uint32 parent)
{
	r->parent[node] = parent;
	r->reached[r->nreached++] = node;
}

static void
Spread(Reach *r)
{
	while (r->nspread < r->nreached)
	{
		uint32		node = r->reached[r->nspread++];
		const uint32 *neighbors = PipeannNeighbors(r->graph, node);
		int			i;

		CHECK_FOR_INTERRUPTS();
		for (i = 0; i < r->graph->degree[node]; i++)
			if (r->parent[neighbors[i]] == PIPEANN_INVALID_ID)
				Adopt(r, neighbors[i], node);
	}
}

/* The place in a node's list for one more edge, or -1. */
static int
SparePlace(const Reach *r, uint32 node)
{
	const uint32 *neighbors = PipeannNeighbors(r->graph, node);
	int			i = r->graph->degree[node];

	if (i < r->graph->max_degree)
		return i;
	while (--i >= 0)
		if (r->parent[neighbors[i]] != node)
			return i;
	return -1;
}

static bool
TryHost(Reach *r, uint32 host, uint32 node)
{
	int			place = SparePlace(r, host);

	if (place < 0)
		return false;
	PipeannNeighbors(r->graph, host)[place] = node;
	if (place == r->graph->degree[host])
		r->graph->degree[host]++;
	Adopt(r, node, host);
	return true;
}

/* The nearest reached nodes first; failing these, any. */
static void
Attach(Reach *r, PipeannWalk *walk, uint32 node)
{
	int			i;

	PipeannWalkSearch(walk, r->graph, node, r->graph->medoid);
	for (i = 0; i < walk->npool; i++)
		if (TryHost(r, PipeannKeyId(walk->pool[i]), node))
			return;
	while (!TryHost(r, r->reached[r->hosts], node))
		r->hosts++;
}

uint32
PipeannReachAll(PipeannGraph *graph, PipeannWalk *walk)
{
	Size		size = mul_size(graph->n, sizeof(uint32));
	uint32		added = 0;
	uint32		node;
	Reach		r;

	r.graph = graph;
	r.parent = PipeannAlloc(size);
	memset(r.parent, 0xFF, size);
	r.reached = PipeannAlloc(size);
	r.nreached = 0;
	r.nspread = 0;
	r.hosts = 0;
	Adopt(&r, graph->medoid, graph->medoid);
	Spread(&r);
	for (node = 0; node < graph->n && r.nreached < graph->n; node++)
	{
		CHECK_FOR_INTERRUPTS();
		if (r.parent[node] != PIPEANN_INVALID_ID)
			continue;
		Attach(&r, walk, node);
		added++;
		Spread(&r);
	}
	pfree(r.parent);
	pfree(r.reached);
	return added;
}
