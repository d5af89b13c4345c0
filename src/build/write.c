/*
 * write.c
 *		Writing a new index's pages.
 *
 * Graph pages come first, in order. The slots after the last node are overflow
 * slots for the rows of vectors that many rows share.
 */
#include "postgres.h"

#include "build/nodes.h"
#include "miscadmin.h"
#include "utils/rel.h"

/*
 * A list starts with so many spanning-tree edges if that is enough to reach
 * every node: then there is room for those of parents that die.
 */
#define FEW_TREE_EDGES 4

/* Graph pages of nodes written at once by one member. */
#define RUN 64

/* Room for the numbers of so many ids, none assigned. All members call. */
void
PipeannNodesInit(PipeannTeam *team, PipeannNodes *nodes, uint32 ids)
{
	nodes->ids = ids;
	nodes->id_of_node = PipeannTeamAlloc(team, mul_size(nodes->vectors.n,
														sizeof(uint32)));
	nodes->node_of_id = PipeannTeamAlloc(team, mul_size(ids, sizeof(uint32)));
}

/*
 * Give nodes ids: position p of order[], from PipeannGraphPack(), becomes slot
 * p % fill of page p / fill.
 */
void
PipeannAssignIds(const PipeannLayout *l, int fill, PipeannNodes *nodes,
				 const uint32 *order)
{
	uint32		n = nodes->vectors.n;

	memset(nodes->node_of_id, 0xFF, mul_size(nodes->ids, sizeof(uint32)));
	for (uint32 p = 0; p < n; p++)
	{
		uint32		id = p / fill * l->slots_per_page + p % fill;

		nodes->id_of_node[order[p]] = id;
		nodes->node_of_id[id] = order[p];
	}
}

/* The rows of a node, in the order in which they are written. */
typedef struct RowWalk
{
	const PipeannNodes *nodes;
	uint32		node;
	uint32		dup;			/* the row in dups[], INVALID_ID for the first */
	bool		begun;
} RowWalk;

/* The next row, or NULL. */
static const PipeannRow *
NextRow(RowWalk *walk)
{
	const PipeannNodes *nodes = walk->nodes;

	walk->dup = !walk->begun ? PIPEANN_INVALID_ID :
		walk->dup == PIPEANN_INVALID_ID ? nodes->dup_heads[walk->node] :
		nodes->dups[walk->dup].next;
	if (walk->begun && walk->dup == PIPEANN_INVALID_ID)
		return NULL;
	walk->begun = true;
	return PipeannNodeRow(nodes, walk->node, walk->dup);
}

/* What the rows of a node take. */
static PipeannRowFill
FillOf(const PipeannLayout *l, const PipeannNodes *nodes, uint32 node)
{
	RowWalk		walk = {.nodes = nodes,.node = node};
	const PipeannRow *row;
	PipeannRowFill fill;

	PipeannRowFillBegin(&fill, l);
	while ((row = NextRow(&walk)) != NULL)
		(void) PipeannRowFillNext(&fill, row);
	return fill;
}

/*
 * The number of overflow slots of a node: first those with rows, then the parts
 * of long rows.
 */
static uint32
ExtSlotsOf(const PipeannLayout *l, const PipeannNodes *nodes, uint32 node)
{
	PipeannRowFill fill = FillOf(l, nodes, node);

	return fill.ext_slots + fill.parts;
}

/* Add a row, or what stands in its place if its parts begin with first_part. */
static void
AddRow(const PipeannLayout *l, PipeannSlot *slot, const PipeannRow *row,
	   uint32 first_part)
{
	PipeannRowOutOfLine out_of_line;

	if (PipeannRowIsLong(l, row))
	{
		out_of_line = PipeannRowSetOutOfLine(row, first_part);
		row = &out_of_line.row;
	}
	(void) PipeannSlotAddRow(l, slot, row);
}

static uint64
CountExtSlots(const PipeannLayout *l, const PipeannNodes *nodes)
{
	uint64		slots = 0;

	for (uint32 i = 0; i < nodes->vectors.n; i++)
		slots += ExtSlotsOf(l, nodes, i);
	return slots;
}

