/*
 * repair.c
 *		VACUUM takes dead nodes out of the graph, and keeps it connected.
 *
 * src/README, "vacuum/: dead rows out", tells how, in the steps 5 and 6.
 */
#include "postgres.h"

#include <math.h>

#include "base/id_set.h"
#include "base/key.h"
#include "base/pause.h"
#include "distance/sparse.h"
#include "index/neighbors.h"
#include "io/io.h"
#include "miscadmin.h"
#include "postmaster/autovacuum.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/spccache.h"
#include "vacuum/passes.h"

/* ---------- passes over the graph pages, for all steps of VACUUM ---------- */

static void
Prefetch(PipeannVacuum *v, uint32 page)
{
	Relation	index = v->view.index;
	uint32		ahead =
		get_tablespace_maintenance_io_concurrency(index->rd_rel->reltablespace);
	uint32		end = Min((uint64) page + ahead + 1, v->pages);

	for (v->prefetched = Max(v->prefetched, page + 1); v->prefetched < end;
		 v->prefetched++)
		PrefetchBuffer(index, MAIN_FORKNUM,
					   PipeannGraphBlock(v->view.map, &v->view.meta.layout,
										 v->prefetched));
}

/*
 * Lock the first block of a graph page in such a pass, after
 * PipeannVacuumDelay(). A page that was never written is all zeroes: no slot is in use.
 */
Buffer
PipeannVacuumPage(PipeannVacuum *v, uint32 page, int lockmode)
{
	BlockNumber blkno = PipeannGraphBlock(v->view.map, &v->view.meta.layout,
										  page);

	PipeannVacuumDelay();
	PIPEANN_PAUSE("vacuum-page");
	Prefetch(v, page);
	return PipeannReadBuffer(v->view.index, blkno, PIPEANN_GRAPH, lockmode,
							 true, v->info->strategy);
}

/*
 * The walk from the root, over spanning-tree edges: inserts may prune others.
 */

typedef struct Reach
{
	PipeannVacuum *v;
	PipeannBits present;		/* live nodes seen so far */
	PipeannBits in_tree;		/* nodes to which a spanning-tree edge of one
								 * of these leads */
	PipeannBits reached;
	PipeannBits expanded;		/* reached nodes whose edges were followed */
	uint8	   *in_degrees;		/* 4 bits a node */
	uint32	   *pending;		/* nodes reached since the last pass, */
	uint32		npending;
	bool		more_pending;	/* for which there was not always room */
} Reach;

/* In-degrees are counted up to this. */
#define MOST_COUNTED 15

/* Nodes reached since the last pass that are remembered one by one. */
#define MOST_PENDING 4096

/*
 * So many pages are looked at one by one, in any order. Then a pass over all takes
 * less: it looks at a few bits of each page, and at the pages that matter in order.
 */
#define FEWEST_FOLLOWED 64
#define PAGES_PER_FOLLOWED 256

/* Begin with the root alone, and sets for v->ids ids. */
static void
ReachBegin(Reach *reach, PipeannVacuum *v)
{
	reach->v = v;
	PipeannVacuumInitSet(v, &reach->present);
	PipeannVacuumInitSet(v, &reach->in_tree);
	PipeannVacuumInitSet(v, &reach->reached);
	PipeannVacuumInitSet(v, &reach->expanded);
	if (v->view.meta.root < v->ids)
		PipeannBitsAdd(&reach->reached, v->view.meta.root);
	reach->in_degrees = PipeannAllocZero(v->ids / 2 + 1);
	reach->pending = palloc(MOST_PENDING * sizeof(uint32));
	reach->npending = 0;
	reach->more_pending = false;
}

/* Follow a node's spanning-tree edges if it is reached. */
static void
Expand(Reach *reach, uint32 id, const PipeannSlot *slot)
{
	int			tree_edges;

	if (!PipeannBitsHas(&reach->reached, id) ||
		PipeannBitsHas(&reach->expanded, id))
		return;
	PipeannBitsAdd(&reach->expanded, id);
	tree_edges = PipeannSlotIsNode(slot) ?
		PipeannSlotTreeEdges(&reach->v->view.meta.layout, slot) : 0;
	for (int i = 0; i < tree_edges; i++)
	{
		uint32		child = slot->neighbors[i];

		if (child >= reach->v->ids || PipeannBitsHas(&reach->reached, child))
			continue;
		PipeannBitsAdd(&reach->reached, child);
		if (reach->npending < MOST_PENDING)
			reach->pending[reach->npending++] = child;
		else
			reach->more_pending = true;
	}
}

