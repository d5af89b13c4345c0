/*
 * graph.h
 *		The graph: built in memory, packed into pages by nearness.
 *
 * This room knows vectors and numbers of nodes in memory. It must not know
 * pages' format, ids, or a server.
 *
 * Vectors have the form in which they are stored on disk. One measure serves
 * search and pruning. For three metrics it is a squared Euclidean distance
 * with the same order:
 *
 *	L2		|a - b|^2
 *	cosine	2 - 2 * dot(a, b) * aux(a) * aux(b), aux = 1 / |v|
 *	IP		2 M^2 - 2 * (dot(a, b) + aux(a) * aux(b)), aux = sqrt(M^2 - |v|^2)
 *			with M the largest norm: one more coordinate makes all vectors
 *			equally long, and inner product search Euclidean search
 *
 * so Vamana's alpha means the same everywhere (it is applied to squared
 * distances, as in the reference: 1.2 there is 1.095 on distances). Hamming, Jaccard
 * and Manhattan distance are themselves squared Euclidean distances in some space: the
 * measure is what SQL calls the distance.
 */
#ifndef PIPEANN_GRAPH_H
#define PIPEANN_GRAPH_H

#include "base/base.h"
#include "base/team.h"
#include "distance/distance.h"

/* RobustPrune's alpha for squared distances: 1.095 on distances. */
#define PIPEANN_ALPHA 1.2f

typedef struct PipeannVectors
{
	uint32		n;
	int			dim;
	PipeannStorage storage;
	PipeannMetric metric;
	const char *data;			/* n vectors, stride bytes apart */
	Size		stride;
	const float *aux;			/* [n] for cosine and IP, else NULL */
	float		max_norm;		/* M above, for IP */
} PipeannVectors;

static inline bool
PipeannHasAux(PipeannMetric metric)
{
	return metric == PIPEANN_COSINE || metric == PIPEANN_IP;
}

/* The kernel that compares two stored vectors: by distance, or inner product if there is aux. */
static inline PipeannPairFn
PipeannPairKernel(PipeannMetric metric, PipeannStorage storage)
{
	if (PipeannHasAux(metric))
		return PipeannKernel->dot_pair[storage];
	if (metric == PIPEANN_JACCARD)
		return PipeannKernel->jaccard;
	return metric == PIPEANN_L1 ? PipeannKernel->l1_pair[storage] :
		PipeannKernel->l2_pair[storage];
}

/*
 * Whether a build compares vectors as they are stored from the first step on,
 * and not in fixed point (internal.h) while it looks for candidates.
 */
static inline bool
PipeannComparesStored(const PipeannVectors *v)
{
	return v->storage == PIPEANN_BITS || v->metric == PIPEANN_L1;
}

/* Vector i, in the storage. */
static inline const void *
PipeannVectorAt(const PipeannVectors *v, uint32 i)
{
	return v->data + (Size) i * v->stride;
}

typedef struct PipeannGraph
{
	uint32		n;
	int			max_degree;		/* R */
	uint16	   *degree;			/* [n], <= max_degree */
	uint32	   *neighbors;		/* [n][max_degree] */
	uint32		medoid;			/* start of every search */
} PipeannGraph;

/* The neighbour list of node i, of degree[i] ids. */
static inline uint32 *
PipeannNeighbors(const PipeannGraph *g, uint32 i)
{
	return g->neighbors + (Size) i * g->max_degree;
}

/* Whether list[n] has an id. */
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
	uint64		seed;
	bool		far;			/* has edges to far nodes: searches begin in
								 * this graph */
} PipeannGraphParams;

/*
 * The first partition of a build's vectors. If number[rows] is given, nodes are numbered so
 * that near ones follow one another, and number[i] is set for row i. Rows with skip[i]
 * (which may be NULL) get no number and are in no cluster. All members call.
 */
typedef struct PipeannClusters PipeannClusters;

/* Steps of the team that a build takes, with clusters given. */
#define PIPEANN_GRAPH_STEPS 7

typedef float (*PipeannPruneDistance) (uint32 a, uint32 b, void *arg);

typedef struct PipeannPruneParams
{
	float		alpha;
	int			max_degree;		/* the most to keep */
} PipeannPruneParams;

/* Returned by PipeannGivesWay() instead of a neighbour's place. */
#define PIPEANN_SUPERFLUOUS (-1)
#define PIPEANN_UNDECIDED (-2)

/* clusters.c */
extern PipeannClusters *PipeannClustersNew(PipeannTeam *team,
										   const PipeannVectors *rows,
										   const uint8 *skip, uint64 seed,
										   uint32 *number);
extern void PipeannClustersFree(PipeannTeam *team, PipeannClusters *clusters);

/* The number of leaders to whose clusters each vector goes. */
#define PIPEANN_FANOUT 10

/* Bytes that clusters need for each node. */
static inline Size
PipeannClusterMemory(void)
{
	return PIPEANN_FANOUT * (sizeof(uint16) + sizeof(uint32));
}

/*
 * reduce.c: reducing wide vectors to their first principal axes, to cluster
 * them, build their graph and pack it.
 */
#define PIPEANN_REDUCED_DIM 256

/* The most steps of the team that it takes. */
#define PIPEANN_REDUCE_STEPS 18

extern bool PipeannReduce(PipeannTeam *team, const PipeannVectors *v,
						  PipeannVectors *reduced);
extern Size PipeannReduceMemory(const PipeannVectors *v, Size *each);

/* build.c */
extern Size PipeannGraphMemory(uint32 n, const PipeannGraphParams *params,
							   const PipeannVectors *vectors);
extern Size PipeannGraphShardFiles(uint32 n, const PipeannGraphParams *params);
extern PipeannGraph *PipeannGraphBuild(PipeannTeam *team,
									   const PipeannVectors *vectors,
									   const PipeannClusters *clusters,
									   const PipeannGraphParams *params);
extern int	PipeannRobustPrune(uint32 *cand, float *dist, int ncand,
							   const PipeannPruneParams *params,
							   PipeannPruneDistance distance, void *arg,
							   uint32 *out);
extern int	PipeannGivesWay(const float *from_target, const float *from_node,
							int n, float own);
extern PipeannGraph *PipeannEntryGraphBuild(PipeannTeam *team,
											const PipeannVectors *vectors,
											const uint32 *ids, uint32 n_sample,
											int max_degree, uint64 seed);

/* pack.c */
extern void PipeannGraphPack(const PipeannGraph *graph,
							 const PipeannVectors *vectors, int fill,
							 uint32 *order,
							 PipeannTeam *team);

static inline void
PipeannGraphFree(PipeannTeam *team, PipeannGraph *graph)
{
	PipeannTeamFree(team, graph->degree);
	PipeannTeamFree(team, graph->neighbors);
	pfree(graph);
}

#endif							/* PIPEANN_GRAPH_H */
