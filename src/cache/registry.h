/*
 * registry.h
 *		The registry of caches in shared memory, and the attachments of this
 *		backend; private to cache/.
 *
 * The control struct is in the server's shared memory, even if the library is not
 * preloaded. Then it uses memory that the server reserves for such libraries, so
 * it must stay small. It has an entry for each cache in shared memory.
 *
 * Locks, in the order in which they are taken: an entry's (by a backend that sets its root, map
 * of rows or first entries), control->lock (entries), arena->lock. None is held while pages are
 * read, and only the first while the operating system is asked for memory.
 */
#ifndef PIPEANN_REGISTRY_H
#define PIPEANN_REGISTRY_H

#include "cache/cache.h"

#include "access/parallel.h"
#include "port/atomics.h"
#include "storage/dsm.h"
#include "storage/lwlock.h"
#include "utils/freepage.h"
#include "utils/rel.h"

/*
 * The shared memory for caches comes from segments: an arena in the server's own shared memory
 * if the library is preloaded, and dynamic ones beyond it, up to pipeann.shared_memory in all.
 * PostgreSQL's free page manager manages each segment's pages.
 */
#define PIPEANN_MAX_SEGMENTS 64

/* Changed under arena->lock. */
typedef struct PipeannSegment
{
	uint64		serial;			/* distinguishes segments with the same number; 0: none */
	dsm_handle	handle;			/* handle of a dynamic segment */
	uint32		pages;			/* pages that may be given out */
	uint32		used;			/* pages given out */
} PipeannSegment;

typedef struct PipeannArena
{
	LWLock		lock;
	uint64		serials;
	pg_atomic_uint64 limit;		/* pages that may be given out */
	pg_atomic_uint64 used;		/* pages given out, of all segments */
	PipeannSegment segments[PIPEANN_MAX_SEGMENTS];
} PipeannArena;

/* Where pages of the arena begin: number of the segment and of its first page, or this. */
typedef uint64 PipeannArenaPlace;

#define PIPEANN_NOWHERE UINT64CONST(0)

static inline uint64
PipeannArenaPages(Size size)
{
	return add_size(size, FPM_PAGE_SIZE - 1) / FPM_PAGE_SIZE;
}

/*
 * Set the limit to pipeann.shared_memory. All backends share the value that was read last: one in
 * a long statement may have an older setting, and its parallel workers begin with the default.
 */
static inline void
PipeannArenaSetLimit(PipeannArena *arena, int megabytes)
{
	if (!IsParallelWorker())
		pg_atomic_write_u64(&arena->limit, (uint64) megabytes * (1024 * 1024 / FPM_PAGE_SIZE));
}

static inline uint64
PipeannArenaLimit(PipeannArena *arena)
{
	return pg_atomic_read_u64(&arena->limit);
}

#define PIPEANN_CONTROL_LAYOUT 12	/* increment with any change below */

/* The most caches; without preloading the server has little memory for them. */
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
 * A cache in shared memory. generation distinguishes caches that had the same
 * entry. Changed under control->lock, exclusive, except the atomics and what is
 * known of a root, which its own lock protects. Taking a reference needs
 * control->lock, shared; giving it back does not.
 */
typedef struct PipeannCacheEntry
{
	PipeannLocator locator;
	Oid			database;
	Oid			relid;
	uint64		build_id;
	uint64		generation;
	uint32		state;			/* PipeannCacheEntryState */
	uint64		wanted;			/* pages with all codes */
	LWLock		lock;
	PipeannArenaPlace root;	/* of the PipeannCacheHeader, or NOWHERE */
	uint32		root_pages;
	pg_atomic_uint64 pages;		/* taken, including the root's */
	pg_atomic_uint32 refcount;	/* one for each backend using it */
	pg_atomic_uint64 last_used; /* TimestampTz */
} PipeannCacheEntry;

