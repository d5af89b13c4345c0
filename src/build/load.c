/*
 * load.c
 *		An index's own nodes as a source of rows.
 *
 * Pages are read one after the other while inserts go on. Nodes that have the same
 * vector, as inserts beside each other make them, become one.
 */
#include "postgres.h"

#include "base/metric.h"
#include "build/coding.h"
#include "io/io.h"
#include "distance/sparse.h"
#include "miscadmin.h"
#include "utils/memutils.h"

typedef struct SourceNode
{
	float		aux;			/* as in its slot, as the rounding */
	PipeannRounding rounding;
	uint32		nrows;
	char	   *form;			/* of a long sparse vector, else NULL */
} SourceNode;

/* What is read of nodes, in the order of their ids. */
typedef struct PageSource
{
	PipeannRowSource source;
	PipeannIndexView *view;
	PipeannLoadedNodes *g;
	bool		wants_rows;
	float	   *x;				/* one vector */

	uint32		size;			/* nodes that there is room for */
	Size		stride;
	char	   *data;			/* [size] vectors in the index's storage */
	SourceNode *nodes;			/* [size] */

	/* rows of all nodes, one after the other; those out of line as a whole; or NULL */
	char	   *rows;
	Size		bytes;
	Size		room;
	void	   *read;			/* rows of an overflow slot */
} PageSource;

/*
 * The most bytes that PipeannLoadNodes() takes, for planning; *rows of it are for rows,
 * in memory of its own. *kept are those that it leaves.
 */
Size
PipeannLoadNodesMemory(const PipeannIndexView *view, Size *rows, Size *kept)
{
	const PipeannLayout *l = &view->meta.layout;
	uint64		nodes = view->meta.nodes;
	Size		per_vector = PipeannVectorBytes(l->storage, l->dim) +
		sizeof(double) + sizeof(PipeannRounding) + sizeof(ItemPointerData) +
		3 * sizeof(uint32);
	Size		per_row = l->attr_bytes == 0 ? 0 :
		PipeannInlineBytes(l) + sizeof(uint64);
	PipeannVectors vectors = PipeannVectorsLike(l, (uint32) nodes);
	Size		reduced;
	Size		reduce = PipeannReduceMemory(&vectors, &reduced);
	Size		each = per_vector + per_row + reduced;

	*rows = mul_size(nodes, per_row);
	*kept = add_size(mul_size(nodes, each),
					 mul_size(PipeannViewIds(view), 4 * sizeof(uint32)));
	/* vectors are there twice, as they are read and as they will be written */
	return add_size(add_size(*kept, mul_size(nodes, each)), reduce);
}

typedef struct Visit
{
	const PipeannLayout *layout;
	bool		dead;
	PipeannTakeNode take;
	void	   *arg;
} Visit;

static void
VisitPage(uint32 page, const char *nodes, void *arg)
{
	const Visit *v = arg;

	for (uint32 i = 0; i < v->layout->slots_per_page; i++)
	{
		const PipeannSlot *slot = PipeannSlotAt(v->layout, nodes, i);

		if (PipeannSlotIsLive(slot) || (v->dead && PipeannSlotIsNode(slot)))
			v->take(page * v->layout->slots_per_page + i, slot, v->arg);
	}
}

/* Pass over the nodes of the first graph pages, dead ones too if that is set. */
void
PipeannVisitNodes(PipeannIndexView *view, uint32 pages, bool dead,
				  PipeannTakeNode take, void *arg)
{
	PipeannCounters counters = {0};
	const PipeannLayout *l = &view->meta.layout;
	PipeannPageSource *source = PipeannSourceOpen(view->index, l, view->map,
												  view->meta.graph_pages,
												  &counters);
	Visit		v = {l, dead, take, arg};

	PipeannVisitPages(source, pages, VisitPage, &v);
	PipeannSourceClose(source);
}

/*
 * A node's vector for the quantiser: the exact one of an out-of-line node,
 * normalised for cosine.
 */
