/*
 * cache.c
 *		Giving out caches, shared ones and private copies, and bringing them up to
 *		date; settings.
 */
#include "cache/registry.h"

#include "access/xact.h"
#include "base/pause.h"
#include "utils/guc.h"

/*
 * Bringing a cache up to date with its index, and its map of rows.
 *
 * One backend at a time does so while the others wait. It writes the codes that
 * it reads over the old ones, while searches use them. A code read while it
 * changes costs a little recall at most.
 */

/* What a turn is for. */
typedef struct Newer
{
	Relation	index;
	const PipeannMeta *meta;
} Newer;

/* A doomed cache does not grow any more: the next scan gets another one. */
static bool
NeedsUpdate(const PipeannAttachment *attachment, const PipeannMeta *meta)
{
	uint32		ids = PipeannMetaIds(meta);

	if (PipeannAttachmentIsDoomed(attachment))
		ids = Min(ids, attachment->arrays->capacity);
	return pg_atomic_read_u64(&attachment->header->applied) < meta->changes ||
		pg_atomic_read_u64(&attachment->header->entry_graph_applied) <
		meta->entry_changes ||
		pg_atomic_read_u32(&attachment->header->ncodes) < ids;
}

/* A cache that finds no room to grow is doomed: only its users keep it. */
static void
Grow(Relation index, PipeannAttachment *attachment, const PipeannMeta *meta)
{
	uint32		first;
	uint32		nodes;

	if (PipeannAttachmentIsDoomed(attachment))
		return;
	PipeannGrowthPlan(attachment->arrays->capacity, PipeannMetaIds(meta),
					  &first, &nodes);
	if (PipeannAttachmentAddMapping(attachment,
									mul_size(nodes, PipeannAttachmentCodeBytes(attachment)),
									first, nodes, true))
		PipeannAttachmentRefresh(index, attachment, meta);
	else if (attachment->entry != NULL)
		PipeannRegistryDoom(attachment->entry, attachment->generation);
}

/* Counters are set last, so that after an error all of it is done again. */
static void
AdvanceCounters(PipeannCacheHeader *header, uint32 ids, uint64 changes)
{
	pg_write_barrier();
	if (pg_atomic_read_u32(&header->ncodes) < ids)
		pg_atomic_write_u32(&header->ncodes, ids);
	if (pg_atomic_read_u64(&header->applied) < changes)
		pg_atomic_write_u64(&header->applied, changes);
}

static void
Update(PipeannAttachment *attachment, void *arg)
{
	Relation	index = ((const Newer *) arg)->index;
	const PipeannMeta *meta = ((const Newer *) arg)->meta;
	PipeannCacheHeader *header = attachment->header;
	uint32		have;
	uint32		ids = PipeannMetaIds(meta);

	/* a backend that cannot map all of the cache leaves this to another one */
	if (!PipeannAttachmentRefresh(index, attachment,
								  meta) || !NeedsUpdate(attachment, meta))
		return;
	if (ids > attachment->arrays->capacity)
		Grow(index, attachment, meta);
	have = pg_atomic_read_u32(&header->ncodes);
	ids = Max(have, Min(ids, attachment->arrays->capacity));
	if (meta->changes > pg_atomic_read_u64(&header->applied) +
		PIPEANN_CHANGE_RING)
		PipeannReadCodes(index, attachment, meta, 0, ids);
	else
	{
		PipeannReadChanges(index, attachment, meta, have);
		PipeannReadCodes(index, attachment, meta, have, ids);
	}
	PipeannReadEntryIds(index, attachment, meta);
	PIPEANN_PAUSE("cache-follow");
	AdvanceCounters(header, ids, meta->changes);
}

static void
AttachmentFollow(Relation index, PipeannAttachment *attachment,
				 const PipeannMeta *meta)
{
	Newer		newer = {.index = index, .meta = meta};

	if (meta->build_id != attachment->build_id)
		return;
	PipeannAttachmentRefresh(index, attachment, meta);
	if (NeedsUpdate(attachment, meta))
		PipeannInTurn(attachment, Update, &newer);
}

/* Caches not in use to look at for one of the right memory context. */
#define IDLE_LOOKS 4

static void
ReportPrivateCopy(Relation index)
{
	static bool said = false;

	if (said)
		return;
	said = true;
	ereport(LOG,
			(errmsg("no shared memory for index \"%s\": this backend keeps its own copy of the codes",
					RelationGetRelationName(index)),
			 PipeannArenaError()[0] != '\0' ?
			 errdetail_internal("Last error: %s.", PipeannArenaError()) : 0,
			 errhint("Consider raising \"pipeann.shared_memory\" (now %d MB).",
					 pipeann_shared_memory)));
}

/*
 * Caches of temporary relations are not shared: other backends do not use them,
 * and their relfilenumbers may be those of other relations.
 */
