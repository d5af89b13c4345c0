/*
 * attachment.c
 *		An attachment is how this backend sees a cache: there is one for each
 *		index that it used, kept from scan to scan, with its segments mapped.
 *
 * An attachment refers to its entry only while a PipeannCache is in use, so that
 * the cache may be evicted between scans. One that is no longer good for new
 * scans (its cache was dropped, its index rebuilt) leaves the hash table at once
 * and is freed when its last user releases it.
 */
#include "cache/registry.h"

#include "access/xact.h"
#include "base/huge.h"
#include "storage/ipc.h"
#include "utils/hsearch.h"
#include "utils/inval.h"

/* A dropped file is truncated some time after its invalidation was seen. */
#define SWEEP_AGAIN_MS 1000

typedef struct AttachmentSlot
{
	PipeannAttachmentKey key;
	PipeannAttachment *attachment;
} AttachmentSlot;

static HTAB *slots = NULL;
static dlist_head attachments = DLIST_STATIC_INIT(attachments);
static bool exiting = false;
static int	sweeps_due = 0;
static TimestampTz invalidated_at = 0;

/*
 * Give back what this backend holds in shared memory. Later callbacks find
 * nothing left to do there.
 */
static void
LetGoAtExit(int code pg_attribute_unused(), Datum arg pg_attribute_unused())
{
	dlist_iter	iter;

	exiting = true;
	dlist_foreach(iter, &attachments)
	{
		PipeannAttachment *attachment = dlist_container(PipeannAttachment,
														node, iter.cur);

		if (attachment->entry != NULL)
			PipeannRegistryLetGo(attachment);
	}
}

static void
InitAttachments(void)
{
	HASHCTL		ctl;

	if (slots != NULL)
		return;
	ctl.keysize = sizeof(PipeannAttachmentKey);
	ctl.entrysize = sizeof(AttachmentSlot);
	ctl.hcxt = TopMemoryContext;
	slots = hash_create("pipeann caches", 16, &ctl,
						HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	before_shmem_exit(LetGoAtExit, (Datum) 0);
}

static PipeannAttachmentKey
KeyOf(Relation index)
{
	PipeannAttachmentKey key;

	memset(&key, 0, sizeof(key));
	key.locator = PipeannRelationLocator(index);
	key.backend = index->rd_backend;
	return key;
}

/* The attachment that new scans of an index use, or NULL. */
PipeannAttachment *
PipeannAttachmentFind(Relation index)
{
	PipeannAttachmentKey key = KeyOf(index);
	AttachmentSlot *slot;

	InitAttachments();
	slot = hash_search(slots, &key, HASH_FIND, NULL);
	return slot == NULL ? NULL : slot->attachment;
}

void
PipeannAttachmentList(PipeannAttachment *attachment)
{
	bool		found;
	AttachmentSlot *slot = hash_search(slots, &attachment->key, HASH_ENTER,
									   &found);

	Assert(!found);
	slot->attachment = attachment;
	attachment->listed = true;
}

static void
Unmap(PipeannMapping *mapping)
{
	if (mapping->dsm != NULL)
		dsm_detach(mapping->dsm);
}

/* The attachment must not be in use. */
static void
Free(PipeannAttachment *attachment)
{
	Assert(attachment->refs == 0);
	while (!dlist_is_empty(&attachment->idle))
		dlist_container(PipeannCache, node,
						dlist_pop_head_node(&attachment->idle))->attachment = NULL;
	if (attachment->entry != NULL && !exiting)
		PipeannRegistryLetGo(attachment);
	for (uint32 i = 0; i < attachment->nmappings && !exiting; i++)
		Unmap(&attachment->mappings[i]);
	dlist_delete(&attachment->node);
	MemoryContextDelete(attachment->context);
}

/* Hide an attachment from new scans, and free it if it has no users. */
void
PipeannAttachmentDrop(PipeannAttachment *attachment)
{
	if (attachment->listed)
		hash_search(slots, &attachment->key, HASH_REMOVE, NULL);
	attachment->listed = false;
	if (attachment->refs == 0)
		Free(attachment);
}

/* A PipeannCache stops using the attachment. */
void
PipeannAttachmentUnuse(PipeannAttachment *attachment)
{
	if (--attachment->refs > 0)
		return;
	if (attachment->entry != NULL && !exiting)
		PipeannRegistryLetGo(attachment);
	if (!attachment->listed)
		Free(attachment);
}

/* Whether no later scan can use an unused attachment. */
static bool
IsDead(const PipeannAttachment *attachment, bool check_file)
{
	if (attachment->entry != NULL)
		return attachment->entry->generation != attachment->generation ||
			attachment->entry->state != PIPEANN_CACHE_ENTRY_READY;
	return check_file &&
		PipeannFileIsGone(&attachment->key.locator, attachment->key.backend);
}

static void
Clean(bool check_files)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &attachments)
	{
		PipeannAttachment *attachment = dlist_container(PipeannAttachment,
														node, iter.cur);

		if (attachment->refs == 0 && attachment->listed && IsDead(attachment,
																  check_files))
			PipeannAttachmentDrop(attachment);
	}
}

