/*
 * attachment.c
 *		An attachment is how this backend sees a cache: one for each index used,
 *		kept from scan to scan with its pointers resolved.
 *
 * A shared cache is referenced in its record only while a handle is in use, so
 * that it may be evicted between scans. An attachment no longer good for new scans
 * (its cache dropped, its index rebuilt) is taken off the hash table at once
 * and freed when its last handle is let go.
 */
#include "cache/registry.h"

#include "access/xact.h"
#include "storage/ipc.h"
#include "utils/hsearch.h"

typedef struct AttachmentSlot
{
	PipeannAttachmentKey key;
	PipeannAttachment *attachment;
} AttachmentSlot;

static HTAB *slots = NULL;
static dlist_head attachments = DLIST_STATIC_INIT(attachments);
static bool exiting = false;

/*
 * Before this backend leaves: give back what it holds in shared memory. Later
 * callbacks find nothing left to do there.
 */
static void
LetGoAtExit(int code pg_attribute_unused(), Datum arg pg_attribute_unused())
{
	PipeannControl *control = PipeannControlAttached();
	dlist_iter	iter;

	exiting = true;
	if (control == NULL)
		return;
	dlist_foreach(iter, &attachments)
	{
		PipeannAttachment *attachment = dlist_container(PipeannAttachment, node, iter.cur);

		if (attachment->record != NULL)
			PipeannRegistryLetGo(control, attachment);
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
	key.file = PipeannRelationFile(index);
	key.backend = index->rd_backend;
	return key;
}

PipeannAttachment *
PipeannAttachmentFind(Relation index)
{
	PipeannAttachmentKey key = KeyOf(index);
	AttachmentSlot   *slot;

	InitAttachments();
	slot = hash_search(slots, &key, HASH_FIND, NULL);
	return slot == NULL ? NULL : slot->attachment;
}

void
PipeannAttachmentList(PipeannAttachment *attachment)
{
	bool		found;
	AttachmentSlot   *slot = hash_search(slots, &attachment->key, HASH_ENTER, &found);

	Assert(!found);
	slot->attachment = attachment;
	attachment->listed = true;
}

/*
 * No handle is in use.
 */
static void
FreeAttachment(PipeannAttachment *attachment)
{
	Assert(attachment->refs == 0);
	while (!dlist_is_empty(&attachment->idle))
		dlist_container(PipeannHandle, node,
						dlist_pop_head_node(&attachment->idle))->attachment = NULL;
	if (attachment->record != NULL && !exiting)
		PipeannRegistryLetGo(PipeannControlAttached(), attachment);
	for (uint32 i = 0; i < attachment->nmappings && !exiting; i++)
		PipeannArenaDetach(&attachment->mappings[i]);
	dlist_delete(&attachment->node);
	MemoryContextDelete(attachment->context);
}

/*
 * New scans are not to find this attachment.
 */
void
PipeannAttachmentDrop(PipeannAttachment *attachment)
{
	if (attachment->listed)
		hash_search(slots, &attachment->key, HASH_REMOVE, NULL);
	attachment->listed = false;
	if (attachment->refs == 0)
		FreeAttachment(attachment);
}

/*
 * Make sure that the cache stays. False when it has been dropped.
 */
bool
PipeannAttachmentHold(PipeannAttachment *attachment)
{
	return attachment->record == NULL || attachment->referenced ||
		PipeannRegistryRef(PipeannControlAttached(), attachment);
}

/*
 * A handle is done with the attachment.
 */
void
PipeannAttachmentUnuse(PipeannAttachment *attachment)
{
	if (--attachment->refs > 0)
		return;
	if (attachment->record != NULL && !exiting)
		PipeannRegistryLetGo(PipeannControlAttached(), attachment);
	if (!attachment->listed)
		FreeAttachment(attachment);
}

/*
 * Whether an unused attachment is of no use to any later scan.
 */
static bool
IsDead(const PipeannAttachment *attachment, bool check_file)
{
	if (attachment->record != NULL)
		return attachment->record->generation != attachment->generation ||
			attachment->record->state != PIPEANN_RECORD_READY;
	return check_file &&
		PipeannFileIsGone(&attachment->key.file, attachment->key.backend);
}

void
PipeannAttachmentsClean(bool check_files)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &attachments)
	{
		PipeannAttachment *attachment = dlist_container(PipeannAttachment, node, iter.cur);

		if (attachment->refs == 0 && attachment->listed && IsDead(attachment, check_files))
			PipeannAttachmentDrop(attachment);
	}
}

