/*
 * reach.c
 *		Making every node reachable from the medoid, and from near nodes; the
 *		spanning tree.
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
 * explores what is near its query. So the nodes are looked at that have few
 * edges to them, or none from as near as the nearest node that they lead to.
 * If none of a node's nearest leads to it, one of them gets an edge to it.
 *
 * Near nodes are those that a node leads to, and those that these lead to.
 */
#include "base/base.h"

#include <math.h>

#include "base/key.h"
#include "graph/measure.h"

/* One of so many nearest nodes should lead to a node. */
#define NEAREST 10

/* A node has few in-edges if they are at most this part of the degree. */
#define FEW_PART 3

/* Nodes looked at at once by one member. */
#define RUN 512

typedef struct Reach
{
	PipeannGraph *graph;
	PipeannMeasure measure;
	uint32		few;			/* in-edges, see FEW_PART */

	/* shared by all members */
	uint32	   *in_degree;		/* [n] */
	uint32	   *near_in;		/* [n] bits of the nearest in-edge's length */
	uint8	   *missed;			/* [n] no near node leads to it */

	/* the leader's */
	uint32	   *parent;			/* [n] in the tree, or INVALID: not reached */
	uint32	   *reached;		/* [n] in the order of their discovery */
	uint32		nreached;
	uint32		nspread;		/* reached[] before it were followed */
	uint32		hosts;			/* reached[] before it have no edge to spare */

	/* work space */
	float	   *dist;			/* [max_degree] */
	PipeannKey *near;			/* [max_degree * (max_degree + 1)] */
} Reach;

/* Sets dist[] to the distances between a node and its neighbours. */
static void
MeasureList(Reach *r, uint32 node)
{
	PipeannMeasureMany(&r->measure, node, PipeannNeighbors(r->graph, node),
					   r->graph->degree[node], r->dist);
}

/* ---------- edges to each node ---------- */

static inline uint32
Bits(float distance)
{
	uint32		bits;

	memcpy(&bits, &distance, sizeof(bits));
	return bits;
}

