/*
 * build.h
 *		Functions that the files of the graph's build share.
 */
#ifndef PIPEANN_BUILD_H
#define PIPEANN_BUILD_H

#include "graph/graph.h"
#include "graph/walk.h"

/* The node nearest to the mean, or to the mean of a sample if n is large. */
extern uint32 PipeannMedoid(const PipeannVectors *vectors);

/*
 * Give every node that cannot be reached from the medoid an edge from a near
 * one that can, without cutting any node off; and give nodes to which no near
 * node seems to lead an edge from one. Needs PipeannReachMemory() bytes.
 */
extern void PipeannReachAll(PipeannGraph *graph, PipeannWalk *walk);

/* Bytes of memory for PipeannReachAll() of n nodes. */
extern Size PipeannReachMemory(uint32 n);

#endif							/* PIPEANN_BUILD_H */
