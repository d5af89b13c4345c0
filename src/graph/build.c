/*
 * build.c
 *		Building the graph.
 */
#include "base/base.h"

#include "graph/build.h"
#include "graph/clusters.h"

/* The pool of candidates has to be long enough to fill a list. */
static PipeannGraphParams
SaneParams(const PipeannGraphParams *params)
{
	PipeannGraphParams sane = *params;

	sane.max_degree = Max(sane.max_degree, 1);
	sane.ef_construction = Max(sane.ef_construction, sane.max_degree);
	sane.alpha = Max(sane.alpha, 1.0f);
	return sane;
}

static Size
ListMemory(const PipeannGraphParams *params)
{
	return add_size(mul_size(params->max_degree, sizeof(uint32)),
					sizeof(uint16));
}

/*
 * Bytes that PipeannGraphBuild() needs for n nodes, with its result: what all
 * members share.
 *
 * Candidates are collected while the vectors are there in fixed point as well;
 * lists are made while the candidates are still there.
 */
Size
PipeannGraphMemory(uint32 n, const PipeannGraphParams *params,
				   const PipeannVectors *vectors)
{
	PipeannGraphParams sane = SaneParams(params);
	Size		reservoir =
		PipeannReservoirMemory(PipeannCandidatePlaces(&sane));
	Size		list = ListMemory(&sane);
	Size		candidates = add_size(PipeannFixedMemory(vectors->dim + 1),
									  PipeannClusterMemory());

	return add_size(mul_size(n, add_size(reservoir, Max(candidates, list))),
					PipeannReachMemory(n));
}

/*
 * Bytes of files that it needs beyond that where memory is short: an estimate.
 *
 * Lists are there together with vectors in fixed point, and logs take half as
 * much again as the reservoirs that they fill (ten million rows: 1.45).
 */
Size
PipeannGraphShardFiles(uint32 n, const PipeannGraphParams *params)
{
	PipeannGraphParams sane = SaneParams(params);

	return mul_size(n, add_size(ListMemory(&sane),
								PipeannReservoirMemory(PipeannCandidatePlaces(&sane)) / 2));
}

/*
 * A graph without edges, for lists of up to max_degree. The caller fills in
 * degree[], neighbors[] and medoid.
 */
PipeannGraph *
PipeannGraphNew(PipeannTeam *team, uint32 n, int max_degree)
{
	PipeannGraph *graph = palloc0(sizeof(PipeannGraph));

	graph->n = n;
	graph->max_degree = max_degree;
	graph->medoid = n > 0 ? 0 : PIPEANN_INVALID_ID;
	graph->degree = PipeannTeamAlloc(team, mul_size(n, sizeof(uint16)));
	graph->neighbors = PipeannTeamAlloc(team, mul_size(mul_size(n, max_degree),
													   sizeof(uint32)));
	return graph;
}

void
PipeannGraphFree(PipeannTeam *team, PipeannGraph *graph)
{
	PipeannTeamFree(team, graph->degree);
	PipeannTeamFree(team, graph->neighbors);
	pfree(graph);
}

/*
 * The node nearest to the mean, from which fixed-point vectors are measured.
 * In the embedding all vectors are equally long, except for L2.
 */
static uint32
Medoid(const PipeannFixed *f)
{
	uint32		medoid = 0;

	for (uint32 i = 1; i < f->n; i++)
		if (f->half_norm[i] < f->half_norm[medoid])
			medoid = i;
	return medoid;
}

/* All in memory: candidates first, which the vectors in fixed point make way for. */
static PipeannGraph *
BuildAtOnce(PipeannTeam *team, const PipeannVectors *v, PipeannFixed *f,
			const PipeannClusters *c, const PipeannGraphParams *params)
{
	uint32		medoid = Medoid(f);
	PipeannReservoirs r;
	PipeannGraph *graph;

	PipeannReservoirsInit(team, &r, v->n, PipeannCandidatePlaces(params),
						  false);
	PipeannFindCandidates(team, f, c, params->seed, &r);
	if (params->far)
		PipeannFindFarCandidates(team, f, params->seed, 0, v->n, &r);
	PipeannFixedFree(team, f);
	graph = PipeannGraphNew(team, v->n, params->max_degree);
	graph->medoid = medoid;
	PipeannMakeLists(team, v, &r, params->alpha, 0, v->n, graph);
	PipeannReservoirsFree(team, &r);
	return graph;
}

static PipeannGraph *
BuildInShards(PipeannTeam *team, const PipeannVectors *v, PipeannFixed *f,
			  const PipeannClusters *c, const PipeannGraphParams *params)
{
	PipeannGraph *graph = PipeannGraphNew(team, v->n, params->max_degree);

	graph->medoid = Medoid(f);
	PipeannListsInShards(team, v, f, c, params, graph);
	PipeannFixedFree(team, f);
	return graph;
}

/*
 * Build the graph (PiPNN, arXiv 2602.21247): candidates by partitioning
 * (candidates.c), RobustPrune among each node's candidates (lists.c), and
 * edges to those that would be missed (reach.c). The result depends on rows
 * and options only, not on the members of the team. In it every node has at
 * least one neighbour if n > 1, no node is its own neighbour, no list has a
 * duplicate, every node can be reached from the medoid, and nearly every one
 * from a node near it. clusters may be NULL. All members call.
 */
PipeannGraph *
PipeannGraphBuild(PipeannTeam *team, const PipeannVectors *vectors,
				  const PipeannClusters *clusters,
				  const PipeannGraphParams *params)
{
	PipeannGraphParams sane = SaneParams(params);
	Size		size = mul_size(vectors->n,
								PipeannReservoirMemory(PipeannCandidatePlaces(&sane)));
	PipeannClusters *own = NULL;
	PipeannFixed fixed;
	PipeannGraph *graph;

	if (vectors->n == 0)
		return PipeannGraphNew(team, 0, sane.max_degree);
	if (clusters == NULL)
		clusters = own = PipeannClustersNew(team, vectors, NULL, sane.seed,
											NULL);
	PipeannFixedMake(team, &clusters->scale, vectors, &fixed);
	if (clusters->n > 0 && !PipeannTeamFits(team, size))
		graph = BuildInShards(team, vectors, &fixed, clusters, &sane);
	else
		graph = BuildAtOnce(team, vectors, &fixed, clusters, &sane);
	if (own != NULL)
		PipeannClustersFree(team, own);
	PipeannGraphConnect(team, graph, vectors);
	return graph;
}
