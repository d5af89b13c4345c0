/*
 * repack.c
 *		Packing the graph anew, as a build would, while inserts go on.
 *
 * Why, in which steps, and why nothing is lost: src/README, "build/: packings". Of the
 * present packing's nodes and ids this file says "old", of the next one's "new".
 */
#include "postgres.h"

#include "access/transam.h"
#include "base/parallel.h"
#include "base/pause.h"
#include "build/coding.h"
#include "distance/sparse.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* What is left of so many times the nodes is scattered over their pages. */
#define SCATTERED 4

/*
 * An index made on an empty table that is too small for codes has its vectors in full, and
 * is read whole by each search: VACUUM packs it, once, when it has so many nodes.
 */
#define FEWEST_UNCODED 1024

/* One graph page in so many is reserved for nodes inserted meanwhile. */
#define SPARE_PAGES 16

/* With less of maintenance_work_mem (kB) nothing is put into temporary files. */
#define LEAST_FOR_FILES (16 * 1024)

typedef struct Repacking
{
	PipeannIndexView *view;
	PipeannIndexView next;		/* of the new packing */
	bool		coded;			/* large enough for codes */
	PipeannParallel own;		/* memory for what follows */
	PipeannCoding coding;		/* the next generation, in the new layout */
	PipeannCatchUp up;
	PipeannChanges *changes;	/* of these: old ids that inserts note */
	uint32	   *new_id;			/* [changes->ids] by old id, or INVALID_ID */
	uint32	   *old_id;			/* [node_pages][slots per page], until they are written */
	uint32		node_pages;		/* new pages that nodes are packed on */
	uint8	   *room;			/* [room_pages] free slots of new pages */
	uint32		room_pages;
	uint16	   *rows;			/* [changes->ids] of that slot, taken */
	bool	   *linked;			/* [changes->ids] its edges are of the new graph */
	bool		reuse;			/* the extents of former packings */
	uint32		map_unusable;	/* see PipeannExtentsMoveSoon() */
	bool		dead;			/* there are nodes without rows */
	bool		keep_lists;		/* VACUUM was interrupted, in the middle of lists perhaps */
	char	   *page;			/* payloads of one of the present packing */

	/* until the pages are written */
	PipeannLoadedNodes *g;
	PipeannGraph *graph;		/* made anew of these */
	bool		joins;			/* rows that are taken join a node that has a code */
	bool		any;			/* joined[] has any */
	uint8		joined[PIPEANN_MAX_ATTRIBUTE_BYTES];	/* attribute code of these */
} Repacking;

/*
 * Whether few nodes are left where they were packed, by their number or by what became
 * of those in the entry graph, and not so few that it does not matter; or they were never
 * packed, so that their vectors are not rounded.
 */
static bool
IsScattered(const PipeannMeta *meta)
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
IsWanted(const PipeannMeta *meta, double growth)
{
	bool		gains = meta->layout.slots_per_page > 1;

	if (IsScattered(meta))
		return gains || !(meta->flags & PIPEANN_META_HAS_CODES);
	if (!(meta->flags & PIPEANN_META_HAS_CODES))
		return meta->nodes >= PIPEANN_MIN_CODED_NODES &&
			(gains || (meta->flags & PIPEANN_META_AUTO_STORAGE));
	return gains && meta->nodes >= growth * meta->packed_nodes;
}

static PipeannGraphParams
GraphParams(const PipeannMeta *meta)
{
	return (PipeannGraphParams) {
		.max_degree = meta->layout.max_degree,
		.ef_construction = meta->ef_construction,
		.seed = PIPEANN_BUILD_SEED
	};
}

/* Whether maintenance_work_mem holds the nodes; *rows_fit if it does their rows. */
static bool
FitsMemory(const PipeannIndexView *view, bool *rows_fit)
{
	const PipeannMeta *meta = &view->meta;
	PipeannGraphParams params = GraphParams(meta);
	PipeannVectors vectors = PipeannVectorsLike(&meta->layout, (uint32) meta->nodes);
	Size		most = (Size) maintenance_work_mem * 1024;
	Size		rows;
	Size		kept;
	Size		load = PipeannLoadNodesMemory(view, &rows, &kept);

	kept = add_size(kept, mul_size(meta->nodes, PipeannClusterMemory()));
	kept = add_size(kept, PipeannGraphMemory((uint32) meta->nodes, &params, &vectors));
	*rows_fit = rows <= most;
	return Max(load, kept) <= most;
}

