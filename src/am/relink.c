/*
 * relink.c
 *		After VACUUM's repair every live node can be reached again.
 *
 * A walk from the entry graph over the lists as they are now, in file order:
 * the pass that repairs lists follows those of nodes already reached, further
 * passes only visit pages with nodes reached since. Two bits a node are all it
 * needs in memory. What is left unreached is linked as an insert that finds
 * all lists full does it, which cuts nothing off, and the walk goes on there.
 *
 * Nodes written meanwhile are linked by their inserters.
 */
#include "postgres.h"

#include "am/link.h"
#include "am/vacuum.h"
#include "io/io.h"
#include "kernel/kernel.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* Nearest nodes that are tried for one that nothing near leads to. */
#define SEARCH_EF 64

void
PipeannReachBegin(PipeannReach *reach, PipeannVacuum *v)
{
	reach->v = v;
	PipeannVacuumSet(v, &reach->present);
	PipeannVacuumSet(v, &reach->reached);
	PipeannVacuumSet(v, &reach->expanded);
	for (uint32 i = 0; i < v->view.codes.entry_count; i++)
		if (v->view.codes.entry_ids[i] < v->ids)
			PipeannBitsAdd(&reach->reached, v->view.codes.entry_ids[i]);
}

/*
 * Follow a node's list if the node is reached.
 */
static void
Expand(PipeannReach *reach, uint32 id, const PipeannSlot *slot)
{
	int			degree = PipeannSlotDegree(&reach->v->view.meta.layout, slot);

	if (!PipeannBitsHas(&reach->reached, id) ||
		PipeannBitsHas(&reach->expanded, id))
		return;
	PipeannBitsAdd(&reach->expanded, id);
	if (!PipeannSlotIsNode(slot))
		return;
	for (int i = 0; i < degree; i++)
		if (slot->neighbors[i] < reach->v->ids)
			PipeannBitsAdd(&reach->reached, slot->neighbors[i]);
}

void
PipeannReachNode(PipeannReach *reach, uint32 id, const PipeannSlot *slot)
{
	if (PipeannSlotIsLive(slot))
		PipeannBitsAdd(&reach->present, id);
	Expand(reach, id, slot);
}

static bool
IsPending(const PipeannReach *reach, uint32 id)
{
	return PipeannBitsHas(&reach->reached, id) &&
		!PipeannBitsHas(&reach->expanded, id);
}

static bool
PageIsPending(const PipeannReach *reach, uint32 page)
{
	for (uint32 i = 0; i < reach->v->view.meta.layout.slots_per_page; i++)
		if (IsPending(reach, PipeannVacuumId(reach->v, page, i)))
			return true;
	return false;
}

static void
ExpandPage(PipeannReach *reach, uint32 page)
{
	const PipeannLayout *l = &reach->v->view.meta.layout;
	Buffer		buffer = PipeannVacuumPage(reach->v, page, BUFFER_LOCK_SHARE);

	for (uint32 i = 0; i < l->slots_per_page; i++)
	{
		uint32		id = PipeannVacuumId(reach->v, page, i);

		if (BufferIsValid(buffer))
			Expand(reach, id,
				   PipeannSlotAt(l, PipeannPagePayload(BufferGetPage(buffer)),
								 i));
		else
			PipeannBitsAdd(&reach->expanded, id);
	}
	if (BufferIsValid(buffer))
		UnlockReleaseBuffer(buffer);
}

/*
 * Until there is nothing more to follow.
 */
static void
Walk(PipeannReach *reach)
{
	bool		again = true;

	while (again)
	{
		again = false;
		PipeannVacuumPass(reach->v);
		for (uint32 page = 0; page < reach->v->pages; page++)
			if (PageIsPending(reach, page))
			{
				ExpandPage(reach, page);
				again = true;
			}
	}
}

static float
NoWideDistance(uint32 id, const PipeannSlot *slot, void *arg)
{
	const PipeannLayout *l = arg;

	(void) id;
	(void) slot;
	return (float) l->dim;
}

