/*
 * coding.c
 *		Making a generation of codes and its entry graph: from nodes in memory by a build, from
 *		nodes on pages later; and deciding when the codes, or the whole index, are outgrown.
 *		See src/README, "build/: growth".
 */
#include "postgres.h"

#include <float.h>

#include "base/pause.h"
#include "build/internal.h"
#include "distance/distance.h"
#include "io/io.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* ---------- when codes, or all of the index, are to be made again ---------- */

/* Inserted vectors are of another kind (they stray) if their codes err this many times as much. */
#define DRIFT 1.5

/* Codes are made again when there are this many times as many nodes: at 4,096 and 32,768. */
#define CODES_GROWTH 8

/* The most nodes of an index that is retrained while other sessions' inserts wait. */
#define MOST_IN_PLACE 65536

/*
 * REINDEX is wanted when this share of the nodes was inserted since the build:
 * after growth by a half, or when a third of the nodes were replaced.
 */
#define INSERTED_SHARE (1.0 / 3)
#define LEAST_INSERTED 1024

/* It is wanted as well when fewer than this share of trained_nodes are left. */
#define LEFT_SHARE 0.25

/* The largest part of the entry graph that may have lost its nodes. */
#define SHARED_ENTRIES 0.1

/*
 * Whether so many entries share nodes that searches begin badly, and there are
 * nodes to make another entry graph from.
 */
static bool
HasSharedEntries(const PipeannMeta *meta)
{
	return meta->entries_shared > SHARED_ENTRIES * meta->entry_count &&
		meta->nodes >= PIPEANN_MIN_CODED_NODES;
}

/* Whether inserted vectors are of another kind than those that codes were made for. */
static bool
HasStrayed(const PipeannMeta *meta)
{
	/* some growth is required, which bounds the cost if each insert brings a new kind */
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
		HasSharedEntries(meta) || HasStrayed(meta);
}

/*
 * Whether a build would give a clearly better index: with edges to nearer nodes, more near
 * nodes on one page, or a much smaller file.
 */
bool
PipeannIsOutgrown(const PipeannMeta *meta)
{
	/* without codes each search reads all vectors, in full if it was made on an empty table */
	if (!(meta->flags & PIPEANN_META_HAS_CODES))
		return meta->trained_nodes == 0 && meta->nodes >= LEAST_INSERTED &&
			(meta->flags & PIPEANN_META_AUTO_STORAGE) &&
			!PipeannTypes[meta->layout.type].one_storage;
	return meta->nodes < LEFT_SHARE * meta->trained_nodes ||
		meta->inserted >= Max(INSERTED_SHARE * meta->nodes, LEAST_INSERTED) ||
		HasSharedEntries(meta) || HasStrayed(meta);
}

/* ---------- what a generation consists of ---------- */

struct PipeannCoding
{
	Relation	index;
	bool		wal;			/* pages are logged as they are written: not in a build */
	uint32		generation;
	PipeannLayout layout;
	PipeannWidths widths;
	PipeannPq	pq;
	float		error;			/* mean squared error to expect of codes; 0 if
								 * there were too few samples to measure it */
	PipeannAttributes *attributes;	/* NULL if there are no attribute codes */
	char	   *histograms;
	PipeannExtents extents;		/* of what is written */
	uint32		code_pages;		/* written so far */
	uint32		entry_count;
};

static void
BeginCoding(PipeannCoding *k, Relation index, const PipeannMeta *meta)
{
	const PipeannLayout *l = &meta->layout;

	memset(k, 0, sizeof(*k));
	k->index = index;
	k->generation = PipeannGeneration(meta);
	k->layout = *l;
	k->widths = meta->widths;
	k->extents = meta->extents;
	k->pq = PipeannPqNew(l->storage, l->dim, l->pq_bytes);
}

/* Name the generation in the metapage, with all that belongs to it. */
static void
Publish(const PipeannCoding *k, PipeannMeta *meta)
{
	meta->flags |= PIPEANN_META_HAS_CODES;
	meta->code_pages = k->code_pages;
	meta->code_error = k->error;
	meta->strayed = 0;
	meta->trained_nodes = Max(meta->trained_nodes, meta->nodes);
	meta->entry_count = k->entry_count;
	meta->entries_shared = 0;
}

