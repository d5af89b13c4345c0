/*
 * resident.c
 *		Pages that are in shared_buffers, and reads through it.
 *
 * The buffer mapping table is not meant for extensions, but there is no other
 * way to ask whether a block is resident without reading it.
 */
#include "io/ring.h"

#include "executor/instrument.h"
#include "pgstat.h"
#include "storage/buf_internals.h"

#if PG_VERSION_NUM >= 160000
#define SAME_TAG(a, b) BufferTagsEqual(&(a), &(b))
#else
#define SAME_TAG(a, b) BUFFERTAGS_EQUAL(a, b)
#endif

static BufferTag
BlockTag(Relation index, BlockNumber blkno)
{
	BufferTag	tag;

#if PG_VERSION_NUM >= 160000
	InitBufferTag(&tag, &index->rd_locator, MAIN_FORKNUM, blkno);
#else
	INIT_BUFFERTAG(tag, index->rd_node, MAIN_FORKNUM, blkno);
#endif
	return tag;
}

/* The buffer that held the block a moment ago, or InvalidBuffer. */
static Buffer
LookUpBlock(Relation index, BlockNumber blkno)
{
	BufferTag	tag = BlockTag(index, blkno);
	uint32		hash;
	LWLock	   *lock;
	int			id;

	hash = BufTableHashCode(&tag);
	lock = BufMappingPartitionLock(hash);

	LWLockAcquire(lock, LW_SHARED);
	id = BufTableLookup(&tag, hash);
	LWLockRelease(lock);
	return id < 0 ? InvalidBuffer : id + 1;
}

/*
 * ReadRecentBuffer() does not count the use, so pages that only we read would
 * look unused to the clock sweep and be the first to go. Raise the usage count
 * as ReadBuffer() does; losing a race here does no harm.
 */
static void
NoteBufferUse(Buffer buffer)
{
#if PG_VERSION_NUM < 190000
	BufferDesc *desc = GetBufferDescriptor(buffer - 1);
	uint32		state = pg_atomic_read_u32(&desc->state);

	if (!(state & BM_LOCKED) &&
		BUF_STATE_GET_USAGECOUNT(state) < BM_MAX_USAGE_COUNT)
		pg_atomic_compare_exchange_u32(&desc->state, &state,
									   state + BUF_USAGECOUNT_ONE);
#endif
}

static bool
Pin(Relation index, BlockNumber blkno, Buffer buffer)
{
	return buffer != InvalidBuffer &&
		ReadRecentBuffer(PipeannRelationLocator(index), MAIN_FORKNUM, blkno,
						 buffer);
}

/*
 * A block that is found but cannot be pinned was evicted meanwhile, so that the
 * file is as new as the buffer was, or is just being read in.
 */
static bool
PinResident(Relation index, BlockNumber blkno, PipeannResident *resident)
{
	uint32		seen = resident->seen == NULL ? InvalidBuffer :
		pg_atomic_read_u32(resident->seen);

	resident->buffer = (Buffer) (seen & ~PIPEANN_SEEN_SOUND);
	resident->sound = (seen & PIPEANN_SEEN_SOUND) != 0;
	if (Pin(index, blkno, resident->buffer))
		return true;
	resident->buffer = LookUpBlock(index, blkno);
	resident->sound = false;
	if (resident->seen != NULL && (uint32) resident->buffer != seen)
		pg_atomic_write_u32(resident->seen, (uint32) resident->buffer);
	return Pin(index, blkno, resident->buffer);
}

/* Note that a copied block has been verified. */
void
PipeannNoteSound(const PipeannResident *resident)
{
	uint32		seen = (uint32) resident->buffer;

	if (resident->seen != NULL && !resident->sound)
		(void) pg_atomic_compare_exchange_u32(resident->seen, &seen,
											  seen | PIPEANN_SEEN_SOUND);
}

/* Whether a block is in shared_buffers. */
bool
PipeannIsResident(Relation index, BlockNumber blkno)
{
	return LookUpBlock(index, blkno) != InvalidBuffer;
}

/*
 * Copy a block out of shared_buffers if it is there, without verifying it and
 * without I/O. If the buffer where it was seen last still has the block, the
 * mapping table is not asked. With length > 0, and if the block is known to be
 * sound, copies only the page header and length bytes from offset on. Sets the
 * other members of *resident.
 */
