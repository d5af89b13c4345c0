/*
 * repair.c
 *		VACUUM removes dead nodes from neighbour lists.
 *
 * src/README, "vacuum/: removing dead rows", describes it in steps 5 and 6.
 */
#include "postgres.h"

#include <math.h>

#include "base/id_set.h"
#include "base/key.h"
#include "base/pause.h"
#include "index/neighbors.h"
#include "miscadmin.h"
#include "postmaster/autovacuum.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "vacuum/passes.h"

/* Edges that lead to each node, counted in the last pass that changes lists. */

/* In-degrees are counted up to this. */
#define MOST_COUNTED 15

/* The number of edges that lead to a node, at most MOST_COUNTED. */
static int
InDegree(const PipeannVacuum *v, uint32 id)
{
	return (v->in_degrees[id / 2] >> (id % 2 * 4)) & MOST_COUNTED;
}

/* Count one edge more or less to a node. A count that has reached the maximum stays. */
static void
CountEdge(PipeannVacuum *v, uint32 id, int change)
{
	int			degree = id < v->ids ? InDegree(v, id) : MOST_COUNTED;

	if (degree < MOST_COUNTED && degree + change >= 0)
		v->in_degrees[id / 2] += change * (1 << (id % 2 * 4));
}

/*
 * New neighbour lists. (FreshDiskANN prunes the whole list; here the remaining
 * neighbours are kept unquestioned, which costs less.) The lists of dead nodes
 * are needed in random order, so they are kept in memory.
 */

/* Candidates for one list: neighbours of its dead nodes. */
#define MAX_CANDIDATES 256

/* With fewer candidates, neighbours of dead nodes' dead neighbours are taken, too. */
#define FEW_CANDIDATES 8
#define MAX_DEAD 256

/* Candidates compared for a list: twice its free places, and this many more. */
#define SPARE_CANDIDATES 6

typedef struct Repair
{
	PipeannVacuum *v;
	const PipeannLayout *l;

	/*
	 * The dead nodes of this round, ids from .. to - 1, and their lists:
	 * length, ids.
	 */
	uint32		from;
	uint32		to;
	PipeannIdSet offsets;		/* of lists[], by id */
	uint32	   *lists;
	Size		used;
	Size		size;

	/* one list */
	PipeannIdSet seen;
	uint32		dead[MAX_DEAD];
	int			ndead;
	uint32		cand[MAX_CANDIDATES];
	int			ncand;
	float	   *x;				/* [layout's dim] */
	PipeannPairFn pair;			/* compares embedded vectors */
	void	   *self;			/* the node's, embedded */
	char	   *vectors;		/* [2 * max_degree + SPARE] embedded */
	float	   *dists;			/* distances of vectors[] from the node */
	float	   *table;			/* code distances */
	const uint8 *codes[MAX_CANDIDATES];
	float		code_dists[MAX_CANDIDATES];
	PipeannKey	near[MAX_CANDIDATES];	/* candidates, nearest first */
	PipeannListChange *changes; /* [slots_per_page] new lists of a page */
	char		page[PIPEANN_PAYLOAD];	/* copy of the page being repaired */
} Repair;

/* Whether a neighbour has to leave a list in this round. */
static bool
MustLeaveList(const Repair *r, uint32 neighbor)
{
	return neighbor >= r->from && neighbor < r->to &&
		PipeannBitsHas(&r->v->dead, neighbor);
}

/* The list of a dead node of this round, or one of length 0. */
static const uint32 *
ListOf(const Repair *r, uint32 dead)
{
	static const uint32 none = 0;
	uint32		offset;

	return PipeannIdSetGet(&r->offsets, dead, &offset) ? r->lists + offset : &none;
}

/* Add the neighbours of dead node r->dead[at] to the candidates. */
static void
AddCandidates(Repair *r, int at)
{
	const uint32 *list = ListOf(r, r->dead[at]);

	for (uint32 i = 0; i < list[0]; i++)
	{
		uint32		id = list[1 + i];

		if (!PipeannIdSetAdd(&r->seen, id))
			continue;
		if (PipeannBitsHas(&r->v->dead, id))
		{
			if (r->ndead < MAX_DEAD)
				r->dead[r->ndead++] = id;
		}
		else if (r->ncand < MAX_CANDIDATES &&
				 (r->v->view.cache == NULL ||
				  id < r->v->view.codes.ncodes))
			r->cand[r->ncand++] = id;
	}
}

