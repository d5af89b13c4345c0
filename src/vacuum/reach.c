/*
 * reach.c
 *		The nodes to which spanning-tree edges lead from the root, while VACUUM
 *		repairs neighbour lists.
 *
 * The walk follows the present spanning-tree edges in file order: the pass
 * that repairs lists follows those of nodes already reached, and further
 * passes visit only pages with nodes that were reached since. It keeps four
 * bits a node, and four more to count the edges that lead to the node.
 */
#include "postgres.h"

#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "vacuum/passes.h"

/* Nodes reached since the last pass that are remembered one by one. */
#define MOST_PENDING 4096

/*
 * So many pages are looked at one by one, in any order. Then a pass over all takes
 * less: it looks at a few bits of each page, and at the pages that matter in order.
 */
#define FEWEST_FOLLOWED 64
#define PAGES_PER_FOLLOWED 256

/* Begin with the root alone, and sets for v->ids ids. */
void
PipeannReachBegin(PipeannReach *reach, PipeannVacuum *v)
{
	reach->v = v;
	PipeannVacuumInitSet(v, &reach->present);
	PipeannVacuumInitSet(v, &reach->in_tree);
	PipeannVacuumInitSet(v, &reach->reached);
	PipeannVacuumInitSet(v, &reach->expanded);
	if (v->view.meta.root < v->ids)
		PipeannBitsAdd(&reach->reached, v->view.meta.root);
	reach->in_degrees = PipeannAllocZero(v->ids / 2 + 1);
	reach->pending = palloc(MOST_PENDING * sizeof(uint32));
	reach->npending = 0;
	reach->more_pending = false;
}

static void
Reach(PipeannReach *reach, uint32 id)
{
	if (PipeannBitsHas(&reach->reached, id))
		return;
	PipeannBitsAdd(&reach->reached, id);
	if (reach->npending < MOST_PENDING)
		reach->pending[reach->npending++] = id;
	else
		reach->more_pending = true;
}

static void
ReachChildren(PipeannReach *reach, const PipeannSlot *slot)
{
	int			tree_edges = PipeannSlotTreeEdges(&reach->v->view.meta.layout,
												  slot);

	for (int i = 0; i < tree_edges; i++)
		if (slot->neighbors[i] < reach->v->ids)
			Reach(reach, slot->neighbors[i]);
}

static void
AddInTree(PipeannReach *reach, const PipeannSlot *slot)
{
	int			tree_edges = PipeannSlotTreeEdges(&reach->v->view.meta.layout, slot);

	for (int i = 0; i < tree_edges; i++)
		if (slot->neighbors[i] < reach->v->ids)
			PipeannBitsAdd(&reach->in_tree, slot->neighbors[i]);
}

/* Follow a node's spanning-tree edges if it is reached. */
static void
Expand(PipeannReach *reach, uint32 id, const PipeannSlot *slot)
{
	if (!PipeannBitsHas(&reach->reached, id) ||
		PipeannBitsHas(&reach->expanded, id))
		return;
	PipeannBitsAdd(&reach->expanded, id);
	if (PipeannSlotIsNode(slot))
		ReachChildren(reach, slot);
}

/* Add a node's edges to the in-degrees. */
static void
CountEdges(PipeannReach *reach, const PipeannSlot *slot)
{
	int			degree = PipeannSlotDegree(&reach->v->view.meta.layout, slot);

	for (int i = 0; i < degree; i++)
	{
		uint32		id = slot->neighbors[i];

		if (id < reach->v->ids &&
			PipeannReachInDegree(reach, id) < PIPEANN_MOST_COUNTED)
			reach->in_degrees[id / 2] += 1 << (id % 2 * 4);
	}
}

/* Take in a node's present list: count its edges, follow it if reached. */
void
PipeannReachNode(PipeannReach *reach, uint32 id, const PipeannSlot *slot)
{
	if (PipeannSlotIsLive(slot))
	{
		PipeannBitsAdd(&reach->present, id);
		AddInTree(reach, slot);
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

/* Pass over the pages until no edge is left to follow. */
void
PipeannReachWalk(PipeannReach *reach)
{
	bool		again = true;

	while (again)
	{
		again = false;
		PipeannVacuumBeginPass(reach->v);
		for (uint32 page = 0; page < reach->v->pages; page++)
			if (PageIsPending(reach, page))
			{
				ExpandPage(reach, page);
				again = true;
			}
	}
	reach->npending = 0;
	reach->more_pending = false;
}

/*
 * Follow the edges that are left when few nodes were reached since such passes: it
 * reads only the pages of these, unless there are many.
 */
void
PipeannReachFollow(PipeannReach *reach)
{
	PipeannVacuum *v = reach->v;
	uint32		left = FEWEST_FOLLOWED + v->pages / PAGES_PER_FOLLOWED;

	v->prefetched = v->pages;	/* those that come next are elsewhere */
	while (reach->npending > 0 && left > 0)
	{
		uint32		id = reach->pending[--reach->npending];
		uint32		page = id / v->view.meta.layout.slots_per_page;

		if (!IsPending(reach, id) || page >= v->pages)
			continue;
		ExpandPage(reach, page);
		left--;
	}
	if (reach->npending > 0 || reach->more_pending)
		PipeannReachWalk(reach);
}

/*
 * Call link() for a node, if it is live, under the lock that inserts take. If
 * link() returns true the node is reached. Returns whether it is.
 *
 * The lock shuts out retraining and other exclusive holders, as an insert's
 * does. A reached node's children are reached with it.
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
