/*
 * row_map.c
 *		Maps of rows: from a TID to its node.
 *
 * src/README explains when a map is valid, and how it is read while it is
 * being written.
 */
#include "hints/hints.h"

#include "miscadmin.h"

/* New memory has room for 1 / SPARE_PART more rows than there are. */
#define SPARE_PART 4

static uint32 *
Places(const PipeannRowMap *map)
{
	return (uint32 *) map->starts + map->most_blocks + 1;
}

/* The node at a TID's place. While a map is being written this may be anything. */
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

static uint32
WithSpare(uint32 n)
{
	return (uint32) Min((uint64) n + n / SPARE_PART, PG_UINT32_MAX);
}

/*
 * Sets blocks, places, starts, palloc'd, and size: the memory of a map like
 * this and of somewhat larger ones. False if there are too many rows. A block
 * gets as many places as its last row needs.
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
	plan->size = add_size(offsetof(PipeannRowMap, starts),
						  mul_size(add_size(add_size(WithSpare(plan->blocks), 1),
											WithSpare(plan->places)),
								   sizeof(uint32)));
	return places < PG_UINT32_MAX;
}

/*
 * Write a map, over another one that has room or in new memory, while no other
 * backend changes it.
 */
void
PipeannRowMapWrite(PipeannRowMap *map, const PipeannRowMapPlan *plan,
				   bool is_new)
{
	uint32	   *nodes;

	if (is_new)
	{
		pg_atomic_init_u64(&map->version, PIPEANN_NO_ROW_MAP);
		map->count = 0;
		map->most_blocks = WithSpare(plan->blocks);
		map->most_places = WithSpare(plan->places);
	}
	PipeannRowMapClose(map);
	nodes = Places(map);
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
	PipeannRowMapPublish(map, plan->removals);
}

/* Remove rows that VACUUM has removed from a closed map; returns how many there were. */
uint64
PipeannRowMapTakeOut(PipeannRowMap *map, IndexBulkDeleteCallback is_dead,
					 void *arg)
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

/*
 * Sets ids[i] to the node of the row at tids[i], or to PIPEANN_INVALID_ID if
 * it is not known. False if there is no map of a metapage with these
 * `removals`; map may be NULL. *nodes is the number of nodes when it was made.
 */
bool
PipeannRowMapFind(const PipeannRowMap *map, uint32 removals,
				  const ItemPointerData *tids, uint32 n, uint32 *ids,
				  uint64 *nodes)
{
	uint64		version;

	if (map == NULL)
		return false;
	version = PipeannRowMapVersion(map);
	if (version == PIPEANN_NO_ROW_MAP || (uint32) version != removals)
		return false;
	pg_read_barrier();
	*nodes = map->nodes;
	for (uint32 i = 0; i < n; i++)
		ids[i] = NodeAt(map, &tids[i]);
	pg_read_barrier();
	return PipeannRowMapVersion(map) == version;
}
