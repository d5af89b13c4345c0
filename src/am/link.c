/*
 * link.c
 *		Edges of a node inserted: its own list by exact distances, the edges
 *		back to it by code distances where a list is full.
 *
 * Distances of the new node's candidates are exact, their pages having just
 * been read. For a neighbour's full list that would take a read for each entry,
 * so its entries are decoded from their codes (FreshDiskANN's way).
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

	PipeannPqDecode(&view->codes.pq, PipeannCodeAt(&view->codes, id), x);
	PipeannEmbed(l->metric, l->dim, x,
				 l->metric == PIPEANN_COSINE ? 1 :
				 PipeannAux(l->metric, PipeannNorm(x, l->dim),
							view->meta.max_norm), out);
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
 * Fill a pruned list up to max with the nearest ones that were left out, so
 * that an insert takes one edge away at most. Returns the one left over, or
 * PIPEANN_INVALID_ID.
 */
static uint32
FillUp(const PipeannLinkSet *set, uint32 *list, int *n, int max)
{
	for (;;)
	{
		int			best = -1;

		for (int i = 0; i < set->n; i++)
			if ((best < 0 || set->dists[i] < set->dists[best]) &&
				!Contains(list, *n, set->ids[i]))
				best = i;
		if (best < 0)
			return PIPEANN_INVALID_ID;
		if (*n >= max)
			return set->ids[best];
		list[(*n)++] = set->ids[best];
	}
}

/*
 * What target's list becomes when id is to join its full list; returns its new
 * length. *dropped is who has to go.
 */
static int
PruneWith(const PipeannIndexView *view, const PipeannSlot *target, uint32 id,
		  uint32 *out, uint32 *dropped)
{
	const PipeannLayout *l = &view->meta.layout;
	int			degree = PipeannSlotDegree(l, target);
	PipeannLinkSet *set = NewSet(view, degree + 1);
	float	   *x = palloc(mul_size(l->dim, sizeof(float)));
	float	   *self = palloc(mul_size(set->dim, sizeof(float)));
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
	n = PruneSet(set, l->max_degree, out);
	*dropped = FillUp(set, out, &n, l->max_degree);
	FreeSet(set);
	pfree(x);
	pfree(self);
	return n;
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
 * Let target lead to id. False if pruning finds id superfluous there, or the
 * list keeps changing. *dropped is the node that target no longer leads to.
 */
static bool
LinkBack(const PipeannIndexView *view, uint32 target, uint32 id,
		 uint32 *dropped)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannSlot *seen = PipeannSlotAlloc(l);
	uint32	   *list = palloc((l->max_degree + 1) * sizeof(uint32));
	bool		linked = false;

	*dropped = PIPEANN_INVALID_ID;
	for (int i = 0; i < MAX_TRIES && !linked; i++)
	{
		int			n;
		uint32		victim = PIPEANN_INVALID_ID;

		CHECK_FOR_INTERRUPTS();
		PipeannSlotCopy(view, target, seen);
		if (!PipeannSlotIsNode(seen))
			break;
		n = PipeannSlotDegree(l, seen);
		if (ListHas(l, seen, id))
		{
			linked = true;
			break;
		}
		if (n < l->max_degree)
		{
			memcpy(list, seen->neighbors, n * sizeof(uint32));
			list[n++] = id;
		}
		else
			n = PruneWith(view, seen, id, list, &victim);
		if (victim == id)
			break;
		if (!ReplaceList(view, target, seen, list, n))
			continue;
		*dropped = victim;
		linked = true;
	}
	pfree(seen);
	pfree(list);
	return linked;
}

/*
 * Add an edge to a node's list, in the place of its last one if it is full.
 */
static void
AppendNeighbor(const PipeannIndexView *view, uint32 id, uint32 neighbor)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannSlotUpdate update;
	int			degree;

	PipeannSlotBegin(view, id, &update);
	degree = PipeannSlotDegree(l, update.slot);
	if (id == neighbor || ListHas(l, update.slot, neighbor))
	{
		PipeannSlotAbort(&update);
		return;
	}
	degree = Min(degree, l->max_degree - 1);
	update.slot->neighbors[degree] = neighbor;
	update.slot->degree = degree + 1;
	PipeannSlotEnd(&update);
}

/*
 * Let target lead to id in any case. When its list is full id takes the place
 * of its last neighbour and takes that over: what could be reached through
 * target still can, through id.
 */
static void
Splice(const PipeannIndexView *view, uint32 target, uint32 id)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannSlot *seen = PipeannSlotAlloc(l);

	for (int i = 0; i < MAX_TRIES; i++)
	{
		uint32		list[2 * PIPEANN_MAX_M];
		int			n;

		CHECK_FOR_INTERRUPTS();
		PipeannSlotCopy(view, target, seen);
		if (!PipeannSlotIsNode(seen) || target == id || ListHas(l, seen, id))
			break;
		n = PipeannSlotDegree(l, seen);
		memcpy(list, seen->neighbors, n * sizeof(uint32));
		if (n == l->max_degree)
			AppendNeighbor(view, id, list[--n]);
		list[n++] = id;
		if (ReplaceList(view, target, seen, list, n))
			break;
	}
	pfree(seen);
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

/*
 * A node that lost an edge must not have lost its last one.
 */
static void
KeepLinked(const PipeannIndexView *view, uint32 id)
{
	PipeannSlot *slot;

	if (id == PIPEANN_INVALID_ID)
		return;
	slot = PipeannSlotAlloc(&view->meta.layout);
	if (!IsLinked(view, id, slot) && PipeannSlotIsNode(slot) &&
		slot->degree > 0)
		Splice(view, slot->neighbors[0], id);
	pfree(slot);
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
PipeannLinkNode(PipeannIndexView *view, uint32 id, const PipeannSlot *slot,
				const float *query)
{
	int			degree = PipeannSlotDegree(&view->meta.layout, slot);
	bool		linked = false;

	WriteNodeCode(view, id, query);
	for (int i = 0; i < degree; i++)
	{
		uint32		dropped;

		if (LinkBack(view, slot->neighbors[i], id, &dropped))
			linked = true;
		KeepLinked(view, dropped);
	}
	if (!linked && degree > 0)
		Splice(view, slot->neighbors[0], id);
}

void
PipeannLinkIfUnlinked(PipeannIndexView *view, uint32 id, const float *query)
{
	PipeannSlot *slot = PipeannSlotAlloc(&view->meta.layout);

	if (!IsLinked(view, id, slot))
		PipeannLinkNode(view, id, slot, query);
	pfree(slot);
}
