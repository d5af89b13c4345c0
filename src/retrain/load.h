/*
 * load.h
 *		An index's own nodes in memory, in the form in which a build has a
 *		table's rows; private to retrain/.
 */
#ifndef PIPEANN_LOAD_H
#define PIPEANN_LOAD_H

#include "build/build.h"

/* Nodes have numbers here. Ids are those of the index when it was read. */
typedef struct PipeannLoadedGraph
{
	PipeannCollection c;
	PipeannVectors vectors;
	PipeannGraph *graph;		/* between numbers; the medoid is the root */
	uint32		ids;
	uint32	   *node_of_id;		/* [ids], INVALID_ID if the node has no rows */
	PipeannRowSizes sizes;		/* of rows with values in nodes' slots, and of
								 * all if they were read */
	bool		out_of_line;	/* there were out-of-line vectors, left out */
} PipeannLoadedGraph;

/* The most bytes that PipeannLoadGraph() takes, for planning. */
extern Size PipeannLoadGraphMemory(const PipeannIndexView *view);

/*
 * Read all nodes that have rows, of the first graph pages, with all their rows,
 * or with one invalid TID each if rows is false. Edges to other nodes are left
 * out, and every node can be reached from the root.
 */
extern void PipeannLoadGraph(PipeannIndexView *view, uint32 pages, bool rows,
							 PipeannLoadedGraph *g);
extern void PipeannLoadedGraphFree(PipeannLoadedGraph *g);

#endif							/* PIPEANN_LOAD_H */
