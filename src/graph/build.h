/*
 * build.h
 *		What the files of the build share.
 */
#ifndef PIPEANN_BUILD_H
#define PIPEANN_BUILD_H

#include "graph/graph.h"
#include "graph/walk.h"

/* The node nearest to the mean; a sample of the rows serves when many. */
extern uint32 PipeannMedoid(const PipeannVectors *vectors);

/*
 * Give every node that cannot be reached from the medoid an edge from a near
 * one that can, without cutting any other off, and those one from a near node
 * that seem to have none.
 */
extern void PipeannReachAll(PipeannGraph *graph, PipeannWalk *walk);

/* Bytes that PipeannReachAll() takes for n nodes. */
extern Size PipeannReachMemory(uint32 n);

#endif							/* PIPEANN_BUILD_H */
