/*
 * repack.h
 *		When codes and packing are made anew, and the packing; private to build/.
 */
#ifndef PIPEANN_BUILD_REPACK_H
#define PIPEANN_BUILD_REPACK_H

#include "build/coding.h"

/*
 * The factor of growth at which codes and packing are made anew. In a small
 * index that is quickly done, and adds little to the WAL of so many inserts.
 */
static inline uint32
PipeannGrowthFactor(const PipeannMeta *meta)
{
	return meta->nodes < 65536 ? 2 : 4;
}

/* repack.c: a new packing of the graph, as a build would make it */

typedef enum PipeannRepackResult
{
	PIPEANN_REPACK_DONE,
	PIPEANN_REPACK_LATER,		/* another backend is in the way */
	PIPEANN_REPACK_NEVER		/* no need, or no room */
} PipeannRepackResult;

extern PipeannRepackResult PipeannRepack(PipeannIndexView *view);

/* load.c: an index's own nodes, as a build has a table's rows */

/* Edges are between numbers; the medoid is the root. */
typedef struct PipeannLoadedGraph
{
	PipeannNodes nodes;
	PipeannGraph *graph;
	uint32		ids;			/* of the index when it was read */
	uint32	   *node_of_id;		/* [ids], INVALID_ID if the node has no rows */
	PipeannRowSizes sizes;		/* of rows with values in nodes' slots, and of
								 * all if they were read */
	bool		out_of_line;	/* there were out-of-line vectors, left out */
} PipeannLoadedGraph;

typedef void (*PipeannTakeNode) (uint32 id, const PipeannSlot *slot,
								 void *arg);

extern void PipeannVisitNodes(PipeannIndexView *view, uint32 pages, bool dead,
							  PipeannTakeNode take, void *arg);
extern Size PipeannLoadGraphMemory(const PipeannIndexView *view);
extern void PipeannLoadGraph(PipeannIndexView *view, uint32 pages, bool rows,
							 PipeannLoadedGraph *g);
extern void PipeannLoadedGraphFree(PipeannLoadedGraph *g);

#endif							/* PIPEANN_BUILD_REPACK_H */