/* Whether an entry may be of this relation; looks without a lock. */
static bool
HasEntry(Oid relid)
{
	for (int i = 0; i < PIPEANN_MAX_CACHE_ENTRIES; i++)
		if (pipeann_control->entries[i].relid == relid)
			return true;
	return false;
}

static bool
IsOfCache(Oid relid)
{
	dlist_iter	iter;

	dlist_foreach(iter, &attachments)
		if (dlist_container(PipeannAttachment, node, iter.cur)->relid == relid)
			return true;
	return pipeann_control != NULL && HasEntry(relid);
}

static void
NoteInvalidation(Datum arg pg_attribute_unused(), Oid relid)
{
	if (relid != InvalidOid && !IsOfCache(relid))
		return;
	sweeps_due = 2;
	invalidated_at = GetCurrentTimestamp();
}

/* Be told of relations that are dropped. */
void
PipeannAttachmentsWatch(void)
{
	CacheRegisterRelcacheCallback(NoteInvalidation, (Datum) 0);
}

/*
 * Check for files that are gone, if that is due, and for freed caches.
 *
 * After an invalidation of a relation that has a cache, look at its file now,
 * and once more when a commit that was under way has surely truncated it.
 */
void
PipeannSweepIfDue(void)
{
	static uint64 frees_seen = 0;
	PipeannControl *control = PipeannControlGet();
	bool		due = sweeps_due == 2 ||
		(sweeps_due == 1 &&
		 TimestampDifferenceExceeds(invalidated_at, GetCurrentTimestamp(),
									SWEEP_AGAIN_MS));
	uint64		frees;

	sweeps_due -= due;
	if (due && control != NULL)
		PipeannRegistrySweep();
	frees = control == NULL ? 0 : pg_atomic_read_u64(&control->frees);
	if (due || frees != frees_seen)
		Clean(due);
	frees_seen = frees;
}

/* ---------- memory of a cache ---------- */

/*
 * If the limit is reached, caches are evicted until the segment fits or none is
 * left. If the operating system refuses, this is done once only, since idle
 * backends may still map what was evicted; and if that did not help, not again
 * for segments of this size, lest each new backend evict all.
 */
static bool
MayTryAgain(uint32 pages, PipeannArenaResult room, bool *refused)
{
	if (room == PIPEANN_ARENA_REFUSED)
	{
		if (*refused)
			pipeann_control->hopeless_pages = pages;
		if (pipeann_control->hopeless_pages > 0 && pages >= pipeann_control->hopeless_pages)
			return false;
		*refused = true;
	}
	return PipeannMakeRoom(pages, room);
}

static bool
AllocateShared(Size size, bool evict, PipeannMapping *mapping)
{
	uint32		pages = PipeannArenaPages(size);
	bool		refused = false;
	bool		swept = false;

	if (pages > PipeannArenaLimit())
		return false;
	mapping->segment.pages = pages;
	for (;;)
	{
		PipeannArenaResult room = PipeannArenaAllocate(mapping);

		if (room == PIPEANN_ARENA_OK)
			break;
		if (!swept)
			PipeannRegistrySweep();
		else if (!evict || !MayTryAgain(pages, room, &refused))
			return false;
		swept = true;
		/* this backend may still map caches that were dropped */
		Clean(false);
	}
	if (pages >= pipeann_control->hopeless_pages)
		pipeann_control->hopeless_pages = 0;
	return true;
}

/*
 * A larger first chunk starts as a copy of the one that it replaces, before
 * other backends can find it.
 */
static void
CopyReplaced(const PipeannAttachment *attachment,
			 const PipeannMapping *mapping)
{
	if (attachment->nmappings == 0 || mapping->segment.first > 0)
		return;
	memcpy(mapping->address, attachment->arrays->chunks[0],
		   mul_size(TYPEALIGN(PIPEANN_CODE_BLOCK,
							  pg_atomic_read_u32(&attachment->header->ncodes)),
					PipeannAttachmentCodeBytes(attachment)));
}

static bool
AddShared(PipeannAttachment *attachment, Size size, bool evict,
		  PipeannMapping *mapping)
{
	if (!AllocateShared(size, evict, mapping))
		return false;
	CopyReplaced(attachment, mapping);
	if (PipeannRegistryAddSegment(attachment, &mapping->segment))
		return true;
	Unmap(mapping);
	PipeannArenaFree(&mapping->segment);
	return false;
}

/*
 * Add memory to a cache that this backend is loading, has its turn on, or has to
 * itself. False if there is no room.
 */
