/*
 * search_test.c
 *		The search engine over pages in memory, whose reads complete late and in
 *		random order.
 */
#include "unit.h"

#include <math.h>

#include "graph/graph.h"
#include "distance/distance.h"
#include "search/search.h"

#define INLINE_TIDS 3
#define ENTRIES 64
#define ENTRY_DEGREE 16
#define CHUNK_SHIFT 8
#define QUERIES 40
/* Whole pages are scored, as far as nothing else is said. */
#define BY_PAGE (PIPEANN_DEFAULT_SWITCHES & ~PIPEANN_NODE_HITS)

#define K 10

/* Clusters make neighbours that matter; queries come from the same ones. */
#define CLUSTERS 30
#define SPREAD 0.3f

/*
 * An index: what its pages hold and what is known of it in memory.
 */
typedef struct Index
{
	PipeannLayout layout;
	int			n;				/* nodes */
	int			fill;			/* nodes to a page; slots after them are free */
	uint32		pages;
	uint32		ids;			/* pages * slots_per_page */
	Size		page_size;
	char	   *data;
	float	   *vectors;		/* [n][dim] as floats, by node number */
	uint32	   *order;			/* node number at a place */
	PipeannCodes codes;
	uint64		random;
} Index;

static uint32
IdAt(const Index *index, uint32 place)
{
	return place / index->fill * index->layout.slots_per_page +
		place % index->fill;
}

static PipeannSlot *
SlotOf(const Index *index, uint32 id)
{
	const PipeannLayout *l = &index->layout;

	return PipeannSlotAt(l, index->data + PipeannIdPage(l, id) *
						 index->page_size, PipeannIdSlot(l, id));
}

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

static void
MakeLayout(Index *index, int dim, PipeannMetric metric, PipeannStorage storage,
		   int max_degree, int slots)
{
	PipeannLayout *l = &index->layout;

	memset(l, 0, sizeof(*l));
	l->dim = dim;
	l->metric = metric;
	l->storage = storage;
	l->max_degree = max_degree;
	l->inline_tids = INLINE_TIDS;
	l->slots_per_page = slots;
	l->fill = slots;
	l->node_pages = 1;
	l->pq_bytes = dim / 2;
	l->tids_offset = PIPEANN_SLOT_HEADER + max_degree * sizeof(uint32);
	l->vector_offset = (l->tids_offset +
						INLINE_TIDS * sizeof(ItemPointerData) + 3) & ~3;
	l->slot_size = l->vector_offset +
		((dim * PipeannElementSize(storage) + 3) & ~3);
	index->page_size = (Size) slots * l->slot_size;
}

static void
MakeVectors(Index *index, PipeannVectors *v)
{
	const PipeannLayout *l = &index->layout;
	float	   *aux = PipeannAlloc(index->n * sizeof(float));
	double	   *norms = PipeannAlloc(index->n * sizeof(double));
	double		max_norm = 0;

	v->n = index->n;
	v->dim = l->dim;
	v->storage = l->storage;
	v->metric = l->metric;
	v->stride = l->dim * PipeannElementSize(l->storage);
	v->data = PipeannAlloc(v->n * v->stride);
	for (int i = 0; i < index->n; i++)
	{
		float	   *x = index->vectors + (Size) i * l->dim;

		RandomVector(&index->random, l->dim, l->storage == PIPEANN_UINT8, x);
		PipeannVectorFromFloat(x, l->storage, l->dim,
							   (char *) v->data + i * v->stride);
		norms[i] = 0;
		for (int j = 0; j < l->dim; j++)
			norms[i] += (double) x[j] * x[j];
		norms[i] = sqrt(norms[i]);
		max_norm = Max(max_norm, norms[i]);
	}
	for (int i = 0; i < index->n; i++)
		aux[i] = l->metric == PIPEANN_COSINE ? 1 / norms[i] :
			sqrt(Max(0, max_norm * max_norm - norms[i] * norms[i]));
	v->aux = l->metric == PIPEANN_L2 ? NULL : aux;
	v->max_norm = max_norm;
	free(norms);
}

static void
WritePages(Index *index, const PipeannVectors *v, const PipeannGraph *graph)
{
	const PipeannLayout *l = &index->layout;
	uint32	   *id_of = PipeannAlloc(index->n * sizeof(uint32));

	for (int i = 0; i < index->n; i++)
		id_of[index->order[i]] = IdAt(index, i);
	index->data = PipeannAllocZero(index->pages * index->page_size);
	for (int i = 0; i < index->n; i++)
	{
		PipeannSlot *slot = SlotOf(index, id_of[i]);

		slot->flags = PIPEANN_SLOT_USED;
		slot->degree = graph->degree[i];
		for (int j = 0; j < slot->degree; j++)
			slot->neighbors[j] = id_of[PipeannNeighbors(graph, i)[j]];
		slot->ext_tids = slot->ext_vec = PIPEANN_INVALID_ID;
		slot->aux = v->aux == NULL ? 0 : v->aux[i];
		slot->ntids = 1;
		PipeannSlotTids(l, slot)[0].bi_hi = i >> 16;
		PipeannSlotTids(l, slot)[0].bi_lo = i & 0xFFFF;
		PipeannSlotTids(l, slot)[0].ip_posid = 1;
		memcpy(PipeannSlotVector(l, slot), PipeannVectorAt(v, i), v->stride);
	}
	free(id_of);
}

/*
 * The vector whose code a node has: as it is, or normalised.
 */
static void
CodedVector(const Index *index, int i, float *out)
{
	const float *x = index->vectors + (Size) i * index->layout.dim;
	double		norm = 0;

	for (int j = 0; j < index->layout.dim; j++)
		norm += (double) x[j] * x[j];
	for (int j = 0; j < index->layout.dim; j++)
		out[j] = index->layout.metric == PIPEANN_COSINE ?
			x[j] / sqrt(norm) : x[j];
}

static void
MakeCodes(Index *index)
{
	int			dim = index->layout.dim;
	int			nchunks = index->layout.pq_bytes;
	int		   *start = PipeannAlloc(nchunks * sizeof(int));
	int		   *len = PipeannAlloc(nchunks * sizeof(int));
	Size	   *offset = PipeannAlloc(nchunks * sizeof(Size));
	float	   *centroids = PipeannAlloc(PipeannPqCentroidCount(dim) *
										 sizeof(float));
	float	   *samples = PipeannAlloc((Size) index->n * dim * sizeof(float));
	PipeannPq  *pq = &index->codes.pq;
	int			nchunk_arrays = (index->ids >> CHUNK_SHIFT) + 1;
	uint8	  **chunks = PipeannAlloc(nchunk_arrays * sizeof(uint8 *));

	PipeannPqLayout(dim, nchunks, start, len, offset);
	pq->dim = dim;
	pq->nchunks = nchunks;
	pq->start = start;
	pq->len = len;
	pq->offset = offset;
	for (int i = 0; i < index->n; i++)
		CodedVector(index, i, samples + (Size) i * dim);
	PipeannPqTrain(pq, samples, Min(index->n, 2000), 1, centroids, NULL, NULL);
	pq->centroids = centroids;

	for (int i = 0; i < nchunk_arrays; i++)
		chunks[i] = PipeannAllocZero((Size) nchunks << CHUNK_SHIFT);
	index->codes.chunks = chunks;
	index->codes.chunk_shift = CHUNK_SHIFT;
	index->codes.ncodes = index->ids;
	for (int i = 0; i < index->n; i++)
		PipeannPqEncode(pq, samples + (Size) index->order[i] * dim,
						(uint8 *) PipeannCodeAt(&index->codes,
												IdAt(index, i)));
	free(samples);
}

/*
 * The medoid stands first, so position 0 and its own change places.
 */
static uint32
Swapped(uint32 position, uint32 medoid)
{
	if (position == 0)
		return medoid;
	return position == medoid ? 0 : position;
}

