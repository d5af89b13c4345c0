/*
 * image.c
 *		Giving out images.
 */
#include "cache/registry.h"

#include "access/xact.h"

/* How long (ms) a private copy is used before shared memory is tried again. */
#define RETRY_MS 60000

/* Idle handles looked at for one of the right memory context. */
#define IDLE_LOOKS 4

static void
SayPrivate(Relation index)
{
	static bool said = false;

	if (said)
		return;
	said = true;
	ereport(LOG,
			(errmsg("no shared memory for index \"%s\": this backend keeps its own copy of the codes",
					RelationGetRelationName(index)),
			 PipeannAreaError()[0] != '\0' ?
			 errdetail_internal("Last error: %s.", PipeannAreaError()) : 0,
			 errhint("Consider raising \"pipeann.shared_memory\" (now %d MB).",
					 pipeann_shared_memory)));
}

/*
 * Temporary relations are nobody else's business, and their file numbers may
 * be those of other relations.
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
	if (PipeannAreaLimit(control) > 0)
		return true;
	if (control->used_pages > 0)
		PipeannEvictAll(control);
	return false;
}

static bool
IsUsable(PipeannLens *lens, const PipeannMeta *meta, bool may_share)
{
	return lens->build_id == meta->build_id &&
		(lens->record == NULL || may_share) &&
		PipeannLensHold(lens) &&
		!PipeannLensIsDoomed(lens);
}

/*
 * Now and then an unused private copy is exchanged for a shared one, without
 * evicting others for it.
 */
static PipeannLens *
RetryShared(Relation index, const PipeannMeta *meta, PipeannLens *lens)
{
	TimestampTz now = GetCurrentStatementStartTimestamp();
	PipeannLens *shared;

	if (lens->record != NULL || lens->refs > 0 ||
		!TimestampDifferenceExceeds(lens->tried, now, RETRY_MS))
		return lens;
	lens->tried = now;
	shared = PipeannLensMake(index, meta, true, false);
	if (shared == NULL)
		return lens;
	PipeannLensDrop(lens);
	PipeannLensList(shared);
	return shared;
}

/*
 * The lens for new scans of an index, with its image held.
 */
static PipeannLens *
GetLens(Relation index, const PipeannMeta *meta, bool may_share)
{
	PipeannLens *lens = PipeannLensFind(index);

	if (lens != NULL && IsUsable(lens, meta, may_share))
		return may_share ? RetryShared(index, meta, lens) : lens;
	if (lens != NULL)
		PipeannLensDrop(lens);
	lens = NULL;
	if (may_share)
	{
		PipeannSweepRecords(PipeannControlGet());
		lens = PipeannLensMake(index, meta, true, true);
		if (lens == NULL)
			SayPrivate(index);
	}
	if (lens == NULL)
		lens = PipeannLensMake(index, meta, false, false);
	PipeannLensList(lens);
	return lens;
}

static void
FillImage(PipeannHandle *handle)
{
	const PipeannLens *lens = handle->lens;
	const PipeannBody *body = lens->body;
	const char *base = (const char *) body;
	PipeannImage *image = &handle->image;
	const uint32 *entries = (const uint32 *) (base + body->entries);
	uint32		count = lens->entry_count;

	image->place = lens->place;
	image->pq = lens->pq;
	image->pq.centroids = (const float *) (base + body->centroids);
	/* others may have followed a newer metapage than ours */
	image->ncodes = Min(pg_atomic_read_u32(&lens->body->ncodes),
						Min(handle->arrays->capacity,
							handle->arrays->mapped));
	image->chunks = handle->arrays->chunks;
	image->entry_count = count;
	image->entry_degree = lens->entry_degree;
	image->entry_ids = entries;
	image->entry_nneighbors = (const uint16 *) (entries + count);
	image->entry_neighbors = entries + count + (count + 1) / 2;
	image->map = handle->arrays->map;
	image->recent = &lens->body->recent;
	image->kills = (struct PipeannKill *) ((char *) body + body->kills);
	image->kill_mask = body->kill_mask;
	image->hot = lens->record == NULL ? NULL :
		(PipeannHot *) ((char *) body + body->hot);
	image->bytes = lens->bytes;
	image->impl = handle;
	pg_read_barrier();
}

