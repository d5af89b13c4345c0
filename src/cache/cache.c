/*
 * cache.c
 *		Acquiring caches, shared ones and a backend's own, and bringing them up
 *		to date; settings.
 *
 * An attachment refers to its entry only while a PipeannCache is in use, so that the
 * cache may be dropped between scans. One that is no longer good for new scans (its
 * cache was dropped, its index rebuilt) leaves the hash table at once and is freed when
 * its last user releases it.
 */
#include "cache/registry.h"

#include "base/pause.h"
#include "storage/ipc.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/inval.h"

/* ---------- a root's parts in memory ---------- */

/* An index may grow by this factor, and to this many nodes, before it needs another root. */
#define GROWTH 4
#define LEAST_IDS (1U << 20)

/* The number of ids for which a root has chunks and page states. */
static uint32
RootIds(uint32 ids)
{
	uint64		room = Max((uint64) ids * GROWTH, LEAST_IDS);

	return (uint32) Min(TYPEALIGN(PIPEANN_CHUNK_NODES, room),
						PG_UINT32_MAX - PIPEANN_CHUNK_NODES + 1);
}

/* Graph pages of which a root notes the buffer in which they were seen, with room to grow. */
static uint32
SeenPages(const PipeannMeta *meta)
{
	return (uint32) Min(Max((uint64) meta->graph_pages * 2, 1024), PG_UINT32_MAX);
}

/* Sets the sizes and offsets of a root in *plan; returns its size. */
static Size
PlanRoot(const PipeannMeta *meta, PipeannCacheHeader *plan)
{
	const PipeannLayout *l = &meta->layout;
	Size		size = CACHELINEALIGN(sizeof(PipeannCacheHeader));

	memset(plan, 0, sizeof(*plan));
	plan->ids = RootIds(PipeannMetaIds(meta));
	plan->chunk_pages = PipeannArenaPages(mul_size(PIPEANN_CHUNK_NODES, PipeannCodeBytes(l)));
	plan->entry_pages = PipeannArenaPages(PipeannEntryGraphBytes(l, meta->entry_count));
	plan->seen = size;
	size = CACHELINEALIGN(add_size(size, add_size(offsetof(PipeannSeenPages, buffers),
												  mul_size(SeenPages(meta), sizeof(pg_atomic_uint32)))));
	plan->centroids = size;
	size = CACHELINEALIGN(add_size(size, PipeannCodebookBytes(l)));
	if (PipeannPqHasHalves(l->metric, l->dim))
	{
		plan->halves = size;
		size = add_size(size, PipeannCodebookBytes(l) / 2);
	}
	plan->histograms = size;
	size = add_size(size, PipeannHistogramsBytes(l));
	plan->first_ids = size;
	size = CACHELINEALIGN(add_size(size, PipeannFirstEntries(meta) * sizeof(uint32)));
	plan->first_codes = size;
	size = CACHELINEALIGN(add_size(size, PipeannFirstEntries(meta) * l->pq_bytes));
	plan->chunks = size;
	size = add_size(size, mul_size(plan->ids / PIPEANN_CHUNK_NODES,
								   sizeof(pg_atomic_uint64)));
	plan->pages = size;
	return add_size(size, mul_size(PipeannCodePages(l, plan->ids),
								   sizeof(pg_atomic_uint32)));
}

/* Initialise a new root; load.c then fills it. */
static void
InitRoot(PipeannCacheHeader *header, const PipeannCacheHeader *plan, const PipeannMeta *meta)
{
	pg_atomic_uint64 *chunks = PipeannRootAt(header, plan->chunks);
	pg_atomic_uint32 *pages = PipeannRootAt(header, plan->pages);
	PipeannSeenPages *seen = PipeannRootAt(header, plan->seen);

	*header = *plan;
	pg_atomic_init_u64(&header->complete, 0);
	pg_atomic_init_u64(&header->kept, 0);
	pg_atomic_init_u64(&header->entry_graph, PIPEANN_NOWHERE);
	pg_atomic_init_u64(&header->entries_read, 0);
	pg_atomic_init_u64(&header->row_map, PIPEANN_NOWHERE);
	for (uint32 i = 0; i < plan->ids / PIPEANN_CHUNK_NODES; i++)
		pg_atomic_init_u64(&chunks[i], PIPEANN_NOWHERE);
	for (uint32 i = 0; i < PipeannCodePages(&meta->layout, plan->ids); i++)
		pg_atomic_init_u32(&pages[i], 0);
	seen->npages = SeenPages(meta);
	for (uint32 i = 0; i < seen->npages; i++)
		pg_atomic_init_u32(&seen->buffers[i], InvalidBuffer);
}