static bool
MayShare(Relation index)
{
	PipeannControl *control;

	if (RelationUsesLocalBuffers(index))
		return false;
	control = PipeannControlGet();
	if (control == NULL)
		return false;
	if (PipeannArenaLimit() > 0)
		return true;
	if (control->used_pages > 0)
		PipeannEvictAll();
	return false;
}

static bool
IsUsable(PipeannAttachment *attachment, const PipeannMeta *meta,
		 bool may_share)
{
	return attachment->build_id == meta->build_id &&
		(attachment->entry == NULL || may_share) &&
		PipeannAttachmentHold(attachment) &&
		!PipeannAttachmentIsDoomed(attachment);
}

/*
 * From time to time, exchange an unused private copy for a shared one, without
 * evicting other caches for it.
 */
static PipeannAttachment *
RetryShared(Relation index, const PipeannMeta *meta,
			PipeannAttachment *attachment)
{
	TimestampTz now = GetCurrentStatementStartTimestamp();
	PipeannAttachment *shared;

	if (attachment->entry != NULL || attachment->refs > 0 ||
		!TimestampDifferenceExceeds(attachment->tried, now, PIPEANN_RETRY_MS))
		return attachment;
	attachment->tried = now;
	shared = PipeannAttachmentMake(index, meta, true, false);
	if (shared == NULL)
		return attachment;
	PipeannAttachmentDrop(attachment);
	PipeannAttachmentList(shared);
	return shared;
}

/*
 * Returns the attachment for new scans of an index; its cache stays in memory.
 */
static PipeannAttachment *
GetAttachment(Relation index, const PipeannMeta *meta, bool may_share)
{
	PipeannAttachment *attachment = PipeannAttachmentFind(index);

	if (attachment != NULL && IsUsable(attachment, meta, may_share))
		return may_share ? RetryShared(index, meta, attachment) : attachment;
	if (attachment != NULL)
		PipeannAttachmentDrop(attachment);
	attachment = NULL;
	if (may_share)
	{
		PipeannRegistrySweep();
		attachment = PipeannAttachmentMake(index, meta, true, true);
		if (attachment == NULL)
			ReportPrivateCopy(index);
	}
	if (attachment == NULL)
		attachment = PipeannAttachmentMake(index, meta, false, false);
	PipeannAttachmentList(attachment);
	return attachment;
}

/* Make a cache in use show the newest arrays of its attachment. */
static void
Sync(PipeannCache *cache)
{
	PipeannAttachment *attachment = cache->attachment;
	PipeannArrays *arrays = attachment->arrays;

	if (cache->arrays != arrays)
	{
		arrays->refs++;
		PipeannArraysRelease(cache->arrays);
		cache->arrays = arrays;
	}
	cache->codes.chunks = arrays->chunks;
	cache->map = arrays->map;
	/* other backends may have followed a newer metapage than ours */
	cache->codes.ncodes = Min(pg_atomic_read_u32(&attachment->header->ncodes),
							  Min(arrays->capacity, arrays->mapped));
	cache->bytes = attachment->model.bytes;
	pg_read_barrier();
}

/* Reset callback of a cache's memory context. */
static void
EndCache(void *arg)
{
	PipeannCache *cache = arg;

	if (cache->arrays != NULL)
	{
		PipeannArraysRelease(cache->arrays);
		PipeannAttachmentUnuse(cache->attachment);
	}
	else if (cache->attachment != NULL)
		dlist_delete(&cache->node);
}

static PipeannCache *
FindIdle(PipeannAttachment *attachment, MemoryContext context)
{
	dlist_iter	iter;
	int			looks = 0;

	dlist_foreach(iter, &attachment->idle)
	{
		PipeannCache *cache = dlist_container(PipeannCache, node, iter.cur);

		if (cache->context == context)
		{
			dlist_delete(&cache->node);
			return cache;
		}
		if (++looks == IDLE_LOOKS)
			break;
	}
	return NULL;
}

/* The arrays are referred to, so that it ends with its context. */
static PipeannCache *
UseAttachment(PipeannAttachment *attachment, MemoryContext context)
{
	PipeannCache *cache = FindIdle(attachment, context);

	if (cache == NULL)
	{
		cache = MemoryContextAlloc(context, sizeof(PipeannCache));
		*cache = attachment->model;
		cache->attachment = attachment;
		cache->context = context;
		cache->callback.func = EndCache;
		cache->callback.arg = cache;
		MemoryContextRegisterResetCallback(context, &cache->callback);
	}
	attachment->refs++;
	cache->arrays = attachment->arrays;
	cache->arrays->refs++;
	return cache;
}

