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

void
PipeannGraphConnect(PipeannTeam *team, PipeannGraph *graph,
					const PipeannVectors *vectors)
{
	PipeannReachAll(team, graph, vectors);
}

static void
CollectCandidates(PipeannTeam *team, const PipeannVectors *vectors,
				  const PipeannClusters *given, uint64 seed, bool far,
				  bool shards, PipeannReservoirs *r)
{
	PipeannClusters *own = NULL;
	PipeannFixed fixed;

	if (given == NULL)
		given = own = PipeannClustersNew(team, vectors, NULL, seed, NULL);
	PipeannFixedMake(team, &given->scale, vectors, &fixed);
	PipeannFindCandidates(team, &fixed, given, seed, shards, r);
	if (far)
		PipeannFindFarCandidates(team, &fixed, seed, r);
	PipeannFixedFree(team, &fixed);
	if (own != NULL)
		PipeannClustersFree(team, own);
}

PipeannGraph *
PipeannGraphBuild(PipeannTeam *team, const PipeannVectors *vectors,
				  const PipeannClusters *clusters,
				  const PipeannGraphParams *params)
{
	PipeannGraphParams sane = SaneParams(params);
	int			places = PipeannCandidatePlaces(&sane);
	PipeannReservoirs reservoirs;
	PipeannGraph *graph;
	bool		shards;

	shards = !PipeannTeamFits(team, mul_size(vectors->n,
											 PipeannReservoirMemory(places)));
	PipeannReservoirsInit(team, &reservoirs, vectors->n, places, false);
	CollectCandidates(team, vectors, clusters, sane.seed, sane.far, shards,
					  &reservoirs);
	graph = PipeannGraphNew(team, vectors->n, sane.max_degree);
	if (vectors->n > 0)
	{
		graph->medoid = PipeannMedoid(vectors);
		PipeannMakeLists(team, vectors, &reservoirs, sane.alpha, graph);
	}
	PipeannReservoirsFree(team, &reservoirs);
	if (vectors->n > 0)
		PipeannReachAll(team, graph, vectors);
	return graph;
}
