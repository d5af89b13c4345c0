/*
 * page_source.c
 *		Graph pages for a search, by the read rule.
 *
 * A search must never see a page older than the newest version in
 * shared_buffers: a page that is resident when it is asked for is copied from
 * there, others are read from the file into a frame and verified when they are
 * handed out. A page that does not verify is read again by ReadBuffer(), which
 * either has a good copy of it (we read it while it was written) or reports
 * the error.
 */
#include "io/ring.h"

#include "access/xlog.h"
#include "executor/instrument.h"
#include "io/page_uses.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "storage/buf_internals.h"

/* Pages with fewer recent uses are not brought into shared_buffers. */
#define FEWEST_USES 2

/* Count a use by a search. hit: the page was resident. */
static void
CountUse(PipeannSearchUses *uses, uint32 page, bool hit)
{
	uint8		count;
	int			at;

	if (!uses->counting)
		return;
	count = PipeannPageCountUse(uses->table, page);
	uses->count++;
	if (hit || count < FEWEST_USES)
		return;

	/* pages are sorted by count, largest first */
	at = uses->nwanted;
	if (at < PIPEANN_HOT_PER_SEARCH)
		uses->nwanted++;
	else if (count <= uses->counts[--at])
		return;
	for (; at > 0 && uses->counts[at - 1] < count; at--)
	{
		uses->pages[at] = uses->pages[at - 1];
		uses->counts[at] = uses->counts[at - 1];
	}
	uses->pages[at] = page;
	uses->counts[at] = count;
}