/* ---------- training ---------- */

/*
 * Samples to train on: a hundred for each of 256 centroids, fewer if they do
 * not fit in maintenance_work_mem, but at least sixteen.
 */
#define MAX_SAMPLES (100 * PIPEANN_CENTROIDS)
#define MIN_SAMPLES (16 * PIPEANN_CENTROIDS)

/* One sample in this many is not trained on, but measures the codes' error. */
#define ERROR_SAMPLES 256
#define LEAST_TO_MEASURE (4 * ERROR_SAMPLES)

#define SEED UINT64CONST(0x70697065616e6e)

/*
 * The number of training samples for this many vectors, by maintenance_work_mem;
 * fewer for very wide ones, as all samples are in memory.
 */
static uint32
TrainingSamples(const PipeannLayout *l, uint64 nodes)
{
	Size		fit = (Size) maintenance_work_mem * 1024 /
		(l->dim * sizeof(float));
	Size		least = (Size) MIN_SAMPLES * Min(l->dim, PIPEANN_MAX_DIM) / l->dim;
	Size		want = Max(Min(fit, MAX_SAMPLES), least);

	return Min(nodes, (uint64) want);
}

/*
 * Centroids trained on x[n][dim], which are put in another order. The error is that of
 * samples that were not trained on, since the error of later vectors is compared with it.
 */
static void
TrainCentroids(PipeannTeam *team, PipeannCoding *k, float *x, uint32 n)
{
	int			dim = k->pq.dim;
	uint32		aside = n >= LEAST_TO_MEASURE ? ERROR_SAMPLES : 0;
	float	   *centroids = PipeannTeamArray(team, float,
											 PipeannPqCentroidCount(dim));
	uint8	   *code = palloc(k->pq.nsubvectors);
	double		sum = 0;

	if (PipeannTeamLeads(team))
	{
		Size		size = mul_size(dim, sizeof(float));
		float	   *row = palloc(size);

		/* samples set aside, evenly spaced, go to the end */
		for (uint32 i = 0; i < aside; i++)
		{
			float	   *from = x + (Size) ((uint64) i * n / aside) * dim;
			float	   *to = x + (Size) (n - 1 - i) * dim;

			memcpy(row, from, size);
			memcpy(from, to, size);
			memcpy(to, row, size);
		}
		pfree(row);
	}
	PipeannTeamMeet(team);
	PipeannPqTrain(team, &k->pq, x, n - aside, SEED, centroids);
	k->pq.centroids = centroids;
	for (uint32 i = n - aside; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		sum += PipeannPqEncode(&k->pq, x + (Size) i * dim, code);
	}
	pfree(code);
	k->error = aside > 0 ? Max((float) (sum / aside), FLT_MIN) : 0;
}

/*
 * Histograms of attribute codes, if the index has these codes: the leader
 * makes them from n samples of rows, and all members get them.
 */
static void
TrainHistograms(PipeannTeam *team, PipeannCoding *k, PipeannRowAt row_at,
				void *arg, uint32 n)
{
	k->attributes = PipeannAttributesOpen(k->index, &k->layout,
										  &k->widths, NULL);
	if (k->attributes == NULL)
		return;
	k->histograms = PipeannTeamAlloc(team, PipeannHistogramsBytes(&k->layout));
	if (PipeannTeamLeads(team))
		PipeannAttributesTrain(k->attributes, row_at, arg, n, k->histograms);
	PipeannTeamMeet(team);
	PipeannAttributesUseHistogram(k->attributes, k->histograms);
}

/* ---------- codebook, codes and entry graph to their pages ---------- */

/* Normalise x for the quantiser if the metric is cosine; aux is 1 / |x|. */
static void
Scale(PipeannMetric metric, float aux, int dim, float *x)
{
	if (metric == PIPEANN_COSINE)
		for (int i = 0; i < dim; i++)
			x[i] *= aux;
}

/* A node's vector for the quantiser, x[dim]: normalised for cosine. */
static void
NodeVector(const PipeannVectors *v, uint32 node, float *x)
{
	PipeannVectorToFloat(PipeannVectorAt(v, node), v->storage, v->dim, x);
	Scale(v->metric, v->aux == NULL ? 0 : v->aux[node], v->dim, x);
}

