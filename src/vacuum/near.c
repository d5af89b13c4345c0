/*
 * near.c
 *		After VACUUM's repair a near node leads to each live one.
 *
 * That a node can be reached is not enough for a search that explores what is
 * near its query: where most nodes that led to it are dead, what is left may be
 * the edge of a parent far away, to which it was handed on when its own died.
 * So the pass that repairs lists counts, four bits a node, the edges that lead to
 * each. Nodes that have few and have just lost one are asked whether one of their
 * own nearest neighbours leads to them, one that has more: some lead to nobody but
 * each other. If none does the nearest does from now on, by an edge of the spanning tree;
 * as where there is no room nearby (relink.c), that cuts nothing off.
 */
#include "postgres.h"

#include "neighbors/neighbors.h"
#include "vacuum/passes.h"
#include "distance/distance.h"

/*
 * Of so many of a node's nearest neighbours one should lead to it. (An outlier's
 * tenth is far away: asking of ten missed more rows than asking of four.)
 */
#define NEAREST 4

/* A node has few edges to it if these are not more than this part of the degree. */
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

/* Whether a node can be counted on to be found, and to lead on. */
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

/*
 * A node's neighbours, nearest first, to out[max_degree]; returns how many.
 */
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

/* Whether one of near[n] leads to a node. */
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

/*
 * Whether the node got an edge.
 */
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
