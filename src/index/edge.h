/*
 * edge.h
 *		One edge that leads back to a node, in a list that other backends may
 *		change; private to index/.
 */
#ifndef PIPEANN_EDGE_H
#define PIPEANN_EDGE_H

#include "index/neighbors.h"

/* A node, while edges that lead to it are made. */
typedef struct PipeannNewNode
{
	const PipeannIndexView *view;
	uint32		id;
	PipeannVectorCache *cache;
	int			max_tree_edges; /* a list with so many spanning-tree edges
								 * takes no more */
	List	   *unlinked;		/* ids of nodes that cannot be its parent: no
								 * edges lead to them */
} PipeannNewNode;

/* The planned list of target. */
typedef struct PipeannReverseEdge
{
	uint32		target;
	PipeannSlot *seen;			/* target's slot when it was planned */
	uint32	   *list;
	int			n;
	int			tree_edges;
	bool		done;
} PipeannReverseEdge;

/* What may be done to target's list to have the edge. */
typedef enum PipeannEffort
{
	PIPEANN_IF_THERE,			/* an existing edge joins the spanning tree */
	PIPEANN_IF_ROOM,			/* a full list stays as it is */
	PIPEANN_PRUNE,				/* pruning a full list may drop it */
	PIPEANN_AS_TREE_EDGE		/* the edge is kept, as a spanning-tree edge */
} PipeannEffort;

/* The position of an id in a slot's list, or -1. */
extern int	PipeannListFind(const PipeannLayout *l, const PipeannSlot *slot,
							uint32 id);

/* Allocate the arrays of an edge. */
extern void PipeannReverseEdgeInit(const PipeannLayout *l, PipeannReverseEdge *edge);

/*
 * Plan an edge from target. False if there is to be none: pruning finds it
 * superfluous, target has all the spanning-tree edges that it may have, or
 * target is no node.
 */
extern bool PipeannPlanEdge(PipeannNewNode *node, uint32 target,
							PipeannEffort effort, PipeannReverseEdge *edge);

/*
 * Write the planned lists whose old lists have not changed, and set their
 * done.
 */
extern void PipeannApplyEdges(const PipeannIndexView *view,
							  PipeannReverseEdge *edges, int n);

/*
 * Make one edge, and try again while other backends change the list. False if
 * there is to be none; for a spanning-tree edge, which is made if there is any
 * room, this means that target cannot take it.
 */
extern bool PipeannLinkBack(PipeannNewNode *node, uint32 target,
							PipeannEffort effort);

/*
 * Make the edge in place of the last one of a full list, and let the node lead
 * to where that led, so that nothing is cut off.
 */
extern bool PipeannTakePlace(PipeannNewNode *node, PipeannReverseEdge *edge);

#endif							/* PIPEANN_EDGE_H */