/*
 * Pages that are in shared_buffers, and reads through it.
 *
 * The buffer mapping table is not meant for extensions, but there is no other
 * way to ask whether a block is resident without reading it.
 */

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
	uint32		hash = BufTableHashCode(&tag);
	LWLock	   *lock = BufMappingPartitionLock(hash);
	int			id;

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
static void
NoteSound(const PipeannResident *resident)
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
static bool
CopyResident(Relation index, BlockNumber blkno,
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
static void
PrefetchResident(const pg_atomic_uint32 *seen, Size offset, Size length)
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
static bool
CopyThroughBuffer(Relation index, BlockNumber blkno, char *dst)
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

#define SEGMENT_BLOCKS ((BlockNumber) RELSEG_SIZE)

typedef struct Source
{
	PipeannPageSource source;	/* first: what the search sees */
	Relation	index;
	const PipeannLayout *layout;
	const PipeannExtentMap *map;
	uint32		graph_pages;	/* given out when it was opened; maybe more now */
	PipeannReadOwner owner;
	dlist_head	frames;			/* the frames that the search holds */
	PipeannSearchUses uses;
	bool		closed;
	MemoryContextCallback callback;
} Source;

static void
CountRead(Source *source)
{
	PipeannCounters *counters = source->source.counters;
	uint64		in_flight = source->source.in_flight;

	counters->page_reads++;
	counters->in_flight_sum += in_flight;
	counters->in_flight_peak = Max(counters->in_flight_peak, in_flight);
}

/* Let EXPLAIN (BUFFERS) and the statistics views count our reads as reads. */
static void
ReportBlocksRead(Source *source)
{
	int			blocks = source->layout->node_pages;

	pgBufferUsage.shared_blks_read += blocks;
	for (int i = 0; i < blocks; i++)
		pgstat_count_buffer_read(source->index);
}

/* A block's bit in frame->resident; blocks from the 64th on share the last. */
static inline uint64
BlockBit(int block)
{
	return UINT64CONST(1) << Min(block, 63);
}

static inline pg_atomic_uint32 *
LastSeen(Source *source, uint32 page)
{
	return source->uses.table == NULL ? NULL :
		PipeannPageLastSeen(source->uses.table, page);
}

static inline char *
FrameBlock(PipeannBufferedFrame *frame, int block)
{
	return frame->buffer + (Size) block * BLCKSZ;
}

static PipeannFrame *
MakeReady(Source *source, PipeannBufferedFrame *frame, bool hit)
{
	frame->frame.hit = hit;
	frame->frame.slot = PIPEANN_ALL_SLOTS;
	frame->frame.nodes = PipeannUnpackNode(source->layout, frame->buffer);
	frame->frame.state = PIPEANN_FRAME_READY;
	return &frame->frame;
}

/*
 * A page in shared_buffers was copied under its lock, so it is not torn, and
 * in a cluster with checksums it was verified when it was read in. Elsewhere
 * an error of the disk may be in it, so there it is verified when it is first
 * seen in a buffer; each time would cost too much. Errors are reported of the
 * page itself, not of the copy.
 */
static void
VerifyResident(Source *source, const PipeannResident *resident, char *page,
			   BlockNumber blkno)
{
	if (!resident->sound &&
		!(DataChecksumsEnabled() && PipeannPageIsKind(page, PIPEANN_GRAPH)) &&
		!PipeannPageIsValid(page, blkno, PIPEANN_GRAPH))
	{
		(void) CopyThroughBuffer(source->index, blkno, page);
		source->source.counters->retries++;
		ereport(LOG,
				(errmsg("index \"%s\": the copy of block %u was not sound and was made again",
						RelationGetRelationName(source->index), blkno)));
	}
	NoteSound(resident);
}

/*
 * Copy a block from shared_buffers; of a page that is one block only the given
 * slot, unless the block has to be verified first. A search finds the same in
 * both cases. No lock is held while the block is verified. PostgreSQL's
 * checksum of a page in shared_buffers is not up to date, ours is.
 */
static bool
CopyBlock(Source *source, PipeannBufferedFrame *frame, int block, int slot)
{
	const PipeannLayout *l = source->layout;
	bool		some = slot != PIPEANN_ALL_SLOTS && l->node_pages == 1;
	PipeannResident resident;

	resident.seen = block > 0 ? NULL : LastSeen(source, frame->frame.page);
	if (!CopyResident(source->index, frame->blkno + block, &resident,
					  some ? PIPEANN_CONTENTS_OFFSET +
					  (Size) slot * l->slot_size : 0,
					  some ? l->slot_size : 0,
					  FrameBlock(frame, block)))
		return false;
	VerifyResident(source, &resident, FrameBlock(frame, block),
				   frame->blkno + block);
	frame->frame.slot = some ? slot : PIPEANN_ALL_SLOTS;
	return true;
}

/*
 * Copy a page from shared_buffers. If part of it is missing there, note in the
 * frame which blocks are resident, and return false.
 */
static bool
CopyResidentPage(Source *source, PipeannBufferedFrame *frame, int slot)
{
	int			blocks = source->layout->node_pages;
	int			copied = 0;

	while (copied < blocks && CopyBlock(source, frame, copied, slot))
		copied++;
	if (copied == blocks)
		return true;

	for (int i = 0; i < blocks; i++)
		if (i < copied ||
			(i > copied && PipeannIsResident(source->index, frame->blkno + i)))
			frame->resident |= BlockBit(i);
	return false;
}

static PipeannFrame *
FinishHit(Source *source, PipeannBufferedFrame *frame)
{
	int			slot = frame->frame.slot;

	source->source.counters->page_hits++;
	CountUse(&source->uses, frame->frame.page, true);
	(void) MakeReady(source, frame, true);
	frame->frame.slot = slot;
	return &frame->frame;
}

/*
 * Whether the file ends before a block of a frame, as its page was given out and is
 * not written yet, or never will be if a crash came between. Errors if it was cut off.
 */
static bool
IsUnwritten(const Source *source, const PipeannBufferedFrame *frame, int block)
{
	if (frame->blkno + block < RelationGetNumberOfBlocks(source->index))
		return false;
	(void) PipeannCountGraphPages(source->index, source->layout, source->map,
								  Max(source->graph_pages,
								  frame->frame.page + 1));
	return true;
}

/* Read a block of a frame through shared_buffers; nothing if it is unwritten. */
static bool
ReadBlock(const Source *source, PipeannBufferedFrame *frame, int block)
{
	char	   *page = FrameBlock(frame, block);

	if (!IsUnwritten(source, frame, block))
		return CopyThroughBuffer(source->index, frame->blkno + block, page);
	memset(page, 0, BLCKSZ);
	return true;
}

/* For temporary relations, and if no descriptor is to be had. */
static PipeannFrame *
ReadThroughBuffers(Source *source, PipeannBufferedFrame *frame)
{
	bool		hit = true;

	for (int i = 0; i < source->layout->node_pages; i++)
		hit &= ReadBlock(source, frame, i);
	if (hit)
		source->source.counters->page_hits++;
	else
	{
		source->source.in_flight++;
		CountRead(source);
		source->source.in_flight--;
	}
	return MakeReady(source, frame, hit);
}

/* Queue the read of a frame's blocks. False if there is no descriptor. */
static bool
QueueRead(Source *source, PipeannBufferedFrame *frame)
{
	PipeannRead *read = &frame->read;
	BlockNumber first = frame->blkno % SEGMENT_BLOCKS;

	Assert(first + source->layout->node_pages <= SEGMENT_BLOCKS);
	PipeannReadReserve();
	read->file = PipeannFileOpen(source->index,
								 frame->blkno / SEGMENT_BLOCKS,
								 PipeannRingInUse());
	if (read->file == NULL)
		return false;
	read->owner = &source->owner;
	read->buffer = frame->buffer;
	read->length = source->layout->node_pages * BLCKSZ;
	read->offset = (off_t) first * BLCKSZ;
	PipeannReadQueue(read);
	return true;
}

/* Wait until the source has fewer than below reads in flight. */
static void
WaitForReads(Source *source, int below)
{
	PipeannCounters *counters = source->source.counters;
	instr_time	start;
	instr_time	duration;

	INSTR_TIME_SET_CURRENT(start);
	PipeannReadWait(&source->owner, below);
	INSTR_TIME_SET_CURRENT(duration);
	INSTR_TIME_SUBTRACT(duration, start);
	counters->rounds++;
	counters->wait_us += INSTR_TIME_GET_MICROSEC(duration);
	if (track_io_timing)
	{
#if PG_VERSION_NUM >= 170000
		INSTR_TIME_ADD(pgBufferUsage.shared_blk_read_time, duration);
#else
		INSTR_TIME_ADD(pgBufferUsage.blk_read_time, duration);
#endif
	}
}

/*
 * A read is done: verify its blocks. Blocks that were resident when the page
 * was asked for (the file may have older versions), that do not verify, or
 * that did not come at all, are taken through shared_buffers.
 */
static PipeannFrame *
FinishRead(Source *source, PipeannBufferedFrame *frame)
{
	PipeannRead *read = &frame->read;
	bool		complete = read->result == read->length;
	bool		retry = false;

	read->state = PIPEANN_READ_IDLE;
	if (read->direct && read->result == -EINVAL)
		PipeannFileDirectRefused();
	if (read->lost)
		PipeannFrameReplaceBuffer(frame);

	for (int i = 0; i < source->layout->node_pages; i++)
	{
		bool		resident = (frame->resident & BlockBit(i)) != 0;

		if (complete && !resident &&
			PipeannPageIsValid(FrameBlock(frame, i), frame->blkno + i,
							   PIPEANN_GRAPH))
			continue;
		retry |= !resident;
		(void) ReadBlock(source, frame, i);
	}
	if (retry)
		source->source.counters->retries++;
	ReportBlocksRead(source);
	return MakeReady(source, frame, false);
}

static PipeannBufferedFrame *
NewFrame(Source *source, uint32 page)
{
	BlockNumber blkno = PipeannGraphBlock(source->map, source->layout, page);
	PipeannBufferedFrame *frame;

	if (blkno == InvalidBlockNumber)
		ereport(ERROR,
				(errcode(ERRCODE_INDEX_CORRUPTED),
				 errmsg("index \"%s\" has no graph page %u",
						RelationGetRelationName(source->index), page)));
	frame = PipeannFrameAlloc(source->layout->node_pages);
	dlist_push_tail(&source->frames, &frame->node);
	frame->blkno = blkno;
	frame->frame.page = page;
	frame->frame.user = NULL;
	return frame;
}

/* Release a frame; one that the kernel still reads into becomes an orphan. */
static void
DropFrame(PipeannBufferedFrame *frame)
{
	dlist_delete(&frame->node);
	if (PipeannReadCancel(&frame->read))
		PipeannFrameFree(frame);
}

static PipeannFrame *
SourceRequest(PipeannPageSource *self, uint32 page, int slot)
{
	Source	   *source = (Source *) self;
	PipeannBufferedFrame *frame = NewFrame(source, page);
	int			most = Max(self->max_in_flight, 1);

	if (RelationUsesLocalBuffers(source->index))
		return ReadThroughBuffers(source, frame);
	if (CopyResidentPage(source, frame, slot))
		return FinishHit(source, frame);
	if (self->in_flight >= most)
		WaitForReads(source, most);
	if (!QueueRead(source, frame))
		return ReadThroughBuffers(source, frame);
	CountRead(source);
	CountUse(&source->uses, page, false);
	frame->frame.hit = false;
	frame->frame.nodes = NULL;
	frame->frame.state = PIPEANN_FRAME_IN_FLIGHT;
	return &frame->frame;
}

/* Uses where the page was seen last: a look-up takes longer than this saves. */
static void
SourcePrefetch(PipeannPageSource *self, uint32 page, int slot)
{
	Source	   *source = (Source *) self;
	const PipeannLayout *l = source->layout;
	const pg_atomic_uint32 *seen = LastSeen(source, page);

	if (seen != NULL && slot != PIPEANN_ALL_SLOTS && l->node_pages == 1)
		PrefetchResident(seen, PIPEANN_CONTENTS_OFFSET +
						 (Size) slot * l->slot_size, l->slot_size);
}

/*
 * Unless it has to be sure, a page that no search has seen in shared_buffers is
 * not looked up: a search of an index on disk asks for hundreds of pages in this
 * way. Before a read of the page it is looked up in any case.
 */
static PipeannFrame *
SourceRequestResident(PipeannPageSource *self, uint32 page, int slot, bool sure)
{
	Source	   *source = (Source *) self;
	pg_atomic_uint32 *seen = LastSeen(source, page);
	PipeannBufferedFrame *frame;

	if (!sure && seen != NULL && pg_atomic_read_u32(seen) == InvalidBuffer)
		return NULL;
	frame = NewFrame(source, page);
	if (RelationUsesLocalBuffers(source->index))
		return ReadThroughBuffers(source, frame);
	if (CopyResidentPage(source, frame, slot))
		return FinishHit(source, frame);
	DropFrame(frame);
	return NULL;
}

/* Another slot of a page that was resident a moment ago. */
static void
SourceLoad(PipeannPageSource *self, PipeannFrame *self_frame, int slot)
{
	Source	   *source = (Source *) self;
	PipeannBufferedFrame *frame = (PipeannBufferedFrame *) self_frame;

	if (!CopyBlock(source, frame, 0, slot))
	{
		(void) CopyThroughBuffer(source->index, frame->blkno,
								 frame->buffer);
		frame->frame.slot = PIPEANN_ALL_SLOTS;
	}
}

static void
SourceSubmit(PipeannPageSource *self)
{
	(void) self;
	PipeannReadSubmit();
}

static PipeannFrame *
SourceNext(PipeannPageSource *self, bool wait)
{
	Source	   *source = (Source *) self;
	PipeannRead *read;

	PipeannReadPoll();
	if (wait && dlist_is_empty(&source->owner.done) && self->in_flight > 0)
		WaitForReads(source, self->in_flight);
	else
		PipeannReadSubmit();

	if (dlist_is_empty(&source->owner.done))
		return NULL;
	read = dlist_container(PipeannRead, node,
						   dlist_pop_head_node(&source->owner.done));
	return FinishRead(source, PipeannReadFrame(read));
}

static void
SourceRelease(PipeannPageSource *self, PipeannFrame *frame)
{
	(void) self;
	DropFrame((PipeannBufferedFrame *) frame);
}

/* May run while a transaction aborts: no error, no allocation. */
static void
CloseSource(void *arg)
{
	Source	   *source = arg;

	if (source->closed)
		return;
	source->closed = true;
	while (!dlist_is_empty(&source->frames))
		DropFrame(dlist_head_element(PipeannBufferedFrame, node,
									 &source->frames));
	PipeannFrameTrim();
}

/*
 * Open a page source over an index's graph pages, of which graph_pages were given out
 * at least. layout and map must outlive it. It lives in CurrentMemoryContext and is closed when that is reset or
 * deleted (error, cancel): reads in flight become orphans, frames go back to
 * the backend's free ones.
 */
PipeannPageSource *
PipeannSourceOpen(Relation index, const PipeannLayout *layout,
				  const PipeannExtentMap *map, uint32 graph_pages,
				  PipeannCounters *counters)
{
	Source	   *source = palloc0(sizeof(Source));

	source->source.request = SourceRequest;
	source->source.request_resident = SourceRequestResident;
	source->source.prefetch = SourcePrefetch;
	source->source.load = SourceLoad;
	source->source.submit = SourceSubmit;
	source->source.next = SourceNext;
	source->source.release = SourceRelease;
	source->source.max_in_flight = PIPEANN_MAX_IN_FLIGHT;
	source->source.counters = counters;
	source->index = index;
	source->layout = layout;
	source->map = map;
	source->graph_pages = graph_pages;
	dlist_init(&source->owner.done);
	source->owner.in_flight = &source->source.in_flight;
	dlist_init(&source->frames);
	source->callback.func = CloseSource;
	source->callback.arg = source;
	MemoryContextRegisterResetCallback(CurrentMemoryContext,
									   &source->callback);
	return &source->source;
}

/*
 * The memory stays until its context goes, as the callback cannot be
 * unregistered.
 */
void
PipeannSourceClose(PipeannPageSource *source)
{
	CloseSource(source);
}

/*
 * The uses of pages by the source's search. A table that the caller sets there
 * must outlive the source.
 */
PipeannSearchUses *
PipeannSourceUses(PipeannPageSource *source)
{
	return &((Source *) source)->uses;
}
