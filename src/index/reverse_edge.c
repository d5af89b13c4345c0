/*
 * reverse_edge.c
 *		Edges that lead to a node that was inserted.
 *
 * The first edge comes from the node's nearest neighbour and is a
 * spanning-tree edge, which pruning keeps, so no insert makes a node
 * unreachable. It is made before the others: a node that an interrupted insert
 * left behind has this edge or none.
 *
 * All edges are planned on copies of the lists. Then each page with such lists
 * is changed once, if the lists are still the same, a few pages at a time.
 * Full lists are pruned by code distances.
 */
#include "postgres.h"

#include <math.h>

#include "base/pause.h"
#include "distance/distance.h"
#include "index/neighbors.h"
#include "miscadmin.h"

/* A node, while edges that lead to it are made. */
typedef struct PipeannNewNode
{
	const PipeannIndexView *view;
	uint32		id;
	PipeannVectorCache *cache;
	int			max_tree_edges; /* a list with so many spanning-tree edges
								 * takes no more */
	List	   *unlinked;		/* ids of nodes that cannot be its parent: no
								 * edges lead to them */
} PipeannNewNode;

/* The planned list of target. */
typedef struct PipeannReverseEdge
{
	uint32		target;
	PipeannSlot *seen;			/* target's slot when it was planned */
	uint32	   *list;
	int			n;
	int			tree_edges;
	bool		done;
} PipeannReverseEdge;

/* What may be done to target's list to have the edge. */
typedef enum PipeannEffort
{
	PIPEANN_IF_THERE,			/* an existing edge joins the spanning tree */
	PIPEANN_IF_ROOM,			/* a full list stays as it is */
	PIPEANN_PRUNE,				/* pruning a full list may drop it */
	PIPEANN_AS_TREE_EDGE		/* the edge is kept, as a spanning-tree edge */
} PipeannEffort;

/*
 * Planning an edge on a copy of a list, and changing the page.
 *
 * Pruning a full list by exact distances would need a read for each neighbour,
 * so neighbours are decoded from their codes (as in FreshDiskANN). A full list
 * is pruned to less than it can hold, so that the next edges find room.
 */

/*
 * An edge that need not be made is given up after so many tries. Each time
 * that it fails, another backend has made its change.
 */
#define MAX_TRIES 3

/*
 * A full list is filled up to this length with neighbours that pruning
 * dropped. Longer lists make searches better and inserts dearer, as each edge
 * to a full list prunes it.
 */
#define FilledLength(l) ((l)->max_degree * 3 / 4)

/* The position of an id in a slot's list, or -1. */
static int
ListFind(const PipeannLayout *l, const PipeannSlot *slot, uint32 id)
{
	int			degree = PipeannSlotDegree(l, slot);

	for (int i = 0; i < degree; i++)
		if (slot->neighbors[i] == id)
			return i;
	return -1;
}

/*
 * Move the edge at position `at` behind the spanning-tree edges, as one of
 * them.
 */
static void
JoinTree(PipeannReverseEdge *edge, int at)
{
	uint32		id = edge->list[at];

	edge->list[at] = edge->list[edge->tree_edges];
	edge->list[edge->tree_edges++] = id;
}

/*
 * Add a neighbour of target to the set to be pruned. False if its code is not
 * known yet.
 */
static bool
AddToSet(PipeannNewNode *node, PipeannLinkSet *set, const float *target,
		 uint32 id)
{
	const float *vector = PipeannVectorCacheGet(node->cache, id);

	if (vector == NULL)
		return false;
	PipeannLinkSetAdd(set, id, vector, target);
	return true;
}

/*
 * Order a pruned list so that the page changes least: neighbours that stay
 * keep their places, new ones fill the gaps. Spanning-tree edges, which all
 * stay, come first, a new one behind them.
 */
static void
KeepPlaces(PipeannReverseEdge *edge, int degree, int tree_edges)
{
	const uint32 *old = edge->seen->neighbors;
	uint32	   *list = palloc(edge->n * sizeof(uint32));
	int			next = 0;

	for (int i = 0; i < edge->n; i++)
		list[i] = i < degree && PipeannListHas(edge->list, edge->n, old[i]) ?
			old[i] : PIPEANN_INVALID_ID;
	for (int i = 0; i < edge->n; i++)
	{
		if (list[i] != PIPEANN_INVALID_ID)
			continue;
		while (PipeannListHas(old, Min(edge->n, degree), edge->list[next]))
			next++;
		list[i] = edge->list[next++];
	}
	memcpy(edge->list, list, edge->n * sizeof(uint32));
	pfree(list);
	edge->tree_edges = tree_edges;
}

