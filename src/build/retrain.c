/*
 * retrain.c
 *		Making codes, codebook and entry graph anew (a generation), while searches
 *		and inserts go on: src/README, "build/: retraining".
 */
#include "postgres.h"

#include "base/metric.h"
#include "base/pause.h"
#include "build/coding.h"
#include "distance/distance.h"
#include "io/io.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* Codes are made anew if they err so many times as much as they did. */
#define DRIFT 1.5

/*
 * VACUUM makes codes anew of an index that has so many times the nodes, and packs one that
 * has so many times those of its packing: inserts alone let it grow for longer.
 */
#define VACUUM_GROWTH 2
#define VACUUM_PACKED_GROWTH 1.25

/* After a packing in vain so much more has to be replaced (PIPEANN_REPLACED). */
#define REPLACED_MORE 0.05

/*
 * An insert packs no more nodes than this anew: with more it makes codes only, and the next
 * worker or VACUUM packs.
 */
#define MOST_PACKED_BY_INSERT 524288

/* VACUUM finds how much codes err by so many samples. */
#define DRIFT_SAMPLES 1000

/* The largest part of the entry graph that may be dead. */
#define DEAD_ENTRIES 0.1

/*
 * Bytes of an entry node's place in the graph, beside two copies of its
 * vector.
 */
#define ENTRY_MEMORY 256

typedef struct Retraining
{
	PipeannIndexView view;
	PipeannCoding coding;		/* the generation being made */
	uint32		pages;			/* graph pages to pass over */
	float	   *x;				/* one vector */

	/* nodes to train on */
	float	   *samples;		/* [most_samples][dim] */
	PipeannRow **rows;			/* [most_samples] one of each, for histograms */
	uint32		nsamples;
	uint32		most_samples;
	uint64		seen;			/* nodes passed so far */
	uint64		taken_of;		/* nodes over which the samples are spread */

	/* nodes of the entry graph, in the order in which they are taken */
	PipeannNodes entries;
	char	   *data;
	float	   *aux;
	uint32		most_entries;

	/* codes: those of nodes that there were a page at a time */
	uint32		code_page;
	uint8	   *payload;
	uint8	   *code;			/* room for one */
	PipeannCatchUp up;
	uint16	   *covered;		/* [ncovered] rows of a node's slot that its code
								 * covers, NOT_CODED if it has none */
	uint32		ncovered;
	char	   *page;			/* payloads of one with a slot that has changed */
} Retraining;

#define NOT_CODED UINT16_MAX

/*
 * So much of the entry graph is dead that searches begin badly. VACUUM makes another,
 * unless it left no nodes to make one of.
 */
static bool
HasDeadEntries(const PipeannMeta *meta)
{
	return meta->entry_dead > DEAD_ENTRIES * meta->entry_count;
}

/*
 * Whether an insert has to retrain: codes are missing, or the index outgrew
 * them, or what was inserted since is of another kind, or came after VACUUM had
 * emptied the index.
 */
bool
PipeannIsOutgrown(const PipeannMeta *meta)
{
	if (!(meta->flags & PIPEANN_META_HAS_CODES))
		return meta->nodes >= PIPEANN_MIN_CODED_NODES;
	if (meta->trained_nodes == 0)
		return false;
	if (HasDeadEntries(meta) &&
		meta->nodes >= meta->entry_dead + PIPEANN_MIN_CODED_NODES)
		return true;
	if (meta->nodes / PipeannGrowthFactor(meta) >= meta->trained_nodes)
		return true;
	/* growth bounds the cost where kind after kind comes */
	return meta->strayed > (DRIFT - 1) * (double) meta->nodes &&
		meta->nodes >= 1.125 * (double) meta->trained_nodes;
}

/* ---------- first pass: samples ---------- */