bool
PipeannCopyResident(Relation index, BlockNumber blkno,
					PipeannResident *resident, Size offset, Size length,
					char *dst)
{
	Buffer		buffer;
	const char *page;

	if (!PinResident(index, blkno, resident))
		return false;
	buffer = resident->buffer;
	page = BufferGetPage(buffer);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	if (length == 0 || !resident->sound)
		memcpy(dst, page, BLCKSZ);
	else
	{
		memcpy(dst, page, SizeOfPageHeaderData);
		memcpy(dst + offset, page + offset, length);
	}
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	NoteBufferUse(buffer);
	ReleaseBuffer(buffer);
	pgstat_count_buffer_read(index);
	pgstat_count_buffer_hit(index);
	return true;
}

/*
 * Have the processor fetch the bytes that such a copy will read.
 *
 * Only a hint to the processor, so the buffer may hold another block by now.
 */
void
PipeannPrefetchResident(const pg_atomic_uint32 *seen, Size offset, Size length)
{
	Buffer		buffer = (Buffer)
		(pg_atomic_read_u32(unconstify(pg_atomic_uint32 *, seen)) &
		 ~PIPEANN_SEEN_SOUND);
	const char *page;

	if (buffer == InvalidBuffer)
		return;
	page = BufferGetBlock(buffer);
	__builtin_prefetch(GetBufferDescriptor(buffer - 1));
	__builtin_prefetch(page);
	for (Size at = offset; at < offset + length; at += PIPEANN_CACHE_LINE)
		__builtin_prefetch(page + at);
}

/* Copy a block, verified, by ReadBuffer(). True if it was resident. */
bool
PipeannCopyThroughBuffer(Relation index, BlockNumber blkno, char *dst)
{
	int64		reads = pgBufferUsage.shared_blks_read +
		pgBufferUsage.local_blks_read;
	Buffer		buffer;

	buffer = PipeannReadBuffer(index, blkno, PIPEANN_GRAPH,
							   BUFFER_LOCK_SHARE, true, NULL);
	memcpy(dst, BufferGetPage(buffer), BLCKSZ);
	UnlockReleaseBuffer(buffer);
	return reads == pgBufferUsage.shared_blks_read +
		pgBufferUsage.local_blks_read;
}

#if PG_VERSION_NUM < 170000
/*
 * Like InvalidateBuffer() in bufmgr.c, but for clean buffers only, and without
 * waiting.
 */
static void
EvictBuffer(Buffer buffer, const BufferTag *tag)
{
	BufferDesc *desc = GetBufferDescriptor(buffer - 1);
	BufferTag	copy = *tag;
	uint32		hash = BufTableHashCode(&copy);
	LWLock	   *lock = BufMappingPartitionLock(hash);
	uint32		state;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	state = LockBufHdr(desc);
	if (!SAME_TAG(desc->tag, *tag) || BUF_STATE_GET_REFCOUNT(state) != 0 ||
		!(state & BM_VALID) || (state & (BM_DIRTY | BM_IO_IN_PROGRESS)))
	{
		UnlockBufHdr(desc, state);
		LWLockRelease(lock);
		return;
	}
#if PG_VERSION_NUM >= 160000
	ClearBufferTag(&desc->tag);
#else
	CLEAR_BUFFERTAG(desc->tag);
#endif
	state &= ~(BUF_FLAG_MASK | BUF_USAGECOUNT_MASK);
	UnlockBufHdr(desc, state);
	BufTableDelete(&copy, hash);
	LWLockRelease(lock);
	StrategyFreeBuffer(desc);
}
#else
/*
 * If the buffer was taken for another page meanwhile, that page is evicted, and
 * read again when it is needed.
 */
static void
EvictBuffer(Buffer buffer, const BufferTag *tag)
{
	uint32		state =
		pg_atomic_read_u32(&GetBufferDescriptor(buffer - 1)->state);

	(void) tag;
	if (state & BM_DIRTY)
		return;
#if PG_VERSION_NUM >= 180000
	{
		bool		flushed;

		(void) EvictUnpinnedBuffer(buffer, &flushed);
	}
#else
	(void) EvictUnpinnedBuffer(buffer);
#endif
}
#endif

/* Free a block's buffer if it is clean and not pinned. */
void
PipeannEvictResident(Relation index, BlockNumber blkno)
{
	Buffer		buffer = LookUpBlock(index, blkno);
	BufferTag	tag = BlockTag(index, blkno);

	if (buffer != InvalidBuffer)
		EvictBuffer(buffer, &tag);
}
