/*
 * shrink.c
 *		Giving back the end of the file: extents there are copied to others that nobody
 *		needs, and the file is cut. src/README, "storage/: giving back".
 */
#include "storage/storage.h"

#include "base/pause.h"
#include "catalog/storage.h"
#include "commands/vacuum.h"
#include "miscadmin.h"
#include "storage/freespace.h"
#include "storage/indexfsm.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

/* Not done for less than one extent in so many. */
#define WORTH 32

/* The index is nobody else's for about so many ms at a time. */
#define TURN_MS 25

/* As VACUUM does for a table: the lock is tried for so many ms, once in so many. */
#define LOCK_TIMEOUT_MS 5000
#define LOCK_PAUSE_MS 50

/* Extents that are read before the lock is taken, as far as shared_buffers holds them. */
#define MOST_READ_BEFORE 32

typedef struct Shrinking
{
	Relation	index;
	PipeannMeta meta;
	PipeannExtentMap map;
	uint32	   *entries;		/* [meta.extents] of the map */
	BlockNumber blocks;			/* of the file */
	uint32		low;			/* no extent below this is free */
	uint32		high;			/* none from this on can be moved */
	uint32		moves;
} Shrinking;

/*
 * How many extents of a kind are needed while nobody makes another packing or generation:
 * the first ones.
 */
static uint32
Needed(const PipeannMeta *meta, uint32 kind)
{
	uint32		all = meta->kind_extents[kind];

	if (kind == PIPEANN_FREE || kind == PIPEANN_NEXT_GRAPH ||
		kind == (uint32) PipeannCodesKind(meta->generation + 1))
		return 0;
	/* one stays, so that the file is never without an extent */
	if (kind == PIPEANN_GRAPH)
		return Min(all, PipeannExtentsOf(Max(meta->graph_pages, 1),
										 PipeannGraphPagesPerExtent(&meta->layout)));
	return all;
}

/* Who wanted extents and had no room for all of them may have left blocks of none. */
static bool
IsWorthIt(Relation index, const PipeannMeta *meta)
{
	uint32		whole = RelationGetNumberOfBlocks(index) / PIPEANN_EXTENT_BLOCKS;
	uint32		unused = whole - Min(whole, meta->extents);

	for (uint32 kind = 0; kind < PIPEANN_NUM_KINDS; kind++)
		unused += meta->kind_extents[kind] - Needed(meta, kind);
	return unused > meta->extents / WORTH;
}

/* Whether VACUUM is to give back the end of the table, and so this, by its storage parameter. */
static bool
MayTruncate(Relation heap)
{
	const StdRdOptions *options = (const StdRdOptions *) heap->rd_options;

#if PG_VERSION_NUM >= 180000
	if (options == NULL || !options->vacuum_truncate_set)
		return vacuum_truncate;
#endif
	return options == NULL || options->vacuum_truncate;
}

/* Whether PipeannShrink() has something to do. */
bool
PipeannCanShrink(Relation heap, Relation index)
{
	PipeannMeta meta;

	if (!MayTruncate(heap))
		return false;
	PipeannMetaRead(index, &meta);
	return IsWorthIt(index, &meta);
}

/* Have all extents that nobody needs in the entries as free ones. */
static void
Begin(Shrinking *s, Relation index)
{
	s->index = index;
	PipeannMetaRead(index, &s->meta);
	PipeannExtentMapLoad(index, &s->meta, CurrentMemoryContext, &s->map);
	s->entries = PipeannArray(uint32, s->meta.extents);
	for (uint32 kind = 0; kind < PIPEANN_NUM_KINDS; kind++)
	{
		uint32		needed = Needed(&s->meta, kind);

		for (uint32 i = 0; i < s->map.count[kind]; i++)
			s->entries[s->map.extents[kind][i]] =
				PIPEANN_EXTENT_ENTRY(i < needed ? kind : PIPEANN_FREE, i);
		s->map.count[kind] = needed;
	}
	s->blocks = RelationGetNumberOfBlocks(index);
	s->low = 0;
	s->high = s->meta.extents;
	s->moves = 0;
}

static bool
IsFree(const Shrinking *s, uint32 extent)
{
	return PIPEANN_ENTRY_KIND(s->entries[extent]) == PIPEANN_FREE;
}

