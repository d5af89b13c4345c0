/*
 * link.c
 *		Edges of a node inserted: its own list by exact distances, the edges
 *		back to it by code distances where a list is full.
 *
 * Distances of the new node's candidates are exact, their pages having just
 * been read. For a neighbour's full list that would take a read for each entry,
 * so its entries are decoded from their codes (FreshDiskANN's way). A full list
 * is pruned to less than it could hold, so that the next edges find room.
 *
 * A node's first edge back comes from its nearest neighbour and is guarded: it
 * stays whatever is pruned. So no insert makes a node unreachable.
 */
#include "postgres.h"

#include <math.h>

#include "am/link.h"
#include "am/pause.h"
#include "kernel/kernel.h"

/* Candidates looked at, as a multiple of ef_construction. */
#define MAX_CANDIDATES_FACTOR 2

/* Candidates whose pages are looked at for room in any case. */
#define NEAR_CANDIDATES 32

/* A list that others keep changing is given up after this many tries. */
#define MAX_TRIES 3

/*
 * Lengths that lists are filled up to with what pruning dropped: a new node's
 * own, and one that was full. Longer ones make better searches and dearer
 * inserts, as each edge added to a full list prunes it.
 */
#define OwnFill(l) ((l)->max_degree)
#define FullFill(l) ((l)->max_degree * 3 / 4)

/* Guarded edges that a list takes while another may: it needs others, too. */
#define WantedGuards(l) ((l)->max_degree / 2)

static float
EmbeddedDistance(const float *a, const float *b, int dim)
{
	return PipeannKernel->l2[PIPEANN_FLOAT4] (a, b, dim);
}

static PipeannLinkSet *
NewSet(const PipeannIndexView *view, int size)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannLinkSet *set = palloc(sizeof(PipeannLinkSet));

	set->n = 0;
	set->roomy_page = PIPEANN_INVALID_ID;
	set->dim = PipeannEmbeddedDim(l->metric, l->dim);
	set->ids = palloc(mul_size(size, sizeof(uint32)));
	set->dists = palloc(mul_size(size, sizeof(float)));
	set->vectors = PipeannAlloc(mul_size(mul_size(size, set->dim),
										 sizeof(float)));
	return set;
}

static void
FreeSet(PipeannLinkSet *set)
{
	pfree(set->ids);
	pfree(set->dists);
	pfree(set->vectors);
	pfree(set);
}

static float *
SetVector(const PipeannLinkSet *set, uint32 i)
{
	return set->vectors + (Size) i * set->dim;
}

/*
 * A vector, embedded. For inner product the part beyond its dimensions follows
 * from its norm and the largest one there is now.
 */
static void
EmbedVector(const PipeannIndexView *view, const float *x, float aux,
			float *out)
{
	const PipeannLayout *l = &view->meta.layout;

	if (l->metric == PIPEANN_IP)
		aux = PipeannAux(l->metric, PipeannNorm(x, l->dim),
						 view->meta.max_norm);
	PipeannEmbed(l->metric, l->dim, x, aux, out);
}

void
PipeannEmbedSlot(const PipeannIndexView *view, uint32 id,
				 const PipeannSlot *slot, float *x, float *out)
{
	const PipeannLayout *l = &view->meta.layout;

	if (!(slot->flags & PIPEANN_SLOT_WIDE) ||
		!PipeannChainVector(view, id, slot, x))
		PipeannVectorToFloat(PipeannSlotVector(l, slot), l->storage, l->dim, x);
	EmbedVector(view, x, slot->aux, out);
}

static bool
HasRoom(const PipeannLayout *l, const char *nodes)
{
	for (uint32 i = 0; i < l->slots_per_page; i++)
		if (!(PipeannSlotAt(l, nodes, i)->flags & PIPEANN_SLOT_USED))
			return true;
	return false;
}