static void
MakeEntryGraph(Index *index, const PipeannVectors *v)
{
	uint32		sample[ENTRIES];
	uint32	   *ids = PipeannAlloc(ENTRIES * sizeof(uint32));
	uint16	   *degrees = PipeannAlloc(ENTRIES * sizeof(uint16));
	uint32	   *neighbors = PipeannAllocZero(ENTRIES * ENTRY_DEGREE *
											 sizeof(uint32));
	PipeannGraph *graph;

	for (int i = 0; i < ENTRIES; i++)
		sample[i] = index->order[(uint64) i * index->n / ENTRIES];
	graph = PipeannEntryGraphBuild(v, sample, ENTRIES, ENTRY_DEGREE, 1,
								   NULL, NULL);
	for (uint32 i = 0; i < ENTRIES; i++)
	{
		uint32		from = Swapped(i, graph->medoid);

		ids[i] = IdAt(index, (uint64) from * index->n / ENTRIES);
		degrees[i] = graph->degree[from];
		for (int j = 0; j < degrees[i]; j++)
			neighbors[i * ENTRY_DEGREE + j] =
				Swapped(PipeannNeighbors(graph, from)[j], graph->medoid);
	}
	index->codes.entry_count = ENTRIES;
	index->codes.entry_degree = ENTRY_DEGREE;
	index->codes.entry_ids = ids;
	index->codes.entry_nneighbors = degrees;
	index->codes.entry_neighbors = neighbors;
	PipeannGraphFree(graph);
}

static Index *
MakeIndex(int n, int dim, PipeannMetric metric, PipeannStorage storage)
{
	Index	   *index = PipeannAllocZero(sizeof(Index));
	PipeannGraphParams params = {24, 60, 1.2f, 1};
	PipeannVectors v;
	PipeannGraph *graph;

	index->n = n;
	index->random = 42;
	MakeLayout(index, dim, metric, storage, params.max_degree, 10);
	index->fill = 9;
	index->pages = (n + index->fill - 1) / index->fill;
	index->ids = index->pages * index->layout.slots_per_page;
	index->vectors = PipeannAlloc((Size) n * dim * sizeof(float));
	index->order = PipeannAlloc(n * sizeof(uint32));
	MakeVectors(index, &v);
	graph = PipeannGraphBuild(&v, &params, NULL, NULL);
	PipeannGraphPack(graph, &v, index->fill, index->order, NULL, NULL);
	WritePages(index, &v, graph);
	MakeCodes(index);
	MakeEntryGraph(index, &v);
	PipeannGraphFree(graph);
	free((void *) v.data);
	free((void *) v.aux);
	return index;
}

/*
 * The page source. A page may be resident; a read takes a random number of
 * looks. A frame that is given back is overwritten, so that whoever still uses
 * it goes wrong.
 */
typedef struct MemoryFrame
{
	PipeannFrame frame;
	int			looks;			/* until it arrives */
	bool		came;			/* but next() has yet to tell */
	bool		told;			/* as READY */
	char	   *copy;
} MemoryFrame;

#define MAX_FRAMES 4096

typedef struct MemorySource
{
	PipeannPageSource source;
	const Index *index;
	PipeannCounters counters;
	MemoryFrame *frames[MAX_FRAMES];	/* held */
	int			nframes;
	bool	   *held;			/* [pages] */
	uint32	   *requests;		/* [pages] */
	int			resident;		/* per cent of the pages */
	int			mistakes;		/* breaches of the protocol */
	uint64		random;
} MemorySource;

static void
Land(MemorySource *memory, MemoryFrame *frame)
{
	const Index *index = memory->index;

	frame->copy = PipeannAlloc(index->page_size);
	memcpy(frame->copy, index->data + frame->frame.page * index->page_size,
		   index->page_size);
	frame->frame.slot = PIPEANN_ALL_SLOTS;
	frame->frame.nodes = frame->copy;
	frame->frame.state = PIPEANN_FRAME_READY;
}

/*
 * Leave in a frame's copy nothing but a slot, if one is asked for; now and then
 * the whole page comes all the same.
 */
static void
KeepSlot(MemorySource *memory, MemoryFrame *frame, int slot)
{
	const Index *index = memory->index;
	Size		size = index->layout.slot_size;

	memcpy(frame->copy, index->data + frame->frame.page * index->page_size,
		   index->page_size);
	frame->frame.slot = PIPEANN_ALL_SLOTS;
	if (slot == PIPEANN_ALL_SLOTS || UnitRandom(&memory->random) % 8 == 0)
		return;
	frame->frame.slot = slot;
	for (int i = 0; i < index->layout.slots_per_page; i++)
		if (i != slot)
			memset(frame->copy + i * size, 0x7E, size);
}

static bool
IsResident(const MemorySource *memory, uint32 page)
{
	return (page * 2654435761U >> 16) % 100 < (uint32) memory->resident;
}

static bool
IsBeingRead(const MemoryFrame *frame)
{
	return frame->frame.state == PIPEANN_FRAME_IN_FLIGHT && !frame->came;
}

/*
 * No more reads may start: wait for one. The search is told of it by next().
 */
static void
MakeRoom(MemorySource *memory)
{
	for (int i = 0; i < memory->nframes; i++)
		if (IsBeingRead(memory->frames[i]))
		{
			memory->frames[i]->came = true;
			memory->frames[i]->looks = 0;
			memory->source.in_flight--;
			return;
		}
}

static PipeannFrame *
MemoryRequest(PipeannPageSource *source, uint32 page, int slot)
{
	MemorySource *memory = (MemorySource *) source;
	MemoryFrame *frame = PipeannAllocZero(sizeof(MemoryFrame));

	if (page >= memory->index->pages)
	{
		printf("Bail out! page %u of %u was requested\n", page,
			   memory->index->pages);
		exit(1);
	}
	if (memory->held[page] || memory->nframes == MAX_FRAMES)
		memory->mistakes++;
	if (source->in_flight >= source->max_in_flight)
		MakeRoom(memory);
	memory->held[page] = true;
	memory->requests[page]++;
	memory->frames[memory->nframes++] = frame;
	frame->frame.page = page;
	if (IsResident(memory, page))
	{
		frame->frame.hit = true;
		frame->told = true;
		memory->counters.page_hits++;
		Land(memory, frame);
		KeepSlot(memory, frame, slot);
		return &frame->frame;
	}
	frame->frame.state = PIPEANN_FRAME_IN_FLIGHT;
	frame->looks = UnitRandom(&memory->random) % 6;
	source->in_flight++;
	memory->counters.page_reads++;
	memory->counters.in_flight_peak = Max(memory->counters.in_flight_peak,
										  (uint64) source->in_flight);
	return &frame->frame;
}

static PipeannFrame *
MemoryRequestResident(PipeannPageSource *source, uint32 page, int slot)
{
	return IsResident((MemorySource *) source, page) ?
		MemoryRequest(source, page, slot) : NULL;
}

/* Only of what may be asked for, and only while nothing was read. */
static void
MemoryPrefetch(PipeannPageSource *source, uint32 page, int slot)
{
	MemorySource *memory = (MemorySource *) source;

	if (page >= memory->index->pages || slot < PIPEANN_ALL_SLOTS ||
		slot >= (int) memory->index->layout.slots_per_page ||
		source->counters->page_reads > 0)
		memory->mistakes++;
}

static void
MemoryLoad(PipeannPageSource *source, PipeannFrame *frame, int slot)
{
	MemorySource *memory = (MemorySource *) source;

	if (frame->state != PIPEANN_FRAME_READY || !frame->hit ||
		frame->slot == PIPEANN_ALL_SLOTS || frame->slot == slot)
		memory->mistakes++;
	memory->requests[frame->page]++;
	KeepSlot(memory, (MemoryFrame *) frame, slot);
}

static void
MemorySubmit(PipeannPageSource *source)
{
	(void) source;
}

static bool
Untold(const MemorySource *memory)
{
	for (int i = 0; i < memory->nframes; i++)
		if (!memory->frames[i]->told)
			return true;
	return false;
}

static PipeannFrame *
MemoryNext(PipeannPageSource *source, bool wait)
{
	MemorySource *memory = (MemorySource *) source;
	int			first = memory->nframes == 0 ? 0 :
		UnitRandom(&memory->random) % memory->nframes;

	do
	{
		for (int i = 0; i < memory->nframes; i++)
		{
			MemoryFrame *frame = memory->frames[(first + i) % memory->nframes];

			if (frame->told || frame->looks-- > 0)
				continue;
			frame->told = true;
			if (IsBeingRead(frame))
				source->in_flight--;
			Land(memory, frame);
			return &frame->frame;
		}
	} while (wait && Untold(memory));
	return NULL;
}

