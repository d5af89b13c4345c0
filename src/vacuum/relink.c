/*
 * relink.c
 *		After VACUUM's repair spanning-tree edges lead to every live node again.
 *
 * That a node can be reached is not enough: the next inserts may prune what
 * leads to it. So this is a walk from the root over spanning-tree edges only, as they
 * are now, in file order: the pass that repairs lists follows those of nodes
 * already reached, further passes only visit pages with nodes reached since.
 * A few bits a node are all it needs in memory.
 *
 * What is left has lost its parent, or a node before it has. Those that have
 * none get one first, mostly by guarding an edge that is there; that brings the
 * others back. What is left then is linked as an insert that finds all lists
 * full does it, which cuts nothing off.
 *
 * Nodes written meanwhile are linked by their inserters.
 */
#include "postgres.h"

#include "neighbors/neighbors.h"
#include "vacuum/passes.h"
#include "io/io.h"
#include "distance/distance.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* Nearest nodes that are tried for one that nothing near leads to. */
#define SEARCH_EF 64

void
PipeannReachBegin(PipeannReach *reach, PipeannVacuum *v)
{
	reach->v = v;
	PipeannVacuumSet(v, &reach->present);
	PipeannVacuumSet(v, &reach->guarded);
	PipeannVacuumSet(v, &reach->reached);
	PipeannVacuumSet(v, &reach->expanded);
	if (v->view.meta.root < v->ids)
		PipeannBitsAdd(&reach->reached, v->view.meta.root);
	PipeannNearBegin(reach);
}

static void
AddInTree(const PipeannReach *reach, const PipeannSlot *slot,
		   PipeannBits *set)
{
	int			tree_edges = PipeannSlotTreeEdges(&reach->v->view.meta.layout, slot);

	for (int i = 0; i < tree_edges; i++)
		if (slot->neighbors[i] < reach->v->ids)
			PipeannBitsAdd(set, slot->neighbors[i]);
}

/*
 * Follow a node's spanning-tree edges if the node is reached.
 */
static void
Expand(PipeannReach *reach, uint32 id, const PipeannSlot *slot)
{
	if (!PipeannBitsHas(&reach->reached, id) ||
		PipeannBitsHas(&reach->expanded, id))
		return;
	PipeannBitsAdd(&reach->expanded, id);
	if (PipeannSlotIsNode(slot))
		AddInTree(reach, slot, &reach->reached);
}

void
PipeannReachNode(PipeannReach *reach, uint32 id, const PipeannSlot *slot)
{
	if (PipeannSlotIsLive(slot))
	{
		PipeannBitsAdd(&reach->present, id);
		AddInTree(reach, slot, &reach->guarded);
		PipeannNearCount(reach, slot);
	}
	Expand(reach, id, slot);
}

static bool
IsPending(const PipeannReach *reach, uint32 id)
{
	return PipeannBitsHas(&reach->reached, id) &&
		!PipeannBitsHas(&reach->expanded, id);
}

static bool
PageIsPending(const PipeannReach *reach, uint32 page)
{
	for (uint32 i = 0; i < reach->v->view.meta.layout.slots_per_page; i++)
		if (IsPending(reach, PipeannVacuumId(reach->v, page, i)))
			return true;
	return false;
}

static void
ExpandPage(PipeannReach *reach, uint32 page)
{
	const PipeannLayout *l = &reach->v->view.meta.layout;
	Buffer		buffer = PipeannVacuumPage(reach->v, page, BUFFER_LOCK_SHARE);

	for (uint32 i = 0; i < l->slots_per_page; i++)
	{
		uint32		id = PipeannVacuumId(reach->v, page, i);

		if (BufferIsValid(buffer))
			Expand(reach, id,
				   PipeannSlotAt(l, PipeannPagePayload(BufferGetPage(buffer)),
								 i));
		else
			PipeannBitsAdd(&reach->expanded, id);
	}
	if (BufferIsValid(buffer))
		UnlockReleaseBuffer(buffer);
}

/*
 * Until there is nothing more to follow.
 */
static void
Walk(PipeannReach *reach)
{
	bool		again = true;

	while (again)
	{
		again = false;
		PipeannVacuumPass(reach->v);
		for (uint32 page = 0; page < reach->v->pages; page++)
			if (PageIsPending(reach, page))
			{
				ExpandPage(reach, page);
				again = true;
			}
	}
}

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
 * Let one of a node's own neighbours lead to it, if possible one that does so.
 */
static bool
LinkByNeighbor(PipeannReach *reach, uint32 id, const PipeannSlot *slot)
{
	const PipeannIndexView *view = &reach->v->view;
	int			degree = PipeannSlotDegree(&view->meta.layout, slot);

	for (int i = 0; i < degree; i++)
		if (IsReached(reach, slot->neighbors[i]) &&
			PipeannTreeEdge(view, slot->neighbors[i], id, slot))
			return true;
	for (int i = 0; i < degree; i++)
		if (IsReached(reach, slot->neighbors[i]) &&
			PipeannLinkEdge(view, slot->neighbors[i], id, slot))
			return true;
	return false;
}

/*
 * Link a node from the nearest ones that a search finds.
 */
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
							   NoOutOfLineDistance, &near);
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

/*
 * Whoever shuts inserters out shuts this out as well. What a node tree_edges is
 * reached with it.
 */
bool
PipeannReachAttach(PipeannReach *reach, uint32 id,
				   bool (*link) (PipeannReach *reach, uint32 id,
								 const PipeannSlot *slot))
{
	PipeannIndexView *view = &reach->v->view;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pipeann relink",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	PipeannSlot *slot = PipeannSlotAlloc(&view->meta.layout);
	bool		linked = true;

	PipeannVacuumDelay();
	LockPage(view->index, PIPEANN_METAPAGE, ShareLock);
	PipeannSlotCopy(view, id, slot);
	if (PipeannSlotIsLive(slot))
	{
		linked = link(reach, id, slot);
		if (linked)
			reach->v->relinked++;
	}
	UnlockPage(view->index, PIPEANN_METAPAGE, ShareLock);
	if (linked)
	{
		PipeannBitsAdd(&reach->reached, id);
		Expand(reach, id, slot);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return linked;
}

static bool
IsLost(const PipeannReach *reach, uint32 id)
{
	return PipeannBitsHas(&reach->present, id) &&
		!PipeannBitsHas(&reach->reached, id);
}

/*
 * Give those that nobody tree_edges a parent among their neighbours. Returns
 * whether there was one for any.
 */
static bool
AttachOrphans(PipeannReach *reach)
{
	bool		any = false;

	for (uint32 id = 0; id < reach->v->ids; id++)
	{
		CHECK_FOR_INTERRUPTS();
		if (IsLost(reach, id) && !PipeannBitsHas(&reach->guarded, id))
			any |= PipeannReachAttach(reach, id, LinkByNeighbor);
	}
	return any;
}

static void
AttachRest(PipeannReach *reach)
{
	for (uint32 id = 0; id < reach->v->ids; id++)
	{
		uint64		before = reach->reached.count;

		CHECK_FOR_INTERRUPTS();
		if (!IsLost(reach, id))
			continue;
		(void) PipeannReachAttach(reach, id, LinkAnyhow);
		if (reach->reached.count > before + 1)
			Walk(reach);
	}
}

void
PipeannReachEnd(PipeannReach *reach)
{
	do
		Walk(reach);
	while (AttachOrphans(reach));
	AttachRest(reach);
	PipeannNearEnd(reach);
}
