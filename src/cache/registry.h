/*
 * registry.h
 *		The registry of caches in shared memory, and the attachments of this
 *		backend; private to cache/.
 *
 * The control struct is in the server's shared memory, even if the library is
 * not preloaded. Then it takes from what the server keeps in reserve for that,
 * so it must stay small. It has an entry for each cache in shared memory.
 *
 * Locks, in the order in which they are taken: an entry's (who changes its cache, which may
 * read pages), control->lock (entries), arena->lock. The last two are not held during I/O or
 * while the operating system is asked for memory.
 */
#ifndef PIPEANN_REGISTRY_H
#define PIPEANN_REGISTRY_H

#include "cache/cache.h"
#include "cache/arena.h"

#include "lib/ilist.h"
#include "utils/rel.h"

#define PIPEANN_CONTROL_LAYOUT 10	/* count up with any change below */

/* Caches that there may be; without preloading the server has little memory for them. */
#define PIPEANN_FEW_ENTRIES 128
#define PIPEANN_MANY_ENTRIES 1024

typedef enum PipeannCacheEntryState
{
	PIPEANN_CACHE_ENTRY_FREE,
	PIPEANN_CACHE_ENTRY_READY,
	PIPEANN_CACHE_ENTRY_DOOMED,	/* dropped; freed when it has no user */
	PIPEANN_CACHE_ENTRY_GOING	/* being freed */
} PipeannCacheEntryState;

/*
 * A cache in shared memory. generation tells apart the caches that had the same
 * entry. Changed under control->lock, exclusive, but for the atomics. Taking a
 * reference needs the lock, shared; giving it back does not.
 */
typedef struct PipeannCacheEntry
{
	PipeannLocator locator;
	uint64		build_id;
	uint64		generation;
	uint32		state;			/* PipeannCacheEntryState */
	uint64		wanted;			/* pages with all codes */
	LWLock		lock;			/* of what is in the cache */
	bool		loaded;			/* the root is complete */
	PipeannArenaPlace root;	/* of the PipeannCacheHeader */
	uint32		root_pages;
	pg_atomic_uint64 pages;		/* taken, the root's with them */
	pg_atomic_uint32 refcount;	/* one for each backend using it */
	pg_atomic_uint64 last_used; /* TimestampTz */
} PipeannCacheEntry;

typedef struct PipeannControl
{
	uint32		layout;
	int			tranche_id;
	LWLock		lock;
	uint64		generations;
	pg_atomic_uint64 frees;		/* caches whose memory went */
	pg_atomic_uint64 refused;	/* TimestampTz: a cache with less than its share
								 * found no room */
	pg_atomic_uint64 dropped;	/* TimestampTz: one was dropped for another */
	pg_atomic_uint64 reported;	/* TimestampTz: that there is no room */
	PipeannArena arena;
	PipeannStats stats;
	uint32		nentries;
	PipeannCacheEntry entries[FLEXIBLE_ARRAY_MEMBER];
} PipeannControl;

/* Its size, with the entries behind it. */
static inline Size
PipeannControlSize(uint32 entries)
{
	return offsetof(PipeannControl, entries) + entries * sizeof(PipeannCacheEntry);
}

StaticAssertDecl(sizeof(PipeannControl) + PIPEANN_FEW_ENTRIES * sizeof(PipeannCacheEntry) <= 48 * 1024,
				 "control struct may not fit a server that did not preload us");

/*
 * The beginning of a cache, its root; the offsets are from here. Codes are in chunks of
 * their own, each taken when a page with codes of it is first kept.
 */
typedef struct PipeannCacheHeader
{
	pg_atomic_uint64 applied;	/* changes of code pages that are in memory */
	pg_atomic_uint64 entry_graph_applied;	/* changes of its ids, likewise */
	pg_atomic_uint64 complete;	/* times that pages were given up << 32 | all
								 * code pages below this are in memory */
	pg_atomic_uint64 kept;		/* code pages in memory */
	pg_atomic_uint64 row_map;	/* place of the map of rows, or NOWHERE */
	pg_atomic_uint64 row_map_pages;
	uint32		stores[2];		/* times that codes which may be read began, and
								 * ended, to be written over */
	uint32		ids;			/* that there are chunks[] and pages[] for: a
								 * multiple of PIPEANN_CHUNK_NODES */
	uint64		chunk_pages;	/* memory of a chunk */
	Size		seen;			/* PipeannSeenPages */
	Size		centroids;
	Size		halves;			/* of these in half precision, or 0 */
	Size		histograms;		/* of attribute codes */
	Size		entry_graph;	/* in its form on disk */
	Size		chunks;			/* pg_atomic_uint64[], places of chunks */
	Size		pages;			/* pg_atomic_uint32[], states of code pages */
} PipeannCacheHeader;