static void
MemoryRelease(PipeannPageSource *source, PipeannFrame *released)
{
	MemorySource *memory = (MemorySource *) source;

	for (int i = 0; i < memory->nframes; i++)
	{
		MemoryFrame *frame = memory->frames[i];

		if (&frame->frame != released)
			continue;
		if (IsBeingRead(frame))
			source->in_flight--;
		memory->held[frame->frame.page] = false;
		memory->frames[i] = memory->frames[--memory->nframes];
		if (frame->copy != NULL)
			memset(frame->copy, 0x7E, memory->index->page_size);
		free(frame->copy);
		memset(frame, 0x7E, sizeof(*frame));
		free(frame);
		return;
	}
	memory->mistakes++;
}

static MemorySource *
OpenSource(const Index *index, int resident, uint64 seed)
{
	MemorySource *memory = PipeannAllocZero(sizeof(MemorySource));

	memory->source.request = MemoryRequest;
	memory->source.request_resident = MemoryRequestResident;
	memory->source.prefetch = MemoryPrefetch;
	memory->source.load = MemoryLoad;
	memory->source.submit = MemorySubmit;
	memory->source.next = MemoryNext;
	memory->source.release = MemoryRelease;
	memory->source.max_in_flight = 64;
	memory->source.counters = &memory->counters;
	memory->index = index;
	memory->held = PipeannAllocZero(index->pages);
	memory->requests = PipeannAllocZero(index->pages * sizeof(uint32));
	memory->resident = resident;
	memory->random = seed;
	return memory;
}

/* The last search that ended: the next one has its memory, whatever it is of. */
static PipeannSearch *idle = NULL;

static PipeannSearch *
BeginSearch(const PipeannLayout *layout, const PipeannCodes *codes,
			PipeannPageSource *source, const float *query,
			const PipeannSearchParams *params)
{
	PipeannSearch *search = idle != NULL ? idle : PipeannSearchCreate();

	idle = NULL;
	PipeannSearchBegin(search, layout, codes, source, query, params);
	return search;
}

/*
 * End a search: all pages have been given back, and no rule was broken.
 */
static void
EndSearch(PipeannSearch *search, MemorySource *memory)
{
	PipeannSearchReleasePages(search);
	idle = search;
	CHECK(memory->nframes == 0);
	CHECK(memory->source.in_flight == 0);
	CHECK(memory->mistakes == 0);
	free(memory->held);
	free(memory->requests);
	free(memory);
}

static void
MakeQuery(const Index *index, int number, float *query)
{
	uint64		random = 1000003 + number;
	double		norm = 0;

	RandomVector(&random, index->layout.dim,
				 index->layout.storage == PIPEANN_UINT8, query);
	if (index->layout.metric != PIPEANN_COSINE)
		return;
	for (int i = 0; i < index->layout.dim; i++)
		norm += (double) query[i] * query[i];
	for (int i = 0; i < index->layout.dim; i++)
		query[i] /= sqrt(norm);
}

/* Search an index for its query of this number, which goes to query[]. */
static PipeannSearch *
BeginQuery(const Index *index, const PipeannCodes *codes, MemorySource *memory,
		   int number, float *query, PipeannSearchParams *params)
{
	params->max_pages = MAX_FRAMES;
	MakeQuery(index, number, query);
	return BeginSearch(&index->layout, codes, &memory->source, query, params);
}

/* The order key of a node, computed from its vector. */
static double
KeyOf(const Index *index, const float *query, int node)
{
	const float *x = index->vectors + (Size) node * index->layout.dim;
	double		l2 = 0;
	double		dot = 0;
	double		norm = 0;

	for (int i = 0; i < index->layout.dim; i++)
	{
		l2 += ((double) x[i] - query[i]) * ((double) x[i] - query[i]);
		dot += (double) x[i] * query[i];
		norm += (double) x[i] * x[i];
	}
	if (index->layout.metric == PIPEANN_L2)
		return l2;
	return index->layout.metric == PIPEANN_IP ? -dot : -dot / sqrt(norm);
}

static int
CompareDoubles(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return (x > y) - (x < y);
}

/* Key of the k-th nearest node. */
static double
RadiusOf(const Index *index, const float *query, int k)
{
	double	   *keys = PipeannAlloc(index->n * sizeof(double));
	double		radius;

	for (int i = 0; i < index->n; i++)
		keys[i] = KeyOf(index, query, i);
	qsort(keys, index->n, sizeof(double), CompareDoubles);
	radius = keys[k - 1];
	free(keys);
	return radius;
}

static int
NodeOf(const PipeannSearch *search, const PipeannResult *result)
{
	const ItemPointerData *tid = PipeannSearchTids(search, result);

	return ((int) tid->bi_hi << 16) | tid->bi_lo;
}

/*
 * No more reads in flight than allowed. (A first beam is asked for while the
 * entry points' pages are still on their way.)
 */
static void
CheckWidth(const MemorySource *memory, const PipeannSearchParams *params)
{
	uint64		allowed = params->width;

	if (params->mode != PIPEANN_PIPE)
		allowed *= 2;
	if (params->width > 0)
		CHECK(memory->counters.in_flight_peak <= allowed);
}

/*
 * Search once; count how many of the K nearest are among the first K.
 */
static int
CountFound(const Index *index, int number, const PipeannSearchParams *params,
		   int resident)
{
	MemorySource *memory = OpenSource(index, resident, number);
	PipeannSearch *search;
	const PipeannResult *result;
	float		query[256];
	double		radius;
	float		last = -INFINITY;
	int			found = 0;

	MakeQuery(index, number, query);
	radius = RadiusOf(index, query, K);
	search = BeginSearch(&index->layout, &index->codes, &memory->source,
						 query, params);
	CHECK(PipeannSearchRun(search));
	CHECK(memory->counters.nodes_explored >= (uint64) params->ef);
	CHECK(memory->counters.exact_distances >= (uint64) params->ef);
	CHECK(memory->counters.code_distances <= index->ids + ENTRIES);
	CheckWidth(memory, params);
	for (int i = 0; i < K; i++)
	{
		double		key;

		result = PipeannSearchPop(search);
		if (!CHECK(result != NULL))
			break;
		key = KeyOf(index, query, NodeOf(search, result));
		CHECK(result->dist >= last);
		CHECK_CLOSE(result->dist, key, 1e-4 * fabs(key) + 1e-4);
		last = result->dist;
		if (key <= radius + 1e-9)
			found++;
	}
	EndSearch(search, memory);
	return found;
}

/* What Recall() has searches do. */
static bool by_slot = false;

static double
RecallWith(const Index *index, PipeannSearchMode mode, uint32 switches, int ef,
		   int width, int resident)
{
	PipeannSearchParams params = {.switches = switches};
	int			found = 0;

	params.mode = mode;
	params.ef = ef;
	params.width = width;
	params.max_pages = MAX_FRAMES;
	if (by_slot)
		params.switches |= PIPEANN_NODE_HITS;
	for (int i = 0; i < QUERIES; i++)
		found += CountFound(index, i, &params, resident);
	return (double) found / (QUERIES * K);
}

static double
Recall(const Index *index, PipeannSearchMode mode, int ef, int width,
	   int resident)
{
	return RecallWith(index, mode, BY_PAGE, ef, width,
					  resident);
}

static const PipeannSearchMode modes[] = {
	PIPEANN_BEST_FIRST, PIPEANN_PIPE, PIPEANN_STALE, PIPEANN_LOOK_AHEAD
};

#define MODES ((int) (sizeof(modes) / sizeof(modes[0])))

static Index *l2_index;

/* Reads of all queries together. */
static uint64
ReadsOf(PipeannSearchMode mode, uint32 switches, int resident)
{
	uint64		reads = 0;

	for (int i = 0; i < QUERIES; i++)
	{
		PipeannSearchParams params = {.switches = switches};
		MemorySource *memory = OpenSource(l2_index, resident, i);
		PipeannSearch *search;
		float		query[256];

		params.mode = mode;
		params.ef = 60;
		search = BeginQuery(l2_index, &l2_index->codes, memory, i,
							query, &params);
		CHECK(PipeannSearchRun(search));
		reads += memory->counters.page_reads;
		EndSearch(search, memory);
	}
	return reads;
}