/*
 * Compute a full list that the node joins. Spanning-tree edges, and neighbours
 * whose code is not known yet, stay.
 */
static void
PruneFullList(PipeannNewNode *node, bool in_tree, PipeannReverseEdge *edge)
{
	const PipeannLayout *l = &node->view->meta.layout;
	const PipeannSlot *target = edge->seen;
	int			degree = PipeannSlotDegree(l, target);
	int			tree_edges = PipeannSlotTreeEdges(l, target);
	PipeannLinkSet *set = PipeannLinkSetNew(node->view, degree + 1);
	float	   *x = palloc(mul_size(l->dim, sizeof(float)));
	float	   *self = palloc(mul_size(set->dim, sizeof(float)));
	int			unknown = 0;
	int			forced;

	PipeannEmbedSlot(node->view, edge->target, target, x, self);
	for (int i = 0; i < tree_edges; i++)
		if (!AddToSet(node, set, self, target->neighbors[i]))
			edge->list[unknown++] = target->neighbors[i];
	if (in_tree)
		(void) AddToSet(node, set, self, node->id);
	forced = set->n;
	for (int i = tree_edges; i < degree; i++)
		if (!AddToSet(node, set, self, target->neighbors[i]))
			edge->list[unknown++] = target->neighbors[i];
	if (!in_tree)
		(void) AddToSet(node, set, self, node->id);
	edge->n = unknown +
		PipeannLinkSetPrune(set, forced, l->max_degree - unknown,
							FilledLength(l) - unknown, edge->list + unknown);
	KeepPlaces(edge, degree, tree_edges);
	PipeannLinkSetFree(set);
	pfree(x);
	pfree(self);
}

/*
 * Plan an edge from target. False if there is to be none: pruning finds it
 * superfluous, target has all the spanning-tree edges that it may have, or
 * target is no node.
 */
static bool
PlanEdge(PipeannNewNode *node, uint32 target, PipeannEffort effort,
		 PipeannReverseEdge *edge)
{
	const PipeannLayout *l = &node->view->meta.layout;
	bool		in_tree = effort == PIPEANN_AS_TREE_EDGE ||
		effort == PIPEANN_IF_THERE;
	int			at;

	edge->target = target;
	edge->done = false;
	PipeannSlotCopy(node->view, target, edge->seen);
	if (!PipeannSlotIsNode(edge->seen) || target == node->id ||
		(in_tree && PipeannSlotTreeEdges(l,
										 edge->seen) >= node->max_tree_edges))
		return false;
	edge->n = PipeannSlotDegree(l, edge->seen);
	edge->tree_edges = PipeannSlotTreeEdges(l, edge->seen);
	at = ListFind(l, edge->seen, node->id);
	if (at < 0 && effort == PIPEANN_IF_THERE)
		return false;
	if (at < 0 && edge->n == l->max_degree)
	{
		if (effort == PIPEANN_IF_ROOM)
			return false;
		PruneFullList(node, in_tree, edge);
		for (at = 0; at < edge->n && edge->list[at] != node->id; at++)
			;
		if (at == edge->n)
			return false;
		if (in_tree)
			JoinTree(edge, at);
		return true;
	}
	memcpy(edge->list, edge->seen->neighbors, edge->n * sizeof(uint32));
	if (at < 0)
	{
		at = edge->n++;
		edge->list[at] = node->id;
	}
	if (in_tree && at >= edge->tree_edges)
		JoinTree(edge, at);
	return true;
}

static bool
IsAsSeen(const PipeannLayout *l, const PipeannSlot *slot,
		 const PipeannSlot *seen)
{
	return PipeannSlotIsNode(slot) && slot->degree == seen->degree &&
		slot->tree_edges == seen->tree_edges &&
		memcmp(slot->neighbors, seen->neighbors,
			   PipeannSlotDegree(l, seen) * sizeof(uint32)) == 0;
}

