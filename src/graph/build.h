/*
 * build.h
 *		Functions that the files of the graph's build share.
 */
#ifndef PIPEANN_GRAPH_BUILD_H
#define PIPEANN_GRAPH_BUILD_H

#include "graph/fixed.h"
#include "graph/graph.h"
#include "graph/reservoir.h"

/* Bytes of memory for PipeannGraphConnect() of n nodes. */
extern Size PipeannReachMemory(uint32 n);

/* ---------- candidates.c ---------- */

/* Places of a reservoir for these parameters. */
extern int	PipeannCandidatePlaces(const PipeannGraphParams *params);

/* Candidates that a leaf finds for a node whose reservoir has so many places. */
extern int	PipeannCandidatesNearest(int places);

/* Fill the reservoirs of all nodes. All members call. */
extern void PipeannFindCandidates(PipeannTeam *team, const PipeannFixed *f,
								  const PipeannClusters *c, uint64 seed,
								  PipeannReservoirs *r);

/*
 * Add candidates that are far to those of the nodes first .. end - 1. All
 * members call.
 */
extern void PipeannFindFarCandidates(PipeannTeam *team, const PipeannFixed *f,
									 uint64 seed, uint32 first, uint32 end,
									 PipeannReservoirs *r);

/* partition.c: cut the clusters from .. to - 1 into leaves. All members call. */
extern void PipeannCutClusters(PipeannTeam *team, const PipeannFixed *f,
							   const PipeannClusters *c, uint32 from,
							   uint32 to, int nearest, uint64 seed,
							   PipeannReservoirs *r);

/* ---------- shards.c ---------- */

/*
 * Candidates and neighbours of all nodes, where the reservoirs do not fit
 * memory. There must be clusters. All members call.
 */
extern void PipeannListsInShards(PipeannTeam *team, const PipeannVectors *v,
								 const PipeannFixed *f,
								 const PipeannClusters *c,
								 const PipeannGraphParams *params,
								 PipeannGraph *g);

/* ---------- lists.c ---------- */

/*
 * Choose the neighbours of the nodes first .. end - 1 among their candidates.
 * All members call.
 */
extern void PipeannMakeLists(PipeannTeam *team, const PipeannVectors *v,
							 const PipeannReservoirs *r, float alpha,
							 uint32 first, uint32 end, PipeannGraph *g);

#endif							/* PIPEANN_GRAPH_BUILD_H */