static void
StartSamples(Retraining *r)
{
	const PipeannMeta *meta = &r->view.meta;
	const PipeannLayout *l = &meta->layout;
	PipeannVectors *v = &r->entries.vectors;
	Size		stride = PipeannVectorBytes(l->storage, l->dim);
	/* of bits and sparse vectors fixed point takes most of it */
	Size		fixed = PipeannTypes[l->type].one_storage ? l->dim * sizeof(int16) : 0;
	Size		fit = (Size) maintenance_work_mem * 1024 /
		(2 * stride + fixed + ENTRY_MEMORY);

	r->taken_of = Max(meta->nodes, 1);
	r->most_samples = PipeannCodingSamples(l, r->taken_of);
	r->samples = PipeannArray(float, mul_size(r->most_samples, l->dim));
	r->rows = palloc0(mul_size(Max(r->most_samples, 1), sizeof(PipeannRow *)));
	r->most_entries = Min((Size) PipeannEntryCount(Min(meta->nodes,
													   PipeannViewIds(&r->view))),
						  Max(fit, 1));
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
		PipeannSlotCodingVector(&r->view, id, slot,
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
	PipeannCodePagesWrite(&r->coding, r->view.map, r->code_page++, r->payload, 1);
	memset(r->payload, 0, PIPEANN_PAYLOAD);
}

static void
EncodeNode(uint32 id, const PipeannSlot *slot, void *arg)
{
	Retraining *r = arg;
	const PipeannLayout *l = &r->view.meta.layout;
	uint8	   *code = r->code;

	if (PipeannCatchUpHasFailed(&r->up))
		return;
	/* pages without codes are written too, so that all of them exist */
	while (r->code_page < id / PipeannCodesPerPage(l))
		FlushCodes(r);
	PipeannSlotCodingVector(&r->view, id, slot, r->x);
	(void) PipeannPqEncode(&r->coding.pq, r->x, code);
	if (r->coding.attributes != NULL)
		PipeannAttributesOfNode(r->coding.attributes, &r->view, id, slot,
								code + l->pq_bytes);
	PipeannCodePut(l, (char *) r->payload, id % PipeannCodesPerPage(l), code);
	r->covered[id] = PipeannSlotRows(l, slot).n;
}

static void
EncodeNodes(Retraining *r)
{
	const PipeannLayout *l = &r->view.meta.layout;
	Size		size;

	r->ncovered = r->pages * l->slots_per_page;
	size = mul_size(r->ncovered, sizeof(uint16));
	r->payload = palloc0(PIPEANN_PAYLOAD);
	r->code = palloc0(PipeannCodeBytes(l));
	r->page = palloc((Size) l->node_pages * PIPEANN_PAYLOAD);
	r->covered = PipeannAlloc(size);
	memset(r->covered, 0xFF, size);
	PipeannVisitNodes(&r->view, r->pages, true, EncodeNode, r);
	FlushCodes(r);
	r->coding.code_pages = r->code_page;
}

/* ---------- what inserts have changed meanwhile ---------- */

/* A slot as it is now, until the next call; NULL if there is none. */
static const PipeannSlot *
ReadSlot(Retraining *r, uint32 id)
{
	const PipeannLayout *l = &r->view.meta.layout;

	if (id >= PipeannViewIds(&r->view))
		PipeannRefreshView(&r->view);
	if (id >= PipeannViewIds(&r->view) ||
		!PipeannGraphPageCopy(&r->view, PipeannIdPage(l, id), r->page))
		return NULL;
	return PipeannSlotAt(l, r->page, PipeannIdSlot(l, id));
}

static bool
IsCoded(const Retraining *r, uint32 id)
{
	return id < r->ncovered && r->covered[id] != NOT_CODED;
}

static void
MixCode(uint32 id, uint8 *code, void *arg)
{
	const Retraining *r = arg;

	PipeannAttributesMix(r->coding.attributes, code);
}

/*
 * A node that is new gets a code. One that has got more rows, in its slot or an overflow
 * slot, comes to cover everything: to look at each row of a long chain for each that came
 * would not end.
 */
static void
CatchUpWith(uint32 id, void *arg)
{
	Retraining *r = arg;
	const PipeannLayout *l = &r->view.meta.layout;
	bool		joined = false;
	const PipeannSlot *slot;
	uint32		rows;

	if (IsCoded(r, id) && r->coding.attributes == NULL)
		return;
	slot = ReadSlot(r, id);
	if (slot != NULL && (slot->flags & PIPEANN_SLOT_EXT))
	{
		/* parts of a vector are not rows */
		joined = slot->length == 0;
		id = slot->owner;
		slot = joined ? ReadSlot(r, id) : NULL;
	}
	if (slot == NULL || !PipeannSlotIsNode(slot))
		return;
	rows = PipeannSlotRows(l, slot).n;
	if (!IsCoded(r, id))
		PipeannCodingAdd(&r->coding, &r->view, id, slot, id);
	else if ((joined || r->covered[id] != rows) && r->coding.attributes != NULL)
		(void) PipeannChangeAttributes(&r->view, l, r->coding.generation, id,
									   MixCode, r);
	if (id < r->ncovered)
		r->covered[id] = rows;
}

/* ---------- drift ---------- */

/*
 * Whether the codes of the present nodes err much more than those of the nodes
 * that the codebook was trained on, by a sample of the pages. If those were too
 * few to keep some out of the training, the error of their codes is not known
 * (code_error is 0), and only growth leads to others.
 */
static bool
HasDrifted(Retraining *r)
{
	PipeannIndexView *view = &r->view;
	const PipeannLayout *l = &view->meta.layout;
	uint32		pages = PipeannViewPages(view);
	uint32		want = Min(pages, DRIFT_SAMPLES / l->slots_per_page + 1);
	char	   *nodes = palloc((Size) l->node_pages * PIPEANN_PAYLOAD);
	uint32		n = 0;
	float		error;

	if (view->meta.code_error <= 0)
	{
		pfree(nodes);
		return false;
	}
	r->samples = PipeannArray(float, mul_size(DRIFT_SAMPLES, l->dim));
	for (uint32 i = 0; i < want; i++)
	{
		uint32		page = (uint32) ((uint64) i * pages / want);

		CHECK_FOR_INTERRUPTS();
		if (!PipeannGraphPageCopy(view, page, nodes))
			continue;
		for (uint32 j = 0; j < l->slots_per_page && n < DRIFT_SAMPLES; j++)
		{
			const PipeannSlot *slot = PipeannSlotAt(l, nodes, j);

			if (PipeannSlotIsLive(slot))
				PipeannSlotCodingVector(view, page * l->slots_per_page + j, slot,
										r->samples + (Size) n++ * l->dim);
		}
	}
	error = PipeannCodingError(&view->codes.pq, r->samples, n);
	pfree(r->samples);
	pfree(nodes);
	return error > DRIFT * view->meta.code_error;
}

static bool
IsWantedByVacuum(Retraining *r)
{
	const PipeannMeta *meta = &r->view.meta;

	if (PipeannIsOutgrown(meta))
		return true;
	return (meta->flags & PIPEANN_META_HAS_CODES) &&
		(meta->nodes / VACUUM_GROWTH >= meta->trained_nodes ||
		 HasDeadEntries(meta) ||
		 (r->view.cache != NULL && HasDrifted(r)));
}

/* ---------- the whole ---------- */

/*
 * Write the codebook, and have extents for the codes of the ids that there are. Nodes on
 * other pages are noted.
 */
static void
Prepare(Retraining *r)
{
	PipeannIndexView *view = &r->view;
	PipeannMetaUpdate update;

	PipeannRefreshView(view);
	r->pages = PipeannViewPages(view);
	PipeannCodingReserveSoon(&r->coding, &view->meta, PipeannViewIds(view));
	PipeannMetaBegin(view->index, &update);
	PipeannCodingReserve(&r->coding, update.meta, PipeannViewIds(view));
	PipeannMetaEnd(&update);
	PipeannRefreshView(view);
	PipeannCodebookWrite(&r->coding, view->map);
}

/* Name the new generation in the metapage. */
static bool
Publish(void *arg)
{
	Retraining *r = arg;
	PipeannMetaUpdate update;
	PipeannMeta *meta;

	PipeannMetaBegin(r->view.index, &update);
	meta = update.meta;
	/* dead nodes of the former entry graph can be freed now */
	if (meta->entry_dead > 0)
		meta->flags |= PIPEANN_META_REPAIRING;
	meta->changes_handle = DSM_HANDLE_INVALID;
	PipeannCodingPublish(&r->coding, meta, meta->nodes);
	PipeannMetaEnd(&update);
	return true;
}

/* The generation, while inserts note what they change. */
static bool
MakeGeneration(Retraining *r)
{
	PipeannIndexView *view = &r->view;
	const PipeannMeta *meta = &view->meta;

	PipeannCodingBegin(&r->coding, view->index, meta, &meta->layout,
					   meta->generation + 1);
	r->pages = PipeannViewPages(view);
	r->x = PipeannArray(float, meta->layout.dim);
	StartSamples(r);
	PipeannVisitNodes(view, r->pages, false, SampleNode, r);
	if (r->nsamples == 0 || r->entries.vectors.n == 0)
		return false;
	PipeannCodingTrain(PipeannTeamAlone(), &r->coding, r->samples, r->nsamples,
					   SampledRow, r);
	PIPEANN_PAUSE("retrain-trained");
	Prepare(r);
	PIPEANN_PAUSE("retrain-announced");
	EncodeNodes(r);
	r->entries.near = r->entries.vectors;
	PipeannEntryWrite(PipeannTeamAlone(), &r->coding, &view->meta, view->map,
					  &r->entries, NULL, r->entries.vectors.n);
	PipeannCatchUpBeside(&r->up);
	PIPEANN_PAUSE("retrain-written");
	return PipeannCatchUpFinish(&r->up);
}

static void
MakeCodes(Retraining *r)
{
	r->up = (PipeannCatchUp) {
		.view = &r->view,.slot = CatchUpWith,.publish = Publish,.arg = r
	};
	if (PipeannCatchUpBegin(&r->up))
		PipeannCatchUpEnd(&r->up, MakeGeneration(r));
}

/*
 * An index that has grown much is packed anew, which makes codes as well. So is what
 * VACUUM left of one.
 */
static void
Retrain(Retraining *r, PipeannRetrainer by)
{
	const PipeannMeta *meta = &r->view.meta;
	bool		vacuum = by == PIPEANN_BY_VACUUM;
	bool		outgrown = vacuum ? IsWantedByVacuum(r) : PipeannIsOutgrown(meta);

	if ((outgrown || vacuum) &&
		(by != PIPEANN_BY_INSERT || meta->nodes <= MOST_PACKED_BY_INSERT) &&
		PipeannRepack(&r->view, vacuum ? VACUUM_PACKED_GROWTH : PipeannGrowthFactor(meta)))
		return;
	if (outgrown)
		MakeCodes(r);
}

/*
 * Pack anew what has been replaced. It is noted before: where that fails, on a full disk
 * or as others wait for the worker, each VACUUM would have it tried again in vain.
 */
static void
PackReplaced(Retraining *r)
{
	PipeannMetaUpdate update;

	if (!PipeannIsReplaced(&r->view.meta))
		return;
	PipeannMetaBegin(r->view.index, &update);
	update.meta->came = PipeannCameWith(update.meta, PIPEANN_REPLACED - REPLACED_MORE);
	PipeannMetaEnd(&update);
	(void) PipeannRepack(&r->view, 0);
}

/*
 * Make the next generation, in a memory context of its own, if the index is still
 * outgrown or, for VACUUM, if its vectors have drifted or little is left, or for the
 * worker that VACUUM asks for, if many of its nodes were replaced. Returns at
 * once if another backend is doing so, or if VACUUM or pipeann_check is at work.
 */
void
PipeannRetrain(Relation index, PipeannRetrainer by)
{
	MemoryContext context;
	MemoryContext old;
	Retraining	r;

	if (!ConditionalLockPage(index, PIPEANN_MAINTENANCE_LOCK, ExclusiveLock))
		return;
	context = AllocSetContextCreate(CurrentMemoryContext, "pipeann retrain",
									ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	memset(&r, 0, sizeof(r));
	PipeannOpenView(&r.view, index);
	if (by == PIPEANN_BY_PACKER)
		PackReplaced(&r);
	else
		Retrain(&r, by);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	UnlockPage(index, PIPEANN_MAINTENANCE_LOCK, ExclusiveLock);
}