/* Change the lists of edges[n], all on one page, in a copy of the page. */
static void
ChangePage(const PipeannLayout *l, Page page, PipeannReverseEdge *edges, int n)
{
	for (int i = 0; i < n; i++)
	{
		PipeannSlot *slot = PipeannSlotAt(l, PipeannPagePayload(page),
										  PipeannIdSlot(l, edges[i].target));

		if (!IsAsSeen(l, slot, edges[i].seen))
			continue;
		memcpy(slot->neighbors, edges[i].list, edges[i].n * sizeof(uint32));
		slot->degree = edges[i].n;
		slot->tree_edges = edges[i].tree_edges;
		edges[i].done = true;
	}
}

static bool
AnyIsAsSeen(const PipeannLayout *l, Page page, const PipeannReverseEdge *edges,
			int n)
{
	for (int i = 0; i < n; i++)
		if (IsAsSeen(l, PipeannSlotAt(l, PipeannPagePayload(page),
									  PipeannIdSlot(l, edges[i].target)),
					 edges[i].seen))
			return true;
	return false;
}

/* The number of edges on the same page as edges[0]; they are sorted by page. */
static int
CountOnPage(const PipeannLayout *l, const PipeannReverseEdge *edges, int n)
{
	int			i;

	for (i = 1; i < n; i++)
		if (PipeannIdPage(l, edges[i].target) !=
			PipeannIdPage(l, edges[0].target))
			break;
	return i;
}

/*
 * Change the lists of the first edges, if they are still the same, on as many
 * pages as one WAL record holds: a record for each page would be as much
 * header as change. Pages are locked in ascending order. Returns how many
 * edges were dealt with.
 */
static int
ApplyToPages(const PipeannIndexView *view, PipeannReverseEdge *edges, int n)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannPagesUpdate update;
	int			done = 0;

	PIPEANN_PAUSE("insert-back-edge");
	PipeannPagesBegin(view, &update);
	while (done < n && update.n < MAX_GENERIC_XLOG_PAGES)
	{
		int			here = CountOnPage(l, edges + done, n - done);
		Buffer		buffer = PipeannPagesLock(&update, edges[done].target);

		if (AnyIsAsSeen(l, BufferGetPage(buffer), edges + done, here))
			ChangePage(l, PipeannPagesRegister(&update, buffer),
					   edges + done, here);
		else
			UnlockReleaseBuffer(buffer);
		done += here;
	}
	PipeannPagesEnd(&update);
	return done;
}

static int
CompareTargets(const void *a, const void *b)
{
	uint32		x = ((const PipeannReverseEdge *) a)->target;
	uint32		y = ((const PipeannReverseEdge *) b)->target;

	return x < y ? -1 : x > y;
}

/*
 * Write the planned lists whose old lists have not changed, and set their
 * done.
 */
static void
ApplyEdges(const PipeannIndexView *view, PipeannReverseEdge *edges, int n)
{
	qsort(edges, n, sizeof(PipeannReverseEdge), CompareTargets);
	for (int done = 0; done < n;)
	{
		CHECK_FOR_INTERRUPTS();
		done += ApplyToPages(view, edges + done, n - done);
	}
}

/* Allocate the arrays of an edge. */
static void
ReverseEdgeInit(const PipeannLayout *l, PipeannReverseEdge *edge)
{
	edge->seen = PipeannSlotAlloc(l);
	edge->list = palloc((l->max_degree + 1) * sizeof(uint32));
}

/*
 * Make one edge, and try again while other backends change the list. False if
 * there is to be none; for a spanning-tree edge, which is made if there is any
 * room, this means that target cannot take it.
 */
static bool
LinkBack(PipeannNewNode *node, uint32 target, PipeannEffort effort)
{
	PipeannReverseEdge	edge;

	ReverseEdgeInit(&node->view->meta.layout, &edge);
	for (int i = 0; i < MAX_TRIES || effort == PIPEANN_AS_TREE_EDGE; i++)
	{
		if (!PlanEdge(node, target, effort, &edge))
			return false;
		ApplyEdges(node->view, &edge, 1);
		if (edge.done)
			return true;
	}
	return false;
}

/*
 * Let the node lead to another, in place of its last edge if its list is full.
 * False if that has spanning-tree edges only.
 */
