/*
 * coding.c
 *		Training and writing what searches keep in memory: codebook, codes,
 *		entry graph.
 */
#include "postgres.h"

#include "am/am.h"
#include "commands/progress.h"
#include "kernel/kernel.h"
#include "miscadmin.h"
#include "pgstat.h"

/*
 * Samples to train on: a hundred for each of 256 centroids, fewer where
 * maintenance_work_mem does not hold them, but no fewer than sixteen.
 */
#define MAX_SAMPLES (100 * PIPEANN_CENTROIDS)
#define MIN_SAMPLES (16 * PIPEANN_CENTROIDS)

/* About 1 % of the nodes (PipeANN 4.2.2), and enough to be of use. */
#define ENTRY_FRACTION 100
#define MIN_ENTRY 256
#define ENTRY_DEGREE 32
#define SEED UINT64CONST(0x70697065616e6e)

static uint32
EntryCount(uint32 ids)
{
	return Max(ids / ENTRY_FRACTION, Min(ids, MIN_ENTRY));
}

static void
Reserve(Relation index, PipeannMeta *meta, PipeannKind kind, uint64 pages)
{
	while ((uint64) meta->kind_extents[kind] * PIPEANN_EXTENT_USABLE < pages)
		PipeannExtentAdd(index, meta, kind);
}

static uint64
StreamPages(Size bytes)
{
	return (bytes + PIPEANN_PAYLOAD - 1) / PIPEANN_PAYLOAD;
}

void
PipeannCodingReserve(Relation index, PipeannMeta *meta, uint32 ids)
{
	const PipeannLayout *l = &meta->layout;
	Size		codebook = mul_size(PipeannPqCentroidCount(l->dim),
									sizeof(float));

	Reserve(index, meta, PIPEANN_CODEBOOK, StreamPages(codebook));
	Reserve(index, meta, PIPEANN_ENTRY,
			StreamPages(PipeannEntryBytes(EntryCount(ids), ENTRY_DEGREE)));
	Reserve(index, meta, PIPEANN_CODES,
			(ids + PipeannCodesPerPage(l) - 1) / PipeannCodesPerPage(l));
}

/*
 * A node as the quantiser sees it: normalised for cosine.
 */
static void
CodingVector(const PipeannVectors *v, uint32 node, float *x)
{
	PipeannVectorToFloat(PipeannVectorAt(v, node), v->storage, v->dim, x);
	if (v->metric == PIPEANN_COSINE)
		for (int i = 0; i < v->dim; i++)
			x[i] *= v->aux[node];
}

/*
 * Only CREATE INDEX has columns for this: an insert or VACUUM that switches to
 * codes has none, or others of these numbers.
 */
static void
ShowProgress(bool building, int64 done, int64 total)
{
	if (!building)
		return;
	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_TOTAL, total);
	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, done);
}

static void
TrainProgress(int done, int total, void *arg)
{
	ShowProgress(*(bool *) arg, done, total);
}

static PipeannPq
MakeLayout(const PipeannLayout *l)
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

static uint32
SampleCount(const PipeannVectors *v)
{
	Size		fit = (Size) maintenance_work_mem * 1024 /
		(v->dim * sizeof(float));
	Size		want = Max(Min(fit, MAX_SAMPLES), MIN_SAMPLES);

	return Min(v->n, (uint32) want);
}

/*
 * Samples are taken at even distances, so that any order of the table's rows
 * is as good.
 */
static void
Train(PipeannPq *pq, const PipeannVectors *v, bool building)
{
	uint32		n = SampleCount(v);
	float	   *samples = PipeannAlloc(mul_size(mul_size(n, v->dim),
												sizeof(float)));
	float	   *centroids =
		PipeannAlloc(mul_size(PipeannPqCentroidCount(v->dim), sizeof(float)));

	for (uint32 i = 0; i < n; i++)
		CodingVector(v, (uint32) ((uint64) i * v->n / n),
					 samples + (Size) i * v->dim);
	PipeannPqTrain(pq, samples, n, SEED, centroids, TrainProgress,
				   &building);
	pfree(samples);
	pq->centroids = centroids;
}

/*
 * Fill a code page, all zero where there is no node.
 */
static void
EncodePage(const PipeannPq *pq, const PipeannNodes *nodes, uint32 first,
		   int n, float *x, uint8 *out)
{
	memset(out, 0, PIPEANN_PAYLOAD);
	for (int i = 0; i < n; i++)
	{
		uint32		node = nodes->node_of_id[first + i];

		if (node == PIPEANN_INVALID_ID)
			continue;
		CodingVector(&nodes->vectors, node, x);
		PipeannPqEncode(pq, x, out + (Size) i * pq->nchunks);
	}
}

