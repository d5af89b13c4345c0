/*
 * cache.c
 *		Giving out caches, shared ones and private copies, and bringing them up to
 *		date; settings.
 *
 * An attachment refers to its entry only while a PipeannCache is in use, so that the
 * cache may be evicted between scans. One that is no longer good for new scans (its
 * cache was dropped, its index rebuilt) leaves the hash table at once and is freed when
 * its last user releases it.
 */
#include "cache/registry.h"

#include "access/xact.h"
#include "base/huge.h"
#include "base/pause.h"
#include "port/pg_bitutils.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"

/* ---------- a cache's parts in memory ---------- */

#define SMALLEST_CAPACITY 1024
#define GROWTH_FRACTION 8

static uint32
ChunksToNodes(uint32 chunks)
{
	return Min((uint64) chunks * PIPEANN_CHUNK_NODES, PG_UINT32_MAX);
}

static uint32
NodesToChunks(uint32 nodes)
{
	return nodes / PIPEANN_CHUNK_NODES +
		(nodes % PIPEANN_CHUNK_NODES != 0 ? 1 : 0);
}

/* Nodes to have room for: full chunks, or less in an index smaller than one. */
static uint32
CodeCapacity(uint32 ids)
{
	return ids > PIPEANN_CHUNK_NODES ? ChunksToNodes(NodesToChunks(ids)) :
		pg_nextpower2_32(Max(ids, SMALLEST_CAPACITY));
}

/*
 * Where the codes of new ids go: to a larger first chunk, or to more chunks, in
 * larger steps the larger the index is, so that there are few segments.
 */
static void
PlanGrowth(uint32 capacity, uint32 ids, uint32 *first, uint32 *nodes)
{
	uint32		chunks;

	if (capacity < PIPEANN_CHUNK_NODES)
	{
		*first = 0;
		*nodes = CodeCapacity(ids);
		return;
	}
	chunks = Max(NodesToChunks(ids - capacity),
				 capacity / PIPEANN_CHUNK_NODES / GROWTH_FRACTION);
	*first = capacity;
	*nodes = Min(ChunksToNodes(chunks), PG_UINT32_MAX - capacity);
}

/*
 * Sets the offsets in *plan; returns the first segment's size, for *nodes
 * codes.
 */
static Size
PlanCache(const PipeannMeta *meta, PipeannCacheHeader *plan, uint32 *nodes)
{
	const PipeannLayout *l = &meta->layout;
	Size		size = CACHELINEALIGN(sizeof(PipeannCacheHeader));

	memset(plan, 0, sizeof(*plan));
	plan->hints = size;
	size = CACHELINEALIGN(add_size(size, PipeannHintsSize(meta)));
	plan->centroids = size;
	size = CACHELINEALIGN(add_size(size, PipeannCodebookBytes(l)));
	if (PipeannPqHasHalves(l->metric, l->dim))
	{
		plan->halves = size;
		size = add_size(size, PipeannCodebookBytes(l) / 2);
	}
	plan->histograms = size;
	size = add_size(size, PipeannHistogramsBytes(l));
	plan->entry_graph = size;
	size = add_size(size, PipeannEntryGraphBytes(meta->entry_count));
	size = CACHELINEALIGN(size);
	plan->codes = size;
	*nodes = CodeCapacity(PipeannMetaIds(meta));
	return add_size(size, mul_size(*nodes, PipeannCodeBytes(l)));
}

/* A part of a cache's first segment. */
static void *
HeaderAt(PipeannCacheHeader *header, Size offset)
{
	return (char *) header + offset;
}

/* ---------- attachments ---------- */

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
		PipeannRegistryLetGo(dlist_container(PipeannAttachment, node,
											 iter.cur));
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
static PipeannAttachment *
FindAttachment(Relation index)
{
	PipeannAttachmentKey key = KeyOf(index);
	AttachmentSlot *slot;

	InitAttachments();
	slot = hash_search(slots, &key, HASH_FIND, NULL);
	return slot == NULL ? NULL : slot->attachment;
}