/* Copy what stays of a list to out, and gather candidates for the rest. */
static int
GatherCandidates(Repair *r, uint32 id, const PipeannSlot *slot,
				 uint32 *out)
{
	int			degree = PipeannSlotDegree(r->l, slot);
	int			kept = 0;
	int			first;

	PipeannIdSetReset(&r->seen, Max(r->seen.slots, 1024), false);
	r->ndead = r->ncand = 0;
	(void) PipeannIdSetAdd(&r->seen, id);
	for (int i = 0; i < degree; i++)
	{
		bool		is_new = PipeannIdSetAdd(&r->seen, slot->neighbors[i]);

		if (MustLeaveList(r, slot->neighbors[i]))
			r->dead[r->ndead++] = slot->neighbors[i];
		else if (is_new)
			out[kept++] = slot->neighbors[i];
	}
	first = r->ndead;
	for (int i = 0; i < r->ndead; i++)
		if (i < first || r->ncand < FEW_CANDIDATES)
			AddCandidates(r, i);
	return kept;
}

static float
Distance(const Repair *r, const void *a, const void *b)
{
	return r->pair(a, b, PipeannEmbeddedDim(r->l->metric, r->l->dim));
}

static void *
Vector(const Repair *r, int i)
{
	return r->vectors + i * PipeannEmbeddedBytes(r->l);
}

static void
LoadVector(Repair *r, int i, uint32 id)
{
	r->dists[i] = PipeannEmbedNode(&r->v->view, id, r->x, Vector(r, i)) ?
		Distance(r, r->self, Vector(r, i)) : INFINITY;
}

/*
 * Sort the candidates by code distance, with the node's table; or by the
 * distance of embedded vectors if there are no codes, for bits, and for inner
 * product, which orders codes differently.
 */
static void
RankCandidates(Repair *r)
{
	const PipeannCodes *codes = &r->v->view.codes;

	/* L2 orders as cosine does, and is never negative, which keys must not be */
	PipeannMetric metric = r->l->metric == PIPEANN_L1 ? PIPEANN_L1 : PIPEANN_L2;

	if (r->l->metric == PIPEANN_IP || r->l->storage == PIPEANN_BITS ||
		r->v->view.cache == NULL)
		for (int i = 0; i < r->ncand; i++)
		{
			LoadVector(r, 0, r->cand[i]);
			r->near[i] = PipeannKeyMake(r->dists[0], r->cand[i]);
		}
	else
	{
		PipeannPqTable(&codes->pq, metric, r->self, r->table);
		for (int i = 0; i < r->ncand; i += PIPEANN_MOST_GATHERED)
		{
			int			n = Min(r->ncand - i, PIPEANN_MOST_GATHERED);

			PipeannGatherCodes(codes, r->cand + i, n, r->codes);
			PipeannPqScan(&codes->pq, metric, r->table, r->codes, n,
						  r->code_dists + i);
		}
		for (int i = 0; i < r->ncand; i++)
			r->near[i] = PipeannKeyMake(r->code_dists[i], r->cand[i]);
	}
	PipeannKeySort(r->near, r->ncand);
}

/*
 * Whether a vector before this one is nearer to the node, and makes it superfluous.
 */
static bool
IsCovered(const Repair *r, int at)
{
	for (int i = 0; i < at; i++)
		if (r->dists[i] <= r->dists[at] &&
			PIPEANN_ALPHA * Distance(r, Vector(r, i), Vector(r, at)) <=
			r->dists[at])
			return true;
	return false;
}

/* Compute a node's new list, out[max_degree]; returns its length. */
static int
NewList(Repair *r, uint32 id, const PipeannSlot *slot,
		uint32 *out)
{
	int			degree = PipeannSlotDegree(r->l, slot);
	int			n = GatherCandidates(r, id, slot, out);
	int			nearest = Min(r->ncand,
							  2 * Max(degree - n, 0) + SPARE_CANDIDATES);

	if (r->ncand > 0)
	{
		int			kept = n;

		/* the node's own vector is exact if it is on the page */
		if (r->l->node_pages > 1)
			(void) PipeannEmbedNode(&r->v->view, id, r->x, r->self);
		else
			PipeannEmbedSlot(&r->v->view, id, slot, false, r->x, r->self);
		RankCandidates(r);

		/*
		 * Add the best of the nearest candidates: first those that no other neighbour
		 * makes superfluous, then the nearest. r->vectors holds a vector for each element
		 * of out.
		 */
		for (int i = 0; i < kept; i++)
			LoadVector(r, i, out[i]);
		for (int i = 0; i < nearest && n < degree; i++)
		{
			LoadVector(r, n, PipeannKeyId(r->near[i]));
			if (IsCovered(r, n))
				continue;
			out[n++] = PipeannKeyId(r->near[i]);
			r->near[i] = PIPEANN_INVALID_ID;
		}
		for (int i = 0; i < nearest && n < degree; i++)
			if (PipeannKeyId(r->near[i]) != PIPEANN_INVALID_ID)
				out[n++] = PipeannKeyId(r->near[i]);
	}
	return n;
}