/*
 * Whether the nodes fit maintenance_work_mem or, if that is not very little, rows with
 * the values that attribute codes are made of do; the rest goes to temporary files.
 */
static bool
HasRoom(const PipeannIndexView *view)
{
	bool		rows_fit;

	return FitsMemory(view, &rows_fit) ||
		(maintenance_work_mem >= LEAST_FOR_FILES && rows_fit);
}

/* ---------- a node in the new packing ---------- */

/* Copy a slot of the present packing; false if there is no such slot, or none in use. */
static bool
CopyOld(Repacking *s, uint32 old, PipeannSlot *slot)
{
	const PipeannLayout *l = &s->view->meta.layout;

	if (old >= PipeannViewIds(s->view))
		PipeannRefreshView(s->view);
	if (old >= PipeannViewIds(s->view) ||
		!PipeannGraphPageCopy(s->view, PipeannIdPage(l, old), s->page))
		return false;
	memcpy(slot, PipeannSlotAt(l, s->page, PipeannIdSlot(l, old)), l->slot_size);
	return (slot->flags & PIPEANN_SLOT_USED) != 0;
}

/*
 * The new id of one of a node's neighbours, or INVALID_ID. If that is to get one both
 * are looked at again: edges lead to no freed slot but from nodes without rows.
 */
static uint32
NewId(Repacking *s, uint32 old, uint32 neighbor)
{
	PipeannSlot *slot;

	if (neighbor < s->changes->ids && s->new_id[neighbor] != PIPEANN_INVALID_ID)
		return s->new_id[neighbor];
	slot = PipeannSlotAlloc(&s->view->meta.layout);
	if (CopyOld(s, neighbor, slot) && PipeannSlotIsNode(slot))
	{
		PipeannNoteChange(s->changes, neighbor);
		PipeannNoteChange(s->changes, old);
	}
	pfree(slot);
	return PIPEANN_INVALID_ID;
}

/* Whether an edge of the present packing goes, as those of the new graph take its place. */
static bool
IsSuperseded(const Repacking *s, uint32 old, uint32 neighbor)
{
	return !s->keep_lists && neighbor < s->changes->ids &&
		s->linked[old] && s->linked[neighbor];
}

/*
 * Edges to nodes that are not in the new graph are those of the old node. While VACUUM is
 * interrupted, and of nodes without rows, all are.
 */
static void
FillList(Repacking *s, uint32 old, const PipeannSlot *in, PipeannSlot *slot)
{
	int			degree = PipeannSlotDegree(&s->view->meta.layout, in);

	slot->degree = 0;
	for (int i = 0; i < degree; i++)
	{
		uint32		id;

		if (PipeannSlotIsLive(in) && IsSuperseded(s, old, in->neighbors[i]))
			continue;
		id = NewId(s, old, in->neighbors[i]);
		if (id != PIPEANN_INVALID_ID)
			slot->neighbors[slot->degree++] = id;
	}
}

/* Add edges to new ids while the list has room. */
static void
AddEdges(const PipeannLayout *l, PipeannSlot *slot, const uint32 *ids, int n)
{
	for (int i = 0; i < n && slot->degree < l->max_degree; i++)
		if (!PipeannListHas(slot->neighbors, slot->degree, ids[i]))
			slot->neighbors[slot->degree++] = ids[i];
}

/* Behind the edges that stay of a node's come those that it has in the new graph. */
static void
AddNewEdges(const Repacking *s, uint32 node, PipeannSlot *slot)
{
	const PipeannGraph *graph = s->graph;
	const uint32 *list = PipeannNeighbors(graph, node);

	for (int i = 0; i < graph->degree[node]; i++)
		AddEdges(&s->next.meta.layout, slot, &s->g->nodes.id_of_node[list[i]], 1);
}

