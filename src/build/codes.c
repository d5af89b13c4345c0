/*
 * codes.c
 *		Training and writing what caches hold: codebook, codes, entry graph.
 */
#include "postgres.h"

#include "build/sibling.h"
#include "distance/distance.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/*
 * Samples to train on: a hundred for each of 256 centroids, fewer if
 * maintenance_work_mem does not hold them, but at least sixteen.
 */
#define MAX_SAMPLES (100 * PIPEANN_CENTROIDS)
#define MIN_SAMPLES (16 * PIPEANN_CENTROIDS)

/*
 * The entry graph has a tenth of the nodes, with few edges: 7 bytes a row in
 * memory beside its code. A search then begins near its end and reads fewer
 * pages than with PipeANN's 1 % of the nodes, 32 edges each (PipeANN 4.2.2).
 */
#define ENTRY_FRACTION 10
#define MIN_ENTRY 256
#define ENTRY_DEGREE 16

/* One sample in so many is not trained on, but measures the codes' error. */
#define ERROR_SAMPLES 256

/* Samples gathered at once by one member. */
#define SAMPLE_RUN 256

#define SEED UINT64CONST(0x70697065616e6e)

uint32
PipeannEntryCount(uint32 nodes)
{
	return Max(nodes / ENTRY_FRACTION, Min(nodes, MIN_ENTRY));
}

static void
Reserve(Relation index, PipeannMeta *meta, PipeannKind kind, uint64 pages)
{
	while ((uint64) meta->kind_extents[kind] * PIPEANN_EXTENT_USABLE < pages)
		PipeannExtentAdd(index, meta, kind);
}

/*
 * The next entry graph goes before the present one if there is room, else
 * behind it.
 */
uint32
PipeannNextEntryFirst(const PipeannMeta *meta, uint32 count)
{
	uint32		pages = PipeannStreamPages(PipeannEntryGraphBytes(count,
																  ENTRY_DEGREE));

	if (pages <= meta->entry_first || meta->entry_count == 0)
		return 0;
	return meta->entry_first +
		PipeannStreamPages(PipeannEntryGraphBytes(meta->entry_count,
												  meta->entry_degree));
}

void
PipeannCodingReserve(Relation index, PipeannMeta *meta,
					 const PipeannLayout *l, uint32 generation, uint32 ids)
{
	uint32		entries = PipeannEntryCount(ids) + 1;	/* the root */

	Reserve(index, meta, PIPEANN_CODEBOOK,
			PipeannCodebookFirst(l, generation) + PipeannCodebookPages(l));
	Reserve(index, meta, PIPEANN_ENTRY,
			(uint64) PipeannNextEntryFirst(meta, entries) +
			PipeannStreamPages(PipeannEntryGraphBytes(entries, ENTRY_DEGREE)));
	Reserve(index, meta, PipeannCodesKind(generation),
			(ids + PipeannCodesPerPage(l) - 1) / PipeannCodesPerPage(l));
}

void
PipeannCodingVector(const PipeannVectors *v, uint32 node, float *x)
{
	PipeannVectorToFloat(PipeannVectorAt(v, node), v->storage, v->dim, x);
	if (v->metric == PIPEANN_COSINE)
		for (int i = 0; i < v->dim; i++)
			x[i] *= v->aux[node];
}

PipeannPq
PipeannCodingLayout(const PipeannLayout *l)
{
	PipeannPq	pq;
	int		   *start = palloc(l->pq_bytes * sizeof(int));
	int		   *len = palloc(l->pq_bytes * sizeof(int));
	Size	   *offset = palloc(l->pq_bytes * sizeof(Size));

	PipeannPqLayout(l->dim, l->pq_bytes, start, len, offset);
	pq.dim = l->dim;
	pq.nchunks = l->pq_bytes;
	pq.start = start;
	pq.len = len;
	pq.offset = offset;
	pq.centroids = NULL;
	pq.key = 0;
	return pq;
}

uint32
PipeannCodingSamples(const PipeannLayout *l, uint64 nodes)
{
	Size		fit = (Size) maintenance_work_mem * 1024 /
		(l->dim * sizeof(float));
	Size		want = Max(Min(fit, MAX_SAMPLES), MIN_SAMPLES);

	return Min(nodes, (uint64) want);
}

