/*
 * clusters.h
 *		The first partition of all vectors, and an order of nodes that keeps near
 *		ones together.
 */
#ifndef PIPEANN_CLUSTERS_H
#define PIPEANN_CLUSTERS_H

#include "graph/leaf.h"

/* Members of cluster c are ids[starts[c]] .. ids[starts[c + 1] - 1]. */
struct PipeannClusters
{
	uint32		n;				/* 0: too few vectors to be cut */
	uint32	   *starts;			/* [n + 1] */
	uint32	   *ids;			/* a node is in several clusters */
	PipeannFixedScale scale;
};

extern void PipeannCutClusters(PipeannTeam *team, const PipeannFixed *f,
							   const PipeannClusters *c, uint32 first,
							   uint32 end, uint64 seed,
							   PipeannReservoirs *r);

#endif							/* PIPEANN_CLUSTERS_H */
