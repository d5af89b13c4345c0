/*
 * cache.c
 *		Giving out caches: handles on attachments, private copies.
 */
#include "cache/registry.h"

#include "access/xact.h"

/*
 * A private copy is used for so long (ms) before shared memory is tried again.
 */
#define RETRY_MS 60000

/* Idle handles to look at for one of the right memory context. */
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
	if (PipeannArenaLimit(control) > 0)
		return true;
	if (control->used_pages > 0)
		PipeannEvictAll(control);
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
		!TimestampDifferenceExceeds(attachment->tried, now, RETRY_MS))
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
		PipeannRegistrySweep(PipeannControlGet());
		attachment = PipeannAttachmentMake(index, meta, true, true);
		if (attachment == NULL)
			ReportPrivateCopy(index);
	}
	if (attachment == NULL)
		attachment = PipeannAttachmentMake(index, meta, false, false);
	PipeannAttachmentList(attachment);
	return attachment;
}

static void
FillHot(const PipeannAttachment *attachment, PipeannHot *hot)
{
	PipeannControl *control = PipeannControlAttached();

	if (attachment->entry == NULL)
		return;
	hot->table = (PipeannPageUses *)
		((char *) attachment->header + attachment->header->hot);
	hot->sums = &control->hot;
	hot->own = &control->hot.of[attachment->entry - control->entries];
}

static void
FillCache(PipeannHandle *handle)
{
	const PipeannAttachment *attachment = handle->attachment;
	const PipeannCacheHeader *header = attachment->header;
	const char *base = (const char *) header;
	PipeannCache *cache = &handle->cache;
	const uint32 *entry_graph = (const uint32 *) (base + header->entry_graph);
	uint32		count = attachment->entry_count;

	cache->place = attachment->place;
	cache->pq = attachment->pq;
	cache->pq.centroids = (const float *) (base + header->centroids);
	cache->pq.key = header->codebook_key;
	/* other backends may have followed a newer metapage than ours */
	cache->ncodes = Min(pg_atomic_read_u32(&attachment->header->ncodes),
						Min(handle->arrays->capacity,
							handle->arrays->mapped));
	cache->attr_bytes = attachment->attr_bytes;
	cache->books = base + header->books;
	cache->chunks = handle->arrays->chunks;
	cache->entry_count = count;
	cache->entry_degree = attachment->entry_degree;
	cache->entry_ids = entry_graph;
	cache->entry_nneighbors = (const uint16 *) (entry_graph + count);
	cache->entry_neighbors = entry_graph + count + (count + 1) / 2;
	cache->map = handle->arrays->map;
	cache->killed = (PipeannKilledTable *) ((char *) header + header->killed);
	FillHot(attachment, &cache->hot);
	cache->bytes = attachment->bytes;
	cache->impl = handle;
	pg_read_barrier();
}

/* Make a handle use the newest arrays of its attachment. */
static void
SyncHandle(PipeannHandle *handle)
{
	PipeannArrays *old = handle->arrays;

	handle->arrays = handle->attachment->arrays;
	handle->arrays->refs++;
	if (old != NULL)
		PipeannArraysRelease(old);
	FillCache(handle);
}

/* Reset callback of the handle's memory context. */
static void
EndHandle(void *arg)
{
	PipeannHandle *handle = arg;

	if (handle->arrays != NULL)
	{
		PipeannArraysRelease(handle->arrays);
		PipeannAttachmentUnuse(handle->attachment);
	}
	else if (handle->attachment != NULL)
		dlist_delete(&handle->node);
}

static PipeannHandle *
FindIdle(PipeannAttachment *attachment, MemoryContext context)
{
	dlist_iter	iter;
	int			looks = 0;

	dlist_foreach(iter, &attachment->idle)
	{
		PipeannHandle *handle = dlist_container(PipeannHandle, node,
												iter.cur);

		if (handle->context == context)
		{
			dlist_delete(&handle->node);
			return handle;
		}
		if (++looks == IDLE_LOOKS)
			break;
	}
	return NULL;
}

static PipeannHandle *
UseAttachment(PipeannAttachment *attachment, MemoryContext context)
{
	PipeannHandle *handle = FindIdle(attachment, context);

	if (handle == NULL)
	{
		handle = MemoryContextAllocZero(context, sizeof(PipeannHandle));
		handle->context = context;
		handle->callback.func = EndHandle;
		handle->callback.arg = handle;
		MemoryContextRegisterResetCallback(context, &handle->callback);
	}
	handle->attachment = attachment;
	attachment->refs++;
	SyncHandle(handle);
	return handle;
}

/*
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
		PipeannHandle *handle = UseAttachment(attachment, context);

		PipeannCacheFollow(index, &handle->cache, meta);
		if (handle->cache.ncodes >= PipeannMetaIds(meta) ||
			attachment->entry == NULL)
			return &handle->cache;
		PipeannCacheRelease(&handle->cache);
	}
}

void
PipeannCacheRelease(PipeannCache *cache)
{
	PipeannHandle *handle = cache->impl;
	PipeannAttachment *attachment = handle->attachment;

	Assert(handle->arrays != NULL);
	PipeannArraysRelease(handle->arrays);
	handle->arrays = NULL;
	dlist_push_head(&attachment->idle, &handle->node);
	PipeannAttachmentUnuse(attachment);
}

void
PipeannCacheFollow(Relation index, PipeannCache *cache,
				   const PipeannMeta *meta)
{
	PipeannHandle *handle = cache->impl;

	PipeannAttachmentFollow(index, handle->attachment, meta);
	SyncHandle(handle);
}

void
PipeannCacheForget(Relation index)
{
	PipeannLocator locator = PipeannRelationLocator(index);
	PipeannAttachment *attachment = PipeannAttachmentFind(index);
	PipeannControl *control = PipeannControlGet();
	PipeannCacheEntry *entry;
	uint64		generation;
	uint64		pages;

	if (attachment != NULL)
		PipeannAttachmentDrop(attachment);
	if (control == NULL || RelationUsesLocalBuffers(index))
		return;
	PipeannRegistryFind(control, &locator, &generation, &entry, &pages);
	if (entry != NULL)
		PipeannRegistryDoom(control, entry, generation);
}

void
PipeannCacheSweep(void)
{
	PipeannSweepIfDue();
	if (PipeannControlAttached() != NULL)
		PipeannRegistrySweep(PipeannControlAttached());
}

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