/* The vector in another storage; its parts if it does not fit that. */
static void
ConvertVector(Repacking *s, uint32 old, const PipeannSlot *in, PipeannSlot *slot)
{
	const PipeannLayout *from = &s->view->meta.layout;
	const PipeannLayout *to = &s->next.meta.layout;
	float	   *x = PipeannArray(float, to->dim);
	PipeannRounding rounding;
	double		norm;

	if (!(in->flags & PIPEANN_SLOT_OUT_OF_LINE) ||
		!PipeannChainVector(s->view, old, in, x))
		PipeannVectorToFloat(PipeannSlotVector(from, in), from->storage,
							 from->dim, x);
	/* what was rounded would be taken as exact */
	s->up.failed |= PipeannSlotError(from, in) > 0 && !PipeannIsRounded(to) &&
		in->hash != PipeannVectorHash(x, to->dim);
	norm = PipeannNorm(x, to->dim);
	PipeannVectorFromFloat(x, to->storage, to->dim, PipeannSlotVector(to, slot));
	if (PipeannIsOutOfLine(&s->next.meta, x, norm))
	{
		slot->flags |= PIPEANN_SLOT_OUT_OF_LINE;
		slot->ext_vec = PipeannWriteParts(&s->next, x,
										  PipeannOutOfLineBytes(to, slot));
	}
	else if (PipeannIsRounded(to))
	{
		(void) PipeannRound(x, norm, PipeannSlotVector(to, slot), to->storage,
							to->dim, &rounding);
		PipeannSlotSetRounding(slot, &rounding);
	}
	pfree(x);
}

static void
CopyVector(Repacking *s, uint32 old, const PipeannSlot *in, PipeannSlot *slot)
{
	const PipeannLayout *from = &s->view->meta.layout;
	const PipeannLayout *to = &s->next.meta.layout;

	memcpy(PipeannSlotVector(to, slot), PipeannSlotVector(from, in),
		   PipeannVectorBytes(to->storage, to->dim));
	if (in->flags & PIPEANN_SLOT_OUT_OF_LINE)
	{
		float	   *x = PipeannArray(float, PipeannFloats(to->storage, to->dim));

		if (!PipeannChainVector(s->view, old, in, x))
			return;				/* a dead node's may be gone */
		slot->flags |= PIPEANN_SLOT_OUT_OF_LINE;
		slot->length = in->length;
		slot->ext_vec = PipeannWriteParts(&s->next, PipeannOutOfLine(to, x),
										  PipeannOutOfLineBytes(to, in));
		pfree(x);
	}
	else if (PipeannIsRounded(to))
	{
		slot->error = in->error;
		slot->hash = in->hash;
	}
}

/* Have s->joined cover a row. */
static void
CoverRow(Repacking *s, uint32 old, const PipeannRow *row)
{
	PipeannAttributes *a = s->coding.attributes;
	uint8		one[PIPEANN_MAX_ATTRIBUTE_BYTES] = {0};

	PipeannAttributesEncode(a, old, row, one);
	if (s->any)
		PipeannAttributesMerge(a, one, s->joined);
	else
		memcpy(s->joined, one, sizeof(one));
	s->any = true;
}

/* Rows from number `from` on, as the new packing stores them, behind those of a list. */
static List *
TakeRows(Repacking *s, uint32 old, List *rows, PipeannRowList list, uint32 from)
{
	const PipeannLayout *l = &s->view->meta.layout;
	const PipeannRow *row = list.rows;

	for (uint32 i = 0; i < list.n; i++, row = PipeannRowNext(l, row))
	{
		PipeannRow *whole;

		if (i < from)
			continue;
		if (PipeannRowIsOutOfLine(l, row))
			whole = PipeannReadRow(s->view, row, false);
		else
		{
			whole = palloc(sizeof(PipeannRow) + PipeannRowSize(l, row));
			memcpy(whole, row, PipeannRowSize(l, row));
		}
		if (s->joins && s->coding.attributes != NULL)
			CoverRow(s, old, whole);
		rows = lappend(rows, unconstify(PipeannRow *, PipeannStoreRow(&s->next, whole)));
	}
	return rows;
}

