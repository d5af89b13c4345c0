/*
 * search_tools.c
 *		What the tests of searches share: an index, queries, and the
 *		truth.
 */
#include "search_tools.h"

#include <math.h>

#include "distance/distance.h"

#define ENTRY_DEGREE 16
#define CHUNK_SHIFT 8
#define RADII_KEPT 128

/* Clusters make neighbours that matter; queries come from the same ones. */
#define CLUSTERS 30
#define SPREAD 0.3f

static void
RandomVector(uint64 *random, int dim, bool bytes, float *x)
{
	uint64		cluster = UnitRandom(random) % CLUSTERS;

	for (int i = 0; i < dim; i++)
	{
		uint64		state = cluster * 1000 + i;
		float		center = UnitRandomFloat(&state, 0, 1);

		x[i] = center + UnitRandomFloat(random, -SPREAD, SPREAD);
		if (bytes)
			x[i] = (float) (int) Min(255, Max(0, x[i] * 255));
	}
}

static double
NormOf(const float *x, int dim)
{
	double		sum = 0;

	for (int i = 0; i < dim; i++)
		sum += (double) x[i] * x[i];
	return sqrt(sum);
}

static void
NodeVector(const Index *index, int node, float *out)
{
	PipeannVectorToFloat(PipeannVectorAt(&index->vectors, node),
						 index->layout.storage, index->layout.dim, out);
}

static void
MakeVectors(Index *index, uint32 n, uint64 random)
{
	const PipeannLayout *l = &index->layout;
	PipeannVectors *v = &index->vectors;
	float	   *aux = PipeannAlloc(n * sizeof(float));
	double	   *norms = PipeannAlloc(n * sizeof(double));
	float	   *x = PipeannAlloc(l->dim * sizeof(float));

	v->n = n;
	v->dim = l->dim;
	v->storage = l->storage;
	v->metric = PipeannMetrics[l->metric].graph;
	v->stride = l->dim * PipeannElementSize(l->storage);
	v->data = PipeannAlloc(v->n * v->stride);
	for (uint32 i = 0; i < n; i++)
	{
		RandomVector(&random, l->dim, l->storage == PIPEANN_UINT8, x);
		PipeannVectorFromFloat(x, l->storage, l->dim,
							   (char *) v->data + i * v->stride);
		norms[i] = NormOf(x, l->dim);
		v->max_norm = Max(v->max_norm, norms[i]);
	}
	for (uint32 i = 0; i < n; i++)
		aux[i] = l->metric == PIPEANN_COSINE ? 1 / norms[i] :
			sqrt(Max(0, v->max_norm * v->max_norm - norms[i] * norms[i]));
	v->aux = v->metric == PIPEANN_L2 ? NULL : aux;
	free(norms);
	free(x);
}

/* The vector whose code a node has: as it is, or normalised. */
static void
CodedVector(const Index *index, int node, float *out)
{
	double		norm;

	NodeVector(index, node, out);
	norm = NormOf(out, index->layout.dim);
	for (int i = 0; i < index->layout.dim; i++)
		out[i] = index->layout.metric == PIPEANN_COSINE ? out[i] / norm : out[i];
}

static void
MakeCodes(Index *index)
{
	int			dim = index->layout.dim;
	int			nsubvectors = index->layout.pq_bytes;
	int			n = IndexNodes(index);
	float	   *centroids = PipeannAlloc(PipeannPqCentroidCount(dim) *
										 sizeof(float));
	float	   *samples = PipeannAlloc((Size) n * dim * sizeof(float));
	PipeannPq  *pq = &index->codes.pq;
	int			nchunk_arrays = (index->ids >> CHUNK_SHIFT) + 1;
	uint8	  **chunks = PipeannAlloc(nchunk_arrays * sizeof(uint8 *));

	*pq = PipeannPqNew(PIPEANN_FLOAT4, dim, nsubvectors);
	for (int i = 0; i < n; i++)
		CodedVector(index, i, samples + (Size) i * dim);
	PipeannPqTrain(PipeannTeamAlone(), pq, samples,
				   Min(n, 2000), 1, centroids);
	pq->centroids = centroids;

	for (int i = 0; i < nchunk_arrays; i++)
		chunks[i] = PipeannAllocZero((Size) nsubvectors << CHUNK_SHIFT);
	index->codes.chunks = chunks;
	index->codes.chunk_shift = CHUNK_SHIFT;
	index->codes.ncodes = index->ids;
	for (int i = 0; i < n; i++)
	{
		CodedVector(index, index->order[i], samples);
		PipeannPqEncode(pq, samples,
						(uint8 *) PipeannCodeAt(&index->codes,
												IndexIdAt(index, i)));
	}
	free(samples);
}