/* The number of graph pages that overflow slots take. */
uint64
PipeannExtPages(const PipeannLayout *l, const PipeannNodes *nodes)
{
	return (CountExtSlots(l, nodes) + l->slots_per_page - 1) / l->slots_per_page;
}

/* Give a kind the extents for so many graph pages, inside a metapage update. */
void
PipeannReserveGraphPages(Relation index, PipeannMeta *meta, PipeannKind kind,
						 const PipeannLayout *l, uint64 pages)
{
	if (pages * l->slots_per_page >= PIPEANN_INVALID_ID)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many rows for a pipeann index")));
	while ((uint64) meta->kind_extents[kind] * PipeannGraphPagesPerExtent(l) <
		   pages)
		PipeannExtentAdd(index, meta, kind);
}

/* Write w->page as graph page "number". */
static void
WriteGraphPage(PipeannGraphWriter *w, uint32 number)
{
	BlockNumber blkno = PipeannExtentBlock(w->map, w->kind, number,
										   PipeannGraphPagesPerExtent(w->layout),
										   w->layout->node_pages);

	for (int i = 0; i < w->layout->node_pages; i++)
	{
		Buffer		buffer = PipeannGetBlock(w->index, blkno + i);
		Page		page = BufferGetPage(buffer);

		PipeannPageInit(page, PIPEANN_GRAPH);
		memcpy(PipeannPagePayload(page), w->page + (Size) i * PIPEANN_PAYLOAD,
			   PIPEANN_PAYLOAD);
		PipeannPageSeal(page, blkno + i);
		MarkBufferDirty(buffer);
		UnlockReleaseBuffer(buffer);
	}
	memset(w->page, 0, (Size) w->layout->node_pages * PIPEANN_PAYLOAD);
	CHECK_FOR_INTERRUPTS();
}

/*
 * Write the rows of a node that go into its slot. The others are in overflow
 * slots from *next_ext on.
 */
static void
FillRows(const PipeannLayout *l, const PipeannNodes *nodes, uint32 node,
		 PipeannSlot *slot, uint32 *next_ext)
{
	PipeannRowFill all = FillOf(l, nodes, node);
	RowWalk		walk = {.nodes = nodes,.node = node};
	const PipeannRow *row;
	PipeannRowFill fill;

	PipeannRowFillBegin(&fill, l);
	while ((row = NextRow(&walk)) != NULL)
	{
		uint32		parts = fill.parts;

		if (PipeannRowFillNext(&fill, row) == 0)
			AddRow(l, slot, row, *next_ext + all.ext_slots + parts);
	}
	if (all.ext_slots > 0)
		slot->ext_tids = *next_ext;
	*next_ext += all.ext_slots + all.parts;
}

static void
FillNode(const PipeannGraphWriter *w, uint32 node, PipeannSlot *slot,
		 uint32 *next_ext)
{
	const PipeannLayout *l = w->layout;
	const PipeannNodes *nodes = w->nodes;
	const PipeannGraph *graph = w->graph;

	slot->flags = PIPEANN_SLOT_USED;
	slot->ext_tids = PIPEANN_INVALID_ID;
	slot->ext_vec = PIPEANN_INVALID_ID;
	if (nodes->roundings != NULL)
		PipeannSlotSetRounding(slot, &nodes->roundings[node]);
	slot->aux = l->metric == PIPEANN_COSINE ? nodes->vectors.aux[node] : 0;
	if (graph != NULL)
	{
		const uint32 *list = PipeannNeighbors(graph, node);

		slot->degree = Min(graph->degree[node], l->max_degree);
		slot->tree_edges = w->tree_edges[node];
		for (int i = 0; i < slot->degree; i++)
			slot->neighbors[i] = nodes->id_of_node[list[i]];
	}
	memcpy(PipeannSlotVector(l, slot), PipeannVectorAt(&nodes->vectors, node),
		   nodes->vectors.stride);
	FillRows(l, nodes, node, slot, next_ext);
}

/* Overflow slots are numbered by the ids of their nodes. */
static void
NumberExtSlots(const PipeannGraphWriter *w)
{
	uint32		run_ids = RUN * w->layout->slots_per_page;
	uint32		ids = w->node_pages * w->layout->slots_per_page;
	uint32		next_ext = ids;

	for (uint32 id = 0; id < ids; id++)
	{
		uint32		node = w->nodes->node_of_id[id];

		if (id % run_ids == 0)
		{
			CHECK_FOR_INTERRUPTS();
			w->run_ext[id / run_ids] = next_ext;
		}
		if (node != PIPEANN_INVALID_ID)
			next_ext += ExtSlotsOf(w->layout, w->nodes, node);
	}
}

