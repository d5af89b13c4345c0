/*
 * hints.h
 *		What backends share in memory to speed up searches: maps of rows; and
 *		counters. All are hints: without them answers are the same, but slower.
 *		They are data structures in memory that their owner provides; an
 *		index's cache has them besides the codes. This room does not know whose
 *		memory it is.
 */
#ifndef PIPEANN_HINTS_H
#define PIPEANN_HINTS_H

#include "base/base.h"

#include "access/genam.h"
#include "port/atomics.h"
#include "storage/lwlock.h"
#include "storage/spin.h"
#include "storage/storage.h"
#include "storage/page_source.h"
#include "utils/timestamp.h"

#define PIPEANN_MAX_STATS 128

/*
 * Cumulative counters of an index. An OID may be reused for another index, so
 * they are those of its current file.
 */
typedef struct PipeannIndexStats
{
	Oid			dbid;
	Oid			relid;			/* InvalidOid: of none */
	Oid			file;			/* pg_class.relfilenode */
	uint64		scans;
	PipeannCounters counters;
} PipeannIndexStats;

typedef struct PipeannStatsSlot
{
	slock_t		mutex;
	TimestampTz last_used;
	PipeannIndexStats sums;
} PipeannStatsSlot;

typedef struct PipeannStats
{
	LWLock		lock;
	PipeannStatsSlot slots[PIPEANN_MAX_STATS];
} PipeannStats;

/*
 * Maps a row's TID to its node. A map has the rows that existed when it was
 * made, minus those that VACUUM has removed since.
 */
typedef struct PipeannMappedRow
{
	ItemPointerData tid;
	uint32		id;				/* of the node */
} PipeannMappedRow;

/* The version of a map that is being written. */
#define PIPEANN_NO_ROW_MAP 0

typedef struct PipeannRowMap
{
	pg_atomic_uint64 version;	/* count << 32 | removals */
	uint32		count;			/* number of maps written here so far */
	uint32		most_blocks;	/* blocks for which there is room */
	uint32		most_places;
	uint32		blocks;			/* of the table */
	uint64		nodes;			/* of the index, when it was made */
	uint32		starts[FLEXIBLE_ARRAY_MEMBER];	/* [most_blocks + 1], the places
												 * of each block's rows; then
												 * their nodes, [most_places] */
} PipeannRowMap;

/* The rows of a map to be made. */
typedef struct PipeannRowMapPlan
{
	const PipeannMappedRow *rows;
	uint64		n;
	uint64		nodes;			/* of the index */
	uint32		removals;		/* of the metapage */
	uint32		blocks;			/* of the table */
	uint32		places;			/* places that the rows of these blocks need */
	uint32	   *starts;			/* [blocks + 1], the places of each block */
	Size		size;			/* of the map */
} PipeannRowMapPlan;

static inline uint64
PipeannRowMapVersion(const PipeannRowMap *map)
{
	return pg_atomic_read_u64(unconstify(pg_atomic_uint64 *, &map->version));
}

static inline bool
PipeannRowMapHasRoom(const PipeannRowMap *map, const PipeannRowMapPlan *plan)
{
	return map->most_blocks >= plan->blocks &&
		map->most_places >= plan->places;
}

/* Close the map to readers until it is published. */
static inline void
PipeannRowMapClose(PipeannRowMap *map)
{
	pg_atomic_write_u64(&map->version, PIPEANN_NO_ROW_MAP);
	pg_memory_barrier();
}

static inline void
PipeannRowMapPublish(PipeannRowMap *map, uint32 removals)
{
	map->count++;
	pg_write_barrier();
	pg_atomic_write_u64(&map->version, (uint64) map->count << 32 | removals);
}

/* stats.c */
extern void PipeannStatsInit(PipeannStats *stats, int tranche_id);
extern void PipeannStatsAdd(PipeannStats *stats, Relation index,
							const PipeannCounters *counters);
extern int	PipeannStatsCollect(PipeannStats *stats, PipeannIndexStats **sums);

/* row_map.c */
extern bool PipeannRowMapMakePlan(PipeannRowMapPlan *plan);
extern void PipeannRowMapWrite(PipeannRowMap *map,
							   const PipeannRowMapPlan *plan, bool is_new);
extern uint64 PipeannRowMapTakeOut(PipeannRowMap *map,
								   IndexBulkDeleteCallback is_dead, void *arg);
extern bool PipeannRowMapFind(const PipeannRowMap *map, uint32 removals,
							  const ItemPointerData *tids, uint32 n,
							  uint32 *ids, uint64 *nodes);

#endif							/* PIPEANN_HINTS_H */
