/*
 * retrain.c
 *		When an index is outgrown, or has outgrown its codes; and making codes, codebook
 *		and entry graph again (a generation), in place: src/README, "build/: growth".
 */
#include "postgres.h"

#include "base/metric.h"
#include "base/pause.h"
#include "build/internal.h"
#include "distance/distance.h"
#include "io/io.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* Inserted vectors are of another kind (they stray) if their codes err this many times as much. */
#define DRIFT 1.5

/* Codes are made again in place at this many times the nodes: at 4,096, and at 32,768. */
#define CODES_GROWTH 8

/* The most nodes of an index that is retrained while other sessions' inserts wait. */
#define MOST_IN_PLACE 65536

/*
 * REINDEX is wanted when this share of the nodes was inserted since the build:
 * after growth by half, or when as many have replaced others.
 */
#define CAME_SHARE (1.0 / 3)
#define LEAST_CAME 1024

/* It is wanted as well when less than this share of the nodes is left. */
#define LEFT_SHARE 0.25

/* The largest part of the entry graph that may be dead. */
#define DEAD_ENTRIES 0.1

/* Memory for an entry node while its graph is built, besides two copies of its vector. */
#define ENTRY_MEMORY 256

typedef struct Retraining
{
	PipeannIndexView view;
	PipeannCoding coding;		/* the generation being made */
	uint32		pages;			/* graph pages to visit */
	float	   *x;				/* one vector */

	/* nodes to train on */
	float	   *samples;		/* [most_samples][dim] */
	PipeannRow **rows;			/* [most_samples] one of each, for histograms */
	uint32		nsamples;
	uint32		most_samples;
	uint64		seen;			/* nodes visited so far */
	uint64		taken_of;		/* number of nodes over which samples are spread */

	/* nodes of the entry graph, in the order in which they are taken */
	PipeannNodes entries;
	char	   *data;
	float	   *aux;
	uint32		most_entries;

	/* codes, a page at a time */
	uint32		code_page;
	uint8	   *payload;
	uint8	   *code;			/* room for one code */
} Retraining;

/*
 * Whether so much of the entry graph is dead that searches begin badly, and
 * there are nodes to make another one from.
 */
static bool
HasDeadEntries(const PipeannMeta *meta)
{
	return meta->entry_dead > DEAD_ENTRIES * meta->entry_count &&
		meta->nodes >= meta->entry_dead + PIPEANN_MIN_CODED_NODES;
}

/* Whether inserted vectors are of another kind than those that codes were made for. */
static bool
HasStrayed(const PipeannMeta *meta)
{
	/* some growth is required, to bound the cost when ever new kinds come */
	return meta->strayed > (DRIFT - 1) * (double) meta->nodes &&
		meta->nodes >= 1.125 * (double) meta->trained_nodes;
}

/* Whether codes are missing, or new ones would be clearly better. */
static bool
WantsCodes(const PipeannMeta *meta)
{
	if (!(meta->flags & PIPEANN_META_HAS_CODES))
		return meta->nodes >= PIPEANN_MIN_CODED_NODES;
	return meta->nodes / CODES_GROWTH >= meta->trained_nodes ||
		HasDeadEntries(meta) || HasStrayed(meta);
}

/*
 * Whether a build would give a clearly better index: one whose nodes have edges to nearer
 * ones, with which they share pages, or whose file is much smaller.
 */
bool
PipeannIsOutgrown(const PipeannMeta *meta)
{
	/* each search reads the whole index, with vectors in full if it was made on an empty table */
	if (!(meta->flags & PIPEANN_META_HAS_CODES))
		return meta->trained_nodes == 0 && meta->nodes >= LEAST_CAME &&
			(meta->flags & PIPEANN_META_AUTO_STORAGE) &&
			!PipeannTypes[meta->layout.type].one_storage;
	return meta->nodes < LEFT_SHARE * meta->trained_nodes ||
		meta->came >= Max(CAME_SHARE * meta->nodes, LEAST_CAME) ||
		HasDeadEntries(meta) || HasStrayed(meta);
}

