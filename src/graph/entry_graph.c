/*
 * entry_graph.c
 *		The entry graph over a sample of the vectors.
 */
#include "base/base.h"

#include "graph/graph.h"

#define ENTRY_EF 64
#define ENTRY_ALPHA 1.2f

/*
 * The sample is copied to an array of its own, so that the build uses less
 * memory.
 */
static PipeannVectors
GatherSample(const PipeannVectors *vectors, const uint32 *ids, uint32 n)
{
	PipeannVectors sample = *vectors;
	char	   *data = PipeannAlloc(mul_size(Max(n, 1), vectors->stride));
	float	   *aux = NULL;
	uint32		i;

	if (vectors->aux != NULL)
		aux = PipeannAlloc(mul_size(Max(n, 1), sizeof(float)));
	for (i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		memcpy(data + i * vectors->stride, PipeannVectorAt(vectors, ids[i]),
			   PipeannElementSize(vectors->storage) * vectors->dim);
		if (aux != NULL)
			aux[i] = vectors->aux[ids[i]];
	}
	sample.n = n;
	sample.data = data;
	sample.aux = aux;
	return sample;
}

PipeannGraph *
PipeannEntryGraphBuild(PipeannTeam *team, const PipeannVectors *vectors,
					   const uint32 *ids, uint32 n_sample, int max_degree,
					   uint64 seed)
{
	PipeannVectors sample = GatherSample(vectors, ids, n_sample);
	PipeannGraphParams params = {0};
	PipeannGraph *graph;

	params.max_degree = max_degree;
	params.ef_construction = ENTRY_EF;
	params.alpha = ENTRY_ALPHA;
	params.seed = seed;
	params.far = true;
	graph = PipeannGraphBuild(team, &sample, NULL, &params);
	pfree((void *) sample.data);
	if (sample.aux != NULL)
		pfree((void *) sample.aux);
	return graph;
}