/*
 * Whether the new node is to go to a candidate's page if that has room, when
 * `before` nearer ones' pages had none. Searches read fewer pages when nodes
 * share theirs with near ones: so rather than to a far page it goes to one of
 * its own, where others will join it, unless many slots are free already.
 */
static bool
WantsRoom(const PipeannIndexView *view, const PipeannLinkSet *set, int before)
{
	return set->roomy_page == PIPEANN_INVALID_ID &&
		view->meta.layout.node_pages == 1 &&
		(before < NEAR_CANDIDATES || PipeannHasSpareSlots(view));
}

/*
 * A graph page's slots: the search's own copy, else one in buffer.
 */
static const char *
PageAtHand(const PipeannIndexView *view, const PipeannSearch *search,
		   uint32 page, char *buffer)
{
	const char *nodes = PipeannSearchPage(search, page);

	if (nodes == NULL && PipeannGraphPageCopy(view, page, buffer))
		nodes = buffer;
	return nodes;
}

static void
AddCandidate(const PipeannIndexView *view, PipeannLinkSet *set, uint32 id,
			 const PipeannSlot *slot, const float *self, float *x)
{
	set->ids[set->n] = id;
	PipeannEmbedSlot(view, id, slot, x, SetVector(set, set->n));
	set->dists[set->n] = EmbeddedDistance(self, SetVector(set, set->n),
										  set->dim);
	set->n++;
}

PipeannLinkSet *
PipeannLinkCandidates(const PipeannIndexView *view, PipeannSearch *search,
					  const float *x, float aux)
{
	const PipeannLayout *l = &view->meta.layout;
	int			size = view->meta.ef_construction * MAX_CANDIDATES_FACTOR;
	PipeannLinkSet *set = NewSet(view, size);
	float	   *decoded = palloc(mul_size(l->dim, sizeof(float)));
	float	   *self = palloc(mul_size(set->dim, sizeof(float)));
	char	   *buffer = palloc((Size) l->node_pages * PIPEANN_PAYLOAD);
	const PipeannResult *result;

	EmbedVector(view, x, aux, self);
	for (int i = 0; (set->n < size || WantsRoom(view, set, i)) &&
		 (result = PipeannSearchPop(search)) != NULL; i++)
	{
		uint32		page = PipeannIdPage(l, result->id);
		const char *nodes = PageAtHand(view, search, page, buffer);
		const PipeannSlot *slot;

		CHECK_FOR_INTERRUPTS();
		if (nodes == NULL)
			continue;
		if (WantsRoom(view, set, i) && HasRoom(l, nodes))
			set->roomy_page = page;
		slot = PipeannSlotAt(l, nodes, PipeannIdSlot(l, result->id));
		if (set->n < size && PipeannSlotIsLive(slot))
			AddCandidate(view, set, result->id, slot, self, decoded);
	}
	pfree(decoded);
	pfree(self);
	pfree(buffer);
	return set;
}

static float
CandidateDistance(uint32 a, uint32 b, void *arg)
{
	const PipeannLinkSet *set = arg;

	return EmbeddedDistance(SetVector(set, a), SetVector(set, b), set->dim);
}

/*
 * Prune a set, of which the first `forced` stay, to a neighbour list.
 */
static int
PruneSet(const PipeannLinkSet *set, int forced, int max, int fill,
		 uint32 *out)
{
	PipeannPruneParams params = {PIPEANN_ALPHA, max, forced, fill};
	uint32	   *numbers = palloc(mul_size(set->n + 1, sizeof(uint32)));
	float	   *dists = palloc(mul_size(set->n + 1, sizeof(float)));
	int			n;

	for (int i = 0; i < set->n; i++)
	{
		numbers[i] = i;
		dists[i] = set->dists[i];
	}
	n = PipeannRobustPrune(numbers, dists, set->n, &params,
						   CandidateDistance, (void *) set, out);
	for (int i = 0; i < n; i++)
		out[i] = set->ids[out[i]];
	pfree(numbers);
	pfree(dists);
	return n;
}

