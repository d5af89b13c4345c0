/*
 * repack.c
 *		Packing the graph anew, as a build would.
 *
 * Nodes stay on the pages that they were put on when the index was smaller,
 * and page-mates are as far apart as near nodes were then. So when an index
 * has grown by a factor, and gets other codes anyway, its nodes get other ids,
 * too: those of a packed graph with room left on each page. An index that
 * began empty also learns then whether bytes or half precision hold its
 * vectors.
 *
 * The new pages go to extents of their own. Nodes are read and packed, and
 * their codes and entry graph are written, while inserts go on. Then, with no
 * insert under way, the nodes are read again, those that came meanwhile get
 * places, and graph pages are written. At last the metapage names the new
 * packing, its codes, and the new use of the extents, in one WAL record. Scans
 * that began before go on in the old pages, which are not written while a scan
 * may be in them. See src/README, "build/: packings".
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xloginsert.h"
#include "base/pause.h"
#include "build/repack.h"
#include "io/io.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/rel.h"

/*
 * Inserts wait while nodes are read again and pages are written: some seconds
 * for an index of this size, the largest that is repacked.
 */
#define MOST_NODES 524288

/* One graph page in so many is reserved for nodes inserted meanwhile. */
#define SPARE_PAGES 16

typedef struct Repacking
{
	PipeannIndexView *view;
	PipeannCoding coding;		/* the next generation, in the new layout */
	uint32	   *new_id;			/* [ids] by old id, or INVALID_ID */
	uint32		ids;			/* old ids, when nodes were first read */
	uint32		node_pages;		/* new pages of nodes */
} Repacking;

static bool
IsWanted(const PipeannMeta *meta)
{
	if (meta->nodes > MOST_NODES)
		return false;
	if (!(meta->flags & PIPEANN_META_HAS_CODES))
		return meta->layout.slots_per_page > 1 ||
			(meta->flags & PIPEANN_META_AUTO_STORAGE);
	return meta->layout.slots_per_page > 1 &&
		meta->nodes / PipeannGrowthFactor(meta) >= meta->packed_nodes;
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
	uint32	   *order = PipeannAlloc(mul_size(n, sizeof(uint32)));

	PipeannGraphPack(g->graph, &nodes->vectors, fill, order,
					 PipeannTeamAlone());
	s->node_pages = (n + fill - 1) / fill;
	PipeannNodesInit(PipeannTeamAlone(), nodes,
					 s->node_pages * l->slots_per_page);
	PipeannAssignIds(l, fill, nodes, order);
	pfree(order);

	s->ids = g->ids;
	s->new_id = PipeannAlloc(mul_size(s->ids, sizeof(uint32)));
	for (uint32 id = 0; id < s->ids; id++)
		s->new_id[id] = g->node_of_id[id] == PIPEANN_INVALID_ID ?
			PIPEANN_INVALID_ID : nodes->id_of_node[g->node_of_id[id]];
}

