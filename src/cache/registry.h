/*
 * registry.h
 *		Private to cache/: who has which cache, and where its memory is.
 *
 * The control struct is in the server's shared memory, also when the library
 * is not preloaded (then it takes from what the server keeps in reserve for
 * that, so it must stay small). It has a record for each cache in shared
 * memory. The memory itself comes in blocks: pages of our own arena when the
 * library is preloaded, else one dynamic shared memory segment each. (Not a
 * DSA: before PostgreSQL 17 it does not find freed runs of pages again, and it
 * does not give segments back when a large object is freed.)
 *
 * Locks, in the order in which they are taken: control->lock (records and
 * blocks), control->arena_lock (free pages of the arena, memory in use);
 * control->stats_lock stands alone. None is held during I/O or while memory is
 * asked of the operating system. A cache being loaded or brought up to date is
 * marked in its record (state, busy); others wait for that on the record's
 * condition variable.
 */
#ifndef PIPEANN_REGISTRY_H
#define PIPEANN_REGISTRY_H

#include "cache/hot.h"
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

#if PG_VERSION_NUM >= 160000
#include "storage/relfilelocator.h"
typedef RelFileLocator PipeannFile;
#define PipeannRelationFile(index) ((index)->rd_locator)
#define PipeannFileEquals(a, b) RelFileLocatorEquals(a, b)
#else
#include "storage/relfilenode.h"
typedef RelFileNode PipeannFile;
#define PipeannRelationFile(index) ((index)->rd_node)
#define PipeannFileEquals(a, b) RelFileNodeEquals(a, b)
#endif

#define PIPEANN_CONTROL_LAYOUT 3	/* count up with any change below */
#define PIPEANN_MAX_RECORDS 128
#define PIPEANN_MAX_BLOCKS 384
#define PIPEANN_MAX_RECORD_BLOCKS 64
#define PIPEANN_MAX_STATS 128
#define PIPEANN_NO_BLOCK (-1)
#define PIPEANN_NO_BACKEND (-1) /* of a relation that is not temporary */

typedef enum PipeannRecordState
{
	PIPEANN_RECORD_FREE,
	PIPEANN_RECORD_LOADING,
	PIPEANN_RECORD_READY,
	PIPEANN_RECORD_DOOMED		/* found no more; freed by the last user */
} PipeannRecordState;

/*
 * A mapping of a cache's memory. The first of a cache starts with its
 * PipeannCacheHeader; the others hold nothing but codes. A block whose ids overlap an
 * earlier one's takes their place.
 */
typedef struct PipeannBlock
{
	Size		place;			/* dsm_handle, or first page in the arena */
	uint32		pages;			/* of FPM_PAGE_SIZE */
	uint32		first;			/* codes of ids first .. first + nodes - 1 */
	uint32		nodes;
	int32		next;			/* of the same record, or in the free list */
} PipeannBlock;

/*
 * A cache in shared memory. generation tells uses of one record apart.
 * Changed under control->lock, exclusive, but for the atomics. Taking a
 * reference needs the lock, shared; giving it back does not.
 */
typedef struct PipeannRecord
{
	PipeannFile file;
	Oid			relid;
	uint64		build_id;
	uint64		generation;
	uint32		state;			/* PipeannRecordState */
	int32		first_block;
	int32		last_block;
	uint32		nblocks;
	uint64		pages;			/* in all its blocks */
	pg_atomic_uint32 refcount;	/* one for each backend using it */
	pg_atomic_uint32 busy;		/* a backend is bringing it up to date */
	pg_atomic_uint32 hot_blocks;	/* kept in shared_buffers (hot.c) */
	pg_atomic_uint32 hot_epoch; /* how often it was struck off */
	pg_atomic_uint64 last_used; /* TimestampTz */
	ConditionVariable changed;	/* state or busy */
} PipeannRecord;

