/*
 * neighbors.c
 *		Choosing a node's neighbours, and making the edges that lead to it.
 *
 * src/README, "insert/", tells how.
 */
#include "postgres.h"

#include <math.h>

#include "base/id_set.h"
#include "distance/distance.h"
#include "index/neighbors.h"
#include "miscadmin.h"

/*
 * Candidates to look at, as a multiple of ef_construction. Of wide vectors there are as many
 * as in a build: with more neighbours are no better, and pruning takes twice as long.
 */
#define MAX_CANDIDATES_FACTOR 2

/* Initial room of a vector cache, in vectors. */
#define FIRST_CACHED 512

/* ... and of a set's ids. */
#define FIRST_RANKS 512

/* Candidates whose pages are always checked for room. */
#define NEAR_CANDIDATES 32

/* An empty set with room for size nodes, palloc'd. */
static PipeannLinkSet *
NewSet(const PipeannIndexView *view, int size)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannLinkSet *set = palloc0(sizeof(PipeannLinkSet));

	set->roomy_page = PIPEANN_INVALID_ID;
	set->bytes = PipeannHasBytes(view);
	set->pair = set->bytes ? PipeannKernel->l2_pair[PIPEANN_INT8] : PipeannEmbeddedPair(l);
	set->dim = PipeannEmbeddedDim(l->metric, l->dim);
	set->ids = palloc(mul_size(size, sizeof(uint32)));
	set->dists = palloc(mul_size(size, sizeof(float)));
	set->vectors = palloc(mul_size(size, sizeof(void *)));
	return set;
}

/* The distance of two vectors, as far as it takes to compare it with others. */
static float
SetDistance(const PipeannLinkSet *set, const void *a, const void *b)
{
	return set->pair(a, b, set->dim);
}

/* Add a node, with its distance from vector `from`. Keeps the pointers. */
static void
AddNode(PipeannLinkSet *set, uint32 id, void *vector, const void *from)
{
	set->ids[set->n] = id;
	set->vectors[set->n] = vector;
	set->dists[set->n++] = SetDistance(set, from, vector);
}

/*
 * Search for the nodes nearest to query[dim], normalised for cosine; if exact is set or
 * there are no codes, for all nodes. near is the layout that gives the metric; it has to stay
 * as long as the search is used. Of params the caller sets ef, the distance of
 * out-of-line vectors and, if there is one, the node at which the search ends.
 */