static void
WriteCodebook(const PipeannCoding *k)
{
	const PipeannLayout *l = &k->layout;
	BlockNumber first = PipeannExtentBlock(&k->extents);

	PipeannWritePages(k->index, first, PIPEANN_CODEBOOK, k->generation,
					  k->pq.centroids, PipeannCodebookBytes(l), k->wal);
	if (k->histograms != NULL)
		PipeannWritePages(k->index, first + PipeannHistogramsPage(l),
						  PIPEANN_CODEBOOK, k->generation, k->histograms,
						  PipeannHistogramsBytes(l), k->wal);
}

static void
WriteCodePages(const PipeannCoding *k, uint32 first,
			   const uint8 *payloads, uint32 n)
{
	for (uint32 i = 0; i < n; i++)
		PipeannWritePages(k->index,
						  PipeannCodeBlock(&k->extents, &k->layout, first + i),
						  PIPEANN_CODES, k->generation,
						  payloads + (Size) i * PIPEANN_PAYLOAD, PIPEANN_PAYLOAD,
						  k->wal);
}

/* Searches enter at position 0, so the medoid changes places with the first. */
static uint32
SwapWithFirst(uint32 position, uint32 medoid)
{
	if (position == 0)
		return medoid;
	return position == medoid ? 0 : position;
}

static void
SerializeEntryGraph(const PipeannCoding *k, const PipeannNodes *nodes,
					const uint32 *sample, const PipeannGraph *graph, char *stream)
{
	uint32		n = graph->n;
	uint32	   *ids = (uint32 *) stream;
	uint16	   *degrees = (uint16 *) (ids + n);
	uint32	   *neighbors = (uint32 *) (degrees + (n + 1) / 2 * 2);
	uint8	   *codes = (uint8 *) stream + PipeannEntryCodesOffset(n);
	float	   *x = PipeannArray(float, k->pq.dim);

	for (uint32 i = 0; i < n; i++)
	{
		uint32		from = SwapWithFirst(i, graph->medoid);
		const uint32 *list = PipeannNeighbors(graph, from);
		uint32		node = sample != NULL ? sample[from] : from;

		ids[i] = nodes->id_of_node[node];
		NodeVector(&nodes->vectors, node, x);
		(void) PipeannPqEncode(&k->pq, x, codes + (Size) i * k->pq.nsubvectors);
		degrees[i] = Min(graph->degree[from], PIPEANN_ENTRY_DEGREE);
		for (int j = 0; j < degrees[i]; j++)
			neighbors[(Size) i * PIPEANN_ENTRY_DEGREE + j] =
				SwapWithFirst(list[j], graph->medoid);
	}
	pfree(x);
}

/*
 * Build the entry graph over sample[n] of the nodes, or the first n if that is
 * NULL, and write it. All members call.
 */
static void
WriteEntries(PipeannTeam *team, PipeannCoding *k,
			 const PipeannNodes *nodes, const uint32 *sample, uint32 n)
{
	PipeannGraph *graph = PipeannEntryGraphBuild(team, &nodes->near, sample,
												 n, PIPEANN_ENTRY_DEGREE, SEED);
	Size		bytes = PipeannEntryGraphBytes(&k->layout, n);
	char	   *content = PipeannTeamAlloc(team, bytes);

	k->entry_count = n;
	if (PipeannTeamLeads(team))
	{
		SerializeEntryGraph(k, nodes, sample, graph, content);
		PipeannWritePages(k->index, PipeannExtentBlock(&k->extents) +
						  PipeannEntryPage(&k->layout), PIPEANN_ENTRY,
						  k->generation, content, bytes, k->wal);
	}
	PipeannTeamMeet(team);
	PipeannTeamFree(team, content);
	PipeannGraphFree(team, graph);
}

/* ---------- the codes of a build ---------- */

/* Nodes to train attribute codes on. */
#define MOST_ROWS 30000

/* The number of nodes sampled, at even distances. */
static uint32
SampledNodes(const PipeannNodes *nodes)
{
	return Min(nodes->vectors.n, MOST_ROWS);
}