/* The present map stays where it is until there is another, which the next turn finds. */
static bool
IsMovable(const Shrinking *s, uint32 extent)
{
	if (IsFree(s, extent))
		return false;
	for (uint32 i = 0; i < PipeannMapExtents(&s->meta); i++)
		if (s->meta.map_extents[i] == extent)
			return false;
	return true;
}

/* The next extent to be moved, and where: from s->high to s->low. False if there is none. */
static bool
NextMove(Shrinking *s)
{
	while (s->low < s->meta.extents && !IsFree(s, s->low))
		s->low++;
	while (s->high > s->low + 1)
		if (IsMovable(s, --s->high))
			return true;
	return false;
}

/* Pages are read before the lock is taken. */
static void
ReadBefore(Relation index)
{
	Shrinking  *s = palloc(sizeof(Shrinking));
	int			n = Min(MOST_READ_BEFORE, NBuffers / 4 / (int) PIPEANN_EXTENT_BLOCKS);

	Begin(s, index);
	for (; n > 0 && NextMove(s); n--)
	{
		BlockNumber first = s->high * PIPEANN_EXTENT_BLOCKS;

		for (uint32 i = 1; i < PIPEANN_EXTENT_BLOCKS && first + i < s->blocks; i++)
		{
			CHECK_FOR_INTERRUPTS();
			ReleaseBuffer(ReadBuffer(index, first + i));
		}
		s->entries[s->low] = s->entries[s->high];
	}
	PipeannExtentMapFree(&s->map);
	pfree(s->entries);
	pfree(s);
}

/*
 * Copy a block; one that is not there, or was never written, is zeroes, and one that is
 * not sound stays so.
 */
static void
CopyBlock(Shrinking *s, BlockNumber from, BlockNumber to)
{
	Relation	index = s->index;
	PGAlignedBlock copy = {{0}};
	Buffer		buffer;

	if (from < s->blocks)
	{
		buffer = ReadBuffer(index, from);
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		memcpy(copy.data, BufferGetPage(buffer), BLCKSZ);
		UnlockReleaseBuffer(buffer);
	}
	if (PipeannPageIsSound(copy.data, from))
		PipeannPageSeal((Page) copy.data, to);
	buffer = ReadBufferExtended(index, MAIN_FORKNUM, to, RBM_ZERO_AND_LOCK, NULL);
	START_CRIT_SECTION();
	memcpy(BufferGetPage(buffer), copy.data, BLCKSZ);
	MarkBufferDirty(buffer);
	if (RelationNeedsWAL(index))
		log_newpage_buffer(buffer, true);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buffer);
	RecordPageWithFreeSpace(index, to, GetRecordedFreeSpace(index, from));
}

static void
Move(Shrinking *s)
{
	uint32		entry = s->entries[s->high];
	BlockNumber from = s->high * PIPEANN_EXTENT_BLOCKS;
	BlockNumber to = s->low * PIPEANN_EXTENT_BLOCKS;

	for (BlockNumber i = 1; i < PIPEANN_EXTENT_BLOCKS && to + i < s->blocks; i++)
	{
		CHECK_FOR_INTERRUPTS();
		CopyBlock(s, from + i, to + i);
	}
	s->map.extents[PIPEANN_ENTRY_KIND(entry)][PIPEANN_ENTRY_ORDINAL(entry)] = s->low;
	s->entries[s->low] = entry;
	s->entries[s->high] = PIPEANN_EXTENT_ENTRY(PIPEANN_FREE, 0);
	s->moves++;
}

/*
 * Number the free extents, those beyond the end that the file will have last. Of the
 * others the index grows into the first ones first (NextReusable()).
 */
static uint32
NumberFree(Shrinking *s)
{
	uint32	   *free_extents = PipeannArray(uint32, s->meta.extents);
	uint32		end = s->meta.extents;
	uint32		n = 0;

	while (end > 1 && IsFree(s, end - 1))
		end--;
	for (uint32 i = end; i > 0; i--)
		if (IsFree(s, i - 1))
			free_extents[n++] = i - 1;
	for (uint32 i = end; i < s->meta.extents; i++)
		free_extents[n++] = i;
	pfree(s->map.extents[PIPEANN_FREE]);
	s->map.extents[PIPEANN_FREE] = free_extents;
	s->map.count[PIPEANN_FREE] = n;
	return end;
}

