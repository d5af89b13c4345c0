/*
 * link.c
 *		Choosing a new node's neighbours, and making the edges that lead to it.
 *
 * src/README, "insert/", describes the steps.
 */
#include "postgres.h"

#include <math.h>

#include "base/id_set.h"
#include "distance/distance.h"
#include "insert/link.h"
#include "miscadmin.h"

/*
 * Candidates to look at, as a multiple of ef_construction. Wide vectors get as many as
 * in a build: more do not lead to better neighbours, and pruning takes twice as long.
 */
#define MAX_CANDIDATES_FACTOR 2

/* Candidates whose pages are always checked for room. */
#define NEAR_CANDIDATES 32

/* Bytes of a slot up to the end of its list, which a set keeps of each candidate. */
static Size
ListBytes(const PipeannLayout *l)
{
	return PIPEANN_SLOT_HEADER + mul_size(l->max_degree, sizeof(uint32));
}

static PipeannSlot *
SlotSeen(const PipeannLayout *l, const PipeannLinkSet *set, int i)
{
	return (PipeannSlot *) (set->lists + i * ListBytes(l));
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
 * Whether to look for room on a candidate's page, after the pages of `before`
 * nearer candidates had none.
 */
static bool
WantsRoom(const PipeannIndexView *view, const PipeannLinkSet *set, int before)
{
	return set->roomy_page == PIPEANN_INVALID_ID &&
		view->meta.layout.node_pages == 1 &&
		(before < NEAR_CANDIDATES || PipeannHasSpareSlots(view));
}

/*
 * The slot of candidate id, or NULL. If wants_room, its page is noted as roomy_page
 * if it has room. A page that the search does not hold is read into buffer.
 */
static const PipeannSlot *
SlotAtHand(const PipeannIndexView *view, PipeannSearch *search, uint32 id,
		   bool wants_room, PipeannLinkSet *set, char *buffer)
{
	const PipeannLayout *l = &view->meta.layout;
	uint32		page = PipeannIdPage(l, id);
	const PipeannSlot *slot = wants_room ? NULL : PipeannSearchLoadSlot(search, id);
	const char *nodes;

	if (slot != NULL)
		return slot;
	nodes = PipeannSearchPage(search, page);
	if (nodes == NULL && !PipeannGraphPageCopy(view, page, buffer))
		return NULL;
	nodes = nodes == NULL ? buffer : nodes;
	if (wants_room && HasRoom(l, nodes))
		set->roomy_page = page;
	return PipeannSlotAt(l, nodes, PipeannIdSlot(l, id));
}

/* Add a node, with its distance from self. Keeps the pointer. Returns its number. */
static int
AddNode(PipeannLinkSet *set, uint32 id, void *vector)
{
	if (set->n == set->size)
	{
		set->size *= 2;
		set->ids = repalloc(set->ids, mul_size(set->size, sizeof(uint32)));
		set->dists = repalloc(set->dists, mul_size(set->size, sizeof(float)));
		set->vectors = repalloc(set->vectors, mul_size(set->size, sizeof(void *)));
	}
	set->ids[set->n] = id;
	set->vectors[set->n] = vector;
	set->dists[set->n] = set->pair(set->self, vector, set->dim);
	return set->n++;
}

/* Bytes cover this many standard deviations of the elements of the farthest candidate. */
#define DEVIATIONS 6
#define MOST_BYTE 127

/*
 * Clamp to bytes, sixteen at a time so that compilers vectorise it: the
 * dimension of wide vectors is a multiple of that (PipeannSqSuits()).
 */
static void
Narrow(const int16 *restrict from, int8 *restrict to, int dim)
{
	for (int8 *end = to + dim; to < end; to += 16, from += 16)
		for (int k = 0; k < 16; k++)
		{
			int16		most = Min(from[k], MOST_BYTE);

			to[k] = (int8) Max(most, -MOST_BYTE);
		}
}

/*
 * Compare wide vectors as bytes: their differences from the new node's vector, in a scale
 * in which the farthest fits. They are rotated, so their elements are of similar size.
 * Distances from the new node remain exact, as these decide which candidates are nearer.
 */
static void
ToBytes(PipeannLinkSet *set)
{
	int16	   *fixed = palloc(mul_size(set->dim, sizeof(int16)));
	float		farthest = 0;
	float		scale;

	for (int i = 0; i < set->n; i++)
		farthest = Max(farthest, set->dists[i]);
	scale = MOST_BYTE / (DEVIATIONS * sqrtf(farthest / set->dim));
	if (!isfinite(scale) || !isfinite(farthest))
		return;
	set->pair = PipeannKernel->l2_pair[PIPEANN_INT8];
	for (int i = 0; i < set->n; i++)
	{
		int8	   *bytes = palloc(set->dim);

		PipeannKernel->to_fixed(set->vectors[i], set->self, scale, set->dim, fixed);
		Narrow(fixed, bytes, set->dim);
		set->vectors[i] = bytes;
		set->dists[i] *= scale * scale;
	}
}

/*
 * Make a set of the nearest results of a search. Pages that the search does not
 * hold, as after PipeannSearchExact(), are read.
 */
PipeannLinkSet *
PipeannLinkCandidates(const PipeannIndexView *view, PipeannSearch *search,
					  const float *x, float aux)
{
	const PipeannLayout *l = &view->meta.layout;
	int			most = PipeannEfConstruction(view) * (PipeannIsWide(l) ? 1 : MAX_CANDIDATES_FACTOR);
	PipeannLinkSet *set = palloc0(sizeof(PipeannLinkSet));
	float	   *decoded = palloc(mul_size(l->dim, sizeof(float)));
	char	   *buffer = palloc((Size) l->node_pages * PIPEANN_PAYLOAD);
	const PipeannResult *result;

	set->roomy_page = PIPEANN_INVALID_ID;
	set->pair = PipeannEmbeddedPair(l);
	set->dim = PipeannEmbeddedDim(l->metric, l->dim);
	set->size = most;
	set->ids = palloc(mul_size(most, sizeof(uint32)));
	set->dists = palloc(mul_size(most, sizeof(float)));
	set->vectors = palloc(mul_size(most, sizeof(void *)));
	set->lists = palloc(mul_size(most, ListBytes(l)));
	set->self = palloc(PipeannEmbeddedBytes(l));
	PipeannEmbed(view, x, aux, set->self);
	for (int i = 0; (set->n < most || WantsRoom(view, set, i)) &&
		 (result = PipeannSearchPop(search)) != NULL; i++)
	{
		const PipeannSlot *slot = SlotAtHand(view, search, result->id,
											 WantsRoom(view, set, i), set, buffer);

		CHECK_FOR_INTERRUPTS();
		if (set->n < most && slot != NULL && PipeannSlotIsLive(slot))
		{
			void	   *vector = palloc(PipeannEmbeddedBytes(l));

			PipeannEmbedAsStored(view, result->id, slot, decoded, vector);
			memcpy(SlotSeen(l, set, set->n), slot, ListBytes(l));
			(void) AddNode(set, result->id, vector);
		}
	}
	set->ncandidates = set->n;
	/* an embedded vector for inner product has one more element, which is not rotated */
	if (PipeannIsWide(l) && set->dim == l->dim)
		ToBytes(set);
	pfree(decoded);
	pfree(buffer);
	return set;
}

/* Candidates are numbered from the last one. */
static float
CandidateDistance(uint32 a, uint32 b, void *arg)
{
	const PipeannLinkSet *set = arg;
	int			last = set->n - 1;

	return set->pair(set->vectors[last - a], set->vectors[last - b], set->dim);
}

/*
 * Prune the set into slot's neighbour list: first the neighbours that pruning
 * keeps, then the nearest of the others. The node itself, which the search
 * finds if an earlier insert of it was interrupted, is skipped.
 *
 * Of equally far candidates pruning takes the one with the lowest number,
 * which is the last. So where rounding makes many vectors equal, each leads to
 * the one before: the list of the first would have no room for all.
 */
void
PipeannLinkPrune(const PipeannIndexView *view, PipeannLinkSet *set,
				 uint32 self, PipeannSlot *slot)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannPruneParams params = {PIPEANN_ALPHA, l->max_degree};
	uint32	   *numbers = palloc(mul_size(set->n + 1, sizeof(uint32)));
	float	   *dists = palloc(mul_size(set->n + 1, sizeof(float)));
	int			n = 0;

	for (int i = 0; i < set->n; i++)
	{
		if (set->ids[i] == self)
			continue;
		numbers[n] = set->n - 1 - i;
		dists[n++] = set->dists[i];
	}
	set->needed = PipeannRobustPrune(numbers, dists, n, &params, CandidateDistance, set,
									 slot->neighbors);
	for (int i = 0; i < set->needed; i++)
		slot->neighbors[i] = set->ids[set->n - 1 - slot->neighbors[i]];
	slot->degree = set->needed;

	/* candidates are sorted, nearest first */
	for (int i = 0; i < set->n && slot->degree < l->max_degree; i++)
		if (set->ids[i] != self &&
			!PipeannListHas(slot->neighbors, set->needed, set->ids[i]))
			slot->neighbors[slot->degree++] = set->ids[i];
	pfree(numbers);
	pfree(dists);
}