/*
 * Rows in overflow slots that the new node does not have. No slot leaves a chain
 * meanwhile, and it grows at the front: so behind one of which rows were taken all were,
 * but for slots with a bit of their own. Such a slot, `changed`, is looked for, and not
 * believed: an insert may be about to take it back.
 */
static List *
TakeChain(Repacking *s, List *rows, uint32 old, const PipeannSlot *in,
		  const PipeannSlot *changed)
{
	void	   *copy = palloc(PipeannExtBytes(&s->view->meta.layout));
	bool		reached = false;
	PipeannChain chain;

	PipeannChainBegin(&chain, old, in->ext_tids);
	while (chain.next != PIPEANN_INVALID_ID && !reached)
	{
		PipeannRowList list = PipeannChainRead(s->view, &chain, copy);
		uint16	   *taken;

		if (chain.slot == PIPEANN_INVALID_ID)
			break;
		if (chain.slot >= s->changes->ids)
		{
			PipeannNoteChange(s->changes, chain.slot);
			break;
		}
		taken = &s->rows[chain.slot];
		/* numbers wrap around */
		reached = *taken > 0 && (changed == NULL ||
								 (int32) (chain.number - changed->number) <= 0);
		rows = TakeRows(s, old, rows, list, *taken);
		*taken = list.n;
	}
	pfree(copy);
	return rows;
}

/*
 * Rows that the new node does not have, and will have from here on. One of its overflow
 * slots may have changed.
 */
static List *
NewRows(Repacking *s, uint32 old, const PipeannSlot *in, const PipeannSlot *changed)
{
	PipeannRowList list = PipeannSlotRows(&s->view->meta.layout, in);
	List	   *rows = TakeRows(s, old, NIL, list, s->rows[old]);

	s->rows[old] = list.n;
	return TakeChain(s, rows, old, in, changed);
}

static void
JoinRows(Repacking *s, uint32 id, const List *rows)
{
	ListCell   *cell;

	foreach(cell, rows)
		(void) PipeannJoinNode(&s->next, id, lfirst(cell));
}

/* Fill an empty slot; returns the rows that do not fit it. */
static List *
FillSlot(Repacking *s, uint32 old, const PipeannSlot *in, PipeannSlot *slot)
{
	const PipeannLayout *to = &s->next.meta.layout;
	List	   *rest = NIL;
	List	   *rows;
	ListCell   *cell;

	slot->flags = PIPEANN_SLOT_USED;
	slot->ext_tids = PIPEANN_INVALID_ID;
	slot->ext_vec = PIPEANN_INVALID_ID;
	slot->aux = in->aux;
	FillList(s, old, in, slot);
	if (s->linked[old] && PipeannSlotIsLive(in))
		AddNewEdges(s, s->g->node_of_id[old], slot);
	if (to->storage == s->view->meta.layout.storage)
		CopyVector(s, old, in, slot);
	else
		ConvertVector(s, old, in, slot);
	rows = NewRows(s, old, in, NULL);
	s->dead |= rows == NIL;
	foreach(cell, rows)
		if (rest != NIL || !PipeannSlotAddRow(to, slot, lfirst(cell)))
			rest = lappend(rest, lfirst(cell));
	return rest;
}

/* ---------- while inserts go on: the nodes that there are ---------- */

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
		l.row_bytes = row_bytes;
		PipeannLayoutInit(&l, &l, PipeannGetOptions(view->index)->fillfactor);
	}
	l.attr_bytes = view->meta.layout.attr_bytes;
	return l;
}

static void
Train(Repacking *s, const PipeannLoadedNodes *g)
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
		PipeannChooseWidths(view->index, &g->nodes, &k->layout,
							&k->widths);
	PipeannCodingTrainOn(PipeannTeamAlone(), k, &g->nodes);
}

/*
 * Note what each old id becomes. Nodes that have the vector of one before are left for
 * later, as are those that came since. One without rows gets a place when a list turns
 * out to lead to it.
 */