/* Write a page of nodes. */
static void
WriteNodePage(PipeannGraphWriter *w, uint32 page, uint32 *next_ext)
{
	const PipeannLayout *l = w->layout;

	for (uint32 i = 0; i < l->slots_per_page; i++)
	{
		uint32		node = w->nodes->node_of_id[page * l->slots_per_page + i];

		if (node != PIPEANN_INVALID_ID)
			FillNode(w, node, PipeannSlotAt(l, w->page, i), next_ext);
	}
	WriteGraphPage(w, page);
}

static void
WriteNodePages(PipeannTeam *team, PipeannGraphWriter *w)
{
	uint64		from;
	uint64		to;

	w->run_ext = PipeannTeamAlloc(team, mul_size(w->node_pages / RUN + 1,
												 sizeof(uint32)));
	if (PipeannTeamLeads(team))
		NumberExtSlots(w);
	PipeannTeamMeet(team);
	PipeannTeamBegin(team, w->node_pages, RUN);
	while (PipeannTeamNext(team, &from, &to))
	{
		uint32		next_ext = w->run_ext[from / RUN];

		for (uint32 page = from; page < to; page++)
			WriteNodePage(w, page, &next_ext);
	}
	PipeannTeamEnd(team);
	PipeannTeamFree(team, w->run_ext);
}

/*
 * Overflow slots are written by node id, the order in which FillRows() numbered
 * them.
 */
static PipeannSlot *
NextExt(PipeannGraphWriter *w, uint32 owner, uint32 after)
{
	const PipeannLayout *l = w->layout;
	PipeannSlot *slot = PipeannSlotAt(l, w->page,
									  PipeannIdSlot(l, w->next_ext));

	slot->flags = PIPEANN_SLOT_USED | PIPEANN_SLOT_EXT;
	slot->owner = owner;
	slot->number = after;
	slot->ext_tids = after > 0 ? w->next_ext + 1 : PIPEANN_INVALID_ID;
	return slot;
}

static void
EndExt(PipeannGraphWriter *w)
{
	const PipeannLayout *l = w->layout;

	w->next_ext++;
	if (PipeannIdSlot(l, w->next_ext) == 0)
		WriteGraphPage(w, w->next_ext / l->slots_per_page - 1);
}

static void
WriteExtRows(PipeannGraphWriter *w, uint32 id, uint32 node)
{
	const PipeannLayout *l = w->layout;
	const PipeannNodes *nodes = w->nodes;
	PipeannRowFill all = FillOf(l, nodes, node);
	uint32		first_part = w->next_ext + all.ext_slots;
	RowWalk		walk = {.nodes = nodes,.node = node};
	const PipeannRow *row;
	PipeannSlot *slot = NULL;
	uint32		at = 0;
	PipeannRowFill fill;

	PipeannRowFillBegin(&fill, l);
	while ((row = NextRow(&walk)) != NULL)
	{
		uint32		parts = fill.parts;
		uint32		to = PipeannRowFillNext(&fill, row);

		if (to == 0)
			continue;
		if (to != at)
		{
			if (at > 0)
				EndExt(w);
			slot = NextExt(w, id, all.ext_slots - to);
			at = to;
		}
		AddRow(l, slot, row, first_part + parts);
	}
	if (at > 0)
		EndExt(w);
}

/* Write a row to overflow slots of its own. */
static void
WriteParts(PipeannGraphWriter *w, const PipeannRow *row)
{
	const PipeannLayout *l = w->layout;
	uint32		left = PipeannRowSize(l, row);
	const char *from = (const char *) row;

	while (left > 0)
	{
		uint32		part = Min(left, PipeannPartBytes(l));
		PipeannSlot *slot = PipeannSlotAt(l, w->page,
										  PipeannIdSlot(l, w->next_ext));

		slot->flags = PIPEANN_SLOT_USED | PIPEANN_SLOT_EXT;
		slot->ext_tids = PIPEANN_INVALID_ID;
		slot->length = part;
		slot->ext_vec = left > part ? w->next_ext + 1 : PIPEANN_INVALID_ID;
		memcpy(PipeannSlotBody(slot), from, part);
		from += part;
		left -= part;
		EndExt(w);
	}
}

