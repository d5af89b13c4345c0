/*
 * passes.h
 *		State and functions that the steps of VACUUM share; private to vacuum/.
 */
#ifndef PIPEANN_PASSES_H
#define PIPEANN_PASSES_H

#include "base/id_set.h"
#include "base/pause.h"
#include "commands/vacuum.h"
#include "index/index.h"
#include "utils/rel.h"
#include "utils/spccache.h"

/* A set of ids, a bit each. */
typedef struct PipeannBits
{
	uint8	   *bits;
	uint64		count;			/* of ids in it */
} PipeannBits;

static inline bool
PipeannBitsHas(const PipeannBits *set, uint32 id)
{
	return PipeannHasBit(set->bits, id);
}

static inline void
PipeannBitsAdd(PipeannBits *set, uint32 id)
{
	if (PipeannBitsHas(set, id))
		return;
	PipeannSetBit(set->bits, id);
	set->count++;
}

static inline void
PipeannBitsRemove(PipeannBits *set, uint32 id)
{
	if (!PipeannBitsHas(set, id))
		return;
	PipeannClearBit(set->bits, id);
	set->count--;
}

typedef struct PipeannVacuum
{
	IndexVacuumInfo *info;
	IndexBulkDeleteResult *stats;
	IndexBulkDeleteCallback callback;	/* NULL: no TID is dead */
	void	   *callback_state;
	PipeannIndexView view;
	uint32		pages;			/* graph pages in the current pass */
	uint32		ids;			/* the sets have room for ids below this */
	uint32		prefetched;		/* pages before this one are prefetched */
	uint32		passes;			/* over the graph */
	bool		removing;		/* the metapage says that rows are being removed */
	bool		noted;			/* the metapage says that there is work */
	bool		interrupted;	/* an earlier VACUUM left work */
	uint64		nodes;			/* in the metapage at the start */

	/* what the first pass found */
	PipeannBits live;			/* nodes with rows */
	PipeannBits dead;			/* nodes without rows */
	PipeannBits garbage;		/* overflow slots to free */
	PipeannBits parts;			/* overflow slots of vectors and long rows */
	PipeannBits trimmed;		/* nodes that lost rows */
	bool		parts_died;		/* a node or row with such parts died */
	PipeannBits owners;			/* nodes of overflow slots emptied */

	uint32		kept;			/* the entry graph's dead node, if no entry is live */
	PipeannBits orphaned;		/* nodes to which dead ones led */
	uint8	   *in_degrees;		/* of all nodes, 4 bits each */
	uint32		free_pages;		/* noted in the free space map */
	uint64		freed;			/* nodes */
	uint64		lists;			/* neighbour lists repaired */
	uint64		relinked;		/* nodes that got an edge from another node */
} PipeannVacuum;

/* The id of a slot of a graph page. */
static inline uint32
PipeannVacuumId(const PipeannVacuum *v, uint32 page, uint32 slot)
{
	return page * v->view.meta.layout.slots_per_page + slot;
}

/* Whether a node is dead and will be freed. */
static inline bool
PipeannVacuumFrees(const PipeannVacuum *v, uint32 id)
{
	return PipeannBitsHas(&v->dead, id) && id != v->kept;
}

/* Check for interrupts, and sleep as vacuum_cost_delay requires. */
static inline void
PipeannVacuumDelay(void)
{
#if PG_VERSION_NUM >= 180000
	vacuum_delay_point(false);
#else
	vacuum_delay_point();
#endif
}

/* Begin a pass over all graph pages that exist now: sets v->pages. */
static inline void
PipeannVacuumBeginPass(PipeannVacuum *v)
{
	v->pages = PipeannViewPages(&v->view);
	v->pages = Min(v->pages, v->ids / v->view.meta.layout.slots_per_page);
	v->prefetched = 0;
	v->passes++;
}

/* repair.c */
extern void PipeannVacuumRepairGraph(PipeannVacuum *v);

/*
 * Lock the first block of a graph page in such a pass, after
 * PipeannVacuumDelay(). A page that was never written is all zeroes: no slot is in use.
 */
static inline Buffer
PipeannVacuumPage(PipeannVacuum *v, uint32 page, int lockmode)
{
	Relation	index = v->view.index;
	BlockNumber blkno = PipeannViewBlock(&v->view, page);
	uint32		ahead =
		get_tablespace_maintenance_io_concurrency(index->rd_rel->reltablespace);
	uint32		end = Min((uint64) page + ahead + 1, v->pages);

	PipeannVacuumDelay();
	PIPEANN_PAUSE("vacuum-page");
	for (v->prefetched = Max(v->prefetched, page + 1); v->prefetched < end;
		 v->prefetched++)
		PrefetchBuffer(index, MAIN_FORKNUM,
					   PipeannGraphBlock(&v->view.meta.extents, &v->view.meta.layout,
										 v->prefetched));
	return PipeannReadBuffer(index, blkno, PIPEANN_GRAPH, lockmode, true,
							 v->info->strategy);
}

/* Copy a page's slots, to be read without a lock. */
static inline void
PipeannVacuumCopyPage(PipeannVacuum *v, uint32 page, char *nodes)
{
	Buffer		buffer = PipeannVacuumPage(v, page, BUFFER_LOCK_SHARE);

	memcpy(nodes, PipeannPagePayload(BufferGetPage(buffer)), PIPEANN_PAYLOAD);
	UnlockReleaseBuffer(buffer);
}

/* Make a set empty, with room for v->ids ids. */
static inline void
PipeannVacuumInitSet(PipeannVacuum *v, PipeannBits *set)
{
	set->bits = PipeannNoBits(v->ids);
	set->count = 0;
}

#endif							/* PIPEANN_PASSES_H */