Index *
MakePart(int n, int dim, PipeannMetric metric, PipeannStorage storage, int seed)
{
	Index	   *index = PipeannAllocZero(sizeof(Index));
	PipeannGraphParams params = {24, 60, 1, false};
	PipeannGraph *graph;

	index->layout = IndexLayout(dim, metric, storage, params.max_degree,
								INLINE_TIDS);
	index->layout.slots_per_page = 10;
	index->layout.fill = 9;
	index->layout.pq_bytes = dim / 2;
	index->order = PipeannAlloc(n * sizeof(uint32));
	MakeVectors(index, n, seed);
	graph = PipeannGraphBuild(PipeannTeamAlone(), &index->vectors, NULL, &params);
	PipeannGraphPack(graph, &index->vectors, index->layout.fill, index->order, PipeannTeamAlone());
	IndexWritePages(index, graph);
	MakeCodes(index);
	IndexMakeEntryGraph(index, ENTRIES, ENTRY_DEGREE);
	PipeannGraphFree(PipeannTeamAlone(), graph);
	return index;
}

Index *
MakeIndex(int n, int dim, PipeannMetric metric, PipeannStorage storage)
{
	return MakePart(n, dim, metric, storage, 42);
}

PipeannSearch *IdleSearch = NULL;

PipeannSearch *
BeginSearch(const PipeannLayout *layout, const PipeannCodes *codes,
			PipeannPageSource *source, const float *query,
			const PipeannSearchParams *params)
{
	PipeannSearch *search = IdleSearch != NULL ? IdleSearch :
		PipeannSearchCreate();

	IdleSearch = NULL;
	PipeannSearchBegin(search, layout, codes, source, query, params);
	return search;
}

/*
 * End a search: all pages have been given back, and no rule was broken.
 */
void
EndSearch(PipeannSearch *search, MemorySource *memory)
{
	PipeannSearchReleasePages(search);
	IdleSearch = search;
	CHECK(memory->nframes == 0);
	CHECK(memory->source.in_flight == 0);
	CHECK(memory->mistakes == 0);
	free(memory->held);
	free(memory->requests);
	free(memory);
}

void
MakeQuery(const Index *index, int number, float *query)
{
	uint64		random = 1000003 + number;
	double		norm;

	RandomVector(&random, index->layout.dim,
				 index->layout.storage == PIPEANN_UINT8, query);
	if (index->layout.metric != PIPEANN_COSINE)
		return;
	norm = NormOf(query, index->layout.dim);
	for (int i = 0; i < index->layout.dim; i++)
		query[i] /= norm;
}

/* Search an index for its query of this number, which goes to query[]. */
PipeannSearch *
BeginQuery(const Index *index, const PipeannCodes *codes, MemorySource *memory,
		   int number, float *query, PipeannSearchParams *params)
{
	params->max_pages = MAX_FRAMES;
	MakeQuery(index, number, query);
	return BeginSearch(&index->layout, codes, &memory->source, query, params);
}

/* The order key of a node, computed from its vector. */
double
KeyOf(const Index *index, const float *query, int node)
{
	float		x[MAX_DIM];
	double		l2 = 0;
	double		l1 = 0;
	double		dot = 0;

	NodeVector(index, node, x);
	for (int i = 0; i < index->layout.dim; i++)
	{
		l2 += ((double) x[i] - query[i]) * ((double) x[i] - query[i]);
		l1 += fabs((double) x[i] - query[i]);
		dot += (double) x[i] * query[i];
	}
	if (index->layout.metric == PIPEANN_L1)
		return l1;
	if (index->layout.metric == PIPEANN_L2)
		return l2;
	return index->layout.metric == PIPEANN_IP ? -dot :
		-dot / NormOf(x, index->layout.dim);
}

