/*
 * link.c
 *		Edges of a node inserted: its own list by exact distances, the edges
 *		back to it by code distances where a list is full.
 *
 * Distances of the new node's candidates are exact, their pages having just
 * been read. For a neighbour's full list that would take a read for each entry,
 * so its entries are decoded from their codes (FreshDiskANN's way).
 *
 * No insert makes a node unreachable: a full list gives up one entry only for
 * the new node, and only one that the new node leads to.
 */
#include "postgres.h"

#include <math.h>

#include "am/link.h"
#include "kernel/kernel.h"

/* Candidates looked at, as a multiple of ef_construction. */
#define MAX_CANDIDATES_FACTOR 2

/* A list that others keep changing is given up after this many tries. */
#define MAX_TRIES 3

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
 * A slot's vector, embedded. (A wide one's rounded vector is good enough for
 * choosing edges.)
 */
static void
EmbedSlot(const PipeannLayout *l, const PipeannSlot *slot, float *x,
		  float *out)
{
	PipeannVectorToFloat(PipeannSlotVector(l, slot), l->storage, l->dim, x);
	PipeannEmbed(l->metric, l->dim, x, slot->aux, out);
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
	const PipeannResult *result;

	PipeannEmbed(l->metric, l->dim, x, aux, self);
	while (set->n < size && (result = PipeannSearchPop(search)) != NULL)
	{
		const PipeannSlot *slot = PipeannSearchSlot(search, result->id);

		if (slot == NULL)
			continue;
		set->ids[set->n] = result->id;
		EmbedSlot(l, slot, decoded, SetVector(set, set->n));
		set->dists[set->n] = EmbeddedDistance(self, SetVector(set, set->n),
											  set->dim);
		set->n++;
	}
	pfree(decoded);
	pfree(self);
	return set;
}

static float
CandidateDistance(uint32 a, uint32 b, void *arg)
{
	const PipeannLinkSet *set = arg;

	return EmbeddedDistance(SetVector(set, a), SetVector(set, b), set->dim);
}

/*
 * Prune a set to at most max ids.
 */