/* ---------- attachments ---------- */

typedef struct AttachmentSlot
{
	Oid			relid;
	PipeannAttachment *attachment;
} AttachmentSlot;

static HTAB *slots = NULL;
static dlist_head attachments = DLIST_STATIC_INIT(attachments);

/*
 * Give back what this backend holds in shared memory. Later callbacks find
 * nothing left to do there.
 */
static void
ReleaseAtExit(int code pg_attribute_unused(), Datum arg pg_attribute_unused())
{
	dlist_iter	iter;

	dlist_foreach(iter, &attachments)
		PipeannRegistryLetGo(dlist_container(PipeannAttachment, node,
											 iter.cur));
}

static void
InitAttachments(void)
{
	HASHCTL		ctl;

	if (slots != NULL)
		return;
	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(AttachmentSlot);
	ctl.hcxt = TopMemoryContext;
	slots = hash_create("pipeann caches", 16, &ctl,
						HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	before_shmem_exit(ReleaseAtExit, (Datum) 0);
}

/* The attachment that new scans of an index use, or NULL. */
static PipeannAttachment *
FindAttachment(Relation index)
{
	Oid			relid = RelationGetRelid(index);
	AttachmentSlot *slot;

	InitAttachments();
	slot = hash_search(slots, &relid, HASH_FIND, NULL);
	return slot == NULL ? NULL : slot->attachment;
}

/* Hide an attachment from new scans, and free it if it has no users. */
static void
DropAttachment(PipeannAttachment *attachment)
{
	if (attachment->listed)
		hash_search(slots, &attachment->relid, HASH_REMOVE, NULL);
	attachment->listed = false;
	if (attachment->refs == 0)
		MemoryContextDelete(attachment->context);
}

/* The relation may have changed in any way: new scans look for the cache again. */
static void
NoteInvalidation(Datum arg pg_attribute_unused(), Oid relid)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &attachments)
	{
		PipeannAttachment *attachment = dlist_container(PipeannAttachment, node, iter.cur);

		if (attachment->listed && (relid == InvalidOid || attachment->relid == relid))
			DropAttachment(attachment);
	}
}

/* ---------- making attachments ---------- */

/* Memory that a backend keeps at most in unused roots of its own. */
#define MAX_OWN_ROOTS ((Size) 64 * 1024 * 1024)

/* Drop the backend's unused roots beyond that. */
static void
LimitOwn(void)
{
	Size		bytes = 0;
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &attachments)
	{
		PipeannAttachment *attachment = dlist_container(PipeannAttachment,
														node, iter.cur);

		if (attachment->entry != NULL || attachment->refs > 0 || !attachment->listed)
			continue;
		bytes += MemoryContextMemAllocated(attachment->context, true);
		if (bytes > MAX_OWN_ROOTS && !attachment->temporary)
			DropAttachment(attachment);
	}
}

/* After this time (ms) a backend tries again to get memory for a root or a map of rows. */
#define RETRY_MS 60000

static bool
MayRetry(const PipeannAttachment *attachment)
{
	return attachment->refused == 0 ||
		TimestampDifferenceExceeds(attachment->refused, GetCurrentStatementStartTimestamp(),
								   RETRY_MS);
}

/* Callback of its memory context. */
static void
EndAttachment(void *arg)
{
	PipeannAttachment *attachment = arg;

	PipeannRegistryLetGo(attachment);
	dlist_delete(&attachment->node);
}

