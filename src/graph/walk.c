/*
 * walk.c
 *		The build's search: best first over the graph in memory (DiskANN,
 *		algorithm 1).
 *
 * Most time goes to memory access. So a list's vectors are prefetched together
 * before the first distance, and before them the list that will most likely be
 * expanded next. Visited nodes are bits, so that they stay in the second-level
 * cache; only the words that a search changed are cleared after it.
 */
#include "base/base.h"

#include "graph/walk.h"

#define MAX_TOUCHED 32768
#define FIRST_DROPPED 1024

static Size
VisitedWords(uint32 n)
{
	return ((Size) n + 63) / 64;
}

Size
PipeannWalkMemory(uint32 n, int stride, int ef)
{
	Size		size = mul_size(VisitedWords(n), sizeof(uint64));

	size = add_size(size, mul_size(ef, sizeof(PipeannKey)));
	size = add_size(size, FIRST_DROPPED * sizeof(PipeannKey));
	size = add_size(size, MAX_TOUCHED * sizeof(uint32));
	return add_size(size, mul_size(stride, sizeof(uint32) + sizeof(float)));
}

void
PipeannWalkInit(PipeannWalk *walk, const PipeannVectors *vectors, int stride,
				int ef)
{
	PipeannMeasureInit(&walk->measure, vectors);
	walk->ef = ef;
	walk->pool = PipeannAlloc(mul_size(ef, sizeof(PipeannKey)));
	walk->npool = 0;
	walk->max_dropped = FIRST_DROPPED;
	walk->dropped = PipeannAlloc(FIRST_DROPPED * sizeof(PipeannKey));
	walk->ndropped = 0;
	walk->visited_words = VisitedWords(vectors->n);
	walk->visited = PipeannAllocZero(mul_size(walk->visited_words,
											  sizeof(uint64)));
	walk->max_touched = MAX_TOUCHED;
	walk->touched = PipeannAlloc(MAX_TOUCHED * sizeof(uint32));
	walk->ntouched = 0;
	walk->fresh = PipeannAlloc(mul_size(stride, sizeof(uint32)));
	walk->fresh_dist = PipeannAlloc(mul_size(stride, sizeof(float)));
}

void
PipeannWalkFree(PipeannWalk *walk)
{
	pfree(walk->pool);
	pfree(walk->dropped);
	pfree(walk->visited);
	pfree(walk->touched);
	pfree(walk->fresh);
	pfree(walk->fresh_dist);
}

static void
ForgetVisited(PipeannWalk *walk)
{
	uint32		i;

	if (walk->ntouched > walk->max_touched)
		memset(walk->visited, 0, walk->visited_words * sizeof(uint64));
	else
		for (i = 0; i < walk->ntouched; i++)
			walk->visited[walk->touched[i] >> 6] = 0;
	walk->ntouched = 0;
}

/* Note a node as visited; returns whether it was before. */
static inline bool
Visit(PipeannWalk *walk, uint32 node)
{
	uint64	   *word = &walk->visited[node >> 6];
	uint64		old = *word;
	uint64		bit = UINT64_C(1) << (node & 63);

	*word = old | bit;
	return (old & bit) != 0;
}

static inline void
Remember(PipeannWalk *walk, uint32 node)
{
	if (walk->ntouched < walk->max_touched)
		walk->touched[walk->ntouched] = node;
	walk->ntouched++;
}

static void
KeepDropped(PipeannWalk *walk, PipeannKey key)
{
	if (walk->ndropped == walk->max_dropped)
	{
		Size		size = mul_size(mul_size(walk->max_dropped, 2),
									sizeof(PipeannKey));

		walk->dropped = PipeannRealloc(walk->dropped, size);
		walk->max_dropped *= 2;
	}
	walk->dropped[walk->ndropped++] = key;
}

static inline void
PoolInsert(PipeannWalk *walk, PipeannKey key)
{
	PipeannKey *pool = walk->pool;
	int			low = 0;
	int			len = walk->npool;

	if (walk->npool == walk->ef)
	{
		PipeannKey	last = pool[walk->npool - 1];

		if (key >= last)
			return;
		if (last & PIPEANN_KEY_EXPANDED)
			KeepDropped(walk, last);
		walk->npool--;
		len--;
	}
	while (len > 0)
	{
		int			half = len / 2;
		bool		right = pool[low + half] < key;

		low = right ? low + half + 1 : low;
		len = right ? len - half - 1 : half;
	}
	memmove(pool + low + 1, pool + low,
			sizeof(PipeannKey) * (walk->npool - low));
	pool[low] = key;
	walk->npool++;
	if (low < walk->first)
		walk->first = low;
}

/* Collect the neighbours not visited before; returns their number. */
static inline int
FreshNeighbors(PipeannWalk *walk, const PipeannGraph *graph, uint32 node)
{
	const uint32 *neighbors = PipeannNeighbors(graph, node);
	int			degree = graph->degree[node];
	int			nfresh = 0;
	int			i;

	for (i = 0; i < degree; i++)
	{
		uint32		neighbor = neighbors[i];

		walk->fresh[nfresh] = neighbor;
		nfresh += !Visit(walk, neighbor);
	}
	for (i = 0; i < nfresh; i++)
		Remember(walk, walk->fresh[i]);
	return nfresh;
}

static inline void
PrefetchList(const PipeannGraph *graph, uint32 node)
{
	const char *list = (const char *) PipeannNeighbors(graph, node);
	int			bytes = graph->max_degree * (int) sizeof(uint32);
	int			offset;

	__builtin_prefetch(&graph->degree[node]);
	for (offset = 0; offset < bytes; offset += PIPEANN_CACHE_LINE)
		__builtin_prefetch(list + offset);
}

static inline void
SkipExpanded(PipeannWalk *walk)
{
	while (walk->first < walk->npool &&
		   (walk->pool[walk->first] & PIPEANN_KEY_EXPANDED))
		walk->first++;
}

static inline void
Expand(PipeannWalk *walk, const PipeannGraph *graph, uint32 node,
	   uint32 expanded)
{
	int			nfresh = FreshNeighbors(walk, graph, expanded);
	int			i;

	if (walk->first < walk->npool)
		PrefetchList(graph, PipeannKeyId(walk->pool[walk->first]));
	PipeannMeasureMany(&walk->measure, node, walk->fresh, nfresh,
					   walk->fresh_dist);
	for (i = 0; i < nfresh; i++)
		PoolInsert(walk, PipeannKeyMake(walk->fresh_dist[i], walk->fresh[i]));
}

void
PipeannWalkSearch(PipeannWalk *walk, const PipeannGraph *graph, uint32 node,
				  uint32 start)
{
	ForgetVisited(walk);
	walk->npool = 0;
	walk->ndropped = 0;
	walk->first = 0;
	Visit(walk, node);
	Remember(walk, node);
	Visit(walk, start);
	Remember(walk, start);
	PoolInsert(walk, PipeannKeyMake(PipeannMeasurePair(&walk->measure, node,
													   start), start));
	while (walk->first < walk->npool)
	{
		PipeannKey *best = &walk->pool[walk->first];
		uint32		expanded = PipeannKeyId(*best);

		*best |= PIPEANN_KEY_EXPANDED;
		SkipExpanded(walk);
		Expand(walk, graph, node, expanded);
		SkipExpanded(walk);
	}
}
