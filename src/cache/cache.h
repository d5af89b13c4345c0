/*
 * cache.h
 *		What searches keep in memory of an index: codes, codebook, entry graph
 *		and extent map, one copy for all backends where that is possible.
 *
 * A cache is found by the index's relfilenumber and checked against the
 * metapage's build_id, so REINDEX, TRUNCATE and VACUUM FULL get a new one. It
 * follows the pages: the metapage counts changes of code pages and names the
 * last ones in a ring; PipeannCacheFollow() re-reads those (all when the ring
 * has wrapped). The same way serves the backend that made the change, other
 * backends, private copies, and replicas, where redo changes only pages.
 */
#ifndef PIPEANN_CACHE_H
#define PIPEANN_CACHE_H

#include "base/base.h"

#include "io/io.h"
#include "storage/storage.h"
#include "pq/pq.h"
#include "storage/page_source.h"

/* GUC pipeann.shared_memory, in MB. */
extern int	pipeann_shared_memory;

/* Nodes whose codes share one allocation: codes grow by chunks of these. */
#define PIPEANN_CHUNK_SHIFT 16
#define PIPEANN_CHUNK_NODES (1U << PIPEANN_CHUNK_SHIFT)

typedef enum PipeannCachePlace
{
	PIPEANN_CACHE_SHARED,		/* server's own shared memory (preloaded) */
	PIPEANN_CACHE_DYNAMIC,		/* dynamic shared memory */
	PIPEANN_CACHE_PRIVATE		/* this backend's own copy */
} PipeannCachePlace;

/*
 * A backend's view of a cache; pointers are into shared memory or private
 * memory and stay valid until PipeannCacheRelease(). Codes of ids >= ncodes
 * are not there yet.
 */
typedef struct PipeannCache
{
	PipeannCachePlace place;
	PipeannPq	pq;
	uint32		ncodes;			/* ids that codes cover */
	uint8	  **chunks;			/* [ncodes / CHUNK_NODES rounded up] */
	uint32		entry_count;
	uint32		entry_degree;
	const uint32 *entry_ids;	/* [entry_count] node ids */
	const uint16 *entry_nneighbors; /* [entry_count] */
	const uint32 *entry_neighbors;	/* [entry_count][entry_degree], positions */
	PipeannExtentMap map;
	struct PipeannKilledSlots *killed;	/* [killed_mask + 1] */
	uint32		killed_mask;
	PipeannPageUses *hot;		/* NULL where the cache is not shared */
	Size		bytes;			/* of memory this cache takes */
	void	   *impl;
} PipeannCache;

static inline const uint8 *
PipeannCacheCode(const PipeannCache *cache, uint32 id)
{
	return cache->chunks[id >> PIPEANN_CHUNK_SHIFT] +
		(Size) (id & (PIPEANN_CHUNK_NODES - 1)) * cache->pq.nchunks;
}

/* Called by _PG_init: GUC, hooks. */
extern void PipeannCacheInit(void);

/*
 * The cache of an index that has codes, up to date with meta (loading it if
 * need be; waits for another backend that is loading it, interruptible). Never
 * NULL: with no shared memory to be had it is a private copy (said once, at
 * LOG). Released by PipeannCacheRelease() or when context goes.
 */
extern PipeannCache *PipeannCacheAcquire(Relation index,
										 const PipeannMeta *meta,
										 MemoryContext context);
extern void PipeannCacheRelease(PipeannCache *cache);

/* Bring an acquired cache up to date with the (newer) metapage. */
extern void PipeannCacheFollow(Relation index, PipeannCache *cache,
							   const PipeannMeta *meta);

/*
 * Nodes whose rows are dead to everybody, by slot of their graph page (bit i
 * for slot i, of the first 64). What is known is bound to the page's LSN: any
 * change of the page ends it, whoever makes it. So it is for indexes that are
 * WAL-logged only.
 */
extern uint64 PipeannCacheGetKilled(const PipeannCache *cache, uint32 page,
									uint64 lsn);
extern void PipeannCacheSetKilled(PipeannCache *cache, uint32 page, uint64 lsn,
								  uint32 slot);

/* Whether a cache of this index is in shared memory, and its size. */
extern bool PipeannCacheIsShared(Relation index, Size *bytes);

/* Forget the cache of this relation's file (it is being rebuilt in place). */
extern void PipeannCacheForget(Relation index);

/* GUC pipeann.hot_pages: per cent of shared_buffers. */
extern int	pipeann_hot_pages;

/*
 * Have a search's uses of pages counted, and noted in which buffers it sees them,
 * if the cache is shared.
 */
extern void PipeannCacheCountUses(PipeannCache *cache,
								  PipeannSearchUses *uses);

/*
 * When such a search is over and its rows are returned: bring in a page or two of
 * those counted, if that pays. May read, and raise errors.
 */
extern void PipeannCacheBringInWanted(Relation index,
									  const PipeannLayout *layout,
									  const PipeannExtentMap *map,
									  PipeannCache *cache,
									  PipeannSearchUses *uses);

/* Read a graph page into shared_buffers. The cache may be NULL. */
extern void PipeannCacheBringInPage(Relation index,
									const PipeannLayout *layout,
									const PipeannExtentMap *map,
									PipeannCache *cache,
									uint32 page);

/* Pages of an index that were brought in so and are resident. */
extern uint32 PipeannCountHotPages(Relation index, const PipeannLayout *layout,
								   const PipeannCache *cache);

/* Cumulative counters, per index, kept beside the shared caches. */
typedef struct PipeannIndexStats
{
	Oid			dbid;
	Oid			relid;
	uint64		scans;
	PipeannCounters counters;
} PipeannIndexStats;

extern void PipeannStatsAdd(Relation index, const PipeannCounters *counters);

/* Those of the current database, palloc'd; returns how many. */
extern int	PipeannStatsCollect(PipeannIndexStats **stats);

/*
 * The entry graph's serialised form in its pages (a stream, see page.h):
 * uint32 ids[count], uint16 nneighbors[count], padded to 4 bytes, uint32
 * neighbors[count][degree].
 */
static inline Size
PipeannEntryGraphBytes(uint32 count, uint32 degree)
{
	return add_size(add_size(mul_size(count, sizeof(uint32)),
							 mul_size((count + 1) / 2, sizeof(uint32))),
					mul_size(mul_size(count, degree), sizeof(uint32)));
}

#endif							/* PIPEANN_CACHE_H */
