/*
 * measure.c
 *		The one measure of search and pruning (see graph.h).
 */
#include "base/base.h"

#include "graph/internal.h"

/*
 * Bytes to prefetch: enough to hide memory latency, but few enough for the
 * first vectors to stay in the first-level cache until their turn.
 */
#define PREFETCH_BYTES 4096

/* Prepare the measure of these vectors, which must outlive it. */
void
PipeannMeasureInit(PipeannMeasure *m, const PipeannVectors *v)
{
	m->pair = PipeannPairKernel(v->metric, v->storage);
	m->data = v->data;
	m->stride = v->stride;
	m->dim = v->dim;
	m->bytes = (int) PipeannVectorBytes(v->storage, v->dim);
	m->aux = v->aux;
	m->sum = v->metric == PIPEANN_IP;
	m->base = m->sum ? 2.0f * v->max_norm * v->max_norm : 2.0f;
}

/*
 * Sets out[n] to the distances of node a from the nodes ids[n], and prefetches
 * their vectors.
 */
void
PipeannMeasureMany(const PipeannMeasure *m, uint32 a, const uint32 *ids, int n,
				   float *out)
{
	const char *from = PipeannMeasureAt(m, a);
	int			ahead = Min(n, Max(2, PREFETCH_BYTES / m->bytes));

	for (int i = 0; i < ahead; i++)
		PipeannMeasurePrefetch(m, ids[i]);
	for (int i = 0; i < n; i++)
	{
		if (i + ahead < n)
			PipeannMeasurePrefetch(m, ids[i + ahead]);
		out[i] = m->pair(from, PipeannMeasureAt(m, ids[i]), m->dim);
	}
	if (m->aux != NULL)
		for (int i = 0; i < n; i++)
			out[i] = PipeannMeasureFinish(m, out[i], a, ids[i]);
}
