/*
 * build.h
 *		Functions that the files of the graph's build share.
 */
#ifndef PIPEANN_GRAPH_BUILD_H
#define PIPEANN_GRAPH_BUILD_H

#include "graph/fixed.h"
#include "graph/graph.h"
#include "graph/reservoir.h"

/* clusters.c */
extern void PipeannCutClusters(PipeannTeam *team, const PipeannFixed *f,
							   const PipeannClusters *c, uint32 first,
							   uint32 end, uint64 seed,
							   PipeannReservoirs *r);

/* Bytes of memory for PipeannGraphConnect() of n nodes. */
static inline Size
PipeannReachMemory(uint32 n)
{
	return mul_size(n, 4 * sizeof(uint32) + 1);
}

#endif							/* PIPEANN_GRAPH_BUILD_H */
