/*
 * extent.c
 *		The extent map, and growing the file; streams of pages.
 */
#include "storage/storage.h"

#include "access/xloginsert.h"
#include "base/pause.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/snapmgr.h"
#include "utils/rel.h"

#define ENTRIES_PER_MAP_EXTENT (PIPEANN_EXTENT_USABLE * PIPEANN_MAP_PER_PAGE)

/* The file grows by so many blocks at a time; who else wants a block may come between. */
#define BLOCKS_AT_A_TIME 16

/* Extents that are added by one update of the metapage, where many are. */
#define EXTENTS_AT_A_TIME 64

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
 * Make a block an empty graph page and WAL-log it; not inside updates of other
 * pages than the metapage.
 */
void
PipeannEmptyBlock(Relation index, BlockNumber blkno)
{
	Buffer		buffer = ReadBufferExtended(index, MAIN_FORKNUM, blkno,
											RBM_ZERO_AND_LOCK, NULL);
	Page		page = BufferGetPage(buffer);

	START_CRIT_SECTION();
	PipeannPageInit(page, PIPEANN_GRAPH);
	PipeannPageFill(page, 0, true);
	PipeannPageSeal(page, blkno);
	MarkBufferDirty(buffer);
	if (RelationNeedsWAL(index))
		log_newpage_buffer(buffer, true);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
}

/*
 * Whether an extent of a former packing may be used again (src/README, packings).
 * Such extents have entries in the metapage.
 */
static bool
HasReusable(const PipeannMeta *meta)
{
	return meta->kind_extents[PIPEANN_FREE] > 0 &&
		meta->extents <= PIPEANN_MAP_INLINE &&
		meta->reusable == meta->packings;
}

static void
NoteReusable(PipeannMeta *meta)
{
	FullTransactionId since = FullTransactionIdFromU64(meta->free_xid);

	if (meta->kind_extents[PIPEANN_FREE] > 0 &&
		meta->reusable != meta->packings &&
		GlobalVisCheckRemovableFullXid(NULL, since))
		meta->reusable = meta->packings;
}

/* The extent to use again next. */
static uint32
NextReusable(Relation index, const PipeannMeta *meta)
{
	uint32		ordinal = meta->kind_extents[PIPEANN_FREE] - 1;
	uint32		extent = 0;

	while (extent < meta->extents &&
		   meta->map[extent] != PIPEANN_EXTENT_ENTRY(PIPEANN_FREE, ordinal))
		extent++;
	if (extent == meta->extents)
		MapError(index, extent);
	return extent;
}

/* Whether an extent has only empty pages. */
static bool
IsEmpty(Relation index, uint32 extent)
{
	BlockNumber first = extent * PIPEANN_EXTENT_BLOCKS;
	BlockNumber end = Min(first + PIPEANN_EXTENT_BLOCKS,
						  RelationGetNumberOfBlocks(index));
	bool		empty = true;

	for (BlockNumber blkno = first + 1; blkno < end && empty; blkno++)
	{
		Buffer		buffer = PipeannReadBuffer(index, blkno, PIPEANN_GRAPH,
											   BUFFER_LOCK_SHARE, true, NULL);
		Page		page = BufferGetPage(buffer);

		empty = PageIsNew(page) ||
			((PageHeader) page)->pd_lower == PIPEANN_CONTENTS_OFFSET;
		UnlockReleaseBuffer(buffer);
	}
	return empty;
}

/*
 * Empty the extent that PipeannExtentAdd() would use again, if any. The holder
 * of PIPEANN_EXTENT_LOCK does so before it locks the metapage, since that is
 * read by everybody and this writes many pages.
 */
void
PipeannExtentEmptyNext(Relation index)
{
	PipeannMeta *meta = palloc(sizeof(PipeannMeta));

	PipeannMetaRead(index, meta);
	if (HasReusable(meta))
	{
		BlockNumber first = NextReusable(index, meta) * PIPEANN_EXTENT_BLOCKS;
		BlockNumber end = Min(first + PIPEANN_EXTENT_BLOCKS,
							  RelationGetNumberOfBlocks(index));

		for (BlockNumber blkno = first + 1; blkno < end; blkno++)
		{
			CHECK_FOR_INTERRUPTS();
			PIPEANN_PAUSE("extent-emptied");
			PipeannEmptyBlock(index, blkno);
		}
	}
	pfree(meta);
}

/*
 * A new packing writes all pages before the metapage names it, so it may
 * overwrite anything; inserts may get emptied extents only.
 */