float
PipeannCodingError(const PipeannPq *pq, const float *x, uint32 n)
{
	float	   *decoded = palloc(mul_size(pq->dim, sizeof(float)));
	uint8	   *code = palloc(pq->nchunks);
	double		sum = 0;

	for (uint32 i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		PipeannPqEncode(pq, x + (Size) i * pq->dim, code);
		PipeannPqDecode(pq, code, decoded);
		sum += PipeannKernel->l2[PIPEANN_FLOAT4] (x + (Size) i * pq->dim,
												  decoded, pq->dim);
	}
	pfree(decoded);
	pfree(code);
	return n > 0 ? (float) (sum / n) : 0;
}

/*
 * The error is that of samples that were not trained on, since the error of
 * later vectors is compared with it.
 */
float
PipeannCodingTrain(PipeannTeam *team, Relation index, PipeannMetric metric,
				   PipeannPq *pq, float *samples, uint32 n)
{
	uint32		aside = n >= MIN_SAMPLES ? ERROR_SAMPLES : 0;
	float	   *centroids =
		PipeannTeamAlloc(team, mul_size(PipeannPqCentroidCount(pq->dim),
										sizeof(float)));

	if (PipeannTeamLeads(team))
		PipeannMoveSamples(samples, n, pq->dim, aside);
	PipeannTeamMeet(team);
	if (!PipeannSiblingCodebook(team, index, pq, metric, samples, n, aside,
								centroids))
		PipeannPqTrain(team, pq, samples, n - aside, SEED, centroids);
	pq->centroids = centroids;
	return PipeannCodingError(pq, samples + (Size) (n - aside) * pq->dim,
							  aside);
}

float
PipeannCodingTrainOn(PipeannTeam *team, Relation index, PipeannPq *pq,
					 const PipeannLayout *l, const PipeannVectors *v)
{
	uint32		n = PipeannCodingSamples(l, v->n);
	float	   *samples = PipeannTeamAlloc(team,
										   mul_size(mul_size(n, v->dim),
													sizeof(float)));
	uint64		from;
	uint64		to;
	float		error;

	PipeannTeamBegin(team, n, SAMPLE_RUN);
	while (PipeannTeamNext(team, &from, &to))
		for (uint64 i = from; i < to; i++)
			PipeannCodingVector(v, (uint32) (i * v->n / n),
								samples + (Size) i * v->dim);
	PipeannTeamEnd(team);
	error = PipeannCodingTrain(team, index, l->metric, pq, samples, n);
	PipeannTeamFree(team, samples);
	return error;
}

/* Vectors encoded at once. */
#define ENCODE_BLOCK 32

Size
PipeannEncodeSpace(int dim)
{
	return mul_size(dim, ENCODE_BLOCK * sizeof(float));
}

/*
 * Nodes of a page are encoded in blocks; places without a node have the codes
 * of others in between, and are made zeroes after it.
 */
void
PipeannEncodePage(const PipeannPq *pq, const PipeannNodes *nodes,
				  uint32 first, int n, float *x, uint8 *out)
{
	memset(out, 0, PIPEANN_PAYLOAD);
	memset(x, 0, ENCODE_BLOCK * pq->dim * sizeof(float));
	for (int i = 0; i < n; i += ENCODE_BLOCK)
	{
		int			count = Min(n - i, ENCODE_BLOCK);
		uint8	   *codes = out + (Size) i * pq->nchunks;

		for (int k = 0; k < count; k++)
		{
			uint32		node = nodes->node_of_id[first + i + k];

			if (node != PIPEANN_INVALID_ID)
				PipeannCodingVector(&nodes->vectors, node,
									x + (Size) k * pq->dim);
		}
		PipeannPqEncodeMany(pq, x, count, codes, pq->nchunks);
		for (int k = 0; k < count; k++)
			if (nodes->node_of_id[first + i + k] == PIPEANN_INVALID_ID)
				memset(codes + (Size) k * pq->nchunks, 0, pq->nchunks);
	}
}

