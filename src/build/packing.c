/*
 * packing.c
 *		Writing a build's graph pages in the order of its packing.
 *
 * Graph pages come first, in order. The slots after the last node are overflow
 * slots for the rows of vectors that many rows share.
 */
#include "postgres.h"

#include "access/xloginsert.h"
#include "build/internal.h"
#include "distance/sparse.h"
#include "miscadmin.h"
#include "utils/rel.h"

/* ---------- graph pages ---------- */

/* State of writing nodes. */
typedef struct GraphWriter
{
	Relation	index;
	const PipeannLayout *layout;
	const PipeannExtents *extents;
	const PipeannNodes *nodes;	/* nodes, which have ids */
	PipeannGraph *graph;		/* NULL: no edges */
	uint32		node_pages;		/* overflow slots are on those behind them */

	/* while pages are written */
	char	   *page;			/* payloads of one graph page */
	uint32	   *slice_ext;		/* [slices] id of each slice's first overflow slot */
	uint32		next_ext;		/* the overflow slot to be written next */
} GraphWriter;

/* Graph pages of nodes written at once by one member. */
#define PAGE_SLICE 64

/*
 * A walk over the rows of a node, in the order in which they are written, to
 * divide them among its slot and overflow slots.
 */
typedef struct RowWalk
{
	const PipeannLayout *layout;
	const PipeannNodes *nodes;
	uint32		node;
	uint32		dup;			/* the row in dups[], INVALID_ID for the first */
	bool		begun;

	uint32		left;			/* bytes left in the slot reached */
	uint32		ext_slots;		/* overflow slots begun; 0: still in the node's slot */
	uint32		parts;			/* overflow slots for rows out of line */
	uint32		first_part;		/* number of parts before the row's */
} RowWalk;

static RowWalk
BeginRows(const PipeannLayout *l, const PipeannNodes *nodes, uint32 node)
{
	return (RowWalk) {
		.layout = l,.nodes = nodes,.node = node,.left = PipeannInlineBytes(l)
	};
}

/* Take the next row and assign its place. Returns it, or what replaces a long one; or NULL. */
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

/* The walk at its end, which knows what the rows of a node take. */
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

/*
 * The number of overflow slots of a node: first those with rows, then the parts
 * of long rows, then those of a long vector.
 */
static uint32
ExtSlotsOf(const PipeannLayout *l, const PipeannNodes *nodes, uint32 node)
{
	RowWalk		all = AllRows(l, nodes, node);

	return all.ext_slots + all.parts +
		PipeannPartsOf(l, LongBytes(PipeannNodeLong(nodes, node)));
}

/* Add a row, or what takes its place if its parts begin with first_part. */
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

/* Write w->page as graph page "number". */
static void
WriteGraphPage(GraphWriter *w, uint32 number)
{
	Size		bytes = (Size) w->layout->node_pages * PIPEANN_PAYLOAD;

	PipeannWritePages(w->index, PipeannGraphBlock(w->extents, w->layout, number),
					  PIPEANN_GRAPH, 0, w->page, bytes, false);
	memset(w->page, 0, bytes);
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
		for (int i = 0; i < slot->degree; i++)
			slot->neighbors[i] = nodes->id_of_node[list[i]];
	}
	memcpy(PipeannSlotVector(l, slot), PipeannVectorAt(&nodes->vectors, node),
		   nodes->vectors.stride);
	FillRows(l, nodes, node, slot, next_ext);
}

/* Number overflow slots in the order of their nodes' ids. */
static void
NumberExtSlots(const GraphWriter *w)
{
	uint32		slice_ids = PAGE_SLICE * w->layout->slots_per_page;
	uint32		ids = w->node_pages * w->layout->slots_per_page;
	uint32		next_ext = ids;

	for (uint32 id = 0; id < ids; id++)
	{
		uint32		node = w->nodes->node_of_id[id];

		if (id % slice_ids == 0)
		{
			CHECK_FOR_INTERRUPTS();
			w->slice_ext[id / slice_ids] = next_ext;
		}
		if (node != PIPEANN_INVALID_ID)
			next_ext += ExtSlotsOf(w->layout, w->nodes, node);
	}
}

