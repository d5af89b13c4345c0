/*
 * follow.c
 *		Bringing an image up to date with its index.
 *
 * One backend at a time does so, the others wait for it to finish; what it
 * reads it stores over the old codes, under searches that go on. A code read
 * while it changes is worth a little recall at most.
 */
#include "base/pause.h"
#include "cache/registry.h"

bool
PipeannLensIsDoomed(const PipeannLens *lens)
{
	return lens->record != NULL &&
		*(volatile uint32 *) &lens->record->state == PIPEANN_RECORD_DOOMED;
}

/*
 * An image that is doomed does not grow any more: the next scan gets another.
 */
static bool
NeedsUpdate(const PipeannLens *lens, const PipeannMeta *meta)
{
	uint32		ids = PipeannMetaIds(meta);

	if (PipeannLensIsDoomed(lens))
		ids = Min(ids, lens->arrays->capacity);
	return pg_atomic_read_u64(&lens->body->applied) < meta->changes ||
		pg_atomic_read_u64(&lens->body->entries_applied) <
		meta->entry_changes ||
		pg_atomic_read_u32(&lens->body->ncodes) < ids;
}

/*
 * Where there is no room to grow, the image is left to those who use it.
 */
static void
Grow(Relation index, PipeannLens *lens, const PipeannMeta *meta)
{
	uint32		first;
	uint32		nodes;

	if (PipeannLensIsDoomed(lens))
		return;
	PipeannGrowthPlan(lens->arrays->capacity, PipeannMetaIds(meta), &first,
					  &nodes);
	if (PipeannLensAddPiece(lens, mul_size(nodes, lens->pq.nchunks), first,
							nodes, true))
		PipeannLensRefresh(index, lens, meta);
	else if (lens->record != NULL)
		PipeannRegistryDoom(PipeannControlAttached(), lens->record,
							lens->generation);
}

/*
 * Counters last: after an error the next one to try does all of it again.
 */
static void
Publish(PipeannBody *body, uint32 ids, uint64 changes)
{
	pg_write_barrier();
	if (pg_atomic_read_u32(&body->ncodes) < ids)
		pg_atomic_write_u32(&body->ncodes, ids);
	if (pg_atomic_read_u64(&body->applied) < changes)
		pg_atomic_write_u64(&body->applied, changes);
}

static void
Update(Relation index, PipeannLens *lens, const PipeannMeta *meta)
{
	PipeannBody *body = lens->body;
	uint32		have;
	uint32		ids = PipeannMetaIds(meta);

	/* without all its memory in sight another backend must do it */
	if (!PipeannLensRefresh(index, lens, meta) || !NeedsUpdate(lens, meta))
		return;
	if (ids > lens->arrays->capacity)
		Grow(index, lens, meta);
	have = pg_atomic_read_u32(&body->ncodes);
	ids = Max(have, Min(ids, lens->arrays->capacity));
	if (meta->changes > pg_atomic_read_u64(&body->applied) +
		PIPEANN_CHANGE_RING)
		PipeannReadCodes(index, lens, meta, 0, ids);
	else
	{
		PipeannReadChanges(index, lens, meta, have);
		PipeannReadCodes(index, lens, meta, have, ids);
	}
	PipeannReadEntries(index, lens, meta);
	PIPEANN_PAUSE("image-follow");
	Publish(body, ids, meta->changes);
}

void
PipeannLensFollow(Relation index, PipeannLens *lens, const PipeannMeta *meta)
{
	if (meta->build_id != lens->build_id)
		return;
	PipeannLensRefresh(index, lens, meta);
	if (!NeedsUpdate(lens, meta))
		return;
	if (lens->record == NULL)
	{
		Update(index, lens, meta);
		return;
	}
	PipeannRegistryTakeTurn(lens);
	PG_TRY();
	{
		Update(index, lens, meta);
	}
	PG_FINALLY();
	{
		PipeannRegistryEndTurn(lens);
	}
	PG_END_TRY();
}