static void
FindsTheNearest(void)
{
	static const int widths[] = {0, 1, 2, 64};

	for (int i = 0; i < MODES; i++)
		for (int j = 0; j < 4; j++)
			for (int resident = 0; resident <= 100; resident += 50)
			{
				double		recall = Recall(l2_index, modes[i], 100,
											widths[j], resident);

				if (!CHECK(recall >= 0.995))
					NOTE("mode %d, width %d, %d %% resident: recall %.3f",
						 modes[i], widths[j], resident, recall);
			}
}

/*
 * The same where only the nodes explored are taken from pages in memory: in
 * memory that is all that is scored, a list a sixth longer than else, and results
 * are as good; from the first read on nothing is otherwise.
 */
static void
FindsTheNearestBySlot(void)
{
	for (int i = 0; i < MODES; i++)
		for (int ef = 32; ef <= 100; ef += 34)
			for (int resident = 0; resident <= 100; resident += 50)
			{
				double		by_page = Recall(l2_index, modes[i], ef, 0, resident);
				double		recall;

				by_slot = true;
				recall = Recall(l2_index, modes[i], ef, 0, resident);
				by_slot = false;
				if (!CHECK(recall >= by_page - 0.01))
					NOTE("mode %d, ef %d, %d %% resident: recall %.3f, by page %.3f",
						 modes[i], ef, resident, recall, by_page);
			}
}

static void
ScoresWhatItExploresInMemory(void)
{
	for (int resident = 0; resident <= 100; resident += 100)
	{
		PipeannSearchParams params = {.switches = BY_PAGE};
		MemorySource *memory = OpenSource(l2_index, resident, 3);
		PipeannCounters *counters = &memory->counters;
		PipeannSearch *search;
		float		query[256];

		params.mode = PIPEANN_LOOK_AHEAD;
		params.ef = 60;
		params.switches |= PIPEANN_NODE_HITS;
		search = BeginQuery(l2_index, &l2_index->codes, memory, 3,
							query, &params);
		CHECK(PipeannSearchRun(search));
		if (resident == 100)
		{
			CHECK(counters->nodes_explored >= 60 + 60 / 7);
			CHECK(counters->nodes_explored <= 60 + 60 / 6 + 10);
			/* but for the pages that came whole */
			CHECK(counters->exact_distances <
				  counters->nodes_explored +
				  counters->page_hits * (l2_index->layout.slots_per_page - 1) / 3);
		}
		else
			CHECK(counters->exact_distances >
				  counters->page_reads * (l2_index->layout.slots_per_page - 2));
		EndSearch(search, memory);
	}
}

/*
 * Ids of the K nearest found in one run, as many as there are; returns the nodes
 * explored.
 */
static uint64
OneRun(PipeannSearchMode mode, int ef, int min_list, int resident, uint32 *ids)
{
	PipeannSearchParams params = {.switches = BY_PAGE | PIPEANN_NODE_HITS};
	MemorySource *memory = OpenSource(l2_index, resident, 3);
	PipeannSearch *search;
	float		query[256];
	const PipeannResult *result;
	uint64		explored;

	memset(ids, 0xFF, K * sizeof(uint32));
	params.mode = mode;
	params.ef = ef;
	params.min_list = min_list;
	search = BeginQuery(l2_index, &l2_index->codes, memory, 3, query, &params);
	CHECK(PipeannSearchRun(search));
	explored = memory->counters.nodes_explored;
	CHECK(PipeannSearchExplored(search) <= explored);
	for (int i = 0; i < K && (result = PipeannSearchPop(search)) != NULL; i++)
		ids[i] = result->id;
	EndSearch(search, memory);
	return explored;
}

/* With a list that is shorter than the least one, what is done with that one. */
static void
ExploresTheLeastList(void)
{
	for (int i = 0; i < MODES; i++)
		for (int resident = 0; resident <= 100; resident += 100)
		{
			uint32		found[K];
			uint32		wanted[K];
			uint64		explored = OneRun(modes[i], 5, 20, resident, found);

			CHECK(OneRun(modes[i], 20, 0, resident, wanted) == explored);
			CHECK(memcmp(found, wanted, sizeof(found)) == 0);
			CHECK(explored >= 20);
			CHECK(OneRun(modes[i], 5, 0, resident, found) < 20);
			CHECK(OneRun(modes[i], 20, 5, resident, found) == explored);
		}
}

/*
 * Each idea of a mode can be switched off, and all at once.
 */
static void
FindsWithoutItsIdeas(void)
{
	for (int i = 0; i < MODES; i++)
		for (uint32 off = 1; off < 0x400; off <<= 1)
			for (int resident = 0; resident <= 100; resident += 50)
			{
				uint32		last = off == 0x100 ? 0 :
					BY_PAGE & ~off;
				double		recall = RecallWith(l2_index, modes[i], last, 100,
												0, resident);

				if (!CHECK(recall >= 0.96))
					NOTE("mode %d, switches %x, %d %% resident: recall %.3f",
						 modes[i], last, resident, recall);
			}
}

/*
 * Pages that were read count as in memory: with these first, look_ahead reads
 * no more than best_first does; and page-mates that join the pool save reads.
 */
static void
ReadsLess(void)
{
	uint32		without = BY_PAGE & ~PIPEANN_PAGE_MATES;
	uint64		best_first = ReadsOf(PIPEANN_BEST_FIRST,
									 BY_PAGE, 30);
	uint64		look_ahead = ReadsOf(PIPEANN_LOOK_AHEAD,
									 BY_PAGE, 30);
	uint64		wide = ReadsOf(PIPEANN_PIPE, BY_PAGE &
							   ~PIPEANN_READ_PER_STEP, 0);
	uint64		pipe = ReadsOf(PIPEANN_PIPE, BY_PAGE, 0);
	uint64		no_mates = ReadsOf(PIPEANN_PIPE, without, 0);

	if (!CHECK(look_ahead <= best_first))
		NOTE("look_ahead %d reads, best_first %d", (int) look_ahead,
			 (int) best_first);
	if (!CHECK(pipe <= wide))
		NOTE("one read per step %d reads, all at once %d", (int) pipe,
			 (int) wide);
	if (!CHECK(pipe <= no_mates * 1.01))
		NOTE("with page-mates %d reads, without %d", (int) pipe,
			 (int) no_mates);
}

static void
FindsMoreWithALongerPool(void)
{
	for (int i = 0; i < MODES; i++)
	{
		double		at_10 = Recall(l2_index, modes[i], 10, 0, 50);
		double		at_40 = Recall(l2_index, modes[i], 40, 0, 50);
		double		at_300 = Recall(l2_index, modes[i], 300, 0, 50);

		CHECK(at_10 < at_40);
		CHECK(at_40 <= at_300);
		CHECK(at_300 >= 0.99);
	}
}

static void
FindsWithOtherMetricsAndStorage(void)
{
	static const PipeannMetric metrics[] = {PIPEANN_IP, PIPEANN_COSINE,
	PIPEANN_L2, PIPEANN_COSINE};
	static const PipeannStorage storage[] = {PIPEANN_FLOAT4, PIPEANN_FLOAT4,
	PIPEANN_UINT8, PIPEANN_UINT8};

	for (int i = 0; i < 4; i++)
	{
		Index	   *index = MakeIndex(2500, 16, metrics[i], storage[i]);

		for (int j = 0; j < MODES; j++)
		{
			double		recall = Recall(index, modes[j], 100, 0, 30);

			if (!CHECK(recall >= 0.95))
				NOTE("metric %d, storage %d, mode %d: recall %.3f",
					 metrics[i], storage[i], modes[j], recall);
		}
	}
}

/*
 * Run a search to its end, taking all results; each node may come only once.
 * Returns how many came.
 */