/* ---------- edges that lead to a node ---------- */

/* A node, while edges that lead to it are made. */
typedef struct NewNode
{
	const PipeannIndexView *view;
	uint32		id;
	const PipeannSlot *slot;	/* a copy of its slot */
	PipeannLinkSet *set;		/* nodes near it, and others once they were looked at */
	PipeannIdSet numbers;		/* in the set, by id */
	float	   *x;				/* work space */
} NewNode;

/* What may be done to a target's list to make the edge. */
typedef enum Effort
{
	PIPEANN_IF_ROOM,			/* a full list stays as it is */
	PIPEANN_REPLACE,			/* if the node makes a neighbour superfluous */
	PIPEANN_FORCE				/* the edge is made in any case */
} Effort;

/* Initial room of the set's numbers by id. */
#define FIRST_NUMBERS 512

/*
 * An edge that need not be made is given up after this many tries. Each time
 * that it fails, another backend has made its change.
 */
#define MAX_TRIES 3

/*
 * Get a slot's list: the current one if an edge is tried again, else as the
 * search saw it, without the rest of the slot. If that has changed since, the
 * edge is not made, but tried again.
 */
static void
SeeList(const NewNode *node, uint32 target, bool again, PipeannSlot *slot)
{
	const PipeannLayout *l = &node->view->meta.layout;
	uint32		at;

	if (!again && PipeannIdSetGet(&node->numbers, target, &at) &&
		(int) at < node->set->ncandidates)
		memcpy(slot, SlotSeen(l, node->set, at), ListBytes(l));
	else
		PipeannSlotCopy(node->view, target, slot);
}