static void
NoteIds(Repacking *s)
{
	const PipeannLoadedNodes *g = s->g;
	const PipeannNodes *nodes = &g->nodes;
	ListCell   *cell;

	s->old_id = PipeannTeamArray(&s->own.team, uint32, nodes->ids);
	memset(s->old_id, 0xFF, mul_size(nodes->ids, sizeof(uint32)));
	s->new_id = PipeannTeamArray(&s->own.team, uint32, s->changes->ids);
	memset(s->new_id, 0xFF, mul_size(s->changes->ids, sizeof(uint32)));
	s->linked = PipeannTeamArray(&s->own.team, bool, s->changes->ids);
	memset(s->linked, 0, s->changes->ids);
	for (uint32 old = 0; old < g->ids; old++)
	{
		uint32		node = g->node_of_id[old];
		uint32		id;

		if (node == PIPEANN_INVALID_ID)
			continue;
		id = nodes->id_of_node[node];
		if (s->old_id[id] != PIPEANN_INVALID_ID)
			PipeannNoteChange(s->changes, old);
		else
		{
			s->old_id[id] = old;
			s->new_id[old] = id;
			s->linked[old] = true;
			s->room[id / s->coding.layout.slots_per_page]--;
		}
	}
	foreach(cell, g->others)
		PipeannNoteChange(s->changes, lfirst_oid(cell));
}

/* Link the nodes as a build does. */
static void
Link(PipeannTeam *team, Repacking *s)
{
	const PipeannMeta *meta = &s->view->meta;
	PipeannLoadedNodes *g = s->g;
	PipeannGraphParams params = GraphParams(meta);

	if (g->nodes.vectors.n > 1)
		s->graph = PipeannGraphBuild(team, &g->nodes.near, g->clusters, &params);
	else
	{
		s->graph = PipeannGraphNew(team, 1, params.max_degree);
		s->graph->degree[0] = 0;
	}
	PipeannClustersFree(team, g->clusters);
}

/* Give the nodes ids in packed order. */
static void
Pack(PipeannTeam *team, Repacking *s)
{
	const PipeannLayout *l = &s->coding.layout;
	PipeannNodes *nodes = &s->g->nodes;
	uint32		n = nodes->vectors.n;
	int			fill = Min(PipeannWantedFill(l), l->fill);
	uint32	   *order = PipeannTeamArray(team, uint32, n);

	PipeannGraphPack(s->graph, &nodes->near, fill, order, team);
	s->node_pages = (n + fill - 1) / fill;
	PipeannNodesInit(team, nodes, s->node_pages * l->slots_per_page);
	PipeannAssignIds(l, fill, nodes, order);
	PipeannTeamFree(team, order);
	s->room_pages = s->node_pages;
	s->room = PipeannAlloc(s->room_pages);
	memset(s->room, Min(l->slots_per_page, UINT8_MAX), s->room_pages);
	NoteIds(s);
}

static void
ReserveExtents(Repacking *s, uint32 ids)
{
	Relation	index = s->view->index;
	const PipeannLayout *l = &s->coding.layout;
	uint64		pages = (uint64) s->node_pages + s->node_pages / SPARE_PAGES + 1;
	PipeannMetaUpdate update;

	/* an insert that has looked for an extent to empty, and found none, is to get none */
	LockPage(index, PIPEANN_EXTENT_LOCK, ExclusiveLock);
	PipeannMetaBegin(index, &update);
	s->reuse = PipeannExtentsReuse(update.meta);
	if (s->reuse)
		pages -= Min(pages, (uint64) update.meta->kind_extents[PIPEANN_FREE] *
					 PipeannGraphPagesPerExtent(l));
	PipeannMetaEnd(&update);
	UnlockPage(index, PIPEANN_EXTENT_LOCK, ExclusiveLock);
	PipeannRefreshView(s->view);
	if (s->coded)
		PipeannCodingReserveSoon(&s->coding, &s->view->meta, ids);
	PipeannExtentsReserve(index, PIPEANN_NEXT_GRAPH,
						  PipeannGraphExtents(l, pages));
	PipeannRefreshView(s->view);
}

static void
WriteGeneration(PipeannTeam *team, Repacking *s)
{
	const PipeannIndexView *view = s->view;
	const PipeannNodes *nodes = &s->g->nodes;

	PipeannCodebookWrite(&s->coding, view->map);
	PipeannCodesWrite(team, &s->coding, view->map, nodes);
	PipeannEntriesWrite(team, &s->coding, &view->meta, view->map, nodes);
}