PipeannSearch *
PipeannLinkSearch(const PipeannIndexView *view, const PipeannLayout *near,
				  PipeannPageSource *source, const float *query, bool exact,
				  PipeannSearchParams params)
{
	PipeannSearch *search = PipeannReuseSearch();

	exact |= view->cache == NULL;
	params.policy = PipeannPolicies[PIPEANN_DEFAULT_MODE];
	params.by_page = !PipeannListsExchange(view);
	params.near_pages = PipeannHasBytes(view) ? 0 : PIPEANN_NEAR_PAGES;
	params.max_pages = PG_INT32_MAX;
	PipeannSearchBegin(search, near, exact ? NULL : &view->codes, source, query, &params);
	if (!exact)
		(void) PipeannSearchRun(search);
	else
		PipeannSearchExact(search,
						   PipeannViewPages(view));
	return search;
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
 * Whether the new node may go to a candidate's page, when `before` nearer candidates'
 * pages had no room.
 */
static bool
WantsRoom(const PipeannIndexView *view, const PipeannLinkSet *set, int before)
{
	return set->roomy_page == PIPEANN_INVALID_ID &&
		view->meta.layout.node_pages == 1 &&
		(before < NEAR_CANDIDATES || PipeannHasSpareSlots(view));
}

/*
 * The slot of candidate id, or NULL; with its page, if that is to be looked at for room. What
 * the search does not hold is read into buffer.
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

/* A candidate's vector, rotated as it is stored, in memory of its own. */
static void *
Kept(const PipeannIndexView *view, const PipeannLinkSet *set, const void *vector)
{
	Size		size = set->bytes ? (Size) set->dim : PipeannEmbeddedBytes(&view->meta.layout);
	void	   *kept = palloc(size);

	if (set->bytes)
		PipeannToBytes(view, vector, true, kept);
	else
		memcpy(kept, vector, size);
	return kept;
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
	int			size = view->meta.ef_construction *
		(PipeannHasBytes(view) ? 1 : MAX_CANDIDATES_FACTOR);
	PipeannLinkSet *set = NewSet(view, size);
	float	   *decoded = palloc(mul_size(l->dim, sizeof(float)));
	void	   *vector = palloc(PipeannEmbeddedBytes(l));
	char	   *buffer = palloc((Size) l->node_pages * PIPEANN_PAYLOAD);
	const PipeannResult *result;
	const void *self;

	set->lists = palloc(mul_size(size, PipeannListBytes(l)));
	PipeannEmbed(view, x, aux, true, vector);
	self = Kept(view, set, vector);
	for (int i = 0; (set->n < size || WantsRoom(view, set, i)) &&
		 (result = PipeannSearchPop(search)) != NULL; i++)
	{
		const PipeannSlot *slot = SlotAtHand(view, search, result->id,
											 WantsRoom(view, set, i), set, buffer);

		CHECK_FOR_INTERRUPTS();
		if (set->n < size && slot != NULL && PipeannSlotIsLive(slot))
		{
			PipeannEmbedAsStored(view, result->id, slot, decoded, vector);
			memcpy(PipeannLinkList(l, set, set->n), slot, PipeannListBytes(l));
			AddNode(set, result->id, Kept(view, set, vector), self);
		}
	}
	pfree(decoded);
	pfree(vector);
	pfree(buffer);
	return set;
}

/* Candidates are numbered from the last one. */
static float
CandidateDistance(uint32 a, uint32 b, void *arg)
{
	const PipeannLinkSet *set = arg;
	int			last = set->n - 1;

	return SetDistance(set, set->vectors[last - a], set->vectors[last - b]);
}

/*
 * Prune a set to a list of at most max ids, out[max], of which the first
 * `forced` stay, and fill it up to `fill` with the nearest that were dropped.
 * Returns its length.
 *
 * Pruning takes the lowest number of equally far candidates. That is the last one, so that of
 * many vectors that rounding makes equal each leads to the one before: a list of the first
 * would have no room for all.
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
		numbers[i] = set->n - 1 - i;
		dists[i] = set->dists[i];
	}
	n = PipeannRobustPrune(numbers, dists, set->n, &params,
						   CandidateDistance, (void *) set, out);
	for (int i = 0; i < n; i++)
		out[i] = set->ids[set->n - 1 - out[i]];
	pfree(numbers);
	pfree(dists);
	return n;
}

static void
Remove(PipeannLinkSet *set, uint32 id)
{
	int			n = 0;

	for (int i = 0; i < set->n; i++)
	{
		if (set->ids[i] == id)
			continue;
		set->ids[n] = set->ids[i];
		set->dists[n] = set->dists[i];
		set->vectors[n++] = set->vectors[i];
	}
	set->n = n;
}

/*
 * Prune the set into slot's neighbour list: first the neighbours that pruning
 * keeps, then the nearest of the others. The node itself, which a search may have
 * found if it has an id, leaves the set.
 */
void
PipeannLinkPrune(const PipeannIndexView *view, PipeannLinkSet *set,
				 uint32 self, PipeannSlot *slot)
{
	const PipeannLayout *l = &view->meta.layout;

	Remove(set, self);
	set->needed = PruneSet(set, 0, l->max_degree, 0, slot->neighbors);
	slot->degree = set->needed;

	/* candidates are sorted, nearest first */
	for (int i = 0; i < set->n && slot->degree < l->max_degree; i++)
		if (!PipeannListHas(slot->neighbors, set->needed, set->ids[i]))
			slot->neighbors[slot->degree++] = set->ids[i];
}

/* ---------- edges that lead to a node ---------- */

/*
 * A vector that is rotated (PipeannEmbedAsStored()) is turned back when it is asked for. In an
 * index of quantised vectors bytes are compared, which are decoded from codes; of the
 * new node and of the one whose list is pruned they are made from the vector.
 */
typedef struct CachedVector
{
	void	   *vector;			/* embedded, or NULL */
	bool		exact;			/* not decoded from a code */
	bool		rotated;
	int8	   *bytes;			/* or NULL */
} CachedVector;

/* Embedded vectors of nodes: near lists have many nodes in common. */
typedef struct VectorCache
{
	const PipeannIndexView *view;
	bool		bytes;			/* bytes are compared */
	PipeannIdSet places;		/* positions in vectors[] by id */
	CachedVector *vectors;
	uint32		n;
	uint32		size;
	float	   *x;				/* work space */
} VectorCache;

static VectorCache *
NewVectorCache(const PipeannIndexView *view)
{
	VectorCache *cache = palloc(sizeof(VectorCache));

	cache->view = view;
	cache->bytes = PipeannHasBytes(view);
	cache->x = palloc(mul_size(view->meta.layout.dim, sizeof(float)));
	cache->n = 0;
	cache->size = FIRST_CACHED;
	cache->vectors = palloc(cache->size * sizeof(CachedVector));
	PipeannIdSetInit(&cache->places, 2 * FIRST_CACHED, true);
	return cache;
}

/* Add a vector; keeps the pointers. */
static void
PutVector(VectorCache *cache, uint32 id, CachedVector vector)
{
	if (cache->n == cache->size)
	{
		cache->size *= 2;
		cache->vectors = repalloc(cache->vectors,
								  mul_size(cache->size, sizeof(CachedVector)));
	}
	PipeannIdSetPut(&cache->places, id, cache->n);
	cache->vectors[cache->n++] = vector;
}

/* What is known of a node's vector, or NULL. */
static CachedVector *
FindVector(VectorCache *cache, uint32 id)
{
	uint32		at;

	return PipeannIdSetGet(&cache->places, id, &at) ? &cache->vectors[at] : NULL;
}

static void *
TurnedBack(const VectorCache *cache, CachedVector *found)
{
	if (found->rotated)
		PipeannTurnBack(&cache->view->meta.layout, found->vector);
	found->rotated = false;
	return found->vector;
}

static int8 *
AsBytes(const VectorCache *cache, const float *x)
{
	int8	   *bytes = palloc(cache->view->meta.layout.dim);

	PipeannToBytes(cache->view, x, false, bytes);
	return bytes;
}

/* The vector by PipeannEmbedNode(), or NULL if that has none. */
static void *
EmbeddedOf(VectorCache *cache, uint32 id)
{
	CachedVector *found = FindVector(cache, id);
	void	   *vector;

	if (found != NULL)
		return TurnedBack(cache, found);
	vector = palloc(PipeannEmbeddedBytes(&cache->view->meta.layout));
	if (!PipeannEmbedNode(cache->view, id, cache->x, vector))
		return NULL;
	PutVector(cache, id, (CachedVector) {vector});
	return vector;
}

/* The same where bytes are compared. */
static int8 *
BytesOf(VectorCache *cache, uint32 id)
{
	CachedVector *found = FindVector(cache, id);
	int8	   *bytes;

	if (found != NULL && found->bytes != NULL)
		return found->bytes;
	if (found != NULL && !found->rotated)
		bytes = AsBytes(cache, found->vector);
	else
	{
		if (id >= cache->view->codes.ncodes)
			return NULL;
		bytes = palloc(cache->view->meta.layout.dim);
		PipeannDecodeBytes(cache->view, id, bytes);
	}
	if (found != NULL)
		found->bytes = bytes;
	else
		PutVector(cache, id, (CachedVector) {.bytes = bytes});
	return bytes;
}

/* A node, while edges that lead to it are made. */
typedef struct NewNode
{
	const PipeannIndexView *view;
	uint32		id;
	VectorCache *cache;
	const PipeannLinkSet *known;	/* nodes near it, or NULL */
	PipeannIdSet ranks;			/* their positions in known by id */
} NewNode;

/* What may be done to target's list to have the edge. */
typedef enum Effort
{
	PIPEANN_IF_ROOM,			/* a full list stays as it is */
	PIPEANN_PRUNE,				/* pruning a full list may drop it */
	PIPEANN_FORCE				/* the edge is made whatever pruning finds */
} Effort;

/*
 * Planning an edge on a copy of a list, and changing the page. Pruning a full list by
 * exact distances would need a read for each neighbour, so neighbours are decoded from
 * their codes (as in FreshDiskANN).
 */

/*
 * Tries after which an edge that need not be made is given up. Each time
 * that it fails, another backend has made its change.
 */
#define MAX_TRIES 3

/*
 * A full list is filled up to this length with neighbours that pruning
 * dropped. Longer lists make searches better and inserts dearer, as each edge
 * to a full list prunes it.
 */
#define FilledLength(l) ((l)->max_degree * 3 / 4)

/*
 * Add a neighbour of target to the set to be pruned. False if its code is not
 * known yet.
 */
static bool
AddToSet(NewNode *node, PipeannLinkSet *set, const void *target, uint32 id)
{
	VectorCache *cache = node->cache;
	void	   *vector = cache->bytes ? (void *) BytesOf(cache, id) :
		EmbeddedOf(cache, id);

	if (vector == NULL)
		return false;
	AddNode(set, id, vector, target);
	return true;
}

/*
 * Order a pruned list so that the page changes least: neighbours that stay
 * keep their places, new ones fill the gaps.
 */
static void
KeepPlaces(PipeannListChange *edge, int degree)
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
}