static void
WriteCodePage(Relation index, BlockNumber blkno, const uint8 *payload,
			  bool wal)
{
	Buffer		buffer = PipeannGetBlock(index, blkno);
	GenericXLogState *state = wal ? GenericXLogStart(index) : NULL;
	Page		page = wal ?
		GenericXLogRegisterBuffer(state, buffer, GENERIC_XLOG_FULL_IMAGE) :
		BufferGetPage(buffer);

	PipeannPageInit(page, PIPEANN_CODES);
	memcpy(PipeannPagePayload(page), payload, PIPEANN_PAYLOAD);
	PipeannPageSeal(page, blkno);
	if (wal)
		GenericXLogFinish(state);
	else
		MarkBufferDirty(buffer);
	UnlockReleaseBuffer(buffer);
}

static void
WriteCodes(Relation index, const PipeannLayout *l, const PipeannExtentMap *map,
		   const PipeannPq *pq, const PipeannNodes *nodes, bool wal)
{
	uint32		per_page = PipeannCodesPerPage(l);
	float	   *x = palloc(mul_size(l->dim, sizeof(float)));
	uint8	   *payload = palloc(PIPEANN_PAYLOAD);

	for (uint32 first = 0; first < nodes->ids; first += per_page)
	{
		CHECK_FOR_INTERRUPTS();
		ShowProgress(!wal, first, nodes->ids);
		EncodePage(pq, nodes, first, Min(per_page, nodes->ids - first), x,
				   payload);
		WriteCodePage(index,
					  PipeannPlainBlock(map, PIPEANN_CODES, first / per_page),
					  payload, wal);
	}
	pfree(x);
	pfree(payload);
}

/*
 * One node of every so many ids stands in the entry graph, so that the sample
 * is spread over the pages, which are spread over space.
 */
static uint32
SampleEntries(const PipeannNodes *nodes, uint32 *sample)
{
	uint32		want = EntryCount(nodes->ids);
	uint32		n = 0;

	for (uint32 i = 0; i < want; i++)
	{
		uint64		from = (uint64) i * nodes->ids / want;
		uint64		to = (uint64) (i + 1) * nodes->ids / want;

		while (from < to && nodes->node_of_id[from] == PIPEANN_INVALID_ID)
			from++;
		if (from < to)
			sample[n++] = nodes->node_of_id[from];
	}
	return n;
}

/*
 * Searches enter at position 0, so the medoid changes places with it.
 */
static uint32
Swapped(uint32 position, uint32 medoid)
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
	char	   *stream = PipeannAllocZero(PipeannEntryBytes(n, ENTRY_DEGREE));
	uint32	   *ids = (uint32 *) stream;
	uint16	   *degrees = (uint16 *) (ids + n);
	uint32	   *neighbors = (uint32 *) (degrees + (n + 1) / 2 * 2);

	for (uint32 i = 0; i < n; i++)
	{
		uint32		from = Swapped(i, graph->medoid);
		const uint32 *list = PipeannNeighbors(graph, from);

		ids[i] = nodes->id_of_node[sample[from]];
		degrees[i] = Min(graph->degree[from], ENTRY_DEGREE);
		for (int j = 0; j < degrees[i]; j++)
			neighbors[(Size) i * ENTRY_DEGREE + j] =
				Swapped(list[j], graph->medoid);
	}
	return stream;
}

static void
WriteEntryGraph(Relation index, PipeannMeta *meta, const PipeannExtentMap *map,
				const PipeannNodes *nodes, bool wal)
{
	uint32	   *sample = PipeannAlloc(mul_size(EntryCount(nodes->ids),
											   sizeof(uint32)));
	uint32		n = SampleEntries(nodes, sample);
	PipeannGraph *graph = PipeannEntryGraphBuild(&nodes->vectors, sample, n,
												 ENTRY_DEGREE, SEED);
	char	   *stream = SerializeEntryGraph(nodes, sample, graph);

	PipeannStreamWrite(index, map, PIPEANN_ENTRY, stream,
					   PipeannEntryBytes(n, ENTRY_DEGREE), wal);
	meta->entry_count = n;
	meta->entry_degree = ENTRY_DEGREE;
	pfree(stream);
	pfree(sample);
	PipeannGraphFree(graph);
}

void
PipeannCodingWrite(Relation index, PipeannMeta *meta,
				   const PipeannExtentMap *map, const PipeannNodes *nodes,
				   bool wal)
{
	PipeannPq	pq = MakeLayout(&meta->layout);

	if (!wal)
		pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE,
									 PIPEANN_PHASE_TRAIN);
	Train(&pq, &nodes->vectors, !wal);
	PipeannStreamWrite(index, map, PIPEANN_CODEBOOK, pq.centroids,
					   mul_size(PipeannPqCentroidCount(pq.dim), sizeof(float)),
					   wal);
	WriteCodes(index, &meta->layout, map, &pq, nodes, wal);
	meta->code_pages = (nodes->ids + PipeannCodesPerPage(&meta->layout) - 1) /
		PipeannCodesPerPage(&meta->layout);
	WriteEntryGraph(index, meta, map, nodes, wal);
	meta->flags |= PIPEANN_META_HAS_CODES;
}
