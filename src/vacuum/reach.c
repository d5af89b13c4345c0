/*
 * reach.c
 *		Which nodes spanning-tree edges lead to from the root, while VACUUM
 *		repairs the neighbour lists.
 *
 * The walk follows spanning-tree edges only, as they are now, in file order: the
 * pass that repairs lists follows those of nodes already reached, and further
 * passes visit only pages with nodes that were reached since. It keeps four bits
 * a node, and four more in which it counts the edges that lead to the node.
 */
#include "postgres.h"

#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "vacuum/passes.h"

void
PipeannReachBegin(PipeannReach *reach, PipeannVacuum *v)
{
	reach->v = v;
	PipeannVacuumSet(v, &reach->present);
	PipeannVacuumSet(v, &reach->in_tree);
	PipeannVacuumSet(v, &reach->reached);
	PipeannVacuumSet(v, &reach->expanded);
	if (v->view.meta.root < v->ids)
		PipeannBitsAdd(&reach->reached, v->view.meta.root);
	reach->in_degrees = PipeannAllocZero(v->ids / 2 + 1);
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

/*
 * Count the edges of a node to where they lead.
 */
static void
CountEdges(PipeannReach *reach, const PipeannSlot *slot)
{
	int			degree = PipeannSlotDegree(&reach->v->view.meta.layout, slot);

	for (int i = 0; i < degree; i++)
	{
		uint32		id = slot->neighbors[i];

		if (id < reach->v->ids && PipeannReachInDegree(reach, id) < PIPEANN_MOST_COUNTED)
			reach->in_degrees[id / 2] += 1 << (id % 2 * 4);
	}
}

void
PipeannReachNode(PipeannReach *reach, uint32 id, const PipeannSlot *slot)
{
	if (PipeannSlotIsLive(slot))
	{
		PipeannBitsAdd(&reach->present, id);
		AddInTree(reach, slot, &reach->in_tree);
		CountEdges(reach, slot);
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

void
PipeannReachWalk(PipeannReach *reach)
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

/*
 * Whoever shuts inserters out shuts this out as well. A node's children are
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
