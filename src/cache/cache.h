/*
 * cache.h
 *		The cache of an index: its codes, codebook, entry graph and extent map
 *		in memory, one copy for all backends where that is possible.
 *
 * This room knows an index's pages of codes, codebook and entry graph, and
 * shared memory. It must not know how searches and inserts use what it keeps.
 *
 * A cache is found by the index's relfilenumber and checked against the
 * metapage's build_id, so REINDEX, TRUNCATE and VACUUM FULL get a new one. A
 * cache follows the pages: the metapage counts the changes of code pages and
 * names the last ones in a ring; PipeannCacheFollow() reads those pages again,
 * or all of them if the ring has wrapped. The backend that made a change, other
 * backends, private copies, and replicas, where redo changes only pages, all
 * follow in this way.
 */
#ifndef PIPEANN_CACHE_H
#define PIPEANN_CACHE_H

#include "base/base.h"

#include "access/genam.h"
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
 * A backend's view of a cache. The pointers are into shared or private memory
 * and stay valid until PipeannCacheRelease().
 */
typedef struct PipeannCache
{
	PipeannCachePlace place;
	PipeannPq	pq;
	uint32		ncodes;			/* ids below this have a code */
	uint32		attr_bytes;		/* of attribute codes */
	const char *books;			/* of attribute codes */
	uint8	  **chunks;			/* [ncodes / CHUNK_NODES rounded up] */
	uint32		entry_count;
	uint32		entry_degree;
	const uint32 *entry_ids;	/* [entry_count] node ids */
	const uint16 *entry_nneighbors; /* [entry_count] */
	const uint32 *entry_neighbors;	/* [entry_count][entry_degree], positions */
	PipeannExtentMap map;
	struct PipeannKilledSlots *killed;	/* [killed_mask + 1] */
	uint32		killed_mask;
	PipeannPageUses *hot;		/* NULL if the cache is not shared */
	Size		bytes;			/* of memory that this cache takes */
	void	   *impl;
} PipeannCache;

/* Registers settings and hooks; _PG_init() calls this. */
extern void PipeannCacheInit(void);

/*
 * Returns the cache of an index that has codes, up to date with meta. Loads it
 * if need be, or waits, interruptibly, for another backend that is loading it.
 * Without room in shared memory the cache is a private copy; a backend reports
 * its first such copy at LOG level. The cache is released by
 * PipeannCacheRelease(), or when context is reset or deleted.
 */
extern PipeannCache *PipeannCacheAcquire(Relation index,
										 const PipeannMeta *meta,
										 MemoryContext context);
extern void PipeannCacheRelease(PipeannCache *cache);

/* Bring an acquired cache up to date with a newer metapage. */
extern void PipeannCacheFollow(Relation index, PipeannCache *cache,
							   const PipeannMeta *meta);

/*
 * Killed nodes: nodes whose rows are all dead to everybody. The first function
 * returns those of a graph page, bit i for slot i, of the first 64 slots; the
 * second one adds one. They are known for the version of the page with this LSN
 * only: any change of the page, by any backend, ends that. So this is for
 * indexes that are WAL-logged only.
 */
extern uint64 PipeannCacheGetKilled(const PipeannCache *cache, uint32 page,
									uint64 lsn);
extern void PipeannCacheSetKilled(PipeannCache *cache, uint32 page, uint64 lsn,
								  uint32 slot);

/*
 * Maps of rows: which node has a row, for whoever knows rows by their TIDs only. A
 * map holds the rows that there were when it was made, less those that VACUUM has
 * removed since.
 */
typedef struct PipeannMappedRow
{
	ItemPointerData tid;
	uint32		id;				/* of the node */
} PipeannMappedRow;

/*
 * Sets ids[i] to the node of the row at tids[i], PIPEANN_INVALID_ID where it is not
 * known. False if there is no map of rows for a metapage with these `removals`.
 * *nodes is the number of nodes when it was made.
 */
extern bool PipeannCacheFindRows(const PipeannCache *cache, uint32 removals,
								 const ItemPointerData *tids, uint32 n,
								 uint32 *ids, uint64 *nodes);

/*
 * Whether there may be room for a map: some time after there was none it is tried
 * again.
 */
extern bool PipeannCacheMayMapRows(const PipeannCache *cache);

/*
 * Make a map of these rows, all that the index had when the metapage had these
 * `removals`. Without room in memory there is none.
 */
extern void PipeannCacheMapRows(Relation index, PipeannCache *cache,
								const PipeannMeta *meta,
								const PipeannMappedRow *rows, uint64 n);

/*
 * Take the rows that VACUUM has removed out of the map, if there is one and VACUUM
 * is all that came between it and the metapage: its `removals` were `before`, and
 * are to be `after`.
 */
extern void PipeannCacheForgetRows(Relation index, PipeannCache *cache,
								   const PipeannMeta *meta, uint32 before,
								   uint32 after,
								   IndexBulkDeleteCallback is_dead, void *arg);

/*
 * Memory that the cache of an index with this metapage takes when it is made.
 * Sets *megabytes to what pipeann.shared_memory has to be for it alone.
 */
extern Size PipeannCacheMemory(const PipeannMeta *meta, uint64 *megabytes);

/* Warn if such a cache is too large for the area that the server reserved. */
extern void PipeannCacheWarn(Relation index, const PipeannMeta *meta);

/* Drop the cache of this relation's file, which is being rebuilt in place. */
extern void PipeannCacheForget(Relation index);

/* GUC pipeann.hot_pages, in per cent of shared_buffers. */
extern int	pipeann_hot_pages;

/*
 * If the cache is shared, have a search's uses of pages counted, and the
 * buffers noted in which it sees them.
 */
extern void PipeannCacheCountUses(PipeannCache *cache,
								  PipeannSearchUses *uses);

/*
 * After such a search, when its rows have been returned: bring one or two of
 * the counted pages into shared_buffers, if that pays. May read and raise
 * errors.
 */
extern void PipeannCacheBringInWanted(Relation index,
									  const PipeannLayout *layout,
									  const PipeannExtentMap *map,
									  PipeannCache *cache,
									  PipeannSearchUses *uses);

/* Read a graph page into shared_buffers. cache may be NULL. */
extern void PipeannCacheBringInPage(Relation index,
									const PipeannLayout *layout,
									const PipeannExtentMap *map,
									PipeannCache *cache,
									uint32 page);

/* The number of an index's pages that were brought in and are resident. */
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

/* Add the counters of one scan to those of its index. */
extern void PipeannStatsAdd(Relation index, const PipeannCounters *counters);

/* Sets *stats to those of the current database, palloc'd; returns how many. */
extern int	PipeannStatsCollect(PipeannIndexStats **stats);

/*
 * The entry graph's serialised form in its pages (a stream, see storage.h):
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