/* Row j of sampled node i, or NULL. */
static const PipeannRow *
SampledNodeRow(uint32 i, uint32 j, void *arg)
{
	const PipeannNodes *nodes = arg;
	uint32		node = (uint32) ((uint64) i * nodes->vectors.n /
								 SampledNodes(nodes));
	uint32		dup = j == 0 ? PIPEANN_INVALID_ID : nodes->dup_heads[node];

	for (uint32 k = 1; k < j && dup != PIPEANN_INVALID_ID; k++)
		dup = nodes->dups[dup].next;
	return j > 0 && dup == PIPEANN_INVALID_ID ? NULL :
		PipeannNodeRow(nodes, node, dup);
}

/* The widths of attribute codes. */
void
PipeannChooseWidths(Relation index, const PipeannNodes *nodes,
					PipeannLayout *l, PipeannWidths *widths)
{
	if (l->attr_bytes > 0)
		PipeannSetAttributeBytes(l,
								 PipeannAttributesChoose(PipeannAttributesDescribe(index, NULL),
														 SampledNodeRow,
														 unconstify(PipeannNodes *, nodes),
														 SampledNodes(nodes), widths));
}

/* Put the attribute codes of ids first .. first + n - 1 in a code page; nothing if a is NULL. */
static void
EncodeAttributes(PipeannAttributes *a, const PipeannLayout *l,
				 const PipeannNodes *nodes, uint32 first, int n,
				 uint8 *out)
{
	uint8		code[PIPEANN_MAX_ATTRIBUTE_BYTES];

	if (a == NULL)
		return;
	for (int i = 0; i < n; i++)
	{
		uint32		node = nodes->node_of_id[first + i];
		uint32		dup;

		if (node == PIPEANN_INVALID_ID)
			continue;
		PipeannAttributesEncode(a, node,
								PipeannNodeRow(nodes, node, PIPEANN_INVALID_ID),
								code);
		for (dup = nodes->dup_heads[node]; dup != PIPEANN_INVALID_ID; dup = nodes->dups[dup].next)
		{
			uint8		other[PIPEANN_MAX_ATTRIBUTE_BYTES];

			PipeannAttributesEncode(a, node, PipeannNodeRow(nodes, node, dup),
									other);
			PipeannAttributesMerge(a, other, code);
		}
		for (uint32 j = 0; j < l->attr_bytes; j++)
			out[PipeannPlaneOffset(l, j) + i] = code[j];
	}
}

/* Samples gathered at once by one member. */
#define SAMPLE_SLICE 256

/* Train on vectors and rows of nodes, at even distances. All members call. */
static void
TrainOnNodes(PipeannTeam *team, PipeannCoding *k, const PipeannNodes *nodes)
{
	const PipeannVectors *v = &nodes->vectors;
	/* bits need no training */
	uint32		n = k->pq.bits ? 1 : TrainingSamples(&k->layout, v->n);
	float	   *samples = PipeannTeamArray(team, float, mul_size(n, v->dim));

	PipeannTeamEach(team, i, n, SAMPLE_SLICE)
		NodeVector(v, (uint32) (i * v->n / n), samples + (Size) i * v->dim);
	TrainCentroids(team, k, samples, n);
	PipeannTeamFree(team, samples);
	TrainHistograms(team, k, SampledNodeRow, unconstify(PipeannNodes *, nodes),
					SampledNodes(nodes));
}

/* Vectors encoded at once. */
#define ENCODE_BLOCK 32

/* Pages of codes made at once by one member, and written by the leader. */
#define CODE_SLICE 8

/*
 * Fill a code page with the codes of ids first .. first + n - 1. Nodes are
 * encoded in blocks; places without a node get codes of others meanwhile, and
 * are zeroed afterwards.
 */
static void
EncodePage(const PipeannPq *pq, const PipeannNodes *nodes, float *x, uint32 first,
		   int n, uint8 *out)
{
	float		errors[ENCODE_BLOCK];

	memset(out, 0, PIPEANN_PAYLOAD);
	memset(x, 0, ENCODE_BLOCK * pq->dim * sizeof(float));
	for (int i = 0; i < n; i += ENCODE_BLOCK)
	{
		const uint32 *node = nodes->node_of_id + first + i;
		int			count = Min(n - i, ENCODE_BLOCK);
		uint8	   *codes = out + (Size) i * pq->nsubvectors;

		for (int j = 0; j < count; j++)
			if (node[j] != PIPEANN_INVALID_ID)
				NodeVector(&nodes->vectors, node[j], x + (Size) j * pq->dim);
		PipeannPqEncodeMany(pq, x, count, codes, pq->nsubvectors, errors);
		for (int j = 0; j < count; j++)
			if (node[j] == PIPEANN_INVALID_ID)
				memset(codes + (Size) j * pq->nsubvectors, 0, pq->nsubvectors);
	}
}

