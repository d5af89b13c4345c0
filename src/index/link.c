/*
 * link.c
 *		Choosing a new node's neighbours by exact distances, from pages that a
 *		search has just read. reverse_edge.c makes the edges to the node.
 */
#include "postgres.h"

#include "index/neighbors.h"
#include "io/io.h"
#include "distance/distance.h"

/* Candidates to look at, as a multiple of ef_construction. */
#define MAX_CANDIDATES_FACTOR 2

/* Initial room of a vector cache, in vectors. */
#define FIRST_CACHED 512

/* So many candidates' pages are always checked for room. */
#define NEAR_CANDIDATES 32

static float
EmbeddedDistance(const float *a, const float *b, int dim)
{
	return PipeannKernel->l2[PIPEANN_FLOAT4] (a, b, dim);
}

/* An empty set with room for size nodes, palloc'd. */
PipeannLinkSet *
PipeannLinkSetNew(const PipeannIndexView *view, int size)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannLinkSet *set = palloc(sizeof(PipeannLinkSet));

	set->n = 0;
	set->needed = 0;
	set->roomy_page = PIPEANN_INVALID_ID;
	set->dim = PipeannEmbeddedDim(l->metric, l->dim);
	set->ids = palloc(mul_size(size, sizeof(uint32)));
	set->dists = palloc(mul_size(size, sizeof(float)));
	set->vectors = palloc(mul_size(size, sizeof(float *)));
	return set;
}

void
PipeannLinkSetFree(PipeannLinkSet *set)
{
	pfree(set->ids);
	pfree(set->dists);
	pfree(set->vectors);
	pfree(set);
}

/* Add a node, with its distance from vector `from`. Keeps the pointers. */
void
PipeannLinkSetAdd(PipeannLinkSet *set, uint32 id, const float *vector,
				  const float *from)
{
	set->ids[set->n] = id;
	set->vectors[set->n] = vector;
	set->dists[set->n] = EmbeddedDistance(from, vector, set->dim);
	set->n++;
}

/* Remove a node. */
void
PipeannLinkSetRemove(PipeannLinkSet *set, uint32 id)
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
 * For inner product: the element that embedding adds to a vector, from its
 * norm and the largest norm at present.
 */
static float
NormPart(const PipeannIndexView *view, const float *x)
{
	return PipeannAux(PIPEANN_IP, PipeannNorm(x, view->meta.layout.dim),
					  view->meta.max_norm);
}

static void
Embed(PipeannMetric metric, int dim, const float *x, float aux,
	  float *out)
{
	float		scale = metric == PIPEANN_COSINE ? aux : 1;

	for (int i = 0; i < dim; i++)
		out[i] = x[i] * scale;
	if (metric == PIPEANN_IP)
		out[dim] = aux;
}

/* Embed a vector with this aux to out. */
static void
EmbedVector(const PipeannIndexView *view, const float *x, float aux,
			float *out)
{
	const PipeannLayout *l = &view->meta.layout;

	if (l->metric == PIPEANN_IP)
		aux = NormPart(view, x);
	Embed(l->metric, l->dim, x, aux, out);
}

/*
 * Embed a node's vector from a copy of its slot. x[layout's dim] is work
 * space. The caller must not hold page locks, as an out-of-line vector is read
 * from its chain.
 */
void
PipeannEmbedSlot(const PipeannIndexView *view, uint32 id,
				 const PipeannSlot *slot, float *x, float *out)
{
	const PipeannLayout *l = &view->meta.layout;

	if (!(slot->flags & PIPEANN_SLOT_OUT_OF_LINE) ||
		!PipeannChainVector(view, id, slot, x))
		PipeannVectorToFloat(PipeannSlotVector(l, slot), l->storage, l->dim,
							 x);
	EmbedVector(view, x, slot->aux, out);
}

/*
 * Search for the nodes nearest to query[dim], normalised for cosine; without
 * codes, for all nodes. near is the layout that gives the metric; it has to stay
 * as long as the search is used. Of params the caller sets ef, the distance of
 * out-of-line vectors and, if there is one, the node at which the search ends.
 */
