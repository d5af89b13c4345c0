/*
 * switch.c
 *		An index that has grown from (nearly) nothing gets its graph and codes.
 *
 * The inserter that crosses the line does it, or VACUUM, with other inserters
 * shut out by the metapage's heavyweight lock. Searches go on: nodes stay where
 * they are, and until the metapage says that there are codes, the last thing
 * written, nobody looks at edges and codes. Dead nodes stay out of the graph:
 * VACUUM may be about to free them.
 */
#include "postgres.h"

#include "am/am.h"
#include "io/io.h"
#include "kernel/kernel.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#define SWITCH_SEED UINT64CONST(0x737769746368)

typedef struct SwitchState
{
	PipeannIndexView view;
	uint32		pages;
	PipeannNodes nodes;
	char	   *data;			/* nodes.vectors.data */
	float	   *aux;
	float		max_norm;
	PipeannGraph *graph;
} SwitchState;

static void
AllocateNodes(SwitchState *state)
{
	const PipeannLayout *l = &state->view.meta.layout;
	PipeannNodes *nodes = &state->nodes;
	PipeannVectors *v = &nodes->vectors;

	nodes->ids = PipeannViewIds(&state->view);
	nodes->id_of_node = PipeannAlloc(mul_size(nodes->ids, sizeof(uint32)));
	nodes->node_of_id = PipeannAlloc(mul_size(nodes->ids, sizeof(uint32)));
	memset(nodes->node_of_id, 0xFF, mul_size(nodes->ids, sizeof(uint32)));
	v->dim = l->dim;
	v->storage = l->storage;
	v->metric = l->metric;
	v->stride = mul_size(l->dim, PipeannElementSize(l->storage));
	state->data = PipeannAlloc(mul_size(nodes->ids, v->stride));
	state->aux = PipeannAlloc(mul_size(nodes->ids, sizeof(float)));
	v->data = state->data;
	v->aux = l->metric == PIPEANN_L2 ? NULL : state->aux;
}

static void
TakeNode(SwitchState *state, uint32 id, const PipeannSlot *slot)
{
	PipeannVectors *v = &state->nodes.vectors;
	const PipeannLayout *l = &state->view.meta.layout;

	memcpy(state->data + (Size) v->n * v->stride, PipeannSlotVector(l, slot),
		   v->stride);
	state->aux[v->n] = slot->aux;
	state->nodes.id_of_node[v->n] = id;
	state->nodes.node_of_id[id] = v->n;
	v->n++;
}

static void
ReadNodes(SwitchState *state)
{
	const PipeannLayout *l = &state->view.meta.layout;
	PipeannCounters counters = {0};
	PipeannPageSource *source = PipeannSourceOpen(state->view.index, l,
												  state->view.map, &counters);

	for (uint32 page = 0; page < state->pages; page++)
	{
		PipeannFrame *frame = source->request(source, page);

		CHECK_FOR_INTERRUPTS();
		while (frame->state != PIPEANN_FRAME_READY)
			(void) source->next(source, true);
		for (uint32 i = 0; i < l->slots_per_page; i++)
		{
			const PipeannSlot *slot = PipeannSlotAt(l, frame->nodes, i);

			if (PipeannSlotIsLive(slot))
				TakeNode(state, page * l->slots_per_page + i, slot);
		}
		source->release(source, frame);
	}
	PipeannSourceClose(source);
}

/*
 * The largest norm is known only now.
 */
static void
SetInnerProductAux(SwitchState *state)
{
	PipeannVectors *v = &state->nodes.vectors;
	float	   *x = palloc(mul_size(v->dim, sizeof(float)));
	double	   *norms = PipeannAlloc(mul_size(Max(v->n, 1), sizeof(double)));
	double		max_norm = 0;

	for (uint32 i = 0; i < v->n; i++)
	{
		PipeannVectorToFloat(PipeannVectorAt(v, i), v->storage, v->dim, x);
		norms[i] = PipeannNorm(x, v->dim);
		max_norm = Max(max_norm, norms[i]);
	}
	for (uint32 i = 0; i < v->n; i++)
		state->aux[i] = PipeannAux(v->metric, norms[i], (float) max_norm);
	state->max_norm = v->max_norm = (float) max_norm;
	pfree(x);
	pfree(norms);
}