static void
WriteNodePages(PipeannTeam *team, GraphWriter *w)
{
	const PipeannLayout *l = w->layout;

	w->slice_ext = PipeannTeamArray(team, uint32, w->node_pages / PAGE_SLICE + 1);
	if (PipeannTeamLeads(team))
		NumberExtSlots(w);
	PipeannTeamMeet(team);
	PipeannTeamSlices(team, from, to, w->node_pages, PAGE_SLICE)
	{
		uint32		next_ext = w->slice_ext[from / PAGE_SLICE];

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
	PipeannTeamFree(team, w->slice_ext);
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
		{
			RowWalk		walk = BeginRows(w->layout, nodes, node);
			const PipeannRow *row;

			while ((row = NextRow(&walk)) != NULL)
				if (PipeannRowIsLong(w->layout, row))
					WriteParts(w, row, PipeannRowSize(w->layout, row));
		}
		WriteParts(w, PipeannNodeLong(nodes, node),
				   LongBytes(PipeannNodeLong(nodes, node)));
	}
	if (PipeannIdSlot(w->layout, w->next_ext) != 0)
		WriteGraphPage(w, PipeannIdPage(w->layout, w->next_ext));
}

/* Pages that nodes take without overflow slots. */
static uint32
NodePages(const PipeannLayout *l, const PipeannNodes *nodes)
{
	return (uint32) (((uint64) nodes->vectors.n + l->fill - 1) / l->fill);
}

/*
 * Reserve the places of a build's nodes, and before them an extent if there will
 * be codes. Errors if there are too many nodes.
 */
void
PipeannReserveNodes(PipeannMeta *meta, const PipeannNodes *nodes)
{
	const PipeannLayout *l = &meta->layout;
	uint32		n = nodes->vectors.n;
	uint64		ext_slots = 0;
	uint64		pages;

	for (uint32 i = 0; i < n; i++)
		ext_slots += ExtSlotsOf(l, nodes, i);
	pages = NodePages(l, nodes) + (ext_slots + l->slots_per_page - 1) / l->slots_per_page;
	if (n >= PIPEANN_MIN_CODED_NODES)
		PipeannExtentChoose(&meta->extents, PIPEANN_METAPAGE + 1, 0,
							PipeannExtentPages(l, PipeannEntryCount(n)));
	if (pages * l->slots_per_page >= PIPEANN_INVALID_ID ||
		PipeannBlocksInUse(&meta->extents, l, (uint32) pages, true) > MaxBlockNumber)
		PipeannTooManyRows();
	meta->graph_pages = (uint32) pages;
}

/*
 * Write all nodes of a build: position p of order[], from PipeannGraphPack(), is slot p % fill of
 * page p / fill. Assigns ids, and sets the metapage's counts. Not WAL-logged. All members call,
 * with the same metapage.
 */
void
PipeannWriteNodes(PipeannTeam *team, Relation index, PipeannMeta *meta,
				  PipeannNodes *nodes, PipeannGraph *graph,
				  const uint32 *order)
{
	const PipeannLayout *l = &meta->layout;
	uint32		n = nodes->vectors.n;
	GraphWriter w = {
		.index = index,.layout = l,.extents = &meta->extents,
		.nodes = nodes,.graph = graph,.node_pages = NodePages(l, nodes)
	};

	nodes->ids = meta->graph_pages * l->slots_per_page;
	nodes->id_of_node = PipeannTeamArray(team, uint32, n);
	nodes->node_of_id = PipeannTeamArray(team, uint32, nodes->ids);
	if (PipeannTeamLeads(team))
	{
		memset(nodes->node_of_id, 0xFF, mul_size(nodes->ids, sizeof(uint32)));
		for (uint32 p = 0; p < n; p++)
		{
			uint32		id = p / l->fill * l->slots_per_page + p % l->fill;

			nodes->id_of_node[order[p]] = id;
			nodes->node_of_id[id] = order[p];
		}
	}
	PipeannTeamMeet(team);
	meta->nodes = meta->trained_nodes = n;
	w.page = palloc0((Size) l->node_pages * PIPEANN_PAYLOAD);
	WriteNodePages(team, &w);
	if (PipeannTeamLeads(team))
		WriteExtPages(&w);
	pfree(w.page);
}
