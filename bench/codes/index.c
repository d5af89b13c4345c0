/*
 * index.c
 *		The index in memory that codes are measured with.
 */
#include "codes.h"

#define PAYLOAD 8160			/* of a page of 8 kB */
#define SLOT_TIDS 3
#define ALPHA 1.2f
#define ENTRY_DEGREE 32
#define ENTRY_FRACTION 100

/* Codes that are ids, and a quantiser that nobody looks at. */
static void
MakeCodes(Index *index)
{
	int			dim = index->layout.dim;
	PipeannPq  *pq = &index->codes.pq;
	uint32	   *ids = palloc(index->ids * sizeof(uint32));
	uint8	  **chunks = palloc(sizeof(uint8 *));

	*pq = IndexQuantizer(dim, sizeof(uint32));
	pq->centroids = PipeannAllocZero(PipeannPqCentroidCount(dim) *
									 sizeof(float));
	for (uint32 i = 0; i < index->ids; i++)
		ids[i] = i;
	chunks[0] = (uint8 *) ids;
	index->codes.chunks = chunks;
	index->codes.chunk_shift = 31;
	index->codes.ncodes = index->ids;
}

/* A graph with its packing that was kept: see CodesBuild(). */
static PipeannGraph *
LoadGraph(Index *index, uint32 *kept, int degree)
{
	PipeannGraph *g = palloc0(sizeof(PipeannGraph));
	uint32		n = index->vectors.n;

	g->n = n;
	g->max_degree = degree;
	g->medoid = kept[0];
	g->degree = palloc(n * sizeof(uint16));
	for (uint32 i = 0; i < n; i++)
		g->degree[i] = kept[1 + i];
	memcpy(index->order, kept + 1 + n, n * sizeof(uint32));
	g->neighbors = kept + 1 + 2 * (Size) n;
	return g;
}

static PipeannGraph *
BuildGraph(Index *index, uint32 *kept, int degree, int ef_construction)
{
	PipeannGraphParams params = {degree, ef_construction, ALPHA, 1};
	const PipeannVectors *v = &index->vectors;
	PipeannGraph *g = PipeannGraphBuild(PipeannTeamAlone(), v, NULL, &params);
	uint32		n = v->n;

	PipeannGraphPack(g, v, index->layout.fill, index->order, PipeannTeamAlone());
	kept[0] = g->medoid;
	for (uint32 i = 0; i < n; i++)
	{
		kept[1 + i] = g->degree[i];
		memcpy(kept + 1 + 2 * (Size) n + (Size) i * degree,
			   PipeannNeighbors(g, i), degree * sizeof(uint32));
	}
	memcpy(kept + 1 + n, index->order, n * sizeof(uint32));
	return g;
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
	PipeannLayout *l = &index->layout;
	PipeannVectors *v = &index->vectors;

	PipeannKernelsInit();
	*l = IndexLayout(dim, metric, storage, degree, SLOT_TIDS);
	l->slots_per_page = l->fill = Max(PAYLOAD / l->slot_size, 1);
	l->pq_bytes = sizeof(uint32);
	v->n = n;
	v->dim = dim;
	v->storage = storage;
	v->metric = metric;
	v->data = data;
	v->stride = dim * PipeannElementSize(storage);
	v->aux = aux;
	index->order = palloc(n * sizeof(uint32));
	IndexWritePages(index, load ? LoadGraph(index, graph, degree) :
					BuildGraph(index, graph, degree, ef_construction));
	MakeCodes(index);
	IndexMakeEntryGraph(index, Max(n / ENTRY_FRACTION, 1), ENTRY_DEGREE);
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
	PipeannPq	pq = IndexQuantizer(dim, nchunks);
	float	   *centroids = PipeannAlloc(PipeannPqCentroidCount(dim) *
										 sizeof(float));
	uint8	   *code = palloc(nchunks);

	PipeannKernelsInit();
	pq.centroids = centroids;
	PipeannPqTrain(PipeannTeamAlone(), &pq, samples, nsamples, seed, centroids);
	for (uint32 i = 0; i < n; i++)
	{
		PipeannPqEncode(&pq, x + (Size) i * dim, code);
		PipeannPqDecode(&pq, code, out + (Size) i * dim);
	}
	IndexFreeQuantizer(&pq);
	free(code);
}
