/*
 * row_map.c
 *		Which node has a row, for whoever knows rows by their TIDs only.
 *
 * src/README tells when what a map says is true, and who may read it while it is
 * written.
 */
#include "cache/registry.h"

#include "access/xact.h"
#include "miscadmin.h"

/* Rows that there is room for in new memory, beside those there are. */
#define SPARE_PART 4

/* No map, or one that is being written. */
#define NO_VERSION 0

typedef struct RowMap
{
	pg_atomic_uint64 version;	/* count << 32 | removals */
	uint32		count;			/* of maps that were here */
	uint32		most_blocks;	/* what there is room for */
	uint32		most_places;
	uint32		blocks;			/* of the table */
	uint64		nodes;			/* of the index, when it was made */
	uint32		starts[FLEXIBLE_ARRAY_MEMBER];	/* [most_blocks + 1], the places
												 * of each block's rows; then
												 * their nodes, [most_places] */
} RowMap;

/* The rows of a map to be made. */
typedef struct RowMapPlan
{
	const PipeannMappedRow *rows;
	uint64		n;
	uint64		nodes;			/* of the index */
	uint32		removals;		/* of the metapage */
	uint32		blocks;			/* of the table */
	uint32		places;			/* that the rows of these blocks need */
	uint32	   *starts;			/* [blocks + 1], the places of each block */
} RowMapPlan;

static uint32 *
Places(const RowMap *map)
{
	return (uint32 *) map->starts + map->most_blocks + 1;
}

static uint64
ReadVersion(const RowMap *map)
{
	return pg_atomic_read_u64(unconstify(pg_atomic_uint64 *, &map->version));
}

/* While a map is being written it may say anything. */
static uint32
NodeAt(const RowMap *map, const ItemPointerData *tid)
{
	BlockNumber block = ItemPointerGetBlockNumberNoCheck(tid);
	uint32		offset = ItemPointerGetOffsetNumberNoCheck(tid) - 1;
	uint32		start;
	uint32		end;

	if (block >= Min(map->blocks, map->most_blocks))
		return PIPEANN_INVALID_ID;
	start = map->starts[block];
	end = Min(map->starts[block + 1], map->most_places);
	return start < end && offset < end - start ?
		Places(map)[start + offset] : PIPEANN_INVALID_ID;
}

/*
 * Sets blocks, places and starts. False if the rows are too many.
 *
 * The places of each block: as many as its last row needs.
 */
