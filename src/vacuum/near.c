/*
 * near.c
 *		After VACUUM's repair an edge from a near node leads to each live node.
 *
 * For a search, which explores what is near its query, it is not enough that a
 * node can be reached: where most nodes that led to it have died, only the
 * edge of a parent far away may be left, which took the node over from its own
 * parent. So the pass that repairs lists counts the edges that lead to each
 * node, in four bits. A node that has few, and has just lost one, needs an
 * edge from one of its nearest neighbours that has more; the others may form a
 * group that leads only to itself. If there is none, the nearest such
 * neighbour gets a spanning-tree edge to the node, made as in relink.c, so
 * that nothing is cut off.
 */
#include "postgres.h"

#include "index/neighbors.h"
#include "vacuum/passes.h"
#include "distance/distance.h"

/*
 * One of so many nearest neighbours should lead to a node. Asking more of them
 * misses rows: of an outlier's ten nearest some are far away.
 */
#define NEAREST 4

/* A node has few edges to it if they are at most this part of the degree. */
#define FEW_PART 3

typedef struct Neighbor
{
	float		dist;
	uint32		id;
} Neighbor;

static bool
HasFew(const PipeannReach *reach, uint32 id)
{
	int			few = reach->v->view.meta.layout.max_degree / FEW_PART;

	return PipeannReachInDegree(reach, id) <= Min(few, PIPEANN_MOST_COUNTED - 1);
}

/* Whether a node is surely found by searches, and so leads on to others. */
static bool
LeadsOn(const PipeannReach *reach, uint32 id)
{
	return id < reach->v->ids && PipeannBitsHas(&reach->v->live, id) &&
		!HasFew(reach, id);
}

static int
CompareNeighbors(const void *a, const void *b)
{
	float		x = ((const Neighbor *) a)->dist;
	float		y = ((const Neighbor *) b)->dist;

	return x < y ? -1 : x > y;
}

/* Sort a node's neighbours, nearest first, to out[max_degree]; how many. */
static int
SortNeighbors(const PipeannIndexView *view, uint32 id, const PipeannSlot *slot,
			  Neighbor *out)
{
	const PipeannLayout *l = &view->meta.layout;
	int			dim = PipeannEmbeddedDim(l->metric, l->dim);
	float	   *x = palloc(mul_size(l->dim, sizeof(float)));
	float	   *self = palloc(mul_size(dim, sizeof(float)));
	float	   *other = palloc(mul_size(dim, sizeof(float)));
	int			n = 0;

	PipeannEmbedSlot(view, id, slot, x, self);
	for (int i = 0; i < PipeannSlotDegree(l, slot); i++)
	{
		if (!PipeannEmbedNode(view, slot->neighbors[i], x, other))
			continue;
		out[n].id = slot->neighbors[i];
		out[n++].dist = PipeannKernel->l2[PIPEANN_FLOAT4] (self, other, dim);
	}
	qsort(out, n, sizeof(Neighbor), CompareNeighbors);
	return n;
}

/* Whether one of near[n], which is found itself, leads to a node. */
static bool
IsLedTo(const PipeannReach *reach, uint32 id, const Neighbor *near, int n)
{
	const PipeannIndexView *view = &reach->v->view;
	const PipeannLayout *l = &view->meta.layout;
	PipeannSlot *slot = PipeannSlotAlloc(l);
	bool		found = false;

	for (int i = 0; i < n && !found; i++)
	{
		if (!LeadsOn(reach, near[i].id))
			continue;
		PipeannSlotCopy(view, near[i].id, slot);
		found = PipeannSlotIsNode(slot) &&
			PipeannListHas(slot->neighbors, PipeannSlotDegree(l, slot), id);
	}
	pfree(slot);
	return found;
}

/* Give a node an edge from a near one, if it has none. True if it got one. */
static bool
LinkFromNear(PipeannReach *reach, uint32 id, const PipeannSlot *slot)
{
	const PipeannIndexView *view = &reach->v->view;
	Neighbor   *near = palloc(view->meta.layout.max_degree * sizeof(Neighbor));
	int			n = SortNeighbors(view, id, slot, near);

	if (IsLedTo(reach, id, near, Min(n, NEAREST)))
		return false;
	for (int i = 0; i < n; i++)
		if (LeadsOn(reach, near[i].id) &&
			PipeannLinkEdge(view, near[i].id, id, slot))
			return true;
	return false;
}

static bool
MayBeMissed(const PipeannReach *reach, uint32 id)
{
	return PipeannBitsHas(&reach->v->orphaned, id) &&
		PipeannBitsHas(&reach->present, id) &&
		id != reach->v->view.meta.root && HasFew(reach, id);
}

/* Give nodes that lost an edge one from a near node. */
void
PipeannVacuumLinkNear(PipeannReach *reach)
{
	for (uint32 id = 0; id < reach->v->ids; id++)
	{
		CHECK_FOR_INTERRUPTS();
		if (MayBeMissed(reach, id))
			(void) PipeannReachAttach(reach, id, LinkFromNear);
	}
}