void
PipeannSlotCodingVector(const PipeannIndexView *view, uint32 id,
						const PipeannSlot *slot, float *x)
{
	const PipeannLayout *l = &view->meta.layout;

	if (!PipeannIsPoorlyCoded(l, slot) ||
		!PipeannChainVector(view, id, slot, x))
		PipeannVectorToFloat(PipeannSlotVector(l, slot), l->storage, l->dim,
							 x);
	PipeannCodingScale(l->metric, slot->aux, l->dim, x);
}

/* ---------- reading pages ---------- */

/* Bytes of a whole row. */
static Size
RowBytes(const PageSource *s, const PipeannRow *row)
{
	return s->source.has_values ? row->info & PIPEANN_ROW_SIZE :
		sizeof(ItemPointerData);
}

static void
PutRow(PageSource *s, const PipeannRow *row)
{
	Size		bytes = RowBytes(s, row);

	if (s->bytes + bytes > s->room)
	{
		s->room = mul_size(s->room, 2);
		s->rows = PipeannRealloc(s->rows, s->room);
	}
	memcpy(s->rows + s->bytes, row, bytes);
	s->bytes += bytes;
	s->nodes[s->source.n].nrows++;
	if (s->source.has_values)
		PipeannRowSizesAdd(&s->g->sizes, (uint32) bytes);
}

static void
PutRows(PageSource *s, PipeannRowList list)
{
	const PipeannLayout *l = &s->view->meta.layout;
	const PipeannRow *row = list.rows;

	for (uint32 i = 0; i < list.n; i++, row = PipeannRowNext(l, row))
		if (PipeannRowIsOutOfLine(l, row))
		{
			PipeannRow *whole = PipeannReadRow(s->view, row, false);

			PutRow(s, whole);
			pfree(whole);
		}
		else
			PutRow(s, row);
}

/* All rows of a node. */
static void
TakeRows(PageSource *s, uint32 id, const PipeannSlot *slot)
{
	PipeannChain chain;

	PutRows(s, PipeannSlotRows(&s->view->meta.layout, slot));
	PipeannChainBegin(&chain, id, slot->ext_tids);
	while (chain.next != PIPEANN_INVALID_ID)
		PutRows(s, PipeannChainRead(s->view, &chain, s->read));
}

/* One row, which is none, and the sizes of those in the slot. */
static void
TakeSizes(PageSource *s, const PipeannSlot *slot)
{
	const PipeannLayout *l = &s->view->meta.layout;
	PipeannRowList list = PipeannSlotRows(l, slot);
	const PipeannRow *row = list.rows;

	s->nodes[s->source.n].nrows = 1;
	if (l->row_bytes > 0)
		for (uint32 i = 0; i < list.n; i++, row = PipeannRowNext(l, row))
			PipeannRowSizesAdd(&s->g->sizes,
							   Min(Max(PipeannRowLength(l, row), 1),
								   PIPEANN_ROW_SIZE));
}

static double
NormOf(const PageSource *s, const SourceNode *node, const float *x)
{
	return s->source.metric == PIPEANN_COSINE ? 1.0 / node->aux :
		PipeannNorm(x, s->source.dim);
}

/*
 * Which storage holds a node's vector, x. Whole numbers that are the rounding of
 * another vector do not fit bytes.
 */
static void
NoteFits(PageSource *s, const SourceNode *node, const float *x, double norm)
{
	int			dim = s->source.dim;
	bool	   *fits = s->source.fits;
	bool		as_uint8 = PipeannVectorFits(x, PIPEANN_UINT8, dim);
	bool		as_int8 = PipeannVectorFits(x, PIPEANN_INT8, dim);

	if ((as_uint8 || as_int8) &&
		(((s->view->meta.flags & PIPEANN_META_SIGNED_ZEROS) &&
		  PipeannHasNegativeZero(x, dim)) ||
		 (s->source.rounded != 0 &&
		  node->rounding.hash != PipeannVectorHash(x, dim))))
		as_uint8 = as_int8 = false;
	fits[PIPEANN_UINT8] &= as_uint8;
	fits[PIPEANN_INT8] &= as_int8;
	if (!as_uint8 && !as_int8 && s->source.rounded == 0 && fits[PIPEANN_FLOAT2])
		fits[PIPEANN_FLOAT2] = PipeannIsStorable(x, norm, PIPEANN_FLOAT2, dim);
}