/*
 * Begin a build's generation: codebook and codes of all nodes. All members call; the leader
 * writes.
 */
PipeannCoding *
PipeannMakeCodes(PipeannTeam *team, Relation index, const PipeannMeta *meta,
				 const PipeannNodes *nodes)
{
	PipeannCoding *k = palloc(sizeof(PipeannCoding));
	const PipeannLayout *l = &k->layout;
	uint32		per_page = PipeannCodesPerPage(&meta->layout);
	uint32		pages = PipeannCodePages(&meta->layout, nodes->ids);
	uint32		batch = Min(pages, PIPEANN_CODE_BATCH);
	float	   *x = PipeannArray(float, mul_size(meta->layout.dim, ENCODE_BLOCK));
	uint8	   *payloads;

	BeginCoding(k, index, meta);
	TrainOnNodes(team, k, nodes);
	if (PipeannTeamLeads(team))
		WriteCodebook(k);
	payloads = PipeannTeamAlloc(team, mul_size(batch, PIPEANN_PAYLOAD));
	for (uint32 first = 0; first < pages; first += batch)
	{
		uint32		n = Min(pages - first, batch);

		PipeannTeamSlices(team, from, to, n, CODE_SLICE)
			for (uint32 page = first + from; page < first + to; page++)
			{
				uint32		id = page * per_page;
				int			count = Min(per_page, nodes->ids - id);
				uint8	   *payload = payloads +
					(Size) (page - first) * PIPEANN_PAYLOAD;

				EncodePage(&k->pq, nodes, x, id, count, payload);
				EncodeAttributes(k->attributes, l, nodes, id, count, payload);
			}
		if (PipeannTeamLeads(team))
			WriteCodePages(k, first, payloads, n);
		PipeannTeamMeet(team);
	}
	k->code_pages = pages;
	PipeannTeamFree(team, payloads);
	pfree(x);
	return k;
}

/*
 * Choose the nodes of the entry graph: one of every N ids, so that they are spread over
 * pages and thus over space; one of every M of these comes first. Returns how many.
 */
static uint32
EntrySample(const PipeannNodes *nodes, uint32 *sample)
{
	uint32		want = PipeannEntryCount(nodes->vectors.n);
	uint32		step = (want + PIPEANN_FIRST_ENTRIES - 1) / PIPEANN_FIRST_ENTRIES;
	uint32		n = 0;

	for (int first = 1; first >= 0; first--)
		for (uint32 i = 0; i < want; i++)
		{
			uint64		from = (uint64) i * nodes->ids / want;
			uint64		to = (uint64) (i + 1) * nodes->ids / want;

			if ((i % step == 0) != first)
				continue;
			while (from < to && nodes->node_of_id[from] == PIPEANN_INVALID_ID)
				from++;
			if (from < to)
				sample[n++] = nodes->node_of_id[from];
		}
	return n;
}

/* Complete the generation with the entry graph, and record it in the metapage. All members call. */
void
PipeannMakeEntries(PipeannTeam *team, PipeannCoding *k, const PipeannNodes *nodes,
				   PipeannMeta *meta)
{
	uint32		want = PipeannEntryCount(nodes->vectors.n);
	uint32	   *sample = PipeannTeamArray(team, uint32, (Size) want + 1);

	/* the number of nodes is stored behind the sample */
	if (PipeannTeamLeads(team))
		sample[want] = EntrySample(nodes, sample);
	PipeannTeamMeet(team);
	WriteEntries(team, k, nodes, sample, sample[want]);
	PipeannTeamFree(team, sample);
	Publish(k, meta);
	PipeannTeamFree(team, k->pq.centroids);
	PipeannTeamFree(team, k->histograms);
	pfree(k);
}