static void
ListAttachment(PipeannAttachment *attachment)
{
	bool		found;
	AttachmentSlot *slot = hash_search(slots, &attachment->key, HASH_ENTER,
									   &found);

	Assert(!found);
	slot->attachment = attachment;
	attachment->listed = true;
}

/* The attachment must not be in use. */
static void
Free(PipeannAttachment *attachment)
{
	Assert(attachment->refs == 0);
	while (!dlist_is_empty(&attachment->idle))
		dlist_container(PipeannCache, node,
						dlist_pop_head_node(&attachment->idle))->attachment = NULL;
	PipeannRegistryLetGo(attachment);
	for (uint32 i = 0; i < attachment->nmappings && !exiting; i++)
		if (attachment->mappings[i].dsm != NULL)
			dsm_detach(attachment->mappings[i].dsm);
	dlist_delete(&attachment->node);
	MemoryContextDelete(attachment->context);
}

/* Hide an attachment from new scans, and free it if it has no users. */
static void
DropAttachment(PipeannAttachment *attachment)
{
	if (attachment->listed)
		hash_search(slots, &attachment->key, HASH_REMOVE, NULL);
	attachment->listed = false;
	if (attachment->refs == 0)
		Free(attachment);
}

/* A PipeannCache stops using the attachment. */
static void
UnuseAttachment(PipeannAttachment *attachment)
{
	if (--attachment->refs > 0)
		return;
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
			DropAttachment(attachment);
	}
}

/* Whether a relation may have a cache; looks at entries without a lock. */
static bool
IsOfCache(Oid relid)
{
	dlist_iter	iter;

	dlist_foreach(iter, &attachments)
		if (dlist_container(PipeannAttachment, node, iter.cur)->relid == relid)
			return true;
	for (int i = 0; pipeann_control != NULL && i < PIPEANN_MAX_CACHE_ENTRIES; i++)
		if (pipeann_control->entries[i].relid == relid)
			return true;
	return false;
}

static void
NoteInvalidation(Datum arg pg_attribute_unused(), Oid relid)
{
	if (relid != InvalidOid && !IsOfCache(relid))
		return;
	sweeps_due = 2;
	invalidated_at = GetCurrentTimestamp();
}

/*
 * Check for files that are gone, if that is due, and for freed caches.
 *
 * After an invalidation of a relation that has a cache, look at its file now,
 * and once more when a commit that was under way has surely truncated it.
 */
static void
SweepIfDue(void)
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

/* What a backend's own copies take, of relations that are not temporary. */
static Size
OwnCopies(void)
{
	Size		bytes = 0;
	dlist_iter	iter;

	dlist_foreach(iter, &attachments)
	{
		PipeannAttachment *attachment = dlist_container(PipeannAttachment,
														node, iter.cur);

		if (attachment->entry == NULL && attachment->key.backend < 0)
			bytes = add_size(bytes, attachment->model.bytes);
	}
	return bytes;
}

static bool builds = false;

/* A build begins or ends to search what it has built. */
void
PipeannCacheForBuild(bool begins)
{
	builds = begins;
}

/* Copies of its own that the backend does not use go, but for one. */
static void
DropUnusedCopies(const PipeannAttachment *but)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &attachments)
	{
		PipeannAttachment *attachment = dlist_container(PipeannAttachment,
														node, iter.cur);

		if (attachment != but && attachment->entry == NULL &&
			attachment->refs == 0)
			DropAttachment(attachment);
	}
}

/* After a VACUUM, which may have had more than a session may keep. */
void
PipeannCacheLetGo(void)
{
	if (OwnCopies() > PIPEANN_MOST_OF_OWN)
		DropUnusedCopies(NULL);
}

/*
 * Many backends with copies of a large index would take all of the server's memory.
 * Copies not in use go first. VACUUM and builds, which few backends run, and temporary
 * tables, which have no other place, may have more.
 */