static int
TakeAll(const Index *index, PipeannSearch *search, uint8 *seen)
{
	const PipeannResult *result;
	int			n = 0;

	memset(seen, 0, index->ids);
	for (int runs = 0; PipeannSearchRun(search); runs++)
	{
		if (!CHECK(runs < index->n))
			break;
		while ((result = PipeannSearchPop(search)) != NULL)
		{
			CHECK(result->id < index->ids);
			CHECK(!seen[result->id]);
			CHECK(result->ntids <= INLINE_TIDS);
			seen[result->id] = true;
			n++;
		}
	}
	CHECK(!PipeannSearchRun(search));
	CHECK(PipeannSearchPop(search) == NULL);
	return n;
}

/*
 * A search that is asked to go on finds every node once; pages that it must
 * give back meanwhile are asked for again, the others are not.
 */
static void
GoesOnToTheEnd(void)
{
	static const uint32 max_pages[] = {MAX_FRAMES, 40, 0};
	uint8	   *seen = PipeannAlloc(l2_index->ids);

	for (int i = 0; i < 6 * MODES; i++)
	{
		PipeannSearchParams params = {.switches = BY_PAGE};
		MemorySource *memory = OpenSource(l2_index, 30, i);
		PipeannSearch *search;
		float		query[256];
		uint64		most = 0;

		params.mode = modes[i % MODES];
		params.ef = 20;
		params.max_pages = max_pages[i / MODES % 3];
		params.may_end_early = i >= 3 * MODES;
		MakeQuery(l2_index, i, query);
		search = BeginSearch(&l2_index->layout, &l2_index->codes,
							 &memory->source, query, &params);
		CHECK(TakeAll(l2_index, search, seen) == l2_index->n);
		CHECK(PipeannSearchExplored(search) == (uint64) l2_index->n);
		CHECK(memory->counters.nodes_explored >= (uint64) l2_index->n);
		CHECK(memory->counters.nodes_explored <= (uint64) l2_index->ids);
		CHECK(memory->counters.exact_distances == (uint64) l2_index->n);
		for (uint32 page = 0; page < l2_index->pages; page++)
			most = Max(most, memory->requests[page]);
		if (params.max_pages == MAX_FRAMES)
			CHECK(most == 1);
		EndSearch(search, memory);
	}
	free(seen);
}

/* What searches that may termination did, over all queries. */
typedef struct EndedEarly
{
	int			found;			/* of the K nearest */
	int			ended;			/* searches that ended early */
	uint64		reads;
	uint64		reads_at_end;	/* when they had gone on */
} EndedEarly;

static void
EndEarlyOnce(int number, const PipeannSearchParams *params, int resident,
		   EndedEarly *sum)
{
	MemorySource *memory = OpenSource(l2_index, resident, number);
	PipeannSearch *search;
	float		query[256];
	double		radius;

	MakeQuery(l2_index, number, query);
	radius = RadiusOf(l2_index, query, K);
	search = BeginSearch(&l2_index->layout, &l2_index->codes,
						 &memory->source, query, params);
	CHECK(PipeannSearchRun(search));
	sum->reads += memory->counters.page_reads;
	sum->ended += PipeannSearchEndedEarly(search);
	if (!PipeannSearchEndedEarly(search))
		CHECK(memory->counters.nodes_explored >= (uint64) params->ef);
	for (int i = 0; i < K; i++)
		sum->found += KeyOf(l2_index, query,
							NodeOf(search, PipeannSearchPop(search))) <=
			radius + 1e-9;
	if (PipeannSearchEndedEarly(search))
		CHECK(PipeannSearchRun(search));
	CHECK(!PipeannSearchEndedEarly(search));
	CHECK(PipeannSearchExplored(search) >= (uint64) params->ef);
	sum->reads_at_end += memory->counters.page_reads;
	EndSearch(search, memory);
}

/*
 * A search that may end early does so for some queries, reads less than the
 * whole list takes, and finds as much but for one in fifty; asked to go on it
 * explores the list.
 */
static void
EndsWhenTheNearestAreFound(void)
{
	for (int i = 0; i < MODES; i++)
		for (int resident = 0; resident <= 50; resident += 50)
		{
			PipeannSearchParams params = {
				.mode = modes[i],
				.ef = 60,
				.switches = BY_PAGE,
				.max_pages = MAX_FRAMES,
				.may_end_early = true
			};
			uint64		list = ReadsOf(modes[i], BY_PAGE,
									   resident);
			EndedEarly		sum = {0};

			for (int j = 0; j < QUERIES; j++)
				EndEarlyOnce(j, &params, resident, &sum);
			if (!CHECK(sum.ended > 0 && sum.found >= 0.98 * QUERIES * K &&
					   sum.reads < list && sum.reads_at_end > sum.reads))
				NOTE("mode %d, %d %% resident: %d ended, %d found, %d reads, "
					 "%d at the end, %d for the list", modes[i], resident,
					 sum.ended, sum.found, (int) sum.reads,
					 (int) sum.reads_at_end, (int) list);

			params.switches &= ~PIPEANN_ADAPTIVE_STOP;
			sum.ended = 0;
			EndEarlyOnce(0, &params, resident, &sum);
			CHECK(sum.ended == 0);
		}
}

/*
 * With all or nearly all pages in memory it does not end early.
 */
static void
DoesNotEndEarlyInMemory(void)
{
	for (int i = 0; i < MODES; i++)
		for (int resident = 99; resident <= 100; resident++)
		{
			PipeannSearchParams params = {
				.mode = modes[i],
				.ef = 60,
				.switches = BY_PAGE,
				.max_pages = MAX_FRAMES,
				.may_end_early = true
			};
			EndedEarly		sum = {0};

			for (int j = 0; j < QUERIES; j++)
				EndEarlyOnce(j, &params, resident, &sum);
			if (!CHECK(sum.ended == 0 && (resident == 100) == (sum.reads == 0)))
				NOTE("mode %d, %d %% resident: %d ended, %d reads", modes[i],
					 resident, sum.ended, (int) sum.reads);
		}
}

/*
 * Results that were found stay when the pages are gone.
 */
static void
ResultsOutliveThePages(void)
{
	PipeannSearchParams params = {.switches = BY_PAGE};
	MemorySource *memory = OpenSource(l2_index, 0, 1);
	PipeannSearch *search;
	const PipeannResult *result;
	float		query[256];
	int			n = 0;

	params.mode = PIPEANN_PIPE;
	params.ef = 50;
	search = BeginQuery(l2_index, &l2_index->codes, memory, 3, query, &params);
	CHECK(PipeannSearchRun(search));
	result = PipeannSearchPeek(search);
	CHECK(PipeannSearchSlot(search, result->id) != NULL);
	CHECK(PipeannSearchSlot(search, result->id)->flags == PIPEANN_SLOT_USED);
	PipeannSearchReleasePages(search);
	CHECK(memory->nframes == 0);
	CHECK(PipeannSearchSlot(search, result->id) == NULL);
	while ((result = PipeannSearchPop(search)) != NULL)
	{
		CHECK_CLOSE(KeyOf(l2_index, query, NodeOf(search, result)),
					result->dist, 1e-4);
		n++;
	}
	CHECK(n >= 50);
	CHECK((uint64) n == memory->counters.exact_distances);
	EndSearch(search, memory);
}

/*
 * Nodes without rows are passed through, not returned.
 */
static void
PassesThroughDeadNodes(void)
{
	Index	   *index = MakeIndex(2000, 8, PIPEANN_L2, PIPEANN_FLOAT4);
	uint8	   *seen = PipeannAlloc(index->ids);
	int			alive = 0;

	for (int i = 0; i < index->n; i++)
	{
		PipeannSlot *slot = SlotOf(index, IdAt(index, i));

		if (i % 10 == 0)
			alive++;
		else
			slot->ntids = 0;
	}
	for (int i = 0; i < MODES; i++)
	{
		PipeannSearchParams params = {.switches = BY_PAGE};
		MemorySource *memory = OpenSource(index, 30, i);
		PipeannSearch *search;
		float		query[256];

		params.mode = modes[i];
		params.ef = 20;
		search = BeginQuery(index, &index->codes, memory, i, query, &params);
		CHECK(TakeAll(index, search, seen) == alive);
		EndSearch(search, memory);
	}
	free(seen);
}

/* The first node of each page has dead rows only. */
static uint64
KillFirst(uint32 page, const char *nodes, uint64 *version, void *arg)
{
	(void) nodes;
	(void) arg;
	*version = page + 1;
	return 1;
}