/* The number of edges that lead to a node, at most MOST_COUNTED. */
static int
InDegree(const Reach *reach, uint32 id)
{
	return (reach->in_degrees[id / 2] >> (id % 2 * 4)) & MOST_COUNTED;
}

/* Note where a live node's edges lead. */
static void
AddEdges(Reach *reach, const PipeannSlot *slot)
{
	const PipeannLayout *l = &reach->v->view.meta.layout;
	int			degree = PipeannSlotDegree(l, slot);
	int			tree_edges = PipeannSlotTreeEdges(l, slot);

	for (int i = 0; i < degree; i++)
	{
		uint32		id = slot->neighbors[i];

		if (id >= reach->v->ids)
			continue;
		if (i < tree_edges)
			PipeannBitsAdd(&reach->in_tree, id);
		if (InDegree(reach, id) < MOST_COUNTED)
			reach->in_degrees[id / 2] += 1 << (id % 2 * 4);
	}
}

/* Take in a node's present list: count its edges, follow it if reached. */
static void
ReachNode(Reach *reach, uint32 id, const PipeannSlot *slot)
{
	if (PipeannSlotIsLive(slot))
	{
		PipeannBitsAdd(&reach->present, id);
		AddEdges(reach, slot);
	}
	Expand(reach, id, slot);
}

static bool
IsPending(const Reach *reach, uint32 id)
{
	return PipeannBitsHas(&reach->reached, id) &&
		!PipeannBitsHas(&reach->expanded, id);
}

static bool
PageIsPending(const Reach *reach, uint32 page)
{
	for (uint32 i = 0; i < reach->v->view.meta.layout.slots_per_page; i++)
		if (IsPending(reach, PipeannVacuumId(reach->v, page, i)))
			return true;
	return false;
}

static void
ExpandPage(Reach *reach, uint32 page)
{
	const PipeannLayout *l = &reach->v->view.meta.layout;
	char	   *nodes = palloc(PIPEANN_PAYLOAD);

	PipeannVacuumCopyPage(reach->v, page, nodes);
	for (uint32 i = 0; i < l->slots_per_page; i++)
		Expand(reach, PipeannVacuumId(reach->v, page, i),
			   PipeannSlotAt(l, nodes, i));
	pfree(nodes);
}

/* Pass over the pages until no edge is left to follow. */
static void
ReachWalk(Reach *reach)
{
	bool		again = true;

	while (again)
	{
		again = false;
		PipeannVacuumBeginPass(reach->v);
		for (uint32 page = 0; page < reach->v->pages; page++)
			if (PageIsPending(reach, page))
			{
				ExpandPage(reach, page);
				again = true;
			}
	}
	reach->npending = 0;
	reach->more_pending = false;
}

/*
 * Follow the edges that are left when few nodes were reached since such passes: it
 * reads only the pages of these, unless there are many.
 */
static void
ReachFollow(Reach *reach)
{
	PipeannVacuum *v = reach->v;
	uint32		left = FEWEST_FOLLOWED + v->pages / PAGES_PER_FOLLOWED;

	v->prefetched = v->pages;	/* those that come next are elsewhere */
	while (reach->npending > 0 && left > 0)
	{
		uint32		id = reach->pending[--reach->npending];
		uint32		page = id / v->view.meta.layout.slots_per_page;

		if (!IsPending(reach, id) || page >= v->pages)
			continue;
		ExpandPage(reach, page);
		left--;
	}
	if (reach->npending > 0 || reach->more_pending)
		ReachWalk(reach);
}

/*
 * New neighbour lists. (FreshDiskANN prunes the whole list; here the neighbours that
 * stay are not questioned, which costs less.) The lists of dead nodes are needed in no
 * order, so they are kept in memory.
 */

/* Candidates for one list: neighbours of its dead nodes. */
#define MAX_CANDIDATES 256

/* With fewer candidates, take those of dead nodes at second hand, too. */
#define FEW_CANDIDATES 8
#define MAX_DEAD 256

