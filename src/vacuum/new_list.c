/*
 * new_list.c
 *		The new neighbour list of a node whose list leads to dead nodes.
 *
 * The places of dead nodes go to the best of their own live neighbours, chosen
 * by code distance as RobustPrune would (see graph/prune.h).
 */
#include "postgres.h"

#include <math.h>

#include "distance/distance.h"
#include "index/neighbors.h"
#include "vacuum/repair.h"

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
 * more: relink.c finds other parents.
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
	PipeannKernel->pq_scan(r->table, codes->pq.nchunks, r->codes, r->ncand,
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
int
PipeannNewList(PipeannRepair *r, uint32 id, const PipeannSlot *slot,
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