/* Distances are not negative, so their bits are ordered like them. */
static inline void
LowerTo(uint32 *least, uint32 bits)
{
	uint32		now = __atomic_load_n(least, __ATOMIC_RELAXED);

	while (bits < now &&
		   !__atomic_compare_exchange_n(least, &now, bits, true,
										__ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

/* Sets in_degree[] and near_in[]. */
static void
Survey(PipeannTeam *team, Reach *r)
{
	PipeannTeamRuns(team, from, to, r->graph->n, RUN)
		memset(r->near_in + from, 0xFF, (to - from) * sizeof(uint32));
	PipeannTeamEach(team, node, r->graph->n, RUN)
	{
		const uint32 *neighbors = PipeannNeighbors(r->graph, node);

		MeasureList(r, node);
		for (int i = 0; i < r->graph->degree[node]; i++)
		{
			__atomic_fetch_add(&r->in_degree[neighbors[i]], 1,
							   __ATOMIC_RELAXED);
			LowerTo(&r->near_in[neighbors[i]], Bits(r->dist[i]));
		}
	}
}

/* ---------- near nodes ---------- */

/* Sets near[] to a node's neighbours, the nearest first; returns how many. */
static int
SortNeighbors(Reach *r, uint32 node)
{
	const uint32 *neighbors = PipeannNeighbors(r->graph, node);
	int			degree = r->graph->degree[node];

	MeasureList(r, node);
	for (int i = 0; i < degree; i++)
		r->near[i] = PipeannKeyMake(r->dist[i], neighbors[i]);
	PipeannKeySort(r->near, degree);
	return degree;
}

/* The same for the neighbours of its neighbours. One may come several times. */
static int
SortBeyond(Reach *r, uint32 node)
{
	const uint32 *neighbors = PipeannNeighbors(r->graph, node);
	int			n = 0;

	for (int i = 0; i < r->graph->degree[node]; i++)
	{
		const uint32 *beyond = PipeannNeighbors(r->graph, neighbors[i]);
		int			degree = r->graph->degree[neighbors[i]];

		PipeannMeasureMany(&r->measure, node, beyond, degree, r->dist);
		for (int k = 0; k < degree; k++)
			if (beyond[k] != node)
				r->near[n++] = PipeannKeyMake(r->dist[k], beyond[k]);
	}
	PipeannKeySort(r->near, n);
	return n;
}

/* Whether few edges, or none from near, lead to a node (not the medoid). */
static bool
MayBeMissed(const Reach *r, uint32 node)
{
	return node != r->graph->medoid &&
		(r->in_degree[node] <= r->few ||
		 r->near_in[node] > Bits(PipeannKeyDistance(r->near[0])));
}

static bool
IsMissed(Reach *r, uint32 node)
{
	int			n = Min(SortNeighbors(r, node), NEAREST);

	if (n == 0 || !MayBeMissed(r, node))
		return false;
	for (int i = 0; i < n; i++)
	{
		uint32		near = PipeannKeyId(r->near[i]);

		if (PipeannListHas(PipeannNeighbors(r->graph, near),
						   r->graph->degree[near], node))
			return false;
	}
	return true;
}

/* ---------- the spanning tree ---------- */

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

		CHECK_FOR_INTERRUPTS();
		for (int i = 0; i < r->graph->degree[node]; i++)
			if (r->parent[neighbors[i]] == PIPEANN_INVALID_ID)
				Adopt(r, neighbors[i], node);
	}
}

/*
 * The place in a node's list for one more edge, or -1: the longest edge
 * outside the tree whose target keeps at least `keep` in-edges may be
 * replaced.
 */
static int
SparePlace(Reach *r, uint32 node, uint32 keep)
{
	const uint32 *neighbors = PipeannNeighbors(r->graph, node);
	int			place = -1;

	if (r->graph->degree[node] < r->graph->max_degree)
		return r->graph->degree[node];
	MeasureList(r, node);
	for (int i = 0; i < r->graph->degree[node]; i++)
		if (r->parent[neighbors[i]] != node &&
			r->in_degree[neighbors[i]] > keep &&
			(place < 0 || r->dist[i] > r->dist[place]))
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

/* The first of near[n] that is reached and can be a node's host, or INVALID. */
static uint32
NearHost(Reach *r, uint32 node, int n)
{
	for (int i = 0; i < n; i++)
	{
		uint32		host = PipeannKeyId(r->near[i]);

		if (r->parent[host] != PIPEANN_INVALID_ID &&
			TryHost(r, host, node, 0))
			return host;
	}
	return PIPEANN_INVALID_ID;
}

/* Find a host: one of the near reached nodes or, failing these, any. */
static uint32
Attach(Reach *r, uint32 node)
{
	uint32		host = NearHost(r, node, SortNeighbors(r, node));

	if (host == PIPEANN_INVALID_ID)
		host = NearHost(r, node, SortBeyond(r, node));
	if (host != PIPEANN_INVALID_ID)
		return host;
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

static void
LinkMissed(Reach *r)
{
	for (uint32 node = 0; node < r->graph->n; node++)
	{
		int			n;

		CHECK_FOR_INTERRUPTS();
		if (!r->missed[node] || !IsMissed(r, node))
			continue;
		n = Min(SortNeighbors(r, node), NEAREST);
		for (int i = 0; i < n; i++)
			if (TryHost(r, PipeannKeyId(r->near[i]), node, r->few))
				break;
	}
}

/* What one edge changes another may depend on: the leader does it alone. */
static void
AddEdges(PipeannTeam *team, Reach *r)
{
	Size		size = mul_size(r->graph->n, sizeof(uint32));

	r->parent = PipeannTeamAllocWork(team, size);
	r->reached = PipeannTeamAllocWork(team, size);
	if (PipeannTeamLeads(team))
	{
		memset(r->parent, 0xFF, size);
		AttachUnreached(r);
		LinkMissed(r);
	}
	PipeannTeamMeet(team);
	PipeannTeamFree(team, r->parent);
	PipeannTeamFree(team, r->reached);
}

/* Needs PipeannReachMemory() bytes. All members call. */
void
PipeannGraphConnect(PipeannTeam *team, PipeannGraph *graph,
					const PipeannVectors *vectors)
{
	Size		degree = graph->max_degree;
	Reach		r = {.graph = graph,.few = degree / FEW_PART};

	PipeannMeasureInit(&r.measure, vectors);
	r.dist = PipeannArray(float, degree);
	r.near = PipeannArray(PipeannKey, mul_size(degree, degree));
	r.in_degree = PipeannTeamArray(team, uint32, graph->n);
	r.near_in = PipeannTeamArray(team, uint32, graph->n);
	r.missed = PipeannTeamAlloc(team, graph->n);
	Survey(team, &r);
	PipeannTeamEach(team, node, graph->n, RUN)
		r.missed[node] = IsMissed(&r, node);
	AddEdges(team, &r);
	PipeannTeamFree(team, r.in_degree);
	PipeannTeamFree(team, r.near_in);
	PipeannTeamFree(team, r.missed);
	pfree(r.dist);
	pfree(r.near);
}

/* ---------- the edges that must stay ---------- */

/*
 * A tree that leads from the medoid to every node.
 *
 * Edges change when rows come and go. As long as the tree's edges stay,
 * pruning the others cuts no node off.
 */
typedef struct Tree
{
	PipeannGraph *graph;
	uint8	   *tree_edges;		/* [n] */
	bool	   *reached;		/* [n] */
	uint32	   *order;			/* [n] in which nodes were reached */
	uint32		count;
} Tree;

/*
 * Move neighbours that are not reached yet, `most` children in all, to the
 * front of a node's list.
 */
static void
MoveChildrenToFront(Tree *t, uint32 node, int most)
{
	uint32	   *list = PipeannNeighbors(t->graph, node);

	for (int i = t->tree_edges[node]; i < t->graph->degree[node] &&
		 t->tree_edges[node] < most; i++)
	{
		uint32		neighbor = list[i];

		if (t->reached[neighbor])
			continue;
		list[i] = list[t->tree_edges[node]];
		list[t->tree_edges[node]++] = neighbor;
		t->reached[neighbor] = true;
		t->order[t->count++] = neighbor;
	}
}

/*
 * Breadth first, so that the tree is shallow. A second round allows lists to
 * have more than `most` spanning-tree edges, if nodes are left.
 */
static void
Span(Tree *t, int most)
{
	t->reached[t->graph->medoid] = true;
	t->order[t->count++] = t->graph->medoid;
	for (uint32 i = 0; i < t->count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		MoveChildrenToFront(t, t->order[i], most);
	}
	for (uint32 i = 0; i < t->count && t->count < t->graph->n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		MoveChildrenToFront(t, t->order[i], t->graph->max_degree);
	}
}

/*
 * Mark a spanning tree of edges from the medoid to every node: moves the
 * tree's edges to the front of each list and sets tree_edges[n] to their
 * numbers, at most `most` unless it takes more to reach every node. All members
 * call, with tree_edges shared.
 */
void
PipeannGraphSpan(PipeannTeam *team, PipeannGraph *graph, int most,
				 uint8 *tree_edges)
{
	Tree		t = {.graph = graph,.tree_edges = tree_edges};

	t.reached = PipeannTeamAllocWork(team, mul_size(graph->n, sizeof(bool)));
	t.order = PipeannTeamArray(team, uint32, graph->n);
	if (PipeannTeamLeads(team) && graph->n > 0)
	{
		memset(tree_edges, 0, graph->n);
		Span(&t, most);
	}
	PipeannTeamMeet(team);
	PipeannTeamFree(team, t.reached);
	PipeannTeamFree(team, t.order);
}
