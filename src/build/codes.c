/*
 * codes.c
 *		Training and writing what caches hold: codebook, codes, entry graph.
 */
#include "postgres.h"

#include "build/build.h"
#include "commands/progress.h"
#include "distance/distance.h"
#include "miscadmin.h"
#include "pgstat.h"

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
PipeannCodingReserve(Relation index, PipeannMeta *meta, uint32 generation,
					 uint32 ids)
{
	const PipeannLayout *l = &meta->layout;
	uint32		entries = PipeannEntryCount(ids) + 1;	/* the root */

	Reserve(index, meta, PIPEANN_CODEBOOK,
			PipeannCodebookFirst(l, generation) +
			PipeannStreamPages(PipeannCodebookBytes(l)));
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

static void
ShowProgress(int64 done, int64 total)
{
	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_TOTAL, total);
	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, done);
}

static void
EntryProgress(uint32 done, void *arg)
{
	ShowProgress(done, *(uint32 *) arg);
}

static void
TrainProgress(int done, int total, void *arg)
{
	(void) arg;
	ShowProgress(done, total);
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

/* Move count samples, evenly spaced, to the end. */
static void
MoveToEnd(float *samples, uint32 n, int dim, uint32 count)
{
	Size		size = mul_size(dim, sizeof(float));
	float	   *row = palloc(size);

	for (uint32 i = 0; i < count; i++)
	{
		float	   *from = samples + (Size) ((uint64) i * n / count) * dim;
		float	   *to = samples + (Size) (n - 1 - i) * dim;

		memcpy(row, from, size);
		memcpy(from, to, size);
		memcpy(to, row, size);
	}
	pfree(row);
}

/*
 * The error is that of samples that were not trained on, since the error of
 * later vectors is compared with it.
 */
float
PipeannCodingTrain(PipeannPq *pq, float *samples, uint32 n,
				   PipeannPqProgress progress, void *arg)
{
	uint32		aside = n >= MIN_SAMPLES ? ERROR_SAMPLES : 0;
	float	   *centroids =
		PipeannAlloc(mul_size(PipeannPqCentroidCount(pq->dim),
							  sizeof(float)));

	MoveToEnd(samples, n, pq->dim, aside);
	PipeannPqTrain(pq, samples, n - aside, SEED, centroids, progress, arg);
	pq->centroids = centroids;
	return PipeannCodingError(pq, samples + (Size) (n - aside) * pq->dim,
							  aside);
}

float
PipeannCodingTrainOn(PipeannPq *pq, const PipeannLayout *l,
					 const PipeannVectors *v, PipeannPqProgress progress)
{
	uint32		n = PipeannCodingSamples(l, v->n);
	float	   *samples = PipeannAlloc(mul_size(mul_size(n, v->dim),
												sizeof(float)));
	float		error;

	for (uint32 i = 0; i < n; i++)
		PipeannCodingVector(v, (uint32) ((uint64) i * v->n / n),
							samples + (Size) i * v->dim);
	error = PipeannCodingTrain(pq, samples, n, progress, NULL);
	pfree(samples);
	return error;
}

void
PipeannEncodePage(const PipeannPq *pq, const PipeannNodes *nodes,
				  uint32 first, int n, float *x, uint8 *out)
{
	memset(out, 0, PIPEANN_PAYLOAD);
	for (int i = 0; i < n; i++)
	{
		uint32		node = nodes->node_of_id[first + i];

		if (node == PIPEANN_INVALID_ID)
			continue;
		PipeannCodingVector(&nodes->vectors, node, x);
		PipeannPqEncode(pq, x, out + (Size) i * pq->nchunks);
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

static void
WriteCodes(Relation index, const PipeannMeta *meta,
		   const PipeannExtentMap *map, const PipeannPq *pq,
		   const PipeannNodes *nodes)
{
	const PipeannLayout *l = &meta->layout;
	PipeannKind kind = PipeannCodesKind(meta->generation);
	uint32		per_page = PipeannCodesPerPage(l);
	float	   *x = palloc(mul_size(l->dim, sizeof(float)));
	uint8	   *payload = palloc(PIPEANN_PAYLOAD);

	for (uint32 first = 0; first < nodes->ids; first += per_page)
	{
		CHECK_FOR_INTERRUPTS();
		ShowProgress(first, nodes->ids);
		PipeannEncodePage(pq, nodes, first, Min(per_page, nodes->ids - first),
						  x, payload);
		WriteCodePage(index, PipeannPlainBlock(map, kind, first / per_page),
					  kind, payload);
	}
	pfree(x);
	pfree(payload);
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

static char *
SerializeEntryGraph(const PipeannNodes *nodes, const uint32 *sample,
					const PipeannGraph *graph)
{
	uint32		n = graph->n;
	char	   *stream = PipeannAllocZero(PipeannEntryGraphBytes(n,
																 ENTRY_DEGREE));
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
	return stream;
}

void
PipeannEntryWrite(Relation index, PipeannMeta *meta,
				  const PipeannExtentMap *map, const PipeannNodes *nodes,
				  const uint32 *sample, uint32 n, bool wal,
				  PipeannGraphProgress progress, void *arg)
{
	PipeannGraph *graph = PipeannEntryGraphBuild(&nodes->vectors, sample, n,
												 ENTRY_DEGREE, SEED, progress,
												 arg);
	char	   *stream = SerializeEntryGraph(nodes, sample, graph);

	meta->entry_first = PipeannNextEntryFirst(meta, n);
	PipeannStreamWrite(index, map, PIPEANN_ENTRY, meta->entry_first, stream,
					   PipeannEntryGraphBytes(n, ENTRY_DEGREE), wal);
	meta->entry_count = n;
	meta->entry_degree = ENTRY_DEGREE;
	pfree(stream);
	PipeannGraphFree(graph);
}

void
PipeannCodebookWrite(Relation index, const PipeannLayout *l,
					 const PipeannExtentMap *map, uint32 generation,
					 const PipeannPq *pq, bool wal)
{
	PipeannStreamWrite(index, map, PIPEANN_CODEBOOK,
					   PipeannCodebookFirst(l, generation), pq->centroids,
					   PipeannCodebookBytes(l), wal);
}

void
PipeannCodingWrite(Relation index, PipeannMeta *meta,
				   const PipeannExtentMap *map, const PipeannNodes *nodes)
{
	PipeannPq	pq = PipeannCodingLayout(&meta->layout);
	uint32	   *sample = PipeannAlloc(mul_size(PipeannEntryCount(nodes->vectors.n),
											   sizeof(uint32)));
	uint32		n = PipeannEntrySample(nodes, meta->root, sample);

	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE,
								 PIPEANN_PHASE_TRAIN);
	meta->code_error = PipeannCodingTrainOn(&pq, &meta->layout,
											&nodes->vectors, TrainProgress);
	PipeannCodebookWrite(index, &meta->layout, map, meta->generation, &pq,
						 false);
	WriteCodes(index, meta, map, &pq, nodes);
	meta->code_pages = (nodes->ids + PipeannCodesPerPage(&meta->layout) - 1) /
		PipeannCodesPerPage(&meta->layout);
	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE,
								 PIPEANN_PHASE_ENTRY);
	PipeannEntryWrite(index, meta, map, nodes, sample, n, false,
					  EntryProgress, &n);
	meta->trained_nodes = nodes->vectors.n;
	meta->flags |= PIPEANN_META_HAS_CODES;
	pfree(sample);
}