/* Whether a node's first neighbour, mostly its nearest one, is target. */
static bool
IsLedToFirst(const NewNode *node, uint32 id, uint32 target)
{
	const PipeannLayout *l = &node->view->meta.layout;
	PipeannSlot *slot;
	bool		first;

	if (id >= PipeannViewIds(node->view))
		return true;
	slot = PipeannSlotAlloc(l);
	SeeList(node, id, false, slot);
	first = PipeannSlotIsNode(slot) && PipeannSlotDegree(l, slot) > 0 &&
		slot->neighbors[0] == target;
	pfree(slot);
	return first;
}

/* Add those of ids[n] to the set that are not in it, decoded from their codes if there are any. */
static void
LookAt(NewNode *node, const uint32 *ids, int n)
{
	const PipeannCodes *codes = &node->view->codes;
	uint32		wanted[PG_UINT8_MAX];
	const uint8 *found[PG_UINT8_MAX];
	int			nwanted = 0;
	uint32		at;

	for (int i = 0; i < n; i++)
		if (!PipeannIdSetGet(&node->numbers, ids[i], &at) &&
			(node->view->cache == NULL || ids[i] < codes->ncodes))
			wanted[nwanted++] = ids[i];
	if (node->view->cache != NULL)
	{
		PipeannGatherCodes(codes, wanted, nwanted, found);
		for (int i = 0; i < nwanted; i++)
			for (int c = PIPEANN_CACHE_LINE; c < codes->pq.nsubvectors; c += PIPEANN_CACHE_LINE)
				__builtin_prefetch(found[i] + c);
	}
	for (int i = 0; i < nwanted; i++)
	{
		void	   *vector = palloc(PipeannEmbeddedBytes(&node->view->meta.layout));

		if (PipeannEmbedNode(node->view, wanted[i], node->x, vector))
			PipeannIdSetPut(&node->numbers, wanted[i], AddNode(node->set, wanted[i], vector));
	}
}