static void
LimitOwnCopies(const PipeannAttachment *attachment, Size size)
{
	if (attachment->key.backend >= 0 || builds ||
		(MyProc->statusFlags & PROC_IN_VACUUM) != 0 ||
		OwnCopies() + size <= PIPEANN_MOST_OF_OWN)
		return;
	DropUnusedCopies(attachment);
	if (OwnCopies() + size <= PIPEANN_MOST_OF_OWN)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("codes of index \"%s\" have no room in \"pipeann.shared_memory\"",
					get_rel_name(attachment->relid)),
			 errdetail("A session may have %zu MB of codes of its own.",
					   PIPEANN_MOST_OF_OWN / (1024 * 1024)),
			 PipeannSuggestMemory(add_size(attachment->model.bytes, size))));
}

/*
 * Add memory to a cache that this backend is loading, has its turn on, or has to
 * itself. False if there is no room.
 */
static bool
AddMapping(PipeannAttachment *attachment, Size size, uint32 first,
		   uint32 nodes, bool evict)
{
	PipeannMapping mapping = {.segment = {.first = first,.nodes = nodes}};

	if (attachment->nmappings == PIPEANN_MAX_ENTRY_SEGMENTS)
		return false;
	if (attachment->entry == NULL)
	{
		LimitOwnCopies(attachment, size);
		mapping.address = MemoryContextAllocHuge(attachment->context, size);
		PipeannHugeAdvise(mapping.address, size);
	}
	else if (!AllocateShared(size, evict, &mapping))
		return false;
	else
		size = mul_size(mapping.segment.pages, FPM_PAGE_SIZE);
	CopyReplaced(attachment, &mapping);
	if (attachment->entry != NULL &&
		!PipeannRegistryAddSegment(attachment, &mapping))
		return false;
	attachment->mappings[attachment->nmappings++] = mapping;
	attachment->model.bytes = add_size(attachment->model.bytes, size);
	return true;
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
		for (uint32 j = 0; j < NodesToChunks(mapping->segment.nodes);
			 j++)
			arrays->chunks[first + j] = (uint8 *) codes +
				(Size) j * PIPEANN_CHUNK_NODES *
				PipeannAttachmentCodeBytes(attachment);
	}
}

