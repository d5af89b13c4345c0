/*
 * measure.h
 *		The measure of graph.h with everything resolved once: which kernel,
 *		which formula, how many cache lines a vector takes.
 */
#ifndef PIPEANN_MEASURE_H
#define PIPEANN_MEASURE_H

#include "graph/graph.h"
#include "distance/distance.h"

#ifndef pg_attribute_always_inline
#define pg_attribute_always_inline __attribute__((always_inline)) inline
#endif

typedef struct PipeannMeasure
{
	PipeannPairFn pair;			/* squared L2 or inner product */
	const char *data;
	Size		stride;
	int			dim;
	int			bytes;			/* of one vector, as far as to prefetch it */
	const float *aux;			/* NULL: pair is the measure */
	bool		sum;			/* aux product is added (IP), not a factor */
	float		base;			/* 2 or 2 M^2 */
} PipeannMeasure;

extern void PipeannMeasureInit(PipeannMeasure *m, const PipeannVectors *v);

/*
 * Distances out[n] of node a from the nodes ids[n], whose vectors are fetched
 * into cache ahead of their use.
 */
extern void PipeannMeasureMany(const PipeannMeasure *m, uint32 a,
							   const uint32 *ids, int n, float *out);

static inline const char *
PipeannMeasureAt(const PipeannMeasure *m, uint32 i)
{
	return m->data + (Size) i * m->stride;
}

static inline void
PipeannMeasurePrefetch(const PipeannMeasure *m, uint32 i)
{
	const char *at = PipeannMeasureAt(m, i);
	int			offset;

	for (offset = 0; offset < m->bytes; offset += PIPEANN_CACHE_LINE)
		__builtin_prefetch(at + offset);
	/* An unaligned vector ends in one line more. */
	__builtin_prefetch(at + m->bytes - 1);
}

/*
 * From the kernel's result to the measure. Rounding may leave a distance just
 * below zero; callers order distances by their bits, which wants them >= 0.
 */
static inline float
PipeannMeasureFinish(const PipeannMeasure *m, float raw, uint32 a, uint32 b)
{
	float		aux;

	if (m->aux == NULL)
		return raw;
	aux = m->aux[a] * m->aux[b];
	raw = m->base - 2.0f * (m->sum ? raw + aux : raw * aux);
	return Max(raw, 0.0f);
}

static inline float
PipeannMeasurePair(const PipeannMeasure *m, uint32 a, uint32 b)
{
	float		raw = m->pair(PipeannMeasureAt(m, a), PipeannMeasureAt(m, b),
							  m->dim);

	return PipeannMeasureFinish(m, raw, a, b);
}

#endif							/* PIPEANN_MEASURE_H */
