/*
 * vamana.c
 *		Building the graph in batches.
 *
 * Vamana (DiskANN, section 2.3) as ParlayANN parallelises it (section 4): the
 * nodes of a batch search the graph as it was, and prune the results to their
 * own lists, which no search reads yet; then the edges back are grouped by
 * target; then each target takes its group. Within a step every item writes
 * only its own list and reads nothing that another item writes, so slices of a
 * step could go to any number of workers, and the graph would be the same, bit
 * by bit.
 *
 * There is one pass, with the final alpha from the start.
 */
#include "base/base.h"

#include "graph/build.h"
#include "graph/prune.h"
#include "graph/random.h"

/* A batch is at most this part of n, and of the nodes already in the graph. */
#define BATCH_PART 50
#define BATCH_MIN 1000

/* Candidates to prune, as a multiple of the pool's length. */
#define CANDIDATES_PER_EF 3

/* Nodes between two reports of progress. */
#define PROGRESS_STEP 256

/* Memory of one process that searches and prunes. */
typedef struct Worker
{
	PipeannWalk walk;
	PipeannKey *keys;			/* work space of a prune, max_keys long */
	uint32	   *cand;
	float	   *dist;
	int		   *next;
	int		   *kept;			/* [max_degree] */
	int			max_keys;
} Worker;

/* The edges back of a batch, grouped by target: targets[t] has group t. */
typedef struct BackEdges
{
	uint32	   *count;			/* [n], zero between batches */
	uint32	   *targets;		/* [max_edges] */
	uint32	   *starts;			/* [max_edges + 1] of groups in sources */
	uint32	   *sources;		/* [max_edges] */
	uint32		ntargets;
	Size		max_edges;
} BackEdges;

typedef struct Build
{
	const PipeannVectors *vectors;
	PipeannGraphParams params;
	PipeannGraph *graph;
	uint32	   *order;			/* [n] of insertion; the medoid first */
	uint32		done;			/* nodes of order[] already in the graph */
	BackEdges	back;
	PipeannGraphProgress progress;
	void	   *progress_arg;
} Build;

static int
ListStride(int max_degree)
{
	return max_degree + Max(1, max_degree * 3 / 10);
}

static uint32
MaxBatch(uint32 n)
{
	return Min(n, Max(n / BATCH_PART, BATCH_MIN));
}

/* The pool of a search has to be long enough to fill a list. */
static PipeannGraphParams
SaneParams(const PipeannGraphParams *params)
{
	PipeannGraphParams sane = *params;

	sane.max_degree = Max(sane.max_degree, 1);
	sane.ef_construction = Max(sane.ef_construction, sane.max_degree);
	sane.alpha = Max(sane.alpha, 1.0f);
	return sane;
}

/* ---------- memory ---------- */

static int
FirstMaxKeys(const PipeannGraphParams *params)
{
	return params->ef_construction * CANDIDATES_PER_EF +
		ListStride(params->max_degree);
}

static Size
WorkerMemory(uint32 n, const PipeannGraphParams *params)
{
	Size		size = mul_size(FirstMaxKeys(params),
								sizeof(PipeannKey) + sizeof(uint32) +
								sizeof(float) + sizeof(int));

	size = add_size(size, mul_size(params->max_degree, sizeof(int)));
	return add_size(size, PipeannWalkMemory(n, ListStride(params->max_degree),
											params->ef_construction));
}

static Size
BackEdgesMemory(uint32 n, const PipeannGraphParams *params)
{
	Size		max_edges = mul_size(MaxBatch(n), params->max_degree);
	Size		size = mul_size(max_edges, 3 * sizeof(uint32));

	return add_size(size, mul_size(n, sizeof(uint32)));
}

static Size
GraphMemory(uint32 n, const PipeannGraphParams *params)
{
	Size		list = mul_size(ListStride(params->max_degree), sizeof(uint32));

	return add_size(sizeof(PipeannGraph),
					mul_size(n, add_size(list, sizeof(uint16))));
}

Size
PipeannGraphMemory(uint32 n, const PipeannGraphParams *params)
{
	PipeannGraphParams sane = SaneParams(params);
	Size		insert = add_size(mul_size(n, sizeof(uint32)),
								  BackEdgesMemory(n, &sane));
	Size		size = GraphMemory(n, &sane);

	size = add_size(size, WorkerMemory(n, &sane));
	return add_size(size, Max(insert, PipeannReachMemory(n)));
}