static Size
MemoryLimit(void)
{
	int			kb = maintenance_work_mem;
#if PG_VERSION_NUM >= 170000
	bool		autovacuum = AmAutoVacuumWorkerProcess();
#else
	bool		autovacuum = IsAutoVacuumWorkerProcess();
#endif

	if (autovacuum && autovacuum_work_mem != -1)
		kb = autovacuum_work_mem;
	return (Size) kb * 1024;
}

static Repair *
NewRepair(PipeannVacuum *v)
{
	const PipeannLayout *l = &v->view.meta.layout;
	Repair	   *r = palloc0(sizeof(Repair));
	int			most = 2 * l->max_degree + SPARE_CANDIDATES;

	r->v = v;
	r->l = l;
	r->pair = PipeannEmbeddedPair(l);
	r->x = palloc(mul_size(l->dim, sizeof(float)));
	r->self = palloc(PipeannEmbeddedBytes(l));
	r->vectors = PipeannAlloc(mul_size(most, PipeannEmbeddedBytes(l)));
	r->dists = palloc(most * sizeof(float));
	r->table = palloc(mul_size(l->pq_bytes,
							   PIPEANN_CENTROIDS * sizeof(float)));
	r->changes = palloc0(l->slots_per_page * sizeof(PipeannListChange));
	for (int i = 0; i < l->slots_per_page; i++)
		r->changes[i].list = palloc(l->max_degree * sizeof(uint32));
	return r;
}

/*
 * Store the list of a dead node: its live neighbours, which may replace it,
 * and its dead ones.
 */
static void
StoreList(Repair *r, uint32 id, const PipeannSlot *slot)
{
	int			degree = PipeannSlotDegree(r->l, slot);
	uint32	   *list;
	uint32		n = 0;

	if (r->used + degree + 1 > r->size)
	{
		r->size = Max(r->size * 2, 65536);
		r->lists = r->lists == NULL ?
			PipeannAlloc(mul_size(r->size, sizeof(uint32))) :
			PipeannRealloc(r->lists, mul_size(r->size, sizeof(uint32)));
	}
	list = r->lists + r->used;
	for (int i = 0; i < degree; i++)
	{
		uint32		neighbor = slot->neighbors[i];

		if (neighbor < r->v->ids &&
			(PipeannBitsHas(&r->v->live, neighbor) ||
			 PipeannBitsHas(&r->v->dead, neighbor)))
		{
			list[1 + n++] = neighbor;
			PipeannBitsAdd(&r->v->orphaned, neighbor);
		}
	}
	list[0] = n;
	PipeannIdSetPut(&r->offsets, id, (uint32) r->used);
	r->used += n + 1;
}

static bool
PageHasDead(const Repair *r, uint32 page)
{
	for (uint32 i = 0; i < r->l->slots_per_page; i++)
		if (PipeannBitsHas(&r->v->dead, PipeannVacuumId(r->v, page, i)))
			return true;
	return false;
}

/* Load the lists of as many dead nodes as memory allows: ids r->from .. r->to - 1. */
static void
LoadLists(Repair *r)
{
	Size		limit = Min(MemoryLimit() / 2, (Size) PG_INT32_MAX) /
		sizeof(uint32);
	uint32		page = r->from / r->l->slots_per_page;

	PipeannIdSetReset(&r->offsets, 1024, true);
	r->used = 0;
	PipeannVacuumBeginPass(r->v);
	for (; page < r->v->pages && r->used < limit; page++)
	{
		if (!PageHasDead(r, page))
			continue;
		PipeannVacuumCopyPage(r->v, page, r->page);
		for (uint32 i = 0; i < r->l->slots_per_page; i++)
		{
			uint32		id = PipeannVacuumId(r->v, page, i);

			if (PipeannBitsHas(&r->v->dead, id))
				StoreList(r, id, PipeannSlotAt(r->l, r->page, i));
		}
	}
	r->to = page < r->v->pages ? page * r->l->slots_per_page : r->v->ids;
}

