/*
 * follow.c
 *		Bringing a cache up to date with its index.
 *
 * One backend at a time does so while the others wait. It writes the codes that
 * it reads over the old ones, while searches use them. A code read while it
 * changes costs a little recall at most.
 */
#include "base/pause.h"
#include "cache/registry.h"

bool
PipeannAttachmentIsDoomed(const PipeannAttachment *attachment)
{
	return attachment->entry != NULL &&
		*(volatile uint32 *) &attachment->entry->state ==
		PIPEANN_CACHE_ENTRY_DOOMED;
}

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
					  &first,
					  &nodes);
	if (PipeannAttachmentAddMapping(attachment,
									mul_size(nodes, PipeannAttachmentCodeBytes(attachment)),
									first,
									nodes, true))
		PipeannAttachmentRefresh(index, attachment, meta);
	else if (attachment->entry != NULL)
		PipeannRegistryDoom(PipeannControlAttached(), attachment->entry,
							attachment->generation);
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
Update(Relation index, PipeannAttachment *attachment, const PipeannMeta *meta)
{
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

void
PipeannAttachmentFollow(Relation index, PipeannAttachment *attachment,
						const PipeannMeta *meta)
{
	if (meta->build_id != attachment->build_id)
		return;
	PipeannAttachmentRefresh(index, attachment, meta);
	if (!NeedsUpdate(attachment, meta))
		return;
	if (attachment->entry == NULL)
	{
		Update(index, attachment, meta);
		return;
	}
	PipeannRegistryTakeTurn(attachment);
	PG_TRY();
	{
		Update(index, attachment, meta);
	}
	PG_FINALLY();
	{
		PipeannRegistryEndTurn(attachment);
	}
	PG_END_TRY();
}