/* The nearest candidates compared for a list exceed its free places by this. */
#define SPARE_CANDIDATES 6

typedef struct Repair
{
	PipeannVacuum *v;
	const PipeannLayout *l;

	/*
	 * The dead nodes of this round, ids from .. to - 1, and their lists:
	 * length, number of spanning-tree edges, ids.
	 */
	uint32		from;
	uint32		to;
	PipeannIdSet offsets;		/* of lists[], by id */
	uint32	   *lists;
	Size		used;
	Size		size;

	PipeannIdSet positions;		/* dead nodes' positions in the entry graph */

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
	int			ntree_edges;	/* of the new list; they come first */
	PipeannListChange *changes; /* [slots_per_page] new lists of a page */
	char		page[PIPEANN_PAYLOAD];	/* copy of the page being repaired */
} Repair;

/*
 * Whether a neighbour has to leave a list in this round. Dead nodes of the
 * entry graph keep their edges to each other.
 */
static bool
HasToGo(const Repair *r, uint32 neighbor, bool owner_is_dead)
{
	return neighbor >= r->from && neighbor < r->to &&
		PipeannBitsHas(&r->v->dead, neighbor) &&
		!(owner_is_dead && PipeannBitsHas(&r->v->entry, neighbor));
}

/* Whether a node is the new root: it inherits the old one's children. */
static bool
IsHeirOfRoot(const Repair *r, uint32 id)
{
	return id == r->v->view.meta.root &&
		r->v->old_root != PIPEANN_INVALID_ID &&
		HasToGo(r, r->v->old_root, false);
}

/* The list of a dead node of this round, or one of length 0. */
static const uint32 *
ListOf(const Repair *r, uint32 dead)
{
	static const uint32 none[2] = {0};
	uint32		offset;

	return PipeannIdSetGet(&r->offsets, dead, &offset) ? r->lists + offset : none;
}