static bool
LeadTo(const PipeannIndexView *view, uint32 id, uint32 other)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannSlotUpdate update;
	PipeannSlot *slot;
	bool		known;
	bool		full;

	PipeannSlotBegin(view, id, &update);
	slot = update.slot;
	known = other == id || ListFind(l, slot, other) >= 0;
	full = PipeannSlotDegree(l, slot) == l->max_degree;
	if (known || (full && PipeannSlotTreeEdges(l, slot) == l->max_degree))
	{
		PipeannSlotAbort(&update);
		return known;
	}
	if (!full)
		slot->degree++;
	slot->neighbors[slot->degree - 1] = other;
	PipeannSlotEnd(&update);
	return true;
}

/*
 * Make the edge in place of the last one of a full list, and let the node lead
 * to where that led, so that nothing is cut off.
 */
static bool
TakePlace(PipeannNewNode *node, PipeannReverseEdge *edge)
{
	const PipeannLayout *l = &node->view->meta.layout;
	int			n = PipeannSlotDegree(l, edge->seen);
	int			tree_edges = PipeannSlotTreeEdges(l, edge->seen);

	if (tree_edges == n ||
		!LeadTo(node->view, node->id, edge->seen->neighbors[n - 1]))
		return false;
	memcpy(edge->list, edge->seen->neighbors, n * sizeof(uint32));
	edge->list[n - 1] = node->id;
	edge->n = n;
	edge->tree_edges = tree_edges;
	JoinTree(edge, n - 1);
	ApplyEdges(node->view, edge, 1);
	return edge->done;
}

/* For a node without near ones, so many nodes from the root on are tried. */
#define MAX_FROM_ROOT 1024

/*
 * Nearly every node has a reverse edge from a neighbour, mostly from its first
 * one, so this reads little.
 */
static bool
HasReverseEdge(const PipeannIndexView *view, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannSlot *other = PipeannSlotAlloc(l);
	bool		linked = false;

	for (int i = 0; i < PipeannSlotDegree(l, slot) && !linked; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (slot->neighbors[i] >= PipeannViewIds(view))
			continue;
		PipeannSlotCopy(view, slot->neighbors[i], other);
		linked = PipeannSlotIsNode(other) && ListFind(l, other, id) >= 0;
	}
	pfree(other);
	return linked;
}

/*
 * Whether a neighbour of node id leads back to it; copies its slot to *slot. If
 * none does, its insert did not get so far.
 */
bool
PipeannIsLinked(const PipeannIndexView *view, uint32 id, PipeannSlot *slot)
{
	PipeannSlotCopy(view, id, slot);
	return HasReverseEdge(view, id, slot);
}

/* The nearest node of the entry graph, or INVALID_ID. */
static uint32
NearestEntry(PipeannNewNode *node)
{
	const PipeannCodes *codes = &node->view->codes;
	const PipeannLayout *l = &node->view->meta.layout;
	int			dim = PipeannEmbeddedDim(l->metric, l->dim);
	const float *self = PipeannVectorCacheGet(node->cache, node->id);
	float	   *x = palloc(mul_size(l->dim, sizeof(float)));
	float	   *other = palloc(mul_size(dim, sizeof(float)));
	uint32		nearest = PIPEANN_INVALID_ID;
	float		least = INFINITY;

	for (uint32 i = 0; i < codes->entry_count; i++)
	{
		uint32		id = codes->entry_ids[i];
		float		dist;

		CHECK_FOR_INTERRUPTS();
		if (id == node->id || !PipeannEmbedNode(node->view, id, x, other))
			continue;
		dist = PipeannKernel->l2[PIPEANN_FLOAT4] (self, other, dim);
		if (dist >= least)
			continue;
		nearest = id;
		least = dist;
	}
	pfree(x);
	pfree(other);
	return nearest;
}

/*
 * Make the root the node's parent or, if its list is full, one of the nodes to
 * which spanning-tree edges lead from it, breadth first.
 */
static bool
LinkToRoot(PipeannNewNode *node)
{
	const PipeannLayout *l = &node->view->meta.layout;
	PipeannSlot *slot = PipeannSlotAlloc(l);
	uint32	   *queue = palloc(MAX_FROM_ROOT * sizeof(uint32));
	int			n = 0;

	if (node->view->meta.root < PipeannViewIds(node->view))
		queue[n++] = node->view->meta.root;
	for (int i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (LinkBack(node, queue[i], PIPEANN_AS_TREE_EDGE))
			return true;
		PipeannSlotCopy(node->view, queue[i], slot);
		for (int j = 0; j < PipeannSlotTreeEdges(l, slot) && n < MAX_FROM_ROOT;
			 j++)
			if (slot->neighbors[j] < PipeannViewIds(node->view))
				queue[n++] = slot->neighbors[j];
	}
	return false;
}