/* The neighbours of a full list: their numbers in the set, and distances, infinite if not known. */
typedef struct FullList
{
	uint32		numbers[PG_UINT8_MAX];
	float		from_target[PG_UINT8_MAX];
	float		from_node[PG_UINT8_MAX];
} FullList;

static void
Measure(const NewNode *node, const PipeannListChange *edge, uint32 target, FullList *list)
{
	const PipeannLinkSet *set = node->set;

	for (int i = 0; i < edge->n; i++)
	{
		uint32	   *other = &list->numbers[i];

		list->from_node[i] = list->from_target[i] = INFINITY;
		if (!PipeannIdSetGet(&node->numbers, edge->list[i], other))
			continue;
		list->from_node[i] = set->dists[*other];
		list->from_target[i] = set->pair(set->vectors[target], set->vectors[*other], set->dim);
	}
}

/*
 * The place of the neighbour that gives way to the new node. One whose own nearest
 * neighbour is the target stays: the edge may be the only one that leads to it.
 */
static int
GivesWay(const NewNode *node, const PipeannListChange *edge, FullList *list, float own)
{
	int			place;

	while ((place = PipeannGivesWay(list->from_target, list->from_node, edge->n, own)) >= 0 &&
		   IsLedToFirst(node, edge->list[place], edge->target))
		list->from_node[place] = INFINITY;
	return place;
}

/*
 * Remove neighbours that others make superfluous by RobustPrune's rule, and that
 * only fill the list, from the last one on, until it has no more than `most`.
 */
static void
MakeRoom(const NewNode *node, PipeannListChange *edge, FullList *list, int most)
{
	const PipeannLinkSet *set = node->set;
	float	   *dists = list->from_target;

	for (int i = edge->n - 1; i > 0 && edge->n > most; i--)
	{
		bool		superfluous = false;

		for (int j = 0; j < edge->n && isfinite(dists[i]) && !superfluous; j++)
			superfluous = j != i && dists[j] <= dists[i] &&
				PIPEANN_ALPHA * set->pair(set->vectors[list->numbers[i]],
										  set->vectors[list->numbers[j]], set->dim) <= dists[i];
		if (!superfluous || IsLedToFirst(node, edge->list[i], edge->target))
			continue;
		edge->n--;
		edge->list[i] = edge->list[edge->n];
		list->numbers[i] = list->numbers[edge->n];
		dists[i] = dists[edge->n];
	}
}

/* What is left of a full list that has to take a node, so that the next edges find room, too. */
#define LEFT(n) ((n) * 3 / 4)

/*
 * The place that the node takes in a full list, or less than 0 if none. Candidates decide
 * it if they can. If not, the neighbours are looked at as well, except wide vectors, which
 * are far from the node and have long codes. If none gives way to the node, and none makes
 * it superfluous, a neighbour that others make superfluous has to go.
 */
static int
PlaceInFull(NewNode *node, bool forced, PipeannListChange *edge)
{
	bool		wide = PipeannIsWide(&node->view->meta.layout);
	FullList	list;			/* of 2 kB, so not zeroed */
	uint32		target;
	int			place;

	if (!wide)
		LookAt(node, &edge->target, 1);
	if (!PipeannIdSetGet(&node->numbers, edge->target, &target))
		return forced ? edge->n - 1 : PIPEANN_SUPERFLUOUS;
	Measure(node, edge, target, &list);
	place = GivesWay(node, edge, &list, node->set->dists[target]);
	if (place == PIPEANN_UNDECIDED && !wide)
	{
		LookAt(node, edge->list, edge->n);
		Measure(node, edge, target, &list);
		place = GivesWay(node, edge, &list, node->set->dists[target]);
	}
	if (place == PIPEANN_UNDECIDED || (place < 0 && forced))
	{
		MakeRoom(node, edge, &list, forced ? LEFT(edge->n) : edge->n - 1);
		if (edge->n < node->view->meta.layout.max_degree)
			place = edge->n++;
	}
	return place < 0 && forced ? edge->n - 1 : place;
}

/*
 * Plan an edge from target, again or for the first time, on a copy of its list. False if there
 * is to be none: no neighbour gives way, or target is no node.
 */
