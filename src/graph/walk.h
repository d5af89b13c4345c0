/*
 * walk.h
 *		The build's search: best first over the graph in memory.
 */
#ifndef PIPEANN_WALK_H
#define PIPEANN_WALK_H

#include "graph/graph.h"
#include "graph/key.h"
#include "graph/measure.h"

typedef struct PipeannWalk
{
	PipeannMeasure measure;
	int			ef;				/* length of the pool */

	PipeannKey *pool;			/* [ef], ascending */
	int			npool;
	int			first;			/* nothing before it waits for expansion */

	PipeannKey *dropped;		/* expanded, then pushed out of the pool */
	int			ndropped;
	int			max_dropped;

	uint64	   *visited;		/* a bit for each node */
	Size		visited_words;
	uint32	   *touched;		/* nodes whose bits are set ... */
	uint32		ntouched;
	uint32		max_touched;	/* ... as far as there is room */

	uint32	   *fresh;			/* [longest list] unvisited neighbours */
	float	   *fresh_dist;
} PipeannWalk;

/* Bytes that PipeannWalkInit() takes. */
extern Size PipeannWalkMemory(uint32 n, int stride, int ef);

extern void PipeannWalkInit(PipeannWalk *walk, const PipeannVectors *vectors,
							int stride, int ef);
extern void PipeannWalkFree(PipeannWalk *walk);

/*
 * Leaves in pool[] the nearest nodes to node that a search from start found,
 * all of them expanded, and in dropped[] the other nodes it expanded. Neither
 * has the node itself.
 */
extern void PipeannWalkSearch(PipeannWalk *walk, const PipeannGraph *graph,
							  uint32 node, uint32 start);

#endif							/* PIPEANN_WALK_H */