static PipeannArrays *
MakeArrays(PipeannAttachment *attachment)
{
	MemoryContext context = AllocSetContextCreate(attachment->context,
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
	arrays->chunks =
		MemoryContextAlloc(context,
						   mul_size((last->segment.first >> PIPEANN_CHUNK_SHIFT) +
									NodesToChunks(last->segment.nodes),
									sizeof(uint8 *)));
	FillChunks(attachment, arrays);
	return arrays;
}

/*
 * Take in what was added to the cache. False if part of it cannot be mapped into this
 * backend.
 */
static bool
Refresh(PipeannAttachment *attachment)
{
	bool		complete = PipeannRegistryMapSegments(attachment);
	PipeannArrays *old = attachment->arrays;

	if (attachment->nmappings == 0)
		return false;
	if (old != NULL && old->nmappings == attachment->nmappings)
		return complete;
	attachment->arrays = MakeArrays(attachment);
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

	codes->pq = PipeannPqNew(l->storage, l->dim, l->pq_bytes);
	MemoryContextSwitchTo(old);
	codes->attr_bytes = l->attr_bytes;
	codes->chunk_shift = PIPEANN_CHUNK_SHIFT;
	codes->entry_count = meta->entry_count;
	codes->entry_degree = PIPEANN_ENTRY_DEGREE;
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

/*
 * Get memory and read the index into it. False if there is no memory, or if the index
 * has got other codes meanwhile: then the attachment is outdated.
 */
static bool
Load(Relation index, PipeannAttachment *attachment, const PipeannMeta *meta,
	 bool evict)
{
	PipeannCacheHeader plan;
	uint32		nodes;
	Size		size = PlanCache(meta, &plan, &nodes);
	PipeannCacheHeader *header;

	if (!AddMapping(attachment, size, 0, nodes, evict))
		return false;
	header = (PipeannCacheHeader *) attachment->mappings[0].address;
	*header = plan;
	PipeannHintsInit(HeaderAt(header, plan.hints), meta);
	attachment->header = header;
	Refresh(attachment);
	PipeannCacheLoad(index, attachment, meta);
	return !attachment->outdated;
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
			return Refresh(attachment);
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
	const uint32 *entry_graph = HeaderAt(header, header->entry_graph);
	uint32		count = codes->entry_count;

	codes->pq.centroids = HeaderAt(header, header->centroids);
	codes->pq.halves = header->halves == 0 ? NULL :
		HeaderAt(header, header->halves);
	codes->entry_ids = entry_graph;
	codes->entry_nneighbors = (const uint16 *) (entry_graph + count);
	codes->entry_neighbors = entry_graph + count + (count + 1) / 2;
	model->histograms = HeaderAt(header, header->histograms);
	if (attachment->entry == NULL)
		return;
	model->hot.table = HeaderAt(header, header->hints);
	model->hot.sums = &pipeann_control->hot;
	model->hot.own = &pipeann_control->hot.of[attachment->entry -
											  pipeann_control->entries];
}

/*
 * Returns a new attachment, not yet in the hash table, or NULL if there is no
 * shared memory for it, or if it would be outdated. With evict, unused caches may go to
 * make room.
 */
static PipeannAttachment *
MakeAttachment(Relation index, const PipeannMeta *meta, bool shared,
			   bool evict, bool *outdated)
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
	*outdated = attachment->outdated;
	Free(attachment);
	return NULL;
}

/* ---------- bringing a cache up to date ---------- */

/* What a turn is for. */
typedef struct Newer
{
	Relation	index;
	const PipeannMeta *meta;
	const PipeannRowMapPlan *plan;	/* of a map to be made */

	/* VACUUM: what nobody reads until rows are taken out; NULL if there is none */
	PipeannRowMap *map;
	uint32		count;			/* of maps that were there */
	uint64		gone;			/* rows */
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
	PlanGrowth(attachment->arrays->capacity, PipeannMetaIds(meta), &first,
			   &nodes);
	if (AddMapping(attachment,
				   mul_size(nodes, PipeannAttachmentCodeBytes(attachment)),
				   first, nodes, true))
		Refresh(attachment);
	else if (attachment->entry != NULL)
		PipeannRegistryDoom(attachment->entry, attachment->generation);
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
	if (!Refresh(attachment) || !NeedsUpdate(attachment, meta))
		return;
	if (ids > attachment->arrays->capacity)
		Grow(index, attachment, meta);
	have = pg_atomic_read_u32(&header->ncodes);
	ids = Max(have, Min(ids, attachment->arrays->capacity));
	PipeannCacheReadNewer(index, attachment, meta, have, ids);
	PIPEANN_PAUSE("cache-follow");
	if (attachment->outdated)
		return;
	/* counters are set last, so that after an error all of it is done again */
	pg_write_barrier();
	if (have < ids)
		pg_atomic_write_u32(&header->ncodes, ids);
	if (pg_atomic_read_u64(&header->applied) < meta->changes)
		pg_atomic_write_u64(&header->applied, meta->changes);
}

/* ---------- the map of rows ---------- */

/* It may be of any version; NULL if there is none. */
static PipeannRowMap *
MapOf(const PipeannAttachment *attachment)
{
	uint32		number = pg_atomic_read_u32(&attachment->header->row_map);

	pg_read_barrier();
	return number == 0 || number >= attachment->nmappings ? NULL :
		(PipeannRowMap *) attachment->mappings[number].address;
}

/* A new map is in a segment of its own. False if there is no memory for it. */
static bool
AddMap(PipeannAttachment *attachment, const PipeannRowMapPlan *plan)
{
	uint32		number = attachment->nmappings;

	/* a search can do without it, but not with an error */
	if (attachment->entry == NULL && attachment->key.backend < 0 &&
		add_size(OwnCopies(), plan->size) > PIPEANN_MOST_OF_OWN)
		return false;
	if (!AddMapping(attachment, plan->size, attachment->arrays->capacity, 0,
					false))
		return false;
	PipeannRowMapWrite((PipeannRowMap *) attachment->mappings[number].address,
					   plan, true);
	pg_write_barrier();
	pg_atomic_write_u32(&attachment->header->row_map, number);
	return true;
}

static void
PutMap(PipeannAttachment *attachment, void *arg)
{
	const Newer *newer = arg;
	PipeannRowMap *map;

	attachment->no_row_map = GetCurrentStatementStartTimestamp();
	if (PipeannAttachmentIsDoomed(attachment) ||
		!Refresh(attachment))
		return;
	map = MapOf(attachment);
	if (map != NULL && PipeannRowMapHasRoom(map, newer->plan))
		PipeannRowMapWrite(map, newer->plan, false);
	else if (!AddMap(attachment, newer->plan))
		return;
	attachment->no_row_map = 0;
	Refresh(attachment);
}

static void
ShowMap(PipeannCache *cache)
{
	cache->row_map = MapOf(cache->attachment);
	cache->no_row_map = cache->attachment->no_row_map;
}

/*
 * Make a map of these rows, all that the index had when the metapage had these
 * `removals`. Without room in memory there is none.
 */
void
PipeannCacheMapRows(Relation index, PipeannCache *cache,
					const PipeannMeta *meta, const PipeannMappedRow *rows,
					uint64 n)
{
	PipeannRowMapPlan plan = {.rows = rows, .n = n, .nodes = meta->nodes,
		.removals = meta->removals};
	Newer		newer = {.index = index, .meta = meta, .plan = &plan};

	if (PipeannRowMapMakePlan(&plan))
		PipeannInTurn(cache->attachment, PutMap, &newer);
	pfree(plan.starts);
	ShowMap(cache);
}

/* If VACUUM is all that came between the map and the metapage. */
static void
WithdrawMap(PipeannAttachment *attachment, void *arg)
{
	Newer	   *newer = arg;
	PipeannRowMap *map;

	Refresh(attachment);
	map = MapOf(attachment);
	if (PipeannAttachmentIsDoomed(attachment) || map == NULL ||
		PipeannRowMapVersion(map) !=
		((uint64) map->count << 32 | newer->meta->removals))
		return;
	PipeannRowMapClose(map);
	newer->map = map;
	newer->count = map->count;
}

/* Unless another map has taken its place, or it was written anew, it is read again. */
static void
PutMapBack(PipeannAttachment *attachment, void *arg)
{
	Newer	   *newer = arg;
	PipeannRowMap *map = newer->map;

	if (MapOf(attachment) != map || map->count != newer->count)
		return;
	map->nodes -= Min(map->nodes, newer->gone);
	PipeannRowMapPublish(map, newer->meta->removals + 2);
}

/*
 * Take the rows that VACUUM has removed out of the map, if there is one and VACUUM
 * is all that came between it and this metapage, whose `removals` are to grow by two.
 */
void
PipeannCacheForgetRows(Relation index, PipeannCache *cache,
					   const PipeannMeta *meta,
					   IndexBulkDeleteCallback is_dead, void *arg)
{
	PipeannAttachment *attachment = cache->attachment;
	Newer		newer = {.index = index, .meta = meta};

	PipeannInTurn(attachment, WithdrawMap, &newer);
	if (newer.map == NULL)
		return;
	newer.gone = PipeannRowMapTakeOut(newer.map, is_dead, arg);
	PipeannInTurn(attachment, PutMapBack, &newer);
}

/* ---------- giving out caches ---------- */

/* Caches not in use to look at for one of the right memory context. */
#define IDLE_LOOKS 4

/*
 * Caches of temporary relations are not shared: other backends do not use them,
 * and their relfilenumbers may be those of other relations.
 */
bool
PipeannMayShare(Relation index)
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
		PipeannRegistryHold(attachment) &&
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
	bool		outdated;

	if (attachment->entry != NULL || attachment->refs > 0 ||
		!TimestampDifferenceExceeds(attachment->tried, now, PIPEANN_RETRY_MS))
		return attachment;
	attachment->tried = now;
	shared = MakeAttachment(index, meta, true, false, &outdated);
	if (shared == NULL)
		return attachment;
	DropAttachment(attachment);
	ListAttachment(shared);
	return shared;
}