/*
 * For a node that found no live node, as in an index just emptied: the root
 * leads to it, and so does the nearest node of the entry graph, for searches.
 * Both stay even if they are dead.
 */
static bool
LinkToEntry(PipeannNewNode *node)
{
	uint32		nearest = NearestEntry(node);
	bool		in_tree = LinkToRoot(node);

	if (nearest != PIPEANN_INVALID_ID)
		(void) LinkBack(node, nearest, PIPEANN_AS_TREE_EDGE);
	return in_tree;
}

static PipeannNewNode
MakeNode(const PipeannIndexView *view, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannNewNode node = {view, id, PipeannVectorCacheNew(view),
								PipeannWantedTreeEdges(l), NIL};
	float	   *x = palloc(mul_size(l->dim, sizeof(float)));
	float	   *vector = palloc(mul_size(PipeannEmbeddedDim(l->metric, l->dim),
										 sizeof(float)));

	PipeannEmbedSlot(view, id, slot, x, vector);
	PipeannVectorCachePut(node.cache, id, vector);
	pfree(x);
	return node;
}

/*
 * Whether another node may take the node for a child. An insert that was
 * interrupted may have left one to which no edges lead: it is no parent. Who has
 * children is linked.
 *
 * Where hardly any distances differ, new nodes have the same neighbours, whose
 * lists are soon full of spanning-tree edges: so room is looked for first, and
 * what was read in vain once is kept.
 */
static bool
MayBeParent(PipeannNewNode *node, uint32 id)
{
	const PipeannIndexView *view = node->view;
	const PipeannLayout *l = &view->meta.layout;
	PipeannSlot *slot;
	bool		room;
	bool		linked;

	if (list_member_oid(node->unlinked, id))
		return false;
	slot = PipeannSlotAlloc(l);
	PipeannSlotCopy(view, id, slot);
	room = PipeannSlotIsNode(slot) &&
		PipeannSlotTreeEdges(l, slot) < node->max_tree_edges;
	linked = room && (id == view->meta.root ||
					  PipeannSlotTreeEdges(l, slot) > 0 ||
					  HasReverseEdge(view, id, slot));
	if (room && !linked)
		node->unlinked = lappend_oid(node->unlinked, id);
	pfree(slot);
	return linked;
}

/*
 * Make the nearest neighbour that can take the edge the node's parent. If none
 * can, or could before (asked), allow lists to have more spanning-tree edges than
 * wanted, then try nodes that are not so near.
 */
static bool
FindParent(PipeannNewNode *node, const PipeannSlot *slot,
		   const PipeannLinkSet *known, bool asked)
{
	int			degree = PipeannSlotDegree(&node->view->meta.layout, slot);

	for (int round = asked ? 1 : 0; round < 2; round++)
	{
		if (round > 0)
			node->max_tree_edges = node->view->meta.layout.max_degree;
		for (int i = 0; i < degree; i++)
			if (MayBeParent(node, slot->neighbors[i]) &&
				LinkBack(node, slot->neighbors[i],
						 PIPEANN_AS_TREE_EDGE))
				return true;
	}
	for (int i = 0; known != NULL && i < known->n; i++)
		if (MayBeParent(node, known->ids[i]) &&
			LinkBack(node, known->ids[i], PIPEANN_AS_TREE_EDGE))
			return true;
	return LinkToEntry(node);
}

/*
 * Plan the edges from the neighbours in a node's list; returns how many. Sets
 * *parent to the neighbour whose edge joins the tree.
 */
static int
PlanEdges(PipeannNewNode *node, const PipeannSlot *slot,
		  const PipeannLinkSet *known,
		  PipeannReverseEdge *edges, uint32 *parent)
{
	const PipeannLayout *l = &node->view->meta.layout;
	int			degree = PipeannSlotDegree(l, slot);
	int			n = 0;

	*parent = PIPEANN_INVALID_ID;
	for (int i = 0; i < degree; i++)
	{
		bool		needed = known == NULL || i < known->needed;

		ReverseEdgeInit(l, &edges[n]);
		if (*parent == PIPEANN_INVALID_ID &&
			MayBeParent(node, slot->neighbors[i]) &&
			PlanEdge(node, slot->neighbors[i], PIPEANN_AS_TREE_EDGE,
					 &edges[n]))
			*parent = edges[n++].target;
		else if (PlanEdge(node, slot->neighbors[i],
						  needed ? PIPEANN_PRUNE : PIPEANN_IF_ROOM,
						  &edges[n]))
			n++;
	}
	return n;
}