static void
PassesOverKilledNodes(void)
{
	Index	   *index = MakeIndex(2000, 8, PIPEANN_L2, PIPEANN_FLOAT4);
	uint8	   *seen = PipeannAlloc(index->ids);
	int			alive = 0;

	for (int i = 0; i < index->n; i++)
		if (PipeannIdSlot(&index->layout, IdAt(index, i)) != 0)
			alive++;
	for (int i = 0; i < MODES; i++)
	{
		PipeannSearchParams params = {.switches = BY_PAGE};
		MemorySource *memory = OpenSource(index, 30, i);
		PipeannSearch *search;
		const PipeannResult *result;
		float		query[256];

		params.mode = modes[i];
		params.ef = 20;
		params.killed = KillFirst;
		search = BeginQuery(index, &index->codes, memory, i, query, &params);
		CHECK(PipeannSearchRun(search));
		result = PipeannSearchPeek(search);
		CHECK(PipeannIdSlot(&index->layout, result->id) != 0);
		CHECK(PipeannSearchVersion(search, result) ==
			  PipeannIdPage(&index->layout, result->id) + 1);
		CHECK(TakeAll(index, search, seen) == alive);
		EndSearch(search, memory);
	}
	free(seen);
}

/* A page whose version is another each time that it is looked at. */
static uint64
CountLooks(uint32 page, const char *nodes, uint64 *version, void *arg)
{
	uint32	   *looks = arg;

	(void) nodes;
	*version = ++looks[page];
	return 0;
}

/*
 * Slots that were taken from several versions of a page are of none: what the
 * executor finds out of their rows is not kept.
 */
static void
KnowsNoVersionOfSeveral(void)
{
	uint32	   *looks = PipeannAllocZero(l2_index->pages * sizeof(uint32));
	PipeannSearchParams params = {.switches = BY_PAGE};
	MemorySource *memory = OpenSource(l2_index, 100, 4);
	PipeannSearch *search;
	const PipeannResult *result;
	float		query[256];
	int			once = 0;
	int			again = 0;

	params.mode = PIPEANN_LOOK_AHEAD;
	params.ef = 200;
	params.switches |= PIPEANN_NODE_HITS;
	params.killed = CountLooks;
	params.killed_arg = looks;
	search = BeginQuery(l2_index, &l2_index->codes, memory, 4, query, &params);
	CHECK(PipeannSearchRun(search));
	while ((result = PipeannSearchPop(search)) != NULL)
	{
		uint32		seen = looks[PipeannIdPage(&l2_index->layout, result->id)];

		CHECK(PipeannSearchVersion(search, result) == (seen == 1 ? 1 : 0));
		once += seen == 1;
		again += seen > 1;
	}
	CHECK(once > 0 && again > 0);
	EndSearch(search, memory);
	free(looks);
}

/*
 * A chain of rows counts as rows.
 */
static void
ReturnsNodesWhoseRowsAreElsewhere(void)
{
	Index	   *index = MakeIndex(500, 8, PIPEANN_L2, PIPEANN_FLOAT4);
	PipeannSearchParams params = {.switches = BY_PAGE};
	MemorySource *memory = OpenSource(index, 30, 1);
	PipeannSearch *search;
	const PipeannResult *result;
	float		query[256];
	int			n = 0;

	for (int i = 0; i < index->n; i++)
	{
		SlotOf(index, IdAt(index, i))->ntids = 0;
		if (i % 5 == 0)
			SlotOf(index, IdAt(index, i))->ext_tids = i;
	}
	params.ef = 500;
	search = BeginQuery(index, &index->codes, memory, 1, query, &params);
	CHECK(PipeannSearchRun(search));
	while ((result = PipeannSearchPop(search)) != NULL)
	{
		CHECK(result->ntids == 0);
		CHECK(result->ext_tids % 5 == 0);
		n++;
	}
	CHECK(n == 100);
	EndSearch(search, memory);
}

static int	out_of_line_calls;

static float
OutOfLineDistance(uint32 id, const PipeannSlot *slot, void *arg)
{
	out_of_line_calls++;
	CHECK(id != PIPEANN_INVALID_ID);
	CHECK(slot->flags & PIPEANN_SLOT_OUT_OF_LINE);
	return *(const float *) arg;
}

static void
AsksForOutOfLineDistances(void)
{
	Index	   *index = MakeIndex(500, 8, PIPEANN_L2, PIPEANN_FLOAT4);
	PipeannSearchParams params = {.switches = BY_PAGE};
	MemorySource *memory = OpenSource(index, 30, 1);
	float		dist = -5;
	PipeannSearch *search;
	float		query[256];

	for (int i = 0; i < index->n; i += 50)
		SlotOf(index, IdAt(index, i))->flags |= PIPEANN_SLOT_OUT_OF_LINE;
	params.mode = PIPEANN_PIPE;
	params.ef = 500;
	params.out_of_line_distance = OutOfLineDistance;
	params.out_of_line_arg = &dist;
	search = BeginQuery(index, &index->codes, memory, 1, query, &params);
	CHECK(PipeannSearchRun(search));
	CHECK(out_of_line_calls == 10);
	for (int i = 0; i < 10; i++)
		CHECK(PipeannSearchPop(search)->dist == -5);
	CHECK(PipeannSearchPop(search)->dist >= 0);
	EndSearch(search, memory);
}

/*
 * A search by slot that meets an out-of-line vector scores all nodes of the pages that it
 * has, each once, and of those that it comes by.
 */
static void
GoesByPageAmongOutOfLineVectors(void)
{
	Index	   *index = MakeIndex(2500, 16, PIPEANN_L2, PIPEANN_FLOAT4);

	for (int wide = 0; wide < 2; wide++)
		for (int resident = 50; resident <= 100; resident += 50)
		{
			PipeannSearchParams params = {.switches = BY_PAGE};
			MemorySource *memory = OpenSource(index, resident, 1);
			float		dist = 1e6;
			uint8	   *seen = PipeannAllocZero(index->ids);
			uint32		pages = 0;
			uint32		results = 0;
			const PipeannResult *result;
			PipeannSearch *search;
			float		query[256];

			for (int i = 0; i < index->n; i += 20)
				SlotOf(index, IdAt(index, i))->flags |=
					wide ? PIPEANN_SLOT_OUT_OF_LINE : 0;
			params.mode = PIPEANN_LOOK_AHEAD;
			params.ef = 100;
			params.switches |= PIPEANN_NODE_HITS;
			params.out_of_line_distance = OutOfLineDistance;
			params.out_of_line_arg = &dist;
			search = BeginQuery(index, &index->codes, memory, 1,
								query, &params);
			CHECK(PipeannSearchRun(search));
			for (uint32 i = 0; i < index->pages; i++)
				pages += memory->held[i];
			while ((result = PipeannSearchPop(search)) != NULL)
			{
				CHECK(!seen[result->id]);
				seen[result->id] = true;
				results++;
			}
			CHECK(memory->counters.exact_distances == results);
			if (wide)
				CHECK(results >= (pages - 1) * index->fill);
			else if (resident == 100)
				CHECK(results < pages * index->fill * 2 / 3);
			free(seen);
			EndSearch(search, memory);
		}
}

/*
 * A page that was in memory, was let go, and has to be read when the search goes on
 * is left alone until it has come: the source counts it as a mistake otherwise.
 */
static void
LeavesPagesThatAreBeingRead(void)
{
	for (int i = 0; i < MODES * 4; i++)
	{
		Index	   *index = MakeIndex(2500, 16, PIPEANN_L2, PIPEANN_FLOAT4);
		PipeannSearchParams params = {.switches = PIPEANN_DEFAULT_SWITCHES};
		MemorySource *memory = OpenSource(index, 100, i);
		float		dist = 1e6;
		uint64		reads;
		PipeannSearch *search;
		float		query[256];

		params.mode = modes[i % MODES];
		params.ef = 40;
		params.max_pages = 0;
		params.out_of_line_distance = OutOfLineDistance;
		params.out_of_line_arg = &dist;
		MakeQuery(index, i, query);
		search = BeginSearch(&index->layout, &index->codes, &memory->source,
							 query, &params);
		CHECK(PipeannSearchRun(search));
		memory->resident = 0;
		for (int j = 0; j < index->n; j++)
			SlotOf(index, IdAt(index, j))->flags |= PIPEANN_SLOT_OUT_OF_LINE;
		reads = memory->counters.page_reads;
		for (int run = 0; run < 3; run++)
			(void) PipeannSearchRun(search);
		CHECK(memory->counters.page_reads > reads);
		EndSearch(search, memory);
	}
}