typedef struct PipeannControl
{
	uint32		layout;
	int			tranche_id;
	LWLock		lock;
	uint64		generations;
	pg_atomic_uint64 frees;		/* caches whose memory was freed */
	pg_atomic_uint64 refused;	/* TimestampTz: a cache with less than its share
								 * found no room */
	pg_atomic_uint64 dropped;	/* TimestampTz: a cache was dropped for another */
	pg_atomic_uint64 reported;	/* TimestampTz: want of room was logged */
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
	pg_atomic_uint64 complete;	/* times that pages were dropped << 32 | all
								 * code pages below this are in memory */
	pg_atomic_uint64 kept;		/* code pages in memory */
	pg_atomic_uint64 entry_graph;	/* place of the entry graph in its form on
									 * disk, or NOWHERE */
	pg_atomic_uint64 entries_read;	/* number of restarts << 32 | pages of it
									 * read so far; used when complete */
	pg_atomic_uint64 row_map;	/* place of the map of rows, or NOWHERE */
	uint32		stores[2];		/* times that overwriting codes in use
								 * began, and ended */
	uint32		ids;			/* number of ids for which there are chunks[] and
								 * pages[]: a multiple of PIPEANN_CHUNK_NODES */
	uint64		chunk_pages;	/* memory of a chunk, for the codes of its nodes */
	uint64		entry_pages;	/* memory of the entry graph */
	Size		seen;			/* PipeannSeenPages */
	Size		centroids;
	Size		halves;			/* centroids in half precision, or 0 */
	Size		histograms;		/* of attribute codes */
	Size		first_ids;		/* of the first entries */
	Size		first_codes;
	Size		chunks;			/* pg_atomic_uint64[], places of chunks */
	Size		pages;			/* pg_atomic_uint32[], states of code pages */
} PipeannCacheHeader;

/* In front of a map of rows. */
typedef struct PipeannMapMemory
{
	PipeannArenaPlace former;	/* of a map that is no longer written, or NOWHERE */
	uint64		pages;
} PipeannMapMemory;

/*
 * How this backend sees a cache, kept from scan to scan.
 */
typedef struct PipeannAttachment
{
	Oid			relid;
	PipeannLocator locator;
	bool		temporary;
	uint64		build_id;
	int			refs;			/* caches in use */
	bool		listed;			/* in the hash table */
	bool		referenced;		/* counted in the entry */
	bool		outdated;		/* the index has been given new codes */
	PipeannCacheEntry *entry;	/* NULL: this backend's own */
	uint64		generation;
	TimestampTz refused;		/* when there was no memory for the root or a map of
								 * rows; or 0 */
	TimestampTz no_room;		/* when there was none for codes or the entry graph; or 0 */
	PipeannCache model;			/* what its users copy; none of its parts moves */
	PipeannCacheHeader *header;
	uint8	  **chunks;			/* NULL: not mapped yet, or not there */
	uint32		mapped;			/* chunks below this are mapped */
	char	   *entry_graph;	/* mapped, or the backend's own; or NULL */
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

/* arena.c */
extern char pipeann_arena_error[]; /* the system's last refusal, or "" */
extern PipeannArenaPlace PipeannArenaTake(PipeannArena *arena, uint64 pages);
extern void PipeannArenaGive(PipeannArena *arena, PipeannArenaPlace place, uint64 pages);
extern void PipeannArenaUnmapGone(PipeannArena *arena);
extern char *PipeannArenaAt(PipeannArena *arena, PipeannArenaPlace place);
extern PipeannControl *pipeann_control; /* NULL: not yet made, or not available */
extern PipeannControl *PipeannControlGet(void);
extern void PipeannControlPreload(void);

/* Where a part of a shared cache is in this backend; NULL if it has no memory, or cannot be mapped. */
static inline char *
PipeannPartAt(const PipeannAttachment *attachment, pg_atomic_uint64 *where)
{
	PipeannArenaPlace place = pg_atomic_read_u64(where);

	return attachment->entry == NULL || place == PIPEANN_NOWHERE ? NULL :
		PipeannArenaAt(&pipeann_control->arena, place);
}

/* registry.c */
extern bool PipeannRegistryClaim(PipeannAttachment *attachment);
extern PipeannCacheEntry *PipeannRegistryFind(const PipeannLocator *locator, uint64 build_id);
extern bool PipeannRegistryHold(PipeannAttachment *attachment);
extern void PipeannRegistryLetGo(PipeannAttachment *attachment);
extern void PipeannRegistryForget(const PipeannLocator *locator);
extern PipeannArenaPlace PipeannRegistryTake(PipeannCacheEntry *entry, uint64 pages);
extern void PipeannRegistryGive(PipeannCacheEntry *entry, PipeannArenaPlace place, uint64 pages);
extern void PipeannRegistryShrink(void);
extern void PipeannReportNoRoom(const char *index);

static inline uint32
PipeannFirstEntries(const PipeannMeta *meta)
{
	return Min(meta->entry_count, PIPEANN_FIRST_ENTRIES);
}

/* load.c */
extern bool PipeannCacheReadEntries(Relation index, PipeannAttachment *attachment,
									const PipeannMeta *meta, bool all);
extern void PipeannCacheLoad(Relation index, PipeannAttachment *attachment,
							 const PipeannMeta *meta);
extern void PipeannCacheReadNewer(Relation index, PipeannAttachment *attachment,
								  const PipeannMeta *meta);
extern void PipeannCacheSetLoader(Relation index, PipeannCache *cache, const PipeannMeta *meta);

#endif							/* PIPEANN_REGISTRY_H */
