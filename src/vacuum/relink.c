/*
 * relink.c
 *		After VACUUM's repair spanning-tree edges lead to every live node again.
 *
 * It is not enough that a node can be reached over any edges, since the next
 * inserts may prune them. So reach.c walks from the root over spanning-tree
 * edges only, in file order: the pass that repairs lists follows those of nodes
 * already reached, and further passes visit only pages with nodes reached
 * since. In memory this takes a few bits a node.
 *
 * The nodes that are left have lost their parent, or a node above them has.
 * Nodes without a parent get one first, mostly by an edge that is there and
 * joins the tree, and that brings the others back. The rest is linked in the way
 * of an insert that finds all lists full, which cuts nothing off.
 *
 * Nodes written meanwhile are linked by their inserts.
 */
#include "postgres.h"

#include "index/neighbors.h"
#include "vacuum/passes.h"
#include "io/io.h"
#include "distance/distance.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* Nearest nodes that are tried as parents of a node. */
#define SEARCH_EF 64

static float
NoOutOfLineDistance(uint32 id, const PipeannSlot *slot, void *arg)
{
	const PipeannLayout *l = arg;

	(void) id;
	(void) slot;
	return (float) l->dim;
}

static bool
IsReached(const PipeannReach *reach, uint32 id)
{
	return id < reach->v->ids && PipeannBitsHas(&reach->reached, id);
}

/*
 * Make an edge to a node from one of its own neighbours, if possible from one
 * that leads to it already.
 */
static bool
LinkByNeighbor(PipeannReach *reach, uint32 id, const PipeannSlot *slot)
{
	const PipeannIndexView *view = &reach->v->view;
	int			degree = PipeannSlotDegree(&view->meta.layout, slot);

	for (int i = 0; i < degree; i++)
		if (IsReached(reach, slot->neighbors[i]) &&
			PipeannJoinTree(view, slot->neighbors[i], id, slot))
			return true;
	for (int i = 0; i < degree; i++)
		if (IsReached(reach, slot->neighbors[i]) &&
			PipeannLinkEdge(view, slot->neighbors[i], id, slot))
			return true;
	return false;
}

/* Make an edge to a node from the nearest node that a search finds. */
static bool
LinkBySearch(PipeannReach *reach, uint32 id, const PipeannSlot *slot)
{
	const PipeannIndexView *view = &reach->v->view;
	PipeannLayout near = PipeannNearLayout(&view->meta.layout);
	PipeannCounters counters = {0};
	PipeannPageSource *source = PipeannSourceOpen(view->index, &near,
												  view->map, &counters);
	PipeannSearch *search;
	const PipeannResult *result;
	float	   *query = palloc(mul_size(near.dim, sizeof(float)));
	bool		linked = false;

	PipeannVectorToFloat(PipeannSlotVector(&near, slot), near.storage,
						 near.dim, query);
	if (near.metric == PIPEANN_COSINE)
		PipeannNormalize(query, near.dim, query);
	search = PipeannLinkSearch(view, &near, source, query, SEARCH_EF,
							   NoOutOfLineDistance, NULL, &near);
	PipeannSearchReleasePages(search);
	PipeannSourceClose(source);
	while (!linked && (result = PipeannSearchPop(search)) != NULL)
		if (result->id != id && IsReached(reach, result->id))
			linked = PipeannLinkEdge(view, result->id, id, slot);
	return linked;
}

static bool
LinkAnyhow(PipeannReach *reach, uint32 id, const PipeannSlot *slot)
{
	return LinkByNeighbor(reach, id, slot) ||
		LinkBySearch(reach, id, slot) ||
		PipeannLinkEntry(&reach->v->view, id, slot);
}

static bool
IsLost(const PipeannReach *reach, uint32 id)
{
	return PipeannBitsHas(&reach->present, id) &&
		!PipeannBitsHas(&reach->reached, id);
}

/*
 * Give the nodes without a parent one among their neighbours. Returns whether
 * any got one.
 */
static bool
AttachOrphans(PipeannReach *reach)
{
	bool		any = false;

	for (uint32 id = 0; id < reach->v->ids; id++)
	{
		CHECK_FOR_INTERRUPTS();
		if (IsLost(reach, id) && !PipeannBitsHas(&reach->in_tree, id))
			any |= PipeannReachAttach(reach, id, LinkByNeighbor);
	}
	return any;
}

/*
 * Link the nodes that are left. There may be very many, and each brings back a
 * few others. These are followed from there: with passes for each the time would
 * grow with the square of the index.
 */
static void
AttachRest(PipeannReach *reach)
{
	for (uint32 id = 0; id < reach->v->ids; id++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!IsLost(reach, id))
			continue;
		(void) PipeannReachAttach(reach, id, LinkAnyhow);
		PipeannReachFollow(reach);
	}
}

/* Lead spanning-tree edges from the root to every live node. */
void
PipeannVacuumRelink(PipeannReach *reach)
{
	do
		PipeannReachWalk(reach);
	while (AttachOrphans(reach));
	AttachRest(reach);
}
