/*
 * link.h
 *		Edges of a node inserted.
 */
#ifndef PIPEANN_LINK_H
#define PIPEANN_LINK_H

#include "am/am.h"

/* Candidates for a new node's neighbours, nearest first. */
typedef struct PipeannLinkSet
{
	int			n;
	int			dim;			/* of embedded vectors */
	uint32	   *ids;			/* [n] */
	float	   *dists;			/* [n] the graph's measure */
	float	   *vectors;		/* [n][dim] embedded */
	uint32		roomy_page;		/* of the nearest whose page has a free slot, or
								 * INVALID_ID */
} PipeannLinkSet;

/* Take the nearest results of a search whose pages are still at hand. */
extern PipeannLinkSet *PipeannLinkCandidates(const PipeannIndexView *view,
											 PipeannSearch *search,
											 const float *x, float aux);

/* Prune them into slot's neighbour list. */
extern void PipeannLinkPrune(const PipeannIndexView *view, PipeannLinkSet *set,
							 PipeannSlot *slot);

/*
 * Write the code of node id (slot is a copy of its slot, query its normalised
 * vector for cosine) and the edges that lead to it from its neighbours.
 */
extern void PipeannLinkNode(PipeannIndexView *view, uint32 id,
							const PipeannSlot *slot, const float *query);

/*
 * The same for a node that nothing leads to: one whose inserter did not get to
 * that.
 */
extern void PipeannLinkIfUnlinked(PipeannIndexView *view, uint32 id,
								  const float *query);

#endif							/* PIPEANN_LINK_H */
