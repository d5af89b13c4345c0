/*
 * load.c
 *		Reading an index's own nodes into memory.
 *
 * Pages are read one after the other while inserts go on. An edge to a node
 * that came when its page had been read is left out.
 */
#include "postgres.h"

#include "build/repack.h"
#include "io/io.h"
#include "distance/distance.h"
#include "miscadmin.h"

typedef struct Loading
{
	PipeannIndexView *view;
	PipeannLoadedGraph *g;
	bool		rows;
	float	   *x;
	PipeannRowList list;		/* of one node */
	uint32		size;			/* bytes that there is room for */
	void	   *read;			/* rows of an overflow slot */
} Loading;

Size
PipeannLoadGraphMemory(const PipeannIndexView *view)
{
	const PipeannLayout *l = &view->meta.layout;
	Size		ids = PipeannViewIds(view);
	Size		per_vector = mul_size(l->dim, PipeannElementSize(l->storage)) +
		sizeof(double) + sizeof(PipeannRounding) + sizeof(ItemPointerData) +
		3 * sizeof(uint32);
	Size		per_row = l->row_bytes == 0 ? 0 :
		PipeannInlineBytes(l) + sizeof(uint64);
	Size		per_list = mul_size(l->max_degree + 1, sizeof(uint32));

	/* arrays of vectors double as they grow */
	return add_size(mul_size(2 * view->meta.nodes, per_vector + per_row),
					mul_size(ids, per_list + 4 * sizeof(uint32)));
}

static void
PutRows(Loading *s, PipeannRowList list)
{
	if (s->list.bytes + list.bytes > s->size)
	{
		s->size = Max(s->size * 2, s->list.bytes + list.bytes);
		s->list.rows = PipeannRealloc(s->list.rows, s->size);
	}
	memcpy((char *) s->list.rows + s->list.bytes, list.rows, list.bytes);
	s->list.bytes += list.bytes;
	s->list.n += list.n;
}

/* Put rows, those that stand apart as a whole. */
static void
PutWhole(Loading *s, PipeannRowList list)
{
	const PipeannLayout *l = &s->view->meta.layout;
	const PipeannRow *row = list.rows;

	if (l->row_bytes == 0)
		PutRows(s, list);
	else
		for (uint32 i = 0; i < list.n; i++, row = PipeannRowNext(l, row))
		{
			PipeannRow *whole = PipeannRowIsApart(l, row) ?
				PipeannReadRow(s->view, row) : (PipeannRow *) row;
			PipeannRowList one = {whole, 1, PipeannRowLength(l, row)};

			PutRows(s, one);
			if (whole != row)
				pfree(whole);
		}
}

static void
NoteSizes(Loading *s, PipeannRowList list)
{
	const PipeannLayout *l = &s->view->meta.layout;
	const PipeannRow *row = list.rows;

	if (l->row_bytes > 0)
		for (uint32 i = 0; i < list.n; i++, row = PipeannRowNext(l, row))
			PipeannRowSizesAdd(&s->g->sizes,
							   Min(Max(PipeannRowLength(l, row), 1),
								   PIPEANN_ROW_SIZE));
}

static void
TakeRows(Loading *s, uint32 id, const PipeannSlot *slot)
{
	PipeannChain chain;

	s->list.n = s->list.bytes = 0;
	PutWhole(s, PipeannSlotRows(&s->view->meta.layout, slot));
	PipeannChainBegin(&chain, id, slot->ext_tids);
	while (chain.next != PIPEANN_INVALID_ID)
		PutWhole(s, PipeannChainRead(s->view, &chain, s->read));
}

/* Copy neighbours as ids, since nodes of later pages have no number yet. */
static void
TakeList(Loading *s, uint32 node, const PipeannSlot *slot)
{
	PipeannGraph *graph = s->g->graph;
	int			degree = PipeannSlotDegree(&s->view->meta.layout, slot);

	graph->degree[node] = degree;
	memcpy(PipeannNeighbors(graph, node), slot->neighbors,
		   degree * sizeof(uint32));
}

static void
TakeNode(Loading *s, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &s->view->meta.layout;
	PipeannLoadedGraph *g = s->g;
	PipeannRounding rounding = {slot->error, slot->hash};
	uint32		known = g->c.n;
	const PipeannRow *row;
	uint32		node;

	if (g->c.lost)
		return;
	if (s->rows)
		TakeRows(s, id, slot);
	if (s->list.n == 0)
		return;
	NoteSizes(s, s->rows ? s->list : PipeannSlotRows(l, slot));
	row = s->list.rows;
	PipeannVectorToFloat(PipeannSlotVector(l, slot), l->storage, l->dim, s->x);
	node = PipeannCollectionAdd(&g->c, s->x, l->metric == PIPEANN_COSINE ?
								1.0 / slot->aux : PipeannNorm(s->x, l->dim),
								l->storage == PIPEANN_FLOAT2 ? &rounding : NULL,
								row);
	if (g->c.lost)
		return;
	for (uint32 i = 1; i < s->list.n; i++)
	{
		row = PipeannRowNext(l, row);
		PipeannCollectionAddRow(&g->c, node, row);
	}
	g->node_of_id[id] = node;
	if (node == known)
		TakeList(s, node, slot);
}