/*
 * So does one whose codes tell nothing, when its list is explored.
 */
static void
GoesByPageWhereCodesAreInDoubt(void)
{
	for (int doubtful = 0; doubtful < 2; doubtful++)
	{
		PipeannSearchParams params = {.switches = BY_PAGE};
		PipeannCodes codes = l2_index->codes;
		MemorySource *memory = OpenSource(l2_index, 100, 1);
		uint8	   *nothing = PipeannAllocZero(((Size) 1 << codes.chunk_shift) *
											   codes.pq.nchunks);
		uint32		nchunks = (codes.ncodes >> codes.chunk_shift) + 1;
		uint8	  **chunks = PipeannAlloc(nchunks * sizeof(uint8 *));
		uint32		pages = 0;
		PipeannSearch *search;
		float		query[256];

		for (uint32 i = 0; i < nchunks; i++)
			chunks[i] = doubtful ? nothing : codes.chunks[i];
		codes.chunks = chunks;
		params.mode = PIPEANN_LOOK_AHEAD;
		params.ef = 50;
		params.switches |= PIPEANN_NODE_HITS;
		search = BeginQuery(l2_index, &codes, memory, 1, query, &params);
		CHECK(PipeannSearchRun(search));
		for (uint32 i = 0; i < l2_index->pages; i++)
			pages += memory->held[i];
		if (doubtful)
			CHECK(memory->counters.exact_distances >=
				  (pages - 1) * l2_index->fill);
		else
			CHECK(memory->counters.exact_distances <
				  pages * l2_index->fill * 2 / 3);
		EndSearch(search, memory);
		free(chunks);
		free(nothing);
	}
}

/*
 * What the codes of out-of-line vectors err by is not known, so a search that meets one
 * explores its list.
 */
static void
DoesNotEndEarlyAmongOutOfLineVectors(void)
{
	Index	   *index = MakeIndex(2500, 16, PIPEANN_L2, PIPEANN_FLOAT4);
	int			ended[2] = {0, 0};

	for (int wide = 0; wide < 2; wide++)
	{
		for (int i = 0; wide && i < index->n; i++)
			SlotOf(index, IdAt(index, i))->flags |= PIPEANN_SLOT_OUT_OF_LINE;
		for (int i = 0; i < QUERIES; i++)
		{
			PipeannSearchParams params = {
				.mode = PIPEANN_LOOK_AHEAD,
				.ef = 60,
				.switches = BY_PAGE,
				.max_pages = MAX_FRAMES,
				.may_end_early = true,
				.out_of_line_distance = OutOfLineDistance
			};
			MemorySource *memory = OpenSource(index, 30, i);
			float		dist = i;
			PipeannSearch *search;
			float		query[256];

			params.out_of_line_arg = &dist;
			MakeQuery(index, i, query);
			search = BeginSearch(&index->layout, &index->codes,
								 &memory->source, query, &params);
			CHECK(PipeannSearchRun(search));
			ended[wide] += PipeannSearchEndedEarly(search);
			EndSearch(search, memory);
		}
	}
	CHECK(ended[0] > 0 && ended[1] == 0);
}

/*
 * Without codes every page is read, no more at a time than the source takes.
 */
static void
ReadsEverythingWithoutCodes(void)
{
	for (int max_in_flight = 1; max_in_flight <= 64; max_in_flight *= 4)
	{
		PipeannSearchParams params = {.switches = BY_PAGE};
		MemorySource *memory = OpenSource(l2_index, 20, max_in_flight);
		PipeannSearch *search;
		const PipeannResult *result;
		float		query[256];
		float		last = -INFINITY;
		int			n = 0;

		memory->source.max_in_flight = max_in_flight;
		MakeQuery(l2_index, max_in_flight, query);
		search = BeginSearch(&l2_index->layout, NULL, &memory->source,
							 query, &params);
		PipeannSearchExact(search, l2_index->pages);
		CHECK(memory->nframes == 0);
		CHECK(memory->counters.in_flight_peak <= (uint64) max_in_flight);
		CHECK(memory->counters.page_hits + memory->counters.page_reads ==
			  l2_index->pages);
		while ((result = PipeannSearchPop(search)) != NULL)
		{
			CHECK(result->dist >= last);
			last = result->dist;
			n++;
		}
		CHECK(n == l2_index->n);
		EndSearch(search, memory);
	}
}

/*
 * A source that takes a single read at a time is enough.
 */
static void
SmallSourcesAreEnough(void)
{
	for (int i = 0; i < 4 * MODES; i++)
	{
		PipeannSearchParams params = {.switches = BY_PAGE};
		MemorySource *memory = OpenSource(l2_index, 10, i);
		PipeannSearch *search;
		float		query[256];

		memory->source.max_in_flight = 1 << (i / MODES);
		params.mode = modes[i % MODES];
		params.ef = 30;
		search = BeginQuery(l2_index, &l2_index->codes, memory, i,
							query, &params);
		CHECK(PipeannSearchRun(search));
		CHECK(PipeannSearchRun(search));
		CHECK(memory->counters.in_flight_peak <= 1ULL << (i / MODES));
		EndSearch(search, memory);
	}
}

/*
 * Nothing to enter by, nothing to find.
 */
static void
EntersNowhere(void)
{
	for (int i = 0; i < MODES; i++)
	{
		PipeannSearchParams params = {.switches = BY_PAGE};
		MemorySource *memory = OpenSource(l2_index, 0, i);
		PipeannCodes codes = l2_index->codes;
		PipeannSearch *search;
		float		query[256];

		codes.entry_count = 0;
		params.mode = modes[i];
		params.ef = 10;
		search = BeginQuery(l2_index, &codes, memory, i, query, &params);
		(void) PipeannSearchRun(search);
		CHECK(!PipeannSearchRun(search));
		CHECK(PipeannSearchPop(search) == NULL);
		CHECK(memory->counters.page_hits + memory->counters.page_reads == 0);
		EndSearch(search, memory);
	}
}

/*
 * Overwrite some slots: wrong degrees, ids, counts, kinds, or all bytes.
 */
static void
Damage(Index *index, uint64 *random)
{
	for (uint32 id = 0; id < index->ids; id++)
	{
		PipeannSlot *slot = SlotOf(index, id);

		switch (UnitRandom(random) % 12)
		{
			case 0:
				slot->degree = (uint16) UnitRandom(random);
				break;
			case 1:
				for (int i = 0; i < index->layout.max_degree; i++)
					slot->neighbors[i] = (uint32) UnitRandom(random);
				slot->degree = index->layout.max_degree;
				break;
			case 2:
				slot->ntids = (uint16) UnitRandom(random);
				break;
			case 3:
				slot->flags = UnitRandom(random) % 4;
				break;
			case 4:
				slot->neighbors[0] = id;
				slot->neighbors[1] = id;
				slot->degree = 2;
				break;
			case 5:
				for (uint32 i = 0; i < index->layout.slot_size; i++)
					((uint8 *) slot)[i] = (uint8) UnitRandom(random);
				slot->flags &= ~PIPEANN_SLOT_OUT_OF_LINE;
				break;
			default:
				break;
		}
	}
}

static void
DamageEntries(PipeannCodes *codes, uint64 *random)
{
	uint32	   *ids = (uint32 *) codes->entry_ids;
	uint16	   *degrees = (uint16 *) codes->entry_nneighbors;
	uint32	   *neighbors = (uint32 *) codes->entry_neighbors;

	for (int i = 0; i < ENTRIES / 4; i++)
	{
		ids[1 + UnitRandom(random) % (ENTRIES - 1)] =
			(uint32) UnitRandom(random);
		degrees[UnitRandom(random) % ENTRIES] = (uint16) UnitRandom(random);
		neighbors[UnitRandom(random) % (ENTRIES * ENTRY_DEGREE)] =
			(uint32) UnitRandom(random);
	}
}

