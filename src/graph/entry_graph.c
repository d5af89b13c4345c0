/*
 * entry_graph.c
 *		The entry graph over a sample of the vectors.
 */
#include "base/base.h"

#include "graph/graph.h"

#define ENTRY_EF 64
#define ENTRY_ALPHA 1.2f

/* Vectors copied at once by one member. */
#define RUN 256

/*
 * The sample is copied to an array of its own, so that what is near in the
 * sample is near in memory. All members share it.
 */
static PipeannVectors
GatherSample(PipeannTeam *team, const PipeannVectors *vectors,
			 const uint32 *ids, uint32 n)
{
	PipeannVectors sample = *vectors;
	char	   *data = PipeannTeamAlloc(team, mul_size(n, vectors->stride));
	float	   *aux = NULL;
	uint64		from;
	uint64		to;

	if (vectors->aux != NULL)
		aux = PipeannTeamAlloc(team, mul_size(n, sizeof(float)));
	PipeannTeamBegin(team, n, RUN);
	while (PipeannTeamNext(team, &from, &to))
		for (uint64 i = from; i < to; i++)
		{
			memcpy(data + i * vectors->stride,
				   PipeannVectorAt(vectors, ids[i]),
				   PipeannElementSize(vectors->storage) * vectors->dim);
			if (aux != NULL)
				aux[i] = vectors->aux[ids[i]];
		}
	PipeannTeamEnd(team);
	sample.n = n;
	sample.data = data;
	sample.aux = aux;
	return sample;
}

/*
 * Build the entry graph (PipeANN 4.2.2, LAANN 4): a graph over the
 * sample ids[n_sample] of the vectors. Its node i stands for ids[i], and its
 * neighbours are positions in ids[]. Searches enter at its medoid, from which
 * all its nodes can be reached. The result is freed by PipeannGraphFree().
 */
PipeannGraph *
PipeannEntryGraphBuild(PipeannTeam *team, const PipeannVectors *vectors,
					   const uint32 *ids, uint32 n_sample, int max_degree,
					   uint64 seed)
{
	PipeannVectors sample = GatherSample(team, vectors, ids, n_sample);
	PipeannGraphParams params = {0};
	PipeannGraph *graph;

	params.max_degree = max_degree;
	params.ef_construction = ENTRY_EF;
	params.alpha = ENTRY_ALPHA;
	params.seed = seed;
	params.far = true;
	graph = PipeannGraphBuild(team, &sample, NULL, &params);
	PipeannTeamFree(team, (void *) sample.data);
	if (sample.aux != NULL)
		PipeannTeamFree(team, (void *) sample.aux);
	return graph;
}
