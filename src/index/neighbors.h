/*
 * neighbors.h
 *		Neighbour lists of an index in use: choosing a node's neighbours, and
 *		making edges that lead to it.
 *
 * This room knows lists on pages and the spanning tree. It must not know why a
 * list changes: an insert, VACUUM or retraining.
 */
#ifndef PIPEANN_NEIGHBORS_H
#define PIPEANN_NEIGHBORS_H

#include "graph/graph.h"
#include "index/index.h"
#include "base/id_set.h"

/* Candidates for a new node's neighbours, nearest first. */
typedef struct PipeannLinkSet
{
	int			n;
	int			dim;			/* of the embedded vectors */
	uint32	   *ids;			/* [n] */
	float	   *dists;			/* [n] by the graph's measure */
	const float **vectors;		/* [n] embedded, of dim elements */
	int			needed;			/* ids at the front of the pruned list that
								 * pruning kept; the others fill it up */
	uint32		roomy_page;		/* page of the nearest candidate whose page has
								 * a free slot, or INVALID_ID */
} PipeannLinkSet;

/* An empty set with room for size nodes, palloc'd. */
extern PipeannLinkSet *PipeannLinkSetNew(const PipeannIndexView *view,
										 int size);
extern void PipeannLinkSetFree(PipeannLinkSet *set);

/* Add a node, with its distance from vector `from`. Keeps the pointers. */
extern void PipeannLinkSetAdd(PipeannLinkSet *set, uint32 id,
							  const float *vector, const float *from);

/* Remove a node. */
extern void PipeannLinkSetRemove(PipeannLinkSet *set, uint32 id);

/*
 * Prune a set to a list of at most max ids, out[max], of which the first
 * `forced` stay, and fill it up to `fill` with the nearest that were dropped.
 * Returns its length.
 */
extern int	PipeannLinkSetPrune(const PipeannLinkSet *set, int forced,
								int max, int fill, uint32 *out);

/* Embedded vectors of nodes: near lists have many nodes in common. */
typedef struct PipeannVectorCache
{
	const PipeannIndexView *view;
	PipeannIdSet places;		/* positions in vectors[] by id */
	const float **vectors;
	uint32		n;
	uint32		size;
	float	   *x;				/* work space */
} PipeannVectorCache;

extern PipeannVectorCache *PipeannVectorCacheNew(const PipeannIndexView *view);

/* Add a vector; keeps the pointer. */
extern void PipeannVectorCachePut(PipeannVectorCache *cache, uint32 id,
								  const float *vector);

/* The vector by PipeannEmbedNode(), or NULL if that has none. */
extern const float *PipeannVectorCacheGet(PipeannVectorCache *cache,
										  uint32 id);

/*
 * Make a set of the nearest results of a search. Pages that the search does not
 * hold, as after PipeannSearchExact(), are read.
 */
extern PipeannLinkSet *PipeannLinkCandidates(const PipeannIndexView *view,
											 PipeannSearch *search,
											 const float *x, float aux);

/*
 * Prune the set into slot's neighbour list: first the neighbours that pruning
 * keeps, then the nearest of the others.
 */
extern void PipeannLinkPrune(const PipeannIndexView *view, PipeannLinkSet *set,
							 PipeannSlot *slot);

/*
 * The layout for searching neighbours. In an index by inner product these are
 * near nodes, not those of the largest products, which are always the long
 * vectors.
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
 * Search for the ef nodes nearest to query[dim], normalised for cosine;
 * without codes, for all nodes. near is the layout that gives the metric; it
 * has to stay as long as the search is used. The search ends when ends_at, or NULL,
 * is true of a node that was met; arg is for both functions.
 */
extern PipeannSearch *PipeannLinkSearch(const PipeannIndexView *view,
										const PipeannLayout *near,
										PipeannPageSource *source,
										const float *query, int ef,
										PipeannOutOfLineDistance out_of_line_distance,
										PipeannMatches ends_at, void *arg);

/*
 * Make the edges that lead to node id from its neighbours, the spanning-tree
 * edge first. slot is a copy of its slot; known, or NULL, is a set of nodes
 * near it. If there are codes, the node's is written already. Returns whether
 * a spanning-tree edge was made, as it is if there is any live node.
 */
extern bool PipeannLinkNode(const PipeannIndexView *view, uint32 id,
							const PipeannSlot *slot,
							const PipeannLinkSet *known);

/*
 * Whether a neighbour of node id leads back to it; copies its slot to *slot. If
 * none does, its insert did not get so far.
 */
extern bool PipeannIsLinked(const PipeannIndexView *view, uint32 id,
							PipeannSlot *slot);

/*
 * Make an edge from target to node id. If target's list is full node id takes
 * over one of its edges. False if target is no node, both lists have
 * spanning-tree edges only, or target's list is being changed.
 */
extern bool PipeannLinkEdge(const PipeannIndexView *view, uint32 target,
							uint32 id, const PipeannSlot *slot);

/*
 * Make an existing edge from target to node id a spanning-tree edge. False if
 * there is no such edge, or target has all the spanning-tree edges that it may
 * have.
 */
extern bool PipeannJoinTree(const PipeannIndexView *view, uint32 target,
							uint32 id, const PipeannSlot *slot);

/* Make an edge from the root, or from near it, and from the entry graph. */
extern bool PipeannLinkEntry(const PipeannIndexView *view, uint32 id,
							 const PipeannSlot *slot);

/*
 * Embed a node's vector from a copy of its slot. x[layout's dim] is work
 * space. The caller must not hold page locks, as an out-of-line vector is read
 * from its chain.
 */
extern void PipeannEmbedSlot(const PipeannIndexView *view, uint32 id,
							 const PipeannSlot *slot, float *x, float *out);

/*
 * Embed a node's vector: decoded from its code or, in an index without codes,
 * from its slot; no page may be locked. False if its code is not known yet.
 */
extern bool PipeannEmbedNode(const PipeannIndexView *view, uint32 id,
							 float *x, float *out);

#endif							/* PIPEANN_NEIGHBORS_H */