void
PipeannLinkPrune(const PipeannIndexView *view, PipeannLinkSet *set,
				 PipeannSlot *slot)
{
	const PipeannLayout *l = &view->meta.layout;

	slot->degree = PruneSet(set, 0, l->max_degree, OwnFill(l),
							slot->neighbors);
}

static int
ListFind(const PipeannLayout *l, const PipeannSlot *slot, uint32 id)
{
	int			degree = PipeannSlotDegree(l, slot);

	for (int i = 0; i < degree; i++)
		if (slot->neighbors[i] == id)
			return i;
	return -1;
}

bool
PipeannEmbedNode(const PipeannIndexView *view, uint32 id, float *x, float *out)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannSlot *slot;

	if (view->image != NULL)
	{
		if (id >= view->codes.ncodes)
			return false;
		PipeannPqDecode(&view->codes.pq, PipeannCodeAt(&view->codes, id), x);
		EmbedVector(view, x, 1, out);
		return true;
	}
	slot = PipeannSlotAlloc(l);
	PipeannSlotCopy(view, id, slot);
	PipeannEmbedSlot(view, id, slot, x, out);
	pfree(slot);
	return true;
}

/*
 * A node while others' edges to it are made.
 */
typedef struct NewNode
{
	uint32		id;
	const float *embedded;		/* its vector */
	int			max_guards;		/* that a list may have for the node's to be
								 * added */
} NewNode;

/*
 * Make the edge at position `at` of a list the last of the guarded ones.
 */
static void
Guard(PipeannSlot *slot, int at)
{
	uint32		id = slot->neighbors[at];

	slot->neighbors[at] = slot->neighbors[slot->guards];
	slot->neighbors[slot->guards++] = id;
}

/*
 * Add one entry of target's list to the set that is pruned. False if its code
 * is not known yet.
 */
static bool
AddToSet(const PipeannIndexView *view, PipeannLinkSet *set,
		 const float *target, uint32 id, const NewNode *node, float *x)
{
	float	   *embedded = SetVector(set, set->n);

	if (id == node->id)
		memcpy(embedded, node->embedded, set->dim * sizeof(float));
	else if (!PipeannEmbedNode(view, id, x, embedded))
		return false;
	set->ids[set->n] = id;
	set->dists[set->n] = EmbeddedDistance(target, embedded, set->dim);
	set->n++;
	return true;
}

/*
 * What the full list of target, node id, becomes when the node joins it: guarded edges first,
 * `guards` of them. Edges to nodes whose code is not known yet stay as if they
 * were guarded. Returns the length.
 */
static int
PruneFullList(const PipeannIndexView *view, uint32 id,
			  const PipeannSlot *target, const NewNode *node, bool guarded,
			  uint32 *list, int *guards)
{
	const PipeannLayout *l = &view->meta.layout;
	int			degree = PipeannSlotDegree(l, target);
	PipeannLinkSet *set = NewSet(view, degree + 1);
	float	   *x = palloc(mul_size(l->dim, sizeof(float)));
	float	   *self = palloc(mul_size(set->dim, sizeof(float)));
	int			unknown = 0;
	int			forced;
	int			n;

	*guards = PipeannSlotGuards(l, target);
	PipeannEmbedSlot(view, id, target, x, self);
	for (int i = 0; i < *guards; i++)
		if (!AddToSet(view, set, self, target->neighbors[i], node, x))
			list[unknown++] = target->neighbors[i];
	if (guarded)
		(void) AddToSet(view, set, self, node->id, node, x);
	forced = set->n;
	for (int i = *guards; i < degree; i++)
		if (!AddToSet(view, set, self, target->neighbors[i], node, x))
			list[unknown++] = target->neighbors[i];
	if (!guarded)
		(void) AddToSet(view, set, self, node->id, node, x);
	*guards += guarded ? 1 : 0;
	n = unknown + PruneSet(set, forced, l->max_degree - unknown,
						   FullFill(l) - unknown, list + unknown);
	FreeSet(set);
	pfree(x);
	pfree(self);
	return n;
}