static void
TakeVector(PageSource *s, const PipeannSlot *slot)
{
	const PipeannLayout *l = &s->view->meta.layout;
	SourceNode *node = &s->nodes[s->source.n];
	const void *vector = PipeannSlotVector(l, slot);
	double		norm;

	memcpy(s->data + s->source.n * s->stride, vector, s->stride);
	PipeannVectorToFloat(vector, l->storage, l->dim, s->x);
	node->aux = slot->aux;
	node->rounding = (PipeannRounding) {slot->error, slot->hash};
	norm = NormOf(s, node, s->x);
	s->source.max_norm = Max(s->source.max_norm, norm);
	if (s->source.wanted == PIPEANN_STORAGE_AUTO)
		NoteFits(s, node, s->x, norm);
}

/* A long sparse vector. False if VACUUM has removed the node meanwhile. */
static bool
TakeLong(PageSource *s, uint32 id, const PipeannSlot *slot)
{
	Size		bytes;
	char	   *form;

	s->nodes[s->source.n].form = NULL;
	if (!(slot->flags & PIPEANN_SLOT_OUT_OF_LINE))
		return true;
	if (!PipeannChainVector(s->view, id, slot, s->x))
		return false;
	bytes = PipeannSparseWords(PipeannSparseBehind(s->x)) * sizeof(int32);
	form = palloc(bytes);
	memcpy(form, PipeannSparseBehind(s->x), bytes);
	s->nodes[s->source.n].form = form;
	s->source.long_bytes += bytes;
	return true;
}

static void
TakeNode(uint32 id, const PipeannSlot *slot, void *arg)
{
	PageSource *s = arg;
	uint32		node = s->source.n;

	if (PipeannIsPoorlyCoded(&s->view->meta.layout, slot))
	{
		s->g->out_of_line = true;
		return;
	}
	/* more nodes may have come than the metapage had when arrays were made */
	if (node == s->size)
	{
		s->g->others = lappend_oid(s->g->others, id);
		return;
	}
	s->nodes[node].nrows = 0;
	if (!TakeLong(s, id, slot))
		return;
	if (s->wants_rows)
		TakeRows(s, id, slot);
	else
		TakeSizes(s, slot);
	if (s->nodes[node].nrows == 0)
		return;
	s->source.more += s->nodes[node].nrows - 1;
	TakeVector(s, slot);
	s->g->node_of_id[id] = s->source.n++;
}

/* ---------- the source ---------- */

static void
ReadNodes(PipeannRowSource *source, PipeannTakeRow take, void *arg)
{
	PageSource *s = (PageSource *) source;
	const PipeannLayout *l = &s->view->meta.layout;
	PipeannSourceRow row = {0};
	PipeannRow	none;

	ItemPointerSetInvalid(&none.tid);
	for (uint32 i = 0; i < source->n; i++)
	{
		const SourceNode *node = &s->nodes[i];

		CHECK_FOR_INTERRUPTS();
		if (node->form != NULL)
			PipeannVectorUnpack(node->form, source->whole, l->dim, s->x);
		else
			PipeannVectorUnpack(s->data + i * s->stride, l->storage, l->dim, s->x);
		row.number = i;
		row.norm = NormOf(s, node, s->x);
		row.rounding = source->rounded != 0 ? &node->rounding : NULL;
		row.form = s->data + i * s->stride;
		for (uint32 k = 0; k < node->nrows; k++)
		{
			row.row = s->rows == NULL ? &none :
				(const PipeannRow *) (s->rows + row.at);
			row.tid = row.row->tid;
			take(&row, k == 0 ? s->x : NULL, arg);
			row.at += s->rows == NULL ? 0 : RowBytes(s, row.row);
		}
	}
}

