/*
 * packing.c
 *		A packing: its graph pages, as a build or a packing made anew writes them;
 *		and packing the graph anew.
 *
 * Graph pages come first, in order. The slots after the last node are overflow
 * slots for the rows of vectors that many rows share.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xloginsert.h"
#include "base/pause.h"
#include "build/coding.h"
#include "distance/sparse.h"
#include "io/io.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* ---------- graph pages ---------- */

/* Where nodes are written. */
typedef struct GraphWriter
{
	Relation	index;
	const PipeannLayout *layout;
	const PipeannExtentMap *map;
	PipeannKind kind;			/* of the extents to write to */
	const PipeannNodes *nodes;	/* that have ids */
	PipeannGraph *graph;		/* NULL: no edges */
	uint32		node_pages;		/* overflow slots are on those behind them */

	/* set by WriteGraph() */
	char	   *page;			/* payloads of one graph page */
	uint8	   *tree_edges;		/* [nodes] spanning-tree edges of each */
	uint32	   *run_ext;		/* [runs] id of each run's first overflow slot */
	uint32		next_ext;		/* the overflow slot to be written next */
} GraphWriter;

/*
 * A list starts with so many spanning-tree edges if that is enough to reach
 * every node: then there is room for those of parents that die.
 */
#define FEW_TREE_EDGES 4

/* Graph pages of nodes written at once by one member. */
#define PAGE_RUN 64

/* Room for the numbers of so many ids, none assigned. All members call. */
static void
NodesInit(PipeannTeam *team, PipeannNodes *nodes, uint32 ids)
{
	nodes->ids = ids;
	nodes->id_of_node = PipeannTeamArray(team, uint32, nodes->vectors.n);
	nodes->node_of_id = PipeannTeamArray(team, uint32, ids);
}

/*
 * Give nodes ids: position p of order[], from PipeannGraphPack(), becomes slot
 * p % fill of page p / fill.
 */