static bool
NeedsRepair(const Repair *r, uint32 id, const PipeannSlot *slot)
{
	int			degree = PipeannSlotDegree(r->l, slot);

	if (!PipeannSlotIsNode(slot) || PipeannVacuumFrees(r->v, id))
		return false;
	for (int i = 0; i < degree; i++)
		if (MustLeaveList(r, slot->neighbors[i]))
			return true;
	return false;
}

/* Plan new lists for the copied page; returns how many. */
static int
PlanLists(Repair *r, uint32 page)
{
	int			n = 0;

	for (uint32 i = 0; i < r->l->slots_per_page; i++)
	{
		PipeannSlot *slot = PipeannSlotAt(r->l, r->page, i);
		uint32		id = PipeannVacuumId(r->v, page, i);
		PipeannListChange *change = &r->changes[n];

		if (!NeedsRepair(r, id, slot))
			continue;
		change->target = id;
		change->seen = slot;
		change->n = NewList(r, id, slot, change->list);
		change->done = false;
		n++;
	}
	return n;
}

/* Repair a page's lists; again if inserts have changed some meanwhile. */
static void
RepairPage(Repair *r, uint32 page, bool last)
{
	bool		again = true;

	while (again)
	{
		int			n;

		PipeannVacuumCopyPage(r->v, page, r->page);
		n = PlanLists(r, page);
		PipeannChangeLists(&r->v->view, r->changes, n,
						   r->v->info->strategy);
		again = false;
		for (int i = 0; i < n; i++)
		{
			r->v->lists += r->changes[i].done;
			again |= !r->changes[i].done;
		}
		if (n > 0 && !again && last)
			PipeannVacuumCopyPage(r->v, page, r->page);
	}
	for (uint32 i = 0; i < r->l->slots_per_page && last; i++)
	{
		const PipeannSlot *slot = PipeannSlotAt(r->l, r->page, i);
		int			degree = PipeannSlotIsLive(slot) ?
			PipeannSlotDegree(&r->v->view.meta.layout, slot) : 0;

		/* count a node's edges, if it is live */
		for (int j = 0; j < degree; j++)
			CountEdge(r->v, slot->neighbors[j], 1);
	}
}

/*
 * Making sure that an edge from a near node leads to each live node. For a
 * search, which explores what is near its query, it is not enough that a node
 * can be reached: where most nodes that led to it have died, only an edge from
 * far away may be left. Neighbours to which few edges lead do not count: they
 * may form a group to which no other node leads.
 */

/*
 * One of this many nearest neighbours should lead to a node. With more than
 * that rows are missed: some of an outlier's ten nearest are far away.
 */
#define NEAREST 4

/* Few edges lead to a node if they are at most this part of the degree. */
#define FEW_PART 3

static bool
HasFewInEdges(const PipeannVacuum *v, uint32 id)
{
	int			few = v->view.meta.layout.max_degree / FEW_PART;

	return InDegree(v, id) <= Min(few, MOST_COUNTED - 1);
}

/* Whether a node is surely found by searches, and so leads on to others. */
static bool
IsSurelyFound(const PipeannVacuum *v, uint32 id)
{
	return id < v->ids && PipeannBitsHas(&v->live, id) && !HasFewInEdges(v, id);
}

/* Sort a node's neighbours, nearest first, into out[max_degree]; returns how many. */
static int
SortNeighbors(const PipeannIndexView *view, uint32 id, const PipeannSlot *slot,
			  PipeannKey *out)
{
	const PipeannLayout *l = &view->meta.layout;
	int			dim = PipeannEmbeddedDim(l->metric, l->dim);
	float	   *x = palloc(mul_size(l->dim, sizeof(float)));
	void	   *self = palloc(PipeannEmbeddedBytes(l));
	void	   *other = palloc(PipeannEmbeddedBytes(l));
	int			n = 0;

	PipeannEmbedSlot(view, id, slot, false, x, self);
	for (int i = 0; i < PipeannSlotDegree(l, slot); i++)
	{
		if (!PipeannEmbedNode(view, slot->neighbors[i], x, other))
			continue;
		out[n++] = PipeannKeyMake(PipeannEmbeddedPair(l) (self, other, dim),
								  slot->neighbors[i]);
	}
	PipeannKeySort(out, n);
	return n;
}

