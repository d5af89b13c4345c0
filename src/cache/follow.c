/*
 * follow.c
 *		Bringing a cache up to date with its index, and its map of rows.
 *
 * One backend at a time does so while the others wait. It writes the codes that
 * it reads over the old ones, while searches use them. A code read while it
 * changes costs a little recall at most.
 */
#include "base/pause.h"
#include "cache/registry.h"

#include "access/xact.h"

/* When there was no memory for a map of rows it is tried again later (ms). */
#define RETRY_MS 60000

/* What a turn is for. */
typedef struct Newer
{
	Relation	index;
	const PipeannMeta *meta;
	const PipeannRowMapPlan *plan;
	PipeannRowMapChange change;
} Newer;

typedef void (*Change) (PipeannAttachment *attachment, void *arg);

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

/* Do it while nobody else changes the attachment's cache. */
static void
InTurn(PipeannAttachment *attachment, Change change, void *arg)
{
	if (attachment->entry == NULL)
	{
		change(attachment, arg);
		return;
	}
	PipeannRegistryTakeTurn(attachment);
	PG_TRY();
	{
		change(attachment, arg);
	}
	PG_FINALLY();
	{
		PipeannRegistryEndTurn(attachment);
	}
	PG_END_TRY();
}

void
PipeannAttachmentFollow(Relation index, PipeannAttachment *attachment,
						const PipeannMeta *meta)
{
	Newer		newer = {.index = index, .meta = meta};

	if (meta->build_id != attachment->build_id)
		return;
	PipeannAttachmentRefresh(index, attachment, meta);
	if (NeedsUpdate(attachment, meta))
		InTurn(attachment, Update, &newer);
}

/* ---------- the map of rows ---------- */

/* The map of an attachment, or NULL; it may be of any version. */
static PipeannRowMap *
MapOf(const PipeannAttachment *attachment)
{
	uint32		number = pg_atomic_read_u32(&attachment->header->row_map);

	pg_read_barrier();
	return number == 0 || number >= attachment->nmappings ? NULL :
		(PipeannRowMap *) attachment->mappings[number].address;
}

/* The map of rows, of any version; NULL if there is none. */
PipeannRowMap *
PipeannCacheRowMap(const PipeannCache *cache)
{
	return MapOf(cache->attachment);
}

/* The present map, if there is room, or a new one in a segment of its own. */
static PipeannRowMap *
MapWithRoom(PipeannAttachment *attachment, const PipeannRowMapPlan *plan)
{
	PipeannRowMap *map = MapOf(attachment);

	if (map != NULL && PipeannRowMapHasRoom(map, plan))
		return map;
	if (!PipeannAttachmentAddMapping(attachment, PipeannRowMapSize(plan),
									 attachment->arrays->capacity, 0, false))
		return NULL;
	map = (PipeannRowMap *)
		attachment->mappings[attachment->nmappings - 1].address;
	PipeannRowMapInit(map, plan);
	pg_write_barrier();
	pg_atomic_write_u32(&attachment->header->row_map,
						attachment->nmappings - 1);
	return map;
}

static void
PutMap(PipeannAttachment *attachment, void *arg)
{
	const Newer *newer = arg;
	PipeannRowMap *map;

	if (PipeannAttachmentIsDoomed(attachment) ||
		!PipeannAttachmentRefresh(newer->index, attachment, newer->meta))
		return;
	map = MapWithRoom(attachment, newer->plan);
	attachment->no_row_map = map != NULL ? 0 :
		GetCurrentStatementStartTimestamp();
	if (map != NULL)
		PipeannRowMapWrite(map, newer->plan);
	PipeannAttachmentRefresh(newer->index, attachment, newer->meta);
}

/*
 * Whether there may be room for a map: some time after there was none it is tried
 * again.
 */
bool
PipeannCacheMayMapRows(const PipeannCache *cache)
{
	const PipeannAttachment *attachment = cache->attachment;

	return !PipeannAttachmentIsDoomed(attachment) &&
		(attachment->no_row_map == 0 ||
		 TimestampDifferenceExceeds(attachment->no_row_map,
									GetCurrentStatementStartTimestamp(),
									RETRY_MS));
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
		InTurn(cache->attachment, PutMap, &newer);
	pfree(plan.starts);
}

static void
WithdrawMap(PipeannAttachment *attachment, void *arg)
{
	Newer	   *newer = arg;

	PipeannAttachmentRefresh(newer->index, attachment, newer->meta);
	if (!PipeannAttachmentIsDoomed(attachment))
		PipeannRowMapWithdraw(&newer->change, MapOf(attachment),
							  newer->meta->removals);
}

/* Unless another map has taken its place, it is read again. */
static void
PutMapBack(PipeannAttachment *attachment, void *arg)
{
	Newer	   *newer = arg;

	if (MapOf(attachment) == newer->change.map)
		PipeannRowMapPutBack(&newer->change, newer->meta->removals + 2);
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

	InTurn(attachment, WithdrawMap, &newer);
	if (newer.change.map == NULL)
		return;
	PipeannRowMapTakeOut(&newer.change, is_dead, arg);
	InTurn(attachment, PutMapBack, &newer);
}