typedef struct PipeannStatsSlot
{
	Oid			dbid;
	Oid			relid;			/* InvalidOid: free */
	slock_t		mutex;
	TimestampTz last_used;
	uint64		scans;
	PipeannCounters counters;
} PipeannStatsSlot;

typedef struct PipeannControl
{
	uint32		layout;
	int			tranche_id;
	LWLock		lock;
	LWLock		arena_lock;
	LWLock		stats_lock;
	uint64		arena_pages;		/* of the arena; 0: dynamic shared memory */
	uint64		used_pages;
	uint64		generations;
	pg_atomic_uint64 frees;		/* caches whose memory was given back */
	pg_atomic_uint32 hot_blocks;	/* kept in shared_buffers, of all */
	pg_atomic_uint32 hot_share; /* that a cache may keep when that is full */
	pg_atomic_uint64 hot_asked; /* TimestampTz: one with less was refused */
	int32		free_block;
	uint32		hopeless_pages; /* refused although caches were evicted */
	PipeannRecord records[PIPEANN_MAX_RECORDS];
	PipeannBlock blocks[PIPEANN_MAX_BLOCKS];
	PipeannStatsSlot stats[PIPEANN_MAX_STATS];
} PipeannControl;

StaticAssertDecl(sizeof(PipeannControl) <= 40 * 1024,
				 "control struct may not fit a server that did not preload us");

/* How a cache's first block begins; offsets are from here. */
typedef struct PipeannCacheHeader
{
	pg_atomic_uint64 applied;	/* changes of code pages that are in codes */
	pg_atomic_uint64 entries_applied;	/* changes of the entry graph's ids */
	pg_atomic_uint32 ncodes;
	slock_t		kill_mutex;		/* held to change kills */
	uint32		kill_mask;		/* number of kills - 1 */
	Size		kills;
	Size		hot;
	Size		centroids;
	Size		entries;		/* entry graph, as on disk */
	Size		codes;
} PipeannCacheHeader;

/*
 * Nodes of one graph page whose rows are dead to everybody, a bit for each of
 * the first 64 slots: so it is for the page with this LSN.
 */
struct PipeannKill
{
	pg_atomic_uint32 version;	/* odd while it is being changed */
	uint32		page;
	uint64		lsn;
	uint64		slots;
};

/* A block as this backend sees it. */
typedef struct PipeannMapping
{
	char	   *address;
	dsm_segment *segment;		/* NULL unless dynamic */
	uint32		first;
	uint32		nodes;
} PipeannMapping;

/*
 * What changes when an index grows. Users of an older version keep it, so that
 * bringing one scan up to date pulls nothing from under another.
 */
typedef struct PipeannArrays
{
	MemoryContext context;		/* of all this */
	int			refs;
	uint32		nmappings;		/* that chunks point into */
	uint32		capacity;		/* ids that they have room for */
	uint32		mapped;			/* ids that the map has pages for */
	uint32		extents;		/* in use, by the map */
	uint8	  **chunks;
	PipeannExtentMap map;
} PipeannArrays;

typedef struct PipeannAttachmentKey
{
	PipeannFile file;
	int			backend;		/* of a temporary relation */
} PipeannAttachmentKey;

/*
 * How this backend sees a cache, kept from scan to scan. The flags from
 * referenced to busy say what is to be undone in the record should this backend
 * fail or exit.
 */
typedef struct PipeannAttachment
{
	PipeannAttachmentKey key;
	Oid			relid;
	uint64		build_id;
	PipeannCachePlace place;
	int			refs;			/* handles in use */
	bool		listed;			/* in the hash table */
	bool		referenced;
	bool		loading;
	bool		busy;
	PipeannRecord *record;		/* NULL: private */
	uint64		generation;
	TimestampTz tried;			/* to get shared memory */
	Size		bytes;
	uint32		entry_count;
	uint32		entry_degree;
	PipeannPq	pq;
	PipeannCacheHeader *header;
	PipeannArrays *arrays;
	uint32		nmappings;
	PipeannMapping mappings[PIPEANN_MAX_RECORD_BLOCKS];
	MemoryContext context;		/* this struct, and private memory */
	dlist_head	idle;			/* handles not in use */
	dlist_node	node;			/* in the list of attachments */
} PipeannAttachment;

