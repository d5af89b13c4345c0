/*
 * cache.h
 *		The cache of an index: its codebook, entry graph and codes in memory, one copy for
 *		all backends where that is possible, and as many of the codes as there is room for.
 *
 * This room knows an index's pages of codes, codebook and entry graph, and
 * shared memory. It must not know how searches and inserts use its contents.
 *
 * src/README explains how a cache is found, and how it follows the pages.
 */
#ifndef PIPEANN_CACHE_H
#define PIPEANN_CACHE_H

#include "base/base.h"

#include "access/genam.h"
#include "access/xact.h"
#include "pq/codes.h"
#include "hints/hints.h"
#include "io/io.h"
#include "lib/ilist.h"
#include "storage/storage.h"

/* GUC pipeann.shared_memory, in MB. */
extern int	pipeann_shared_memory;

/* Nodes whose codes share one allocation, a chunk. */
#define PIPEANN_CHUNK_SHIFT 12
#define PIPEANN_CHUNK_NODES (1U << PIPEANN_CHUNK_SHIFT)

typedef enum PipeannCachePlace
{
	PIPEANN_CACHE_SHARED,		/* server's own shared memory (preloaded) */
	PIPEANN_CACHE_DYNAMIC,		/* dynamic shared memory */
	PIPEANN_CACHE_PRIVATE		/* this backend's own */
} PipeannCachePlace;

/*
 * A use of a cache by a backend. The pointers are into shared or private memory
 * and stay valid until PipeannCacheRelease().
 */
typedef struct PipeannCache
{
	PipeannCachePlace place;
	PipeannCodes codes;
	const char *histograms;			/* of attribute codes */
	PipeannSeenPages *seen;		/* buffers of graph pages */
	const PipeannRowMap *row_map;	/* the map of rows, of any version, or NULL */
	bool		may_map_rows;	/* unless there was no memory for a map, or is none at all */

	/* private to cache/ */
	struct PipeannAttachment *attachment;
	struct PipeannPageLoader *loader;	/* of codes that are not in memory, or NULL */
	char	   *entry_graph;	/* of this use, if the cache has no room for it; or NULL */
	MemoryContext context;		/* of this struct */
	MemoryContextCallback callback;
} PipeannCache;

static inline void
PipeannCacheRelease(PipeannCache *cache)
{
	MemoryContextDelete(cache->context);
}

/* What pipeann.shared_memory, in MB, has to be for this many bytes. */
static inline uint64
PipeannMegabytes(Size bytes)
{
	return bytes / (1024 * 1024) + 1;
}

/* cache.c */
extern void PipeannCacheInit(void);
extern PipeannCache *PipeannCacheAcquire(Relation index,
										 const PipeannMeta *meta,
										 MemoryContext context);
extern PipeannCache *PipeannCachePeek(Relation index,
									  const PipeannMeta *meta,
									  MemoryContext context);
extern bool PipeannCacheFollow(Relation index, PipeannCache *cache, const PipeannMeta *meta);
extern bool PipeannCacheLoadEntries(Relation index, PipeannCache *cache, const PipeannMeta *meta);
extern Size PipeannCacheMemory(const PipeannMeta *meta);
extern Size PipeannCacheBytes(const PipeannCache *cache);
extern Size PipeannCacheCodesInMemory(const PipeannCache *cache, const PipeannMeta *meta);
extern void PipeannCacheWarn(Relation index, const PipeannMeta *meta);
extern void PipeannCacheForget(Relation index);
extern void PipeannCacheMapRows(PipeannCache *cache, const PipeannMeta *meta,
								const PipeannMappedRow *rows, uint64 n);
extern void PipeannCacheForgetRows(PipeannCache *cache, const PipeannMeta *meta,
								   IndexBulkDeleteCallback is_dead, void *arg);

/* load.c */
extern void PipeannCacheLoadAll(Relation index, PipeannCache *cache, const PipeannMeta *meta);

/* arena.c */
extern PipeannStats *PipeannCacheStats(void);

#endif							/* PIPEANN_CACHE_H */