static void
OpenSource(PipeannTeam *team, PageSource *s, PipeannIndexView *view, bool rows,
		   PipeannLoadedNodes *g)
{
	const PipeannMeta *meta = &view->meta;
	const PipeannLayout *l = &meta->layout;
	PipeannRowSource *source = &s->source;

	memset(s, 0, sizeof(*s));
	s->view = view;
	s->g = g;
	s->wants_rows = rows;
	source->dim = l->dim;
	source->metric = PipeannMetrics[l->metric].graph;
	source->wanted = (meta->flags & PIPEANN_META_AUTO_STORAGE) &&
		!PipeannIsSparse(l->storage) ?
		PIPEANN_STORAGE_AUTO : (PipeannStorage) l->storage;
	source->whole = PipeannTypes[l->type].storage;
	source->rounded = PipeannIsRounded(l) ? l->storage : 0;
	source->rounding = PipeannLayoutRounding(l, NULL);
	memset(source->fits, true, sizeof(source->fits));
	source->has_values = rows && l->row_bytes > 0;
	source->read = ReadNodes;
	s->size = Min(meta->nodes, PipeannViewIds(view)) + 1024;
	s->stride = PipeannVectorBytes(l->storage, l->dim);
	s->data = PipeannTeamAlloc(team, mul_size(s->size, s->stride));
	s->nodes = PipeannTeamArray(team, SourceNode, s->size);
	s->room = mul_size(s->size, sizeof(PipeannRow)) + PIPEANN_ROW_SIZE;
	s->rows = rows ? PipeannAlloc(s->room) : NULL;
	s->x = PipeannArray(float, PipeannFloats(l->storage, l->dim));
	s->read = palloc(PipeannExtBytes(l));
}

/* ---------- the nodes ---------- */

/* Nodes of ids; those that one before is equal to are that one. */
static void
NumberIds(const PipeannRows *rows, PipeannLoadedNodes *g)
{
	for (uint32 id = 0; id < g->ids; id++)
	{
		uint32		i = g->node_of_id[id];

		if (i != PIPEANN_INVALID_ID)
			g->node_of_id[id] = rows->number[rows->again[i] ?
											 rows->number[i] : i];
	}
}

/* Read vectors and rows; all nodes in a storage chosen anew. */
static void
Load(PipeannTeam *team, PipeannIndexView *view, uint32 pages, bool wants_rows,
	 PipeannLoadedNodes *g)
{
	PageSource	s;
	PipeannRows rows;

	OpenSource(team, &s, view, wants_rows, g);
	PipeannVisitNodes(view, pages, false, TakeNode, &s);
	s.source.value_bytes = s.bytes;
	PipeannRowsLoad(team, &s.source, &rows);
	for (uint32 i = 0; i < s.source.n; i++)
		if (s.nodes[i].form != NULL)
			pfree(s.nodes[i].form);
	PipeannTeamFree(team, s.data);
	PipeannTeamFree(team, s.nodes);
	if (s.rows != NULL)
		pfree(s.rows);
	pfree(s.x);
	pfree(s.read);
	PipeannRowsReduce(team, &rows);
	g->clusters = PipeannClustersNew(team, &rows.near, rows.again,
									 PIPEANN_BUILD_SEED, rows.number);
	NumberIds(&rows, g);
	PipeannRowsToNodes(team, &rows, &g->nodes);
	PipeannRowsFree(team, &rows);
}

/*
 * Read all nodes that have rows, with all their rows, or with one invalid TID each
 * if rows is false, and number them as a build does. What is large is the team's, the rest
 * in g->context, which is to be deleted after the team has ended.
 */
void
PipeannLoadNodes(PipeannTeam *team, PipeannIndexView *view, bool rows,
				 PipeannLoadedNodes *g)
{
	const PipeannMeta *meta = &view->meta;
	uint32		pages = PipeannViewPages(view);
	MemoryContext old;

	memset(g, 0, sizeof(*g));
	g->context = AllocSetContextCreate(CurrentMemoryContext, "pipeann nodes",
									   ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(g->context);
	g->ids = pages * meta->layout.slots_per_page;
	g->node_of_id = PipeannTeamArray(team, uint32, g->ids);
	memset(g->node_of_id, 0xFF, mul_size(g->ids, sizeof(uint32)));
	Load(team, view, pages, rows, g);
	MemoryContextSwitchTo(old);
}