static void
AllocKeys(Worker *w, int max_keys)
{
	w->max_keys = max_keys;
	w->keys = PipeannAlloc(mul_size(max_keys, sizeof(PipeannKey)));
	w->cand = PipeannAlloc(mul_size(max_keys, sizeof(uint32)));
	w->dist = PipeannAlloc(mul_size(max_keys, sizeof(float)));
	w->next = PipeannAlloc(mul_size(max_keys, sizeof(int)));
}

static void
FreeKeys(Worker *w)
{
	pfree(w->keys);
	pfree(w->cand);
	pfree(w->dist);
	pfree(w->next);
}

static void
WorkerInit(Worker *w, const PipeannVectors *vectors,
		   const PipeannGraphParams *params)
{
	PipeannWalkInit(&w->walk, vectors, ListStride(params->max_degree),
					params->ef_construction);
	AllocKeys(w, FirstMaxKeys(params));
	w->kept = PipeannAlloc(mul_size(params->max_degree, sizeof(int)));
}

static void
WorkerFree(Worker *w)
{
	PipeannWalkFree(&w->walk);
	FreeKeys(w);
	pfree(w->kept);
}

/* Make room for n keys; the former contents are lost. */
static void
ReserveKeys(Worker *w, Size n)
{
	if (n <= (Size) w->max_keys)
		return;
	FreeKeys(w);
	AllocKeys(w, (int) Min(Max(n, (Size) w->max_keys * 2), INT32_MAX));
}

static void
BackEdgesInit(BackEdges *back, uint32 n, int max_degree)
{
	back->max_edges = mul_size(MaxBatch(n), max_degree);
	back->count = PipeannAllocZero(mul_size(n, sizeof(uint32)));
	back->targets = PipeannAlloc(mul_size(back->max_edges, sizeof(uint32)));
	back->starts = PipeannAlloc(mul_size(back->max_edges + 1,
										 sizeof(uint32)));
	back->sources = PipeannAlloc(mul_size(back->max_edges, sizeof(uint32)));
	back->ntargets = 0;
}

static void
BackEdgesFree(BackEdges *back)
{
	pfree(back->count);
	pfree(back->targets);
	pfree(back->starts);
	pfree(back->sources);
}

PipeannGraph *
PipeannGraphNew(uint32 n, int max_degree)
{
	PipeannGraph *graph = palloc0(sizeof(PipeannGraph));
	Size		cells;

	graph->n = n;
	graph->max_degree = max_degree;
	graph->stride = ListStride(max_degree);
	graph->medoid = n > 0 ? 0 : PIPEANN_INVALID_ID;
	cells = mul_size(Max(n, 1), graph->stride);
	graph->degree = PipeannAllocZero(mul_size(Max(n, 1), sizeof(uint16)));
	graph->neighbors = PipeannAlloc(mul_size(cells, sizeof(uint32)));
	return graph;
}

void
PipeannGraphFree(PipeannGraph *graph)
{
	pfree(graph->degree);
	pfree(graph->neighbors);
	pfree(graph);
}

/* ---------- prune ---------- */

static pg_attribute_always_inline float
MeasureDistance(uint32 a, uint32 b, void *arg)
{
	return PipeannMeasurePair(arg, a, b);
}

/*
 * Make the best of the sorted keys[nkeys] the list of node, and fill the list
 * up: it takes the same room on disk, and recall rises.
 */
static void
PruneToList(Build *b, Worker *w, uint32 node, int nkeys)
{
	uint32	   *list = PipeannNeighbors(b->graph, node);
	int			nkept;
	int			i;

	for (i = 0; i < nkeys; i++)
	{
		w->cand[i] = PipeannKeyId(w->keys[i]);
		w->dist[i] = PipeannKeyDistance(w->keys[i]);
	}
	nkept = PipeannPruneSorted(w->cand, w->dist, nkeys, 0, b->params.alpha,
							   b->params.max_degree, MeasureDistance,
							   &w->walk.measure, w->next, w->kept);
	nkept = PipeannPruneFill(w->next, nkeys, b->params.max_degree, w->kept,
							 nkept);
	for (i = 0; i < nkept; i++)
		list[i] = w->cand[w->kept[i]];
	b->graph->degree[node] = nkept;
}

