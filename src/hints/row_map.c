/*
 * row_map.c
 *		Which node has a row, by the row's TID.
 *
 * A map is made when it is first wanted, by whoever wants it, from all rows of the
 * index. Rows that came since are not in it. What it says of the others is true until VACUUM
 * removes rows, as only then a TID can come to be another row's. So a map says with
 * which `removals` of the metapage it was made, and VACUUM takes the rows out that it
 * has removed. A later map takes the place of a former, or other memory, while
 * others may be reading: they look whether the version is the same before and after,
 * and else know nothing.
 */
#include "hints/hints.h"

#include "miscadmin.h"

/* Rows that there is room for in new memory, beside those there are. */
#define SPARE_PART 4

/* No map, or one that is being written. */
#define NO_VERSION 0

struct PipeannRowMap
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
};

static uint32 *
Places(const PipeannRowMap *map)
{
	return (uint32 *) map->starts + map->most_blocks + 1;
}

static uint64
ReadVersion(const PipeannRowMap *map)
{
	return pg_atomic_read_u64(unconstify(pg_atomic_uint64 *, &map->version));
}

/* While a map is being written it may say anything. */
static uint32
NodeAt(const PipeannRowMap *map, const ItemPointerData *tid)
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
 * Sets ids[i] to the node of the row at tids[i], PIPEANN_INVALID_ID where it is not
 * known. False if the map is not of a metapage with these `removals`, or NULL.
 * *nodes is the number of nodes when it was made.
 */
bool
PipeannRowMapFind(const PipeannRowMap *map, uint32 removals,
				  const ItemPointerData *tids, uint32 n, uint32 *ids,
				  uint64 *nodes)
{
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

/*
 * Sets blocks, places and starts. False if the rows are too many.
 *
 * The places of each block: as many as its last row needs.
 */
bool
PipeannRowMapMakePlan(PipeannRowMapPlan *plan)
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
Size
PipeannRowMapSize(const PipeannRowMapPlan *plan)
{
	return add_size(offsetof(PipeannRowMap, starts),
					mul_size(add_size(add_size(WithSpare(plan->blocks), 1),
									  WithSpare(plan->places)),
							 sizeof(uint32)));
}

void
PipeannRowMapInit(PipeannRowMap *map, const PipeannRowMapPlan *plan)
{
	pg_atomic_init_u64(&map->version, NO_VERSION);
	map->count = 0;
	map->most_blocks = WithSpare(plan->blocks);
	map->most_places = WithSpare(plan->places);
}

bool
PipeannRowMapHasRoom(const PipeannRowMap *map, const PipeannRowMapPlan *plan)
{
	return map->most_blocks >= plan->blocks &&
		map->most_places >= plan->places;
}

/* From now on nobody reads the map. */
static void
Close(PipeannRowMap *map)
{
	pg_atomic_write_u64(&map->version, NO_VERSION);
	pg_memory_barrier();
}

static void
Publish(PipeannRowMap *map, uint32 removals)
{
	map->count++;
	pg_write_barrier();
	pg_atomic_write_u64(&map->version, (uint64) map->count << 32 | removals);
}

/* Fill a map, while nobody else changes it. */
void
PipeannRowMapWrite(PipeannRowMap *map, const PipeannRowMapPlan *plan)
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

void
PipeannRowMapWithdraw(PipeannRowMapChange *change, PipeannRowMap *map,
					  uint32 before)
{
	if (map == NULL ||
		ReadVersion(map) != ((uint64) map->count << 32 | before))
		return;
	Close(map);
	change->map = map;
	change->count = map->count;
}

void
PipeannRowMapTakeOut(PipeannRowMapChange *change,
					 IndexBulkDeleteCallback is_dead, void *arg)
{
	PipeannRowMap *map = change->map;
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
			change->gone++;
		}
	}
}

void
PipeannRowMapPutBack(const PipeannRowMapChange *change, uint32 after)
{
	PipeannRowMap *map = change->map;

	if (map->count != change->count)
		return;
	map->nodes -= Min(map->nodes, change->gone);
	Publish(map, after);
}