/*
 * What PipeannCacheAcquire() gives out. A memory context's callback cannot be
 * taken back, so a released handle stays with its context, idle, and serves the
 * next acquisition there.
 */
typedef struct PipeannHandle
{
	PipeannCache cache;			/* first */
	PipeannAttachment *attachment;			/* NULL: freed while the handle was idle */
	PipeannArrays *arrays;		/* NULL: idle */
	MemoryContext context;
	MemoryContextCallback callback;
	dlist_node	node;			/* idle: in the attachment's list */
} PipeannHandle;

typedef enum PipeannArenaResult
{
	PIPEANN_ARENA_OK,
	PIPEANN_ARENA_FULL,			/* pipeann.shared_memory is used up */
	PIPEANN_ARENA_REFUSED		/* the operating system has no more */
} PipeannArenaResult;

/* control.c */

/* The control struct, made if it is not there. Under AddinShmemInitLock. */
extern PipeannControl *PipeannControlFindOrMake(void);
extern void PipeannControlAttach(PipeannControl *control);
extern PipeannControl *PipeannControlAttached(void);	/* if it is already */
extern PipeannControl *PipeannControlGet(void); /* NULL: not to be had */
extern uint32 PipeannWaitEvent(void);

/* arena.c */
extern Size PipeannArenaSize(void);	/* to request at server start */
extern void PipeannArenaInit(PipeannControl *control);
extern uint64 PipeannArenaLimit(const PipeannControl *control);	/* in pages */
extern uint32 PipeannArenaPages(Size size);
extern PipeannArenaResult PipeannArenaAllocate(PipeannControl *control, uint32 pages,
									   PipeannBlock *block,
									   PipeannMapping *mapping);
extern bool PipeannArenaAttach(PipeannControl *control,
							  const PipeannBlock *block, PipeannMapping *mapping);
extern void PipeannArenaAdvise(void *address, Size size);	/* huge pages */
extern void PipeannArenaDetach(PipeannMapping *mapping);
extern void PipeannArenaFree(PipeannControl *control,
							const PipeannBlock *block);
extern const char *PipeannArenaError(void);

/* registry.c */
typedef enum PipeannClaim
{
	PIPEANN_CLAIM_NONE,			/* no record to be had */
	PIPEANN_CLAIM_LOAD,			/* ours to load */
	PIPEANN_CLAIM_READY
} PipeannClaim;

extern PipeannClaim PipeannRegistryClaim(PipeannControl *control,
										 PipeannAttachment *attachment, bool evict);
extern bool PipeannRegistryRef(PipeannControl *control, PipeannAttachment *attachment);
extern void PipeannRegistryPublish(PipeannControl *control,
								   PipeannAttachment *attachment);
extern void PipeannRegistryLetGo(PipeannControl *control, PipeannAttachment *attachment);
extern void PipeannRegistryDoom(PipeannControl *control,
								PipeannRecord *record, uint64 generation);
extern bool PipeannRegistryFind(PipeannControl *control,
								const PipeannFile *file, uint64 *generation,
								PipeannRecord **record, uint64 *pages);
extern bool PipeannRegistryAddBlock(PipeannControl *control,
									PipeannAttachment *attachment, PipeannBlock *block);
extern int	PipeannRegistryBlocks(PipeannControl *control,
								  const PipeannAttachment *attachment, uint32 from,
								  PipeannBlock *blocks);
extern void PipeannRegistryTakeTurn(PipeannAttachment *attachment);
extern void PipeannRegistryEndTurn(PipeannAttachment *attachment);
extern void PipeannRecordFree(PipeannControl *control,
							  PipeannRecord *record);