void
KeepNearest(double *nearest, int k, double key)
{
	int			at = k - 1;

	if (!(key < nearest[at]))
		return;
	for (; at > 0 && nearest[at - 1] > key; at--)
		nearest[at] = nearest[at - 1];
	nearest[at] = key;
}

static double
FindRadius(const Index *index, const float *query, int k)
{
	double	   *nearest = PipeannAlloc(k * sizeof(double));
	double		radius;

	for (int i = 0; i < k; i++)
		nearest[i] = INFINITY;
	for (int node = 0; node < IndexNodes(index); node++)
		KeepNearest(nearest, k, KeyOf(index, query, node));
	radius = nearest[k - 1];
	free(nearest);
	return radius;
}

/*
 * Key of the k-th nearest node. The same queries are asked in many ways, so the
 * last ones are kept: an index that this is asked of neither changes nor ends.
 */
double
RadiusOf(const Index *index, const float *query, int k)
{
	static struct
	{
		const Index *index;
		int			k;
		float		query[MAX_DIM];
		double		radius;
	}			kept[RADII_KEPT];
	static int	next;
	Size		size = index->layout.dim * sizeof(float);

	for (int i = 0; i < RADII_KEPT; i++)
		if (kept[i].index == index && kept[i].k == k && memcmp(kept[i].query, query, size) == 0)
			return kept[i].radius;
	next = (next + 1) % RADII_KEPT;
	kept[next].index = index;
	kept[next].k = k;
	memcpy(kept[next].query, query, size);
	kept[next].radius = FindRadius(index, query, k);
	return kept[next].radius;
}

int
NodeOfRow(const PipeannRow *row)
{
	return ((int) row->tid.bi_hi << 16) | row->tid.bi_lo;
}

int
NodeOf(const PipeannSearch *search, const PipeannResult *result)
{
	return NodeOfRow(PipeannSearchRows(search, result).rows);
}

/*
 * Run a search to its end, taking all results; each node may come only once.
 * Returns how many came.
 */
int
TakeAll(const Index *index, PipeannSearch *search, uint8 *seen)
{
	const PipeannResult *result;
	int			n = 0;

	memset(seen, 0, index->ids);
	for (int runs = 0; PipeannSearchRun(search); runs++)
	{
		if (!CHECK(runs < IndexNodes(index)))
			break;
		while ((result = PipeannSearchPop(search)) != NULL)
		{
			CHECK(result->id < index->ids);
			CHECK(!seen[result->id]);
			CHECK(result->nrows <= INLINE_TIDS);
			seen[result->id] = true;
			n++;
		}
	}
	CHECK(!PipeannSearchRun(search));
	CHECK(PipeannSearchPop(search) == NULL);
	return n;
}

uint64
ReadsOf(const Index *index, const PipeannPolicy *policy, bool by_page,
		int resident)
{
	uint64		reads = 0;

	for (int i = 0; i < QUERIES; i++)
	{
		PipeannSearchParams params = {.policy = policy, .by_page = by_page};
		MemorySource *memory = OpenSource(index, resident, i);
		PipeannSearch *search;
		float		query[MAX_DIM];

		params.ef = 60;
		search = BeginQuery(index, &index->codes, memory, i, query, &params);
		CHECK(PipeannSearchRun(search));
		reads += memory->counters.page_reads;
		EndSearch(search, memory);
	}
	return reads;
}

int			OutOfLineCalls = 0;

float
OutOfLineDistance(uint32 id, const PipeannSlot *slot, void *arg)
{
	OutOfLineCalls++;
	CHECK(id != PIPEANN_INVALID_ID);
	CHECK(slot->flags & PIPEANN_SLOT_OUT_OF_LINE);
	return *(const float *) arg;
}