/* Make edges, codes, and a place for each node. False if there is to be no packing. */
static bool
Prepare(PipeannTeam *team, Repacking *s)
{
	PipeannIndexView *view = s->view;
	PipeannLoadedNodes *g = s->g;

	/* attribute codes are made of rows */
	PipeannLoadNodes(team, view, view->meta.layout.attr_bytes > 0, g);
	if (g->out_of_line || g->nodes.vectors.n == 0 || g->ids > s->changes->ids)
		return false;
	Train(s, g);
	Link(team, s);
	Pack(team, s);
	PIPEANN_PAUSE("repack-packed");
	ReserveExtents(s, g->nodes.ids);
	if (s->coded)
		WriteGeneration(team, s);
	PIPEANN_PAUSE("repack-prepared");
	return true;
}

/* Rows of a new node that its slot has no room for. */
typedef struct RestOfRows
{
	uint32		id;
	List	   *rows;
} RestOfRows;

/*
 * Write new page `page`, of which payload has room. A row that joins a node from here
 * on sets the node's bit, and so did one that its code does not know.
 */
static void
WritePage(Repacking *s, uint32 page, char *payloads)
{
	const PipeannLayout *l = &s->next.meta.layout;
	PipeannSlot *in = PipeannSlotAlloc(&s->view->meta.layout);
	RestOfRows *rest = palloc(l->slots_per_page * sizeof(RestOfRows));
	int			nrest = 0;

	memset(payloads, 0, (Size) l->node_pages * PIPEANN_PAYLOAD);
	for (uint32 i = 0; i < l->slots_per_page; i++)
	{
		uint32		id = page * l->slots_per_page + i;
		uint32		old = s->old_id[id];
		List	   *rows;

		if (old == PIPEANN_INVALID_ID || !CopyOld(s, old, in))
			continue;
		rows = FillSlot(s, old, in, PipeannSlotAt(l, payloads, i));
		if (rows != NIL)
			rest[nrest++] = (RestOfRows) {id, rows};
		if (s->coding.attributes != NULL && PipeannHasChanged(s->changes, old))
			PipeannCodingAdd(&s->coding, s->view, old, in, id);
		s->next.meta.nodes++;
	}
	PipeannWriteGraphPage(s->view->index, l, s->next.map, page, payloads,
						  RelationNeedsWAL(s->view->index));
	for (int i = 0; i < nrest; i++)
		JoinRows(s, rest[i].id, rest[i].rows);
}

/*
 * Write the pages of all nodes that have a place. Overflow slots go to pages behind
 * them.
 */
static void
WritePages(Repacking *s)
{
	PipeannIndexView *next = &s->next;
	char	   *payloads;

	s->page = palloc((Size) s->view->meta.layout.node_pages * PIPEANN_PAYLOAD);
	PipeannViewNext(s->view, &s->coding.layout, s->reuse, next);
	PipeannEmptyPages(next, s->node_pages);
	next->meta.graph_pages = s->node_pages + 1;
	s->rows = PipeannTeamArray(&s->own.team, uint16, s->changes->ids);
	payloads = palloc((Size) s->coding.layout.node_pages * PIPEANN_PAYLOAD);
	for (uint32 page = 0; page < s->node_pages && !PipeannCatchUpHasFailed(&s->up); page++)
	{
		MemoryContext former = MemoryContextSwitchTo(s->up.work);

		WritePage(s, page, payloads);
		MemoryContextSwitchTo(former);
		MemoryContextReset(s->up.work);
	}
	pfree(payloads);
	PipeannTeamFree(&s->own.team, s->old_id);
	PIPEANN_PAUSE("repack-pages-written");
}

/* Make the packing of the nodes that there are, with memory that is given back then. */
static bool
PrepareAndWrite(Repacking *s)
{
	PipeannParallel all;
	PipeannLoadedNodes g;
	bool		rows_fit;
	bool		done;

	s->g = &g;
	PipeannParallelAlone(&all, !FitsMemory(s->view, &rows_fit));
	done = Prepare(&all.team, s);
	if (done)
		WritePages(s);
	PipeannParallelEnd(&all);
	MemoryContextDelete(g.context);
	s->g = NULL;
	s->graph = NULL;
	return done;
}