static bool
MakePlan(RowMapPlan *plan)
{
	const PipeannMappedRow *rows = plan->rows;
	uint64		places = 0;

	plan->blocks = 0;
	for (uint64 i = 0; i < plan->n; i++)
		plan->blocks = Max(plan->blocks,
						   ItemPointerGetBlockNumberNoCheck(&rows[i].tid) + 1);
	plan->starts =
		MemoryContextAllocExtended(CurrentMemoryContext,
								   mul_size(add_size(plan->blocks, 1),
											sizeof(uint32)),
								   MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (uint64 i = 0; i < plan->n; i++)
	{
		uint32	   *most =
			&plan->starts[ItemPointerGetBlockNumberNoCheck(&rows[i].tid)];

		*most = Max(*most, ItemPointerGetOffsetNumberNoCheck(&rows[i].tid));
	}
	for (uint32 i = 0; i <= plan->blocks; i++)
	{
		uint32		wanted = plan->starts[i];

		plan->starts[i] = (uint32) places;
		places += wanted;
	}
	plan->places = (uint32) places;
	return places < PG_UINT32_MAX;
}

static uint32
WithSpare(uint32 n)
{
	return (uint32) Min((uint64) n + n / SPARE_PART, PG_UINT32_MAX);
}

/* The memory of a map like this and of somewhat larger ones. */
static Size
MapSize(const RowMapPlan *plan)
{
	return add_size(offsetof(RowMap, starts),
					mul_size(add_size(add_size(WithSpare(plan->blocks), 1),
									  WithSpare(plan->places)),
							 sizeof(uint32)));
}

static void
InitMap(RowMap *map, const RowMapPlan *plan)
{
	pg_atomic_init_u64(&map->version, NO_VERSION);
	map->count = 0;
	map->most_blocks = WithSpare(plan->blocks);
	map->most_places = WithSpare(plan->places);
}

static bool
HasRoom(const RowMap *map, const RowMapPlan *plan)
{
	return map->most_blocks >= plan->blocks &&
		map->most_places >= plan->places;
}

/* From now on nobody reads the map. */
static void
Close(RowMap *map)
{
	pg_atomic_write_u64(&map->version, NO_VERSION);
	pg_memory_barrier();
}

static void
Publish(RowMap *map, uint32 removals)
{
	map->count++;
	pg_write_barrier();
	pg_atomic_write_u64(&map->version, (uint64) map->count << 32 | removals);
}

/* Fill a map, while nobody else changes it. */
static void
WriteMap(RowMap *map, const RowMapPlan *plan)
{
	uint32	   *nodes = Places(map);

	Close(map);
	map->blocks = plan->blocks;
	map->nodes = plan->nodes;
	memcpy(map->starts, plan->starts,
		   mul_size(add_size(plan->blocks, 1), sizeof(uint32)));
	memset(nodes, 0xFF, mul_size(plan->places, sizeof(uint32)));
	for (uint64 i = 0; i < plan->n; i++)
	{
		const ItemPointerData *tid = &plan->rows[i].tid;

		nodes[map->starts[ItemPointerGetBlockNumberNoCheck(tid)] +
			  ItemPointerGetOffsetNumberNoCheck(tid) - 1] = plan->rows[i].id;
	}
	Publish(map, plan->removals);
}

/* ---------- rows that VACUUM has removed ---------- */

/* Returns how many were in the map, which nobody reads meanwhile. */
static uint64
TakeOut(RowMap *map, IndexBulkDeleteCallback is_dead, void *arg)
{
	uint32	   *nodes = Places(map);
	uint64		gone = 0;

	for (BlockNumber block = 0; block < map->blocks; block++)
	{
		uint32		start = map->starts[block];

		CHECK_FOR_INTERRUPTS();
		for (uint32 i = start; i < map->starts[block + 1]; i++)
		{
			ItemPointerData tid;

			ItemPointerSet(&tid, block, (OffsetNumber) (i - start + 1));
			if (nodes[i] == PIPEANN_INVALID_ID || !is_dead(&tid, arg))
				continue;
			nodes[i] = PIPEANN_INVALID_ID;
			gone++;
		}
	}
	return gone;
}

/* ---------- in the cache of an index ---------- */

/* What a turn is for. */
typedef struct Newer
{
	Relation	index;
	const PipeannMeta *meta;
	const RowMapPlan *plan;

	/* VACUUM: what nobody reads until rows are taken out; NULL if there is none */
	RowMap	   *map;
	uint32		count;			/* of maps that were there */
	uint64		gone;			/* rows */
} Newer;

/* The map of an attachment, or NULL; it may be of any version. */
static RowMap *
MapOf(const PipeannAttachment *attachment)
{
	uint32		number = pg_atomic_read_u32(&attachment->header->row_map);

	pg_read_barrier();
	return number == 0 || number >= attachment->nmappings ? NULL :
		(RowMap *) attachment->mappings[number].address;
}

/*
 * Sets ids[i] to the node of the row at tids[i], PIPEANN_INVALID_ID where it is not
 * known. False if there is no map of a metapage with these `removals`.
 * *nodes is the number of nodes when it was made.
 */
bool
PipeannCacheFindRows(const PipeannCache *cache, uint32 removals,
					 const ItemPointerData *tids, uint32 n, uint32 *ids,
					 uint64 *nodes)
{
	const RowMap *map = MapOf(cache->attachment);
	uint64		version;

	if (map == NULL)
		return false;
	version = ReadVersion(map);
	if (version == NO_VERSION || (uint32) version != removals)
		return false;
	pg_read_barrier();
	*nodes = map->nodes;
	for (uint32 i = 0; i < n; i++)
		ids[i] = NodeAt(map, &tids[i]);
	pg_read_barrier();
	return ReadVersion(map) == version;
}

/* The present map, if there is room, or a new one in a segment of its own. */
static RowMap *
MapWithRoom(PipeannAttachment *attachment, const RowMapPlan *plan)
{
	RowMap	   *map = MapOf(attachment);

	if (map != NULL && HasRoom(map, plan))
		return map;
	if (!PipeannAttachmentAddMapping(attachment, MapSize(plan),
									 attachment->arrays->capacity, 0, false))
		return NULL;
	map = (RowMap *) attachment->mappings[attachment->nmappings - 1].address;
	InitMap(map, plan);
	pg_write_barrier();
	pg_atomic_write_u32(&attachment->header->row_map,
						attachment->nmappings - 1);
	return map;
}

static void
PutMap(PipeannAttachment *attachment, void *arg)
{
	const Newer *newer = arg;
	RowMap	   *map;

	if (PipeannAttachmentIsDoomed(attachment) ||
		!PipeannAttachmentRefresh(newer->index, attachment, newer->meta))
		return;
	map = MapWithRoom(attachment, newer->plan);
	attachment->no_row_map = map != NULL ? 0 :
		GetCurrentStatementStartTimestamp();
	if (map != NULL)
		WriteMap(map, newer->plan);
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
									PIPEANN_RETRY_MS));
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
	RowMapPlan plan = {.rows = rows, .n = n, .nodes = meta->nodes,
		.removals = meta->removals};
	Newer		newer = {.index = index, .meta = meta, .plan = &plan};

	if (MakePlan(&plan))
		PipeannInTurn(cache->attachment, PutMap, &newer);
	pfree(plan.starts);
}

/* If VACUUM is all that came between the map and the metapage. */
static void
WithdrawMap(PipeannAttachment *attachment, void *arg)
{
	Newer	   *newer = arg;
	RowMap	   *map;

	PipeannAttachmentRefresh(newer->index, attachment, newer->meta);
	map = MapOf(attachment);
	if (PipeannAttachmentIsDoomed(attachment) || map == NULL ||
		ReadVersion(map) != ((uint64) map->count << 32 | newer->meta->removals))
		return;
	Close(map);
	newer->map = map;
	newer->count = map->count;
}

/* Unless another map has taken its place, or it was written anew, it is read again. */
static void
PutMapBack(PipeannAttachment *attachment, void *arg)
{
	Newer	   *newer = arg;
	RowMap	   *map = newer->map;

	if (MapOf(attachment) != map || map->count != newer->count)
		return;
	map->nodes -= Min(map->nodes, newer->gone);
	Publish(map, newer->meta->removals + 2);
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
	newer.gone = TakeOut(newer.map, is_dead, arg);
	PipeannInTurn(attachment, PutMapBack, &newer);
}