/* A new attachment, in a memory context of its own below parent. */
static PipeannAttachment *
NewAttachment(Relation index, const PipeannMeta *meta, MemoryContext parent)
{
	MemoryContext context = AllocSetContextCreate(parent, "pipeann cache", ALLOCSET_SMALL_SIZES);
	MemoryContext former = CurrentMemoryContext;
	PipeannAttachment *attachment = MemoryContextAllocZero(context,
														   sizeof(PipeannAttachment));
	PipeannCodes *codes = &attachment->model.codes;

	attachment->context = context;
	attachment->relid = RelationGetRelid(index);
	attachment->locator = PipeannRelationLocator(index);
	attachment->temporary = RelationUsesLocalBuffers(index);
	attachment->build_id = meta->build_id;
	attachment->model.place = PIPEANN_CACHE_PRIVATE;
	MemoryContextSwitchTo(context);
	codes->pq = PipeannPqNew(meta->layout.storage, meta->layout.dim, meta->layout.pq_bytes);
	MemoryContextSwitchTo(former);
	codes->attr_bytes = meta->layout.attr_bytes;
	codes->chunk_shift = PIPEANN_CHUNK_SHIFT;
	codes->entry_degree = PIPEANN_ENTRY_DEGREE;
	dlist_push_tail(&attachments, &attachment->node);
	attachment->callback.func = EndAttachment;
	attachment->callback.arg = attachment;
	MemoryContextRegisterResetCallback(context, &attachment->callback);
	return attachment;
}

/* Set where the parts of a root are; a root that it had before was the backend's own. */
static void
SetRoot(PipeannAttachment *attachment, PipeannCacheHeader *header)
{
	PipeannCache *model = &attachment->model;

	if (attachment->header != NULL)
	{
		pfree(attachment->header);
		pfree(attachment->chunks);
	}
	attachment->header = header;
	attachment->chunks = MemoryContextAllocZero(attachment->context,
												mul_size(header->ids / PIPEANN_CHUNK_NODES,
														 sizeof(uint8 *)));
	model->codes.chunks = attachment->chunks;
	model->codes.stores = header->stores;
	model->codes.pq.centroids = PipeannRootAt(header, header->centroids);
	model->histograms = PipeannRootAt(header, header->histograms);
	model->seen = PipeannRootAt(header, header->seen);
}

/* Copy the root that this backend has read to shared memory, if there is room. The entry is locked. */
static void
CopyRoot(PipeannAttachment *attachment, const PipeannMeta *meta)
{
	PipeannCacheHeader plan;
	uint64		pages = PipeannArenaPages(PlanRoot(meta, &plan));
	PipeannCacheEntry *entry = attachment->entry;
	PipeannCacheHeader *own = attachment->header;
	PipeannCacheHeader *root;

	entry->wanted = PipeannCacheMemory(meta) / FPM_PAGE_SIZE;
	entry->root = PipeannRegistryTake(entry, pages);
	if (entry->root == PIPEANN_NOWHERE)
		return;
	entry->root_pages = (uint32) pages;
	root = (PipeannCacheHeader *) PipeannArenaAt(&pipeann_control->arena, entry->root);
	InitRoot(root, own, meta);
	memcpy(PipeannRootAt(root, root->centroids), PipeannRootAt(own, own->centroids),
		   own->chunks - own->centroids);
}

/*
 * Attach to the root in shared memory. If there is none yet, a copy of the one that this backend
 * has read becomes it; false if it has not read one, or if there is no room.
 */
static bool
AttachShared(PipeannAttachment *attachment, const PipeannMeta *meta)
{
	const PipeannSegment *segment = &pipeann_control->arena.segments[0];
	PipeannCacheEntry *entry;
	PipeannCacheHeader *root = NULL;

	if (!attachment->referenced && !PipeannRegistryClaim(attachment))
		return false;
	entry = attachment->entry;
	LWLockAcquire(&entry->lock, LW_EXCLUSIVE);
	if (entry->root == PIPEANN_NOWHERE && attachment->header != NULL)
		CopyRoot(attachment, meta);
	if (entry->root != PIPEANN_NOWHERE)
		root = (PipeannCacheHeader *) PipeannArenaAt(&pipeann_control->arena, entry->root);
	LWLockRelease(&entry->lock);
	if (root == NULL)
		return false;
	if (root->ids < PipeannMetaIds(meta))
	{
		/* the index has grown beyond the room that this root has */
		LWLockAcquire(&pipeann_control->lock, LW_EXCLUSIVE);
		entry->state = PIPEANN_CACHE_ENTRY_DOOMED;
		LWLockRelease(&pipeann_control->lock);
		PipeannRegistryLetGo(attachment);
		attachment->entry = NULL;
		return AttachShared(attachment, meta);
	}
	SetRoot(attachment, root);
	/* the first segment is the server's own memory, if there is such */
	attachment->model.place = segment->serial != 0 && segment->handle == DSM_HANDLE_INVALID ?
		PIPEANN_CACHE_SHARED : PIPEANN_CACHE_DYNAMIC;
	return true;
}

