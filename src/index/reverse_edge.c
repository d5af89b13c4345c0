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

#include "index/edge.h"
#include "distance/distance.h"
#include "miscadmin.h"

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
		linked = PipeannSlotIsNode(other) && PipeannListFind(l, other, id) >= 0;
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
		if (PipeannLinkBack(node, queue[i], PIPEANN_AS_TREE_EDGE))
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
		(void) PipeannLinkBack(node, nearest, PIPEANN_AS_TREE_EDGE);
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
				PipeannLinkBack(node, slot->neighbors[i],
								PIPEANN_AS_TREE_EDGE))
				return true;
	}
	for (int i = 0; known != NULL && i < known->n; i++)
		if (MayBeParent(node, known->ids[i]) &&
			PipeannLinkBack(node, known->ids[i], PIPEANN_AS_TREE_EDGE))
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

		PipeannReverseEdgeInit(l, &edges[n]);
		if (*parent == PIPEANN_INVALID_ID &&
			MayBeParent(node, slot->neighbors[i]) &&
			PipeannPlanEdge(node, slot->neighbors[i], PIPEANN_AS_TREE_EDGE,
							&edges[n]))
			*parent = edges[n++].target;
		else if (PipeannPlanEdge(node, slot->neighbors[i],
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
	PipeannApplyEdges(view, edges, first);
	for (int i = 0; i < first; i++)
		if (edges[i].target == parent)
			in_tree = edges[i].done;
	if (!in_tree)
		in_tree = FindParent(&node, slot, known,
							 parent == PIPEANN_INVALID_ID);
	PipeannApplyEdges(view, edges + first, n - first);
	for (int i = 0; i < n; i++)
		if (!edges[i].done && edges[i].target != parent)
			(void) PipeannLinkBack(&node, edges[i].target, PIPEANN_PRUNE);
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

	PipeannReverseEdgeInit(l, &edge);
	PipeannSlotCopy(view, target, edge.seen);
	if (!PipeannSlotIsNode(edge.seen) || target == id)
		return false;
	edge.target = target;
	edge.done = false;
	if (PipeannSlotDegree(l, edge.seen) == l->max_degree &&
		PipeannListFind(l, edge.seen, id) < 0)
		return PipeannTakePlace(&node, &edge);
	node.max_tree_edges = l->max_degree;
	return PipeannLinkBack(&node, target, PIPEANN_AS_TREE_EDGE);
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

	return PipeannLinkBack(&node, target, PIPEANN_IF_THERE);
}

/* Make an edge from the root, or from near it, and from the entry graph. */
bool
PipeannLinkEntry(const PipeannIndexView *view, uint32 id,
				 const PipeannSlot *slot)
{
	PipeannNewNode		node = MakeNode(view, id, slot);

	return LinkToEntry(&node);
}