static void
WriteCodePage(Relation index, BlockNumber blkno, PipeannKind kind,
			  const uint8 *payload)
{
	Buffer		buffer = PipeannGetBlock(index, blkno);
	Page		page = BufferGetPage(buffer);

	PipeannPageInit(page, kind);
	memcpy(PipeannPagePayload(page), payload, PIPEANN_PAYLOAD);
	PipeannPageSeal(page, blkno);
	MarkBufferDirty(buffer);
	UnlockReleaseBuffer(buffer);
}

/* Pages of codes made at once by one member, and written by the leader. */
#define CODE_RUN 8

/* Pages of codes that are in memory at a time. */
#define CODE_BATCH 2048

typedef struct CodeWriter
{
	Relation	index;
	const PipeannExtentMap *map;
	PipeannKind kind;
	const PipeannPq *pq;
	const PipeannCollection *c;
	const PipeannNodes *nodes;
	PipeannAttributes *attributes;	/* NULL if there are none */
	uint32		per_page;
	uint8	   *payloads;		/* [CODE_BATCH] */
} CodeWriter;

/* Make pages first .. first + n - 1. */
static void
EncodePages(PipeannTeam *team, const CodeWriter *w, const PipeannLayout *l,
			float *x, uint32 first, uint32 n)
{
	uint64		from;
	uint64		to;

	PipeannTeamBegin(team, n, CODE_RUN);
	while (PipeannTeamNext(team, &from, &to))
		for (uint32 page = first + from; page < first + to; page++)
		{
			uint32		id = page * w->per_page;
			int			count = Min(w->per_page, w->nodes->ids - id);
			uint8	   *payload = w->payloads +
				(Size) (page - first) * PIPEANN_PAYLOAD;

			PipeannEncodePage(w->pq, w->nodes, id, count, x, payload);
			PipeannEncodeAttributes(w->attributes, l, w->c, w->nodes, id,
									count, payload);
		}
	PipeannTeamEnd(team);
}

static void
WriteCodes(PipeannTeam *team, CodeWriter *w, const PipeannLayout *l)
{
	uint32		pages;
	float	   *x = palloc(PipeannEncodeSpace(l->dim));

	w->per_page = PipeannCodesPerPage(l);
	pages = (w->nodes->ids + w->per_page - 1) / w->per_page;
	w->payloads = PipeannTeamAlloc(team, mul_size(Min(pages, CODE_BATCH),
												  PIPEANN_PAYLOAD));
	for (uint32 first = 0; first < pages; first += CODE_BATCH)
	{
		uint32		n = Min(pages - first, CODE_BATCH);

		EncodePages(team, w, l, x, first, n);
		if (PipeannTeamLeads(team))
			for (uint32 i = 0; i < n; i++)
				WriteCodePage(w->index,
							  PipeannPlainBlock(w->map, w->kind, first + i),
							  w->kind, w->payloads + (Size) i *
							  PIPEANN_PAYLOAD);
		PipeannTeamMeet(team);
	}
	PipeannTeamFree(team, w->payloads);
	pfree(x);
}

/*
 * Not the entry graph's memory, which is a fraction of that of the graph itself.
 * As many samples as there should be: memory for all else is memory for these.
 */
Size
PipeannCodingMemory(const PipeannLayout *l, uint32 nodes, uint32 ids)
{
	uint32		pages = (ids + PipeannCodesPerPage(l) - 1) /
		PipeannCodesPerPage(l);
	Size		samples = mul_size(Min(nodes, MAX_SAMPLES),
								   l->dim * sizeof(float));
	Size		payloads = mul_size(Min(pages, CODE_BATCH), PIPEANN_PAYLOAD);

	/* the index's own codebook and, while there are samples, another one's */
	return add_size(PipeannCodebookBytes(l),
					Max(add_size(samples, PipeannCodebookBytes(l)), payloads));
}

void
PipeannCodingForesee(PipeannMeta *meta)
{
	if (meta->nodes < PIPEANN_MIN_CODED_NODES)
		return;
	meta->flags |= PIPEANN_META_HAS_CODES;
	meta->entry_count = PipeannEntryCount((uint32) meta->nodes);
	meta->entry_degree = ENTRY_DEGREE;
	meta->code_pages = (meta->graph_pages * meta->layout.slots_per_page +
						PipeannCodesPerPage(&meta->layout) - 1) /
		PipeannCodesPerPage(&meta->layout);
}