/* What a search sees of the entry graph: all of it, or the first entries if it is not loaded. */
static void
ShowEntries(PipeannCache *cache, const PipeannMeta *meta, const char *entry_graph)
{
	PipeannCacheHeader *header = cache->attachment->header;
	PipeannCodes *codes = &cache->codes;
	uint32		count = meta->entry_count;

	codes->entry_count = entry_graph != NULL ? count : PipeannFirstEntries(meta);
	codes->entry_ids = entry_graph != NULL ? (const uint32 *) entry_graph :
		PipeannRootAt(header, header->first_ids);
	codes->entry_codes = entry_graph != NULL ?
		(const uint8 *) entry_graph + PipeannEntryCodesOffset(count) :
		PipeannRootAt(header, header->first_codes);
	codes->entry_nneighbors = entry_graph != NULL ?
		(const uint16 *) (codes->entry_ids + count) : NULL;
	codes->entry_neighbors = codes->entry_ids + count + (count + 1) / 2;
}

/*
 * Returns a new attachment, or NULL if it would be outdated. A backend that finds no root in
 * shared memory reads one, and no other waits for that; without room the root stays its own.
 * After an error the attachment's memory is freed with `context`.
 */
static PipeannAttachment *
MakeAttachment(Relation index, const PipeannMeta *meta, MemoryContext context, bool may_share)
{
	PipeannAttachment *attachment = NewAttachment(index, meta, context);
	AttachmentSlot *slot;

	if (!may_share || !AttachShared(attachment, meta))
	{
		PipeannCacheHeader plan;
		Size		size = PlanRoot(meta, &plan);
		PipeannCacheHeader *own = MemoryContextAllocHuge(attachment->context, size);

		InitRoot(own, &plan, meta);
		SetRoot(attachment, own);
		PipeannCacheLoad(index, attachment, meta);
		if (attachment->outdated)
		{
			MemoryContextDelete(attachment->context);
			return NULL;
		}
		if (!may_share || !AttachShared(attachment, meta))
		{
			PipeannRegistryLetGo(attachment);
			attachment->entry = NULL;
			LimitOwn();
			if (may_share)
			{
				attachment->refused = GetCurrentStatementStartTimestamp();
				PipeannReportNoRoom(RelationGetRelationName(index));
			}
		}
	}
	if (attachment->header->halves != 0)
		attachment->model.codes.pq.halves =
			PipeannRootAt(attachment->header, attachment->header->halves);
	MemoryContextSetParent(attachment->context, TopMemoryContext);
	slot = hash_search(slots, &attachment->relid, HASH_ENTER, NULL);
	slot->attachment = attachment;
	attachment->listed = true;
	return attachment;
}

/* ---------- the map of rows ---------- */

/* The map of rows, of whatever version; NULL if there is none. */
static PipeannRowMap *
MapOf(const PipeannAttachment *attachment)
{
	PipeannMapMemory *memory = (PipeannMapMemory *)
		PipeannPartAt(attachment, &attachment->header->row_map);

	return memory == NULL ? NULL : (PipeannRowMap *) (memory + 1);
}

static void
ShowMap(PipeannCache *cache)
{
	cache->row_map = MapOf(cache->attachment);
	cache->may_map_rows = cache->attachment->entry != NULL && MayRetry(cache->attachment);
}

/*
 * Write the map of rows over the former one, or, if that has no room for it, to new memory: the
 * former one then stays until the cache goes, as searches may read it. False if there is no memory.
 */