/*
 * The cache that nobody uses and that was used longest ago, or NULL. Under
 * control->lock, exclusive, so that no reference can be taken meanwhile.
 */
extern PipeannRecord *PipeannRegistryVictim(PipeannControl *control);

/* Evict it, for the sake of its record. False if there is none. */
extern bool PipeannRegistryEvict(PipeannControl *control);

/* Whether a record may be of this relation: looks without a lock. */
extern bool PipeannRegistryHasRelation(PipeannControl *control, Oid relid);

/* evict.c */
extern bool PipeannMakeRoom(PipeannControl *control, uint32 pages,
							PipeannArenaResult why);
extern void PipeannEvictAll(PipeannControl *control);
extern bool PipeannFileIsGone(const PipeannFile *file, int backend);
extern void PipeannSweepRecords(PipeannControl *control);
/* Files are to be looked at now, and a little later; whether that is due. */
extern void PipeannSweepOnInvalidation(void);
extern bool PipeannSweepIsDue(void);

/* load.c */
extern uint32 PipeannMetaIds(const PipeannMeta *meta);
extern Size PipeannCachePlan(const PipeannMeta *meta, PipeannCacheHeader *plan,
							uint32 *nodes);
extern void PipeannCacheLoad(Relation index, PipeannAttachment *attachment,
							const PipeannMeta *meta);
extern void PipeannGrowthPlan(uint32 capacity, uint32 ids, uint32 *first,
							  uint32 *nodes);
extern void PipeannReadCodes(Relation index, PipeannAttachment *attachment,
							 const PipeannMeta *meta, uint32 from, uint32 ids);
extern void PipeannReadEntries(Relation index, PipeannAttachment *attachment,
							   const PipeannMeta *meta);
extern void PipeannReadChanges(Relation index, PipeannAttachment *attachment,
							   const PipeannMeta *meta, uint32 ids);

/* attachment.c */
extern PipeannAttachment *PipeannAttachmentFind(Relation index);
extern void PipeannAttachmentList(PipeannAttachment *attachment);
extern bool PipeannAttachmentHold(PipeannAttachment *attachment);
extern void PipeannAttachmentUnuse(PipeannAttachment *attachment);
extern void PipeannAttachmentDrop(PipeannAttachment *attachment);
extern void PipeannAttachmentsClean(bool check_files);
extern bool PipeannAttachmentHasRelation(Oid relid);
extern PipeannAttachmentKey PipeannAttachmentKeyOf(Relation index);
extern void PipeannAttachmentAdd(PipeannAttachment *attachment);

/* No handle is in use. */
extern void PipeannAttachmentFree(PipeannAttachment *attachment);

/* Look for files that are gone if that is due, and for caches that are. */
extern void PipeannSweepIfDue(void);

/* attach.c */
extern PipeannAttachment *PipeannAttachmentMake(Relation index,
												const PipeannMeta *meta,
												bool shared, bool evict);

/* killed.c */
extern uint32 PipeannKillCount(const PipeannMeta *meta);
extern void PipeannKillInit(PipeannCacheHeader *header, uint32 count);

/* hot.c */
extern Size PipeannHotSize(const PipeannMeta *meta);
extern void PipeannHotInitTable(PipeannPageUses *uses,
								const PipeannMeta *meta);
extern void PipeannHotForget(PipeannControl *control, PipeannRecord *record);

/* mapping.c */
extern bool PipeannAttachmentAddMapping(PipeannAttachment *attachment, Size size, uint32 first,
								uint32 nodes, bool evict);
extern bool PipeannAttachmentRefresh(Relation index, PipeannAttachment *attachment,
							   const PipeannMeta *meta);
extern void PipeannArraysRelease(PipeannArrays *arrays);

/* follow.c */
extern void PipeannAttachmentFollow(Relation index, PipeannAttachment *attachment,
							  const PipeannMeta *meta);
extern bool PipeannAttachmentIsDoomed(const PipeannAttachment *attachment);

#endif							/* PIPEANN_REGISTRY_H */
