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

#include "index/neighbors.h"
#include "vacuum/repair.h"
#include "miscadmin.h"
#include "postmaster/autovacuum.h"
#include "utils/rel.h"

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
		list[0] = PipeannNewList(r, id, slot, list + 2);
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
