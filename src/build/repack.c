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
	uint32		generation;		/* of the codes being made */
	PipeannLayout layout;		/* the new one */
	PipeannWidths widths;		/* of its attribute codes */
	uint32	   *new_id;			/* [ids] by old id, or INVALID_ID */
	uint32		ids;			/* old ids, when nodes were first read */
	uint32		node_pages;		/* new pages of nodes */
	PipeannPq	pq;
	PipeannAttributes *attributes;	/* NULL if there are no codes of them */
	char	   *books;
	float		error;
	uint32		code_pages;		/* written so far */
	PipeannMeta made;			/* its fields of the entry graph */
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

static uint32
CountPages(const PipeannIndexView *view)
{
	return PipeannSourceCountPages(view->index, &view->meta.layout, view->map,
								   view->meta.graph_pages);
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
		PipeannLayoutInit(&l, l.dim, l.metric, storage, view->meta.m,
						  l.pq_bytes,
						  PipeannGetOptions(view->index)->fillfactor,
						  row_bytes);
	l.attr_bytes = view->meta.layout.attr_bytes;
	return l;
}

/* ---------- while inserts go on ---------- */

/* Give the nodes ids in packed order, and note what each old id becomes. */
static void
Pack(Repacking *s, const PipeannLoadedGraph *g, PipeannNodes *nodes)
{
	int			fill = Min(PipeannWantedFill(&s->layout), s->layout.fill);
	uint32	   *order = PipeannAlloc(mul_size(g->c.n, sizeof(uint32)));

	PipeannGraphPack(g->graph, &g->vectors, fill, order, PipeannTeamAlone());
	nodes->vectors = g->vectors;
	s->node_pages = (g->c.n + fill - 1) / fill;
	PipeannNodesInit(PipeannTeamAlone(), nodes,
					 s->node_pages * s->layout.slots_per_page);
	PipeannAssignIds(&s->layout, fill, nodes, order);
	pfree(order);

	s->ids = g->ids;
	s->new_id = PipeannAlloc(mul_size(s->ids, sizeof(uint32)));
	for (uint32 id = 0; id < s->ids; id++)
		s->new_id[id] = g->node_of_id[id] == PIPEANN_INVALID_ID ?
			PIPEANN_INVALID_ID : nodes->id_of_node[g->node_of_id[id]];
}

/*
 * After a failed attempt to retrain, inserts under way may write codes of the
 * next generation, by old ids. From here on none does.
 */
static void
ReserveExtents(Repacking *s, uint32 ids)
{
	Relation	index = s->view->index;
	PipeannMetaUpdate update;
	bool		may = PipeannKeepInsertsOut(index);

	PipeannMetaBegin(index, &update);
	update.meta->flags &= ~PIPEANN_META_RETRAINING;
	update.meta->attempt++;
	PipeannCodingReserve(index, update.meta, &s->layout, s->generation, ids);
	PipeannReserveGraphPages(index, update.meta, PIPEANN_NEXT_GRAPH,
							 &s->layout, (uint64) s->node_pages +
							 s->node_pages / SPARE_PAGES);
	PipeannMetaEnd(&update);
	PipeannLetInsertsIn(index, may);
	PipeannRefreshView(s->view);
}

static void
WriteCodePage(Repacking *s, uint32 code_page, const uint8 *payload)
{
	PipeannKind kind = PipeannCodesKind(s->generation);
	BlockNumber blkno = PipeannPlainBlock(s->view->map, kind, code_page);
	Buffer		buffer = PipeannGetBlock(s->view->index, blkno);
	GenericXLogState *state = GenericXLogStart(s->view->index);
	Page		page = GenericXLogRegisterBuffer(state, buffer,
												 GENERIC_XLOG_FULL_IMAGE);

	PipeannPageInit(page, kind);
	memcpy(PipeannPagePayload(page), payload, PIPEANN_PAYLOAD);
	PipeannPageSeal(page, blkno);
	GenericXLogFinish(state);
	UnlockReleaseBuffer(buffer);
}

static void
WriteCodes(Repacking *s, const PipeannCollection *c, const PipeannNodes *nodes)
{
	uint32		per_page = PipeannCodesPerPage(&s->layout);
	float	   *x = palloc(PipeannEncodeSpace(s->layout.dim));
	uint8	   *payload = palloc(PIPEANN_PAYLOAD);

	for (uint32 first = 0; first < nodes->ids; first += per_page)
	{
		CHECK_FOR_INTERRUPTS();
		PipeannEncodePage(&s->pq, nodes, first,
						  Min(per_page, nodes->ids - first), x, payload);
		PipeannEncodeAttributes(s->attributes, &s->layout, c, nodes, first,
								Min(per_page, nodes->ids - first), payload);
		WriteCodePage(s, s->code_pages++, payload);
	}
	pfree(x);
	pfree(payload);
}

static void
WriteEntryGraph(Repacking *s, const PipeannNodes *nodes, uint32 root)
{
	PipeannIndexView *view = s->view;
	uint32	   *sample = PipeannAlloc(mul_size(PipeannEntryCount(nodes->vectors.n),
											   sizeof(uint32)));
	uint32		n = PipeannEntrySample(nodes, root, sample);

	PipeannEntryWrite(view->index, &view->meta, view->map, nodes, sample, n,
					  true, PipeannTeamAlone());
	s->made = view->meta;
	pfree(sample);
}

