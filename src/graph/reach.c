/*
 * reach.c
 *		Making every node reachable from the medoid, and from near nodes.
 *
 * A breadth-first search from the medoid makes a spanning tree of the nodes
 * that it reaches. An edge outside the tree can be replaced without cutting
 * any node off. So a node that is not reached gets an edge from a near reached
 * node (its host) that has room, or in place of such an edge; the edge joins
 * the tree, and the search goes on from the new node. A leaf of the tree
 * always has room or an edge to spare, so there is always a host, and the
 * repair ends after one edge a node at most.
 *
 * A node that can be reached only from afar is not found, since a search
 * explores what is near its query. Such are outliers that came when there were
 * few other nodes. So the nodes are looked at that have few edges to them, or
 * none from as near as the nearest node that they lead to. If none of a node's
 * nearest leads to it, one of them gets an edge to it.
 */
#include "base/base.h"

#include <math.h>

#include "graph/build.h"

/* One of so many nearest nodes should lead to a node. */
#define NEAREST 10

/* A node has few in-edges if they are at most this part of the degree. */
#define FEW_PART 3

typedef struct Reach
{
	PipeannGraph *graph;
	uint32	   *parent;			/* [n] in the tree, or INVALID: not reached */
	uint32	   *reached;		/* [n] in the order of their discovery */
	uint32		nreached;
	uint32		nspread;		/* reached[] before it were followed */
	uint32		hosts;			/* reached[] before it have no edge to spare */
	uint32	   *in_degree;		/* [n] */
	float	   *near_in;		/* [n] distance of the nearest in-neighbour */
	float	   *near_out;		/* [n] distance of the nearest neighbour */
	PipeannWalk *walk;
} Reach;

Size
PipeannReachMemory(uint32 n)
{
	return mul_size(n, 3 * sizeof(uint32) + 2 * sizeof(float));
}

static uint32
FewEdges(const Reach *r)
{
	return r->graph->max_degree / FEW_PART;
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

/* Sets the distances between a node and its neighbours. */
static const float *
MeasureList(const Reach *r, uint32 node)
{
	PipeannMeasureMany(&r->walk->measure, node,
					   PipeannNeighbors(r->graph, node),
					   r->graph->degree[node], r->walk->fresh_dist);
	return r->walk->fresh_dist;
}

static void
SurveyEdges(Reach *r)
{
	uint32		n = r->graph->n;

	for (uint32 node = 0; node < n; node++)
		r->near_in[node] = r->near_out[node] = INFINITY;
	for (uint32 node = 0; node < n; node++)
	{
		const uint32 *neighbors = PipeannNeighbors(r->graph, node);
		const float *dist = MeasureList(r, node);

		CHECK_FOR_INTERRUPTS();
		for (int i = 0; i < r->graph->degree[node]; i++)
		{
			uint32		target = neighbors[i];

			r->in_degree[target]++;
			r->near_in[target] = Min(r->near_in[target], dist[i]);
			r->near_out[node] = Min(r->near_out[node], dist[i]);
		}
	}
}

/*
 * The place in a node's list for one more edge, or -1: the longest edge
 * outside the tree whose target keeps at least `keep` in-edges may be
 * replaced.
 */
static int
SparePlace(const Reach *r, uint32 node, uint32 keep)
{
	const uint32 *neighbors = PipeannNeighbors(r->graph, node);
	const float *dist;
	int			place = -1;

	if (r->graph->degree[node] < r->graph->max_degree)
		return r->graph->degree[node];
	dist = MeasureList(r, node);
	for (int i = 0; i < r->graph->degree[node]; i++)
		if (r->parent[neighbors[i]] != node &&
			r->in_degree[neighbors[i]] > keep &&
			(place < 0 || dist[i] > dist[place]))
			place = i;
	return place;
}

static bool
TryHost(Reach *r, uint32 host, uint32 node, uint32 keep)
{
	int			place = SparePlace(r, host, keep);
	uint32	   *neighbors = PipeannNeighbors(r->graph, host);

	if (place < 0)
		return false;
	if (place == r->graph->degree[host])
		r->graph->degree[host]++;
	else
		r->in_degree[neighbors[place]]--;
	neighbors[place] = node;
	r->in_degree[node]++;
	return true;
}

/* Find a host: one of the nearest reached nodes or, failing these, any. */
static uint32
Attach(Reach *r, uint32 node)
{
	PipeannWalk *walk = r->walk;
	int			i;

	PipeannWalkSearch(walk, r->graph, node, r->graph->medoid);
	for (i = 0; i < walk->npool; i++)
		if (TryHost(r, PipeannKeyId(walk->pool[i]), node, 0))
			return PipeannKeyId(walk->pool[i]);
	while (!TryHost(r, r->reached[r->hosts], node, 0))
		r->hosts++;
	return r->reached[r->hosts];
}

static void
AttachUnreached(Reach *r)
{
	uint32		n = r->graph->n;

	Adopt(r, r->graph->medoid, r->graph->medoid);
	Spread(r);
	for (uint32 node = 0; node < n && r->nreached < n; node++)
	{
		CHECK_FOR_INTERRUPTS();
		if (r->parent[node] != PIPEANN_INVALID_ID)
			continue;
		Adopt(r, node, Attach(r, node));
		Spread(r);
	}
}

/* Whether one of near[n] leads to a node. */
static bool
IsLedTo(const PipeannGraph *graph, const PipeannKey *near, int n, uint32 node)
{
	for (int i = 0; i < n; i++)
	{
		uint32		id = PipeannKeyId(near[i]);

		if (PipeannListHas(PipeannNeighbors(graph, id), graph->degree[id],
						   node))
			return true;
	}
	return false;
}

/* Whether few edges, or none from near, lead to a node (not the medoid). */
static bool
MayBeMissed(const Reach *r, uint32 node)
{
	return node != r->graph->medoid &&
		(r->in_degree[node] <= FewEdges(r) ||
		 r->near_in[node] > r->near_out[node]);
}

static void
LinkFromNear(Reach *r, uint32 node)
{
	PipeannWalk *walk = r->walk;
	int			n;

	PipeannWalkSearch(walk, r->graph, node, r->graph->medoid);
	n = Min(walk->npool, NEAREST);
	if (IsLedTo(r->graph, walk->pool, n, node))
		return;
	for (int i = 0; i < n; i++)
		if (TryHost(r, PipeannKeyId(walk->pool[i]), node, FewEdges(r)))
			return;
}

static void
LinkMissed(Reach *r)
{
	for (uint32 node = 0; node < r->graph->n; node++)
	{
		CHECK_FOR_INTERRUPTS();
		if (MayBeMissed(r, node))
			LinkFromNear(r, node);
	}
}

void
PipeannReachAll(PipeannGraph *graph, PipeannWalk *walk)
{
	Size		size = mul_size(graph->n, sizeof(uint32));
	Reach		r;

	r.graph = graph;
	r.parent = PipeannAlloc(size);
	memset(r.parent, 0xFF, size);
	r.reached = PipeannAlloc(size);
	r.nreached = 0;
	r.nspread = 0;
	r.hosts = 0;
	r.in_degree = PipeannAllocZero(size);
	r.near_in = PipeannAlloc(mul_size(graph->n, sizeof(float)));
	r.near_out = PipeannAlloc(mul_size(graph->n, sizeof(float)));
	r.walk = walk;
	SurveyEdges(&r);
	AttachUnreached(&r);
	LinkMissed(&r);
	pfree(r.parent);
	pfree(r.reached);
	pfree(r.in_degree);
	pfree(r.near_in);
	pfree(r.near_out);
}
