/*
 * registry.h
 *		The registry of caches in shared memory, and the attachments of this
 *		backend; private to cache/.
 *
 * The control struct is in the server's shared memory, even if the library is
 * not preloaded. Then it takes from what the server keeps in reserve for that,
 * so it must stay small. It has an entry for each cache in shared memory. The
 * memory itself comes in segments: pages of our own arena if the library is
 * preloaded, else dynamic shared memory segments. (These are not a DSA: before
 * PostgreSQL 17 that does not find freed runs of pages again, and it does not
 * give segments back when a large object is freed.)
 *
 * Locks, in the order in which they are taken: control->lock (entries and
 * segments), control->arena_lock (free pages of the arena, memory in use).
 * Neither is held during I/O or while the operating system is asked for memory. Others
 * wait for a backend that loads a cache or has its turn on it on the entry's condition
 * variable.
 */
#ifndef PIPEANN_REGISTRY_H
#define PIPEANN_REGISTRY_H

#include "cache/cache.h"

#include "lib/ilist.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/dsm.h"
#include "storage/lwlock.h"
#include "storage/spin.h"
#include "utils/freepage.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#define PIPEANN_CONTROL_LAYOUT 7	/* count up with any change below */

/* Bytes of codes that a backend may have to itself; tests reach the limit of theirs. */
#ifdef PIPEANN_PAUSE_POINTS
#define PIPEANN_MOST_OF_OWN ((Size) 1024 * 1024)
#else
#define PIPEANN_MOST_OF_OWN ((Size) 64 * 1024 * 1024)
#endif

#define PIPEANN_MAX_CACHE_ENTRIES 128
#define PIPEANN_MAX_SEGMENTS 384
#define PIPEANN_MAX_ENTRY_SEGMENTS 64
#define PIPEANN_NO_SEGMENT (-1)
#define PIPEANN_NO_BACKEND (-1) /* of a relation that is not temporary */

typedef enum PipeannCacheEntryState
{
	PIPEANN_CACHE_ENTRY_FREE,
	PIPEANN_CACHE_ENTRY_LOADING,
	PIPEANN_CACHE_ENTRY_READY,
	PIPEANN_CACHE_ENTRY_DOOMED	/* dropped; freed by the last user */
} PipeannCacheEntryState;

/*
 * A run of a cache's memory. The first one starts with the PipeannCacheHeader;
 * the others hold only codes. The codes of a later segment replace those of an
 * earlier one with the same ids. One without codes is for a map of rows.
 */
typedef struct PipeannSegment
{
	Size		place;			/* dsm_handle, or first page in the arena */
	uint32		pages;			/* of FPM_PAGE_SIZE */
	uint32		first;			/* codes of ids first .. first + nodes - 1 */
	uint32		nodes;
	int32		next;			/* of the same entry, or in the free list */
} PipeannSegment;

/*
 * A cache in shared memory. generation tells apart the caches that had the same
 * entry. Changed under control->lock, exclusive, but for the atomics. Taking a
 * reference needs the lock, shared; giving it back does not.
 */
typedef struct PipeannCacheEntry
{
	PipeannLocator locator;
	Oid			relid;
	uint64		build_id;
	uint64		generation;
	uint32		state;			/* PipeannCacheEntryState */
	int32		first_segment;
	int32		last_segment;
	uint32		nsegments;
	uint64		pages;			/* in all its segments */
	pg_atomic_uint32 refcount;	/* one for each backend using it */
	pg_atomic_uint32 busy;		/* a backend has its turn */
	pg_atomic_uint64 last_used; /* TimestampTz */
	ConditionVariable changed;	/* state or busy */
} PipeannCacheEntry;

typedef struct PipeannControl
{
	uint32		layout;
	int			tranche_id;
	LWLock		lock;
	LWLock		arena_lock;
	uint64		arena_pages;	/* 0: no arena, dynamic shared memory */
	uint64		used_pages;
	uint64		generations;
	pg_atomic_uint64 frees;		/* caches that were freed */
	pg_atomic_uint64 reported;	/* that there is no room (TimestampTz) */
	int32		free_segment;
	uint32		hopeless_pages; /* segment size refused even after evictions */
	PipeannCacheEntry entries[PIPEANN_MAX_CACHE_ENTRIES];
	PipeannSegment segments[PIPEANN_MAX_SEGMENTS];
	PipeannHotSums hot;			/* by the entries' numbers */
	PipeannStats stats;
} PipeannControl;

StaticAssertDecl(PIPEANN_MAX_CACHE_ENTRIES <= PIPEANN_MAX_HOT_TABLES,
				 "each entry has a hot table");
StaticAssertDecl(sizeof(PipeannControl) <= 40 * 1024,
				 "control struct may not fit a server that did not preload us");

/* The beginning of a cache's first segment; the offsets are from here. */
typedef struct PipeannCacheHeader
{
	pg_atomic_uint64 applied;	/* changes of code pages that are in codes */
	pg_atomic_uint64 entry_graph_applied;	/* changes of its ids, likewise */
	pg_atomic_uint32 ncodes;
	pg_atomic_uint32 row_map;	/* number of its segment, or 0 */
	Size		hints;
	Size		centroids;
	Size		halves;			/* of these in half precision, or 0 */
	Size		histograms;			/* of attribute codes */
	Size		entry_graph;	/* in its form on disk */
	Size		codes;
} PipeannCacheHeader;

/* A segment as this backend sees it. */
typedef struct PipeannMapping
{
	PipeannSegment segment;		/* of a private copy: first and nodes only */
	char	   *address;
	dsm_segment *dsm;			/* NULL if in the arena or private */
} PipeannMapping;

