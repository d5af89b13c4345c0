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

/*
 * Take the nearest results of a search. Of pages that it has not at hand, as
 * after PipeannSearchExact(), copies are read.
 */
extern PipeannLinkSet *PipeannLinkCandidates(const PipeannIndexView *view,
											 PipeannSearch *search,
											 const float *x, float aux);

/* Prune them into slot's neighbour list. */
extern void PipeannLinkPrune(const PipeannIndexView *view, PipeannLinkSet *set,
							 PipeannSlot *slot);

/*
 * Make the edges that lead to node id from its neighbours; slot is a copy of
 * its slot. Its code is written already, if there are codes.
 */
extern void PipeannLinkNode(const PipeannIndexView *view, uint32 id,
							const PipeannSlot *slot);

/*
 * Whether a neighbour of node id leads back to it; slot becomes a copy of its
 * slot. If none does its inserter did not get to that.
 */
extern bool PipeannIsLinked(const PipeannIndexView *view, uint32 id,
							PipeannSlot *slot);

/*
 * Make target lead to node id: what its full list gives up for it node id
 * leads to. False if target is no node, or both have only edges that must stay,
 * or target's list is just being changed.
 */
extern bool PipeannLinkEdge(const PipeannIndexView *view, uint32 target,
							uint32 id, const PipeannSlot *slot);

/* Let the nearest node of the entry graph lead to node id. */
extern bool PipeannLinkEntry(const PipeannIndexView *view, uint32 id,
							 const PipeannSlot *slot);

/*
 * A node's vector from a copy of its slot, embedded (am.h); x is work space for
 * float[layout's dim]. A wide one's is read from its chain, so that no page may
 * be locked.
 */
extern void PipeannEmbedSlot(const PipeannIndexView *view, uint32 id,
							 const PipeannSlot *slot, float *x, float *out);

/*
 * A node's vector, embedded: from its code, or from its slot where there are
 * no codes (no page may be locked). False if there are, and its own is not
 * known yet.
 */
extern bool PipeannEmbedNode(const PipeannIndexView *view, uint32 id,
							 float *x, float *out);

#endif							/* PIPEANN_LINK_H */