/* ---------- nodes on their pages ---------- */

typedef void (*TakeNode) (uint32 id, const PipeannSlot *slot, void *arg);

typedef struct Visit
{
	const PipeannLayout *layout;
	bool		dead;			/* nodes without rows, too */
	TakeNode take;
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

/* Visit the nodes, also dead ones if `dead` is set. */
static void
VisitNodes(PipeannIndexView *view, uint32 pages, bool dead, TakeNode take,
		   void *arg)
{
	PipeannCounters counters = {0};
	const PipeannLayout *l = &view->meta.layout;
	PipeannPageSource *source = PipeannSourceOpen(view->index, l,
												  &view->meta.places,
												  view->meta.graph_pages,
												  NULL, &counters);
	Visit		v = {l, dead, take, arg};

	PipeannVisitPages(source, pages, VisitPage, &v);
	PipeannSourceClose(source);
}

/*
 * A node's vector for the quantiser: the exact one of an out-of-line node,
 * normalised for cosine.
 */
static void
CodingVector(const PipeannIndexView *view, uint32 id, const PipeannSlot *slot,
			 float *x)
{
	const PipeannLayout *l = &view->meta.layout;

	if (!PipeannIsPoorlyCoded(l, slot) ||
		!PipeannChainVector(view, id, slot, x))
		PipeannVectorToFloat(PipeannSlotVector(l, slot), l->storage, l->dim,
							 x);
	PipeannCodingScale(l->metric, slot->aux, l->dim, x);
}

/* ---------- first pass: samples ---------- */

/*
 * The most nodes of an entry graph made in place: fewer than it should have if
 * there is no room for a longer run than those that exist.
 */
static uint32
MostEntries(const PipeannMeta *meta)
{
	uint32		most = PipeannEntryCount((uint32) Min(meta->nodes, PG_UINT32_MAX));

	while (most > 1 && PipeannRunPages(&meta->layout, most) > PipeannRunRoom(&meta->places))
		most -= most / 8 + 1;
	return most;
}

static void
StartSamples(Retraining *r)
{
	const PipeannMeta *meta = &r->view.meta;
	const PipeannLayout *l = &meta->layout;
	PipeannVectors *v = &r->entries.vectors;
	Size		stride = PipeannVectorBytes(l->storage, l->dim);
	/* for bits and sparse vectors the fixed-point copy takes most of it */
	Size		fixed = PipeannTypes[l->type].one_storage ? l->dim * sizeof(int16) : 0;
	Size		fit = (Size) maintenance_work_mem * 1024 /
		(2 * stride + fixed + ENTRY_MEMORY);

	r->taken_of = Max(meta->nodes, 1);
	r->most_samples = PipeannCodingSamples(l, r->taken_of);
	r->samples = PipeannArray(float, mul_size(r->most_samples, l->dim));
	r->rows = palloc0(mul_size(Max(r->most_samples, 1), sizeof(PipeannRow *)));
	r->most_entries = Min((Size) MostEntries(meta), Max(fit, 1));
	v->dim = l->dim;
	v->storage = l->storage;
	v->metric = PipeannMetrics[l->metric].graph;
	v->stride = stride;
	r->data = PipeannAlloc(mul_size(r->most_entries, stride));
	r->aux = PipeannArray(float, r->most_entries);
	v->data = r->data;
	v->aux = PipeannHasAux(v->metric) ? r->aux : NULL;
	v->max_norm = meta->max_norm;
	r->entries.id_of_node = PipeannArray(uint32, r->most_entries);
}

/* NULL if the node has no row in its slot. */
static PipeannRow *
CopyFirstRow(const PipeannLayout *l, const PipeannSlot *slot)
{
	PipeannRowList list = PipeannSlotRows(l, slot);
	PipeannRow *row;
	uint32		size;

	if (list.n == 0 || PipeannRowIsOutOfLine(l, list.rows))
		return NULL;
	size = PipeannRowSize(l, list.rows);
	row = palloc(size);
	memcpy(row, list.rows, size);
	return row;
}

static const PipeannRow *
SampledRow(uint32 i, uint32 j, void *arg)
{
	const Retraining *r = arg;

	return j == 0 ? r->rows[i] : NULL;
}

static void
TakeEntryNode(Retraining *r, uint32 id, const PipeannSlot *slot)
{
	const PipeannMeta *meta = &r->view.meta;
	const PipeannLayout *l = &meta->layout;
	PipeannVectors *v = &r->entries.vectors;

	memcpy(r->data + (Size) v->n * v->stride, PipeannSlotVector(l, slot),
		   v->stride);
	r->aux[v->n] = slot->aux;
	if (l->metric == PIPEANN_IP)
	{
		PipeannVectorToFloat(PipeannSlotVector(l, slot), l->storage, l->dim,
							 r->x);
		r->aux[v->n] = PipeannAux(l->metric, PipeannNorm(r->x, l->dim),
								  meta->max_norm);
	}
	r->entries.id_of_node[v->n] = id;
	v->n++;
}

/*
 * Both samples are spread evenly: the training samples over the nodes, the
 * entry nodes over the ids, so over the pages and over space.
 */
static void
SampleNode(uint32 id, const PipeannSlot *slot, void *arg)
{
	Retraining *r = arg;
	const PipeannLayout *l = &r->view.meta.layout;
	uint32		per_page = l->slots_per_page;
	uint64		passed = (uint64) id - id % per_page + per_page;
	uint32		entries = (uint32) (passed * r->most_entries /
									((uint64) r->pages * per_page));

	if (r->nsamples < r->most_samples &&
		r->seen * r->most_samples >= (uint64) r->nsamples * r->taken_of)
	{
		CodingVector(&r->view, id, slot,
								r->samples + (Size) r->nsamples * l->dim);
		if (l->attr_bytes > 0)
			r->rows[r->nsamples] = CopyFirstRow(l, slot);
		r->nsamples++;
	}
	r->seen++;
	if (r->entries.vectors.n < entries)
		TakeEntryNode(r, id, slot);
}

/* ---------- second pass: codes ---------- */

static void
FlushCodes(Retraining *r)
{
	PipeannCodePagesWrite(&r->coding, r->code_page++, r->payload, 1);
	memset(r->payload, 0, PIPEANN_PAYLOAD);
}

static void
EncodeNode(uint32 id, const PipeannSlot *slot, void *arg)
{
	Retraining *r = arg;
	const PipeannLayout *l = &r->view.meta.layout;
	uint8	   *code = r->code;

	/* pages without codes are written, too, so that all pages exist */
	while (r->code_page < id / PipeannCodesPerPage(l))
		FlushCodes(r);
	CodingVector(&r->view, id, slot, r->x);
	(void) PipeannPqEncode(&r->coding.pq, r->x, code);
	if (r->coding.attributes != NULL)
		PipeannAttributesOfNode(r->coding.attributes, &r->view, id, slot,
								code + l->pq_bytes);
	PipeannCodePut(l, (char *) r->payload, id % PipeannCodesPerPage(l), code);
}

/* ---------- the whole ---------- */

/*
 * Say in the metapage that there are no codes, which generation comes next, and where
 * its run is. The first run has room for the second generation's entry graph, too.
 */
static void
Announce(Retraining *r)
{
	PipeannMetaUpdate update;
	PipeannMeta *meta;
	const PipeannLayout *l;

	PipeannMetaBegin(r->view.index, &update);
	meta = update.meta;
	l = &meta->layout;
	meta->flags &= ~PIPEANN_META_HAS_CODES;
	/* dead nodes of the former entry graph can be freed now */
	if (meta->entry_dead > 0)
		meta->flags |= PIPEANN_META_REPAIRING;
	meta->entry_count = meta->entry_dead = 0;
	meta->build_id++;
	PipeannRunPlace(&meta->places,
					(BlockNumber) PipeannBlocksInUse(&meta->places, l,
													 meta->graph_pages, true),
					PipeannRunPages(l, r->entries.vectors.n),
					PipeannRunPages(l, Max(r->entries.vectors.n,
										   PipeannEntryCount(CODES_GROWTH *
															 PIPEANN_MIN_CODED_NODES))));
	r->coding.places = meta->places;
	PipeannMetaEnd(&update);
}

/* Make the next generation, with inserts kept out. */
static void
MakeGeneration(Retraining *r)
{
	PipeannIndexView *view = &r->view;
	const PipeannMeta *meta = &view->meta;
	const PipeannLayout *l = &meta->layout;
	PipeannMetaUpdate update;

	PipeannCodingBegin(&r->coding, view->index, meta);
	r->coding.generation++;
	r->pages = PipeannViewPages(view);
	r->x = PipeannArray(float, meta->layout.dim);
	StartSamples(r);
	VisitNodes(view, r->pages, false, SampleNode, r);
	if (r->nsamples == 0 || r->entries.vectors.n == 0)
		return;
	PipeannCodingTrain(PipeannTeamAlone(), &r->coding, r->samples, r->nsamples,
					   SampledRow, r);
	PIPEANN_PAUSE("retrain-trained");
	Announce(r);
	PIPEANN_PAUSE("retrain-announced");
	PipeannCodebookWrite(&r->coding);
	r->payload = palloc0(PIPEANN_PAYLOAD);
	r->code = palloc0(PipeannCodeBytes(l));
	VisitNodes(view, r->pages, true, EncodeNode, r);
	/* leave no code of a former generation, not even behind the last node */
	do
		FlushCodes(r);
	while (r->code_page < PipeannCodePages(l, r->pages * l->slots_per_page));
	r->coding.code_pages = r->code_page;
	r->entries.near = r->entries.vectors;
	PipeannEntryWrite(PipeannTeamAlone(), &r->coding, &r->entries, NULL,
					  r->entries.vectors.n);
	PIPEANN_PAUSE("retrain-written");
	PipeannMetaBegin(view->index, &update);
	PipeannCodingPublish(&r->coding, update.meta, update.meta->nodes);
	PipeannMetaEnd(&update);
}

/*
 * Make codes again, in a memory context of its own, unless another backend is
 * doing so, or VACUUM or pipeann_check() is running.
 */
static void
MakeCodes(Relation index)
{
	MemoryContext context;
	MemoryContext old;
	bool		cancellable;
	Retraining	r;

	if (!ConditionalLockPage(index, PIPEANN_MAINTENANCE_LOCK, ExclusiveLock))
		return;
	cancellable = PipeannKeepInsertsOut(index);
	context = AllocSetContextCreate(CurrentMemoryContext, "pipeann retrain",
									ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	memset(&r, 0, sizeof(r));
	PipeannOpenView(&r.view, index);
	if (WantsCodes(&r.view.meta))
		MakeGeneration(&r);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	PipeannLetInsertsIn(index, cancellable);
	UnlockPage(index, PIPEANN_MAINTENANCE_LOCK, ExclusiveLock);
}

/* Whether no other session can insert while this transaction goes on. */
static bool
IsOurOwn(Relation heap, Relation index)
{
	return !IsUnderPostmaster ||
		index->rd_rel->relpersistence == RELPERSISTENCE_TEMP ||
		CheckRelationLockedByMe(heap, ShareLock, true);
}

/* Make codes if they are wanted, unless other sessions would have to wait too long. */
void
PipeannRetrain(Relation heap, Relation index, const PipeannMeta *meta)
{
	if (WantsCodes(meta) &&
		(!(meta->flags & PIPEANN_META_HAS_CODES) ||
		 meta->nodes <= MOST_IN_PLACE || IsOurOwn(heap, index)))
		MakeCodes(index);
}
