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
	int			first;			/* all keys before it are expanded */

	PipeannKey *dropped;		/* expanded nodes that left the pool */
	int			ndropped;
	int			max_dropped;

	uint64	   *visited;		/* a bit for each node */
	Size		visited_words;
	uint32	   *touched;		/* nodes whose bits are set */
	uint32		ntouched;
	uint32		max_touched;	/* beyond that all of visited is cleared */

	uint32	   *fresh;			/* [longest list] unvisited neighbours */
	float	   *fresh_dist;
} PipeannWalk;

/* Bytes of memory for PipeannWalkInit(). */
extern Size PipeannWalkMemory(uint32 n, int stride, int ef);

extern void PipeannWalkInit(PipeannWalk *walk, const PipeannVectors *vectors,
							int stride, int ef);
extern void PipeannWalkFree(PipeannWalk *walk);

/*
 * Search for the nodes nearest to `node`, from start. Leaves the nearest in
 * pool[], all expanded, and other expanded nodes in dropped[]. Neither has the
 * node itself.
 */
extern void PipeannWalkSearch(PipeannWalk *walk, const PipeannGraph *graph,
							  uint32 node, uint32 start);

#endif							/* PIPEANN_WALK_H */