static bool
PutMap(PipeannAttachment *attachment, const PipeannRowMapPlan *plan)
{
	PipeannRowMap *map = MapOf(attachment);
	pg_atomic_uint64 *where = &attachment->header->row_map;

	if (map == NULL || !PipeannRowMapHasRoom(map, plan))
	{
		uint64		pages = PipeannArenaPages(add_size(sizeof(PipeannMapMemory), plan->size));
		PipeannArenaPlace place = PipeannAttachmentIsDoomed(attachment) ? PIPEANN_NOWHERE :
			PipeannRegistryTake(attachment->entry, pages);
		PipeannMapMemory *memory;

		if (place == PIPEANN_NOWHERE)
			return false;
		memory = (PipeannMapMemory *) PipeannArenaAt(&pipeann_control->arena, place);
		memory->pages = pages;
		memory->former = pg_atomic_read_u64(where);
		PipeannRowMapWrite((PipeannRowMap *) (memory + 1), plan, true);
		pg_write_barrier();
		pg_atomic_write_u64(where, place);
	}
	else
		PipeannRowMapWrite(map, plan, false);
	return true;
}

/*
 * Make a map of these rows, all that the index had when the metapage had these
 * `removals`, in a shared cache. Without room in memory there is none.
 */
void
PipeannCacheMapRows(PipeannCache *cache, const PipeannMeta *meta,
					const PipeannMappedRow *rows, uint64 n)
{
	PipeannAttachment *attachment = cache->attachment;
	PipeannRowMapPlan plan = {.rows = rows, .n = n, .nodes = meta->nodes,
		.removals = meta->removals};

	attachment->refused = GetCurrentStatementStartTimestamp();
	if (PipeannRowMapMakePlan(&plan))
	{
		LWLockAcquire(&attachment->entry->lock, LW_EXCLUSIVE);
		if (PutMap(attachment, &plan))
			attachment->refused = 0;
		LWLockRelease(&attachment->entry->lock);
	}
	pfree(plan.starts);
	ShowMap(cache);
}

/*
 * Remove from the map of rows, if there is one, those that VACUUM has removed,
 * provided that only this VACUUM has removed rows since it was made. `removals`
 * will be two higher than in meta. The map is closed to readers meanwhile.
 */
void
PipeannCacheForgetRows(PipeannCache *cache, const PipeannMeta *meta,
					   IndexBulkDeleteCallback is_dead, void *arg)
{
	PipeannAttachment *attachment = cache->attachment;
	PipeannRowMap *map;
	LWLock	   *lock;
	uint32		count = 0;
	uint64		gone;

	if (MapOf(attachment) == NULL)
		return;
	lock = &attachment->entry->lock;
	LWLockAcquire(lock, LW_EXCLUSIVE);
	map = MapOf(attachment);
	if (map != NULL && PipeannRowMapVersion(map) == ((uint64) map->count << 32 | meta->removals))
	{
		count = map->count;
		PipeannRowMapClose(map);
	}
	else
		map = NULL;
	LWLockRelease(lock);
	if (map == NULL)
		return;
	gone = PipeannRowMapTakeOut(map, is_dead, arg);
	LWLockAcquire(lock, LW_EXCLUSIVE);
	/* unless another map has taken its place, or it was rewritten */
	if (MapOf(attachment) == map && map->count == count)
	{
		map->nodes -= Min(map->nodes, gone);
		PipeannRowMapPublish(map, meta->removals + 2);
	}
	LWLockRelease(lock);
}

/* ---------- giving out caches ---------- */

/*
 * Caches of temporary relations are not shared: other backends do not use them,
 * and their relfilenumbers may be those of other relations.
 */
static bool
MayShare(Relation index)
{
	static uint64 frees_seen = 0;
	PipeannControl *control = PipeannControlGet();

	if (control == NULL)
		return false;
	if (unlikely(pg_atomic_read_u64(&control->frees) != frees_seen))
	{
		frees_seen = pg_atomic_read_u64(&control->frees);
		PipeannArenaUnmapGone(&control->arena);
	}
	if (RelationUsesLocalBuffers(index))
		return false;
	if (unlikely(pg_atomic_read_u64(&control->arena.used) > PipeannArenaLimit(&control->arena)))
		PipeannRegistryShrink();
	return PipeannArenaLimit(&control->arena) > 0;
}