/* Add the neighbours of dead node r->dead[at] to the candidates. */
static void
AddCandidates(Repair *r, int at)
{
	const uint32 *list = ListOf(r, r->dead[at]);

	for (uint32 i = 0; i < list[0]; i++)
	{
		uint32		id = list[2 + i];

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

/*
 * The parent of a dead node becomes the parent of its children, so that these
 * are not cut off later. A list that is full of spanning-tree edges takes no
 * more: other parents are found later.
 */
static int
InheritTreeEdges(Repair *r, uint32 dead, uint32 *out, int n)
{
	const uint32 *list = ListOf(r, dead);

	for (uint32 i = 0; i < list[1] && n < PipeannWantedTreeEdges(r->l); i++)
		if (PipeannBitsHas(&r->v->live, list[2 + i]) &&
			PipeannIdSetAdd(&r->seen, list[2 + i]))
			out[n++] = list[2 + i];
	return n;
}

/* Put the spanning-tree edges that a list keeps or inherits in front of out. */
static int
TakeTreeEdges(Repair *r, uint32 id, const PipeannSlot *slot,
			  uint32 *out)
{
	int			tree_edges = PipeannSlotTreeEdges(r->l, slot);
	bool		dead = PipeannBitsHas(&r->v->dead, id);
	int			n = 0;

	for (int i = 0; i < tree_edges; i++)
		if (!HasToGo(r, slot->neighbors[i], dead))
		{
			(void) PipeannIdSetAdd(&r->seen, slot->neighbors[i]);
			out[n++] = slot->neighbors[i];
		}
	for (int i = 0; i < tree_edges; i++)
		if (HasToGo(r, slot->neighbors[i], dead))
			n = InheritTreeEdges(r, slot->neighbors[i], out, n);
	if (IsHeirOfRoot(r, id))
		n = InheritTreeEdges(r, r->v->old_root, out, n);
	return n;
}

/* Copy what stays of a list to out, and gather candidates for the rest. */
static int
GatherCandidates(Repair *r, uint32 id, const PipeannSlot *slot,
				 uint32 *out)
{
	int			degree = PipeannSlotDegree(r->l, slot);
	bool		dead = PipeannBitsHas(&r->v->dead, id);
	int			kept;
	int			first;

	PipeannIdSetReset(&r->seen, Max(r->seen.slots, 1024), false);
	r->ndead = r->ncand = 0;
	(void) PipeannIdSetAdd(&r->seen, id);
	r->ntree_edges = kept = TakeTreeEdges(r, id, slot, out);
	for (int i = 0; i < degree; i++)
	{
		bool		is_new = PipeannIdSetAdd(&r->seen, slot->neighbors[i]);

		if (HasToGo(r, slot->neighbors[i], dead))
			r->dead[r->ndead++] = slot->neighbors[i];
		else if (is_new && kept < r->l->max_degree)
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
 * Sort the candidates by their distances: by code, with the node's table. Without
 * codes, of bits, and for inner products, whose order is not that of the embedded
 * distance, embedded vectors are compared.
 */
static void
RankCandidates(Repair *r)
{
	const PipeannCodes *codes = &r->v->view.codes;

	/* cosine's order is that of L2, whose distances make keys */
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
		for (int i = 0; i < r->ncand; i++)
		{
			r->codes[i] = PipeannCodeAt(codes, r->cand[i]);
			__builtin_prefetch(r->codes[i]);
		}
		PipeannPqTable(&codes->pq, metric, r->self, r->table);
		PipeannPqScan(&codes->pq, metric, r->table, r->codes, r->ncand,
					  r->code_dists);
		for (int i = 0; i < r->ncand; i++)
			r->near[i] = PipeannKeyMake(r->code_dists[i], r->cand[i]);
	}
	PipeannKeySort(r->near, r->ncand);
}

/*
 * Whether one of the first n vectors is nearer to the node than vector at, and
 * makes it superfluous.
 */
static bool
IsCovered(const Repair *r, int n, int at)
{
	for (int i = 0; i < n; i++)
		if (r->dists[i] <= r->dists[at] &&
			PIPEANN_ALPHA * Distance(r, Vector(r, i), Vector(r, at)) <=
			r->dists[at])
			return true;
	return false;
}

/*
 * Add the best of the n nearest candidates to out[kept], up to degree: first those that no
 * other neighbour makes superfluous, then the nearest. r->vectors holds a
 * vector for each element of out.
 */
static int
ChooseCandidates(Repair *r, uint32 *out, int kept, int degree, int n)
{
	int			have = kept;

	for (int i = 0; i < kept; i++)
		LoadVector(r, i, out[i]);
	for (int i = 0; i < n && have < degree; i++)
	{
		LoadVector(r, have, PipeannKeyId(r->near[i]));
		if (IsCovered(r, have, have))
			continue;
		out[have++] = PipeannKeyId(r->near[i]);
		r->near[i] = PIPEANN_INVALID_ID;
	}
	for (int i = 0; i < n && have < degree; i++)
		if (PipeannKeyId(r->near[i]) != PIPEANN_INVALID_ID)
			out[have++] = PipeannKeyId(r->near[i]);
	return have;
}

/* A dead node of the entry graph leads to its neighbours there as well. */
static int
AddEntryNeighbors(Repair *r, uint32 id, uint32 *out, int n)
{
	const PipeannCodes *codes = &r->v->view.codes;
	uint32		at;

	if (!PipeannIdSetGet(&r->positions, id, &at))
		return n;
	for (int i = 0; i < codes->entry_nneighbors[at] &&
		 i < (int) codes->entry_degree && n < r->l->max_degree; i++)
	{
		uint32		position = codes->entry_neighbors[(Size) at *
													  codes->entry_degree + i];
		uint32		neighbor;
		bool		known = false;

		if (position >= codes->entry_count)
			continue;
		neighbor = codes->entry_ids[position];
		for (int j = 0; j < n && !known; j++)
			known = out[j] == neighbor;
		if (!known && neighbor != id)
			out[n++] = neighbor;
	}
	return n;
}

/*
 * Compute a node's new list, out[max_degree]; returns its length and sets
 * r->ntree_edges, the number of spanning-tree edges at its front.
 */
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
		/* the node's own vector is exact if it is on the page */
		if (r->l->node_pages > 1)
			(void) PipeannEmbedNode(&r->v->view, id, r->x, r->self);
		else
			PipeannEmbedSlot(&r->v->view, id, slot, r->x, r->self);
		RankCandidates(r);
		n = ChooseCandidates(r, out, n, degree, nearest);
	}
	return AddEntryNeighbors(r, id, out, n);
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

/* Note the positions in the entry graph of dead nodes there. */
static void
FindPositions(Repair *r)
{
	const PipeannCodes *codes = &r->v->view.codes;

	PipeannIdSetInit(&r->positions, 64, true);
	for (uint32 i = 0; i < codes->entry_count; i++)
		if (codes->entry_ids[i] < r->v->ids &&
			PipeannBitsHas(&r->v->dead, codes->entry_ids[i]))
			PipeannIdSetPut(&r->positions, codes->entry_ids[i], i);
}

/*
 * Keep the list of a dead node: its live neighbours, which may replace it, and
 * its dead ones.
 */
static void
KeepList(Repair *r, uint32 id, const PipeannSlot *slot)
{
	int			degree = PipeannSlotDegree(r->l, slot);
	uint32	   *list;
	uint32		n = 0;

	if (r->used + degree + 2 > r->size)
	{
		r->size = Max(r->size * 2, 65536);
		r->lists = r->lists == NULL ?
			PipeannAlloc(mul_size(r->size, sizeof(uint32))) :
			PipeannRealloc(r->lists, mul_size(r->size, sizeof(uint32)));
	}
	list = r->lists + r->used;
	list[1] = 0;
	for (int i = 0; i < degree; i++)
	{
		uint32		neighbor = slot->neighbors[i];

		if (neighbor < r->v->ids &&
			(PipeannBitsHas(&r->v->live, neighbor) ||
			 PipeannBitsHas(&r->v->dead, neighbor)))
		{
			list[2 + n++] = neighbor;
			PipeannBitsAdd(&r->v->orphaned, neighbor);
			if (i < slot->tree_edges)
				list[1]++;
		}
	}
	list[0] = n;
	PipeannIdSetPut(&r->offsets, id, (uint32) r->used);
	r->used += n + 2;
}

static bool
PageHasDead(const Repair *r, uint32 page)
{
	for (uint32 i = 0; i < r->l->slots_per_page; i++)
		if (PipeannBitsHas(&r->v->dead, PipeannVacuumId(r->v, page, i)))
			return true;
	return false;
}

/* Load as many dead nodes as memory holds: ids r->from .. r->to - 1. */
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
				KeepList(r, id, PipeannSlotAt(r->l, r->page, i));
		}
	}
	r->to = page < r->v->pages ? page * r->l->slots_per_page : r->v->ids;
}

