/*
 * row_map.c
 *		Which node has a row, by the row's TID.
 *
 * A map is made when it is first wanted, by whoever wants it, from all rows of the
 * index. It is in a segment of the cache's memory, and goes with the cache. Rows
 * that came since are not in it. What it says of the others is true until VACUUM
 * removes rows, as only then a TID can come to be another row's. So a map says with
 * which `removals` of the metapage it was made, and VACUUM takes the rows out that it
 * has removed. A later map takes the place of a former, or a larger segment, while
 * others may be reading: they look whether the version is the same before and after,
 * and else know nothing.
 */
#include "cache/registry.h"

#include "access/xact.h"
#include "miscadmin.h"

/* When there was no memory for a map it is tried again so much later (ms). */
#define RETRY_MS 60000

/* Rows that there is room for in a new segment, beside those there are. */
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

static uint32 *
Places(const RowMap *map)
{
	return (uint32 *) map->starts + map->most_blocks + 1;
}

static Size
MapSize(uint32 blocks, uint32 places)
{
	return add_size(offsetof(RowMap, starts),
					mul_size(add_size(add_size(blocks, 1), places),
							 sizeof(uint32)));
}

/* The map of an attachment, or NULL; it may be of any version. */
static RowMap *
MapOf(const PipeannAttachment *attachment)
{
	uint32		number = pg_atomic_read_u32(&attachment->header->row_map);

	pg_read_barrier();
	return number == 0 || number >= attachment->nmappings ? NULL :
		(RowMap *) attachment->mappings[number].address;
}