/*
 * Link a node from the nearest ones that a search finds.
 */
static bool
LinkBySearch(PipeannVacuum *v, uint32 id, PipeannSlot *slot)
{
	PipeannIndexView *view = &v->view;
	const PipeannLayout *l = &view->meta.layout;
	PipeannCounters counters = {0};
	PipeannPageSource *source = PipeannSourceOpen(view->index, l, view->map,
												  &counters);
	PipeannSearchParams params = {0};
	PipeannSearch *search;
	const PipeannResult *result;
	float	   *query = palloc(mul_size(l->dim, sizeof(float)));
	bool		linked = false;

	PipeannVectorToFloat(PipeannSlotVector(l, slot), l->storage, l->dim,
						 query);
	if (l->metric == PIPEANN_COSINE)
		PipeannNormalize(query, l->dim, query);
	params.mode = PIPEANN_PIPE;
	params.ef = SEARCH_EF;
	params.switches = PIPEANN_DEFAULT_SWITCHES;
	params.max_pages = PG_INT32_MAX;
	params.wide_distance = NoWideDistance;
	params.wide_arg = (void *) l;
	search = PipeannSearchBegin(l, &view->codes, source, query, &params);
	(void) PipeannSearchRun(search);
	PipeannSearchReleasePages(search);
	PipeannSourceClose(source);
	while (!linked && (result = PipeannSearchPop(search)) != NULL)
		if (result->id != id)
			linked = PipeannLinkEdge(view, result->id, id, slot);
	return linked;
}

/*
 * Let a node that can be reached lead to one that cannot: one of its own
 * neighbours if possible.
 */
static void
Attach(PipeannReach *reach, uint32 id, PipeannSlot *slot)
{
	PipeannIndexView *view = &reach->v->view;
	int			degree = PipeannSlotDegree(&view->meta.layout, slot);
	uint32	   *list = palloc(Max(degree, 1) * sizeof(uint32));
	bool		linked = false;

	memcpy(list, slot->neighbors, degree * sizeof(uint32));
	for (int i = 0; i < degree && !linked; i++)
		if (list[i] < reach->v->ids &&
			PipeannBitsHas(&reach->reached, list[i]))
			linked = PipeannLinkEdge(view, list[i], id, slot);
	if (!linked)
		linked = LinkBySearch(reach->v, id, slot);
	if (!linked)
		(void) PipeannLinkEntry(view, id, slot);
	reach->v->relinked++;
}

/*
 * Whoever shuts inserters out shuts this out as well.
 */
static void
AttachNode(PipeannReach *reach, uint32 id)
{
	PipeannIndexView *view = &reach->v->view;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pipeann relink",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	PipeannSlot *slot = PipeannSlotAlloc(&view->meta.layout);

	LockPage(view->index, PIPEANN_METAPAGE, ShareLock);
	PipeannSlotCopy(view, id, slot);
	if (PipeannSlotIsLive(slot))
		Attach(reach, id, slot);
	UnlockPage(view->index, PIPEANN_METAPAGE, ShareLock);
	PipeannBitsAdd(&reach->reached, id);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

/*
 * Follow the nodes that lead on from one just linked: mostly none.
 */
static void
WalkFrom(PipeannReach *reach, uint32 id)
{
	const PipeannLayout *l = &reach->v->view.meta.layout;
	PipeannSlot *slot = PipeannSlotAlloc(l);
	uint64		before = reach->reached.count;

	PipeannSlotCopy(&reach->v->view, id, slot);
	Expand(reach, id, slot);
	pfree(slot);
	if (reach->reached.count > before)
		Walk(reach);
}

void
PipeannReachEnd(PipeannReach *reach)
{
	Walk(reach);
	for (uint32 id = 0; id < reach->v->ids; id++)
		if (PipeannBitsHas(&reach->present, id) &&
			!PipeannBitsHas(&reach->reached, id))
		{
			AttachNode(reach, id);
			WalkFrom(reach, id);
		}
}