static bool
NeedsRepair(const Repair *r, uint32 id, const PipeannSlot *slot)
{
	int			degree = PipeannSlotDegree(r->l, slot);
	bool		dead = PipeannBitsHas(&r->v->dead, id);

	if (!PipeannSlotIsNode(slot) || PipeannVacuumFrees(r->v, id))
		return false;
	if (IsHeirOfRoot(r, id))
		return true;
	for (int i = 0; i < degree; i++)
		if (HasToGo(r, slot->neighbors[i], dead))
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
		change->tree_edges = r->ntree_edges;
		change->done = false;
		n++;
	}
	return n;
}

/* Inserts may change lists meanwhile; then the page is done again. */
static void
RepairPage(Repair *r, uint32 page, Reach *reach)
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
		if (n > 0 && !again && reach != NULL)
			PipeannVacuumCopyPage(r->v, page, r->page);
	}
	for (uint32 i = 0; i < r->l->slots_per_page && reach != NULL; i++)
		ReachNode(reach, PipeannVacuumId(r->v, page, i),
				  PipeannSlotAt(r->l, r->page, i));
}

static void
RepairLists(PipeannVacuum *v, Reach *reach)
{
	Repair	   *r = NewRepair(v);

	FindPositions(r);
	do
	{
		bool		last;

		LoadLists(r);
		last = r->to >= v->ids || v->dead.count == 0;
		PipeannVacuumBeginPass(v);
		for (uint32 page = 0; page < v->pages; page++)
			RepairPage(r, page, last ? reach : NULL);
		r->from = r->to;
	} while (r->from < v->ids);
}

/* Nodes that get edges to them. */

/*
 * Call link() for a node, if it is live, under the lock that inserts take. If
 * link() returns true the node is reached. Returns whether it is.
 *
 * The lock shuts out retraining and other exclusive holders, as an insert's
 * does. A reached node's children are reached with it.
 */