static bool
PlanEdge(NewNode *node, uint32 target, Effort effort, bool again,
		 PipeannListChange *edge)
{
	const PipeannLayout *l = &node->view->meta.layout;
	int			place;

	edge->target = target;
	edge->done = false;
	edge->seen = PipeannSlotAlloc(l);
	edge->list = palloc(l->max_degree * sizeof(uint32));
	SeeList(node, target, again, edge->seen);
	if (!PipeannSlotIsNode(edge->seen) || target == node->id)
		return false;
	edge->n = PipeannSlotDegree(l, edge->seen);
	memcpy(edge->list, edge->seen->neighbors, edge->n * sizeof(uint32));
	if (PipeannListHas(edge->list, edge->n, node->id))
		return true;
	if (edge->n < l->max_degree)
		place = edge->n++;
	else
		place = effort == PIPEANN_IF_ROOM ? -1 : PlaceInFull(node, effort == PIPEANN_FORCE, edge);
	if (place >= 0)
		edge->list[place] = node->id;
	return place >= 0;
}

/* Make one edge, and try again while other backends change the list. */
static void
LinkBack(NewNode *node, uint32 target, Effort effort)
{
	PipeannListChange edge;

	for (int i = 0; i < MAX_TRIES || effort == PIPEANN_FORCE; i++)
	{
		if (!PlanEdge(node, target, effort, true, &edge))
			return;
		PipeannChangeLists(node->view, &edge, 1, NULL);
		if (edge.done)
			return;
	}
}

/* The nearest node of the entry graph, or INVALID_ID. */
static uint32
NearestEntry(NewNode *node)
{
	const PipeannCodes *codes = &node->view->codes;
	const PipeannLayout *l = &node->view->meta.layout;
	void	   *self = palloc(PipeannEmbeddedBytes(l));
	void	   *other = palloc(PipeannEmbeddedBytes(l));
	uint32		nearest = PIPEANN_INVALID_ID;
	float		least = INFINITY;

	PipeannEmbedSlot(node->view, node->id, node->slot, node->x, self);
	for (uint32 i = 0; i < codes->entry_count; i++)
	{
		uint32		id = codes->entry_ids[i];
		float		dist;

		CHECK_FOR_INTERRUPTS();
		if (id == node->id || !PipeannEmbedNode(node->view, id, node->x, other))
			continue;
		dist = PipeannEmbeddedPair(l) (self, other, PipeannEmbeddedDim(l->metric, l->dim));
		if (dist >= least)
			continue;
		nearest = id;
		least = dist;
	}
	return nearest;
}

/*
 * Make the edges that lead to node id from the neighbours in its list; set is what
 * PipeannLinkPrune() has chosen them from. The nearest one always takes the node, so that some
 * edge leads to it. A node without neighbours, as in an index just emptied, is led to by the
 * nearest node of the entry graph, which stays even if it is dead.
 */
void
PipeannLinkNode(const PipeannIndexView *view, uint32 id,
				const PipeannSlot *slot, PipeannLinkSet *set)
{
	const PipeannLayout *l = &view->meta.layout;
	NewNode		node = {view, id, slot, set};
	int			degree = PipeannSlotDegree(l, slot);
	PipeannListChange *edges = palloc(degree * sizeof(PipeannListChange));
	uint32		nearest;
	int			n = 0;

	node.x = palloc(mul_size(l->dim, sizeof(float)));
	PipeannIdSetInit(&node.numbers, FIRST_NUMBERS, true);
	for (int i = 0; i < set->n; i++)
		PipeannIdSetPut(&node.numbers, set->ids[i], i);
	nearest = degree > 0 ? slot->neighbors[0] : NearestEntry(&node);
	if (degree == 0 && nearest != PIPEANN_INVALID_ID)
		LinkBack(&node, nearest, PIPEANN_FORCE);
	for (int i = 0; i < degree; i++)
		if (PlanEdge(&node, slot->neighbors[i], i == 0 ? PIPEANN_FORCE :
					 i < set->needed ? PIPEANN_REPLACE : PIPEANN_IF_ROOM, false, &edges[n]))
			n++;
	PipeannChangeLists(view, edges, n, NULL);
	for (int i = 0; i < n; i++)
		if (!edges[i].done)
			LinkBack(&node, edges[i].target,
					 edges[i].target == nearest ? PIPEANN_FORCE : PIPEANN_REPLACE);
}
