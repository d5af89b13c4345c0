/*
 * index.c
 *		An index in memory: graph, pages and entry graph as a build makes them.
 */
#include "codes.h"

#define PAYLOAD 8160			/* of a page of 8 kB */
#define SLOT_TIDS 3
#define ALPHA 1.2f
#define ENTRY_DEGREE 32
#define ENTRY_FRACTION 100

static void
MakeLayout(PipeannLayout *l, int dim, PipeannMetric metric,
		   PipeannStorage storage, int degree)
{
	uint32		size;

	memset(l, 0, sizeof(*l));
	l->dim = dim;
	l->metric = metric;
	l->storage = storage;
	l->max_degree = degree;
	l->inline_tids = SLOT_TIDS;
	l->node_pages = 1;
	l->pq_bytes = sizeof(uint32);
	l->tids_offset = PIPEANN_SLOT_HEADER + degree * sizeof(uint32);
	l->vector_offset = (l->tids_offset +
						SLOT_TIDS * sizeof(ItemPointerData) + 3) & ~3;
	size = l->vector_offset + ((dim * PipeannElementSize(storage) + 3) & ~3);
	l->slot_size = size;
	l->slots_per_page = l->fill = Max(PAYLOAD / size, 1);
}

static void
WritePages(Index *index)
{
	const PipeannLayout *l = &index->layout;
	const PipeannVectors *v = &index->vectors;

	index->data = PipeannAllocZero(index->pages * index->page_size);
	for (uint32 i = 0; i < v->n; i++)
	{
		PipeannSlot *slot = CodesSlot(index, index->id_of[i]);

		slot->flags = PIPEANN_SLOT_USED;
		slot->degree = index->graph->degree[i];
		for (int j = 0; j < slot->degree; j++)
			slot->neighbors[j] =
				index->id_of[PipeannNeighbors(index->graph, i)[j]];
		slot->ext_tids = slot->ext_vec = PIPEANN_INVALID_ID;
		slot->aux = v->aux == NULL ? 0 : v->aux[i];
		slot->ntids = 1;
		memcpy(PipeannSlotVector(l, slot), PipeannVectorAt(v, i), v->stride);
	}
}

/* The medoid stands first, so position 0 and its own change places. */
static uint32
Swapped(uint32 position, uint32 medoid)
{
	if (position == 0)
		return medoid;
	return position == medoid ? 0 : position;
}

static void
MakeEntryGraph(Index *index)
{
	uint32		n = Max(index->vectors.n / ENTRY_FRACTION, 1);
	uint32	   *sample = palloc(n * sizeof(uint32));
	uint32	   *ids = palloc(n * sizeof(uint32));
	uint16	   *degrees = palloc(n * sizeof(uint16));
	uint32	   *neighbors = palloc0(n * ENTRY_DEGREE * sizeof(uint32));
	PipeannGraph *graph;

	for (uint32 i = 0; i < n; i++)
		sample[i] = index->order[(uint64) i * index->vectors.n / n];
	graph = PipeannEntryGraphBuild(&index->vectors, sample, n, ENTRY_DEGREE, 1,
								   NULL, NULL);
	for (uint32 i = 0; i < n; i++)
	{
		uint32		from = Swapped(i, graph->medoid);

		ids[i] = index->id_of[sample[from]];
		degrees[i] = graph->degree[from];
		for (int j = 0; j < degrees[i]; j++)
			neighbors[i * ENTRY_DEGREE + j] =
				Swapped(PipeannNeighbors(graph, from)[j], graph->medoid);
	}
	index->known.entry_count = n;
	index->known.entry_degree = ENTRY_DEGREE;
	index->known.entry_ids = ids;
	index->known.entry_nneighbors = degrees;
	index->known.entry_neighbors = neighbors;
	PipeannGraphFree(graph);
	free(sample);
}

/* Codes that are ids, and a quantiser that nobody looks at. */
static void
MakeCodes(Index *index)
{
	int			dim = index->layout.dim;
	int			nchunks = sizeof(uint32);
	int		   *start = palloc(nchunks * sizeof(int));
	int		   *len = palloc(nchunks * sizeof(int));
	Size	   *offset = palloc(nchunks * sizeof(Size));
	PipeannPq  *pq = &index->known.pq;

	PipeannPqLayout(dim, nchunks, start, len, offset);
	pq->dim = dim;
	pq->nchunks = nchunks;
	pq->start = start;
	pq->len = len;
	pq->offset = offset;
	pq->centroids = PipeannAllocZero(PipeannPqCentroidCount(dim) *
									 sizeof(float));
	index->codes = palloc(index->ids * sizeof(uint32));
	for (uint32 i = 0; i < index->ids; i++)
		index->codes[i] = i;
	index->chunks[0] = (uint8 *) index->codes;
	index->known.chunks = index->chunks;
	index->known.chunk_shift = 31;
	index->known.ncodes = index->ids;
}

