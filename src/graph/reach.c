/*
 * reach.c
 *		Adding edges to nodes from near ones. A node that can be reached only
 *		from afar is not found, since a search explores what is near its query.
 *		So this looks at nodes with few in-edges, or with none from a node as
 *		near as the nearest one to which they lead.
 * If none of a node's nearest neighbours leads to it, one of them gets an edge to it.
 */
#include "base/base.h"

#include <math.h>

#include "base/key.h"
#include "graph/internal.h"

/* One of this many nearest nodes should lead to a node. */
#define NEAREST 10

/* A node has few in-edges if they are at most this part of the degree. */
#define FEW_PART 3

/* Nodes that one member checks at a time. */
#define RUN 512

typedef struct Reach
{
	PipeannGraph *graph;
	PipeannMeasure measure;
	uint32		few;			/* the most in-edges that are few, see FEW_PART */

	/* shared by all members */
	uint32	   *in_degree;		/* [n] */
	uint32	   *near_in;		/* [n] bits of the nearest in-edge's length */
	uint8	   *missed;			/* [n] no near node leads to it */

	/* work space */
	float	   *dist;			/* [max_degree] */
	PipeannKey *near;			/* [max_degree] */
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

/* Whether few edges, or none from a near node, lead to a node. */
static bool
MayBeMissed(const Reach *r, uint32 node)
{
	return r->in_degree[node] <= r->few ||
		r->near_in[node] > Bits(PipeannKeyDistance(r->near[0]));
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

/*
 * The place in a node's list for one more edge, or -1: the longest edge whose target has
 * more than a few in-edges may be replaced.
 */
static int
SparePlace(Reach *r, uint32 node)
{
	const uint32 *neighbors = PipeannNeighbors(r->graph, node);
	int			place = -1;

	if (r->graph->degree[node] < r->graph->max_degree)
		return r->graph->degree[node];
	MeasureList(r, node);
	for (int i = 0; i < r->graph->degree[node]; i++)
		if (r->in_degree[neighbors[i]] > r->few &&
			(place < 0 || r->dist[i] > r->dist[place]))
			place = i;
	return place;
}

static bool
AddEdge(Reach *r, uint32 from, uint32 node)
{
	int			place = SparePlace(r, from);
	uint32	   *neighbors = PipeannNeighbors(r->graph, from);

	if (place < 0)
		return false;
	if (place == r->graph->degree[from])
		r->graph->degree[from]++;
	else
		r->in_degree[neighbors[place]]--;
	neighbors[place] = node;
	r->in_degree[node]++;
	return true;
}

/* Needs PipeannReachMemory() bytes. All members call. */
void
PipeannGraphConnect(PipeannTeam *team, PipeannGraph *graph,
					const PipeannVectors *vectors)
{
	Size		degree = graph->max_degree;
	Reach		r = {.graph = graph,.few = Max(degree / FEW_PART, 1)};

	PipeannMeasureInit(&r.measure, vectors);
	r.dist = PipeannArray(float, degree);
	r.near = PipeannArray(PipeannKey, degree);
	r.in_degree = PipeannTeamArray(team, uint32, graph->n);
	r.near_in = PipeannTeamArray(team, uint32, graph->n);
	r.missed = PipeannTeamAlloc(team, graph->n);
	PipeannTeamRuns(team, from, to, graph->n, RUN)
		memset(r.near_in + from, 0xFF, (to - from) * sizeof(uint32));
	PipeannTeamEach(team, node, graph->n, RUN)
	{
		const uint32 *neighbors = PipeannNeighbors(graph, node);

		MeasureList(&r, node);
		for (int i = 0; i < graph->degree[node]; i++)
		{
			uint32	   *least;
			uint32		bits;
			uint32		now;

			__atomic_fetch_add(&r.in_degree[neighbors[i]], 1,
							   __ATOMIC_RELAXED);
			/* distances are not negative, so their bits are ordered like them */
			least = &r.near_in[neighbors[i]];
			bits = Bits(r.dist[i]);
			now = __atomic_load_n(least, __ATOMIC_RELAXED);
			while (bits < now &&
				   !__atomic_compare_exchange_n(least, &now, bits, true,
												__ATOMIC_RELAXED, __ATOMIC_RELAXED))
				;
		}
	}
	PipeannTeamEach(team, node, graph->n, RUN)
		r.missed[node] = IsMissed(&r, node);
	if (PipeannTeamLeads(team))
	{
		/* each edge may depend on those before: the leader does this alone */
		for (uint32 node = 0; node < graph->n; node++)
		{
			int			n;

			CHECK_FOR_INTERRUPTS();
			if (!r.missed[node] || !IsMissed(&r, node))
				continue;
			n = Min(SortNeighbors(&r, node), NEAREST);
			for (int i = 0; i < n; i++)
				if (AddEdge(&r, PipeannKeyId(r.near[i]), node))
					break;
		}
	}
	PipeannTeamMeet(team);
	PipeannTeamFree(team, r.in_degree);
	PipeannTeamFree(team, r.near_in);
	PipeannTeamFree(team, r.missed);
	pfree(r.dist);
	pfree(r.near);
}