/* Whether one of near[n] that searches find leads to a node. */
static bool
IsLedTo(const PipeannVacuum *v, uint32 id, const PipeannKey *near, int n)
{
	const PipeannIndexView *view = &v->view;
	const PipeannLayout *l = &view->meta.layout;
	PipeannSlot *slot = PipeannSlotAlloc(l);
	bool		found = false;

	for (int i = 0; i < n && !found; i++)
	{
		if (!IsSurelyFound(v, PipeannKeyId(near[i])))
			continue;
		PipeannSlotCopy(view, PipeannKeyId(near[i]), slot);
		found = PipeannSlotIsNode(slot) &&
			PipeannListHas(slot->neighbors, PipeannSlotDegree(l, slot), id);
	}
	pfree(slot);
	return found;
}

/*
 * Make an edge, unless it exists. In a full list it replaces the last neighbour that has
 * many in-edges. False if there is no such neighbour, or an insert is changing the list.
 */
static bool
AddEdge(PipeannVacuum *v, uint32 from, uint32 id)
{
	const PipeannLayout *l = &v->view.meta.layout;
	PipeannListChange change = {.target = from,.seen = PipeannSlotAlloc(l)};
	uint32	   *list = change.seen->neighbors;
	int			place;

	PipeannSlotCopy(&v->view, from, change.seen);
	if (!PipeannSlotIsNode(change.seen))
		return false;
	change.n = place = PipeannSlotDegree(l, change.seen);
	if (PipeannListHas(list, place, id))
		return true;
	if (place == l->max_degree)
		for (place--; place >= 0; place--)
			if (list[place] < v->ids && !HasFewInEdges(v, list[place]))
				break;
	if (place < 0)
		return false;
	change.list = palloc(l->max_degree * sizeof(uint32));
	memcpy(change.list, list, change.n * sizeof(uint32));
	change.list[place] = id;
	change.n = Max(change.n, place + 1);
	PipeannChangeLists(&v->view, &change, 1, NULL);
	if (change.done && place < PipeannSlotDegree(l, change.seen))
		CountEdge(v, list[place], -1);
	if (change.done)
		CountEdge(v, id, 1);
	return change.done;
}

/* Give a node an edge from a near one, if it has none. */
static void
LinkFromNear(PipeannVacuum *v, uint32 id, const PipeannSlot *slot)
{
	const PipeannIndexView *view = &v->view;
	PipeannKey *near = palloc(view->meta.layout.max_degree * sizeof(PipeannKey));
	int			n = SortNeighbors(view, id, slot, near);
	bool		linked = IsLedTo(v, id, near, Min(n, NEAREST));

	for (int i = 0; i < n && !linked; i++)
	{
		linked = IsSurelyFound(v, PipeannKeyId(near[i])) &&
			AddEdge(v, PipeannKeyId(near[i]), id);
		if (linked)
			v->relinked++;
	}
}

/*
 * Give nodes that lost an edge one from a near node, under the lock that inserts take: it
 * shuts out retraining and other exclusive holders.
 */
static void
LinkNear(PipeannVacuum *v)
{
	const PipeannIndexView *view = &v->view;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pipeann relink",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);

	for (uint32 id = 0; id < v->ids; id++)
	{
		PipeannSlot *slot;

		CHECK_FOR_INTERRUPTS();
		if (!PipeannBitsHas(&v->orphaned, id) || !PipeannBitsHas(&v->live, id) ||
			!HasFewInEdges(v, id))
			continue;
		PipeannVacuumDelay();
		slot = PipeannSlotAlloc(&view->meta.layout);
		LockPage(view->index, PIPEANN_METAPAGE, ShareLock);
		PipeannSlotCopy(view, id, slot);
		if (PipeannSlotIsLive(slot))
			LinkFromNear(v, id, slot);
		UnlockPage(view->index, PIPEANN_METAPAGE, ShareLock);
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

void
PipeannVacuumRepairGraph(PipeannVacuum *v)
{
	Repair	   *r = NewRepair(v);

	PipeannVacuumInitSet(v, &v->orphaned);
	v->in_degrees = PipeannAllocZero(v->ids / 2 + 1);
	do
	{
		bool		last;

		LoadLists(r);
		last = r->to >= v->ids || v->dead.count == 0;
		PipeannVacuumBeginPass(v);
		for (uint32 page = 0; page < v->pages; page++)
			RepairPage(r, page, last);
		r->from = r->to;
	} while (r->from < v->ids);
	LinkNear(v);
}
