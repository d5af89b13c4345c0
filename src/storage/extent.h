/*
 * extent.h
 *		Extents, and streams of pages in them; part of storage.h.
 */
#ifndef PIPEANN_EXTENT_H
#define PIPEANN_EXTENT_H

#include "storage/meta.h"

/* Extents that the map is in, but for the entries in the metapage. */
static inline uint32
PipeannMapExtents(const PipeannMeta *meta)
{
	uint32		per_extent = PIPEANN_EXTENT_USABLE * PIPEANN_MAP_PER_PAGE;

	return meta->extents <= PIPEANN_MAP_INLINE ? 0 :
		(meta->extents - PIPEANN_MAP_INLINE - 1) / per_extent + 1;
}

/* Graph pages of an extent. */
static inline uint32
PipeannGraphPagesPerExtent(const PipeannLayout *l)
{
	return PIPEANN_EXTENT_USABLE / l->node_pages;
}

/* Extents that so many pages take. */
static inline uint64
PipeannExtentsOf(uint64 pages, uint32 per_extent)
{
	return (pages + per_extent - 1) / per_extent;
}

/*
 * Blocks of a file of so many extents, the last of which has the end of so many
 * pages of a kind: the file ends with the last page written.
 */
static inline uint64
PipeannBlocksUpTo(uint64 extents, uint64 pages, uint32 per_extent,
				  int page_blocks)
{
	uint64		full = pages > 0 ? (pages - 1) / per_extent : 0;

	return (extents - 1) * PIPEANN_EXTENT_BLOCKS + 1 +
		(pages - full * per_extent) * page_blocks;
}

/*
 * The extent map in memory of this backend: for each kind, the extent numbers
 * in the order of their ordinals.
 */
typedef struct PipeannExtentMap
{
	uint32		count[PIPEANN_NUM_KINDS];
	uint32	   *extents[PIPEANN_NUM_KINDS];
} PipeannExtentMap;

/*
 * The block of a page ordinal, or InvalidBlockNumber if the map has no such
 * extent. pages_per_extent is PIPEANN_EXTENT_USABLE, or for graph pages
 * PipeannGraphPagesPerExtent() with unit = node_pages.
 */
static inline BlockNumber
PipeannExtentBlock(const PipeannExtentMap *map, PipeannKind kind,
				   uint32 ordinal, uint32 pages_per_extent, uint32 unit)
{
	uint32		extent = ordinal / pages_per_extent;

	if (extent >= map->count[kind])
		return InvalidBlockNumber;
	return map->extents[kind][extent] * PIPEANN_EXTENT_BLOCKS + 1 +
		(ordinal % pages_per_extent) * unit;
}

/* Ids below this are on pages that the map knows. */
static inline uint32
PipeannGraphIds(const PipeannExtentMap *map, const PipeannLayout *l)
{
	uint64		ids = (uint64) map->count[PIPEANN_GRAPH] *
		PipeannGraphPagesPerExtent(l) * l->slots_per_page;

	return (uint32) Min(ids, PIPEANN_INVALID_ID);
}

/* The first block of a graph page, or InvalidBlockNumber. */
static inline BlockNumber
PipeannGraphBlock(const PipeannExtentMap *map, const PipeannLayout *l,
				  uint32 page)
{
	return PipeannExtentBlock(map, PIPEANN_GRAPH, page,
							  PipeannGraphPagesPerExtent(l), l->node_pages);
}

/* The block of a page of another kind, or InvalidBlockNumber. */
static inline BlockNumber
PipeannPlainBlock(const PipeannExtentMap *map, PipeannKind kind,
				  uint32 ordinal)
{
	return PipeannExtentBlock(map, kind, ordinal, PIPEANN_EXTENT_USABLE, 1);
}

/* extent.c */
extern void PipeannExtentMapLoad(Relation index, const PipeannMeta *meta,
								 MemoryContext context,
								 PipeannExtentMap *map);
extern void PipeannExtentMapFree(PipeannExtentMap *map);
extern uint32 PipeannCountGraphPages(Relation index,
									 const PipeannLayout *layout,
									 const PipeannExtentMap *map,
									 uint32 graph_pages);
extern void PipeannExtentAdd(Relation index, PipeannMeta *meta,
							 PipeannKind kind);
extern Buffer PipeannGetBlock(Relation index, BlockNumber blkno);
extern void PipeannStreamRead(Relation index, const PipeannExtentMap *map,
							  PipeannKind kind, uint32 first, void *dst,
							  Size length);
extern Buffer PipeannStreamPut(Relation index, const PipeannExtentMap *map,
							   PipeannKind kind, uint32 first, uint32 at,
							   uint32 word, GenericXLogState *state);
extern void PipeannStreamWrite(Relation index, const PipeannExtentMap *map,
							   PipeannKind kind, uint32 first,
							   const void *src, Size length, bool wal);

#endif							/* PIPEANN_EXTENT_H */