/* ---------- while inserts go on: what they have changed ---------- */

/* The first page of a neighbour that may have room, or INVALID_ID. */
static uint32
PageNear(const Repacking *s, const PipeannSlot *slot)
{
	for (int i = 0; i < slot->degree; i++)
	{
		uint32		page = PipeannIdPage(&s->next.meta.layout, slot->neighbors[i]);

		if (page < s->room_pages && s->room[page] > 0)
			return page;
	}
	return PIPEANN_INVALID_ID;
}

/* A node has been placed. One that has begun a page leaves room there. */
static void
NotePlaced(Repacking *s, uint32 id)
{
	const PipeannLayout *l = &s->next.meta.layout;
	uint32		page = PipeannIdPage(l, id);

	if (page >= s->room_pages)
	{
		uint32		pages = page + page / SPARE_PAGES + 1;

		s->room = PipeannRealloc(s->room, pages);
		memset(s->room + s->room_pages, 0, pages - s->room_pages);
		s->room_pages = pages;
	}
	if (PipeannIdSlot(l, id) == 0)
		s->room[page] = Min(l->slots_per_page - 1, UINT8_MAX);
	else if (s->room[page] > 0)
		s->room[page]--;
}

static void
AddNode(Repacking *s, uint32 old, const PipeannSlot *in)
{
	PipeannSlot *slot = PipeannSlotAlloc(&s->next.meta.layout);
	List	   *rest = FillSlot(s, old, in, slot);
	uint32		id = PipeannPlaceSlot(&s->next, PageNear(s, slot), slot);

	NotePlaced(s, id);
	s->new_id[old] = id;
	s->next.meta.nodes++;
	if (s->coded)
		PipeannCodingAdd(&s->coding, s->view, old, in, id);
	JoinRows(s, id, rest);
}

/* One that was not written yet comes to cover everything. */
static void
MergeJoined(uint32 id, uint8 *code, void *arg)
{
	Repacking  *s = arg;

	PipeannAttributesMerge(s->coding.attributes, s->joined, code);
}

/* Have the node get the rows that it does not have, and its code cover them. */
static void
AddRows(Repacking *s, uint32 old, const PipeannSlot *in,
		const PipeannSlot *changed, uint32 id)
{
	s->joins = true;
	s->any = false;
	JoinRows(s, id, NewRows(s, old, in, changed));
	s->joins = false;
	if (s->any)
		(void) PipeannChangeAttributes(s->view, &s->coding.layout,
									   s->coding.generation, id, MergeJoined, s);
}

static void
ChangeNode(Repacking *s, uint32 old, const PipeannSlot *in,
		   const PipeannSlot *changed)
{
	PipeannSlot *slot = PipeannSlotAlloc(&s->next.meta.layout);
	uint32		id = s->new_id[old];
	PipeannPageUpdate update;
	PipeannSlot *now;

	FillList(s, old, in, slot);
	PipeannSlotBegin(&s->next, id, &update);
	now = update.slot;
	if (s->linked[old] && PipeannSlotIsLive(in))
		AddEdges(&s->next.meta.layout, slot, now->neighbors, now->degree);
	if (now->degree == slot->degree &&
		memcmp(now->neighbors, slot->neighbors,
			   slot->degree * sizeof(uint32)) == 0)
		PipeannPageAbort(&update);
	else
	{
		now->degree = slot->degree;
		memcpy(now->neighbors, slot->neighbors, slot->degree * sizeof(uint32));
		PipeannPageEnd(&update);
	}
	AddRows(s, old, in, changed, id);
}

