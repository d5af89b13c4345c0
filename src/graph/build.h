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

/* candidates.c */
extern int	PipeannCandidatePlaces(const PipeannGraphParams *params);
extern int	PipeannCandidatesNearest(int places);
extern void PipeannFindCandidates(PipeannTeam *team, const PipeannFixed *f,
								  const PipeannClusters *c, uint64 seed,
								  PipeannReservoirs *r);
extern void PipeannFindFarCandidates(PipeannTeam *team, const PipeannFixed *f,
									 uint64 seed, uint32 first, uint32 end,
									 PipeannReservoirs *r);

/* partition.c */
extern void PipeannCutClusters(PipeannTeam *team, const PipeannFixed *f,
							   const PipeannClusters *c, uint32 from,
							   uint32 to, int nearest, uint64 seed,
							   PipeannReservoirs *r);

/* shards.c */
extern void PipeannListsInShards(PipeannTeam *team, const PipeannVectors *v,
								 const PipeannFixed *f,
								 const PipeannClusters *c,
								 const PipeannGraphParams *params,
								 PipeannGraph *g);

/* lists.c */
extern void PipeannMakeLists(PipeannTeam *team, const PipeannVectors *v,
							 const PipeannReservoirs *r, float alpha,
							 uint32 first, uint32 end, PipeannGraph *g);

#endif							/* PIPEANN_GRAPH_BUILD_H */