static void
BuildEdges(SwitchState *state)
{
	PipeannGraphParams params;

	params.max_degree = state->view.meta.layout.max_degree;
	params.ef_construction = state->view.meta.ef_construction;
	params.alpha = PIPEANN_ALPHA;
	params.seed = SWITCH_SEED;
	state->graph = PipeannGraphBuild(&state->nodes.vectors, &params, NULL,
									 NULL);
}

static void
SetEdges(const SwitchState *state, uint32 node, PipeannSlot *slot)
{
	const uint32 *list = PipeannNeighbors(state->graph, node);

	slot->degree = state->graph->degree[node];
	for (int i = 0; i < slot->degree; i++)
		slot->neighbors[i] = state->nodes.id_of_node[list[i]];
	slot->aux = state->aux[node];
}

/*
 * Neighbour lists are in the first block also of a node of several.
 */
static void
WriteEdges(SwitchState *state)
{
	const PipeannLayout *l = &state->view.meta.layout;

	for (uint32 page = 0; page < state->pages; page++)
	{
		PipeannSlotUpdate update;
		uint32		first = page * l->slots_per_page;
		bool		any = false;

		CHECK_FOR_INTERRUPTS();
		for (uint32 i = 0; i < l->slots_per_page; i++)
			if (state->nodes.node_of_id[first + i] != PIPEANN_INVALID_ID)
				any = true;
		if (!any)
			continue;
		PipeannSlotBegin(&state->view, first, &update);
		for (uint32 i = 0; i < l->slots_per_page; i++)
		{
			uint32		node = state->nodes.node_of_id[first + i];

			if (node != PIPEANN_INVALID_ID)
				SetEdges(state, node,
						 PipeannSlotAt(l, PipeannPagePayload(update.page), i));
		}
		PipeannSlotEnd(&update);
	}
}

static void
WriteCodes(SwitchState *state)
{
	Relation	index = state->view.index;
	PipeannMeta *meta = palloc(sizeof(PipeannMeta));
	PipeannMetaUpdate update;
	PipeannExtentMap map;

	PipeannMetaBegin(index, &update);
	PipeannCodingReserve(index, update.meta, state->nodes.ids);
	PipeannMetaEnd(&update);

	PipeannMetaRead(index, meta);
	PipeannExtentMapLoad(index, meta, CurrentMemoryContext, &map);
	PipeannCodingWrite(index, meta, &map, &state->nodes, true);

	PipeannMetaBegin(index, &update);
	update.meta->flags = meta->flags;
	update.meta->code_pages = meta->code_pages;
	update.meta->entry_count = meta->entry_count;
	update.meta->entry_degree = meta->entry_degree;
	update.meta->max_norm = state->max_norm;
	PipeannMetaEnd(&update);
	PipeannExtentMapFree(&map);
	pfree(meta);
}

static void
Switch(Relation index)
{
	SwitchState state;

	memset(&state, 0, sizeof(state));
	PipeannOpenView(&state.view, index);
	if ((state.view.meta.flags & PIPEANN_META_HAS_CODES) ||
		state.view.meta.nodes < PIPEANN_MIN_CODED_NODES)
		return;
	state.pages = PipeannSourceCountPages(index, &state.view.meta.layout,
										  state.view.map,
										  state.view.meta.graph_pages);
	AllocateNodes(&state);
	ReadNodes(&state);
	if (state.nodes.vectors.n == 0)
		return;
	if (state.view.meta.layout.metric == PIPEANN_IP)
		SetInnerProductAux(&state);
	BuildEdges(&state);
	WriteEdges(&state);
	WriteCodes(&state);
}

/*
 * Waits for inserts under way; those that come later wait for this.
 */
void
PipeannSwitchToCodes(Relation index)
{
	MemoryContext context;
	MemoryContext old;

	LockPage(index, PIPEANN_METAPAGE, ExclusiveLock);
	context = AllocSetContextCreate(CurrentMemoryContext, "pipeann switch",
									ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	Switch(index);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	UnlockPage(index, PIPEANN_METAPAGE, ExclusiveLock);
}