/*
 * What changes when an index grows. Users of an older version keep it, so that
 * the pointers of other scans stay valid.
 */
typedef struct PipeannArrays
{
	MemoryContext context;		/* of this struct and its arrays */
	int			refs;
	uint32		nmappings;		/* that chunks point into */
	uint32		capacity;		/* ids that chunks have room for */
	uint8	  **chunks;
} PipeannArrays;

typedef struct PipeannAttachmentKey
{
	PipeannLocator locator;
	int			backend;		/* of a temporary relation */
} PipeannAttachmentKey;

/*
 * How this backend sees a cache, kept from scan to scan. The flags from
 * referenced to busy say what to undo in the entry if this backend fails or
 * exits.
 */
typedef struct PipeannAttachment
{
	PipeannAttachmentKey key;
	Oid			relid;
	uint64		build_id;
	int			refs;			/* caches in use */
	bool		listed;			/* in the hash table */
	bool		referenced;
	bool		loading;
	bool		busy;
	bool		outdated;		/* pages were met of another generation */
	PipeannCacheEntry *entry;	/* NULL: private copy */
	uint64		generation;
	TimestampTz tried;			/* when shared memory was last tried */
	TimestampTz no_row_map;		/* when there was none for a map of rows; or 0 */
	PipeannCache model;			/* of what its users see; no part of it moves */
	PipeannCacheHeader *header;
	PipeannArrays *arrays;
	uint32		nmappings;
	PipeannMapping mappings[PIPEANN_MAX_ENTRY_SEGMENTS];
	MemoryContext context;		/* this struct, and private memory */
	dlist_head	idle;			/* caches not in use */
	dlist_node	node;			/* in the list of attachments */
} PipeannAttachment;

/* Bytes of a node's codes in memory. */
static inline Size
PipeannAttachmentCodeBytes(const PipeannAttachment *attachment)
{
	return (Size) attachment->model.codes.pq.nsubvectors +
		attachment->model.codes.attr_bytes;
}

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

typedef enum PipeannArenaResult
{
	PIPEANN_ARENA_OK,
	PIPEANN_ARENA_FULL,			/* pipeann.shared_memory is used up */
	PIPEANN_ARENA_REFUSED		/* the operating system has no more */
} PipeannArenaResult;

typedef enum PipeannClaim
{
	PIPEANN_CLAIM_NONE,			/* no entry is free */
	PIPEANN_CLAIM_LOAD,			/* this backend has to load it */
	PIPEANN_CLAIM_READY
} PipeannClaim;

typedef void (*PipeannChange) (PipeannAttachment *attachment, void *arg);

/* registry.c */
extern PipeannControl *pipeann_control; /* NULL: not yet, or not to be had */
extern char pipeann_arena_error[];	/* the system's last, or "" */
extern PipeannControl *PipeannControlGet(void);
extern void PipeannControlPreload(void);
extern uint64 PipeannArenaLimit(void);
extern PipeannArenaResult PipeannArenaAllocate(PipeannMapping *mapping);
extern PipeannClaim PipeannRegistryClaim(PipeannAttachment *attachment,
										 bool evict);
extern bool PipeannRegistryHas(const PipeannLocator *locator,
							   uint64 build_id);
extern bool PipeannRegistryHold(PipeannAttachment *attachment);
extern void PipeannRegistryPublish(PipeannAttachment *attachment);
extern void PipeannRegistryLetGo(PipeannAttachment *attachment);
extern void PipeannRegistryDoom(PipeannCacheEntry *entry, uint64 generation);
extern void PipeannRegistryForget(const PipeannLocator *locator);
extern bool PipeannRegistryAddSegment(PipeannAttachment *attachment,
									  const PipeannMapping *mapping);
extern bool PipeannRegistryMapSegments(PipeannAttachment *attachment);
extern void PipeannInTurn(PipeannAttachment *attachment, PipeannChange change,
						  void *arg);
extern bool PipeannMakeRoom(uint32 pages, PipeannArenaResult why);
extern void PipeannEvictAll(void);
extern bool PipeannFileIsGone(const PipeannLocator *locator, int backend);
extern void PipeannRegistrySweep(void);
extern bool PipeannMayShare(Relation index);
extern int	PipeannSuggestMemory(Size size);
extern void PipeannReportNoRoom(Relation index, Size size);

/* load.c */
extern void PipeannCacheLoad(Relation index, PipeannAttachment *attachment,
							 const PipeannMeta *meta);
extern void PipeannCacheReadNewer(Relation index,
								  PipeannAttachment *attachment,
								  const PipeannMeta *meta, uint32 have,
								  uint32 ids);

/* Give up a reference to arrays. */
static inline void
PipeannArraysRelease(PipeannArrays *arrays)
{
	if (--arrays->refs == 0)
		MemoryContextDelete(arrays->context);
}

/* The arena has the free list in its first pages. */
#define PIPEANN_ARENA_HEADER_PAGES \
	((sizeof(FreePageManager) + FPM_PAGE_SIZE - 1) / FPM_PAGE_SIZE)

static inline uint32
PipeannArenaPages(Size size)
{
	Size		pages = add_size(size, FPM_PAGE_SIZE - 1) / FPM_PAGE_SIZE;

	return Min(pages, PG_UINT32_MAX);
}

/* pipeann.shared_memory, in MB, for so many pages. */
static inline uint64
PipeannArenaMegabytes(uint64 pages)
{
	uint64		in_one = 1024 * 1024 / FPM_PAGE_SIZE;

	return (pages + PIPEANN_ARENA_HEADER_PAGES + in_one - 1) / in_one;
}

#endif							/* PIPEANN_REGISTRY_H */