static PipeannAttachment *
AttachmentOf(const PipeannCache *cache)
{
	return ((PipeannHandle *) cache->impl)->attachment;
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

bool
PipeannCacheFindRows(const PipeannCache *cache, uint32 removals,
					 const ItemPointerData *tids, uint32 n, uint32 *ids,
					 uint64 *nodes)
{
	RowMap	   *map = MapOf(AttachmentOf(cache));
	uint64		version;

	if (map == NULL)
		return false;
	version = pg_atomic_read_u64(&map->version);
	if (version == NO_VERSION || (uint32) version != removals)
		return false;
	pg_read_barrier();
	*nodes = map->nodes;
	for (uint32 i = 0; i < n; i++)
		ids[i] = NodeAt(map, &tids[i]);
	pg_read_barrier();
	return pg_atomic_read_u64(&map->version) == version;
}

/*
 * The places of each block: as many as its last row needs. Returns their number;
 * UINT64_MAX if they are too many.
 */
static uint64
CountPlaces(const PipeannMappedRow *rows, uint64 n, uint32 **starts,
			uint32 *blocks)
{
	uint64		places = 0;

	*blocks = 0;
	for (uint64 i = 0; i < n; i++)
		*blocks = Max(*blocks,
					  ItemPointerGetBlockNumberNoCheck(&rows[i].tid) + 1);
	*starts = MemoryContextAllocExtended(CurrentMemoryContext,
										 mul_size(add_size(*blocks, 1),
												  sizeof(uint32)),
										 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (uint64 i = 0; i < n; i++)
	{
		BlockNumber block = ItemPointerGetBlockNumberNoCheck(&rows[i].tid);

		(*starts)[block] = Max((*starts)[block],
							   ItemPointerGetOffsetNumberNoCheck(&rows[i].tid));
	}
	for (uint32 i = 0; i <= *blocks; i++)
	{
		uint32		wanted = (*starts)[i];

		(*starts)[i] = (uint32) places;
		places += wanted;
	}
	return places < PG_UINT32_MAX ? places : PG_UINT64_MAX;
}

static uint32
WithSpare(uint32 n)
{
	return (uint32) Min((uint64) n + n / SPARE_PART, PG_UINT32_MAX);
}

/* A segment with room for so much: the present one or another. NULL: no memory. */
static RowMap *
Room(PipeannAttachment *attachment, uint32 blocks, uint32 places)
{
	RowMap	   *map = MapOf(attachment);

	if (map != NULL && map->most_blocks >= blocks &&
		map->most_places >= places)
		return map;
	blocks = WithSpare(blocks);
	places = WithSpare(places);
	if (!PipeannAttachmentAddMapping(attachment, MapSize(blocks, places),
									 attachment->arrays->capacity, 0, false))
		return NULL;
	map = (RowMap *) attachment->mappings[attachment->nmappings - 1].address;
	pg_atomic_init_u64(&map->version, NO_VERSION);
	map->count = 0;
	map->most_blocks = blocks;
	map->most_places = places;
	pg_write_barrier();
	pg_atomic_write_u32(&attachment->header->row_map,
						attachment->nmappings - 1);
	return map;
}

static uint64
VersionOf(const RowMap *map, uint32 removals)
{
	return (uint64) map->count << 32 | removals;
}

typedef struct NewMap
{
	const PipeannMeta *meta;
	const PipeannMappedRow *rows;
	uint64		n;
	uint32	   *starts;
	uint32		blocks;
	uint64		places;
} NewMap;

static void
Write(RowMap *map, const NewMap *made)
{
	uint32	   *nodes = Places(map);

	pg_atomic_write_u64(&map->version, NO_VERSION);
	pg_memory_barrier();
	map->blocks = made->blocks;
	map->nodes = made->meta->nodes;
	memcpy(map->starts, made->starts,
		   mul_size(add_size(made->blocks, 1), sizeof(uint32)));
	memset(nodes, 0xFF, mul_size(made->places, sizeof(uint32)));
	for (uint64 i = 0; i < made->n; i++)
	{
		const ItemPointerData *tid = &made->rows[i].tid;

		nodes[map->starts[ItemPointerGetBlockNumberNoCheck(tid)] +
			  ItemPointerGetOffsetNumberNoCheck(tid) - 1] = made->rows[i].id;
	}
	map->count++;
	pg_write_barrier();
	pg_atomic_write_u64(&map->version, VersionOf(map, made->meta->removals));
}

typedef void (*Change) (Relation index, PipeannAttachment *attachment, void *arg);

/* Do it while nobody else changes the attachment's cache. */
static void
InTurn(Relation index, PipeannAttachment *attachment, Change change, void *arg)
{
	if (attachment->entry == NULL)
	{
		change(index, attachment, arg);
		return;
	}
	PipeannRegistryTakeTurn(attachment);
	PG_TRY();
	{
		change(index, attachment, arg);
	}
	PG_FINALLY();
	{
		PipeannRegistryEndTurn(attachment);
	}
	PG_END_TRY();
}

static void
Put(Relation index, PipeannAttachment *attachment, void *arg)
{
	const NewMap *made = arg;
	RowMap	   *map;

	if (PipeannAttachmentIsDoomed(attachment) ||
		!PipeannAttachmentRefresh(index, attachment, made->meta))
		return;
	map = Room(attachment, made->blocks, (uint32) made->places);
	attachment->no_row_map = map != NULL ? 0 :
		GetCurrentStatementStartTimestamp();
	if (map != NULL)
		Write(map, made);
	PipeannAttachmentRefresh(index, attachment, made->meta);
}

bool
PipeannCacheMayMapRows(const PipeannCache *cache)
{
	const PipeannAttachment *attachment = AttachmentOf(cache);

	return !PipeannAttachmentIsDoomed(attachment) &&
		(attachment->no_row_map == 0 ||
		 TimestampDifferenceExceeds(attachment->no_row_map,
									GetCurrentStatementStartTimestamp(),
									RETRY_MS));
}

void
PipeannCacheMapRows(Relation index, PipeannCache *cache,
					const PipeannMeta *meta, const PipeannMappedRow *rows,
					uint64 n)
{
	PipeannAttachment *attachment = AttachmentOf(cache);
	NewMap		made = {.meta = meta, .rows = rows, .n = n};

	made.places = CountPlaces(rows, n, &made.starts, &made.blocks);
	if (made.places == PG_UINT64_MAX)
		return;
	InTurn(index, attachment, Put, &made);
	pfree(made.starts);
}

/* ---------- rows that VACUUM has removed ---------- */

typedef struct Forgetting
{
	const PipeannMeta *meta;
	uint32		before;			/* the metapage's removals */
	uint32		after;
	RowMap	   *map;			/* NULL: there is none to change */
	uint32		count;			/* of the map */
	uint64		gone;			/* rows */
} Forgetting;

/* From now on nobody reads the map. */
static void
Withdraw(Relation index, PipeannAttachment *attachment, void *arg)
{
	Forgetting *f = arg;
	RowMap	   *map;

	PipeannAttachmentRefresh(index, attachment, f->meta);
	map = MapOf(attachment);
	if (map == NULL || PipeannAttachmentIsDoomed(attachment) ||
		pg_atomic_read_u64(&map->version) != VersionOf(map, f->before))
		return;
	pg_atomic_write_u64(&map->version, NO_VERSION);
	pg_memory_barrier();
	f->map = map;
	f->count = map->count;
}

static void
TakeOut(Forgetting *f, IndexBulkDeleteCallback is_dead, void *arg)
{
	RowMap	   *map = f->map;
	uint32	   *nodes = Places(map);

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
			f->gone++;
		}
	}
}

/* Unless another map has taken its place, it is read again. */
static void
PutBack(Relation index, PipeannAttachment *attachment, void *arg)
{
	const Forgetting *f = arg;
	RowMap	   *map = f->map;

	(void) index;
	if (MapOf(attachment) != map || map->count != f->count)
		return;
	map->nodes -= Min(map->nodes, f->gone);
	map->count++;
	pg_write_barrier();
	pg_atomic_write_u64(&map->version, VersionOf(map, f->after));
}

void
PipeannCacheForgetRows(Relation index, PipeannCache *cache,
					   const PipeannMeta *meta, uint32 before, uint32 after,
					   IndexBulkDeleteCallback is_dead, void *arg)
{
	PipeannAttachment *attachment = AttachmentOf(cache);
	Forgetting	f = {.meta = meta,.before = before,.after = after};

	InTurn(index, attachment, Withdraw, &f);
	if (f.map == NULL)
		return;
	TakeOut(&f, is_dead, arg);
	InTurn(index, attachment, PutBack, &f);
}