static bool
ReachAttach(Reach *reach, uint32 id,
			bool (*link) (Reach *reach, uint32 id,
						  const PipeannSlot *slot))
{
	PipeannIndexView *view = &reach->v->view;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pipeann relink",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	PipeannSlot *slot = PipeannSlotAlloc(&view->meta.layout);
	bool		linked = true;

	PipeannVacuumDelay();
	LockPage(view->index, PIPEANN_METAPAGE, ShareLock);
	PipeannSlotCopy(view, id, slot);
	if (PipeannSlotIsLive(slot))
	{
		linked = link(reach, id, slot);
		if (linked)
			reach->v->relinked++;
	}
	UnlockPage(view->index, PIPEANN_METAPAGE, ShareLock);
	if (linked)
	{
		PipeannBitsAdd(&reach->reached, id);
		Expand(reach, id, slot);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return linked;
}

/*
 * Spanning-tree edges lead to every live node again. Nodes without a parent get one
 * first, which brings back those below them. Nodes written meanwhile are linked by their
 * inserts.
 */

/* Nearest nodes that are tried as parents of a node. */
#define SEARCH_EF 64

static float
NoOutOfLineDistance(uint32 id, const PipeannSlot *slot, void *arg)
{
	const PipeannLayout *l = arg;

	return (float) l->dim;
}

static bool
IsReached(const Reach *reach, uint32 id)
{
	return id < reach->v->ids && PipeannBitsHas(&reach->reached, id);
}

/*
 * Make an edge to a node from one of its own neighbours, if possible from one
 * that leads to it already.
 */
static bool
LinkByNeighbor(Reach *reach, uint32 id, const PipeannSlot *slot)
{
	const PipeannIndexView *view = &reach->v->view;
	int			degree = PipeannSlotDegree(&view->meta.layout, slot);

	for (int i = 0; i < degree; i++)
		if (IsReached(reach, slot->neighbors[i]) &&
			PipeannLinkEdge(view, slot->neighbors[i], id, slot, true))
			return true;
	for (int i = 0; i < degree; i++)
		if (IsReached(reach, slot->neighbors[i]) &&
			PipeannLinkEdge(view, slot->neighbors[i], id, slot, false))
			return true;
	return false;
}

/* Make an edge to a node from the nearest node that a search finds. */
static bool
LinkBySearch(Reach *reach, uint32 id, const PipeannSlot *slot)
{
	const PipeannIndexView *view = &reach->v->view;
	PipeannLayout near = PipeannNearLayout(&view->meta.layout);
	PipeannCounters counters = {0};
	PipeannPageSource *source = PipeannViewSource(view, &counters);
	PipeannSearchParams params = {
		.ef = SEARCH_EF,
		.out_of_line_distance = NoOutOfLineDistance,
		.out_of_line_arg = &near
	};
	PipeannSearch *search;
	const PipeannResult *result;
	float	   *query = palloc(mul_size(PipeannFloats(near.storage, near.dim),
										sizeof(float)));
	bool		linked = false;

	PipeannVectorUnpack(PipeannSlotVector(&near, slot), near.storage, near.dim,
						query);
	PipeannQueryOf(&near, query, query);
	search = PipeannLinkSearch(view, &near, source, query, false, params);
	PipeannSearchReleasePages(search);
	PipeannSourceClose(source);
	while (!linked && (result = PipeannSearchPop(search)) != NULL)
		if (result->id != id && IsReached(reach, result->id))
			linked = PipeannLinkEdge(view, result->id, id, slot, false);
	return linked;
}

static bool
LinkAnyhow(Reach *reach, uint32 id, const PipeannSlot *slot)
{
	return LinkByNeighbor(reach, id, slot) ||
		LinkBySearch(reach, id, slot) ||
		PipeannLinkEntry(&reach->v->view, id, slot);
}

static bool
IsLost(const Reach *reach, uint32 id)
{
	return PipeannBitsHas(&reach->present, id) &&
		!PipeannBitsHas(&reach->reached, id);
}

/*
 * Give the nodes without a parent one among their neighbours. Returns whether
 * any got one.
 */
static bool
AttachOrphans(Reach *reach)
{
	bool		any = false;

	for (uint32 id = 0; id < reach->v->ids; id++)
	{
		CHECK_FOR_INTERRUPTS();
		if (IsLost(reach, id) && !PipeannBitsHas(&reach->in_tree, id))
			any |= ReachAttach(reach, id, LinkByNeighbor);
	}
	return any;
}

/*
 * Link the nodes that are left. There may be very many, and each brings back a few
 * others: with passes for each the time would grow with the square of the index.
 */
static void
AttachRest(Reach *reach)
{
	for (uint32 id = 0; id < reach->v->ids; id++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!IsLost(reach, id))
			continue;
		(void) ReachAttach(reach, id, LinkAnyhow);
		ReachFollow(reach);
	}
}

