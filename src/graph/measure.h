/*
 * measure.h
 *		The measure of graph.h with kernel, formula and size of a vector looked
 *		up once.
 */
#ifndef PIPEANN_MEASURE_H
#define PIPEANN_MEASURE_H

#include "graph/graph.h"

typedef struct PipeannMeasure
{
	PipeannPairFn pair;			/* the distance, or inner product */
	const char *data;
	Size		stride;
	int			dim;
	int			bytes;			/* of one vector, to prefetch */
	const float *aux;			/* NULL: pair is the measure */
	bool		sum;			/* the aux product is added (IP) */
	float		base;			/* 2 or 2 M^2 */
} PipeannMeasure;

static inline const char *
PipeannMeasureAt(const PipeannMeasure *m, uint32 i)
{
	return m->data + (Size) i * m->stride;
}

static inline void
PipeannMeasurePrefetch(const PipeannMeasure *m, uint32 i)
{
	const char *at = PipeannMeasureAt(m, i);

	for (int offset = 0; offset < m->bytes; offset += PIPEANN_CACHE_LINE)
		__builtin_prefetch(at + offset);
	/* an unaligned vector may need one line more */
	__builtin_prefetch(at + m->bytes - 1);
}

/*
 * Turn the kernel's result into the measure. Rounding may make a distance
 * negative; but callers order distances by their bits, so they must be >= 0.
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

extern void PipeannMeasureInit(PipeannMeasure *m, const PipeannVectors *v);
extern void PipeannMeasureMany(const PipeannMeasure *m, uint32 a,
							   const uint32 *ids, int n, float *out);

#endif							/* PIPEANN_MEASURE_H */
