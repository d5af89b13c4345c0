/*
 * build.h
 *		Functions that the files of the graph's build share.
 */
#ifndef PIPEANN_GRAPH_BUILD_H
#define PIPEANN_GRAPH_BUILD_H

#include "graph/fixed.h"
#include "graph/graph.h"
#include "graph/reservoir.h"

/* reach.c */
extern Size PipeannReachMemory(uint32 n);

/* clusters.c */
extern void PipeannCutClusters(PipeannTeam *team, const PipeannFixed *f,
							   const PipeannClusters *c, uint32 first,
							   uint32 end, uint64 seed,
							   PipeannReservoirs *r);

#endif							/* PIPEANN_GRAPH_BUILD_H */