/* ---------- step 1: search and prune ---------- */

/*
 * The candidates of a node: the nearest of all nodes that its search expanded.
 * The pool is sorted; what was dropped from it comes after it.
 */
static int
WalkCandidates(Worker *w, int ef)
{
	PipeannWalk *walk = &w->walk;
	int			ndropped = Min(walk->ndropped,
							   ef * CANDIDATES_PER_EF - walk->npool);

	memcpy(w->keys, walk->pool, sizeof(PipeannKey) * walk->npool);
	PipeannKeySelect(walk->dropped, walk->ndropped, ndropped);
	PipeannKeySort(walk->dropped, ndropped);
	memcpy(w->keys + walk->npool, walk->dropped,
		   sizeof(PipeannKey) * ndropped);
	return walk->npool + ndropped;
}

static void
Report(Build *b, uint32 done)
{
	if (b->progress != NULL)
		b->progress(done, b->progress_arg);
}

/* Find the neighbours of nodes order[from] .. order[to - 1]. */
static void
SearchSlice(Build *b, Worker *w, uint32 from, uint32 to)
{
	uint32		k;

	for (k = from; k < to; k++)
	{
		uint32		node = b->order[k];

		CHECK_FOR_INTERRUPTS();
		if (k % PROGRESS_STEP == 0)
			Report(b, k);
		PipeannWalkSearch(&w->walk, b->graph, node, b->graph->medoid);
		PruneToList(b, w, node,
					WalkCandidates(w, b->params.ef_construction));
	}
}

/* ---------- step 2: group the edges back by target ---------- */

static void
CountTargets(Build *b, uint32 from, uint32 to)
{
	BackEdges  *back = &b->back;
	uint32		k;
	int			i;

	back->ntargets = 0;
	for (k = from; k < to; k++)
	{
		const uint32 *list = PipeannNeighbors(b->graph, b->order[k]);

		CHECK_FOR_INTERRUPTS();
		for (i = 0; i < b->graph->degree[b->order[k]]; i++)
			if (back->count[list[i]]++ == 0)
				back->targets[back->ntargets++] = list[i];
	}
}

/* Set the start of each target's group; count[] then says where it goes on. */
static void
PlaceGroups(BackEdges *back)
{
	uint32		at = 0;
	uint32		t;

	for (t = 0; t < back->ntargets; t++)
	{
		uint32		count = back->count[back->targets[t]];

		back->starts[t] = at;
		back->count[back->targets[t]] = at;
		at += count;
	}
	back->starts[t] = at;
}

static void
GroupBackEdges(Build *b, uint32 from, uint32 to)
{
	BackEdges  *back = &b->back;
	uint32		k;
	uint32		t;
	int			i;

	CountTargets(b, from, to);
	PlaceGroups(back);
	for (k = from; k < to; k++)
	{
		const uint32 *list = PipeannNeighbors(b->graph, b->order[k]);

		CHECK_FOR_INTERRUPTS();
		for (i = 0; i < b->graph->degree[b->order[k]]; i++)
			back->sources[back->count[list[i]]++] = b->order[k];
	}
	for (t = 0; t < back->ntargets; t++)
		back->count[back->targets[t]] = 0;
}

/* ---------- step 3: apply the edges back ---------- */

static int
AppendKeys(Worker *w, int nkeys, uint32 node, const uint32 *ids, uint32 nids)
{
	uint32		i;

	PipeannMeasureMany(&w->walk.measure, node, ids, nids, w->dist);
	for (i = 0; i < nids; i++)
		w->keys[nkeys++] = PipeannKeyMake(w->dist[i], ids[i]);
	return nkeys;
}

/* Prune the list of a node together with ids[nids]. */
static void
PruneWith(Build *b, Worker *w, uint32 node, const uint32 *ids, uint32 nids)
{
	const uint32 *list = PipeannNeighbors(b->graph, node);
	int			degree = b->graph->degree[node];
	int			max = b->params.ef_construction * CANDIDATES_PER_EF;
	int			nkeys;

	ReserveKeys(w, (Size) degree + nids);
	nkeys = AppendKeys(w, 0, node, list, degree);
	nkeys = AppendKeys(w, nkeys, node, ids, nids);
	PipeannKeySelect(w->keys, nkeys, max);
	nkeys = Min(nkeys, max);
	PipeannKeySort(w->keys, nkeys);
	PruneToList(b, w, node, nkeys);
}