bool
PipeannAttachmentAddMapping(PipeannAttachment *attachment, Size size,
							uint32 first, uint32 nodes, bool evict)
{
	PipeannMapping mapping = {.segment = {.first = first,.nodes = nodes}};

	if (attachment->nmappings == PIPEANN_MAX_ENTRY_SEGMENTS)
		return false;
	if (attachment->entry == NULL)
	{
		mapping.address = MemoryContextAllocHuge(attachment->context, size);
		PipeannHugeAdvise(mapping.address, size);
		CopyReplaced(attachment, &mapping);
	}
	else if (!AddShared(attachment, size, evict, &mapping))
		return false;
	else
		size = mul_size(mapping.segment.pages, FPM_PAGE_SIZE);
	attachment->mappings[attachment->nmappings++] = mapping;
	attachment->model.bytes = add_size(attachment->model.bytes, size);
	return true;
}

/* Map the segments that other backends added. False if one cannot be mapped. */
static bool
FindMappings(PipeannAttachment *attachment)
{
	PipeannMapping mappings[PIPEANN_MAX_ENTRY_SEGMENTS];
	int			count;

	if (attachment->entry == NULL ||
		*(volatile uint32 *) &attachment->entry->nsegments ==
		attachment->nmappings)
		return true;
	count = PipeannRegistryCopySegments(attachment, attachment->nmappings,
										mappings);
	for (int i = 0; i < count; i++)
	{
		if (!PipeannArenaAttach(&mappings[i]))
			return false;
		attachment->mappings[attachment->nmappings++] = mappings[i];
		attachment->model.bytes += (Size) mappings[i].segment.pages *
			FPM_PAGE_SIZE;
	}
	attachment->header = (PipeannCacheHeader *) attachment->mappings[0].address;
	return true;
}

static uint32
MappingChunks(const PipeannMapping *mapping)
{
	return ((uint64) mapping->segment.nodes + PIPEANN_CHUNK_NODES - 1) /
		PIPEANN_CHUNK_NODES;
}

static void
FillChunks(const PipeannAttachment *attachment, PipeannArrays *arrays)
{
	for (uint32 i = 0; i < attachment->nmappings; i++)
	{
		const PipeannMapping *mapping = &attachment->mappings[i];
		uint32		first = mapping->segment.first >> PIPEANN_CHUNK_SHIFT;
		char	   *codes = mapping->address;

		if (i == 0)
			codes += attachment->header->codes;
		for (uint32 j = 0; j < MappingChunks(mapping); j++)
			arrays->chunks[first + j] = (uint8 *) codes +
				(Size) j * PIPEANN_CHUNK_NODES *
				PipeannAttachmentCodeBytes(attachment);
	}
}

/*
 * The arrays are made as a child of the current context, so that nothing is
 * left of them if the extent map cannot be read.
 */
static PipeannArrays *
MakeArrays(Relation index, PipeannAttachment *attachment,
		   const PipeannMeta *meta)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pipeann cache arrays",
												  ALLOCSET_SMALL_SIZES);
	PipeannArrays *arrays = MemoryContextAllocZero(context,
												   sizeof(PipeannArrays));
	const PipeannMapping *last =
		&attachment->mappings[attachment->nmappings - 1];

	arrays->context = context;
	arrays->refs = 1;
	arrays->nmappings = attachment->nmappings;
	arrays->capacity = last->segment.first + last->segment.nodes;
	arrays->extents = PipeannExtentsInUse(meta);
	arrays->chunks =
		MemoryContextAlloc(context,
						   mul_size((last->segment.first >> PIPEANN_CHUNK_SHIFT) +
									MappingChunks(last), sizeof(uint8 *)));
	FillChunks(attachment, arrays);
	PipeannExtentMapLoad(index, meta, context, &arrays->map);
	arrays->mapped = PipeannGraphIds(&arrays->map, &meta->layout);
	MemoryContextSetParent(context, attachment->context);
	return arrays;
}

/*
 * Take in what was added to the cache and to the index's file. False if part of
 * the cache cannot be mapped into this backend.
 */
bool
PipeannAttachmentRefresh(Relation index, PipeannAttachment *attachment,
						 const PipeannMeta *meta)
{
	bool		complete = FindMappings(attachment);
	PipeannArrays *old = attachment->arrays;

	if (attachment->nmappings == 0)
		return false;
	if (old != NULL && old->nmappings == attachment->nmappings &&
		old->extents >= PipeannExtentsInUse(meta))
		return complete;
	attachment->arrays = MakeArrays(index, attachment, meta);
	if (old != NULL)
		PipeannArraysRelease(old);
	return complete;
}

/* ---------- making attachments ---------- */