/*
 * Returns the cache of an index that has codes, up to date with meta. Loads it
 * if need be, or waits, interruptibly, for another backend that is loading it.
 * Without room in shared memory the cache is a private copy; a backend reports
 * its first such copy at LOG level. The cache is released by
 * PipeannCacheRelease(), or when context is reset or deleted.
 *
 * A cache that could not grow serves the scans that have it already. A new scan
 * looks for another cache, and in the end makes a private copy.
 */
PipeannCache *
PipeannCacheAcquire(Relation index, const PipeannMeta *meta,
					MemoryContext context)
{
	bool		may_share;

	Assert(meta->flags & PIPEANN_META_HAS_CODES);
	PipeannSweepIfDue();
	may_share = MayShare(index);
	for (int attempt = 0;; attempt++)
	{
		PipeannAttachment *attachment = GetAttachment(index, meta,
													  may_share && attempt < 2);
		PipeannCache *cache = UseAttachment(attachment, context);

		PipeannCacheFollow(index, cache, meta);
		if (cache->codes.ncodes >= PipeannMetaIds(meta) ||
			attachment->entry == NULL)
			return cache;
		PipeannCacheRelease(cache);
	}
}

void
PipeannCacheRelease(PipeannCache *cache)
{
	PipeannAttachment *attachment = cache->attachment;

	Assert(cache->arrays != NULL);
	PipeannArraysRelease(cache->arrays);
	cache->arrays = NULL;
	dlist_push_head(&attachment->idle, &cache->node);
	PipeannAttachmentUnuse(attachment);
}

/* Bring an acquired cache up to date with a newer metapage. */
void
PipeannCacheFollow(Relation index, PipeannCache *cache,
				   const PipeannMeta *meta)
{
	AttachmentFollow(index, cache->attachment, meta);
	Sync(cache);
}

/* Drop the cache of this relation's file, which is being rebuilt in place. */
void
PipeannCacheForget(Relation index)
{
	PipeannLocator locator = PipeannRelationLocator(index);
	PipeannAttachment *attachment = PipeannAttachmentFind(index);

	if (attachment != NULL)
		PipeannAttachmentDrop(attachment);
	if (PipeannControlGet() != NULL && !RelationUsesLocalBuffers(index))
		PipeannRegistryForget(&locator);
}

/* Drop the caches of files that are gone. */
void
PipeannCacheSweep(void)
{
	PipeannSweepIfDue();
	if (pipeann_control != NULL)
		PipeannRegistrySweep();
}

/*
 * Memory that the cache of an index with this metapage takes when it is made.
 * Sets *megabytes to what pipeann.shared_memory has to be for it alone.
 */
Size
PipeannCacheMemory(const PipeannMeta *meta, uint64 *megabytes)
{
	PipeannCacheHeader plan;
	uint32		nodes;
	Size		size = PipeannCachePlan(meta, &plan, &nodes);
	uint64		pages = PipeannArenaPages(size);

	*megabytes = PipeannArenaMegabytes(pages);
	return mul_size(pages, FPM_PAGE_SIZE);
}

/*
 * Warn if such a cache is too large for the area that the server reserved.
 *
 * Codes that the server's area cannot hold are copied by every backend that
 * searches: better said now than found out by its memory.
 */
void
PipeannCacheWarn(Relation index, const PipeannMeta *meta)
{
	uint64		megabytes;
	Size		size = PipeannCacheMemory(meta, &megabytes);
	PipeannControl *control = MayShare(index) ? PipeannControlGet() : NULL;

	if (control == NULL || control->arena_pages == 0 ||
		size / FPM_PAGE_SIZE <= control->arena_pages)
		return;
	ereport(WARNING,
			(errmsg("codes of index \"%s\" do not fit pipeann.shared_memory, %d MB",
					RelationGetRelationName(index), pipeann_shared_memory),
			 errdetail("Each session that searches the index will have a copy of its own."),
			 errhint("Set pipeann.shared_memory to at least %llu MB, and restart the server.",
					 (unsigned long long) megabytes)));
}

/* Registers settings and hooks; _PG_init() calls this. */
void
PipeannCacheInit(void)
{
	bool		preload = process_shared_preload_libraries_in_progress;

	DefineCustomIntVariable("pipeann.shared_memory",
							"Sets the shared memory for codes and entry graphs of pipeann indexes.",
							"Zero means that each backend keeps copies of its own. "
							"Reserved at server start when pipeann is in shared_preload_libraries.",
							&pipeann_shared_memory, 128, 0, MAX_KILOBYTES,
							preload ? PGC_POSTMASTER : PGC_SIGHUP,
							GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable("pipeann.hot_pages",
							"Part of shared_buffers, in per cent, for index pages that searches want often.",
							"Searches bring in no more than this, over all pipeann indexes of the server. Zero: none.",
							&pipeann_hot_pages, 25, 0, 90, PGC_SIGHUP, 0,
							NULL, NULL, NULL);
	PipeannAttachmentsWatch();
	if (preload)
		PipeannControlPreload();
}
