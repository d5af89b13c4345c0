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

extern int	PipeannListFind(const PipeannLayout *l, const PipeannSlot *slot,
							uint32 id);
extern void PipeannReverseEdgeInit(const PipeannLayout *l, PipeannReverseEdge *edge);
extern bool PipeannPlanEdge(PipeannNewNode *node, uint32 target,
							PipeannEffort effort, PipeannReverseEdge *edge);
extern void PipeannApplyEdges(const PipeannIndexView *view,
							  PipeannReverseEdge *edges, int n);
extern bool PipeannLinkBack(PipeannNewNode *node, uint32 target,
							PipeannEffort effort);
extern bool PipeannTakePlace(PipeannNewNode *node, PipeannReverseEdge *edge);

#endif							/* PIPEANN_EDGE_H */
