/*
 * extent.c
 *		The extent map, and growing the file; streams of pages.
 */
#include "storage/storage.h"

#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/rel.h"

#define ENTRIES_PER_MAP_EXTENT (PIPEANN_EXTENT_USABLE * PIPEANN_MAP_PER_PAGE)

/* The file grows by so many blocks at a time; who else wants a block may come between. */
#define BLOCKS_AT_A_TIME 16

/* Block and position of a map entry that is not in the metapage. */
static BlockNumber
MapEntryBlock(const PipeannMeta *meta, uint32 entry, uint32 *position)
{
	uint32		rest = entry - PIPEANN_MAP_INLINE;
	uint32		extent = rest / ENTRIES_PER_MAP_EXTENT;
	uint32		page = rest % ENTRIES_PER_MAP_EXTENT / PIPEANN_MAP_PER_PAGE;

	Assert(extent < PIPEANN_MAP_EXTENTS);
	*position = rest % PIPEANN_MAP_PER_PAGE;
	return meta->map_extents[extent] * PIPEANN_EXTENT_BLOCKS + 1 + page;
}

static void
MapError(Relation index, uint32 entry)
{
	PipeannCorrupted(index, "has an invalid extent map at entry %u", entry);
}

static void
MapPut(Relation index, PipeannExtentMap *map, uint32 extent, uint32 entry)
{
	uint32		kind = PIPEANN_ENTRY_KIND(entry);
	uint32		ordinal = PIPEANN_ENTRY_ORDINAL(entry);

	if (kind >= PIPEANN_NUM_KINDS || ordinal >= map->count[kind])
		MapError(index, extent);
	map->extents[kind][ordinal] = extent;
}