static void
TakePage(uint32 page, const char *nodes, void *arg)
{
	Loading    *s = arg;
	const PipeannLayout *l = &s->view->meta.layout;

	for (uint32 i = 0; i < l->slots_per_page; i++)
	{
		const PipeannSlot *slot = PipeannSlotAt(l, nodes, i);

		if (!PipeannSlotIsLive(slot))
			continue;
		if (slot->flags & PIPEANN_SLOT_OUT_OF_LINE)
			s->g->out_of_line = true;
		else
			TakeNode(s, page * l->slots_per_page + i, slot);
	}
}

/*
 * Replace ids in neighbour lists by numbers, and drop neighbours without one.
 */
static void
NumberNeighbors(PipeannLoadedGraph *g)
{
	for (uint32 node = 0; node < g->graph->n; node++)
	{
		uint32	   *list = PipeannNeighbors(g->graph, node);
		int			n = 0;

		for (int i = 0; i < g->graph->degree[node]; i++)
		{
			uint32		to = list[i] < g->ids ? g->node_of_id[list[i]] :
				PIPEANN_INVALID_ID;

			if (to != PIPEANN_INVALID_ID && to != node &&
				!PipeannListHas(list, n, to))
				list[n++] = to;
		}
		g->graph->degree[node] = n;
	}
}

/* Read vectors, rows and neighbours as ids. */
static void
Collect(PipeannIndexView *view, uint32 pages, bool rows, bool half_precision,
		PipeannLoadedGraph *g)
{
	const PipeannMeta *meta = &view->meta;
	const PipeannLayout *l = &meta->layout;
	PipeannCounters counters = {0};
	PipeannPageSource *source = PipeannSourceOpen(view->index, l, view->map,
												  &counters);
	Loading		s = {.view = view,.g = g,.rows = rows};

	memset(g, 0, sizeof(*g));
	g->ids = pages * l->slots_per_page;
	g->node_of_id = PipeannAlloc(mul_size(Max(g->ids, 1), sizeof(uint32)));
	memset(g->node_of_id, 0xFF, mul_size(g->ids, sizeof(uint32)));
	g->graph = PipeannGraphNew(PipeannTeamAlone(), g->ids, l->max_degree);
	PipeannCollectionInit(&g->c, l->dim, l->metric,
						  meta->flags & PIPEANN_META_AUTO_STORAGE ?
						  PIPEANN_STORAGE_AUTO : (PipeannStorage) l->storage,
						  half_precision);
	g->c.signed_zeros = (meta->flags & PIPEANN_META_SIGNED_ZEROS) != 0;
	g->c.has_values = rows && l->row_bytes > 0;
	g->c.few_twins &= l->storage != PIPEANN_FLOAT2;
	s.x = palloc(mul_size(l->dim, sizeof(float)));
	s.size = PipeannInlineBytes(l);
	s.list.n = rows ? 0 : 1;
	s.list.rows = palloc(s.size);
	ItemPointerSetInvalid(&s.list.rows->tid);
	s.read = palloc(PipeannExtBytes(l));
	PipeannVisitPages(source, 0, pages, TakePage, &s);
	PipeannSourceClose(source);
	pfree(s.x);
	pfree(s.list.rows);
	pfree(s.read);
}

void
PipeannLoadGraph(PipeannIndexView *view, uint32 pages, bool rows,
				 PipeannLoadedGraph *g)
{
	const PipeannMeta *meta = &view->meta;

	Collect(view, pages, rows, true, g);
	if (g->c.lost)
	{
		PipeannLoadedGraphFree(g);
		Collect(view, pages, rows, false, g);
	}
	PipeannCollectionFinish(&g->c);
	PipeannCollectionVectors(&g->c, &g->vectors);
	g->graph->n = g->c.n;
	NumberNeighbors(g);
	if (g->c.n == 0)
		return;
	g->graph->medoid = meta->root < g->ids ? g->node_of_id[meta->root] :
		PIPEANN_INVALID_ID;
	if (g->graph->medoid == PIPEANN_INVALID_ID)
		g->graph->medoid = 0;
	PipeannGraphConnect(PipeannTeamAlone(), g->graph, &g->vectors);
}

void
PipeannLoadedGraphFree(PipeannLoadedGraph *g)
{
	PipeannCollectionFree(&g->c);
	if (g->vectors.aux != NULL)
		pfree((void *) g->vectors.aux);
	PipeannGraphFree(PipeannTeamAlone(), g->graph);
	pfree(g->node_of_id);
}