/*
 * Let a handle see its lens's present arrays.
 */
static void
SyncHandle(PipeannHandle *handle)
{
	PipeannArrays *old = handle->arrays;

	handle->arrays = handle->lens->arrays;
	handle->arrays->refs++;
	if (old != NULL)
		PipeannArraysRelease(old);
	FillImage(handle);
}

/*
 * The handle's memory context goes.
 */
static void
EndHandle(void *arg)
{
	PipeannHandle *handle = arg;

	if (handle->arrays != NULL)
	{
		PipeannArraysRelease(handle->arrays);
		PipeannLensUnuse(handle->lens);
	}
	else if (handle->lens != NULL)
		dlist_delete(&handle->node);
}

static PipeannHandle *
FindIdle(PipeannLens *lens, MemoryContext context)
{
	dlist_iter	iter;
	int			looks = 0;

	dlist_foreach(iter, &lens->idle)
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
UseLens(PipeannLens *lens, MemoryContext context)
{
	PipeannHandle *handle = FindIdle(lens, context);

	if (handle == NULL)
	{
		handle = MemoryContextAllocZero(context, sizeof(PipeannHandle));
		handle->context = context;
		handle->callback.func = EndHandle;
		handle->callback.arg = handle;
		MemoryContextRegisterResetCallback(context, &handle->callback);
	}
	handle->lens = lens;
	lens->refs++;
	SyncHandle(handle);
	return handle;
}

/*
 * An image that could not grow does for scans that have it; a new one looks
 * for another, at last a private copy.
 */
PipeannImage *
PipeannImageAcquire(Relation index, const PipeannMeta *meta,
					MemoryContext context)
{
	bool		may_share;

	Assert(meta->flags & PIPEANN_META_HAS_CODES);
	PipeannSweepIfDue();
	may_share = MayShare(index);
	for (int attempt = 0;; attempt++)
	{
		PipeannLens *lens = GetLens(index, meta, may_share && attempt < 2);
		PipeannHandle *handle = UseLens(lens, context);

		PipeannImageFollow(index, &handle->image, meta);
		if (handle->image.ncodes >= PipeannMetaIds(meta) ||
			lens->record == NULL)
			return &handle->image;
		PipeannImageRelease(&handle->image);
	}
}

void
PipeannImageRelease(PipeannImage *image)
{
	PipeannHandle *handle = image->impl;
	PipeannLens *lens = handle->lens;

	Assert(handle->arrays != NULL);
	PipeannArraysRelease(handle->arrays);
	handle->arrays = NULL;
	dlist_push_head(&lens->idle, &handle->node);
	PipeannLensUnuse(lens);
}

void
PipeannImageFollow(Relation index, PipeannImage *image,
				   const PipeannMeta *meta)
{
	PipeannHandle *handle = image->impl;

	PipeannLensFollow(index, handle->lens, meta);
	SyncHandle(handle);
}

bool
PipeannImageIsShared(Relation index, Size *bytes)
{
	PipeannFile file = PipeannRelationFile(index);
	PipeannLens *lens;
	PipeannRecord *record;
	uint64		generation;
	uint64		pages = 0;

	PipeannSweepIfDue();
	if (MayShare(index))
	{
		PipeannControl *control = PipeannControlGet();

		PipeannSweepRecords(control);
		if (PipeannRegistryFind(control, &file, &generation, &record, &pages))
		{
			*bytes = mul_size(pages, FPM_PAGE_SIZE);
			return true;
		}
	}
	lens = PipeannLensFind(index);
	*bytes = lens != NULL && lens->record == NULL ? lens->bytes : 0;
	return false;
}

void
PipeannImageForget(Relation index)
{
	PipeannFile file = PipeannRelationFile(index);
	PipeannLens *lens = PipeannLensFind(index);
	PipeannControl *control = PipeannControlGet();
	PipeannRecord *record;
	uint64		generation;
	uint64		pages;

	if (lens != NULL)
		PipeannLensDrop(lens);
	if (control == NULL || RelationUsesLocalBuffers(index))
		return;
	PipeannRegistryFind(control, &file, &generation, &record, &pages);
	if (record != NULL)
		PipeannRegistryDoom(control, record, generation);
}
