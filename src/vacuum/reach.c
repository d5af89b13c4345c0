/*
 * reach.c
 *		Edges to every live node, while VACUUM repairs neighbour lists and after.
 *
 * A walk finds the nodes to which spanning-tree edges lead from the root. It
 * follows the present edges in file order: the pass that repairs lists follows
 * those of nodes already reached, and further passes visit only pages with
 * nodes that were reached since. It keeps four bits a node, and four more to
 * count the edges that lead to the node.
 */
#include "postgres.h"

#include "distance/distance.h"
#include "index/neighbors.h"
#include "io/io.h"
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
static void
ReachWalk(PipeannReach *reach)
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
static void
ReachFollow(PipeannReach *reach)
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
		ReachWalk(reach);
}

/*
 * Call link() for a node, if it is live, under the lock that inserts take. If
 * link() returns true the node is reached. Returns whether it is.
 *
 * The lock shuts out retraining and other exclusive holders, as an insert's
 * does. A reached node's children are reached with it.
 */
static bool
ReachAttach(PipeannReach *reach, uint32 id,
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

/*
 * After VACUUM's repair an edge from a near node leads to each live node.
 *
 * For a search, which explores what is near its query, it is not enough that a
 * node can be reached: where most nodes that led to it have died, only the
 * edge of a parent far away may be left, which took the node over from its own
 * parent. So the pass that repairs lists counts the edges that lead to each
 * node, in four bits. A node that has few, and has just lost one, needs an
 * edge from one of its nearest neighbours that has more; the others may form a
 * group that leads only to itself. If there is none, the nearest such
 * neighbour gets a spanning-tree edge to the node, made as in reach.c, so
 * that nothing is cut off.
 */

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
			(void) ReachAttach(reach, id, LinkFromNear);
	}
}

/*
 * After VACUUM's repair spanning-tree edges lead to every live node again.
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
												  view->map,
												  view->meta.graph_pages,
												  &counters);
	PipeannSearchParams params = {
		.ef = SEARCH_EF,
		.out_of_line_distance = NoOutOfLineDistance,
		.out_of_line_arg = &near
	};
	PipeannSearch *search;
	const PipeannResult *result;
	float	   *query = palloc(mul_size(near.dim, sizeof(float)));
	bool		linked = false;

	PipeannVectorToFloat(PipeannSlotVector(&near, slot), near.storage,
						 near.dim, query);
	if (near.metric == PIPEANN_COSINE)
		PipeannNormalize(query, near.dim, query);
	search = PipeannLinkSearch(view, &near, source, query, params);
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
			any |= ReachAttach(reach, id, LinkByNeighbor);
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
		(void) ReachAttach(reach, id, LinkAnyhow);
		ReachFollow(reach);
	}
}

/* Lead spanning-tree edges from the root to every live node. */
void
PipeannVacuumRelink(PipeannReach *reach)
{
	do
		ReachWalk(reach);
	while (AttachOrphans(reach));
	AttachRest(reach);
}
