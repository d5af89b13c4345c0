/*
 * repair.c
 *		VACUUM takes dead nodes out of the neighbour lists.
 *
 * The places of dead nodes in a list go to the best of their own live
 * neighbours, chosen by code distance as RobustPrune would. (FreshDiskANN
 * prunes the whole list; here the neighbours that stay are not questioned,
 * which costs less.) The lists of dead nodes are needed in no order, so they
 * are kept in memory; if maintenance_work_mem does not hold them all, this is
 * done in rounds.
 *
 * New lists are computed on a copy of the page. They are written where the old
 * list is still what it was.
 */
#include "postgres.h"

#include <math.h>

#include "base/id_set.h"
#include "distance/distance.h"
#include "index/neighbors.h"
#include "miscadmin.h"
#include "postmaster/autovacuum.h"
#include "utils/rel.h"
#include "vacuum/passes.h"

/* Candidates for one list: neighbours of its dead nodes. */
#define MAX_CANDIDATES 256

/* With fewer candidates, take those of dead nodes at second hand, too. */
#define FEW_CANDIDATES 8
#define MAX_DEAD 256

/* The nearest candidates compared for a list exceed its free places by this. */
#define SPARE_CANDIDATES 6

typedef struct PipeannRepairCandidate
{
	float		dist;
	uint32		id;
} PipeannRepairCandidate;

typedef struct PipeannRepair
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
	uint32	   *dead;			/* [MAX_DEAD] */
	int			ndead;
	PipeannRepairCandidate  *cand;			/* [MAX_CANDIDATES] */
	int			ncand;
	int			dim;			/* of embedded vectors */
	float	   *x;				/* [layout's dim] */
	float	   *self;			/* [dim] */
	float	   *vectors;		/* [2 * max_degree + SPARE][dim] */
	float	   *dists;			/* distances of vectors[] from the node */
	float	   *table;			/* code distances */
	const uint8 **codes;		/* [MAX_CANDIDATES] */
	float	   *code_dists;
	int			ntree_edges;	/* of the new list; they come first */
	uint32	   *fixed;			/* [slots_per_page][2 + max_degree] new lists:
								 * length, spanning-tree edges, ids */
	char	   *page;			/* copy of the page being repaired */
} PipeannRepair;

/*
 * Whether a neighbour has to leave a list in this round. Dead nodes of the
 * entry graph keep their edges to each other.
 */
static inline bool
PipeannHasToGo(const PipeannRepair *r, uint32 neighbor, bool owner_is_dead)
{
	return neighbor >= r->from && neighbor < r->to &&
		PipeannBitsHas(&r->v->dead, neighbor) &&
		!(owner_is_dead && PipeannBitsHas(&r->v->entry, neighbor));
}

/* Whether a node is the new root: it inherits the old one's children. */
static inline bool
PipeannIsHeirOfRoot(const PipeannRepair *r, uint32 id)
{
	return id == r->v->view.meta.root &&
		r->v->old_root != PIPEANN_INVALID_ID &&
		PipeannHasToGo(r, r->v->old_root, false);
}

/*
 * The new neighbour list of a node whose list leads to dead nodes.
 *
 * The places of dead nodes go to the best of their own live neighbours, chosen
 * by code distance as RobustPrune would (see graph/prune.h).
 */

static void
ForgetSeen(PipeannRepair *r)
{
	memset(r->seen.keys, 0xFF, ((Size) r->seen.mask + 1) * sizeof(uint32));
	r->seen.used = 0;
}

/* Add the neighbours of dead node r->dead[at] to the candidates. */
static void
AddCandidates(PipeannRepair *r, int at)
{
	uint32		offset;
	const uint32 *list;

	if (!PipeannIdSetGet(&r->offsets, r->dead[at], &offset))
		return;
	list = r->lists + offset;
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
			r->cand[r->ncand++].id = id;
	}
}

/*
 * The parent of a dead node becomes the parent of its children, so that these
 * are not cut off later. A list that is full of spanning-tree edges takes no
 * more: reach.c finds other parents.
 */
static int
InheritTreeEdges(PipeannRepair *r, uint32 dead, uint32 *out, int n)
{
	uint32		offset;
	const uint32 *list;

	if (!PipeannIdSetGet(&r->offsets, dead, &offset))
		return n;
	list = r->lists + offset;
	for (uint32 i = 0; i < list[1]; i++)
	{
		uint32		id = list[2 + i];

		if (n >= PipeannWantedTreeEdges(r->l))
			break;
		if (PipeannBitsHas(&r->v->live, id) &&
			PipeannIdSetAdd(&r->seen, id))
			out[n++] = id;
	}
	return n;
}