/*
 * The memory for codes, without that of the entry graph, which is a fraction of that of the
 * graph itself; for the full number of samples, as the memory for all else is enough for them.
 */
Size
PipeannCodingMemory(const PipeannLayout *l, uint32 nodes, uint32 ids)
{
	Size		samples = mul_size(Min(nodes, MAX_SAMPLES),
								   l->dim * sizeof(float));
	Size		pages = mul_size(Min(PipeannCodePages(l, ids), PIPEANN_CODE_BATCH),
								 PIPEANN_PAYLOAD);

	/* the index's codebook and, as long as there are samples, a second one */
	return add_size(PipeannCodebookBytes(l),
					Max(add_size(samples, PipeannCodebookBytes(l)), pages));
}

/* ---------- codes made again in place ---------- */

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
	uint8	   *code;			/* room for one code; NULL while samples are taken */
} Retraining;

/*
 * A node's vector for the quantiser: the exact one of an out-of-line node,
 * normalised for cosine.
 */
static void
SlotVector(const PipeannIndexView *view, uint32 id, const PipeannSlot *slot,
		   float *x)
{
	const PipeannLayout *l = &view->meta.layout;

	if (!PipeannIsPoorlyCoded(l, slot) ||
		!PipeannChainVector(view, id, slot, x))
		PipeannVectorToFloat(PipeannSlotVector(l, slot), l->storage, l->dim,
							 x);
	Scale(l->metric, slot->aux, l->dim, x);
}

/*
 * The most nodes of an entry graph made in place: fewer than it should have if
 * there is no room for a longer extent than those that exist.
 */
