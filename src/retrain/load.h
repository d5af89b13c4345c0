/*
 * load.h
 *		An index's own nodes in memory, as a build has a table's.
 */
#ifndef PIPEANN_LOAD_H
#define PIPEANN_LOAD_H

#include "build/build.h"

/* Nodes have numbers here; ids are those of the index as it was read. */
typedef struct PipeannLoadedGraph
{
	PipeannCollection c;
	PipeannVectors vectors;
	PipeannGraph *graph;		/* between numbers; the medoid is the root */
	uint32		ids;
	uint32	   *node_of_id;		/* [ids], INVALID_ID where there is no row */
	bool		out_of_line;			/* out-of-line vectors were met, and left out */
} PipeannLoadedGraph;

/* Bytes that it will take at most, for planning. */
extern Size PipeannLoadGraphMemory(const PipeannIndexView *view);

/*
 * Read all nodes that have rows, of the first so many graph pages. Their rows
 * are all of them with `rows`, else one of each. Edges to what has none are
 * left out, and every node can be reached from the root.
 */
extern void PipeannLoadGraph(PipeannIndexView *view, uint32 pages, bool rows,
							 PipeannLoadedGraph *g);
extern void PipeannLoadedGraphFree(PipeannLoadedGraph *g);

#endif							/* PIPEANN_LOAD_H */
