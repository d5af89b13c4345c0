/*
 * passes.h
 *		What the steps of VACUUM know of an index; private to vacuum/.
 *
 * The order of the steps and why it is right: src/README, "VACUUM".
 */
#ifndef PIPEANN_PASSES_H
#define PIPEANN_PASSES_H

#include "index/index.h"

/* Sets of ids, a bit each. */
typedef struct PipeannBits
{
	uint8	   *bits;
	uint64		count;			/* of ids in it */
} PipeannBits;

static inline bool
PipeannBitsHas(const PipeannBits *set, uint32 id)
{
	return (set->bits[id >> 3] >> (id & 7)) & 1;
}

static inline void
PipeannBitsAdd(PipeannBits *set, uint32 id)
{
	if (PipeannBitsHas(set, id))
		return;
	set->bits[id >> 3] |= 1 << (id & 7);
	set->count++;
}

static inline void
PipeannBitsRemove(PipeannBits *set, uint32 id)
{
	if (!PipeannBitsHas(set, id))
		return;
	set->bits[id >> 3] &= ~(1 << (id & 7));
	set->count--;
}

typedef struct PipeannVacuum
{
	IndexVacuumInfo *info;
	IndexBulkDeleteResult *stats;
	IndexBulkDeleteCallback callback;	/* NULL: no TID is dead */
	void	   *callback_state;
	PipeannIndexView view;
	uint32		pages;			/* of the graph, that are to be passed */
	uint32		ids;			/* that the sets have room for */
	uint32		prefetched;		/* pages before it were asked for */
	uint32		passes;			/* over the graph */
	bool		noted;			/* the metapage says that there is work */
	bool		interrupted;	/* an earlier VACUUM left some */
	uint64		nodes;			/* that the metapage had */

	/* what the first pass found */
	PipeannBits live;			/* nodes with rows */
	PipeannBits dead;			/* nodes without */
	PipeannBits garbage;		/* overflow slots to free */
	PipeannBits parts;			/* overflow slots of out-of-line vectors */
	bool		out_of_line_died;
	uint32	   *owners;			/* of overflow slots emptied */
	uint32		nowners;
	uint32		owners_size;

	PipeannBits entry;			/* nodes of the entry graph */
	PipeannBits orphaned;		/* nodes that dead ones led to */
	uint32		old_root;		/* which had to give way, or INVALID_ID */
	uint32		free_pages;		/* noted in the free space map */
	uint64		freed;			/* nodes */
	uint64		lists;			/* neighbour lists repaired */
	uint64		relinked;		/* nodes that nothing, or nothing near, led to */
} PipeannVacuum;

/* pass.c */

/* A point to be interrupted, and to wait as vacuum_cost_delay says. */
extern void PipeannVacuumDelay(void);

/* Begin a pass over all graph pages there are now. */
extern void PipeannVacuumBeginPass(PipeannVacuum *v);

/*
 * Lock a graph page in such a pass (its first block): a point to wait and to
 * be interrupted. InvalidBuffer if it was never written.
 */
extern Buffer PipeannVacuumPage(PipeannVacuum *v, uint32 page, int lockmode);

/* Give a set room for v->ids ids. */
extern void PipeannVacuumInitSet(PipeannVacuum *v, PipeannBits *set);

/* Say in the metapage that there is work for VACUUM. */
extern void PipeannVacuumNoteWork(PipeannVacuum *v);

/* Note in the free space map, and count, what room a page has. */
extern void PipeannVacuumNoteFree(PipeannVacuum *v, uint32 page, Page buffer,
								  bool changed);

static inline uint32
PipeannVacuumId(const PipeannVacuum *v, uint32 page, uint32 slot)
{
	return page * v->view.meta.layout.slots_per_page + slot;
}

/* A dead node that is to be freed: not one of the entry graph. */
static inline bool
PipeannVacuumFrees(const PipeannVacuum *v, uint32 id)
{
	return PipeannBitsHas(&v->dead, id) && !PipeannBitsHas(&v->entry, id);
}

/* clean.c: take out dead TIDs, see what is dead */
extern void PipeannVacuumClean(PipeannVacuum *v);

/*
 * entry_graph.c: put live nodes in the places of dead ones in the entry graph, and in
 * that of the root
 */
extern void PipeannVacuumEntryGraph(PipeannVacuum *v);

/* overflow.c: take overflow slots out of their chains */
extern void PipeannVacuumOverflow(PipeannVacuum *v);
extern void PipeannVacuumParts(PipeannVacuum *v);

/*
 * reach.c: which nodes spanning-tree edges lead to from the root, and how many
 * edges lead to each
 */
typedef struct PipeannReach
{
	PipeannVacuum *v;
	PipeannBits present;		/* live nodes that were passed */
	PipeannBits in_tree;		/* nodes that one of these has an edge of the
								 * spanning tree to */
	PipeannBits reached;
	PipeannBits expanded;		/* of these, whose edges are followed */
	uint8	   *in_degrees;		/* 4 bits a node */
	uint32	   *pending;		/* nodes reached since the last pass, */
	uint32		npending;
	bool		more_pending;	/* for which there was not always room */
} PipeannReach;

/* Counts of edges stop here. */
#define PIPEANN_MOST_COUNTED 15

/* How many edges lead to a node, at most PIPEANN_MOST_COUNTED. */
static inline int
PipeannReachInDegree(const PipeannReach *reach, uint32 id)
{
	return (reach->in_degrees[id / 2] >> (id % 2 * 4)) & PIPEANN_MOST_COUNTED;
}

extern void PipeannReachBegin(PipeannReach *reach, PipeannVacuum *v);

/* Take a node as it is now: count its edges, follow it if it is reached. */
extern void PipeannReachNode(PipeannReach *reach, uint32 id,
							 const PipeannSlot *slot);

/* Pass over the pages until there is no edge left to follow. */
extern void PipeannReachWalk(PipeannReach *reach);

/*
 * Do the same after such passes, when few nodes were reached since: only their pages
 * are looked at, unless these are many.
 */
extern void PipeannReachFollow(PipeannReach *reach);

/*
 * Call link() for a node that is live, while nobody shuts inserters out, and note
 * that the node is reached if that is true.
 */
extern bool PipeannReachAttach(PipeannReach *reach, uint32 id,
							   bool (*link) (PipeannReach *reach, uint32 id,
											 const PipeannSlot *slot));

/* repair.c: take dead nodes out of the neighbour lists */
extern void PipeannVacuumRepair(PipeannVacuum *v, PipeannReach *reach);

/* relink.c: spanning-tree edges lead from the root to every live node */
extern void PipeannVacuumRelink(PipeannReach *reach);

/* near.c: a near node leads to each that lost an edge */
extern void PipeannVacuumLinkNear(PipeannReach *reach);

/* release.c: free the slots */
extern void PipeannVacuumRelease(PipeannVacuum *v);

#endif							/* PIPEANN_PASSES_H */