static void
AssignIds(const PipeannLayout *l, int fill, PipeannNodes *nodes,
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

/*
 * The rows of a node, in the order in which they are written, and how they are
 * divided among its slot and overflow slots.
 */
typedef struct RowWalk
{
	const PipeannLayout *layout;
	const PipeannNodes *nodes;
	uint32		node;
	uint32		dup;			/* the row in dups[], INVALID_ID for the first */
	bool		begun;

	uint32		left;			/* bytes in the slot reached */
	uint32		ext_slots;		/* overflow slots begun; 0: a row in the node's */
	uint32		parts;			/* overflow slots for rows out of line */
	uint32		first_part;		/* of these, before the row */
} RowWalk;

static RowWalk
BeginRows(const PipeannLayout *l, const PipeannNodes *nodes, uint32 node)
{
	return (RowWalk) {
		.layout = l,.nodes = nodes,.node = node,.left = PipeannInlineBytes(l)
	};
}

/* The next row, which gets its place, or what stands for it if it is long; or NULL. */
static const PipeannRow *
NextRow(RowWalk *walk)
{
	const PipeannNodes *nodes = walk->nodes;
	const PipeannRow *row;
	uint32		size;

	walk->dup = !walk->begun ? PIPEANN_INVALID_ID :
		walk->dup == PIPEANN_INVALID_ID ? nodes->dup_heads[walk->node] :
		nodes->dups[walk->dup].next;
	if (walk->begun && walk->dup == PIPEANN_INVALID_ID)
		return NULL;
	walk->begun = true;
	row = PipeannNodeRow(nodes, walk->node, walk->dup);
	size = PipeannRowSize(walk->layout, row);
	walk->first_part = walk->parts;
	if (PipeannRowIsLong(walk->layout, row))
	{
		walk->parts += PipeannPartsOf(walk->layout, size);
		size = sizeof(PipeannRowOutOfLine);
	}
	if (walk->left < size)
	{
		walk->left = PipeannExtBytes(walk->layout);
		walk->ext_slots++;
	}
	walk->left -= size;
	return row;
}

/* The walk at its end: what the rows of a node take. */
static RowWalk
AllRows(const PipeannLayout *l, const PipeannNodes *nodes, uint32 node)
{
	RowWalk		walk = BeginRows(l, nodes, node);

	while (NextRow(&walk) != NULL)
		;
	return walk;
}

static Size
LongBytes(const char *form)
{
	return form == NULL ? 0 : PipeannSparseWords(form) * sizeof(int32);
}

static uint32
LongParts(const PipeannLayout *l, const PipeannNodes *nodes, uint32 node)
{
	return PipeannPartsOf(l, LongBytes(PipeannNodeLong(nodes, node)));
}

/*
 * The number of overflow slots of a node: first those with rows, then the parts
 * of long rows, then those of a long vector.
 */
static uint32
ExtSlotsOf(const PipeannLayout *l, const PipeannNodes *nodes, uint32 node)
{
	RowWalk		all = AllRows(l, nodes, node);

	return all.ext_slots + all.parts + LongParts(l, nodes, node);
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

/* The number of graph pages that overflow slots take. */
static uint64
ExtPages(const PipeannLayout *l, const PipeannNodes *nodes)
{
	uint64		slots = 0;

	for (uint32 i = 0; i < nodes->vectors.n; i++)
		slots += ExtSlotsOf(l, nodes, i);
	return (slots + l->slots_per_page - 1) / l->slots_per_page;
}

/* Give a kind the extents for so many graph pages, inside a metapage update. */
static void
ReserveGraphPages(Relation index, PipeannMeta *meta, PipeannKind kind,
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
WriteGraphPage(GraphWriter *w, uint32 number)
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
	RowWalk		all = AllRows(l, nodes, node);
	RowWalk		walk = BeginRows(l, nodes, node);
	const PipeannRow *row;

	while ((row = NextRow(&walk)) != NULL)
		if (walk.ext_slots == 0)
			AddRow(l, slot, row, *next_ext + all.ext_slots + walk.first_part);
	if (all.ext_slots > 0)
		slot->ext_tids = *next_ext;
	if (slot->flags & PIPEANN_SLOT_OUT_OF_LINE)
		slot->ext_vec = *next_ext + all.ext_slots + all.parts;
	*next_ext += ExtSlotsOf(l, nodes, node);
}

static void
FillNode(const GraphWriter *w, uint32 node, PipeannSlot *slot,
		 uint32 *next_ext)
{
	const PipeannLayout *l = w->layout;
	const PipeannNodes *nodes = w->nodes;
	const PipeannGraph *graph = w->graph;
	const char *form = PipeannNodeLong(nodes, node);

	slot->flags = PIPEANN_SLOT_USED | (form != NULL ? PIPEANN_SLOT_OUT_OF_LINE : 0);
	slot->ext_tids = PIPEANN_INVALID_ID;
	slot->ext_vec = PIPEANN_INVALID_ID;
	if (form != NULL)
		slot->length = PipeannSparseWords(form);
	if (nodes->roundings != NULL && PipeannIsRounded(l))
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
NumberExtSlots(const GraphWriter *w)
{
	uint32		run_ids = PAGE_RUN * w->layout->slots_per_page;
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

static void
WriteNodePages(PipeannTeam *team, GraphWriter *w)
{
	const PipeannLayout *l = w->layout;

	w->run_ext = PipeannTeamArray(team, uint32, w->node_pages / PAGE_RUN + 1);
	if (PipeannTeamLeads(team))
		NumberExtSlots(w);
	PipeannTeamMeet(team);
	PipeannTeamRuns(team, from, to, w->node_pages, PAGE_RUN)
	{
		uint32		next_ext = w->run_ext[from / PAGE_RUN];

		for (uint32 page = from; page < to; page++)
		{
			const uint32 *nodes = w->nodes->node_of_id +
				page * l->slots_per_page;

			for (uint32 i = 0; i < l->slots_per_page; i++)
				if (nodes[i] != PIPEANN_INVALID_ID)
					FillNode(w, nodes[i], PipeannSlotAt(l, w->page, i),
							 &next_ext);
			WriteGraphPage(w, page);
		}
	}
	PipeannTeamFree(team, w->run_ext);
}

/*
 * Overflow slots are written by node id, the order in which FillRows() numbered
 * them.
 */
static PipeannSlot *
NextExt(GraphWriter *w, uint32 owner, uint32 after)
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
EndExt(GraphWriter *w)
{
	const PipeannLayout *l = w->layout;

	w->next_ext++;
	if (PipeannIdSlot(l, w->next_ext) == 0)
		WriteGraphPage(w, w->next_ext / l->slots_per_page - 1);
}

static void
WriteExtRows(GraphWriter *w, uint32 id, uint32 node)
{
	const PipeannLayout *l = w->layout;
	RowWalk		all = AllRows(l, w->nodes, node);
	RowWalk		walk = BeginRows(l, w->nodes, node);
	uint32		first_part = w->next_ext + all.ext_slots;
	const PipeannRow *row;
	PipeannSlot *slot = NULL;
	uint32		at = 0;

	while ((row = NextRow(&walk)) != NULL)
	{
		if (walk.ext_slots == 0)
			continue;
		if (walk.ext_slots != at)
		{
			if (at > 0)
				EndExt(w);
			at = walk.ext_slots;
			slot = NextExt(w, id, all.ext_slots - at);
		}
		AddRow(l, slot, row, first_part + walk.first_part);
	}
	if (at > 0)
		EndExt(w);
}

/* Write a row or a vector to overflow slots of its own. */
static void
WriteParts(GraphWriter *w, const void *data, Size left)
{
	const PipeannLayout *l = w->layout;
	const char *from = data;

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
WriteLongRows(GraphWriter *w, uint32 node)
{
	RowWalk		walk = BeginRows(w->layout, w->nodes, node);
	const PipeannRow *row;

	while ((row = NextRow(&walk)) != NULL)
		if (PipeannRowIsLong(w->layout, row))
			WriteParts(w, row, PipeannRowSize(w->layout, row));
}

static void
WriteExtPages(GraphWriter *w)
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
		WriteParts(w, PipeannNodeLong(nodes, node),
				   LongBytes(PipeannNodeLong(nodes, node)));
	}
	if (PipeannIdSlot(w->layout, w->next_ext) != 0)
		WriteGraphPage(w, PipeannIdPage(w->layout, w->next_ext));
}

/*
 * Write nodes to the first node_pages graph pages of a kind of extents, and
 * overflow slots to those behind them. Moves the spanning-tree edges of the graph's
 * lists to the front. Not WAL-logged. All members call.
 */
static void
WriteGraph(PipeannTeam *team, GraphWriter *w)
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
	PipeannTeamFree(team, w->tree_edges);
}

/* Pages that nodes take without overflow slots. */
static uint32
NodePages(const PipeannLayout *l, const PipeannNodes *nodes)
{
	return (uint32) (((uint64) nodes->vectors.n + l->fill - 1) / l->fill);
}

/* Give a build's nodes extents. */
void
PipeannReserveNodes(Relation index, PipeannMeta *meta,
					const PipeannNodes *nodes)
{
	const PipeannLayout *l = &meta->layout;
	uint64		pages = NodePages(l, nodes) + ExtPages(l, nodes);

	ReserveGraphPages(index, meta, PIPEANN_GRAPH, l, pages);
	meta->graph_pages = (uint32) pages;
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
	GraphWriter w = {
		.index = index,.layout = l,.map = &map,.kind = PIPEANN_GRAPH,
		.nodes = nodes,.graph = graph,.node_pages = NodePages(l, nodes)
	};

	NodesInit(team, nodes, meta->graph_pages * l->slots_per_page);
	PipeannExtentMapLoad(index, meta, CurrentMemoryContext, &map);
	if (PipeannTeamLeads(team))
		AssignIds(l, l->fill, nodes, order);
	PipeannTeamMeet(team);
	meta->root = graph != NULL ? nodes->id_of_node[graph->medoid] : 0;
	meta->nodes = meta->packed_nodes = nodes->vectors.n;
	WriteGraph(team, &w);
	PipeannExtentMapFree(&map);
}

/* ---------- packing anew, as a build would ---------- */

/* Why, and in which steps: src/README, "build/: packings". */

/*
 * Inserts wait while nodes are read again and pages are written: some seconds
 * for an index of this size, the largest that is repacked.
 */
#define MOST_NODES 524288

/* What is left of so many times the nodes is scattered over their pages. */
#define SCATTERED 4

/*
 * An index made on an empty table that is too small for codes has its vectors in full, and
 * is read whole by each search: VACUUM packs it, once, when it has so many nodes.
 */
#define FEWEST_UNCODED 1024

/* One graph page in so many is reserved for nodes inserted meanwhile. */
#define SPARE_PAGES 16

typedef struct Repacking
{
	PipeannIndexView *view;
	bool		coded;			/* large enough for codes */
	PipeannCoding coding;		/* the next generation, in the new layout */
	uint32	   *new_id;			/* [ids] by old id, or INVALID_ID */
	uint32		ids;			/* old ids, when nodes were first read */
	uint32		node_pages;		/* new pages of nodes */
} Repacking;

/*
 * Whether few nodes are left where they were packed, by their number or by what became
 * of those in the entry graph, and not so few that it does not matter; or they were never
 * packed, so that their vectors are not rounded.
 */
bool
PipeannIsScattered(const PipeannMeta *meta)
{
	uint64		live = meta->nodes - Min(meta->entry_dead, meta->nodes);

	if (!(meta->flags & PIPEANN_META_HAS_CODES))
		return meta->packed_nodes == 0 && live >= FEWEST_UNCODED &&
			(meta->flags & PIPEANN_META_AUTO_STORAGE) &&
			!PipeannTypes[meta->layout.type].one_storage;
	if (live < PIPEANN_MIN_CODED_NODES)
		return false;
	return live < meta->packed_nodes / SCATTERED ||
		meta->entry_count - Min(meta->entry_dead, meta->entry_count) <
		meta->entry_count / SCATTERED;
}

static bool
IsWanted(const PipeannMeta *meta)
{
	if (meta->nodes > MOST_NODES)
		return false;
	if (!(meta->flags & PIPEANN_META_HAS_CODES))
		return meta->layout.slots_per_page > 1 ||
			(meta->flags & PIPEANN_META_AUTO_STORAGE);
	return meta->layout.slots_per_page > 1 &&
		(meta->nodes / PipeannGrowthFactor(meta) >= meta->packed_nodes ||
		 PipeannIsScattered(meta));
}

/*
 * Whether the entries of the extent map fit the metapage, where one WAL record
 * changes them, and the nodes fit maintenance_work_mem.
 */
static bool
HasRoom(const PipeannIndexView *view)
{
	const PipeannMeta *meta = &view->meta;
	uint64		extents = meta->extents +
		2 * (uint64) meta->kind_extents[PIPEANN_GRAPH] +
		2 * (uint64) meta->kind_extents[PIPEANN_CODES] +
		2 * (uint64) meta->kind_extents[PIPEANN_CODES_ODD];

	return extents < PIPEANN_MAP_INLINE &&
		PipeannLoadGraphMemory(view) <= (Size) maintenance_work_mem * 1024;
}

/* The layout for vectors in this storage, and for such rows with values. */
static PipeannLayout
NewLayout(const PipeannIndexView *view, PipeannStorage storage,
		  const PipeannRowSizes *sizes)
{
	PipeannLayout l = view->meta.layout;
	int			row_bytes = l.row_bytes;

	l.storage = storage;
	if (row_bytes > 0)
		row_bytes = PipeannLayoutRowBytes(&l, sizes);
	if (view->meta.layout.storage != storage || l.row_bytes != row_bytes)
	{
		l.max_degree = 2 * view->meta.m;
		l.row_bytes = row_bytes;
		PipeannLayoutInit(&l, &l, PipeannGetOptions(view->index)->fillfactor);
	}
	l.attr_bytes = view->meta.layout.attr_bytes;
	return l;
}

/* ---------- while inserts go on ---------- */

/* Give the nodes ids in packed order, and note what each old id becomes. */
static void
Pack(Repacking *s, PipeannLoadedGraph *g)
{
	const PipeannLayout *l = &s->coding.layout;
	PipeannNodes *nodes = &g->nodes;
	uint32		n = nodes->vectors.n;
	int			fill = Min(PipeannWantedFill(l), l->fill);
	uint32	   *order = PipeannArray(uint32, n);

	PipeannGraphPack(g->graph, &nodes->near, fill, order,
					 PipeannTeamAlone());
	s->node_pages = (n + fill - 1) / fill;
	NodesInit(PipeannTeamAlone(), nodes, s->node_pages * l->slots_per_page);
	AssignIds(l, fill, nodes, order);
	pfree(order);

	s->ids = g->ids;
	s->new_id = PipeannArray(uint32, s->ids);
	for (uint32 id = 0; id < s->ids; id++)
		s->new_id[id] = g->node_of_id[id] == PIPEANN_INVALID_ID ?
			PIPEANN_INVALID_ID : nodes->id_of_node[g->node_of_id[id]];
}

static void
ReserveCodes(const Repacking *s, PipeannMeta *meta, uint32 ids)
{
	if (s->coded)
		PipeannCodingReserve(&s->coding, meta, ids);
}

static void
ReserveExtents(Repacking *s, uint32 ids)
{
	PipeannMetaAlone alone;
	PipeannMeta *meta = PipeannCodingAttempt(s->view->index, &alone);

	ReserveCodes(s, meta, ids);
	ReserveGraphPages(s->view->index, meta, PIPEANN_NEXT_GRAPH,
					  &s->coding.layout, (uint64) s->node_pages +
					  s->node_pages / SPARE_PAGES);
	PipeannMetaEndAlone(s->view->index, &alone);
	PipeannRefreshView(s->view);
}

static void
Train(Repacking *s, const PipeannLoadedGraph *g)
{
	PipeannIndexView *view = s->view;
	const PipeannMeta *meta = &view->meta;
	PipeannCoding *k = &s->coding;
	PipeannLayout l = NewLayout(view, g->nodes.vectors.storage, &g->sizes);

	s->coded = meta->nodes >= PIPEANN_MIN_CODED_NODES ||
		(meta->flags & PIPEANN_META_HAS_CODES);
	PipeannCodingBegin(k, view->index, meta, &l, meta->generation + 1);
	if (!s->coded)
		return;
	/* the codebooks of two generations stand apart by a layout's lengths */
	if (!(meta->flags & PIPEANN_META_HAS_CODES))
		PipeannChooseWidths(view->index, meta->format, &g->nodes, &k->layout,
							&k->widths);
	PipeannCodingTrainOn(PipeannTeamAlone(), k, &g->nodes);
}

static void
WriteCodes(Repacking *s, const PipeannLoadedGraph *g)
{
	const PipeannIndexView *view = s->view;

	PipeannCodebookWrite(&s->coding, view->map);
	PipeannCodesWrite(PipeannTeamAlone(), &s->coding, view->map, &g->nodes, g->graph);
	PipeannEntriesWrite(PipeannTeamAlone(), &s->coding, &view->meta, view->map, &g->nodes,
						g->nodes.id_of_node[g->graph->medoid]);
}

static bool
Prepare(Repacking *s)
{
	PipeannIndexView *view = s->view;
	PipeannLoadedGraph g;

	/* attribute codes are made of rows */
	PipeannLoadGraph(view, PipeannViewPages(view),
					 view->meta.layout.attr_bytes > 0, &g);
	if (g.out_of_line || g.nodes.vectors.n == 0)
		return false;
	Train(s, &g);
	Pack(s, &g);
	PIPEANN_PAUSE("repack-packed");
	ReserveExtents(s, g.nodes.ids);
	if (s->coded)
		WriteCodes(s, &g);
	pfree(g.nodes.id_of_node);
	pfree(g.nodes.node_of_id);
	MemoryContextDelete(g.context);
	PIPEANN_PAUSE("repack-prepared");
	return true;
}

/* ---------- with no insert under way ---------- */

/*
 * A slot left free on the page of the first neighbour that has one, or
 * INVALID_ID.
 */
static uint32
SlotNear(const Repacking *s, const PipeannNodes *nodes,
		 const PipeannGraph *graph, uint32 node)
{
	uint32		per_page = s->coding.layout.slots_per_page;

	for (int i = 0; i < graph->degree[node]; i++)
	{
		uint32		near = nodes->id_of_node[PipeannNeighbors(graph, node)[i]];
		uint32		first = near - near % per_page;

		if (near == PIPEANN_INVALID_ID)
			continue;
		for (uint32 id = first; id < first + per_page; id++)
			if (nodes->node_of_id[id] == PIPEANN_INVALID_ID)
				return id;
	}
	return PIPEANN_INVALID_ID;
}

/*
 * Keep the ids that nodes were given, and give ids to the nodes that came
 * since, fresh[*nfresh], on a near page or on one at the end.
 */
static void
KeepIds(Repacking *s, PipeannLoadedGraph *g, uint32 *fresh, uint32 *nfresh)
{
	PipeannNodes *nodes = &g->nodes;
	uint32		n = nodes->vectors.n;
	uint32		per_page = s->coding.layout.slots_per_page;
	uint32		next = s->node_pages * per_page;

	NodesInit(PipeannTeamAlone(), nodes,
			  next + (n + per_page - 1) / per_page * per_page);
	memset(nodes->node_of_id, 0xFF, mul_size(nodes->ids, sizeof(uint32)));
	memset(nodes->id_of_node, 0xFF, mul_size(n, sizeof(uint32)));
	for (uint32 id = 0; id < Min(g->ids, s->ids); id++)
		if (g->node_of_id[id] != PIPEANN_INVALID_ID &&
			s->new_id[id] != PIPEANN_INVALID_ID)
		{
			nodes->id_of_node[g->node_of_id[id]] = s->new_id[id];
			nodes->node_of_id[s->new_id[id]] = g->node_of_id[id];
		}
	*nfresh = 0;
	for (uint32 node = 0; node < n; node++)
	{
		uint32		id;

		if (nodes->id_of_node[node] != PIPEANN_INVALID_ID)
			continue;
		id = SlotNear(s, nodes, g->graph, node);
		if (id == PIPEANN_INVALID_ID)
		{
			/* a slot of the last page may have been given to one above */
			while (nodes->node_of_id[next] != PIPEANN_INVALID_ID)
				next++;
			id = next++;
		}
		nodes->id_of_node[node] = id;
		nodes->node_of_id[id] = node;
		fresh[(*nfresh)++] = node;
	}
	s->node_pages = Max(s->node_pages, (next + per_page - 1) / per_page);
}

/* Write the codes of the nodes that came since. */
static void
WriteFreshCodes(Repacking *s, const PipeannNodes *nodes,
				const PipeannGraph *graph, const uint32 *fresh, uint32 nfresh)
{
	PipeannCoding *k = &s->coding;
	const PipeannLayout *l = &k->layout;
	uint32		pages = PipeannCodePages(l, s->node_pages * l->slots_per_page);
	float	   *x = PipeannArray(float, l->dim);
	uint8	   *code = palloc0(PIPEANN_PAYLOAD);

	while (k->code_pages < pages)
		PipeannCodePagesWrite(k, s->view->map, k->code_pages++, code, 1);
	for (uint32 i = 0; i < nfresh; i++)
	{
		PipeannGraphNode self = {
			.nodes = nodes,.graph = graph,.number = fresh[i]
		};

		CHECK_FOR_INTERRUPTS();
		PipeannCodingVector(&nodes->vectors, fresh[i], x);
		PipeannCodingEncode(k, nodes->id_of_node[fresh[i]], x,
							PipeannGraphNeighborAt, &self, code);
		if (k->attributes != NULL)
			PipeannNodeAttributes(k->attributes, nodes, fresh[i],
								  code + l->pq_bytes);
		PipeannPlaceCode(s->view, l, k->generation,
						 nodes->id_of_node[fresh[i]], code, NULL, NULL);
	}
	pfree(x);
	pfree(code);
}

/*
 * Rows that joined a node since its code was written: write the attribute codes
 * again that do not cover all rows. (Zeroes cover everything.)
 */
static void
WriteJoined(Repacking *s, const PipeannNodes *nodes)
{
	const PipeannCoding *k = &s->coding;
	const PipeannExtentMap *map = s->view->map;
	const PipeannLayout *l = &k->layout;
	uint32		per_page = PipeannCodesPerPage(l);
	uint8	   *payload = palloc(PIPEANN_PAYLOAD);
	uint8	   *wanted = palloc(PIPEANN_PAYLOAD);
	Size		planes = PipeannPlaneOffset(l, 0);

	for (uint32 i = 0; k->attributes != NULL && i < k->code_pages &&
		 i * per_page < nodes->ids; i++)
	{
		PipeannStreamRead(s->view->index, map, PipeannCodesKind(k->generation),
						  i, payload, PIPEANN_PAYLOAD);
		memcpy(wanted, payload, PIPEANN_PAYLOAD);
		PipeannEncodeAttributes(k->attributes, l, nodes, i * per_page,
								Min(per_page, nodes->ids - i * per_page),
								wanted);
		if (memcmp(payload + planes, wanted + planes,
				   PIPEANN_PAYLOAD - planes) != 0)
			PipeannCodePagesWrite(k, map, i, wanted, 1);
	}
	pfree(payload);
	pfree(wanted);
}

/*
 * Log the written pages, and empty the pages behind them, which a failed
 * attempt may have written: they are given out later, and must be empty then.
 */
static void
LogPages(Repacking *s, uint32 pages)
{
	Relation	index = s->view->index;
	const PipeannExtentMap *map = s->view->map;
	uint32		per_extent = PipeannGraphPagesPerExtent(&s->coding.layout);
	BlockNumber blocks = RelationGetNumberOfBlocks(index);

	for (uint32 i = 0; i < map->count[PIPEANN_NEXT_GRAPH]; i++)
	{
		BlockNumber first = map->extents[PIPEANN_NEXT_GRAPH][i] *
			PIPEANN_EXTENT_BLOCKS + 1;
		BlockNumber end = Min(first + PIPEANN_EXTENT_USABLE, blocks);
		uint32		from = Min(i * per_extent, pages);
		uint32		used = Min(pages - from, per_extent) *
			s->coding.layout.node_pages;

		if (used > 0 && RelationNeedsWAL(index))
			log_newpage_range(index, MAIN_FORKNUM, first, first + used, true);
		for (BlockNumber blkno = first + used; blkno < end; blkno++)
		{
			CHECK_FOR_INTERRUPTS();
			PipeannEmptyBlock(index, blkno);
		}
	}
}

/*
 * The old layout's extents keep their contents, for scans that began before,
 * and their order, for PipeannViewBlock().
 */
static void
ExchangeExtents(PipeannMeta *meta)
{
	uint32		freed = meta->kind_extents[PIPEANN_FREE];

	Assert(meta->extents <= PIPEANN_MAP_INLINE);
	for (uint32 i = 0; i < meta->extents; i++)
	{
		uint32		entry = meta->map[i];

		if (PIPEANN_ENTRY_KIND(entry) == PIPEANN_GRAPH)
			meta->map[i] = PIPEANN_EXTENT_ENTRY(PIPEANN_FREE, freed +
												PIPEANN_ENTRY_ORDINAL(entry));
		else if (PIPEANN_ENTRY_KIND(entry) == PIPEANN_NEXT_GRAPH)
			meta->map[i] = PIPEANN_EXTENT_ENTRY(PIPEANN_GRAPH,
												PIPEANN_ENTRY_ORDINAL(entry));
	}
	meta->kind_extents[PIPEANN_FREE] += meta->kind_extents[PIPEANN_GRAPH];
	meta->kind_extents[PIPEANN_GRAPH] = meta->kind_extents[PIPEANN_NEXT_GRAPH];
	meta->kind_extents[PIPEANN_NEXT_GRAPH] = 0;
}

static void
Publish(Repacking *s, uint32 pages, uint32 nodes, uint32 root)
{
	PipeannMetaUpdate update;
	PipeannMeta *meta;

	PipeannMetaBegin(s->view->index, &update);
	meta = update.meta;
	ExchangeExtents(meta);
	meta->layout = s->coding.layout;
	meta->widths = s->coding.widths;
	meta->packings++;
	meta->free_xid = U64FromFullTransactionId(ReadNextFullTransactionId());
	meta->graph_pages = pages;
	meta->root = root;
	meta->nodes = meta->packed_nodes = nodes;
	if (s->coded)
		PipeannCodingPublish(&s->coding, meta, nodes);
	PipeannMetaEnd(&update);
}

/* Extents for nodes that came since, and for rows that do not fit their slots. */
static void
ReserveRest(Repacking *s, uint64 pages)
{
	const PipeannLayout *l = &s->coding.layout;
	PipeannMetaUpdate update;

	PipeannMetaBegin(s->view->index, &update);
	ReserveGraphPages(s->view->index, update.meta, PIPEANN_NEXT_GRAPH, l,
					  pages);
	ReserveCodes(s, update.meta, s->node_pages * l->slots_per_page);
	PipeannMetaEnd(&update);
	PipeannRefreshView(s->view);
}

static bool
Finish(Repacking *s)
{
	PipeannIndexView *view = s->view;
	const PipeannLayout *l = &s->coding.layout;
	PipeannLoadedGraph g;
	GraphWriter w = {.index = view->index,.layout = l};
	uint32	   *fresh;
	uint32		nfresh;
	uint64		pages;

	PipeannRefreshView(view);
	PipeannLoadGraph(view, PipeannViewPages(view), true, &g);
	if (g.out_of_line || g.nodes.vectors.storage != l->storage ||
		g.nodes.vectors.n == 0)
		return false;
	fresh = PipeannArray(uint32, g.nodes.vectors.n);
	KeepIds(s, &g, fresh, &nfresh);
	pages = s->node_pages + ExtPages(l, &g.nodes);
	ReserveRest(s, pages);
	PipeannFreeReserve(view->index, view->meta.extents);
	if (view->meta.extents > PIPEANN_MAP_INLINE)
		return false;
	if (s->coded)
	{
		WriteFreshCodes(s, &g.nodes, g.graph, fresh, nfresh);
		WriteJoined(s, &g.nodes);
	}
	w.map = view->map;
	w.kind = PIPEANN_NEXT_GRAPH;
	w.nodes = &g.nodes;
	w.graph = g.graph;
	w.node_pages = s->node_pages;
	WriteGraph(PipeannTeamAlone(), &w);
	LogPages(s, (uint32) pages);
	PIPEANN_PAUSE("repack-written");
	Publish(s, (uint32) pages, g.nodes.vectors.n,
			g.nodes.id_of_node[g.graph->medoid]);
	return true;
}

/*
 * Pack the graph anew, with codes of the next generation, if it has grown by
 * its factor since it was packed, or little is left of it. The caller holds the
 * maintenance lock. False if there was no need or no room, and not if another
 * backend is in the way.
 */
bool
PipeannRepack(PipeannIndexView *view)
{
	Relation	index = view->index;
	Repacking	s = {.view = view};
	bool		done;

	if (!IsWanted(&view->meta) || !HasRoom(view) ||
		(view->meta.flags & PIPEANN_META_REPAIRING))
		return false;
	if (!ConditionalLockPage(index, PIPEANN_REPACK_LOCK, ExclusiveLock))
		return true;
	done = Prepare(&s);
	if (done)
	{
		bool		cancellable = PipeannKeepInsertsOut(index);

		done = Finish(&s);
		PipeannLetInsertsIn(index, cancellable);
	}
	UnlockPage(index, PIPEANN_REPACK_LOCK, ExclusiveLock);
	return done;
}