/* The exact vector of a node with this slot, which a candidate has already. */
static const void *
ExactVector(VectorCache *cache, uint32 id, const PipeannSlot *slot)
{
	CachedVector *found = FindVector(cache, id);
	void	   *vector;

	if (found != NULL && found->exact)
		vector = TurnedBack(cache, found);
	else
	{
		vector = palloc(PipeannEmbeddedBytes(&cache->view->meta.layout));
		PipeannEmbedSlot(cache->view, id, slot, cache->x, vector);
	}
	return cache->bytes ? (const void *) AsBytes(cache, vector) : vector;
}

/* Have the codes of nodes fetched together that will be decoded. */
static void
FetchCodes(VectorCache *cache, const uint32 *ids, int n)
{
	const PipeannCodes *codes = &cache->view->codes;
	uint32		wanted[PG_UINT8_MAX];
	const uint8 *found[PG_UINT8_MAX];
	int			nwanted = 0;

	if (cache->view->cache == NULL)
		return;
	for (int i = 0; i < n; i++)
		if (ids[i] < codes->ncodes && FindVector(cache, ids[i]) == NULL)
			wanted[nwanted++] = ids[i];
	PipeannGatherCodes(codes, wanted, nwanted, found);
	for (int i = 0; i < nwanted; i++)
		for (int at = PIPEANN_CACHE_LINE; at < codes->pq.nsubvectors; at += PIPEANN_CACHE_LINE)
			__builtin_prefetch(found[i] + at);
}