/*
 * Returns the attachment for new scans of an index, whose cache stays in memory; NULL if
 * it would be outdated.
 */
static PipeannAttachment *
GetAttachment(Relation index, const PipeannMeta *meta, bool may_share)
{
	PipeannAttachment *attachment = FindAttachment(index);
	uint64		megabytes;
	bool		outdated = false;

	if (attachment != NULL && IsUsable(attachment, meta, may_share))
		return may_share ? RetryShared(index, meta, attachment) : attachment;
	if (attachment != NULL)
		DropAttachment(attachment);
	attachment = NULL;
	if (may_share)
	{
		PipeannRegistrySweep();
		attachment = MakeAttachment(index, meta, true, true, &outdated);
		if (attachment == NULL && !outdated)
			PipeannReportNoRoom(index, PipeannCacheMemory(meta, &megabytes));
	}
	if (attachment == NULL && !outdated)
		attachment = MakeAttachment(index, meta, false, false, &outdated);
	if (attachment != NULL)
		ListAttachment(attachment);
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
	/* other backends may have followed a newer metapage than ours */
	cache->codes.ncodes = Min(pg_atomic_read_u32(&attachment->header->ncodes),
							  arrays->capacity);
	cache->bytes = attachment->model.bytes;
	ShowMap(cache);
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
		UnuseAttachment(cache->attachment);
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
 * Returns the cache of an index that has codes, up to date with meta; NULL if the index
 * has got other codes since that was read. Loads it
 * if need be, or waits, interruptibly, for another backend that is loading it.
 * Without room in shared memory the cache is a private copy, or an error where that
 * would be too large (LimitOwnCopies()); the log says so once an hour. The cache is released by
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
	SweepIfDue();
	may_share = PipeannMayShare(index);
	for (int attempt = 0;; attempt++)
	{
		PipeannAttachment *attachment = GetAttachment(index, meta,
													  may_share && attempt < 2);
		PipeannCache *cache;
		bool		outdated;

		if (attachment == NULL)
			return NULL;
		cache = UseAttachment(attachment, context);
		outdated = !PipeannCacheFollow(index, cache, meta);
		if (!outdated && (cache->codes.ncodes >= PipeannMetaIds(meta) ||
						  attachment->entry == NULL))
			return cache;
		PipeannCacheRelease(cache);
		if (outdated)
			return NULL;
	}
}

