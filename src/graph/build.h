/*
 * build.h
 *		Functions that the files of the graph's build share.
 */
#ifndef PIPEANN_BUILD_H
#define PIPEANN_BUILD_H

#include "graph/fixed.h"
#include "graph/graph.h"
#include "graph/reservoir.h"

/* The node nearest to the mean, or to the mean of a sample if n is large. */
extern uint32 PipeannMedoid(const PipeannVectors *vectors);

/*
 * Give every node that cannot be reached from the medoid an edge from a near
 * one that can, without cutting any node off; and give nodes to which no near
 * node leads an edge from one. Needs PipeannReachMemory() bytes. All members
 * call.
 */
extern void PipeannReachAll(PipeannTeam *team, PipeannGraph *graph,
							const PipeannVectors *vectors);

/* Bytes of memory for PipeannReachAll() of n nodes. */
extern Size PipeannReachMemory(uint32 n);

/* ---------- candidates.c ---------- */

/* Places of a reservoir for these parameters. */
extern int	PipeannCandidatePlaces(const PipeannGraphParams *params);

/*
 * Fill the reservoirs of all nodes, in shards if r is a file. All members call.
 */
extern void PipeannFindCandidates(PipeannTeam *team, const PipeannFixed *f,
								  const PipeannClusters *c, uint64 seed,
								  bool shards, PipeannReservoirs *r);

/* Add to them candidates that are far. All members call. */
extern void PipeannFindFarCandidates(PipeannTeam *team, const PipeannFixed *f,
									 uint64 seed, PipeannReservoirs *r);

/* partition.c: cut the clusters from .. to - 1 into leaves. All members call. */
extern void PipeannCutClusters(PipeannTeam *team, const PipeannFixed *f,
							   const PipeannClusters *c, uint32 from,
							   uint32 to, int nearest, uint64 seed,
							   PipeannReservoirs *r);

/* ---------- shards.c ---------- */

/* The same for all clusters, where r is a file. */
extern void PipeannCutInShards(PipeannTeam *team, const PipeannFixed *f,
							   const PipeannClusters *c, int nearest,
							   uint64 seed, PipeannReservoirs *r);

/* ---------- lists.c ---------- */

/* Choose the neighbours of all nodes among their candidates. All members call. */
extern void PipeannMakeLists(PipeannTeam *team, const PipeannVectors *v,
							 const PipeannReservoirs *r, float alpha,
							 PipeannGraph *g);

#endif							/* PIPEANN_BUILD_H */
