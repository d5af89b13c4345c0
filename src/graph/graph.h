/*
 * graph.h
 *		The Vamana graph: built in memory, packed into pages by nearness.
 *
 * Vectors are held as they will be stored on disk. One measure serves search
 * and pruning, a squared Euclidean distance in which each metric's order is
 * embedded:
 *
 *	L2		|a - b|^2
 *	cosine	2 - 2 * dot(a, b) * aux(a) * aux(b), aux = 1 / |v|
 *	IP		2 M^2 - 2 * (dot(a, b) + aux(a) * aux(b)), aux = sqrt(M^2 - |v|^2)
 *			with M the largest norm: one more coordinate makes all vectors
 *			equally long, and inner product search Euclidean search
 *
 * so Vamana's alpha means the same everywhere (it is applied to squared
 * distances, as in the reference: 1.2 there is 1.095 on distances).
 */
#ifndef PIPEANN_GRAPH_H
#define PIPEANN_GRAPH_H

#include "base/base.h"

/* RobustPrune's alpha, on squared distances: 1.095 on distances. */
#define PIPEANN_ALPHA 1.2f

typedef struct PipeannVectors
{
	uint32		n;
	int			dim;
	PipeannStorage storage;
	PipeannMetric metric;
	const char *data;			/* n vectors, stride bytes apart */
	Size		stride;
	const float *aux;			/* [n] for cosine and IP, NULL for L2 */
	float		max_norm;		/* M above; IP only */
} PipeannVectors;

static inline const void *
PipeannVectorAt(const PipeannVectors *v, uint32 i)
{
	return v->data + (Size) i * v->stride;
}

/* The measure above, >= 0 up to rounding. */
extern float PipeannVectorsDistance(const PipeannVectors *v, uint32 a,
									uint32 b);

typedef struct PipeannGraph
{
	uint32		n;
	int			max_degree;		/* R */
	int			stride;			/* ids per node in neighbors[], >= R */
	uint16	   *degree;			/* [n], <= max_degree when built */
	uint32	   *neighbors;		/* [n][stride] */
	uint32		medoid;			/* where every search starts */
} PipeannGraph;

static inline uint32 *
PipeannNeighbors(const PipeannGraph *g, uint32 i)
{
	return g->neighbors + (Size) i * g->stride;
}

/* Whether a list of neighbours has one. */
static inline bool
PipeannListHas(const uint32 *list, int n, uint32 id)
{
	for (int i = 0; i < n; i++)
		if (list[i] == id)
			return true;
	return false;
}

typedef struct PipeannGraphParams
{
	int			max_degree;		/* R = 2 m */
	int			ef_construction;	/* L of the build */
	float		alpha;			/* on squared distances */
	uint64		seed;
} PipeannGraphParams;

typedef void (*PipeannGraphProgress) (uint32 done, void *arg);

/* Bytes that PipeannGraphBuild() will need for n nodes, its result included. */
extern Size PipeannGraphMemory(uint32 n, const PipeannGraphParams *params);

/*
 * Build. Nodes are inserted in a random order in batches that double in size;
 * a batch searches the graph as it was before the batch, prunes, and then the
 * back edges are applied grouped by target (ParlayANN, section 4): the result
 * depends on rows and options only. Every node ends with at least one
 * neighbour when n > 1, no node is its own neighbour, no list has a duplicate,
 * every node can be reached from the medoid, and nearly every one from a node
 * near it (reach.c).
 */
extern PipeannGraph *PipeannGraphBuild(const PipeannVectors *vectors,
									   const PipeannGraphParams *params,
									   PipeannGraphProgress progress,
									   void *arg);

/*
 * A graph without edges, for lists of up to max_degree. The caller fills in
 * degree[], neighbors[] and medoid.
 */
extern PipeannGraph *PipeannGraphNew(uint32 n, int max_degree);

/*
 * See that every node can be reached from the medoid: those that cannot get
 * an edge from one near them, of ef looked at, in place of one that nothing
 * depends on. So do those that no near node leads to.
 */
extern void PipeannGraphConnect(PipeannGraph *graph,
								const PipeannVectors *vectors, int ef);

extern void PipeannGraphFree(PipeannGraph *graph);

/*
 * RobustPrune (DiskANN, algorithm 2). cand[ncand] are candidate numbers, dist[]
 * their distance from the node; distance(a, b, arg) between two candidates.
 * Sorts cand and dist by distance, but for the forced ones, writes the kept
 * ones to out, the forced first, then the most needed first, and returns their
 * number. Serves insert and repair; the build does the same and fills lists up
 * to max_degree.
 */
typedef float (*PipeannPruneDistance) (uint32 a, uint32 b, void *arg);

typedef struct PipeannPruneParams
{
	float		alpha;
	int			max_degree;		/* most that are kept */
	int			forced;			/* the first candidates, kept in any case */
	int			fill;			/* fill up to this with the nearest dropped */
} PipeannPruneParams;

extern int	PipeannRobustPrune(uint32 *cand, float *dist, int ncand,
							   const PipeannPruneParams *params,
							   PipeannPruneDistance distance, void *arg,
							   uint32 *out);

/*
 * Mark a tree of edges that leads from the medoid to every node: the first
 * tree_edges[i] neighbours of node i (lists are put in another order), at most
 * `most` of them unless it takes more. tree_edges[n] is the caller's.
 */
extern void PipeannGraphSpan(PipeannGraph *graph, int most, uint8 *tree_edges);

/*
 * Page packing: order[] is a permutation of 0..n-1; nodes order[p * fill] ..
 * order[p * fill + fill - 1] share page p (the last page may have fewer).
 * Greedy: a seed, then the unassigned nodes of its two-hop neighbourhood
 * nearest to it; the next seed is the nearest one left over (PageANN's way).
 */
extern void PipeannGraphPack(const PipeannGraph *graph,
							 const PipeannVectors *vectors, int fill,
							 uint32 *order, PipeannGraphProgress progress,
							 void *arg);

/*
 * The entry graph (PipeANN 4.2.2, LAANN 4): a Vamana graph over the sample
 * ids[n_sample] of the vectors. Its node i stands for ids[i]; its neighbours
 * are positions in ids[]. A search enters at its medoid, from where all its
 * nodes can be reached, and walks by code distances. The result is freed by
 * PipeannGraphFree().
 */
extern PipeannGraph *PipeannEntryGraphBuild(const PipeannVectors *vectors,
											const uint32 *ids, uint32 n_sample,
											int max_degree, uint64 seed,
											PipeannGraphProgress progress,
											void *arg);

#endif							/* PIPEANN_GRAPH_H */