/* Name the extents where they are now. */
static void
PutMap(Shrinking *s)
{
	PipeannMetaUpdate update;

	PipeannExtentsPut(s->index, &s->map, &s->meta);
	PipeannMetaBegin(s->index, &update);
	PipeannExtentsMoved(update.meta, &s->meta);
	update.meta->moves++;
	PipeannMetaEnd(&update);
	/* before the file is cut, lest a crash keeps that and not this */
	if (RelationNeedsWAL(s->index))
		XLogFlush(XactLastRecEnd);
}

/* Cut the file, and only then forget its last extents: so nobody gets one with contents. */
static void
Cut(Shrinking *s, uint32 end)
{
	PipeannMetaUpdate update;

	if (s->blocks > end * PIPEANN_EXTENT_BLOCKS)
	{
		/* only where there is a free space map all versions flush the record first */
		RecordPageWithFreeSpace(s->index, end * PIPEANN_EXTENT_BLOCKS, 0);
		RelationTruncate(s->index, end * PIPEANN_EXTENT_BLOCKS);
	}
	PIPEANN_PAUSE("shrink-cut");
	PipeannMetaBegin(s->index, &update);
	update.meta->kind_extents[PIPEANN_FREE] -= s->meta.extents - end;
	update.meta->extents = end;
	PipeannMetaEnd(&update);
}

/*
 * Before anything is copied to extents that are not needed they are FREE in the map, too: if
 * it ends then, those of codes or of the graph would have pages of others, for who grows into
 * them.
 */
static void
NameFree(Shrinking *s)
{
	bool		all_named = true;

	for (int kind = 0; kind < PIPEANN_NUM_KINDS; kind++)
		all_named &= kind == PIPEANN_FREE ||
			s->map.count[kind] == s->meta.kind_extents[kind];
	if (all_named)
		return;
	(void) NumberFree(s);
	PutMap(s);
}

/* False if nothing was to be moved or cut. */
static bool
Turn(Relation index)
{
	Shrinking  *s = palloc(sizeof(Shrinking));
	TimestampTz until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), TURN_MS);
	uint32		end;
	bool		cut;

	PipeannExtentsReserveMap(index, 0);
	Begin(s, index);
	NameFree(s);
	while (NextMove(s))
	{
		Move(s);
		if (GetCurrentTimestamp() >= until)
			break;
	}
	PIPEANN_PAUSE("shrink-copied");
	end = NumberFree(s);
	cut = end < s->meta.extents || s->blocks > end * PIPEANN_EXTENT_BLOCKS;
	if (s->moves > 0 || cut)
	{
		PutMap(s);
		PIPEANN_PAUSE("shrink-moved");
		if (cut)
			Cut(s, end);
	}
	return s->moves > 0;
}

/* Have the index to ourselves, if nobody else has it or waits for it for long. */
static bool
LockAlone(Relation index)
{
	for (int ms = 0; ms < LOCK_TIMEOUT_MS; ms += LOCK_PAUSE_MS)
	{
		CHECK_FOR_INTERRUPTS();
		if (ConditionalLockRelation(index, AccessExclusiveLock))
			return true;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 LOCK_PAUSE_MS, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
	return false;
}

/*
 * Move extents from the end of the file for a moment, and give back what is free there.
 * Returns whether to go on. The caller has the index open and locked, but not so that
 * others may not read it, uses nothing that he has read of it before, and is not in
 * parallel mode.
 */
bool
PipeannShrink(Relation heap, Relation index)
{
	MemoryContext context;
	MemoryContext former;
	bool		moved;

	if (!PipeannCanShrink(heap, index))
		return false;
	context = AllocSetContextCreate(CurrentMemoryContext, "pipeann shrink",
									ALLOCSET_DEFAULT_SIZES);
	former = MemoryContextSwitchTo(context);
	ReadBefore(index);
	moved = LockAlone(index);
	if (moved)
	{
		PIPEANN_PAUSE("shrink-locked");
		moved = Turn(index);
		UnlockRelation(index, AccessExclusiveLock);
		IndexFreeSpaceMapVacuum(index);
		PIPEANN_PAUSE("shrink-turn");
	}
	MemoryContextSwitchTo(former);
	MemoryContextDelete(context);
	return moved;
}