static bool
Contains(const uint32 *list, int n, uint32 id)
{
	for (int i = 0; i < n; i++)
		if (list[i] == id)
			return true;
	return false;
}

/*
 * Set target's list if it is still what `seen` has.
 */
static bool
ReplaceList(const PipeannIndexView *view, uint32 target,
			const PipeannSlot *seen, const uint32 *list, int n, int guards)
{
	PipeannSlotUpdate update;

	PipeannSlotBegin(view, target, &update);
	if (update.slot->degree != seen->degree ||
		update.slot->guards != seen->guards ||
		memcmp(update.slot->neighbors, seen->neighbors,
			   PipeannSlotDegree(&view->meta.layout, seen) *
			   sizeof(uint32)) != 0)
	{
		PipeannSlotAbort(&update);
		return false;
	}
	memcpy(update.slot->neighbors, list, n * sizeof(uint32));
	update.slot->degree = n;
	update.slot->guards = guards;
	PipeannSlotEnd(&update);
	return true;
}

typedef enum LinkResult
{
	LINK_DONE,
	LINK_REFUSED,
	LINK_FULL
} LinkResult;

/*
 * Add the edge if it is there already or the list has room for it.
 */
static LinkResult
AppendEdge(const PipeannIndexView *view, uint32 target, const NewNode *node,
		   bool guarded)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannSlotUpdate update;
	PipeannSlot *slot;
	LinkResult	result = LINK_DONE;
	bool		changed = false;
	int			at;

	PipeannSlotBegin(view, target, &update);
	slot = update.slot;
	at = ListFind(l, slot, node->id);
	if (!PipeannSlotIsNode(slot) ||
		(guarded && PipeannSlotGuards(l, slot) >= node->max_guards))
		result = LINK_REFUSED;
	else if (at < 0 && PipeannSlotDegree(l, slot) == l->max_degree)
		result = LINK_FULL;
	else
	{
		if (at < 0)
		{
			at = slot->degree++;
			slot->neighbors[at] = node->id;
			changed = true;
		}
		if (guarded && at >= slot->guards)
		{
			Guard(slot, at);
			changed = true;
		}
	}
	if (changed)
		PipeannSlotEnd(&update);
	else
		PipeannSlotAbort(&update);
	return result;
}

/*
 * Let target lead to the node. False if pruning finds it superfluous there
 * (never when guarded), target has all the guarded edges that it can take, or
 * its list keeps changing.
 */