/*
 * Copy a slot: read from its page, or else only its list as the search saw it. If that has
 * changed since, the edge is not made, and tried again with what is read.
 */
static void
SeeList(const NewNode *node, uint32 target, bool reread, PipeannSlot *slot)
{
	const PipeannLayout *l = &node->view->meta.layout;
	uint32		at;

	if (!reread && node->known != NULL && PipeannIdSetGet(&node->ranks, target, &at))
		memcpy(slot, PipeannLinkList(l, node->known, at), PipeannListBytes(l));
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

/*
 * Compute a full list that the node joins. Neighbours whose code is not known yet stay,
 * and so does the node if it is forced.
 */
static void
PruneFullList(NewNode *node, bool forced, PipeannListChange *edge)
{
	const PipeannLayout *l = &node->view->meta.layout;
	const PipeannSlot *target = edge->seen;
	int			degree = PipeannSlotDegree(l, target);
	PipeannLinkSet *set = NewSet(node->view, degree + 1);
	const void *self = ExactVector(node->cache, edge->target, target);
	int			unknown = 0;

	FetchCodes(node->cache, target->neighbors, degree);
	(void) AddToSet(node, set, self, node->id);
	for (int i = 0; i < degree; i++)
		if (!AddToSet(node, set, self, target->neighbors[i]))
			edge->list[unknown++] = target->neighbors[i];
	edge->n = unknown +
		PruneSet(set, forced ? 1 : 0, l->max_degree - unknown,
				 FilledLength(l) - unknown, edge->list + unknown);
	KeepPlaces(edge, degree);
	pfree(set->ids);
	pfree(set->dists);
	pfree(set->vectors);
	pfree(set);
}

/* The neighbours of a full list: their distances from its node, target, and from the new one. */
typedef struct FullList
{
	const PipeannListChange *edge;
	uint32		target;			/* its position among the candidates */
	float		from_target[PG_UINT8_MAX];	/* infinite if not known */
	float		from_node[PG_UINT8_MAX];
} FullList;

/* Of neighbours that are candidates, whose vectors are at hand. */
static void
MeasureCandidates(const NewNode *node, FullList *list)
{
	const PipeannLinkSet *set = node->known;
	const uint32 *neighbors = list->edge->seen->neighbors;

	for (int i = 0; i < list->edge->n; i++)
	{
		uint32		other;

		list->from_node[i] = list->from_target[i] = INFINITY;
		if (!PipeannIdSetGet(&node->ranks, neighbors[i], &other))
			continue;
		list->from_node[i] = set->dists[other];
		list->from_target[i] = SetDistance(set, set->vectors[list->target],
										   set->vectors[other]);
	}
}

/* Of the others, by their codes. */
static void
MeasureOthers(const NewNode *node, FullList *list)
{
	const PipeannLinkSet *set = node->known;
	const uint32 *neighbors = list->edge->seen->neighbors;
	const void *self = EmbeddedOf(node->cache, node->id);
	uint32		others[PG_UINT8_MAX];
	int			nothers = 0;

	for (int i = 0; i < list->edge->n; i++)
		if (isinf(list->from_node[i]))
			others[nothers++] = neighbors[i];
	FetchCodes(node->cache, others, nothers);
	for (int i = 0; i < list->edge->n; i++)
	{
		const void *other = isinf(list->from_node[i]) ?
			EmbeddedOf(node->cache, neighbors[i]) : NULL;

		if (other == NULL)
			continue;
		list->from_node[i] = SetDistance(set, self, other);
		list->from_target[i] = SetDistance(set, set->vectors[list->target], other);
	}
}

/* The edge from its nearest neighbour may be the only one that leads to a node: it stays. */
static int
GivesWay(const NewNode *node, FullList *list)
{
	int			place;

	do
	{
		place = PipeannGivesWay(list->from_target, list->from_node, list->edge->n,
								node->known->dists[list->target]);
		if (place < 0 || !IsLedToFirst(node, list->edge->seen->neighbors[place],
									   list->edge->target))
			return place;
		list->from_node[place] = INFINITY;
	} while (true);
}

/*
 * The place that the node takes in a full list: to prune such a list takes longer than all
 * else of an edge. Candidates decide it if they can. If not, neighbours of wide vectors stay,
 * as they are far from the node and their codes are long, and others are looked at. If none
 * gives way the node is left out, or if it is forced the list is pruned.
 */
static int
PlaceInFull(const NewNode *node, bool forced, const PipeannListChange *edge)
{
	FullList	list;			/* of 2 kB, so not zeroed */
	int			place;

	list.edge = edge;
	if (node->known == NULL || !PipeannListsExchange(node->view) ||
		!PipeannIdSetGet(&node->ranks, edge->target, &list.target))
		return PIPEANN_UNDECIDED;
	MeasureCandidates(node, &list);
	place = GivesWay(node, &list);
	if (place == PIPEANN_UNDECIDED && !node->known->bytes)
	{
		MeasureOthers(node, &list);
		place = GivesWay(node, &list);
	}
	if (place < 0)
		return forced ? PIPEANN_UNDECIDED : PIPEANN_SUPERFLUOUS;
	return place;
}

/*
 * Plan a full list that the node joins, by PlaceInFull() if that has decided. False if
 * there is to be no edge.
 */
static bool
JoinFull(NewNode *node, bool forced, int place, PipeannListChange *edge)
{
	if (place >= 0)
		edge->list[place] = node->id;
	if (place != PIPEANN_UNDECIDED)
		return place >= 0;
	PruneFullList(node, forced, edge);
	return PipeannListHas(edge->list, edge->n, node->id);
}

/*
 * Plan an edge from target, rereading its list or as the search saw it. False if there is
 * to be none: pruning finds it superfluous, or target is no node.
 */
static bool
PlanEdge(NewNode *node, uint32 target, Effort effort, bool reread,
		 PipeannListChange *edge)
{
	const PipeannLayout *l = &node->view->meta.layout;
	bool		forced = effort == PIPEANN_FORCE;
	int			place;

	edge->target = target;
	edge->done = false;
	SeeList(node, target, reread, edge->seen);
	if (!PipeannSlotIsNode(edge->seen) || target == node->id)
		return false;
	edge->n = PipeannSlotDegree(l, edge->seen);
	memcpy(edge->list, edge->seen->neighbors, edge->n * sizeof(uint32));
	if (PipeannListHas(edge->list, edge->n, node->id))
		return true;
	if (edge->n < l->max_degree)
	{
		edge->list[edge->n++] = node->id;
		return true;
	}
	if (effort == PIPEANN_IF_ROOM)
		return false;
	place = PlaceInFull(node, forced, edge);
	/* pruning takes the whole slot, which may have changed */
	if (place == PIPEANN_UNDECIDED && !reread)
		return PlanEdge(node, target, effort, true, edge);
	return JoinFull(node, forced, place, edge);
}

static void
InitEdge(const PipeannLayout *l, PipeannListChange *edge)
{
	edge->seen = PipeannSlotAlloc(l);
	edge->list = palloc((l->max_degree + 1) * sizeof(uint32));
}

/*
 * Make one edge, and try again while other backends change the list. False if
 * there is to be none.
 */
static bool
LinkBack(NewNode *node, uint32 target, Effort effort)
{
	PipeannListChange edge;

	InitEdge(&node->view->meta.layout, &edge);
	for (int i = 0; i < MAX_TRIES || effort == PIPEANN_FORCE; i++)
	{
		if (!PlanEdge(node, target, effort, true, &edge))
			return false;
		PipeannChangeLists(node->view, &edge, 1, NULL);
		if (edge.done)
			return true;
	}
	return false;
}

/* The nearest node of the entry graph, or INVALID_ID. */
static uint32
NearestEntry(NewNode *node)
{
	const PipeannCodes *codes = &node->view->codes;
	const PipeannLayout *l = &node->view->meta.layout;
	PipeannPairFn pair = PipeannEmbeddedPair(l);
	const void *self = EmbeddedOf(node->cache, node->id);
	float	   *x = palloc(mul_size(l->dim, sizeof(float)));
	void	   *other = palloc(PipeannEmbeddedBytes(l));
	uint32		nearest = PIPEANN_INVALID_ID;
	float		least = INFINITY;

	for (uint32 i = 0; i < codes->entry_count; i++)
	{
		uint32		id = codes->entry_ids[i];
		float		dist;

		CHECK_FOR_INTERRUPTS();
		if (id == node->id || !PipeannEmbedNode(node->view, id, x, other))
			continue;
		dist = pair(self, other, PipeannEmbeddedDim(l->metric, l->dim));
		if (dist >= least)
			continue;
		nearest = id;
		least = dist;
	}
	pfree(x);
	pfree(other);
	return nearest;
}

static NewNode
MakeNode(const PipeannIndexView *view, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &view->meta.layout;
	NewNode		node = {view, id, NewVectorCache(view)};
	float	   *x = palloc(mul_size(l->dim, sizeof(float)));
	void	   *vector = palloc(PipeannEmbeddedBytes(l));

	PipeannEmbedSlot(view, id, slot, x, vector);
	PutVector(node.cache, id, (CachedVector) {vector, true});
	pfree(x);
	return node;
}

/* Plan the edges from the neighbours in a node's list, the nearest first; how many. */
static int
PlanEdges(NewNode *node, const PipeannSlot *slot, const PipeannLinkSet *known,
		  PipeannListChange *edges)
{
	const PipeannLayout *l = &node->view->meta.layout;
	int			degree = PipeannSlotDegree(l, slot);
	int			n = 0;

	for (int i = 0; i < degree; i++)
	{
		Effort		effort = i == 0 ? PIPEANN_FORCE :
			known == NULL || i < known->needed ? PIPEANN_PRUNE : PIPEANN_IF_ROOM;

		InitEdge(l, &edges[n]);
		if (PlanEdge(node, slot->neighbors[i], effort, false, &edges[n]))
			n++;
	}
	return n;
}

static void
KnowNear(NewNode *node, const PipeannLinkSet *known)
{
	node->known = known;
	PipeannIdSetInit(&node->ranks, FIRST_RANKS, true);
	for (int i = 0; i < known->n; i++)
		PipeannIdSetPut(&node->ranks, known->ids[i], i);
}

/*
 * Make the edges that lead to node id from its neighbours. The nearest one always takes the
 * node, so that some edge leads to it. slot is a copy of its slot; known, or NULL, is a set
 * of nodes near it. A node without neighbours, as in an index just emptied, is led to by the
 * nearest node of the entry graph, which stays even if it is dead.
 */
void
PipeannLinkNode(const PipeannIndexView *view, uint32 id,
				const PipeannSlot *slot, const PipeannLinkSet *known)
{
	const PipeannLayout *l = &view->meta.layout;
	int			degree = PipeannSlotDegree(l, slot);
	PipeannListChange *edges = palloc((degree + 1) * sizeof(PipeannListChange));
	NewNode		node = MakeNode(view, id, slot);
	uint32		nearest = degree > 0 ? slot->neighbors[0] : NearestEntry(&node);
	int			n;

	if (known != NULL)
		KnowNear(&node, known);
	for (int i = 0; known != NULL && !known->bytes && i < known->n; i++)
		PutVector(node.cache, known->ids[i],
				  (CachedVector) {known->vectors[i], true, true});
	if (degree == 0 && nearest != PIPEANN_INVALID_ID)
		(void) LinkBack(&node, nearest, PIPEANN_FORCE);
	n = PlanEdges(&node, slot, known, edges);
	PipeannChangeLists(view, edges, n, NULL);
	for (int i = 0; i < n; i++)
		if (!edges[i].done)
			(void) LinkBack(&node, edges[i].target,
							edges[i].target == nearest ? PIPEANN_FORCE : PIPEANN_PRUNE);
}
