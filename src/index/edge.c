/*
 * edge.c
 *		Planning an edge on a copy of a list, and changing the page.
 *
 * Pruning a full list by exact distances would need a read for each neighbour,
 * so neighbours are decoded from their codes (as in FreshDiskANN). A full list
 * is pruned to less than it can hold, so that the next edges find room.
 */
#include "postgres.h"

#include "base/pause.h"
#include "miscadmin.h"
#include "index/edge.h"

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
int
PipeannListFind(const PipeannLayout *l, const PipeannSlot *slot, uint32 id)
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
bool
PipeannPlanEdge(PipeannNewNode *node, uint32 target, PipeannEffort effort,
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
	at = PipeannListFind(l, edge->seen, node->id);
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
void
PipeannApplyEdges(const PipeannIndexView *view, PipeannReverseEdge *edges, int n)
{
	qsort(edges, n, sizeof(PipeannReverseEdge), CompareTargets);
	for (int done = 0; done < n;)
	{
		CHECK_FOR_INTERRUPTS();
		done += ApplyToPages(view, edges + done, n - done);
	}
}

/* Allocate the arrays of an edge. */
void
PipeannReverseEdgeInit(const PipeannLayout *l, PipeannReverseEdge *edge)
{
	edge->seen = PipeannSlotAlloc(l);
	edge->list = palloc((l->max_degree + 1) * sizeof(uint32));
}

/*
 * Make one edge, and try again while other backends change the list. False if
 * there is to be none; for a spanning-tree edge, which is made if there is any
 * room, this means that target cannot take it.
 */
bool
PipeannLinkBack(PipeannNewNode *node, uint32 target, PipeannEffort effort)
{
	PipeannReverseEdge	edge;

	PipeannReverseEdgeInit(&node->view->meta.layout, &edge);
	for (int i = 0; i < MAX_TRIES || effort == PIPEANN_AS_TREE_EDGE; i++)
	{
		if (!PipeannPlanEdge(node, target, effort, &edge))
			return false;
		PipeannApplyEdges(node->view, &edge, 1);
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
	known = other == id || PipeannListFind(l, slot, other) >= 0;
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
bool
PipeannTakePlace(PipeannNewNode *node, PipeannReverseEdge *edge)
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
	PipeannApplyEdges(node->view, edge, 1);
	return edge->done;
}