static void
SetCodes(PipeannAttachment *attachment, const PipeannMeta *meta)
{
	const PipeannLayout *l = &meta->layout;
	PipeannCodes *codes = &attachment->model.codes;
	MemoryContext old = MemoryContextSwitchTo(attachment->context);

	codes->pq = PipeannPqNew(l->dim, l->pq_bytes);
	MemoryContextSwitchTo(old);
	codes->attr_bytes = l->attr_bytes;
	codes->chunk_shift = PIPEANN_CHUNK_SHIFT;
	codes->entry_count = meta->entry_count;
	codes->entry_degree = meta->entry_degree;
}

static PipeannAttachment *
NewAttachment(Relation index, const PipeannMeta *meta)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pipeann cache",
												  ALLOCSET_SMALL_SIZES);
	PipeannAttachment *attachment = MemoryContextAllocZero(context,
														   sizeof(PipeannAttachment));

	attachment->context = context;
	attachment->key = KeyOf(index);
	attachment->relid = RelationGetRelid(index);
	attachment->build_id = meta->build_id;
	attachment->model.place = PIPEANN_CACHE_PRIVATE;
	attachment->tried = GetCurrentStatementStartTimestamp();
	dlist_init(&attachment->idle);
	SetCodes(attachment, meta);
	MemoryContextSetParent(context, TopMemoryContext);
	dlist_push_tail(&attachments, &attachment->node);
	return attachment;
}

/* Get memory and read the index into it. False if there is no memory. */
static bool
Load(Relation index, PipeannAttachment *attachment, const PipeannMeta *meta,
	 bool evict)
{
	PipeannCacheHeader plan;
	uint32		nodes;
	Size		size = PipeannCachePlan(meta, &plan, &nodes);
	PipeannCacheHeader *header;

	if (!PipeannAttachmentAddMapping(attachment, size, 0, nodes, evict))
		return false;
	header = (PipeannCacheHeader *) attachment->mappings[0].address;
	*header = plan;
	PipeannKilledInit(PipeannHeaderAt(header, plan.killed), meta);
	PipeannHotInitTable(PipeannHeaderAt(header, plan.hot), meta);
	attachment->header = header;
	PipeannAttachmentRefresh(index, attachment, meta);
	PipeannCacheLoad(index, attachment, meta);
	return true;
}

/* Attach to the cache in shared memory, or make one there. */
static bool
FillShared(Relation index, PipeannAttachment *attachment,
		   const PipeannMeta *meta, bool evict)
{
	attachment->model.place = pipeann_control->arena_pages > 0 ?
		PIPEANN_CACHE_SHARED : PIPEANN_CACHE_DYNAMIC;
	switch (PipeannRegistryClaim(attachment, evict))
	{
		case PIPEANN_CLAIM_READY:
			return PipeannAttachmentRefresh(index, attachment, meta);
		case PIPEANN_CLAIM_LOAD:
			if (!Load(index, attachment, meta, evict))
				return false;
			PipeannRegistryPublish(attachment);
			return true;
		default:
			return false;
	}
}

/* Where the parts of a loaded cache are that do not move. */
static void
SetPointers(PipeannAttachment *attachment)
{
	PipeannCacheHeader *header = attachment->header;
	PipeannCache *model = &attachment->model;
	PipeannCodes *codes = &model->codes;
	const uint32 *entry_graph = PipeannHeaderAt(header, header->entry_graph);
	uint32		count = codes->entry_count;

	codes->pq.centroids = PipeannHeaderAt(header, header->centroids);
	codes->pq.key = header->codebook_key;
	codes->entry_ids = entry_graph;
	codes->entry_nneighbors = (const uint16 *) (entry_graph + count);
	codes->entry_neighbors = entry_graph + count + (count + 1) / 2;
	model->histograms = PipeannHeaderAt(header, header->histograms);
	model->killed = PipeannHeaderAt(header, header->killed);
	if (attachment->entry == NULL)
		return;
	model->hot.table = PipeannHeaderAt(header, header->hot);
	model->hot.sums = &pipeann_control->hot;
	model->hot.own = &pipeann_control->hot.of[attachment->entry -
											  pipeann_control->entries];
}

/*
 * Returns a new attachment, not yet in the hash table, or NULL if there is no
 * shared memory for it. With evict, unused caches may go to make room.
 */
PipeannAttachment *
PipeannAttachmentMake(Relation index, const PipeannMeta *meta, bool shared,
					  bool evict)
{
	PipeannAttachment *volatile attachment = NewAttachment(index, meta);
	volatile bool ok = false;

	PG_TRY();
	{
		if (shared)
			ok = FillShared(index, attachment, meta, evict);
		else
			ok = Load(index, attachment, meta, false);
	}
	PG_CATCH();
	{
		Free(attachment);
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (ok)
	{
		SetPointers(attachment);
		return attachment;
	}
	Free(attachment);
	return NULL;
}