/*
 * An edge from a near node leads to each live node.
 *
 * For a search, which explores what is near its query, it is not enough that a
 * node can be reached: where most nodes that led to it have died, only the
 * edge of a parent far away may be left, which took the node over from its own
 * parent. Neighbours with few edges to themselves do not count: they may form a group
 * that leads only to itself.
 */

/*
 * One of so many nearest neighbours should lead to a node. Asking more of them
 * misses rows: of an outlier's ten nearest some are far away.
 */
#define NEAREST 4

/* A node has few edges to it if they are at most this part of the degree. */
#define FEW_PART 3

static bool
HasFew(const Reach *reach, uint32 id)
{
	int			few = reach->v->view.meta.layout.max_degree / FEW_PART;

	return InDegree(reach, id) <= Min(few, MOST_COUNTED - 1);
}

/* Whether a node is surely found by searches, and so leads on to others. */
static bool
LeadsOn(const Reach *reach, uint32 id)
{
	return id < reach->v->ids && PipeannBitsHas(&reach->v->live, id) &&
		!HasFew(reach, id);
}

/* Sort a node's neighbours, nearest first, to out[max_degree]; how many. */
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

	PipeannEmbedSlot(view, id, slot, x, self);
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

/* Whether one of near[n], which is found itself, leads to a node. */
static bool
IsLedTo(const Reach *reach, uint32 id, const PipeannKey *near, int n)
{
	const PipeannIndexView *view = &reach->v->view;
	const PipeannLayout *l = &view->meta.layout;
	PipeannSlot *slot = PipeannSlotAlloc(l);
	bool		found = false;

	for (int i = 0; i < n && !found; i++)
	{
		if (!LeadsOn(reach, PipeannKeyId(near[i])))
			continue;
		PipeannSlotCopy(view, PipeannKeyId(near[i]), slot);
		found = PipeannSlotIsNode(slot) &&
			PipeannListHas(slot->neighbors, PipeannSlotDegree(l, slot), id);
	}
	pfree(slot);
	return found;
}

/* Give a node an edge from a near one, if it has none. True if it got one. */
static bool
LinkFromNear(Reach *reach, uint32 id, const PipeannSlot *slot)
{
	const PipeannIndexView *view = &reach->v->view;
	PipeannKey *near = palloc(view->meta.layout.max_degree * sizeof(PipeannKey));
	int			n = SortNeighbors(view, id, slot, near);

	if (IsLedTo(reach, id, near, Min(n, NEAREST)))
		return false;
	for (int i = 0; i < n; i++)
		if (LeadsOn(reach, PipeannKeyId(near[i])) &&
			PipeannLinkEdge(view, PipeannKeyId(near[i]), id, slot, false))
			return true;
	return false;
}

/* Give nodes that lost an edge one from a near node. */
static void
LinkNear(Reach *reach)
{
	for (uint32 id = 0; id < reach->v->ids; id++)
	{
		CHECK_FOR_INTERRUPTS();
		if (PipeannBitsHas(&reach->v->orphaned, id) &&
			PipeannBitsHas(&reach->present, id) &&
			id != reach->v->view.meta.root && HasFew(reach, id))
			(void) ReachAttach(reach, id, LinkFromNear);
	}
}

void
PipeannVacuumRepairGraph(PipeannVacuum *v)
{
	Reach		reach;

	PipeannVacuumInitSet(v, &v->orphaned);
	ReachBegin(&reach, v);
	RepairLists(v, &reach);
	do
		ReachWalk(&reach);
	while (AttachOrphans(&reach));
	AttachRest(&reach);
	LinkNear(&reach);
}