/* Whether new scans may use it; a root of the backend's own is given up now and then, to try again. */
static bool
IsUsable(Relation index, PipeannAttachment *attachment, const PipeannMeta *meta, bool may_share)
{
	return PipeannLocatorEquals(attachment->locator, PipeannRelationLocator(index)) &&
		attachment->build_id == meta->build_id &&
		(attachment->entry != NULL ? may_share : !may_share ||
		 !MayRetry(attachment)) &&
		PipeannRegistryHold(attachment) &&
		!PipeannAttachmentIsDoomed(attachment) &&
		attachment->header->ids >= PipeannMetaIds(meta);
}

/* Callback of its memory context. */
static void
EndCache(void *arg)
{
	PipeannAttachment *attachment = ((PipeannCache *) arg)->attachment;

	if (--attachment->refs > 0)
		return;
	if (attachment->listed)
		PipeannRegistryLetGo(attachment);
	else
		MemoryContextDelete(attachment->context);
}

/*
 * Returns the cache of an index that has codes, up to date with meta; NULL if the index has
 * got other codes since. Reads its root if need be. The cache is
 * released by PipeannCacheRelease(), or when context is reset or deleted.
 */
PipeannCache *
PipeannCacheAcquire(Relation index, const PipeannMeta *meta, MemoryContext context)
{
	bool		may_share = MayShare(index);
	PipeannAttachment *attachment = FindAttachment(index);
	PipeannCache *cache;
	MemoryContext own;

	Assert(meta->flags & PIPEANN_META_HAS_CODES);
	if (attachment == NULL || !IsUsable(index, attachment, meta, may_share))
	{
		if (attachment != NULL)
			DropAttachment(attachment);
		attachment = MakeAttachment(index, meta, context, may_share);
	}
	if (attachment == NULL)
		return NULL;
	own = AllocSetContextCreate(context, "pipeann cache in use", ALLOCSET_SMALL_SIZES);
	cache = MemoryContextAlloc(own, sizeof(PipeannCache));
	*cache = attachment->model;
	cache->attachment = attachment;
	cache->context = own;
	cache->callback.func = EndCache;
	cache->callback.arg = cache;
	attachment->refs++;
	MemoryContextRegisterResetCallback(own, &cache->callback);
	if (PipeannCacheFollow(index, cache, meta))
		return cache;
	PipeannCacheRelease(cache);
	return NULL;
}

/* The same for a cache whose root is in memory, else NULL: only changes are read. */
PipeannCache *
PipeannCachePeek(Relation index, const PipeannMeta *meta, MemoryContext context)
{
	const PipeannAttachment *attachment = FindAttachment(index);
	PipeannLocator locator = PipeannRelationLocator(index);

	if ((attachment != NULL && attachment->entry == NULL &&
		 attachment->build_id == meta->build_id) ||
		(MayShare(index) && PipeannRegistryFind(&locator, meta->build_id) != NULL))
		return PipeannCacheAcquire(index, meta, context);
	return NULL;
}

/*
 * Bring an acquired cache up to date with a newer metapage. False if the index
 * has been given new codes since that was read.
 */
bool
PipeannCacheFollow(Relation index, PipeannCache *cache, const PipeannMeta *meta)
{
	PipeannAttachment *attachment = cache->attachment;

	if (meta->build_id != attachment->build_id)
		return false;
	PipeannCacheReadNewer(index, attachment, meta);
	ShowEntries(cache, meta, PipeannCacheReadEntries(index, attachment, meta, false) ?
				attachment->entry_graph : NULL);
	/* scans keep using a cache that the index has outgrown */
	cache->codes.ncodes = Min(PipeannMetaIds(meta), attachment->header->ids);
	PipeannCacheSetLoader(index, cache, meta);
	ShowMap(cache);
	return !attachment->outdated;
}

/*
 * Give an acquired cache the whole entry graph until PipeannCacheFollow(), in memory
 * of its own if the shared cache has no room. False if the index has new codes.
 */
bool
PipeannCacheLoadEntries(Relation index, PipeannCache *cache, const PipeannMeta *meta)
{
	PipeannAttachment *attachment = cache->attachment;
	Size		size = PipeannEntryGraphBytes(&meta->layout, meta->entry_count);

	if (PipeannCacheReadEntries(index, attachment, meta, true))
		ShowEntries(cache, meta, attachment->entry_graph);
	else if (!attachment->outdated)
	{
		if (cache->entry_graph == NULL)
			cache->entry_graph = MemoryContextAllocHuge(cache->context, size);
		attachment->outdated =
			!PipeannExtentRead(index, PipeannExtentBlock(&meta->extents) + PipeannEntryPage(&meta->layout),
							   PIPEANN_ENTRY, PipeannGeneration(meta), cache->entry_graph, size);
		ShowEntries(cache, meta, cache->entry_graph);
	}
	return !attachment->outdated;
}