/*
 * Add the edges back of targets[from] .. targets[to - 1]. The sources are new
 * in this batch, so no list has them already.
 */
static void
BackSlice(Build *b, Worker *w, uint32 from, uint32 to)
{
	PipeannGraph *graph = b->graph;
	uint32		t;

	for (t = from; t < to; t++)
	{
		uint32		target = b->back.targets[t];
		const uint32 *sources = b->back.sources + b->back.starts[t];
		uint32		nsources = b->back.starts[t + 1] - b->back.starts[t];
		int			degree = graph->degree[target];

		CHECK_FOR_INTERRUPTS();
		if (degree + nsources <= (uint32) graph->stride)
		{
			memcpy(PipeannNeighbors(graph, target) + degree, sources,
				   sizeof(uint32) * nsources);
			graph->degree[target] = degree + nsources;
		}
		else
			PruneWith(b, w, target, sources, nsources);
	}
}

/* ---------- the whole ---------- */

/* Prune the lists of nodes from .. to - 1 that are longer than R. */
static void
TrimSlice(Build *b, Worker *w, uint32 from, uint32 to)
{
	uint32		node;

	for (node = from; node < to; node++)
	{
		CHECK_FOR_INTERRUPTS();
		if (b->graph->degree[node] > b->graph->max_degree)
			PruneWith(b, w, node, NULL, 0);
	}
}

/* A random order (Fisher and Yates), with the medoid first. */
static uint32 *
InsertOrder(uint32 n, uint32 medoid, uint64 seed)
{
	uint32	   *order = PipeannAlloc(mul_size(n, sizeof(uint32)));
	uint32		i;

	for (i = 0; i < n; i++)
		order[i] = i;
	order[0] = medoid;
	order[medoid] = 0;
	for (i = n - 1; i > 1; i--)
	{
		uint32		j = 1 + PipeannRandomBelow(&seed, i);
		uint32		swap = order[i];

		order[i] = order[j];
		order[j] = swap;
	}
	return order;
}

static void
InsertBatch(Build *b, Worker *w, uint32 to)
{
	SearchSlice(b, w, b->done, to);
	GroupBackEdges(b, b->done, to);
	BackSlice(b, w, 0, b->back.ntargets);
	b->done = to;
}

static void
InsertAll(Build *b, Worker *w)
{
	uint32		n = b->graph->n;
	uint32		max_batch = MaxBatch(n);

	b->order = InsertOrder(n, b->graph->medoid, b->params.seed);
	BackEdgesInit(&b->back, n, b->params.max_degree);
	b->done = 1;
	while (b->done < n)
		InsertBatch(b, w, b->done + Min(Min(b->done, max_batch), n - b->done));
	BackEdgesFree(&b->back);
	pfree(b->order);
}

void
PipeannGraphConnect(PipeannGraph *graph, const PipeannVectors *vectors, int ef)
{
	PipeannWalk walk;

	PipeannWalkInit(&walk, vectors, graph->stride, ef);
	PipeannReachAll(graph, &walk);
	PipeannWalkFree(&walk);
}

PipeannGraph *
PipeannGraphBuild(const PipeannVectors *vectors,
				  const PipeannGraphParams *params,
				  PipeannGraphProgress progress, void *arg)
{
	Build		b;
	Worker		w;

	b.vectors = vectors;
	b.params = SaneParams(params);
	b.progress = progress;
	b.progress_arg = arg;
	b.graph = PipeannGraphNew(vectors->n, b.params.max_degree);
	if (vectors->n == 0)
		return b.graph;
	b.graph->medoid = PipeannMedoid(vectors);
	WorkerInit(&w, vectors, &b.params);
	InsertAll(&b, &w);
	TrimSlice(&b, &w, 0, vectors->n);
	PipeannReachAll(b.graph, &w.walk);
	WorkerFree(&w);
	Report(&b, vectors->n);
	return b.graph;
}