uint32
PipeannEntrySample(const PipeannNodes *nodes, uint32 root, uint32 *sample)
{
	uint32		want = PipeannEntryCount(nodes->vectors.n);
	uint32		n = 0;

	for (uint32 i = 0; i < want; i++)
	{
		uint64		from = (uint64) i * nodes->ids / want;
		uint64		to = (uint64) (i + 1) * nodes->ids / want;

		if (from <= root && root < to)
			from = root;
		while (from < to && nodes->node_of_id[from] == PIPEANN_INVALID_ID)
			from++;
		if (from < to)
			sample[n++] = nodes->node_of_id[from];
	}
	return n;
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
SerializeEntryGraph(const PipeannNodes *nodes, const uint32 *sample,
					const PipeannGraph *graph, char *stream)
{
	uint32		n = graph->n;
	uint32	   *ids = (uint32 *) stream;
	uint16	   *degrees = (uint16 *) (ids + n);
	uint32	   *neighbors = (uint32 *) (degrees + (n + 1) / 2 * 2);

	for (uint32 i = 0; i < n; i++)
	{
		uint32		from = SwapWithFirst(i, graph->medoid);
		const uint32 *list = PipeannNeighbors(graph, from);

		ids[i] = nodes->id_of_node[sample[from]];
		degrees[i] = Min(graph->degree[from], ENTRY_DEGREE);
		for (int j = 0; j < degrees[i]; j++)
			neighbors[(Size) i * ENTRY_DEGREE + j] =
				SwapWithFirst(list[j], graph->medoid);
	}
}

void
PipeannEntryWrite(Relation index, PipeannMeta *meta,
				  const PipeannExtentMap *map, const PipeannNodes *nodes,
				  const uint32 *sample, uint32 n, bool wal,
				  PipeannTeam *team)
{
	PipeannGraph *graph = PipeannEntryGraphBuild(team, &nodes->vectors, sample,
												 n, ENTRY_DEGREE, SEED);
	char	   *stream = PipeannTeamAlloc(team,
										  PipeannEntryGraphBytes(n,
																 ENTRY_DEGREE));

	if (PipeannTeamLeads(team))
	{
		SerializeEntryGraph(nodes, sample, graph, stream);
		meta->entry_first = PipeannNextEntryFirst(meta, n);
		PipeannStreamWrite(index, map, PIPEANN_ENTRY, meta->entry_first, stream,
						   PipeannEntryGraphBytes(n, ENTRY_DEGREE), wal);
		meta->entry_count = n;
		meta->entry_degree = ENTRY_DEGREE;
	}
	PipeannTeamMeet(team);
	PipeannTeamFree(team, stream);
	PipeannGraphFree(team, graph);
}

void
PipeannCodebookWrite(Relation index, const PipeannLayout *l,
					 const PipeannExtentMap *map, uint32 generation,
					 const PipeannPq *pq, const char *books, bool wal)
{
	PipeannStreamWrite(index, map, PIPEANN_CODEBOOK,
					   PipeannCodebookFirst(l, generation), pq->centroids,
					   PipeannCodebookBytes(l), wal);
	if (books != NULL)
		PipeannStreamWrite(index, map, PIPEANN_CODEBOOK,
						   PipeannBooksFirst(l, generation), books,
						   PipeannBooksBytes(l), wal);
}

/* Of the team: samples, chunks compared, chunks, batches of pages. */
uint32
PipeannCodeSteps(const PipeannLayout *l, uint32 ids)
{
	uint32		per_batch = PipeannCodesPerPage(l) * CODE_BATCH;

	return 2 + PIPEANN_SIBLING_STEPS + (ids + per_batch - 1) / per_batch;
}

/* All members get the books that the leader makes; NULL if there are none. */
static char *
TrainBooks(PipeannTeam *team, const PipeannMeta *meta, CodeWriter *w)
{
	const PipeannLayout *l = &meta->layout;
	char	   *books;

	w->attributes = PipeannAttributesOpen(w->index, meta->format, l,
										  &meta->widths, NULL);
	if (w->attributes == NULL)
		return NULL;
	books = PipeannTeamAlloc(team, PipeannBooksBytes(l));
	if (PipeannTeamLeads(team))
		PipeannTrainAttributes(w->attributes, w->c, books);
	PipeannTeamMeet(team);
	PipeannAttributesUseBook(w->attributes, books);
	return books;
}

void
PipeannCodesWrite(PipeannTeam *team, Relation index, PipeannMeta *meta,
				  const PipeannExtentMap *map, const PipeannCollection *c,
				  const PipeannNodes *nodes)
{
	const PipeannLayout *l = &meta->layout;
	PipeannPq	pq = PipeannCodingLayout(l);
	CodeWriter	w = {.index = index,.map = map,.pq = &pq,.c = c,.nodes = nodes};
	char	   *books;

	meta->code_error = PipeannCodingTrainOn(team, index, &pq, l,
											&nodes->vectors);
	books = TrainBooks(team, meta, &w);
	if (PipeannTeamLeads(team))
		PipeannCodebookWrite(index, l, map, meta->generation, &pq, books,
							 false);
	w.kind = PipeannCodesKind(meta->generation);
	WriteCodes(team, &w, l);
	meta->code_pages = (nodes->ids + PipeannCodesPerPage(l) - 1) /
		PipeannCodesPerPage(l);
	meta->trained_nodes = nodes->vectors.n;
	meta->flags |= PIPEANN_META_HAS_CODES;
	PipeannTeamFree(team, (void *) pq.centroids);
	if (books != NULL)
		PipeannTeamFree(team, books);
}

void
PipeannEntriesWrite(PipeannTeam *team, Relation index, PipeannMeta *meta,
					const PipeannExtentMap *map, const PipeannNodes *nodes,
					uint32 root)
{
	uint32		want = PipeannEntryCount(nodes->vectors.n);
	uint32	   *sample = PipeannTeamAlloc(team, mul_size((Size) want + 1,
														 sizeof(uint32)));

	/* behind the sample stands how many they are */
	if (PipeannTeamLeads(team))
		sample[want] = PipeannEntrySample(nodes, root, sample);
	PipeannTeamMeet(team);
	PipeannEntryWrite(index, meta, map, nodes, sample, sample[want], false,
					  team);
	PipeannTeamFree(team, sample);
}

/* ---------- the generation that is being made, for inserts ---------- */

/* The next generation's codebook, kept while this backend inserts. */
typedef struct NextCodebook
{
	MemoryContext context;
	uint64		build_id;
	uint32		attempt;
	PipeannPq	pq;
} NextCodebook;

static NextCodebook next_codebook;

static void
LoadNextCodebook(PipeannIndexView *view)
{
	const PipeannLayout *l = &view->meta.layout;
	Size		size = PipeannCodebookBytes(l);
	MemoryContext old;
	float	   *centroids;

	if (next_codebook.context != NULL)
		MemoryContextDelete(next_codebook.context);
	next_codebook.context = NULL;
	next_codebook.context = AllocSetContextCreate(TopMemoryContext,
												  "pipeann next codebook",
												  ALLOCSET_SMALL_SIZES);
	next_codebook.attempt = 0;
	old = MemoryContextSwitchTo(next_codebook.context);
	next_codebook.pq = PipeannCodingLayout(l);
	centroids = PipeannAlloc(size);
	MemoryContextSwitchTo(old);
	PipeannStreamRead(view->index, view->map,
					  PIPEANN_CODEBOOK,
					  PipeannCodebookFirst(l, view->meta.generation + 1),
					  centroids, size);
	next_codebook.pq.centroids = centroids;
	next_codebook.build_id = view->meta.build_id;
	next_codebook.attempt = view->meta.attempt;
}

void
PipeannEncodeNext(PipeannIndexView *view, const float *x, uint8 *out)
{
	Assert(view->meta.flags & PIPEANN_META_RETRAINING);
	if (next_codebook.context == NULL ||
		next_codebook.build_id != view->meta.build_id ||
		next_codebook.attempt != view->meta.attempt)
		LoadNextCodebook(view);
	PipeannPqEncode(&next_codebook.pq, x, out);
}