bool
PipeannAttachmentHasRelation(Oid relid)
{
	dlist_iter	iter;

	dlist_foreach(iter, &attachments)
		if (dlist_container(PipeannAttachment, node, iter.cur)->relid == relid)
			return true;
	return false;
}

static void
SetPq(PipeannAttachment *attachment, const PipeannLayout *l)
{
	int			n = l->pq_bytes;
	int		   *start = MemoryContextAlloc(attachment->context, n * sizeof(int));
	int		   *len = MemoryContextAlloc(attachment->context, n * sizeof(int));
	Size	   *offset = MemoryContextAlloc(attachment->context, n * sizeof(Size));

	PipeannPqLayout(l->dim, n, start, len, offset);
	attachment->pq.dim = l->dim;
	attachment->pq.nchunks = n;
	attachment->pq.start = start;
	attachment->pq.len = len;
	attachment->pq.offset = offset;
}

static PipeannAttachment *
NewAttachment(Relation index, const PipeannMeta *meta)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pipeann cache",
												  ALLOCSET_SMALL_SIZES);
	PipeannAttachment *attachment = MemoryContextAllocZero(context, sizeof(PipeannAttachment));

	attachment->context = context;
	attachment->key = KeyOf(index);
	attachment->relid = RelationGetRelid(index);
	attachment->build_id = meta->build_id;
	attachment->entry_count = meta->entry_count;
	attachment->entry_degree = meta->entry_degree;
	attachment->place = PIPEANN_CACHE_PRIVATE;
	attachment->tried = GetCurrentStatementStartTimestamp();
	dlist_init(&attachment->idle);
	SetPq(attachment, &meta->layout);
	MemoryContextSetParent(context, TopMemoryContext);
	dlist_push_tail(&attachments, &attachment->node);
	return attachment;
}

/*
 * Get memory and read the index into it.
 */
static bool
Load(Relation index, PipeannAttachment *attachment, const PipeannMeta *meta, bool evict)
{
	PipeannCacheHeader plan;
	uint32		nodes;
	Size		size = PipeannCachePlan(meta, &plan, &nodes);
	PipeannCacheHeader *header;

	if (!PipeannAttachmentAddMapping(attachment, size, 0, nodes, evict))
		return false;
	header = (PipeannCacheHeader *) attachment->mappings[0].address;
	header->kills = plan.kills;
	PipeannKillInit(header, plan.kill_mask + 1);
	header->hot = plan.hot;
	PipeannHotInitTable((PipeannHot *) ((char *) header + header->hot), meta);
	header->centroids = plan.centroids;
	header->entries = plan.entries;
	header->codes = plan.codes;
	pg_atomic_init_u32(&header->ncodes, 0);
	pg_atomic_init_u64(&header->applied, 0);
	pg_atomic_init_u64(&header->entries_applied, 0);
	attachment->header = header;
	PipeannAttachmentRefresh(index, attachment, meta);
	PipeannCacheLoad(index, attachment, meta);
	return true;
}

/*
 * The cache that is in shared memory, or a new one there.
 */
static bool
FillShared(Relation index, PipeannAttachment *attachment, const PipeannMeta *meta,
		   bool evict)
{
	PipeannControl *control = PipeannControlGet();

	attachment->place = control->arena_pages > 0 ? PIPEANN_CACHE_SHARED :
		PIPEANN_CACHE_DYNAMIC;
	switch (PipeannRegistryClaim(control, attachment, evict))
	{
		case PIPEANN_CLAIM_READY:
			return PipeannAttachmentRefresh(index, attachment, meta);
		case PIPEANN_CLAIM_LOAD:
			if (!Load(index, attachment, meta, evict))
				return false;
			PipeannRegistryPublish(control, attachment);
			return true;
		default:
			return false;
	}
}

/*
 * A new attachment, not yet in the hash table. NULL when there is no shared memory
 * to be had for it.
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
		FreeAttachment(attachment);
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (ok)
		return attachment;
	FreeAttachment(attachment);
	return NULL;
}