static uint32
MostEntries(const PipeannMeta *meta)
{
	uint32		most = PipeannEntryCount((uint32) Min(Max(meta->nodes, meta->trained_nodes),
													  PG_UINT32_MAX));

	while (most > 1 && PipeannExtentPages(&meta->layout, most) > PipeannExtentRoom(&meta->extents))
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
	r->most_samples = TrainingSamples(l, r->taken_of);
	r->samples = PipeannArray(float, mul_size(r->most_samples, l->dim));
	r->rows = palloc0(mul_size(Max(r->most_samples, 1), sizeof(PipeannRow *)));
	r->most_entries = Min((Size) MostEntries(meta), Max(fit, 1));
	*v = PipeannVectorsLike(l, 0);
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
SampleNode(Retraining *r, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &r->view.meta.layout;
	uint32		per_page = l->slots_per_page;
	uint64		passed = (uint64) id - id % per_page + per_page;
	uint32		entries = (uint32) (passed * r->most_entries /
									((uint64) r->pages * per_page));

	if (r->nsamples < r->most_samples &&
		r->seen * r->most_samples >= (uint64) r->nsamples * r->taken_of)
	{
		SlotVector(&r->view, id, slot,
				   r->samples + (Size) r->nsamples * l->dim);
		if (l->attr_bytes > 0)
			r->rows[r->nsamples] = CopyFirstRow(l, slot);
		r->nsamples++;
	}
	r->seen++;
	if (r->entries.vectors.n < entries)
		TakeEntryNode(r, id, slot);
}

static void
FlushCodes(Retraining *r)
{
	WriteCodePages(&r->coding, r->code_page++, r->payload, 1);
	memset(r->payload, 0, PIPEANN_PAYLOAD);
}

static void
EncodeNode(Retraining *r, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &r->view.meta.layout;
	uint8	   *code = r->code;

	/* pages without codes are written, too, so that all pages exist */
	while (r->code_page < id / PipeannCodesPerPage(l))
		FlushCodes(r);
	SlotVector(&r->view, id, slot, r->x);
	(void) PipeannPqEncode(&r->coding.pq, r->x, code);
	if (r->coding.attributes != NULL)
		PipeannAttributesOfNode(r->coding.attributes, &r->view, id, slot,
								code + l->pq_bytes);
	PipeannCodePut(l, (char *) r->payload, id % PipeannCodesPerPage(l), code);
}

static void
VisitPage(uint32 page, const char *nodes, void *arg)
{
	Retraining *r = arg;
	const PipeannLayout *l = &r->view.meta.layout;

	for (uint32 i = 0; i < l->slots_per_page; i++)
	{
		const PipeannSlot *slot = PipeannSlotAt(l, nodes, i);
		uint32		id = page * l->slots_per_page + i;

		if (r->code != NULL && PipeannSlotIsNode(slot))
			EncodeNode(r, id, slot);
		else if (r->code == NULL && PipeannSlotIsLive(slot))
			SampleNode(r, id, slot);
	}
}

/* Visit the nodes: take samples of live ones, or later encode all. */
static void
VisitNodes(Retraining *r)
{
	PipeannCounters counters = {0};
	const PipeannMeta *meta = &r->view.meta;
	PipeannPageSource *source = PipeannSourceOpen(r->view.index, &meta->layout, &meta->extents,
												  meta->graph_pages, NULL, &counters);

	PipeannVisitPages(source, r->pages, VisitPage, r);
	PipeannSourceClose(source);
}

/*
 * Say in the metapage that there are no codes, which generation comes next, and in which
 * extent. The first extent has room for the second generation's entry graph, too.
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
	meta->entry_count = meta->entries_shared = 0;
	meta->build_id++;
	PipeannExtentChoose(&meta->extents,
						(BlockNumber) PipeannBlocksInUse(&meta->extents, l,
														 meta->graph_pages, true),
						PipeannExtentPages(l, r->entries.vectors.n),
						PipeannExtentPages(l, Max(r->entries.vectors.n,
												  PipeannEntryCount(CODES_GROWTH *
																	PIPEANN_MIN_CODED_NODES))));
	r->coding.extents = meta->extents;
	PipeannMetaEnd(&update);
}

/* Make the next generation, with inserts kept out. */
static void
MakeGeneration(Retraining *r)
{
	PipeannIndexView *view = &r->view;
	const PipeannMeta *meta = &view->meta;
	const PipeannLayout *l = &meta->layout;
	PipeannTeam *team = PipeannTeamAlone();
	PipeannMetaUpdate update;

	BeginCoding(&r->coding, view->index, meta);
	r->coding.generation++;
	r->coding.wal = true;
	r->pages = PipeannViewPages(view);
	r->x = PipeannArray(float, meta->layout.dim);
	StartSamples(r);
	VisitNodes(r);
	if (r->nsamples == 0 || r->entries.vectors.n == 0)
		return;
	TrainCentroids(team, &r->coding, r->samples, r->nsamples);
	TrainHistograms(team, &r->coding, SampledRow, r, r->nsamples);
	PIPEANN_PAUSE("retrain-trained");
	Announce(r);
	PIPEANN_PAUSE("retrain-announced");
	WriteCodebook(&r->coding);
	r->payload = palloc0(PIPEANN_PAYLOAD);
	r->code = palloc0(PipeannCodeBytes(l));
	VisitNodes(r);
	/* leave no code of a former generation, not even behind the last node */
	do
		FlushCodes(r);
	while (r->code_page < PipeannCodePages(l, r->pages * l->slots_per_page));
	r->coding.code_pages = r->code_page;
	r->entries.near = r->entries.vectors;
	WriteEntries(team, &r->coding, &r->entries, NULL, r->entries.vectors.n);
	PIPEANN_PAUSE("retrain-written");
	PipeannMetaBegin(view->index, &update);
	Publish(&r->coding, update.meta);
	PipeannMetaEnd(&update);
}

/*
 * Make codes if they are wanted, in a memory context of its own; unless other sessions would
 * have to wait too long, another backend is doing so, or VACUUM or pipeann_check() is running.
 */
void
PipeannRetrain(Relation heap, Relation index, const PipeannMeta *meta)
{
	MemoryContext context;
	MemoryContext old;
	bool		cancellable;
	Retraining	r;

	/* inserts of other sessions wait, if these can insert at all */
	if (!WantsCodes(meta) ||
		((meta->flags & PIPEANN_META_HAS_CODES) && meta->nodes > MOST_IN_PLACE &&
		 IsUnderPostmaster && index->rd_rel->relpersistence != RELPERSISTENCE_TEMP &&
		 !CheckRelationLockedByMe(heap, ShareLock, true)) ||
		!ConditionalLockPage(index, PIPEANN_MAINTENANCE_LOCK, ExclusiveLock))
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
