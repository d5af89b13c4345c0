/*
 * load.h
 *		An index's own nodes in memory, as a build has a table's.
 */
#ifndef PIPEANN_GATHER_H
#define PIPEANN_GATHER_H

#include "am/am.h"
#include "build/collect.h"

/* Nodes have numbers here; ids are those of the index as it was read. */
typedef struct PipeannGathered
{
	PipeannCollection c;
	PipeannVectors vectors;
	PipeannGraph *graph;		/* between numbers; the medoid is the root */
	uint32		ids;
	uint32	   *node_of_id;		/* [ids], INVALID_ID where there is no row */
	bool		wide;			/* wide vectors were met, and left out */
} PipeannGathered;

/* Bytes that it will take at most, for planning. */
extern Size PipeannGatherMemory(const PipeannIndexView *view);

/*
 * Read all nodes that have rows, of the first so many graph pages. Their rows
 * are all of them with `rows`, else one of each. Edges to what has none are
 * left out, and every node can be reached from the root.
 */
extern void PipeannGather(PipeannIndexView *view, uint32 pages, bool rows,
						  PipeannGathered *g);
extern void PipeannGatherFree(PipeannGathered *g);

#endif							/* PIPEANN_GATHER_H */
