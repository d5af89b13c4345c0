/*
 * backedge.c
 *		Edges that lead to a node inserted, by code distances where a list is
 *		full.
 *
 * Pruning a neighbour's full list by exact distances would take a read for each
 * entry, so its entries are decoded from their codes (FreshDiskANN's way). A
 * full list is pruned to less than it could hold, so that the next edges find
 * room.
 *
 * A node's first edge back comes from its nearest neighbour and is one of the
 * spanning tree: it stays whatever is pruned. So no insert makes a node unreachable. It is made
 * before the others: a node that an insert cut short left behind has it or
 * nothing leads there.
 *
 * All edges are worked out on copies of the lists first; then each page that
 * has some of the lists is changed once, if they are still what they were, and
 * a few pages at a time.
 */
#include "postgres.h"

#include <math.h>

#include "neighbors/neighbors.h"
#include "base/pause.h"
#include "distance/distance.h"
#include "miscadmin.h"

/*
 * A list that others keep changing is given up after this many tries, unless the
 * edge must be: each time that it fails, somebody else's change is made.
 */
#define MAX_TRIES 3

/* Nodes that are tried, from the root on, for one that nothing is near to. */
#define MAX_FROM_ROOT 1024

/*
 * A full list is filled up to this length with what pruning dropped. Longer
 * ones make better searches and dearer inserts: each edge added to a full list
 * prunes it.
 */
#define FullFill(l) ((l)->max_degree * 3 / 4)

/*
 * A node while others' edges to it are made.
 */
typedef struct NewNode
{
	const PipeannIndexView *view;
	uint32		id;
	PipeannVectorCache *cache;
	int			max_tree_edges;		/* that a list may have for the node's to be
								 * added */
} NewNode;

/* What target's list is to become. */
typedef struct BackEdge
{
	uint32		target;
	PipeannSlot *seen;			/* its slot as it was */
	uint32	   *list;
	int			n;
	int			tree_edges;
	bool		done;
} BackEdge;

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
 * Make the edge at position `at` of a list the last of its spanning-tree edges.
 */
static void
JoinTree(BackEdge *edge, int at)
{
	uint32		id = edge->list[at];

	edge->list[at] = edge->list[edge->tree_edges];
	edge->list[edge->tree_edges++] = id;
}

/*
 * Add one entry of target's list to the set that is pruned. False if its code
 * is not known yet.
 */
static bool
AddToSet(NewNode *node, PipeannLinkSet *set, const float *target, uint32 id)
{
	const float *vector = PipeannVectorCacheGet(node->cache, id);

	if (vector == NULL)
		return false;
	PipeannLinkSetAdd(set, id, vector, target);
	return true;
}

/*
 * Put a pruned list in the order that changes the page least: who was there
 * stays where it was, the others fill the gaps. Spanning-tree edges, all kept, were
 * first and are, a new one behind them.
 */
static void
KeepPlaces(BackEdge *edge, int degree, int tree_edges)
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
 * What a full list becomes when the node joins it: spanning-tree edges first. Edges
 * to nodes whose code is not known yet stay as if they were of the tree.
 */
static void
PruneFullList(NewNode *node, bool in_tree, BackEdge *edge)
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
							FullFill(l) - unknown, edge->list + unknown);
	KeepPlaces(edge, degree, tree_edges);
	PipeannLinkSetFree(set);
	pfree(x);
	pfree(self);
}

/* What is done for an edge back. */
typedef enum Effort
{
	IF_THERE,					/* an edge that the list has joins the tree */
	IF_ROOM,					/* a full list is left as it is */
	PRUNE,
	AS_TREE_EDGE				/* it must be, and stay */
} Effort;

/*
 * Work out an edge from target. False if there is none to be: pruning finds it
 * superfluous, or target has all the spanning-tree edges that it can take, or is no
 * node.
 */