/* Bring up to date what the new packing has of a node, or of an overflow slot's. */
static void
CatchUpWith(uint32 old, void *arg)
{
	Repacking  *s = arg;
	PipeannSlot *in = PipeannSlotAlloc(&s->view->meta.layout);
	PipeannSlot *changed = NULL;
	bool		used = CopyOld(s, old, in);

	if (used && (in->flags & PIPEANN_SLOT_EXT))
	{
		/* parts come before the node or the row that leads to them */
		if (in->length > 0 || in->owner >= s->changes->ids ||
			PipeannExtRows(&s->view->meta.layout, in).n <= s->rows[old])
			return;
		changed = in;
		old = changed->owner;
		in = PipeannSlotAlloc(&s->view->meta.layout);
		used = CopyOld(s, old, in);
	}
	if (!used || !PipeannSlotIsNode(in))
		return;
	if (s->new_id[old] == PIPEANN_INVALID_ID)
		AddNode(s, old, in);
	else
		ChangeNode(s, old, in, changed);
}

/* ---------- with no insert under way ---------- */

/*
 * The old layout's extents keep their contents, for scans that began before,
 * and their order, for PipeannViewBlock().
 */
static void
MoveExtents(const Repacking *s, PipeannMeta *moved)
{
	PipeannKind to[PIPEANN_NUM_KINDS];

	for (int kind = 0; kind < PIPEANN_NUM_KINDS; kind++)
		to[kind] = (PipeannKind) kind;
	if (s->reuse)
		to[PIPEANN_FREE] = PIPEANN_GRAPH;
	to[PIPEANN_GRAPH] = PIPEANN_FREE;
	to[PIPEANN_NEXT_GRAPH] = PIPEANN_GRAPH;
	PipeannExtentsMove(s->view->index, to, s->map_unusable, moved);
}

static bool
Publish(void *arg)
{
	Repacking  *s = arg;
	PipeannMeta *moved = palloc(sizeof(PipeannMeta));
	PipeannMetaUpdate update;
	PipeannMeta *meta;

	PIPEANN_PAUSE("repack-written");
	MoveExtents(s, moved);
	PipeannMetaBegin(s->view->index, &update);
	meta = update.meta;
	PipeannExtentsMoved(meta, moved);
	meta->layout = s->coding.layout;
	meta->widths = s->coding.widths;
	meta->packings++;
	meta->free_xid = U64FromFullTransactionId(ReadNextFullTransactionId());
	meta->graph_pages = s->next.meta.graph_pages;
	meta->nodes = meta->packed_nodes = s->next.meta.nodes;
	meta->came = 0;
	meta->changes_handle = DSM_HANDLE_INVALID;
	/* VACUUM frees nodes without rows */
	if (s->dead)
		meta->flags |= PIPEANN_META_REPAIRING;
	if (s->coded)
		PipeannCodingPublish(&s->coding, meta, meta->nodes);
	PipeannMetaEnd(&update);
	return true;
}

static bool
Finish(Repacking *s)
{
	Relation	index = s->view->index;

	PipeannRefreshView(s->view);
	PipeannFreeReserve(index, s->view->meta.extents);
	s->map_unusable = PipeannExtentsMoveSoon(index);
	return PipeannCatchUpFinish(&s->up);
}

static bool
PackAnew(Repacking *s)
{
	bool		done;

	PipeannParallelAlone(&s->own, false);
	done = PrepareAndWrite(s);
	if (done)
	{
		PipeannCatchUpBeside(&s->up);
		done = !PipeannCatchUpHasFailed(&s->up) && Finish(s);
	}
	PipeannParallelEnd(&s->own);
	return done;
}

/*
 * Pack the graph anew, with codes of the next generation, if it has grown by this
 * factor since it was packed, or little is left of it. The caller holds the
 * maintenance lock. False if there was no need or no room, and not if another
 * backend is in the way.
 */
bool
PipeannRepack(PipeannIndexView *view, double growth)
{
	Repacking	s = {
		.view = view,.up = {
			.view = view,.slot = CatchUpWith,.publish = Publish,.arg = &s,.lists = true
		}
	};
	bool		done;

	if (!IsWanted(&view->meta, growth) || !HasRoom(view))
		return false;
	if (!PipeannCatchUpBegin(&s.up))
		return s.up.busy;
	s.changes = s.up.changes;
	s.keep_lists = (view->meta.flags & PIPEANN_META_REPAIRING) != 0;
	done = PackAnew(&s);
	PipeannCatchUpEnd(&s.up, done);
	return done;
}