static void
WriteLongRows(PipeannGraphWriter *w, uint32 node)
{
	RowWalk		walk = {.nodes = w->nodes,.node = node};
	const PipeannRow *row;

	while ((row = NextRow(&walk)) != NULL)
		if (PipeannRowIsLong(w->layout, row))
			WriteParts(w, row);
}

static void
WriteExtPages(PipeannGraphWriter *w)
{
	const PipeannNodes *nodes = w->nodes;
	uint32		ids = w->node_pages * w->layout->slots_per_page;

	w->next_ext = ids;
	for (uint32 id = 0; id < ids; id++)
	{
		uint32		node = nodes->node_of_id[id];

		if (node == PIPEANN_INVALID_ID)
			continue;
		if (nodes->dup_heads[node] != PIPEANN_INVALID_ID)
			WriteExtRows(w, id, node);
		if (nodes->values != NULL)
			WriteLongRows(w, node);
	}
	if (PipeannIdSlot(w->layout, w->next_ext) != 0)
		WriteGraphPage(w, PipeannIdPage(w->layout, w->next_ext));
}

/*
 * Write nodes to the first node_pages graph pages of a kind of extents, and
 * overflow slots to those behind them. Moves the spanning-tree edges of the graph's
 * lists to the front. Not WAL-logged. All members call.
 */
void
PipeannWriteGraph(PipeannTeam *team, PipeannGraphWriter *w)
{
	if (w->graph != NULL)
	{
		w->tree_edges = PipeannTeamAlloc(team, w->nodes->vectors.n);
		PipeannGraphSpan(team, w->graph, FEW_TREE_EDGES, w->tree_edges);
	}
	w->page = palloc0((Size) w->layout->node_pages * PIPEANN_PAYLOAD);
	WriteNodePages(team, w);
	if (PipeannTeamLeads(team))
		WriteExtPages(w);
	pfree(w->page);
	if (w->graph != NULL)
		PipeannTeamFree(team, w->tree_edges);
}

/* Pages that nodes take without overflow slots. */
static uint32
NodePages(const PipeannLayout *l, const PipeannNodes *nodes)
{
	return (uint32) (((uint64) nodes->vectors.n + l->fill - 1) / l->fill);
}

/* Give a build's nodes extents; returns the number of ids. */
uint32
PipeannReserveNodes(Relation index, PipeannMeta *meta,
					const PipeannNodes *nodes)
{
	const PipeannLayout *l = &meta->layout;
	uint64		pages = NodePages(l, nodes) + PipeannExtPages(l, nodes);

	PipeannReserveGraphPages(index, meta, PIPEANN_GRAPH, l, pages);
	meta->graph_pages = (uint32) pages;
	return (uint32) (pages * l->slots_per_page);
}

/*
 * Write all nodes of a build in this order. Assigns ids, and sets the
 * metapage's counts. Not WAL-logged. All members call, with the same metapage.
 */
void
PipeannWriteNodes(PipeannTeam *team, Relation index, PipeannMeta *meta,
				  PipeannNodes *nodes, PipeannGraph *graph,
				  const uint32 *order)
{
	const PipeannLayout *l = &meta->layout;
	PipeannExtentMap map;
	PipeannGraphWriter w = {
		.index = index,.layout = l,.map = &map,.kind = PIPEANN_GRAPH,
		.nodes = nodes,.graph = graph,.node_pages = NodePages(l, nodes)
	};

	PipeannExtentMapLoad(index, meta, CurrentMemoryContext, &map);
	if (PipeannTeamLeads(team))
		PipeannAssignIds(l, l->fill, nodes, order);
	PipeannTeamMeet(team);
	meta->root = graph != NULL ? nodes->id_of_node[graph->medoid] : 0;
	meta->nodes = meta->packed_nodes = nodes->vectors.n;
	PipeannWriteGraph(team, &w);
	PipeannExtentMapFree(&map);
}
