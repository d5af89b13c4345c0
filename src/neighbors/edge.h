/*
 * edge.h
 *		One edge back to a node, in a list that others may change; private to
 *		neighbors/.
 */
#ifndef PIPEANN_EDGE_H
#define PIPEANN_EDGE_H

#include "neighbors/neighbors.h"

/*
 * A node while others' edges to it are made.
 */
typedef struct PipeannNewNode
{
	const PipeannIndexView *view;
	uint32		id;
	PipeannVectorCache *cache;
	int			max_tree_edges;		/* that a list may have for the node's to be
								 * added */
} PipeannNewNode;

/* What target's list is to become. */
typedef struct PipeannBackEdge
{
	uint32		target;
	PipeannSlot *seen;			/* its slot as it was */
	uint32	   *list;
	int			n;
	int			tree_edges;
	bool		done;
} PipeannBackEdge;

/* What is done for an edge back. */
typedef enum PipeannEffort
{
	PIPEANN_IF_THERE,					/* an edge that the list has joins the tree */
	PIPEANN_IF_ROOM,					/* a full list is left as it is */
	PIPEANN_PRUNE,
	PIPEANN_AS_TREE_EDGE				/* it must be, and stay */
} PipeannEffort;

/* Where a slot's list has an id, or -1. */
extern int	PipeannListFind(const PipeannLayout *l, const PipeannSlot *slot,
							uint32 id);

/* Give an edge the memory that planning it takes. */
extern void PipeannBackEdgeInit(const PipeannLayout *l, PipeannBackEdge *edge);

/*
 * Work out an edge from target. False if there is none to be: pruning finds it
 * superfluous, or target has all the spanning-tree edges that it can take, or is no
 * node.
 */
extern bool PipeannPlanEdge(PipeannNewNode *node, uint32 target,
							PipeannEffort effort, PipeannBackEdge *edge);

/* Change the lists of planned edges that are still what they were: they are done. */
extern void PipeannApplyEdges(const PipeannIndexView *view,
							  PipeannBackEdge *edges, int n);

/*
 * One edge, again while others change the list. False if there is none to be;
 * but one that is to lead to the node for good is made as soon as there is room
 * for it, so that false then says that target cannot take it.
 */
extern bool PipeannLinkBack(PipeannNewNode *node, uint32 target,
							PipeannEffort effort);

/*
 * Take over the place of a full list's last edge, and lead to where that led:
 * so nothing that target led to is cut off.
 */
extern bool PipeannTakePlace(PipeannNewNode *node, PipeannBackEdge *edge);

#endif							/* PIPEANN_EDGE_H */