typedef struct PipeannAttachmentKey
{
	PipeannLocator locator;
	int			backend;		/* of a temporary relation */
} PipeannAttachmentKey;

/*
 * How this backend sees a cache, kept from scan to scan.
 */
typedef struct PipeannAttachment
{
	PipeannAttachmentKey key;
	Oid			relid;
	uint64		build_id;
	int			refs;			/* caches in use */
	bool		listed;			/* in the hash table */
	bool		referenced;		/* counted in the entry */
	bool		outdated;		/* the index has got other codes */
	PipeannCacheEntry *entry;	/* NULL: this backend's own */
	uint64		generation;
	TimestampTz tried;			/* when shared memory was last tried */
	TimestampTz no_chunk;		/* when there was no memory for codes; or 0 */
	TimestampTz no_row_map;		/* when there was none for a map of rows; or 0 */
	PipeannCache model;			/* of what its users see; no part of it moves */
	PipeannCacheHeader *header;
	uint8	  **chunks;			/* [nchunks] NULL: not mapped yet, or not there */
	uint32		nchunks;
	uint32		mapped;			/* chunks below this are mapped */
	BufferAccessStrategy strategy;	/* to read pages that are kept */
	Buffer	   *seen;			/* of each code page, where it was found sound; or
								 * NULL */
	MemoryContext context;		/* this struct, and memory of its own */
	MemoryContextCallback callback;
	dlist_node	node;			/* in the list of attachments */
} PipeannAttachment;

static inline bool
PipeannAttachmentIsDoomed(const PipeannAttachment *attachment)
{
	return attachment->entry != NULL &&
		*(volatile uint32 *) &attachment->entry->state ==
		PIPEANN_CACHE_ENTRY_DOOMED;
}

/* Ids are below this. */
static inline uint32
PipeannMetaIds(const PipeannMeta *meta)
{
	return meta->graph_pages * meta->layout.slots_per_page;
}

/* A part of a root. */
static inline void *
PipeannRootAt(PipeannCacheHeader *header, Size offset)
{
	return (char *) header + offset;
}

/* Pages of memory for the codes of a chunk. */
static inline uint64
PipeannChunkPages(const PipeannLayout *l)
{
	return PipeannArenaPages(mul_size(PIPEANN_CHUNK_NODES, PipeannCodeBytes(l)));
}

/* Become the one backend that changes a referenced cache. */
static inline void
PipeannAttachmentLock(PipeannAttachment *attachment)
{
	if (attachment->entry != NULL)
		LWLockAcquire(&attachment->entry->lock, LW_EXCLUSIVE);
}

static inline void
PipeannAttachmentUnlock(PipeannAttachment *attachment)
{
	if (attachment->entry != NULL)
		LWLockRelease(&attachment->entry->lock);
}

/* registry.c */
extern PipeannControl *pipeann_control; /* NULL: not yet, or not to be had */
extern PipeannControl *PipeannControlGet(void);
extern void PipeannControlPreload(void);
extern bool PipeannRegistryClaim(PipeannAttachment *attachment);
extern PipeannCacheEntry *PipeannRegistryFind(const PipeannLocator *locator, uint64 build_id);
extern bool PipeannRegistryHold(PipeannAttachment *attachment);
extern void PipeannRegistryLetGo(PipeannAttachment *attachment);
extern void PipeannRegistryDoom(PipeannCacheEntry *entry, uint64 generation);
extern void PipeannRegistryForget(const PipeannLocator *locator);
extern PipeannArenaPlace PipeannRegistryTake(PipeannCacheEntry *entry, uint64 pages);
extern void PipeannRegistryGive(PipeannCacheEntry *entry, PipeannArenaPlace place, uint64 pages);
extern void PipeannRegistryShrink(void);
extern void PipeannReportNoRoom(const char *index);

/* load.c */
extern void PipeannCacheLoad(Relation index, PipeannAttachment *attachment,
							 const PipeannMeta *meta);
extern void PipeannCacheReadNewer(Relation index, PipeannAttachment *attachment,
								  const PipeannMeta *meta);
extern void PipeannLoaderEnd(struct PipeannPageLoader *pl);
extern void PipeannCacheSetLoader(Relation index, PipeannCache *cache, const PipeannMeta *meta);

#endif							/* PIPEANN_REGISTRY_H */