/*
 * Move the edges from lists on the parent's page to the front; returns how
 * many.
 */
static int
ParentFirst(const PipeannLayout *l, PipeannReverseEdge *edges, int n,
			uint32 parent)
{
	int			first = 0;

	if (parent == PIPEANN_INVALID_ID)
		return 0;
	for (int i = 0; i < n; i++)
	{
		PipeannReverseEdge	edge = edges[i];

		if (PipeannIdPage(l, edge.target) != PipeannIdPage(l, parent))
			continue;
		edges[i] = edges[first];
		edges[first++] = edge;
	}
	return first;
}

/*
 * Make the edges that lead to node id from its neighbours, the spanning-tree
 * edge first. slot is a copy of its slot; known, or NULL, is a set of nodes
 * near it. If there are codes, the node's is written already. Returns whether
 * a spanning-tree edge was made, as it is if there is any live node.
 */
bool
PipeannLinkNode(const PipeannIndexView *view, uint32 id,
				const PipeannSlot *slot, const PipeannLinkSet *known)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannReverseEdge   *edges = palloc((PipeannSlotDegree(l, slot) + 1) *
										 sizeof(PipeannReverseEdge));
	PipeannNewNode		node = MakeNode(view, id, slot);
	uint32		parent;
	bool		in_tree = false;
	int			first;
	int			n;

	for (int i = 0; known != NULL && i < known->n; i++)
		PipeannVectorCachePut(node.cache, known->ids[i], known->vectors[i]);
	n = PlanEdges(&node, slot, known, edges, &parent);
	first = ParentFirst(l, edges, n, parent);
	ApplyEdges(view, edges, first);
	for (int i = 0; i < first; i++)
		if (edges[i].target == parent)
			in_tree = edges[i].done;
	if (!in_tree)
		in_tree = FindParent(&node, slot, known,
							 parent == PIPEANN_INVALID_ID);
	ApplyEdges(view, edges + first, n - first);
	for (int i = 0; i < n; i++)
		if (!edges[i].done && edges[i].target != parent)
			(void) LinkBack(&node, edges[i].target, PIPEANN_PRUNE);
	return in_tree;
}

/*
 * Make an edge from target to node id. If target's list is full node id takes
 * over one of its edges. False if target is no node, both lists have
 * spanning-tree edges only, or target's list is being changed.
 */
bool
PipeannLinkEdge(const PipeannIndexView *view, uint32 target, uint32 id,
				const PipeannSlot *slot)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannNewNode		node = MakeNode(view, id, slot);
	PipeannReverseEdge	edge;

	ReverseEdgeInit(l, &edge);
	PipeannSlotCopy(view, target, edge.seen);
	if (!PipeannSlotIsNode(edge.seen) || target == id)
		return false;
	edge.target = target;
	edge.done = false;
	if (PipeannSlotDegree(l, edge.seen) == l->max_degree &&
		ListFind(l, edge.seen, id) < 0)
		return TakePlace(&node, &edge);
	node.max_tree_edges = l->max_degree;
	return LinkBack(&node, target, PIPEANN_AS_TREE_EDGE);
}

/*
 * Make an existing edge from target to node id a spanning-tree edge. False if
 * there is no such edge, or target has all the spanning-tree edges that it may
 * have.
 */
bool
PipeannJoinTree(const PipeannIndexView *view, uint32 target, uint32 id,
				const PipeannSlot *slot)
{
	PipeannNewNode		node = MakeNode(view, id, slot);

	return LinkBack(&node, target, PIPEANN_IF_THERE);
}

/* Make an edge from the root, or from near it, and from the entry graph. */
bool
PipeannLinkEntry(const PipeannIndexView *view, uint32 id,
				 const PipeannSlot *slot)
{
	PipeannNewNode		node = MakeNode(view, id, slot);

	return LinkToEntry(&node);
}
