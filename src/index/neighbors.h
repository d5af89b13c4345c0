/*
 * neighbors.h
 *		Neighbour lists of an index in use: choosing a node's neighbours, and
 *		making edges that lead to it.
 *
 * This room knows lists on pages. It must not know why a list changes: an insert or
 * VACUUM.
 */
#ifndef PIPEANN_NEIGHBORS_H
#define PIPEANN_NEIGHBORS_H

#include "base/metric.h"
#include "graph/graph.h"
#include "index/index.h"

/* Candidates for a new node's neighbours, nearest first. */
typedef struct PipeannLinkSet
{
	int			n;
	PipeannPairFn pair;			/* compares two of the vectors */
	int			dim;			/* elements of each */
	uint32	   *ids;			/* [n] */
	float	   *dists;			/* [n] by the graph's measure */
	bool		bytes;			/* vectors are bytes (PipeannToBytes()) */
	void	  **vectors;		/* [n] embedded; candidates rotated as they are stored */
	char	   *lists;			/* [n] slots with their lists, as the search saw
								 * them (PipeannLinkList()) */
	int			needed;			/* ids at the front of the pruned list that
								 * pruning kept; the others fill it up */
	uint32		roomy_page;		/* page of the nearest candidate whose page has
								 * a free slot, or INVALID_ID */
} PipeannLinkSet;

/* A list planned for a node, in place of the one that it had then. */
typedef struct PipeannListChange
{
	uint32		target;			/* the node */
	PipeannSlot *seen;			/* its slot when the list was planned */
	uint32	   *list;
	int			n;
	bool		done;
} PipeannListChange;

/*
 * The layout for searching neighbours of a vector of this norm: by inner product near nodes
 * are wanted, not those of the largest products, which are always the long vectors. An empty
 * set is as far as can be from every set by Jaccard distance, even from an equal one.
 */
static inline PipeannLayout
PipeannNearLayout(const PipeannLayout *l, double norm)
{
	PipeannLayout near = *l;

	if (l->metric == PIPEANN_IP)
		near.metric = PIPEANN_L2;
	else if (l->metric == PIPEANN_JACCARD && norm == 0)
		near.metric = PIPEANN_HAMMING;
	return near;
}

/*
 * Whether a new node takes another one's place in a full list. Lists of sparse vectors, of
 * which many are equally far from each other, are pruned, and so are those of vectors
 * that would have to be turned back to be compared with codes, and short ones, in which
 * each edge counts (measured with m = 16).
 */
#define PIPEANN_LONG_LIST 32

static inline bool
PipeannListsExchange(const PipeannIndexView *view)
{
	const PipeannLayout *l = &view->meta.layout;

	return PipeannHasBytes(view) ||
		((view->cache != NULL || l->storage == PIPEANN_BITS) &&
		 l->max_degree >= PIPEANN_LONG_LIST &&
		 !PipeannIsSparse(l->storage) && PipeannSqBits(l->storage) == 0);
}

/*
 * All nodes on the pages of so many that a search finds nearest are candidates, and on all
 * pages that it comes by where lists are pruned as a whole; of wide vectors pages have few.
 */
#define PIPEANN_NEAR_PAGES 24

/* What compares two embedded vectors. */
static inline PipeannPairFn
PipeannEmbeddedPair(const PipeannLayout *l)
{
	PipeannMetric metric = PipeannMetrics[l->metric].graph;

	return PipeannPairKernel(PipeannHasAux(metric) ? PIPEANN_L2 : metric,
							 l->storage == PIPEANN_BITS ? PIPEANN_BITS : PIPEANN_FLOAT4);
}

/* Bytes of a slot up to the end of its list. */
static inline Size
PipeannListBytes(const PipeannLayout *l)
{
	return PIPEANN_SLOT_HEADER + mul_size(l->max_degree, sizeof(uint32));
}

static inline PipeannSlot *
PipeannLinkList(const PipeannLayout *l, const PipeannLinkSet *set, int i)
{
	return (PipeannSlot *) (set->lists + i * PipeannListBytes(l));
}

/* neighbors.c */
extern PipeannSearch *PipeannLinkSearch(const PipeannIndexView *view,
										const PipeannLayout *near,
										PipeannPageSource *source,
										const float *query, bool exact,
										PipeannSearchParams params);
extern PipeannLinkSet *PipeannLinkCandidates(const PipeannIndexView *view,
											 PipeannSearch *search,
											 const float *x, float aux);
extern void PipeannLinkPrune(const PipeannIndexView *view, PipeannLinkSet *set,
							 uint32 self, PipeannSlot *slot);
extern void PipeannLinkNode(const PipeannIndexView *view, uint32 id,
							const PipeannSlot *slot,
							const PipeannLinkSet *known);

/* lists.c */
extern void PipeannChangeLists(const PipeannIndexView *view,
							   PipeannListChange *changes, int n,
							   BufferAccessStrategy strategy);

/* embed.c */
extern void PipeannEmbed(const PipeannIndexView *view, const float *x,
						 float aux, bool rotated, void *out);
extern void PipeannTurnBack(const PipeannLayout *l, float *x);
extern void PipeannEmbedAsStored(const PipeannIndexView *view, uint32 id,
								 const PipeannSlot *slot, float *x, void *out);
extern void PipeannEmbedSlot(const PipeannIndexView *view, uint32 id,
							 const PipeannSlot *slot, float *x, void *out);
extern bool PipeannEmbedNode(const PipeannIndexView *view, uint32 id,
							 float *x, void *out);

#endif							/* PIPEANN_NEIGHBORS_H */