PipeannSearch *
PipeannLinkSearch(const PipeannIndexView *view, const PipeannLayout *near,
				  PipeannPageSource *source, const float *query,
				  PipeannSearchParams params)
{
	PipeannSearch *search = PipeannReuseSearch();

	params.policy = PipeannPolicies[PIPEANN_DEFAULT_MODE];
	/* whole pages are needed to look for free slots */
	params.disabled = PIPEANN_NODE_HITS;
	params.max_pages = PG_INT32_MAX;
	PipeannSearchBegin(search, near,
					   view->cache != NULL ? &view->codes : NULL, source,
					   query, &params);
	if (view->cache != NULL)
		(void) PipeannSearchRun(search);
	else
		PipeannSearchExact(search,
						   PipeannCountGraphPages(view->index, near,
												  view->map,
												  view->meta.graph_pages));
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
 * Whether the new node may go to a candidate's page, when `before` nearer
 * candidates' pages had no room. Nodes that share pages with near ones save
 * reads: so rather than to a far page the node goes to one of its own, where
 * others will join it, unless the index has many free slots.
 */
static bool
WantsRoom(const PipeannIndexView *view, const PipeannLinkSet *set, int before)
{
	return set->roomy_page == PIPEANN_INVALID_ID &&
		view->meta.layout.node_pages == 1 &&
		(before < NEAR_CANDIDATES || PipeannHasSpareSlots(view));
}

/*
 * The slots of a graph page: the search's copy, or else one read into buffer.
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
	float	   *vector = palloc(mul_size(set->dim, sizeof(float)));

	PipeannEmbedSlot(view, id, slot, x, vector);
	PipeannLinkSetAdd(set, id, vector, self);
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
	int			size = view->meta.ef_construction * MAX_CANDIDATES_FACTOR;
	PipeannLinkSet *set = PipeannLinkSetNew(view, size);
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

	return EmbeddedDistance(set->vectors[a], set->vectors[b], set->dim);
}

/*
 * Prune a set to a list of at most max ids, out[max], of which the first
 * `forced` stay, and fill it up to `fill` with the nearest that were dropped.
 * Returns its length.
 */
int
PipeannLinkSetPrune(const PipeannLinkSet *set, int forced, int max, int fill,
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

/*
 * Prune the set into slot's neighbour list: first the neighbours that pruning
 * keeps, then the nearest of the others.
 */
void
PipeannLinkPrune(const PipeannIndexView *view, PipeannLinkSet *set,
				 PipeannSlot *slot)
{
	const PipeannLayout *l = &view->meta.layout;

	set->needed = PipeannLinkSetPrune(set, 0, l->max_degree, 0,
									  slot->neighbors);
	slot->degree = set->needed;

	/* candidates are sorted, nearest first */
	for (int i = 0; i < set->n && slot->degree < l->max_degree; i++)
		if (!PipeannListHas(slot->neighbors, set->needed, set->ids[i]))
			slot->neighbors[slot->degree++] = set->ids[i];
}

/*
 * Embed a node's vector: decoded from its code or, in an index without codes,
 * from its slot; no page may be locked. False if its code is not known yet.
 */
bool
PipeannEmbedNode(const PipeannIndexView *view, uint32 id, float *x, float *out)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannSlot *slot;

	if (view->cache != NULL)
	{
		if (id >= view->codes.ncodes)
			return false;
		/* for cosine, codes are of normalised vectors */
		PipeannPqDecode(&view->codes.pq, PipeannCodeAt(&view->codes, id), out);
		if (l->metric == PIPEANN_IP)
			out[l->dim] = NormPart(view, out);
		return true;
	}
	/* a list may name a node that is newer than our copy of the metapage */
	if (id >= PipeannViewIds(view))
		return false;
	slot = PipeannSlotAlloc(l);
	PipeannSlotCopy(view, id, slot);
	PipeannEmbedSlot(view, id, slot, x, out);
	pfree(slot);
	return true;
}

/* ---------- vectors by node ---------- */

PipeannVectorCache *
PipeannVectorCacheNew(const PipeannIndexView *view)
{
	PipeannVectorCache *cache = palloc(sizeof(PipeannVectorCache));

	cache->view = view;
	cache->x = palloc(mul_size(view->meta.layout.dim, sizeof(float)));
	cache->n = 0;
	cache->size = FIRST_CACHED;
	cache->vectors = palloc(cache->size * sizeof(float *));
	PipeannIdSetInit(&cache->places, 2 * FIRST_CACHED, true);
	return cache;
}

/* Add a vector; keeps the pointer. */
void
PipeannVectorCachePut(PipeannVectorCache *cache, uint32 id,
					  const float *vector)
{
	if (cache->n == cache->size)
	{
		cache->size *= 2;
		cache->vectors = repalloc(cache->vectors,
								  mul_size(cache->size, sizeof(float *)));
	}
	PipeannIdSetPut(&cache->places, id, cache->n);
	cache->vectors[cache->n++] = vector;
}

/* The vector by PipeannEmbedNode(), or NULL if that has none. */
const float *
PipeannVectorCacheGet(PipeannVectorCache *cache, uint32 id)
{
	const PipeannLayout *l = &cache->view->meta.layout;
	uint32		at;
	float	   *vector;

	if (PipeannIdSetGet(&cache->places, id, &at))
		return cache->vectors[at];
	vector = palloc(mul_size(PipeannEmbeddedDim(l->metric, l->dim),
							 sizeof(float)));
	if (!PipeannEmbedNode(cache->view, id, cache->x, vector))
		return NULL;
	PipeannVectorCachePut(cache, id, vector);
	return vector;
}
