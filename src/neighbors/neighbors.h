/*
 * neighbors.h
 *		Edges of a node inserted.
 */
#ifndef PIPEANN_LINK_H
#define PIPEANN_LINK_H

#include "graph/graph.h"
#include "index/index.h"
#include "base/id_set.h"

/* Candidates for a new node's neighbours, nearest first. */
typedef struct PipeannLinkSet
{
	int			n;
	int			dim;			/* of embedded vectors */
	uint32	   *ids;			/* [n] */
	float	   *dists;			/* [n] the graph's measure */
	const float **vectors;		/* [n] embedded, of dim elements */
	int			needed;			/* first ids of the list it was pruned to that
								 * pruning kept; the others fill it up */
	uint32		roomy_page;		/* of the nearest whose page has a free slot, or
								 * INVALID_ID */
} PipeannLinkSet;

extern PipeannLinkSet *PipeannLinkSetNew(const PipeannIndexView *view,
										 int size);
extern void PipeannLinkSetFree(PipeannLinkSet *set);

/* Add a node; its distance is from vector `from`. Keeps the pointer. */
extern void PipeannLinkSetAdd(PipeannLinkSet *set, uint32 id,
							  const float *vector, const float *from);

/* Leave a node out. */
extern void PipeannLinkSetRemove(PipeannLinkSet *set, uint32 id);

/*
 * Prune a set, of which the first `forced` stay, to a list of at most max ids,
 * filled up to `fill` with the nearest dropped. Returns its length.
 */
extern int	PipeannLinkSetPrune(const PipeannLinkSet *set, int forced,
								int max, int fill, uint32 *out);

/* Nodes' vectors, embedded; lists that are near each other share many. */
typedef struct PipeannVectorCache
{
	const PipeannIndexView *view;
	PipeannIdSet places;		/* in vectors[], by id */
	const float **vectors;
	uint32		n;
	uint32		size;
	float	   *x;				/* work space */
} PipeannVectorCache;

extern PipeannVectorCache *PipeannVectorCacheNew(const PipeannIndexView *view);

/* Keeps the pointer. */
extern void PipeannVectorCachePut(PipeannVectorCache *cache, uint32 id,
								  const float *vector);

/* As PipeannEmbedNode() tells it; NULL if that cannot. */
extern const float *PipeannVectorCacheGet(PipeannVectorCache *cache,
										  uint32 id);

/*
 * Take the nearest results of a search. Of pages that it has not at hand, as
 * after PipeannSearchExact(), copies are read.
 */
extern PipeannLinkSet *PipeannLinkCandidates(const PipeannIndexView *view,
											 PipeannSearch *search,
											 const float *x, float aux);

/*
 * Prune them into slot's neighbour list, those that are needed first, and fill
 * that up with the nearest of the others.
 */
extern void PipeannLinkPrune(const PipeannIndexView *view, PipeannLinkSet *set,
							 PipeannSlot *slot);

/*
 * The layout by which neighbours are searched: in an index by inner product a
 * node's neighbours are not those of the largest products, long vectors all,
 * but near ones.
 */
static inline PipeannLayout
PipeannNearLayout(const PipeannLayout *l)
{
	PipeannLayout near = *l;

	if (near.metric == PIPEANN_IP)
		near.metric = PIPEANN_L2;
	return near;
}

/*
 * Search for the nodes nearest to a vector (normalised for cosine), ef of them
 * or, without codes, all. near is the layout by whose metric they are near: to
 * be the same as long as the search is used.
 */
extern PipeannSearch *PipeannLinkSearch(const PipeannIndexView *view,
										const PipeannLayout *near,
										PipeannPageSource *source,
										const float *query, int ef,
										PipeannOutOfLineDistance out_of_line_distance,
										void *out_of_line_arg);

/*
 * Make the edges that lead to node id from its neighbours, the spanning-tree edge
 * first; slot is a copy of its slot, known has vectors at hand or is NULL. Its
 * code is written already, if there are codes. Returns whether there is a spanning-tree edge, as there is but
 * where no live node was to be found.
 */
extern bool PipeannLinkNode(const PipeannIndexView *view, uint32 id,
							const PipeannSlot *slot,
							const PipeannLinkSet *known);

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

/*
 * Make target's edge to node id one of the spanning tree. False if it has none,
 * or has all the spanning-tree edges that it can take.
 */
extern bool PipeannJoinTree(const PipeannIndexView *view, uint32 target,
							uint32 id, const PipeannSlot *slot);

/* Let the root lead to node id, or the nearest node of the entry graph. */
extern bool PipeannLinkEntry(const PipeannIndexView *view, uint32 id,
							 const PipeannSlot *slot);

/*
 * A node's vector from a copy of its slot, embedded (am.h); x is work space for
 * float[layout's dim]. An out-of-line one's is read from its chain, so that no page may
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