static bool
MayReuse(Relation index, PipeannMeta *meta, PipeannKind kind)
{
	if (kind != PIPEANN_GRAPH && kind != PIPEANN_NEXT_GRAPH)
		return false;
	if (HasReusable(meta))
		return kind == PIPEANN_NEXT_GRAPH ||
			IsEmpty(index, NextReusable(index, meta));
	NoteReusable(meta);
	return false;
}

/*
 * Give an extent to a kind, inside a metapage update. It is a new one or, for
 * graph pages, one of a former packing that no scan can be in any more. For
 * these the caller holds PIPEANN_EXTENT_LOCK. The file grows when the
 * pages are first asked for (but see PipeannExtentsReserve()). Errors if the map is full (32 TB).
 */
void
PipeannExtentAdd(Relation index, PipeannMeta *meta, PipeannKind kind)
{
	if (MayReuse(index, meta, kind))
	{
		uint32		extent = NextReusable(index, meta);

		meta->kind_extents[PIPEANN_FREE]--;
		meta->map[extent] = PIPEANN_EXTENT_ENTRY(kind, meta->kind_extents[kind]);
		meta->kind_extents[kind]++;
		return;
	}
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
 * Have a kind get as many extents as it is to have, by updates of its own, for who wants
 * many beside inserts. The blocks are in the file before the extents are named: an insert
 * that gets the next extent would have to write all of them first.
 */
void
PipeannExtentsReserve(Relation index, PipeannKind kind, uint64 count)
{
	PipeannMeta *meta = palloc(sizeof(PipeannMeta));
	PipeannMetaUpdate update;

	for (PipeannMetaRead(index, meta); meta->kind_extents[kind] < count;
		 PipeannMetaRead(index, meta))
	{
		uint32		n = Min(count - meta->kind_extents[kind], EXTENTS_AT_A_TIME);
		uint32		reused = kind == PIPEANN_NEXT_GRAPH && HasReusable(meta) ?
			Min(n, meta->kind_extents[PIPEANN_FREE]) : 0;

		ExtendFile(index, (meta->extents + n - reused) * PIPEANN_EXTENT_BLOCKS);
		PIPEANN_PAUSE("file-extended");
		LockPage(index, PIPEANN_EXTENT_LOCK, ExclusiveLock);
		PipeannMetaBegin(index, &update);
		for (uint32 i = 0; i < n && update.meta->kind_extents[kind] < count; i++)
			PipeannExtentAdd(index, update.meta, kind);
		PipeannMetaEnd(&update);
		UnlockPage(index, PIPEANN_EXTENT_LOCK, ExclusiveLock);
	}
	pfree(meta);
}

/*
 * The number of graph pages that exist in the file now: at most graph_pages,
 * the number in the metapage. For sequential passes. Errors if pages are
 * missing.
 *
 * Extents are filled in order, but may be in any order in the file.
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

/* ---------- moving extents from kind to kind, all at once ---------- */

/* Where the new map's pages go: extents of kind MAP that the present map is not in. */
static void
FindSpare(Relation index, const PipeannMeta *meta, const PipeannExtentMap *map,
		  uint32 *spare)
{
	uint32		used = PipeannMapExtents(meta);
	uint32		n = used;

	for (uint32 i = map->count[PIPEANN_MAP]; n > 0; i--)
	{
		uint32		extent = i > 0 ? map->extents[PIPEANN_MAP][i - 1] : 0;
		bool		in_use = false;

		if (i == 0)
			MapError(index, meta->extents);
		for (uint32 j = 0; j < used; j++)
			in_use |= meta->map_extents[j] == extent;
		if (!in_use)
			spare[--n] = extent;
	}
}

/*
 * Give PipeannExtentsPut() room for another map, behind so many extents of its kind that
 * a former one may be in, or was written to in vain.
 */
void
PipeannExtentsReserveMap(Relation index, uint32 unusable)
{
	PipeannMeta *meta = palloc(sizeof(PipeannMeta));

	/* its entries may need one more */
	for (PipeannMetaRead(index, meta);
		 meta->kind_extents[PIPEANN_MAP] < unusable + 2 * PipeannMapExtents(meta);
		 PipeannMetaRead(index, meta))
		PipeannExtentsReserve(index, PIPEANN_MAP, unusable + 2 * PipeannMapExtents(meta));
	pfree(meta);
}

/*
 * Make room for what PipeannExtentsMove() writes, before inserts are kept out. It is of kind
 * MAP before anything is written there, and stays it: if that fails the next one uses it, and
 * so it does with the former map, when no scan can be reading that. Returns the number of
 * extents that are not for this, to be handed to PipeannExtentsMove().
 */
uint32
PipeannExtentsMoveSoon(Relation index)
{
	PipeannMeta *meta = palloc(sizeof(PipeannMeta));
	uint32		unusable;

	PipeannMetaRead(index, meta);
	unusable = meta->reusable == meta->packings ? 0 :
		meta->kind_extents[PIPEANN_MAP] - PipeannMapExtents(meta);
	pfree(meta);
	PipeannExtentsReserveMap(index, unusable);
	return unusable;
}

/*
 * Have *meta, a copy of the metapage, say that the map is this one, of as many extents.
 * Entries that are not in the metapage are written to another map, as the present one may
 * be being read.
 */
void
PipeannExtentsPut(Relation index, const PipeannExtentMap *map, PipeannMeta *meta)
{
	uint32	   *entries = PipeannArray(uint32, meta->extents + PIPEANN_MAP_PER_PAGE);
	uint32		spare[PIPEANN_MAP_EXTENTS];

	memset(entries, 0, mul_size(meta->extents + PIPEANN_MAP_PER_PAGE, sizeof(uint32)));
	for (int kind = 0; kind < PIPEANN_NUM_KINDS; kind++)
		for (uint32 i = 0; i < map->count[kind]; i++)
			entries[map->extents[kind][i]] = PIPEANN_EXTENT_ENTRY(kind, i);
	FindSpare(index, meta, map, spare);
	memcpy(meta->kind_extents, map->count, sizeof(meta->kind_extents));
	memcpy(meta->map_extents, spare, PipeannMapExtents(meta) * sizeof(uint32));
	memcpy(meta->map, entries, Min(meta->extents, PIPEANN_MAP_INLINE) * sizeof(uint32));
	for (uint32 i = PIPEANN_MAP_INLINE; i < meta->extents; i += PIPEANN_MAP_PER_PAGE)
	{
		uint32		position;

		WritePage(index, MapEntryBlock(meta, i, &position), PIPEANN_MAP,
				  (const char *) (entries + i), PIPEANN_PAYLOAD, true);
		PIPEANN_PAUSE("map-page-written");
	}
	pfree(entries);
}

/*
 * Have the extents of each kind become those of another, once PipeannExtentsMoved() has
 * put what this writes to *meta into the metapage. Until then no extent is added.
 */
void
PipeannExtentsMove(Relation index, const PipeannKind *to, uint32 unusable,
				   PipeannMeta *meta)
{
	PipeannExtentMap map;
	PipeannExtentMap moved;

	PipeannExtentsReserveMap(index, unusable);
	PipeannMetaRead(index, meta);
	PipeannExtentMapLoad(index, meta, CurrentMemoryContext, &map);
	for (int kind = 0; kind < PIPEANN_NUM_KINDS; kind++)
	{
		moved.count[kind] = 0;
		moved.extents[kind] = PipeannArray(uint32, meta->extents);
	}
	/* what moves comes behind what stays, and keeps its order */
	for (int moves = 0; moves < 2; moves++)
		for (int kind = 0; kind < PIPEANN_NUM_KINDS; kind++)
			for (uint32 i = 0; (to[kind] != (PipeannKind) kind) == moves &&
				 i < map.count[kind]; i++)
				moved.extents[to[kind]][moved.count[to[kind]]++] =
					map.extents[kind][i];
	PipeannExtentsPut(index, &moved, meta);
	PipeannExtentMapFree(&moved);
	PipeannExtentMapFree(&map);
}

/* See PipeannExtentsMove(); inside a metapage update. */
void
PipeannExtentsMoved(PipeannMeta *meta, const PipeannMeta *moved)
{
	if (meta->extents != moved->extents)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("an extent was added while others were moved")));
	memcpy(meta->kind_extents, moved->kind_extents, sizeof(meta->kind_extents));
	memcpy(meta->map_extents, moved->map_extents, sizeof(meta->map_extents));
	memcpy(meta->map, moved->map, sizeof(meta->map));
}

/*
 * Whether a new packing is to use all extents of former ones, inside a metapage update:
 * if no scan can be in them any more, and the map is too large for PipeannExtentAdd() to
 * give them out.
 */
bool
PipeannExtentsReuse(PipeannMeta *meta)
{
	NoteReusable(meta);
	return meta->extents > PIPEANN_MAP_INLINE &&
		meta->kind_extents[PIPEANN_FREE] > 0 && meta->reusable == meta->packings;
}
