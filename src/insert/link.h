/*
 * link.h
 *		A new node's neighbours; private to insert/.
 */
#ifndef PIPEANN_LINK_H
#define PIPEANN_LINK_H

#include "index/neighbors.h"

/*
 * Candidates for a new node's neighbours, nearest first; behind them nodes that were looked
 * at besides.
 */
typedef struct PipeannLinkSet
{
	int			n;
	int			ncandidates;
	int			size;			/* of the arrays */
	PipeannPairFn pair;			/* compares two of the vectors */
	int			dim;			/* elements of each */
	void	   *self;			/* the new node's vector */
	uint32	   *ids;			/* [n] */
	float	   *dists;			/* [n] from self */
	void	  **vectors;		/* [n] embedded, or bytes of them */
	char	   *lists;			/* [ncandidates] slots with their lists, as the search
								 * saw them */
	int			needed;			/* ids at the front of the pruned list that
								 * pruning kept; the others fill it up */
	uint32		roomy_page;		/* page of the nearest candidate whose page has
								 * a free slot, or INVALID_ID */
} PipeannLinkSet;

/* Whether vectors are wide: those that are quantised. Of these pages have few. */
static inline bool
PipeannIsWide(const PipeannLayout *l)
{
	return PipeannSqBits(l->storage) > 0;
}

/* The option, which may have been changed since the build. */
static inline int
PipeannEfConstruction(const PipeannIndexView *view)
{
	return Max(PipeannIndexOptions(view->index)->ef_construction,
			   view->meta.layout.max_degree);
}

/* link.c */
extern PipeannLinkSet *PipeannLinkCandidates(const PipeannIndexView *view,
											 PipeannSearch *search,
											 const float *x, float aux);
extern void PipeannLinkPrune(const PipeannIndexView *view, PipeannLinkSet *set,
							 uint32 self, PipeannSlot *slot);
extern void PipeannLinkNode(const PipeannIndexView *view, uint32 id,
							const PipeannSlot *slot, PipeannLinkSet *set);

#endif							/* PIPEANN_LINK_H */