static bool
PlanEdge(NewNode *node, uint32 target, Effort effort, BackEdge *edge)
{
	const PipeannLayout *l = &node->view->meta.layout;
	bool		in_tree = effort == AS_TREE_EDGE || effort == IF_THERE;
	int			at;

	edge->target = target;
	edge->done = false;
	PipeannSlotCopy(node->view, target, edge->seen);
	if (!PipeannSlotIsNode(edge->seen) || target == node->id ||
		(in_tree && PipeannSlotTreeEdges(l, edge->seen) >= node->max_tree_edges))
		return false;
	edge->n = PipeannSlotDegree(l, edge->seen);
	edge->tree_edges = PipeannSlotTreeEdges(l, edge->seen);
	at = ListFind(l, edge->seen, node->id);
	if (at < 0 && effort == IF_THERE)
		return false;
	if (at < 0 && edge->n == l->max_degree)
	{
		if (effort == IF_ROOM)
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

/*
 * Change the lists of edges[0 .. n - 1], all on one page, in a copy of it.
 */
static void
ChangePage(const PipeannLayout *l, Page page, BackEdge *edges, int n)
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
AnyIsAsSeen(const PipeannLayout *l, Page page, const BackEdge *edges, int n)
{
	for (int i = 0; i < n; i++)
		if (IsAsSeen(l, PipeannSlotAt(l, PipeannPagePayload(page),
									  PipeannIdSlot(l, edges[i].target)),
					 edges[i].seen))
			return true;
	return false;
}

/*
 * Edges on the page of the first one, which sorting has put together.
 */
static int
CountOnPage(const PipeannLayout *l, const BackEdge *edges, int n)
{
	int			i;

	for (i = 1; i < n; i++)
		if (PipeannIdPage(l, edges[i].target) !=
			PipeannIdPage(l, edges[0].target))
			break;
	return i;
}

/*
 * Change the lists of the first so many edges, on pages that one WAL record
 * takes together, that are still what they were: a record for each would be as
 * much heading as change. Pages are locked in ascending order. Returns how many
 * edges these were.
 */
static int
ApplyToPages(const PipeannIndexView *view, BackEdge *edges, int n)
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
	uint32		x = ((const BackEdge *) a)->target;
	uint32		y = ((const BackEdge *) b)->target;

	return x < y ? -1 : x > y;
}

static void
Apply(const PipeannIndexView *view, BackEdge *edges, int n)
{
	qsort(edges, n, sizeof(BackEdge), CompareTargets);
	for (int done = 0; done < n;)
	{
		CHECK_FOR_INTERRUPTS();
		done += ApplyToPages(view, edges + done, n - done);
	}
}

static void
MakeEdge(const PipeannLayout *l, BackEdge *edge)
{
	edge->seen = PipeannSlotAlloc(l);
	edge->list = palloc((l->max_degree + 1) * sizeof(uint32));
}

/*
 * One edge, again while others change the list. False if there is none to be;
 * but one that is to lead to the node for good is made as soon as there is room
 * for it, so that false then says that target cannot take it.
 */
static bool
LinkBack(NewNode *node, uint32 target, Effort effort)
{
	BackEdge	edge;

	MakeEdge(&node->view->meta.layout, &edge);
	for (int i = 0; i < MAX_TRIES || effort == AS_TREE_EDGE; i++)
	{
		if (!PlanEdge(node, target, effort, &edge))
			return false;
		Apply(node->view, &edge, 1);
		if (edge.done)
			return true;
	}
	return false;
}

/*
 * Whether one of a node's neighbours leads back to it: so it is with nearly
 * every node, mostly from its first neighbour, so this reads little.
 */
bool
PipeannIsLinked(const PipeannIndexView *view, uint32 id, PipeannSlot *slot)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannSlot *other = PipeannSlotAlloc(l);
	bool		linked = false;

	PipeannSlotCopy(view, id, slot);
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
 * The nearest node of the entry graph, or INVALID_ID.
 */
static uint32
NearestEntry(NewNode *node)
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
 * Let the root be the node's parent or, where it cannot, one of those
 * that spanning-tree edges lead to from there, breadth first.
 */
static bool
LinkToRoot(NewNode *node)
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
		if (LinkBack(node, queue[i], AS_TREE_EDGE))
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
 * Where no live node was found, as in an index just emptied: the root takes the
 * new one, and so that it is found the nearest node of the entry graph as well.
 * Those stay even when they are dead.
 */
static bool
LinkToEntry(NewNode *node)
{
	uint32		nearest = NearestEntry(node);
	bool		in_tree = LinkToRoot(node);

	if (nearest != PIPEANN_INVALID_ID)
		(void) LinkBack(node, nearest, AS_TREE_EDGE);
	return in_tree;
}

static NewNode
MakeNode(const PipeannIndexView *view, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &view->meta.layout;
	NewNode		node = {view, id, PipeannVectorCacheNew(view), PipeannWantedTreeEdges(l)};
	float	   *x = palloc(mul_size(l->dim, sizeof(float)));
	float	   *vector = palloc(mul_size(PipeannEmbeddedDim(l->metric, l->dim),
										 sizeof(float)));

	PipeannEmbedSlot(view, id, slot, x, vector);
	PipeannVectorCachePut(node.cache, id, vector);
	pfree(x);
	return node;
}

/*
 * A node that an insert cut short left behind is no parent: nothing may lead
 * to it.
 */
static bool
MayBeParent(const PipeannIndexView *view, uint32 id)
{
	PipeannSlot *slot = PipeannSlotAlloc(&view->meta.layout);
	bool		may = id == view->meta.root || PipeannIsLinked(view, id, slot);

	pfree(slot);
	return may;
}

/*
 * Let the nearest neighbour that can be the node's parent. If none would have
 * it, a list takes it beyond measure, or a node that is not so near.
 */
static bool
FindParent(NewNode *node, const PipeannSlot *slot,
			const PipeannLinkSet *known)
{
	int			degree = PipeannSlotDegree(&node->view->meta.layout, slot);

	for (int round = 0; round < 2; round++)
	{
		for (int i = 0; i < degree; i++)
			if (MayBeParent(node->view, slot->neighbors[i]) &&
				LinkBack(node, slot->neighbors[i], AS_TREE_EDGE))
				return true;
		node->max_tree_edges = node->view->meta.layout.max_degree;
	}
	for (int i = 0; known != NULL && i < known->n; i++)
		if (MayBeParent(node->view, known->ids[i]) &&
			LinkBack(node, known->ids[i], AS_TREE_EDGE))
			return true;
	return LinkToEntry(node);
}

/*
 * Work out the edges from the neighbours in a node's list; parent becomes the
 * one whose edge joins the tree. Returns how many edges there are.
 */
static int
PlanEdges(NewNode *node, const PipeannSlot *slot, const PipeannLinkSet *known,
		  BackEdge *edges, uint32 *parent)
{
	const PipeannLayout *l = &node->view->meta.layout;
	int			degree = PipeannSlotDegree(l, slot);
	int			n = 0;

	*parent = PIPEANN_INVALID_ID;
	for (int i = 0; i < degree; i++)
	{
		bool		needed = known == NULL || i < known->needed;

		MakeEdge(l, &edges[n]);
		if (*parent == PIPEANN_INVALID_ID &&
			MayBeParent(node->view, slot->neighbors[i]) &&
			PlanEdge(node, slot->neighbors[i], AS_TREE_EDGE, &edges[n]))
			*parent = edges[n++].target;
		else if (PlanEdge(node, slot->neighbors[i],
						  needed ? PRUNE : IF_ROOM, &edges[n]))
			n++;
	}
	return n;
}

/*
 * Bring those whose lists are on the parent's page to the front; returns how
 * many they are.
 */
static int
ParentFirst(const PipeannLayout *l, BackEdge *edges, int n, uint32 parent)
{
	int			first = 0;

	if (parent == PIPEANN_INVALID_ID)
		return 0;
	for (int i = 0; i < n; i++)
	{
		BackEdge	edge = edges[i];

		if (PipeannIdPage(l, edge.target) != PipeannIdPage(l, parent))
			continue;
		edges[i] = edges[first];
		edges[first++] = edge;
	}
	return first;
}

bool
PipeannLinkNode(const PipeannIndexView *view, uint32 id,
				const PipeannSlot *slot, const PipeannLinkSet *known)
{
	const PipeannLayout *l = &view->meta.layout;
	BackEdge   *edges = palloc((PipeannSlotDegree(l, slot) + 1) *
							   sizeof(BackEdge));
	NewNode		node = MakeNode(view, id, slot);
	uint32		parent;
	bool		in_tree = false;
	int			first;
	int			n;

	for (int i = 0; known != NULL && i < known->n; i++)
		PipeannVectorCachePut(node.cache, known->ids[i], known->vectors[i]);
	n = PlanEdges(&node, slot, known, edges, &parent);
	first = ParentFirst(l, edges, n, parent);
	Apply(view, edges, first);
	for (int i = 0; i < first; i++)
		if (edges[i].target == parent)
			in_tree = edges[i].done;
	if (!in_tree)
		in_tree = FindParent(&node, slot, known);
	Apply(view, edges + first, n - first);
	for (int i = 0; i < n; i++)
		if (!edges[i].done && edges[i].target != parent)
			(void) LinkBack(&node, edges[i].target, PRUNE);
	return in_tree;
}

/*
 * Let the node lead to another, in place of its last edge if its list is full.
 * False if all of them are spanning-tree edges.
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
 * Take over the place of a full list's last edge, and lead to where that led:
 * so nothing that target led to is cut off.
 */
static bool
TakePlace(NewNode *node, BackEdge *edge)
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
	Apply(node->view, edge, 1);
	return edge->done;
}

bool
PipeannLinkEdge(const PipeannIndexView *view, uint32 target, uint32 id,
				const PipeannSlot *slot)
{
	const PipeannLayout *l = &view->meta.layout;
	NewNode		node = MakeNode(view, id, slot);
	BackEdge	edge;

	MakeEdge(l, &edge);
	PipeannSlotCopy(view, target, edge.seen);
	if (!PipeannSlotIsNode(edge.seen) || target == id)
		return false;
	edge.target = target;
	edge.done = false;
	if (PipeannSlotDegree(l, edge.seen) == l->max_degree &&
		ListFind(l, edge.seen, id) < 0)
		return TakePlace(&node, &edge);
	node.max_tree_edges = l->max_degree;
	return LinkBack(&node, target, AS_TREE_EDGE);
}

bool
PipeannJoinTree(const PipeannIndexView *view, uint32 target, uint32 id,
				 const PipeannSlot *slot)
{
	NewNode		node = MakeNode(view, id, slot);

	return LinkBack(&node, target, IF_THERE);
}

bool
PipeannLinkEntry(const PipeannIndexView *view, uint32 id,
				 const PipeannSlot *slot)
{
	NewNode		node = MakeNode(view, id, slot);

	return LinkToEntry(&node);
}