/* Read the entries on map pages, page by page. */
static void
LoadMapPages(Relation index, const PipeannMeta *meta, PipeannExtentMap *map)
{
	uint32		entry = PIPEANN_MAP_INLINE;

	while (entry < meta->extents)
	{
		uint32		position;
		BlockNumber blkno;
		Buffer		buffer;
		uint32	   *entries;

		if ((entry - PIPEANN_MAP_INLINE) / ENTRIES_PER_MAP_EXTENT >=
			PIPEANN_MAP_EXTENTS)
			MapError(index, entry);
		blkno = MapEntryBlock(meta, entry, &position);
		buffer = PipeannReadBuffer(index, blkno, PIPEANN_MAP,
								   BUFFER_LOCK_SHARE, false, NULL);
		entries = (uint32 *) PipeannPagePayload(BufferGetPage(buffer));
		for (; position < PIPEANN_MAP_PER_PAGE && entry < meta->extents;
			 position++, entry++)
			MapPut(index, map, entry, entries[position]);
		UnlockReleaseBuffer(buffer);
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Read the extent map into context. Errors with ERRCODE_INDEX_CORRUPTED if it
 * is not complete.
 */
void
PipeannExtentMapLoad(Relation index, const PipeannMeta *meta,
					 MemoryContext context, PipeannExtentMap *map)
{
	for (int kind = 0; kind < PIPEANN_NUM_KINDS; kind++)
	{
		Size		size = mul_size(meta->kind_extents[kind], sizeof(uint32));

		map->count[kind] = meta->kind_extents[kind];
		map->extents[kind] = MemoryContextAllocHuge(context, Max(size, 4));
		memset(map->extents[kind], 0xFF, size);
	}
	for (uint32 i = 0; i < Min(meta->extents, PIPEANN_MAP_INLINE); i++)
		MapPut(index, map, i, meta->map[i]);
	LoadMapPages(index, meta, map);
	for (int kind = 0; kind < PIPEANN_NUM_KINDS; kind++)
		for (uint32 i = 0; i < map->count[kind]; i++)
			if (map->extents[kind][i] == PIPEANN_INVALID_ID)
				MapError(index, i);
}

void
PipeannExtentMapFree(PipeannExtentMap *map)
{
	for (int kind = 0; kind < PIPEANN_NUM_KINDS; kind++)
		if (map->extents[kind] != NULL)
			pfree(map->extents[kind]);
	memset(map, 0, sizeof(*map));
}

/*
 * Write an entry on a map page, with its own WAL record. It counts once the
 * metapage's number of extents covers it.
 */
static void
WriteMapEntry(Relation index, const PipeannMeta *meta, uint32 value)
{
	uint32		position;
	BlockNumber blkno = MapEntryBlock(meta, meta->extents, &position);
	Buffer		buffer = PipeannGetBlock(index, blkno);
	GenericXLogState *state = GenericXLogStart(index);
	bool		is_new = PageIsNew(BufferGetPage(buffer));
	Page		page;

	page = GenericXLogRegisterBuffer(state, buffer,
									 is_new ? GENERIC_XLOG_FULL_IMAGE : 0);
	if (is_new)
		PipeannPageInit(page, PIPEANN_MAP);
	((uint32 *) PipeannPagePayload(page))[position] = value;
	PipeannPageSeal(page, blkno);
	GenericXLogFinish(state);
	UnlockReleaseBuffer(buffer);
}

static void
AddEntry(Relation index, PipeannMeta *meta, PipeannKind kind)
{
	uint32		value = PIPEANN_EXTENT_ENTRY(kind, meta->kind_extents[kind]);

	if (meta->extents < PIPEANN_MAP_INLINE)
		meta->map[meta->extents] = value;
	else
		WriteMapEntry(index, meta, value);
	meta->kind_extents[kind]++;
	meta->extents++;
}

/*
 * If the map itself needs room the next extent becomes a map extent. Its own
 * entry is the first that it holds.
 */
static void
GrowMap(Relation index, PipeannMeta *meta)
{
	uint32		rest = meta->extents - PIPEANN_MAP_INLINE;
	uint32		ordinal = rest / ENTRIES_PER_MAP_EXTENT;

	if (ordinal >= PIPEANN_MAP_EXTENTS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("index \"%s\" has reached its largest size",
						RelationGetRelationName(index))));
	meta->map_extents[ordinal] = meta->extents;
	AddEntry(index, meta, PIPEANN_MAP);
}

/*
 * Give an extent to a kind, inside a metapage update. The file grows when the pages are
 * first asked for. Errors if the map is full (32 TB).
 */
void
PipeannExtentAdd(Relation index, PipeannMeta *meta, PipeannKind kind)
{
	if (meta->extents >= PIPEANN_MAP_INLINE &&
		(meta->extents - PIPEANN_MAP_INLINE) % ENTRIES_PER_MAP_EXTENT == 0)
		GrowMap(index, meta);
	AddEntry(index, meta, kind);
}

/* Extend the file with empty pages to so many blocks, if it has fewer. */
static void
ExtendFile(Relation index, BlockNumber blocks)
{
	while (RelationGetNumberOfBlocks(index) < blocks)
	{
		LockRelationForExtension(index, ExclusiveLock);
		for (int i = 0; i < BLOCKS_AT_A_TIME &&
			 RelationGetNumberOfBlocks(index) < blocks; i++)
			ReleaseBuffer(ReadBuffer(index, P_NEW));
		UnlockRelationForExtension(index, ExclusiveLock);
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Make sure that a block exists, and return it locked exclusively. The page may be new
 * or initialised.
 */
Buffer
PipeannGetBlock(Relation index, BlockNumber blkno)
{
	Buffer		buffer;

	ExtendFile(index, blkno + 1);
	buffer = ReadBuffer(index, blkno);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	return buffer;
}

/*
 * The number of graph pages that exist in the file now: at most graph_pages,
 * the number in the metapage. For sequential passes. Errors if pages are
 * missing.
 */
uint32
PipeannCountGraphPages(Relation index, const PipeannLayout *layout,
					   const PipeannExtentMap *map, uint32 graph_pages)
{
	BlockNumber nblocks = RelationGetNumberOfBlocks(index);
	uint32		per_extent = PipeannGraphPagesPerExtent(layout);
	uint32		count = 0;

	for (uint32 i = 0; i < map->count[PIPEANN_GRAPH] && count < graph_pages;
		 i++)
	{
		BlockNumber first = PipeannGraphBlock(map, layout, i * per_extent);
		uint32		exist = 0;

		if (first < nblocks)
			exist = Min((nblocks - first) / layout->node_pages, per_extent);
		count += exist;
		if (exist < per_extent)
			break;
	}
	/* one page may be missing: a crash after the metapage was written */
	if (count + 1 < graph_pages)
		ereport(ERROR,
				(errcode(ERRCODE_INDEX_CORRUPTED),
				 errmsg("index \"%s\" has no block %u",
						RelationGetRelationName(index),
						PipeannGraphBlock(map, layout, count)),
				 errdetail("The file has %u blocks, but nodes stand there.",
						   nblocks),
				 errhint("Run REINDEX INDEX \"%s\".",
						 RelationGetRelationName(index))));
	return Min(count, graph_pages);
}

/* ---------- streams: a kind's pages as one run of bytes ---------- */

static BlockNumber
StreamBlock(Relation index, const PipeannExtentMap *map, PipeannKind kind,
			uint32 ordinal)
{
	BlockNumber blkno = PipeannPlainBlock(map, kind, ordinal);

	if (blkno == InvalidBlockNumber)
		PipeannCorrupted(index, "lacks page %u of kind %d", ordinal, kind);
	return blkno;
}

/* Read length bytes of a stream, from its beginning, to dst. */
void
PipeannStreamRead(Relation index, const PipeannExtentMap *map,
				  PipeannKind kind, uint32 first, void *dst,
				  Size length)
{
	char	   *out = dst;

	for (uint32 ordinal = first; length > 0; ordinal++)
	{
		BlockNumber blkno = StreamBlock(index, map, kind, ordinal);
		Buffer		buffer = PipeannReadBuffer(index, blkno, kind,
											   BUFFER_LOCK_SHARE, false, NULL);
		Size		part = Min(length, (Size) PIPEANN_PAYLOAD);

		memcpy(out, PipeannPagePayload(BufferGetPage(buffer)), part);
		UnlockReleaseBuffer(buffer);
		out += part;
		length -= part;
		CHECK_FOR_INTERRUPTS();
	}
}

/* Fill one page. In a build, without WAL, the page is only marked dirty. */
static void
WritePage(Relation index, BlockNumber blkno, PipeannKind kind, const char *src,
		  Size length, bool wal)
{
	Buffer		buffer = PipeannGetBlock(index, blkno);
	GenericXLogState *state = NULL;
	Page		page = BufferGetPage(buffer);

	if (wal)
	{
		state = GenericXLogStart(index);
		page = GenericXLogRegisterBuffer(state, buffer,
										 GENERIC_XLOG_FULL_IMAGE);
	}
	PipeannPageInit(page, kind);
	memcpy(PipeannPagePayload(page), src, length);
	PipeannPageSeal(page, blkno);
	if (wal)
		GenericXLogFinish(state);
	else
		MarkBufferDirty(buffer);
	UnlockReleaseBuffer(buffer);
}

/*
 * Write a stream of length bytes to pages that have their extents; WAL-logged
 * if wal is set.
 */
void
PipeannStreamWrite(Relation index, const PipeannExtentMap *map,
				   PipeannKind kind, uint32 first, const void *src,
				   Size length, bool wal)
{
	const char *in = src;

	for (uint32 ordinal = first; length > 0; ordinal++)
	{
		Size		part = Min(length, (Size) PIPEANN_PAYLOAD);

		WritePage(index, StreamBlock(index, map, kind, ordinal), kind, in,
				  part, wal);
		in += part;
		length -= part;
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Change word number `at` of a stream as part of a WAL record; returns the
 * page's buffer, to be unlocked when the record is finished.
 */
Buffer
PipeannStreamPut(Relation index, const PipeannExtentMap *map,
				 PipeannKind kind, uint32 first, uint32 at, uint32 word,
				 GenericXLogState *state)
{
	uint32		per_page = PIPEANN_PAYLOAD / sizeof(uint32);
	BlockNumber blkno = StreamBlock(index, map, kind, first + at / per_page);
	Buffer		buffer = PipeannReadBuffer(index, blkno, kind,
										   BUFFER_LOCK_EXCLUSIVE, false, NULL);
	Page		page = GenericXLogRegisterBuffer(state, buffer, 0);

	((uint32 *) PipeannPagePayload(page))[at % per_page] = word;
	PipeannPageSeal(page, blkno);
	return buffer;
}