static void
ReserveExtents(Repacking *s, uint32 ids)
{
	PipeannMetaAlone alone;
	PipeannMeta *meta = PipeannCodingAttempt(&s->coding, &alone);

	PipeannCodingReserve(&s->coding, meta, ids);
	PipeannReserveGraphPages(s->view->index, meta, PIPEANN_NEXT_GRAPH,
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

	PipeannCodingBegin(k, view->index, meta, &l, meta->generation + 1);
	/* the codebooks of two generations stand apart by a layout's lengths */
	if (!(meta->flags & PIPEANN_META_HAS_CODES))
		PipeannChooseWidths(view->index, meta->format, &g->nodes, &k->layout,
							&k->widths);
	PipeannCodingTrainOn(PipeannTeamAlone(), k, &g->nodes);
}

static bool
Prepare(Repacking *s)
{
	PipeannIndexView *view = s->view;
	PipeannTeam *team = PipeannTeamAlone();
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
	PipeannCodebookWrite(&s->coding, view->map);
	PipeannCodesWrite(team, &s->coding, view->map, &g.nodes);
	PipeannEntriesWrite(team, &s->coding, &view->meta, view->map, &g.nodes,
						g.nodes.id_of_node[g.graph->medoid]);
	PipeannLoadedGraphFree(&g);
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

	PipeannNodesInit(PipeannTeamAlone(), nodes,
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
WriteFreshCodes(Repacking *s, const PipeannNodes *nodes, const uint32 *fresh,
				uint32 nfresh)
{
	PipeannCoding *k = &s->coding;
	const PipeannLayout *l = &k->layout;
	uint32		per_page = PipeannCodesPerPage(l);
	uint32		pages = (s->node_pages * l->slots_per_page + per_page - 1) /
		per_page;
	float	   *x = palloc(mul_size(l->dim, sizeof(float)));
	uint8	   *code = palloc0(PIPEANN_PAYLOAD);

	while (k->code_pages < pages)
		PipeannCodePagesWrite(k, s->view->map, k->code_pages++, code, 1);
	for (uint32 i = 0; i < nfresh; i++)
	{
		CHECK_FOR_INTERRUPTS();
		PipeannCodingVector(&nodes->vectors, fresh[i], x);
		PipeannPqEncode(&k->pq, x, code);
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
	PipeannReserveGraphPages(s->view->index, update.meta, PIPEANN_NEXT_GRAPH,
							 l, pages);
	PipeannCodingReserve(&s->coding, update.meta,
						 s->node_pages * l->slots_per_page);
	PipeannMetaEnd(&update);
	PipeannRefreshView(s->view);
}

static bool
Finish(Repacking *s)
{
	PipeannIndexView *view = s->view;
	const PipeannLayout *l = &s->coding.layout;
	PipeannLoadedGraph g;
	PipeannGraphWriter w = {.index = view->index,.layout = l};
	uint32	   *fresh;
	uint32		nfresh;
	uint64		pages;

	PipeannRefreshView(view);
	PipeannLoadGraph(view, PipeannViewPages(view), true, &g);
	if (g.out_of_line || g.nodes.vectors.storage != l->storage ||
		g.nodes.vectors.n == 0)
		return false;
	fresh = PipeannAlloc(mul_size(g.nodes.vectors.n, sizeof(uint32)));
	KeepIds(s, &g, fresh, &nfresh);
	pages = s->node_pages + PipeannExtPages(l, &g.nodes);
	ReserveRest(s, pages);
	PipeannFreeReserve(view->index, view->meta.extents);
	if (view->meta.extents > PIPEANN_MAP_INLINE)
		return false;
	WriteFreshCodes(s, &g.nodes, fresh, nfresh);
	WriteJoined(s, &g.nodes);
	w.map = view->map;
	w.kind = PIPEANN_NEXT_GRAPH;
	w.nodes = &g.nodes;
	w.graph = g.graph;
	w.node_pages = s->node_pages;
	PipeannWriteGraph(PipeannTeamAlone(), &w);
	LogPages(s, (uint32) pages);
	PIPEANN_PAUSE("repack-written");
	Publish(s, (uint32) pages, g.nodes.vectors.n,
			g.nodes.id_of_node[g.graph->medoid]);
	return true;
}

/* ---------- the whole ---------- */

/* The last step, with no insert under way. */
static bool
FinishAlone(Repacking *s)
{
	Relation	index = s->view->index;
	bool		cancellable = PipeannKeepInsertsOut(index);
	bool		done = Finish(s);

	PipeannLetInsertsIn(index, cancellable);
	return done;
}

/*
 * Pack the graph anew, with codes of the next generation, if it has grown by
 * its factor since it was packed. The caller holds the maintenance lock.
 * Inserts wait while pages are written.
 */
PipeannRepackResult
PipeannRepack(PipeannIndexView *view)
{
	Relation	index = view->index;
	Repacking	s = {.view = view};
	bool		done;

	if (!IsWanted(&view->meta) || !HasRoom(view) ||
		(view->meta.flags & PIPEANN_META_REPAIRING))
		return PIPEANN_REPACK_NEVER;
	if (!ConditionalLockPage(index, PIPEANN_REPACK_LOCK, ExclusiveLock))
		return PIPEANN_REPACK_LATER;
	done = Prepare(&s) && FinishAlone(&s);
	UnlockPage(index, PIPEANN_REPACK_LOCK, ExclusiveLock);
	return done ? PIPEANN_REPACK_DONE : PIPEANN_REPACK_NEVER;
}