/* The same of a cache that is loaded, or NULL: nothing is read for it but what is newer. */
PipeannCache *
PipeannCachePeek(Relation index, const PipeannMeta *meta,
				 MemoryContext context)
{
	const PipeannAttachment *attachment = FindAttachment(index);
	PipeannLocator locator = PipeannRelationLocator(index);

	if ((attachment != NULL && attachment->entry == NULL &&
		 attachment->build_id == meta->build_id) ||
		(PipeannMayShare(index) && PipeannRegistryHas(&locator, meta->build_id)))
		return PipeannCacheAcquire(index, meta, context);
	return NULL;
}

void
PipeannCacheRelease(PipeannCache *cache)
{
	PipeannAttachment *attachment = cache->attachment;

	Assert(cache->arrays != NULL);
	PipeannArraysRelease(cache->arrays);
	cache->arrays = NULL;
	dlist_push_head(&attachment->idle, &cache->node);
	UnuseAttachment(attachment);
}

/*
 * Bring an acquired cache up to date with a newer metapage. False if the index has got
 * other codes since that was read.
 */
bool
PipeannCacheFollow(Relation index, PipeannCache *cache,
				   const PipeannMeta *meta)
{
	PipeannAttachment *attachment = cache->attachment;
	Newer		newer = {.index = index, .meta = meta};

	if (meta->build_id == attachment->build_id)
	{
		Refresh(attachment);
		if (NeedsUpdate(attachment, meta))
			PipeannInTurn(attachment, Update, &newer);
	}
	Sync(cache);
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

/* Drop the caches of files that are gone. */
void
PipeannCacheSweep(void)
{
	SweepIfDue();
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
	Size		size = PlanCache(meta, &plan, &nodes);
	uint64		pages = PipeannArenaPages(size);

	*megabytes = PipeannArenaMegabytes(pages);
	return mul_size(pages, FPM_PAGE_SIZE);
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
	/* be told of relations that are dropped */
	CacheRegisterRelcacheCallback(NoteInvalidation, (Datum) 0);
	if (preload)
		PipeannControlPreload();
}
