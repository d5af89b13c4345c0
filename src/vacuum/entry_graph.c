/*
 * entry_graph.c
 *		VACUUM puts live nodes in the places of dead ones in the entry graph,
 *		and replaces a dead root.
 *
 * A dead node's place goes to the nearest of its live neighbours that has no
 * place yet. Edges of the entry graph lead from place to place, so they stay,
 * and lead to about the same vectors as before. A dead node without a live
 * neighbour keeps its place, and its slot is not freed. The node that takes
 * the root's place becomes the root.
 */
#include "postgres.h"

#include <math.h>

#include "vacuum/passes.h"
#include "distance/distance.h"
#include "storage/lmgr.h"
#include "utils/rel.h"

typedef struct EntryRepair
{
	PipeannVacuum *v;
	PipeannBits taken;			/* nodes of the entry graph */
	PipeannSlot *slot;
	float	   *x;
	float	   *y;
} EntryRepair;

static float
CodeDistance(EntryRepair *e, uint32 id)
{
	const PipeannCodes *codes = &e->v->view.codes;

	PipeannPqDecode(&codes->pq, PipeannCodeAt(codes, id), e->y);
	return PipeannKernel->l2[PIPEANN_FLOAT4] (e->x, e->y, codes->pq.dim);
}

/*
 * Find the nearest live neighbour of a node and, to go on from, the nearest
 * dead one, each INVALID_ID if there is none. Nodes of the entry graph do not
 * count.
 */
static void
NearestNeighbors(EntryRepair *e, uint32 id, uint32 *live, uint32 *dead)
{
	const PipeannIndexView *view = &e->v->view;
	float		least_live = INFINITY;
	float		least_dead = INFINITY;
	int			degree;

	*live = *dead = PIPEANN_INVALID_ID;
	PipeannSlotCopy(view, id, e->slot);
	degree = PipeannSlotDegree(&view->meta.layout, e->slot);
	for (int i = 0; i < degree; i++)
	{
		uint32		neighbor = e->slot->neighbors[i];
		float		dist;

		if (neighbor >= e->v->ids || neighbor >= view->codes.ncodes ||
			PipeannBitsHas(&e->taken, neighbor))
			continue;
		dist = CodeDistance(e, neighbor);
		if (PipeannBitsHas(&e->v->live, neighbor) && dist < least_live)
		{
			*live = neighbor;
			least_live = dist;
		}
		if (PipeannBitsHas(&e->v->dead, neighbor) && dist < least_dead)
		{
			*dead = neighbor;
			least_dead = dist;
		}
	}
}

/* The node that takes a dead node's place, or INVALID_ID. */
static uint32
FindHeir(EntryRepair *e, uint32 id)
{
	const PipeannCodes *codes = &e->v->view.codes;
	uint32		heir;
	uint32		dead;
	uint32		none;

	PipeannPqDecode(&codes->pq, PipeannCodeAt(codes, id), e->x);
	NearestNeighbors(e, id, &heir, &dead);
	if (heir == PIPEANN_INVALID_ID && dead != PIPEANN_INVALID_ID)
		NearestNeighbors(e, dead, &heir, &none);
	return heir;
}

/*
 * One WAL record has the id and the count of changes, so that caches follow
 * wherever VACUUM or replay ends.
 */
static void
WriteEntry(PipeannVacuum *v, uint32 place, uint32 old, uint32 id)
{
	PipeannMetaUpdate update;
	Buffer		buffer;

	PipeannMetaBegin(v->view.index, &update);
	buffer = PipeannStreamPut(v->view.index, v->view.map, PIPEANN_ENTRY,
							  v->view.meta.entry_first, place, id,
							  update.state);
	update.meta->entry_changes++;
	if (update.meta->root == old)
		update.meta->root = id;
	PipeannMetaEnd(&update);
	UnlockReleaseBuffer(buffer);
}

static void
ReplaceEntry(EntryRepair *e, uint32 place, uint32 id)
{
	PipeannVacuum *v = e->v;
	uint32		heir = FindHeir(e, id);

	if (heir == PIPEANN_INVALID_ID)
		return;
	WriteEntry(v, place, id, heir);
	PipeannBitsAdd(&e->taken, heir);
}

static uint32
FirstLive(const PipeannVacuum *v, const uint32 *ids, uint32 n)
{
	for (uint32 i = 0; i < n; i++)
	{
		uint32		id = ids == NULL ? i : ids[i];

		if (id < v->ids && PipeannBitsHas(&v->live, id))
			return id;
	}
	return PIPEANN_INVALID_ID;
}

/*
 * Replace a root that is to be freed. Without codes, and so without an entry
 * graph, any live node may become the root; a neighbour of the old one if
 * possible.
 */
static void
ReplaceRoot(EntryRepair *e)
{
	PipeannVacuum *v = e->v;
	const PipeannCodes *codes = &v->view.codes;
	uint32		root = v->view.meta.root;
	uint32		heir;
	PipeannMetaUpdate update;

	if (root < v->ids &&
		(PipeannBitsHas(&v->live, root) || PipeannBitsHas(&e->taken, root)))
		return;
	if (v->view.cache != NULL)
		heir = FirstLive(v, codes->entry_ids, codes->entry_count);
	else
	{
		PipeannSlotCopy(&v->view, root, e->slot);
		heir = FirstLive(v, e->slot->neighbors,
						 PipeannSlotDegree(&v->view.meta.layout, e->slot));
		if (heir == PIPEANN_INVALID_ID)
			heir = FirstLive(v, NULL, v->ids);
	}
	if (heir == PIPEANN_INVALID_ID)
		return;
	PipeannMetaBegin(v->view.index, &update);
	update.meta->root = heir;
	PipeannMetaEnd(&update);
}

static void
NoteRoot(PipeannVacuum *v, uint32 old_root)
{
	PipeannRefreshView(&v->view);
	v->old_root = v->view.meta.root == old_root ? PIPEANN_INVALID_ID :
		old_root;
}

/*
 * Put live nodes in the places of dead ones in the entry graph,
 * and replace a dead root
 *
 * This comes before inserts are awaited: those that begin later know the new
 * nodes. The lock, which inserts take as well, shuts out a backend that writes
 * another entry graph.
 */
void
PipeannVacuumEntryGraph(PipeannVacuum *v)
{
	const PipeannLayout *l = &v->view.meta.layout;
	const PipeannCodes *codes = &v->view.codes;
	EntryRepair		e = {.v = v};
	uint32		root;

	LockPage(v->view.index, PIPEANN_METAPAGE, ShareLock);
	PipeannRefreshView(&v->view);
	root = v->view.meta.root;
	PipeannVacuumInitSet(v, &e.taken);
	e.slot = PipeannSlotAlloc(l);
	e.x = palloc(mul_size(l->dim, sizeof(float)));
	e.y = palloc(mul_size(l->dim, sizeof(float)));
	for (uint32 i = 0; i < codes->entry_count; i++)
		if (codes->entry_ids[i] < v->ids)
			PipeannBitsAdd(&e.taken, codes->entry_ids[i]);
	for (uint32 i = 0; i < codes->entry_count; i++)
	{
		uint32		id = codes->entry_ids[i];

		CHECK_FOR_INTERRUPTS();
		if (id < v->ids && id < codes->ncodes && PipeannBitsHas(&v->dead, id))
			ReplaceEntry(&e, i, id);
	}
	PipeannRefreshView(&v->view);
	ReplaceRoot(&e);
	NoteRoot(v, root);
	UnlockPage(v->view.index, PIPEANN_METAPAGE, ShareLock);
}
