/*
 * neighbors.h
 *		Neighbour lists of an index in use: choosing a node's neighbours, and
 *		making edges that lead to it.
 *
 * This room knows lists on pages. It must not know why a list changes: an insert or
 * VACUUM.
 */
#ifndef PIPEANN_NEIGHBORS_H
#define PIPEANN_NEIGHBORS_H

#include "base/metric.h"
#include "graph/graph.h"
#include "index/index.h"

/* A list planned for a node, to replace the one that it had then. */
typedef struct PipeannListChange
{
	uint32		target;			/* the node */
	PipeannSlot *seen;			/* its slot when the list was planned */
	uint32	   *list;
	int			n;
	bool		done;
} PipeannListChange;

/* The kernel that compares two embedded vectors. */
static inline PipeannPairFn
PipeannEmbeddedPair(const PipeannLayout *l)
{
	PipeannMetric metric = PipeannMetrics[l->metric].graph;

	return PipeannPairKernel(PipeannHasAux(metric) ? PIPEANN_L2 : metric,
							 l->storage == PIPEANN_BITS ? PIPEANN_BITS : PIPEANN_FLOAT4);
}

/* neighbors.c */
extern void PipeannChangeLists(const PipeannIndexView *view,
							   PipeannListChange *changes, int n,
							   BufferAccessStrategy strategy);

extern void PipeannEmbed(const PipeannIndexView *view, const float *x,
						 float aux, void *out);
extern void PipeannEmbedSlot(const PipeannIndexView *view, uint32 id,
							 const PipeannSlot *slot, bool as_stored, float *x, void *out);
extern bool PipeannEmbedNode(const PipeannIndexView *view, uint32 id,
							 float *x, void *out);

#endif							/* PIPEANN_NEIGHBORS_H */