/* Drop the cache of this relation's file, which is being rebuilt in place. */
void
PipeannCacheForget(Relation index)
{
	PipeannLocator locator = PipeannRelationLocator(index);
	PipeannAttachment *attachment = FindAttachment(index);

	if (attachment != NULL)
		DropAttachment(attachment);
	if (PipeannControlGet() != NULL && !RelationUsesLocalBuffers(index))
		PipeannRegistryForget(&locator);
}

/* Memory that the cache of an index with this metapage takes if it holds all codes. */
Size
PipeannCacheMemory(const PipeannMeta *meta)
{
	PipeannCacheHeader plan;
	uint64		pages = PipeannArenaPages(PlanRoot(meta, &plan));

	pages += plan.entry_pages + plan.chunk_pages *
		(((uint64) PipeannMetaIds(meta) + PIPEANN_CHUNK_NODES - 1) / PIPEANN_CHUNK_NODES);
	return mul_size(pages, FPM_PAGE_SIZE);
}

/* Memory that a cache in use takes now. */
Size
PipeannCacheBytes(const PipeannCache *cache)
{
	const PipeannAttachment *attachment = cache->attachment;

	if (attachment->entry == NULL)
		return MemoryContextMemAllocated(attachment->context, true);
	return mul_size(pg_atomic_read_u64(&attachment->entry->pages), FPM_PAGE_SIZE);
}

/* Bytes of codes that a cache in use has. */
Size
PipeannCacheCodesInMemory(const PipeannCache *cache, const PipeannMeta *meta)
{
	return mul_size(pg_atomic_read_u64(&cache->attachment->header->kept),
					mul_size(PipeannCodesPerPage(&meta->layout), PipeannCodeBytes(&meta->layout)));
}

/* After a build: say if there is less memory than the codes take. */
void
PipeannCacheWarn(Relation index, const PipeannMeta *meta)
{
	uint64		megabytes = PipeannMegabytes(PipeannCacheMemory(meta));

	if (RelationUsesLocalBuffers(index) || megabytes <= (uint64) pipeann_shared_memory)
		return;
	ereport(WARNING,
			(errmsg("codes of index \"%s\" take more memory than \"pipeann.shared_memory\": searches will read some from its pages",
					RelationGetRelationName(index)),
			 errhint("Set \"pipeann.shared_memory\", which is %d MB, to %llu MB or more, and reload.",
					 pipeann_shared_memory, (unsigned long long) megabytes)));
}

static void
AssignSharedMemory(int megabytes, void *extra)
{
	dlist_iter	iter;

	/* what found no room tries again */
	dlist_foreach(iter, &attachments)
	{
		PipeannAttachment *attachment = dlist_container(PipeannAttachment, node, iter.cur);

		attachment->refused = attachment->no_room = 0;
	}
	if (pipeann_control != NULL)
		PipeannArenaSetLimit(&pipeann_control->arena, megabytes);
}

/* Registers settings and hooks; _PG_init() calls this. */
void
PipeannCacheInit(void)
{
	DefineCustomIntVariable("pipeann.shared_memory",
							"Sets the shared memory for codes and entry graphs of pipeann indexes.",
							"What does not fit is read from the indexes' pages. "
							"Reserved at server start when pipeann is in shared_preload_libraries.",
							&pipeann_shared_memory,
							/* an eighth of shared_buffers */
							Max(128, NBuffers / (8 * 1024 * 1024 / BLCKSZ)), 0, MAX_KILOBYTES,
							PGC_SIGHUP, GUC_UNIT_MB, NULL, AssignSharedMemory, NULL);
	/* for relations that are changed or dropped */
	CacheRegisterRelcacheCallback(NoteInvalidation, (Datum) 0);
	if (process_shared_preload_libraries_in_progress)
		PipeannControlPreload();
}