/* The page of the entry point that is nearest by its whole code. */
static uint32
PageOfNearestEntry(const Index *index, const float *query)
{
	const PipeannCodes *codes = &index->codes;
	float	   *table = PipeannAlloc((Size) codes->pq.nchunks *
									 PIPEANN_CENTROIDS * sizeof(float));
	float		least = INFINITY;
	uint32		page = 0;

	PipeannPqTable(&codes->pq, index->layout.metric, query, table);
	for (uint32 i = 0; i < codes->entry_count; i++)
	{
		const uint8 *code = PipeannCodeAt(codes, codes->entry_ids[i]);
		float		dist = 0;

		for (int j = 0; j < codes->pq.nchunks; j++)
			dist += table[j * PIPEANN_CENTROIDS + code[j]];
		if (dist >= least)
			continue;
		least = dist;
		page = PipeannIdPage(&index->layout, codes->entry_ids[i]);
	}
	free(table);
	return page;
}

/*
 * The first page asked for is that of the nearest entry point, whatever the mode
 * and the list's length, also when the search before it was another's.
 */
static void
BeginsAtTheNearestEntry(void)
{
	Index	   *index = MakeIndex(2500, 64, PIPEANN_L2, PIPEANN_FLOAT4);
	int			right = 0;

	for (int i = 0; i < 25; i++)
		for (int mode = 0; mode < MODES; mode++)
		{
			PipeannSearchParams params = {.switches = BY_PAGE};
			MemorySource *memory = OpenSource(index, 0, i);
			PipeannSearch *search;
			float		query[256];

			params.mode = modes[mode];
			params.ef = i % 5 == 0 ? 300 : 10;
			search = BeginQuery(index, &index->codes, memory, i,
								query, &params);
			CHECK(PipeannSearchRun(search));
			right += memory->frames[0]->frame.page ==
				PageOfNearestEntry(index, query);
			EndSearch(search, memory);
		}
	CHECK(right >= 25 * MODES * 95 / 100);
}

static void
SurvivesDamage(void)
{
	Index	   *index = MakeIndex(1500, 8, PIPEANN_L2, PIPEANN_FLOAT4);
	uint8	   *seen = PipeannAlloc(index->ids);
	uint64		random = 9;

	for (int round = 0; round < 20; round++)
	{
		Damage(index, &random);
		if (round >= 10)
			DamageEntries(&index->codes, &random);
		for (int i = 0; i < MODES; i++)
		{
			PipeannSearchParams params = {.switches = BY_PAGE};
			MemorySource *memory = OpenSource(index, 30, round);
			PipeannSearch *search;
			float		query[256];

			params.mode = modes[i];
			params.ef = 50;
			params.max_pages = round % 2 == 0 ? MAX_FRAMES : 20;
			MakeQuery(index, round, query);
			search = BeginSearch(&index->layout, &index->codes,
								 &memory->source, query, &params);
			(void) TakeAll(index, search, seen);
			EndSearch(search, memory);
		}
	}
	free(seen);
}

/*
 * Codes that cover fewer nodes than there are: the others are not reached.
 */
static void
StaysWithinItsCodes(void)
{
	PipeannCodes codes = l2_index->codes;
	uint8	   *seen = PipeannAlloc(l2_index->ids);

	codes.ncodes = l2_index->ids / 2;
	for (int i = 0; i < MODES; i++)
	{
		PipeannSearchParams params = {.switches = BY_PAGE};
		MemorySource *memory = OpenSource(l2_index, 30, i);
		PipeannSearch *search;
		float		query[256];

		params.mode = modes[i];
		params.ef = 50;
		search = BeginQuery(l2_index, &codes, memory, i, query, &params);
		CHECK(TakeAll(l2_index, search, seen) > l2_index->n / 3);
		for (uint32 page = codes.ncodes / l2_index->layout.slots_per_page + 1;
			 page < l2_index->pages; page++)
			CHECK(memory->requests[page] == 0);
		EndSearch(search, memory);
	}
	free(seen);
}

/*
 * A search in the memory of another, of another index and length, which went on
 * to the end, does what one in memory of its own does.
 */
static void
ForgetsTheSearchBefore(void)
{
	Index	   *other = MakeIndex(5000, 48, PIPEANN_COSINE, PIPEANN_FLOAT2);
	uint8	   *seen = PipeannAlloc(other->ids);

	for (int i = 0; i < MODES * 6; i++)
	{
		PipeannSearchParams params = {.switches = BY_PAGE};
		int			number = i / MODES;
		MemorySource *memory[3];
		PipeannSearch *search[2];
		float		query[256];

		params.mode = modes[i % MODES];
		params.max_pages = MAX_FRAMES;
		params.ef = 10 + 70 * number;
		memory[2] = OpenSource(other, 30, i);
		MakeQuery(other, i, query);
		search[1] = BeginSearch(&other->layout, &other->codes,
								&memory[2]->source, query, &params);
		(void) TakeAll(other, search[1], seen);
		EndSearch(search[1], memory[2]);

		params.ef = 200 - 30 * number;
		MakeQuery(l2_index, i, query);
		search[0] = PipeannSearchCreate();
		for (int j = 0; j < 2; j++)
		{
			memory[j] = OpenSource(l2_index, 30, i);
			if (j == 1)
				search[1] = idle;
			PipeannSearchBegin(search[j], &l2_index->layout, &l2_index->codes,
							   &memory[j]->source, query, &params);
			CHECK(PipeannSearchRun(search[j]));
		}
		CHECK(search[0] != search[1]);
		for (int j = 0; j < params.ef / 2; j++)
		{
			const PipeannResult *fresh = PipeannSearchPop(search[0]);
			const PipeannResult *again = PipeannSearchPop(search[1]);

			CHECK(fresh != NULL && again != NULL && fresh->id == again->id);
		}
		CHECK(memory[0]->counters.code_distances ==
			  memory[1]->counters.code_distances);
		CHECK(memory[0]->counters.page_reads == memory[1]->counters.page_reads);
		EndSearch(search[0], memory[0]);
		EndSearch(search[1], memory[1]);
	}
	free(seen);
}

int
main(void)
{
	PipeannKernelsInit();
	l2_index = MakeIndex(6000, 16, PIPEANN_L2, PIPEANN_FLOAT4);
	UNIT_RUN(FindsTheNearest);
	UNIT_RUN(FindsTheNearestBySlot);
	UNIT_RUN(ScoresWhatItExploresInMemory);
	UNIT_RUN(ExploresTheLeastList);
	UNIT_RUN(FindsWithoutItsIdeas);
	UNIT_RUN(ReadsLess);
	UNIT_RUN(FindsMoreWithALongerPool);
	UNIT_RUN(FindsWithOtherMetricsAndStorage);
	UNIT_RUN(GoesOnToTheEnd);
	UNIT_RUN(EndsWhenTheNearestAreFound);
	UNIT_RUN(DoesNotEndEarlyInMemory);
	UNIT_RUN(ResultsOutliveThePages);
	UNIT_RUN(PassesThroughDeadNodes);
	UNIT_RUN(PassesOverKilledNodes);
	UNIT_RUN(KnowsNoVersionOfSeveral);
	UNIT_RUN(ReturnsNodesWhoseRowsAreElsewhere);
	UNIT_RUN(AsksForOutOfLineDistances);
	UNIT_RUN(GoesByPageAmongOutOfLineVectors);
	UNIT_RUN(GoesByPageWhereCodesAreInDoubt);
	UNIT_RUN(LeavesPagesThatAreBeingRead);
	UNIT_RUN(DoesNotEndEarlyAmongOutOfLineVectors);
	UNIT_RUN(ReadsEverythingWithoutCodes);
	UNIT_RUN(SmallSourcesAreEnough);
	UNIT_RUN(EntersNowhere);
	UNIT_RUN(BeginsAtTheNearestEntry);
	UNIT_RUN(SurvivesDamage);
	UNIT_RUN(StaysWithinItsCodes);
	UNIT_RUN(ForgetsTheSearchBefore);
	return UnitDone();
}
