/*
 * attachment.c
 *		An attachment is how this backend sees a cache: there is one for each
 *		index that it used, kept from scan to scan, with pointers resolved.
 *
 * An attachment refers to its entry only while a handle is in use, so that the
 * cache may be evicted between scans. One that is no longer good for new scans
 * (its cache was dropped, its index rebuilt) leaves the hash table at once and
 * is freed when its last handle is released.
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
 * Give back what this backend holds in shared memory. Later callbacks find
 * nothing left to do there.
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
		PipeannAttachment *attachment = dlist_container(PipeannAttachment,
														node, iter.cur);

		if (attachment->entry != NULL)
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

PipeannAttachmentKey
PipeannAttachmentKeyOf(Relation index)
{
	PipeannAttachmentKey key;

	memset(&key, 0, sizeof(key));
	key.locator = PipeannRelationLocator(index);
	key.backend = index->rd_backend;
	return key;
}

PipeannAttachment *
PipeannAttachmentFind(Relation index)
{
	PipeannAttachmentKey key = PipeannAttachmentKeyOf(index);
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

void
PipeannAttachmentFree(PipeannAttachment *attachment)
{
	Assert(attachment->refs == 0);
	while (!dlist_is_empty(&attachment->idle))
		dlist_container(PipeannHandle, node,
						dlist_pop_head_node(&attachment->idle))->attachment = NULL;
	if (attachment->entry != NULL && !exiting)
		PipeannRegistryLetGo(PipeannControlAttached(), attachment);
	for (uint32 i = 0; i < attachment->nmappings && !exiting; i++)
		PipeannArenaDetach(&attachment->mappings[i]);
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
		PipeannAttachmentFree(attachment);
}

/* Make sure that the cache stays in memory. False if it has been dropped. */
bool
PipeannAttachmentHold(PipeannAttachment *attachment)
{
	return attachment->entry == NULL || attachment->referenced ||
		PipeannRegistryReference(PipeannControlAttached(), attachment);
}

/* A handle stops using the attachment. */
void
PipeannAttachmentUnuse(PipeannAttachment *attachment)
{
	if (--attachment->refs > 0)
		return;
	if (attachment->entry != NULL && !exiting)
		PipeannRegistryLetGo(PipeannControlAttached(), attachment);
	if (!attachment->listed)
		PipeannAttachmentFree(attachment);
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

void
PipeannAttachmentsClean(bool check_files)
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

void
PipeannAttachmentAdd(PipeannAttachment *attachment)
{
	dlist_push_tail(&attachments, &attachment->node);
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

/*
 * After an invalidation of a relation that has a cache, look at its file now,
 * and once more when a commit that was under way has surely truncated it.
 */
void
PipeannSweepIfDue(void)
{
	static uint64 frees_seen = 0;
	PipeannControl *control = PipeannControlGet();
	bool		due = PipeannSweepIsDue();
	uint64		frees;

	if (due && control != NULL)
		PipeannRegistrySweep(control);
	frees = control == NULL ? 0 : pg_atomic_read_u64(&control->frees);
	if (due || frees != frees_seen)
		PipeannAttachmentsClean(due);
	frees_seen = frees;
}