static int
PruneSet(const PipeannLinkSet *set, int max, uint32 *out)
{
	uint32	   *numbers = palloc(mul_size(set->n + 1, sizeof(uint32)));
	float	   *dists = palloc(mul_size(set->n + 1, sizeof(float)));
	int			n;

	for (int i = 0; i < set->n; i++)
	{
		numbers[i] = i;
		dists[i] = set->dists[i];
	}
	n = PipeannRobustPrune(numbers, dists, set->n, PIPEANN_ALPHA, max,
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
	slot->degree = PruneSet(set, view->meta.layout.max_degree,
							slot->neighbors);
}

static bool
ListHas(const PipeannLayout *l, const PipeannSlot *slot, uint32 id)
{
	int			degree = PipeannSlotDegree(l, slot);

	for (int i = 0; i < degree; i++)
		if (slot->neighbors[i] == id)
			return true;
	return false;
}

/*
 * A node's vector from its code, embedded.
 */
static void
EmbedCode(const PipeannIndexView *view, uint32 id, float *x, float *out)
{
	const PipeannLayout *l = &view->meta.layout;
	float		aux = 1;

	PipeannPqDecode(&view->codes.pq, PipeannCodeAt(&view->codes, id), x);
	if (l->metric == PIPEANN_IP)
		aux = PipeannAux(l->metric, PipeannNorm(x, l->dim),
						 view->meta.max_norm);
	PipeannEmbed(l->metric, l->dim, x, aux, out);
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
 * Which of the set, pruned to list[n], has to go: the farthest of those left
 * out that the new node leads to already, else the farthest of all left out.
 */
static uint32
ChooseVictim(const PipeannLinkSet *set, const uint32 *list, int n,
			 const PipeannSlot *own)
{
	int			victim = -1;
	bool		victim_known = false;

	for (int i = 0; i < set->n; i++)
	{
		bool		known = Contains(own->neighbors, own->degree, set->ids[i]);

		if (Contains(list, n, set->ids[i]))
			continue;
		if (victim < 0 || (known && !victim_known) ||
			(known == victim_known && set->dists[i] > set->dists[victim]))
		{
			victim = i;
			victim_known = known;
		}
	}
	return victim < 0 ? PIPEANN_INVALID_ID : set->ids[victim];
}

/*
 * Who has to leave target's full list when new node id joins it: id itself if
 * pruning finds it superfluous.
 */
static uint32
FindVictim(const PipeannIndexView *view, const PipeannSlot *target, uint32 id,
		   const PipeannSlot *own)
{
	const PipeannLayout *l = &view->meta.layout;
	int			degree = PipeannSlotDegree(l, target);
	PipeannLinkSet *set = NewSet(view, degree + 1);
	uint32	   *list = palloc((degree + 1) * sizeof(uint32));
	float	   *x = palloc(mul_size(l->dim, sizeof(float)));
	float	   *self = palloc(mul_size(set->dim, sizeof(float)));
	uint32		victim;
	int			n;

	EmbedSlot(l, target, x, self);
	for (int i = 0; i <= degree; i++)
	{
		uint32		other = i < degree ? target->neighbors[i] : id;

		if (other >= view->codes.ncodes)
			continue;
		set->ids[set->n] = other;
		EmbedCode(view, other, x, SetVector(set, set->n));
		set->dists[set->n] = EmbeddedDistance(self, SetVector(set, set->n),
											  set->dim);
		set->n++;
	}
	n = PruneSet(set, l->max_degree, list);
	victim = Contains(list, n, id) ? ChooseVictim(set, list, n, own) : id;
	FreeSet(set);
	pfree(list);
	pfree(x);
	pfree(self);
	return victim;
}

/*
 * Set target's list if it is still what `seen` has.
 */
static bool
ReplaceList(const PipeannIndexView *view, uint32 target,
			const PipeannSlot *seen, const uint32 *list, int n)
{
	PipeannSlotUpdate update;
	int			degree = PipeannSlotDegree(&view->meta.layout, seen);

	PipeannSlotBegin(view, target, &update);
	if (update.slot->degree != seen->degree ||
		memcmp(update.slot->neighbors, seen->neighbors,
			   degree * sizeof(uint32)) != 0)
	{
		PipeannSlotAbort(&update);
		return false;
	}
	memcpy(update.slot->neighbors, list, n * sizeof(uint32));
	update.slot->degree = n;
	PipeannSlotEnd(&update);
	return true;
}

/*
 * The new node while its edges are made. own is its slot as we know it. The
 * last `pinned` entries of its list took over from others' lists and must
 * stay.
 */
typedef struct NewNode
{
	uint32		id;
	PipeannSlot *own;
	int			pinned;
} NewNode;

/*
 * Let the new node lead to another, in place of its last edge that may go if
 * its list is full. False if none may.
 */
static bool
Pin(const PipeannIndexView *view, NewNode *node, uint32 neighbor)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannSlotUpdate update;
	int			degree;
	int			at;

	PipeannSlotBegin(view, node->id, &update);
	degree = PipeannSlotDegree(l, update.slot);
	if (ListHas(l, update.slot, neighbor) || neighbor == node->id)
	{
		PipeannSlotAbort(&update);
		return true;
	}
	if (degree == l->max_degree && node->pinned >= degree / 2)
	{
		PipeannSlotAbort(&update);
		return false;
	}
	if (degree < l->max_degree)
		at = update.slot->degree++;
	else
	{
		/* the pinned ones move down, the new one is last */
		at = degree - 1;
		memmove(&update.slot->neighbors[at - node->pinned],
				&update.slot->neighbors[at - node->pinned + 1],
				node->pinned * sizeof(uint32));
	}
	update.slot->neighbors[at] = neighbor;
	node->pinned++;
	memcpy(node->own, update.slot,
		   PIPEANN_SLOT_HEADER + l->max_degree * sizeof(uint32));
	PipeannSlotEnd(&update);
	return true;
}

/*
 * Replace victim in a list by id, or append id when there is no victim.
 */
static int
Substitute(uint32 *list, int n, uint32 victim, uint32 id)
{
	for (int i = 0; i < n && victim != PIPEANN_INVALID_ID; i++)
		if (list[i] == victim)
		{
			list[i] = id;
			return n;
		}
	list[n] = id;
	return n + 1;
}

/*
 * Let target lead to the new node. False if pruning finds it superfluous there
 * (never when forced: then target's last entry goes), or the list keeps
 * changing.
 */
static bool
LinkBack(const PipeannIndexView *view, uint32 target, NewNode *node,
		 bool force)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannSlot *seen = PipeannSlotAlloc(l);
	uint32	   *list = palloc(l->max_degree * sizeof(uint32));
	bool		linked = false;

	for (int i = 0; i < MAX_TRIES && !linked; i++)
	{
		uint32		victim = PIPEANN_INVALID_ID;
		int			n;

		CHECK_FOR_INTERRUPTS();
		PipeannSlotCopy(view, target, seen);
		if (!PipeannSlotIsNode(seen) || target == node->id)
			break;
		if (ListHas(l, seen, node->id))
		{
			linked = true;
			break;
		}
		n = PipeannSlotDegree(l, seen);
		if (n == l->max_degree)
		{
			victim = FindVictim(view, seen, node->id, node->own);
			if (victim == node->id && force)
				victim = seen->neighbors[n - 1];
			if (victim == node->id || victim == PIPEANN_INVALID_ID ||
				!Pin(view, node, victim))
				break;
		}
		memcpy(list, seen->neighbors, n * sizeof(uint32));
		n = Substitute(list, n, victim, node->id);
		linked = ReplaceList(view, target, seen, list, n);
	}
	pfree(seen);
	pfree(list);
	return linked;
}