/* Put the spanning-tree edges that a list keeps or inherits in front of out. */
static int
TakeTreeEdges(PipeannRepair *r, uint32 id, const PipeannSlot *slot,
			  uint32 *out)
{
	int			tree_edges = PipeannSlotTreeEdges(r->l, slot);
	bool		dead = PipeannBitsHas(&r->v->dead, id);
	int			n = 0;

	for (int i = 0; i < tree_edges; i++)
		if (!PipeannHasToGo(r, slot->neighbors[i], dead))
		{
			(void) PipeannIdSetAdd(&r->seen, slot->neighbors[i]);
			out[n++] = slot->neighbors[i];
		}
	for (int i = 0; i < tree_edges; i++)
		if (PipeannHasToGo(r, slot->neighbors[i], dead))
			n = InheritTreeEdges(r, slot->neighbors[i], out, n);
	if (PipeannIsHeirOfRoot(r, id))
		n = InheritTreeEdges(r, r->v->old_root, out, n);
	return n;
}

/* Copy what stays of a list to out, and gather candidates for the rest. */
static int
GatherCandidates(PipeannRepair *r, uint32 id, const PipeannSlot *slot,
				 uint32 *out)
{
	int			degree = PipeannSlotDegree(r->l, slot);
	bool		dead = PipeannBitsHas(&r->v->dead, id);
	int			kept;
	int			first;

	ForgetSeen(r);
	r->ndead = r->ncand = 0;
	(void) PipeannIdSetAdd(&r->seen, id);
	r->ntree_edges = kept = TakeTreeEdges(r, id, slot, out);
	for (int i = 0; i < degree; i++)
	{
		bool		is_new = PipeannIdSetAdd(&r->seen, slot->neighbors[i]);

		if (PipeannHasToGo(r, slot->neighbors[i], dead))
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

/* The node's own vector: exact if it is on the page. */
static void
EmbedSelf(PipeannRepair *r, uint32 id, const PipeannSlot *slot)
{
	if (r->l->node_pages > 1)
		(void) PipeannEmbedNode(&r->v->view, id, r->x, r->self);
	else
		PipeannEmbedSlot(&r->v->view, id, slot, r->x, r->self);
}

static float
Distance(const PipeannRepair *r, const float *a, const float *b)
{
	return PipeannKernel->l2[PIPEANN_FLOAT4] (a, b, r->dim);
}

static float *
Vector(const PipeannRepair *r, int i)
{
	return r->vectors + (Size) i * r->dim;
}

static void
LoadVector(PipeannRepair *r, int i, uint32 id)
{
	r->dists[i] = PipeannEmbedNode(&r->v->view, id, r->x, Vector(r, i)) ?
		Distance(r, r->self, Vector(r, i)) : INFINITY;
}

/*
 * Set the distances of all candidates: by code, with the node's table. Without
 * codes, and for inner products, whose order is not that of the embedded
 * distance, embedded vectors are compared.
 */
static void
RankCandidates(PipeannRepair *r)
{
	const PipeannCodes *codes = &r->v->view.codes;

	if (r->l->metric == PIPEANN_IP || r->v->view.cache == NULL)
	{
		for (int i = 0; i < r->ncand; i++)
		{
			LoadVector(r, 0, r->cand[i].id);
			r->cand[i].dist = r->dists[0];
		}
		return;
	}
	for (int i = 0; i < r->ncand; i++)
	{
		r->codes[i] = PipeannCodeAt(codes, r->cand[i].id);
		__builtin_prefetch(r->codes[i]);
	}
	PipeannPqTable(&codes->pq, r->l->metric, r->self, r->table);
	PipeannKernel->pq_scan(r->table, codes->pq.nsubvectors, r->codes, r->ncand,
						   r->code_dists);
	for (int i = 0; i < r->ncand; i++)
		r->cand[i].dist = r->code_dists[i];
}

/* Bring the n nearest candidates to the front, in order. */
static void
SelectNearest(PipeannRepair *r, int n)
{
	for (int i = 0; i < n; i++)
	{
		int			least = i;
		PipeannRepairCandidate	moved = r->cand[i];

		for (int j = i + 1; j < r->ncand; j++)
			if (r->cand[j].dist < r->cand[least].dist)
				least = j;
		r->cand[i] = r->cand[least];
		r->cand[least] = moved;
	}
}

/*
 * Whether one of the first n vectors is nearer to the node than vector at, and
 * makes it superfluous.
 */
static bool
IsCovered(const PipeannRepair *r, int n, int at)
{
	for (int i = 0; i < n; i++)
		if (r->dists[i] <= r->dists[at] &&
			PIPEANN_ALPHA * Distance(r, Vector(r, i), Vector(r, at)) <=
			r->dists[at])
			return true;
	return false;
}

/*
 * Add the best of n candidates to out[kept], up to degree: first those that no
 * other neighbour makes superfluous, then the nearest. r->vectors holds a
 * vector for each element of out.
 */
static int
ChooseCandidates(PipeannRepair *r, uint32 *out, int kept, int degree, int n)
{
	int			have = kept;

	for (int i = 0; i < kept; i++)
		LoadVector(r, i, out[i]);
	for (int i = 0; i < n && have < degree; i++)
	{
		LoadVector(r, have, r->cand[i].id);
		if (IsCovered(r, have, have))
			continue;
		out[have++] = r->cand[i].id;
		r->cand[i].id = PIPEANN_INVALID_ID;
	}
	for (int i = 0; i < n && have < degree; i++)
		if (r->cand[i].id != PIPEANN_INVALID_ID)
			out[have++] = r->cand[i].id;
	return have;
}

/* A dead node of the entry graph leads to its neighbours there as well. */
static int
AddEntryNeighbors(PipeannRepair *r, uint32 id, uint32 *out, int n)
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
NewList(PipeannRepair *r, uint32 id, const PipeannSlot *slot,
		uint32 *out)
{
	int			degree = PipeannSlotDegree(r->l, slot);
	int			n = GatherCandidates(r, id, slot, out);
	int			nearest = Min(r->ncand,
							  2 * Max(degree - n, 0) + SPARE_CANDIDATES);

	if (r->ncand > 0)
	{
		EmbedSelf(r, id, slot);
		RankCandidates(r);
		SelectNearest(r, nearest);
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

static PipeannRepair *
NewRepair(PipeannVacuum *v)
{
	const PipeannLayout *l = &v->view.meta.layout;
	PipeannRepair *r = palloc0(sizeof(PipeannRepair));
	int			most = 2 * l->max_degree + SPARE_CANDIDATES;

	r->v = v;
	r->l = l;
	r->dim = PipeannEmbeddedDim(l->metric, l->dim);
	PipeannIdSetInit(&r->seen, 1024, false);
	r->dead = palloc(MAX_DEAD * sizeof(uint32));
	r->cand = palloc(MAX_CANDIDATES * sizeof(PipeannRepairCandidate));
	r->x = palloc(mul_size(l->dim, sizeof(float)));
	r->self = palloc(mul_size(r->dim, sizeof(float)));
	r->vectors = PipeannAlloc(mul_size(mul_size(most, r->dim),
									   sizeof(float)));
	r->dists = palloc(most * sizeof(float));
	r->table = palloc(mul_size(l->pq_bytes,
							   PIPEANN_CENTROIDS * sizeof(float)));
	r->codes = palloc(MAX_CANDIDATES * sizeof(uint8 *));
	r->code_dists = palloc(MAX_CANDIDATES * sizeof(float));
	r->fixed = palloc(mul_size(l->slots_per_page,
							   (2 + l->max_degree) * sizeof(uint32)));
	r->page = palloc(PIPEANN_PAYLOAD);
	return r;
}

/* Note the positions in the entry graph of dead nodes there. */
static void
FindPositions(PipeannRepair *r)
{
	const PipeannCodes *codes = &r->v->view.codes;

	PipeannIdSetInit(&r->positions, 64, true);
	for (uint32 i = 0; i < codes->entry_count; i++)
		if (codes->entry_ids[i] < r->v->ids &&
			PipeannBitsHas(&r->v->dead, codes->entry_ids[i]))
			PipeannIdSetPut(&r->positions, codes->entry_ids[i], i);
}

/* Copy the first block of a graph page. False if it was never written. */
static bool
CopyPage(PipeannRepair *r, uint32 number)
{
	Buffer		buffer = PipeannVacuumPage(r->v, number, BUFFER_LOCK_SHARE);

	if (!BufferIsValid(buffer))
		return false;
	memcpy(r->page, PipeannPagePayload(BufferGetPage(buffer)),
		   PIPEANN_PAYLOAD);
	UnlockReleaseBuffer(buffer);
	return true;
}

/*
 * Keep the list of a dead node: its live neighbours, which may replace it, and
 * its dead ones.
 */
static void
KeepList(PipeannRepair *r, uint32 id, const PipeannSlot *slot)
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
PageHasDead(const PipeannRepair *r, uint32 page)
{
	for (uint32 i = 0; i < r->l->slots_per_page; i++)
		if (PipeannBitsHas(&r->v->dead, PipeannVacuumId(r->v, page, i)))
			return true;
	return false;
}

/* Load as many dead nodes as memory holds: ids r->from .. r->to - 1. */
static void
LoadLists(PipeannRepair *r)
{
	Size		limit = Min(MemoryLimit() / 2, (Size) PG_INT32_MAX) /
		sizeof(uint32);
	uint32		page = r->from / r->l->slots_per_page;

	PipeannIdSetInit(&r->offsets, 1024, true);
	r->used = 0;
	PipeannVacuumBeginPass(r->v);
	for (; page < r->v->pages && r->used < limit; page++)
	{
		if (!PageHasDead(r, page) || !CopyPage(r, page))
			continue;
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
NeedsRepair(const PipeannRepair *r, uint32 id, const PipeannSlot *slot)
{
	int			degree = PipeannSlotDegree(r->l, slot);
	bool		dead = PipeannBitsHas(&r->v->dead, id);

	if (!PipeannSlotIsNode(slot) || PipeannVacuumFrees(r->v, id))
		return false;
	if (PipeannIsHeirOfRoot(r, id))
		return true;
	for (int i = 0; i < degree; i++)
		if (PipeannHasToGo(r, slot->neighbors[i], dead))
			return true;
	return false;
}

static uint32 *
FixedList(const PipeannRepair *r, uint32 slot)
{
	return r->fixed + (Size) slot * (2 + r->l->max_degree);
}

/* Compute the new lists of the copied page. False if there are none. */
static bool
FixCopy(PipeannRepair *r, uint32 page)
{
	bool		any = false;

	for (uint32 i = 0; i < r->l->slots_per_page; i++)
	{
		const PipeannSlot *slot = PipeannSlotAt(r->l, r->page, i);
		uint32		id = PipeannVacuumId(r->v, page, i);
		uint32	   *list = FixedList(r, i);

		list[0] = PIPEANN_INVALID_ID;
		if (!NeedsRepair(r, id, slot))
			continue;
		list[0] = NewList(r, id, slot, list + 2);
		list[1] = r->ntree_edges;
		any = true;
	}
	return any;
}

static bool
SameList(const PipeannRepair *r, const PipeannSlot *a, const PipeannSlot *b)
{
	return a->flags == b->flags && a->degree == b->degree &&
		a->tree_edges == b->tree_edges &&
		memcmp(a->neighbors, b->neighbors,
			   PipeannSlotDegree(r->l, a) * sizeof(uint32)) == 0;
}

/*
 * Write a page's new lists, but not over lists that have changed since the copy
 * was made. Returns whether there are such.
 */
static bool
WriteLists(PipeannRepair *r, uint32 number, Buffer buffer)
{
	GenericXLogState *xlog = GenericXLogStart(r->v->view.index);
	Page		page = GenericXLogRegisterBuffer(xlog, buffer, 0);
	bool		again = false;

	for (uint32 i = 0; i < r->l->slots_per_page; i++)
	{
		PipeannSlot *slot = PipeannSlotAt(r->l, PipeannPagePayload(page), i);
		uint32	   *list = FixedList(r, i);

		if (!SameList(r, slot, PipeannSlotAt(r->l, r->page, i)))
			again = true;
		else if (list[0] != PIPEANN_INVALID_ID)
		{
			slot->degree = list[0];
			slot->tree_edges = list[1];
			memcpy(slot->neighbors, list + 2, list[0] * sizeof(uint32));
			r->v->lists++;
		}
	}
	PipeannPageSeal(page, BufferGetBlockNumber(buffer));
	GenericXLogFinish(xlog);
	return again;
}

/* Inserts may change lists meanwhile; then the page is done again. */
static void
RepairPage(PipeannRepair *r, uint32 number, PipeannReach *reach)
{
	bool		again = true;

	if (!CopyPage(r, number))
		return;
	while (again && FixCopy(r, number))
	{
		Buffer		buffer = PipeannVacuumPage(r->v, number,
											   BUFFER_LOCK_EXCLUSIVE);

		again = WriteLists(r, number, buffer);
		memcpy(r->page, PipeannPagePayload(BufferGetPage(buffer)),
			   PIPEANN_PAYLOAD);
		UnlockReleaseBuffer(buffer);
	}
	for (uint32 i = 0; i < r->l->slots_per_page && reach != NULL; i++)
		PipeannReachNode(reach, PipeannVacuumId(r->v, number, i),
						 PipeannSlotAt(r->l, r->page, i));
}

/* Take dead nodes out of neighbour lists. */
void
PipeannVacuumRepair(PipeannVacuum *v, PipeannReach *reach)
{
	PipeannRepair *r = NewRepair(v);

	FindPositions(r);
	do
	{
		bool		last;

		LoadLists(r);
		last = r->to >= v->ids || v->dead.count == 0;
		PipeannVacuumBeginPass(v);
		for (uint32 page = 0; page < v->pages; page++)
			RepairPage(r, page, last ? reach : NULL);
		pfree(r->offsets.keys);
		pfree(r->offsets.values);
		r->from = r->to;
	} while (r->from < v->ids);
}