static void
TrainAttributes(Repacking *s, const PipeannCollection *c)
{
	const PipeannMeta *meta = &s->view->meta;

	/* the codebooks of two generations stand apart by a layout's lengths */
	s->widths = meta->widths;
	if (meta->format >= PIPEANN_FORMAT_WIDTHS &&
		!(meta->flags & PIPEANN_META_HAS_CODES))
		PipeannChooseWidths(s->view->index, meta->format, c, &s->layout,
							&s->widths);
	s->attributes = PipeannAttributesOpen(s->view->index, meta->format,
										  &s->layout, &s->widths, NULL);
	if (s->attributes == NULL)
		return;
	s->books = palloc(PipeannBooksBytes(&s->layout));
	PipeannTrainAttributes(s->attributes, c, s->books);
}

static bool
Prepare(Repacking *s)
{
	PipeannIndexView *view = s->view;
	PipeannLoadedGraph g;
	PipeannNodes nodes;

	/* attribute codes are made of rows */
	PipeannLoadGraph(view, CountPages(view),
					 view->meta.layout.attr_bytes > 0, &g);
	if (g.out_of_line || g.c.n == 0)
		return false;
	s->layout = NewLayout(view, g.c.storage, &g.sizes);
	s->pq = PipeannCodingLayout(&s->layout);
	s->error = PipeannCodingTrainOn(PipeannTeamAlone(), view->index, &s->pq,
									&s->layout, &g.vectors);
	TrainAttributes(s, &g.c);
	Pack(s, &g, &nodes);
	PIPEANN_PAUSE("repack-packed");
	ReserveExtents(s, nodes.ids);
	PipeannCodebookWrite(view->index, &s->layout, view->map, s->generation,
						 &s->pq, s->books, true);
	WriteCodes(s, &g.c, &nodes);
	WriteEntryGraph(s, &nodes, nodes.id_of_node[g.graph->medoid]);
	pfree(nodes.id_of_node);
	pfree(nodes.node_of_id);
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
	uint32		per_page = s->layout.slots_per_page;

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
AssignIds(Repacking *s, const PipeannLoadedGraph *g, PipeannNodes *nodes,
		  uint32 *fresh, uint32 *nfresh)
{
	uint32		per_page = s->layout.slots_per_page;
	uint32		next = s->node_pages * per_page;
	Size		size;

	nodes->vectors = g->vectors;
	nodes->ids = next + (g->c.n + per_page - 1) / per_page * per_page;
	size = mul_size(nodes->ids, sizeof(uint32));
	nodes->node_of_id = PipeannAlloc(size);
	memset(nodes->node_of_id, 0xFF, size);
	size = mul_size(g->c.n, sizeof(uint32));
	nodes->id_of_node = PipeannAlloc(size);
	memset(nodes->id_of_node, 0xFF, size);

	for (uint32 id = 0; id < Min(g->ids, s->ids); id++)
		if (g->node_of_id[id] != PIPEANN_INVALID_ID &&
			s->new_id[id] != PIPEANN_INVALID_ID)
		{
			nodes->id_of_node[g->node_of_id[id]] = s->new_id[id];
			nodes->node_of_id[s->new_id[id]] = g->node_of_id[id];
		}
	*nfresh = 0;
	for (uint32 node = 0; node < g->c.n; node++)
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
WriteFreshCodes(Repacking *s, const PipeannCollection *c,
				const PipeannNodes *nodes, const uint32 *fresh,
				uint32 nfresh)
{
	const PipeannVectors *v = &nodes->vectors;
	uint32		pages = (s->node_pages * s->layout.slots_per_page +
						 PipeannCodesPerPage(&s->layout) - 1) /
		PipeannCodesPerPage(&s->layout);
	float	   *x = palloc(mul_size(v->dim, sizeof(float)));
	uint8	   *code = palloc0(PIPEANN_PAYLOAD);

	while (s->code_pages < pages)
		WriteCodePage(s, s->code_pages++, code);
	for (uint32 i = 0; i < nfresh; i++)
	{
		CHECK_FOR_INTERRUPTS();
		PipeannCodingVector(v, fresh[i], x);
		PipeannPqEncode(&s->pq, x, code);
		if (s->attributes != NULL)
			PipeannCollectedAttributes(s->attributes, c, fresh[i],
									   code + s->layout.pq_bytes);
		PipeannPlaceCode(s->view, &s->layout, s->generation,
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
WriteJoined(Repacking *s, const PipeannCollection *c, const PipeannNodes *nodes)
{
	const PipeannLayout *l = &s->layout;
	uint32		per_page = PipeannCodesPerPage(l);
	uint8	   *payload = palloc(PIPEANN_PAYLOAD);
	uint8	   *wanted = palloc(PIPEANN_PAYLOAD);
	Size		planes = PipeannPlaneOffset(l, 0);

	for (uint32 i = 0; s->attributes != NULL && i < s->code_pages &&
		 i * per_page < nodes->ids; i++)
	{
		BlockNumber blkno = PipeannPlainBlock(s->view->map,
											  PipeannCodesKind(s->generation),
											  i);
		Buffer		buffer = PipeannGetBlock(s->view->index, blkno);

		CHECK_FOR_INTERRUPTS();
		memcpy(payload, PipeannPagePayload(BufferGetPage(buffer)),
			   PIPEANN_PAYLOAD);
		UnlockReleaseBuffer(buffer);
		memcpy(wanted, payload, PIPEANN_PAYLOAD);
		PipeannEncodeAttributes(s->attributes, l, c, nodes, i * per_page,
								Min(per_page, nodes->ids - i * per_page),
								wanted);
		if (memcmp(payload + planes, wanted + planes,
				   PIPEANN_PAYLOAD - planes) != 0)
			WriteCodePage(s, i, wanted);
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
	uint32		per_extent = PipeannGraphPagesPerExtent(&s->layout);
	BlockNumber blocks = RelationGetNumberOfBlocks(index);

	for (uint32 i = 0; i < map->count[PIPEANN_NEXT_GRAPH]; i++)
	{
		BlockNumber first = map->extents[PIPEANN_NEXT_GRAPH][i] *
			PIPEANN_EXTENT_BLOCKS + 1;
		BlockNumber end = Min(first + PIPEANN_EXTENT_USABLE, blocks);
		uint32		from = Min(i * per_extent, pages);
		uint32		used = Min(pages - from, per_extent) *
			s->layout.node_pages;

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
	PipeannMeta new_id;

	PipeannNewBuildId(&new_id);
	PipeannMetaBegin(s->view->index, &update);
	meta = update.meta;
	ExchangeExtents(meta);
	meta->layout = s->layout;
	meta->widths = s->widths;
	meta->packings++;
	meta->free_xid = U64FromFullTransactionId(ReadNextFullTransactionId());
	meta->graph_pages = pages;
	meta->root = root;
	meta->nodes = meta->packed_nodes = meta->trained_nodes = nodes;
	meta->flags |= PIPEANN_META_HAS_CODES;
	meta->generation = s->generation;
	meta->build_id = new_id.build_id;
	meta->code_pages = s->code_pages;
	meta->code_error = s->error;
	meta->strayed = 0;
	meta->entry_first = s->made.entry_first;
	meta->entry_count = s->made.entry_count;
	meta->entry_degree = s->made.entry_degree;
	meta->entry_dead = 0;
	PipeannMetaEnd(&update);
}

/* Extents for nodes that came since, and for rows that do not fit their slots. */
static void
ReserveRest(Repacking *s, uint64 pages)
{
	PipeannMetaUpdate update;

	PipeannMetaBegin(s->view->index, &update);
	PipeannReserveGraphPages(s->view->index, update.meta, PIPEANN_NEXT_GRAPH,
							 &s->layout, pages);
	PipeannCodingReserve(s->view->index, update.meta, &s->layout,
						 s->generation,
						 s->node_pages * s->layout.slots_per_page);
	PipeannMetaEnd(&update);
	PipeannRefreshView(s->view);
}

static bool
Finish(Repacking *s)
{
	PipeannIndexView *view = s->view;
	PipeannLoadedGraph g;
	PipeannNodes nodes;
	uint32	   *fresh;
	uint32		nfresh;
	uint64		pages;

	PipeannRefreshView(view);
	PipeannLoadGraph(view, CountPages(view), true, &g);
	if (g.out_of_line || g.c.storage != s->layout.storage || g.c.n == 0)
		return false;
	fresh = PipeannAlloc(mul_size(g.c.n, sizeof(uint32)));
	AssignIds(s, &g, &nodes, fresh, &nfresh);
	pages = s->node_pages + PipeannExtPages(&s->layout, &g.c);
	ReserveRest(s, pages);
	PipeannFreeReserve(view->index, view->meta.extents);
	if (view->meta.extents > PIPEANN_MAP_INLINE)
		return false;
	WriteFreshCodes(s, &g.c, &nodes, fresh, nfresh);
	WriteJoined(s, &g.c, &nodes);
	PipeannWriteGraph(PipeannTeamAlone(), view->index, &s->layout, view->map,
					  PIPEANN_NEXT_GRAPH, &g.c, &nodes, g.graph,
					  s->node_pages);
	LogPages(s, (uint32) pages);
	PIPEANN_PAUSE("repack-written");
	Publish(s, (uint32) pages, g.c.n, nodes.id_of_node[g.graph->medoid]);
	return true;
}

/* ---------- the whole ---------- */

/* The last step, with no insert under way. */
static bool
FinishAlone(Repacking *s)
{
	Relation	index = s->view->index;
	bool		may = PipeannKeepInsertsOut(index);
	bool		done = Finish(s);

	PipeannLetInsertsIn(index, may);
	return done;
}

PipeannRepackResult
PipeannRepack(PipeannIndexView *view)
{
	Relation	index = view->index;
	Repacking	s = {.view = view,.generation = view->meta.generation + 1};
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