/*
 * Whether one of a node's neighbours leads back to it: so it is with nearly
 * every node, mostly from its first neighbour, so this reads little.
 */
static bool
IsLinked(const PipeannIndexView *view, uint32 id, PipeannSlot *slot)
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
		linked = PipeannSlotIsNode(other) && ListHas(l, other, id);
	}
	pfree(other);
	return linked;
}

static void
WriteNodeCode(PipeannIndexView *view, uint32 id, const float *query)
{
	uint8	   *code = palloc(view->meta.layout.pq_bytes);

	PipeannPqEncode(&view->codes.pq, query, code);
	PipeannPlaceCode(view, id, code);
	pfree(code);
}

void
PipeannLinkNode(PipeannIndexView *view, uint32 id, PipeannSlot *slot,
				const float *query)
{
	const PipeannLayout *l = &view->meta.layout;
	int			degree = PipeannSlotDegree(l, slot);
	uint32	   *targets = palloc(Max(degree, 1) * sizeof(uint32));
	NewNode		node = {id, slot, 0};
	bool		linked = false;

	/* slot's list changes on the way */
	memcpy(targets, slot->neighbors, degree * sizeof(uint32));
	WriteNodeCode(view, id, query);
	for (int i = 0; i < degree; i++)
		if (LinkBack(view, targets[i], &node, false))
			linked = true;
	for (int i = 0; i < degree && !linked; i++)
		linked = LinkBack(view, targets[i], &node, true);
	pfree(targets);
}

void
PipeannLinkIfUnlinked(PipeannIndexView *view, uint32 id, const float *query)
{
	PipeannSlot *slot = PipeannSlotAlloc(&view->meta.layout);

	if (!IsLinked(view, id, slot))
		PipeannLinkNode(view, id, slot, query);
	pfree(slot);
}