/*
 * Build over n vectors; degrees, neighbours, order and medoid are taken from
 * `graph` if it is not empty, else written there: [1 + n * (degree + 2)].
 */
Index *
CodesBuild(const void *data, const float *aux, uint32 n, int dim, int metric,
		   int storage, int degree, int ef_construction, uint32 *graph,
		   bool load)
{
	Index	   *index = palloc0(sizeof(Index));
	PipeannGraphParams params = {degree, ef_construction, ALPHA, 1};
	PipeannVectors *v = &index->vectors;
	PipeannGraph *g;

	PipeannKernelsInit();
	MakeLayout(&index->layout, dim, metric, storage, degree);
	v->n = n;
	v->dim = dim;
	v->storage = storage;
	v->metric = metric;
	v->data = data;
	v->stride = dim * PipeannElementSize(storage);
	v->aux = aux;
	index->order = palloc(n * sizeof(uint32));
	index->id_of = palloc(n * sizeof(uint32));
	if (load)
	{
		g = palloc0(sizeof(PipeannGraph));
		g->n = n;
		g->max_degree = g->stride = degree;
		g->medoid = graph[0];
		g->degree = palloc(n * sizeof(uint16));
		for (uint32 i = 0; i < n; i++)
			g->degree[i] = graph[1 + i];
		memcpy(index->order, graph + 1 + n, n * sizeof(uint32));
		g->neighbors = graph + 1 + 2 * (Size) n;
	}
	else
	{
		g = PipeannGraphBuild(v, &params, NULL, NULL);
		PipeannGraphPack(g, v, index->layout.fill, index->order, NULL, NULL);
		graph[0] = g->medoid;
		for (uint32 i = 0; i < n; i++)
		{
			graph[1 + i] = g->degree[i];
			memcpy(graph + 1 + 2 * (Size) n + (Size) i * degree,
				   PipeannNeighbors(g, i), degree * sizeof(uint32));
		}
		memcpy(graph + 1 + n, index->order, n * sizeof(uint32));
	}
	index->graph = g;
	for (uint32 i = 0; i < n; i++)
		index->id_of[index->order[i]] = i;
	index->pages = (n + index->layout.fill - 1) / index->layout.fill;
	index->ids = index->pages * index->layout.slots_per_page;
	index->page_size = (Size) index->layout.slots_per_page *
		index->layout.slot_size;
	WritePages(index);
	MakeCodes(index);
	MakeEntryGraph(index);
	return index;
}

/* Nodes in the order of their ids. */
void
CodesOrder(const Index *index, uint32 *order)
{
	memcpy(order, index->order, index->vectors.n * sizeof(uint32));
}

/* ---------- product quantisation, as it is in the index ---------- */

/*
 * Train on samples and give what n vectors decode to.
 */
void
CodesPq(const float *samples, uint32 nsamples, const float *x, uint32 n,
		int dim, int nchunks, uint64 seed, float *out)
{
	int		   *start = palloc(nchunks * sizeof(int));
	int		   *len = palloc(nchunks * sizeof(int));
	Size	   *offset = palloc(nchunks * sizeof(Size));
	float	   *centroids = PipeannAlloc(PipeannPqCentroidCount(dim) *
										 sizeof(float));
	uint8	   *code = palloc(nchunks);
	PipeannPq	pq = {dim, nchunks, start, len, offset, centroids};

	PipeannKernelsInit();
	PipeannPqLayout(dim, nchunks, start, len, offset);
	PipeannPqTrain(&pq, samples, nsamples, seed, centroids, NULL, NULL);
	for (uint32 i = 0; i < n; i++)
	{
		PipeannPqEncode(&pq, x + (Size) i * dim, code);
		PipeannPqDecode(&pq, code, out + (Size) i * dim);
	}
	free(start);
	free(len);
	free(offset);
	free(centroids);
	free(code);
}