static bool
LinkBack(const PipeannIndexView *view, uint32 target, const NewNode *node,
		 bool guarded)
{
	const PipeannLayout *l = &view->meta.layout;
	LinkResult	result = LINK_FULL;

	if (target == node->id)
		return false;
	for (int i = 0; i < MAX_TRIES && result == LINK_FULL; i++)
	{
		PipeannSlot *seen;
		uint32	   *list;
		int			guards;
		int			n;

		CHECK_FOR_INTERRUPTS();
		PIPEANN_PAUSE("insert-back-edge");
		result = AppendEdge(view, target, node, guarded);
		if (result != LINK_FULL)
			break;
		seen = PipeannSlotAlloc(l);
		list = palloc(l->max_degree * sizeof(uint32));
		PipeannSlotCopy(view, target, seen);
		n = PruneFullList(view, target, seen, node, guarded, list,
						  &guards);
		if (!Contains(list, n, node->id))
			result = LINK_REFUSED;
		else if (ReplaceList(view, target, seen, list, n, guards))
			result = LINK_DONE;
		pfree(seen);
		pfree(list);
	}
	return result == LINK_DONE;
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
 * Where no live node was found, as in an index just emptied: the nearest node
 * of the entry graph takes the new one. Those stay even when they are dead.
 */
static bool
LinkToEntry(const PipeannIndexView *view, const NewNode *node)
{
	const PipeannLayout *l = &view->meta.layout;
	int			dim = PipeannEmbeddedDim(l->metric, l->dim);
	float	   *x = palloc(mul_size(l->dim, sizeof(float)));
	float	   *other = palloc(mul_size(dim, sizeof(float)));
	uint32		nearest = PIPEANN_INVALID_ID;
	float		least = INFINITY;

	for (uint32 i = 0; i < view->codes.entry_count; i++)
	{
		uint32		id = view->codes.entry_ids[i];
		float		dist;

		if (id == node->id || !PipeannEmbedNode(view, id, x, other))
			continue;
		dist = EmbeddedDistance(node->embedded, other, dim);
		if (dist >= least)
			continue;
		nearest = id;
		least = dist;
	}
	pfree(x);
	pfree(other);
	return nearest != PIPEANN_INVALID_ID &&
		LinkBack(view, nearest, node, true);
}

static NewNode
MakeNode(const PipeannIndexView *view, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &view->meta.layout;
	float	   *x = palloc(mul_size(l->dim, sizeof(float)));
	float	   *embedded = palloc(mul_size(PipeannEmbeddedDim(l->metric,
															 l->dim),
										   sizeof(float)));
	NewNode		node = {id, embedded, WantedGuards(l)};

	PipeannEmbedSlot(view, id, slot, x, embedded);
	pfree(x);
	return node;
}

/*
 * The nearest neighbour that can guards the edge to the node.
 */
void
PipeannLinkNode(const PipeannIndexView *view, uint32 id,
				const PipeannSlot *slot)
{
	const PipeannLayout *l = &view->meta.layout;
	int			degree = PipeannSlotDegree(l, slot);
	NewNode		node = MakeNode(view, id, slot);
	bool		guarded = false;

	for (int i = 0; i < degree; i++)
	{
		if (!guarded && LinkBack(view, slot->neighbors[i], &node, true))
			guarded = true;
		else
			(void) LinkBack(view, slot->neighbors[i], &node, false);
	}
	node.max_guards = l->max_degree;
	for (int i = 0; i < degree && !guarded; i++)
		guarded = LinkBack(view, slot->neighbors[i], &node, true);
	if (!guarded)
		(void) LinkToEntry(view, &node);
}

/*
 * Let the node lead to another, in place of its last edge if its list is full.
 * False if all of them are guarded.
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
	if (known || (full && PipeannSlotGuards(l, slot) == l->max_degree))
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
TakePlace(const PipeannIndexView *view, uint32 target, const NewNode *node)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannSlot *seen = PipeannSlotAlloc(l);
	uint32	   *list = palloc(l->max_degree * sizeof(uint32));
	int			n;
	int			guards;
	bool		done = false;

	PipeannSlotCopy(view, target, seen);
	n = PipeannSlotDegree(l, seen);
	guards = PipeannSlotGuards(l, seen);
	if (PipeannSlotIsNode(seen) && guards < n &&
		LeadTo(view, node->id, seen->neighbors[n - 1]))
	{
		memcpy(list, seen->neighbors, n * sizeof(uint32));
		list[n - 1] = list[guards];
		list[guards] = node->id;
		done = ReplaceList(view, target, seen, list, n, guards + 1);
	}
	pfree(seen);
	pfree(list);
	return done;
}

bool
PipeannLinkEdge(const PipeannIndexView *view, uint32 target, uint32 id,
				const PipeannSlot *slot)
{
	NewNode		node = MakeNode(view, id, slot);
	LinkResult	result;

	if (target == id)
		return false;
	result = AppendEdge(view, target, &node, true);
	return result == LINK_DONE ||
		(result == LINK_FULL && TakePlace(view, target, &node));
}

bool
PipeannLinkEntry(const PipeannIndexView *view, uint32 id,
				 const PipeannSlot *slot)
{
	NewNode		node = MakeNode(view, id, slot);

	return LinkToEntry(view, &node);
}
