/*
 * page_source.c
 *		Graph pages for a search, by the read rule; the backend's frames; and
 *		measuring how long a read of a block takes.
 *
 * src/README, "io/: the read rule", says what is read where, and why that is enough.
 */
#include "io/ring.h"

#include "access/xlog.h"
#include "common/pg_prng.h"
#include "executor/instrument.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "storage/buf_internals.h"

/*
 * Frames and their buffers, kept by the backend across scans.
 *
 * Buffers come in slabs: one allocation, aligned for O_DIRECT, for frames of
 * one size. A slab is freed when all its frames are free and there are more
 * than KEEP_BYTES of free frames; but never one that the kernel may still
 * write to.
 */

#define BUFFER_ALIGN 4096
#define SLAB_BYTES (512 * 1024)
#define MIN_SLAB_FRAMES 4
#define KEEP_BYTES (4 * SLAB_BYTES)

/* A frame with its buffer of node_pages blocks. */
typedef struct BufferedFrame
{
	PipeannFrame frame;			/* first: what the search sees */
	PipeannRead read;
	dlist_node	node;			/* of its source's frames, or of free ones */
	struct Slab *slab;
	char	   *buffer;
	BlockNumber blkno;
	uint64		resident;		/* bits of the blocks to take from shared_buffers */
} BufferedFrame;

typedef struct Slab
{
	dlist_node	node;			/* of the set's slabs */
	struct FrameSet *set;
	int			nframes;
	int			nfree;
	bool		leaked;			/* never to be freed */
	BufferedFrame frames[FLEXIBLE_ARRAY_MEMBER];
} Slab;

/* The frames of one size. */
typedef struct FrameSet
{
	struct FrameSet *next;
	int			node_pages;
	Size		frame_size;
	dlist_head	slabs;
	dlist_head	free;			/* last freed first, as it may be in a CPU cache */
} FrameSet;

static MemoryContext frame_context = NULL;
static FrameSet *sets = NULL;
static Size free_bytes = 0;

static FrameSet *
GetSet(int node_pages)
{
	FrameSet   *set;

	for (set = sets; set != NULL; set = set->next)
		if (set->node_pages == node_pages)
			return set;

	if (frame_context == NULL)
		frame_context = AllocSetContextCreate(TopMemoryContext,
											  "pipeann frames",
											  ALLOCSET_DEFAULT_SIZES);
	set = MemoryContextAllocZero(frame_context, sizeof(FrameSet));
	set->node_pages = node_pages;
	set->frame_size = TYPEALIGN(BUFFER_ALIGN,
								mul_size(node_pages, BLCKSZ));
	dlist_init(&set->slabs);
	dlist_init(&set->free);
	set->next = sets;
	sets = set;
	return set;
}

/* Give back a frame. May run while a transaction aborts: no error, no allocation. */
static void
FreeFrame(BufferedFrame *frame)
{
	Slab	   *slab = frame->slab;

	frame->frame.state = PIPEANN_FRAME_FREE;
	if (frame->read.lost)
	{
		/* the kernel may write to the buffer at any time */
		slab->leaked = true;
		return;
	}
	slab->nfree++;
	free_bytes += slab->set->frame_size;
	dlist_push_head(&slab->set->free, &frame->node);
}

/* The frame that contains a read. */
static inline BufferedFrame *
FrameOf(PipeannRead *read)
{
	return (BufferedFrame *) ((char *) read - offsetof(BufferedFrame, read));
}

/* Free the frames of orphans that are done, of all sets. */
static void
CollectOrphans(void)
{
	PipeannRead *read;

	PipeannReadPoll();
	while ((read = PipeannReadTake(NULL)) != NULL)
		FreeFrame(FrameOf(read));
}

static BufferedFrame *
AllocFrame(int node_pages)
{
	FrameSet   *set = GetSet(node_pages);
	BufferedFrame *frame;

	if (dlist_is_empty(&set->free))
		CollectOrphans();
	if (dlist_is_empty(&set->free))
	{
		int			nframes = Max(SLAB_BYTES / (int) set->frame_size,
								  MIN_SLAB_FRAMES);
		Size		head = offsetof(Slab, frames) +
			nframes * sizeof(BufferedFrame);
		Size		size = add_size(head + BUFFER_ALIGN,
									mul_size(nframes, set->frame_size));
		Slab	   *slab = MemoryContextAllocHuge(frame_context, size);
		char	   *buffers = (char *) TYPEALIGN(BUFFER_ALIGN,
												 (char *) slab + head);

		memset(slab, 0, head);
		slab->set = set;
		slab->nframes = nframes;
		slab->nfree = nframes;
		dlist_push_tail(&set->slabs, &slab->node);
		for (int i = 0; i < nframes; i++)
		{
			frame = &slab->frames[i];
			frame->slab = slab;
			frame->buffer = buffers + i * set->frame_size;
			dlist_push_tail(&set->free, &frame->node);
		}
		free_bytes += nframes * set->frame_size;
	}
	frame = dlist_container(BufferedFrame, node,
							dlist_pop_head_node(&set->free));
	frame->slab->nfree--;
	free_bytes -= set->frame_size;
	frame->read.state = PIPEANN_READ_IDLE;
	frame->resident = 0;
	return frame;
}

/* Free frames beyond the memory that a backend keeps between scans. */
static void
TrimFrames(void)
{
	CollectOrphans();
	for (FrameSet *set = sets; set != NULL; set = set->next)
	{
		dlist_mutable_iter iter;

		if (free_bytes <= KEEP_BYTES)
			return;
		dlist_foreach_modify(iter, &set->slabs)
		{
			Slab	   *slab = dlist_container(Slab, node, iter.cur);

			if (slab->nfree == slab->nframes && !slab->leaked &&
				free_bytes > KEEP_BYTES)
			{
				for (int i = 0; i < slab->nframes; i++)
					dlist_delete(&slab->frames[i].node);
				dlist_delete(&slab->node);
				free_bytes -= slab->nframes * slab->set->frame_size;
				pfree(slab);
			}
		}
	}
}

/*
 * Finding pages in shared_buffers, and reading through it. The buffer mapping
 * table is not meant for extensions, but there is no other way to ask whether
 * a block is resident without reading it.
 */

#if PG_VERSION_NUM >= 160000
#define SAME_TAG(a, b) BufferTagsEqual(&(a), &(b))
#else
#define SAME_TAG(a, b) BUFFERTAGS_EQUAL(a, b)
#endif

/* How a block was found in shared_buffers. */
typedef struct Resident
{
	pg_atomic_uint32 *seen;		/* PipeannPageLastSeen(), or NULL */
	Buffer		buffer;			/* the block's buffer */
	bool		sound;			/* found sound in this buffer before */
} Resident;

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
NoteBufferUse(Relation index, Buffer buffer)
{
#if PG_VERSION_NUM < 190000
	BufferDesc *desc = GetBufferDescriptor(buffer - 1);
	uint32		state = pg_atomic_read_u32(&desc->state);

	if (!(state & BM_LOCKED) &&
		BUF_STATE_GET_USAGECOUNT(state) < BM_MAX_USAGE_COUNT)
		pg_atomic_compare_exchange_u32(&desc->state, &state,
									   state + BUF_USAGECOUNT_ONE);
#endif
	pgstat_count_buffer_read(index);
	pgstat_count_buffer_hit(index);
}

/* Pin a buffer if it has the block. Local buffers (of temporary relations) are not considered. */
static bool
Pin(Relation index, BlockNumber blkno, Buffer buffer)
{
	return buffer > InvalidBuffer &&
		ReadRecentBuffer(PipeannRelationLocator(index), MAIN_FORKNUM, blkno,
						 buffer);
}

/* Whether a buffer has this block, as far as one can tell without a pin. */
bool
PipeannBufferHas(Relation index, BlockNumber blkno, Buffer buffer)
{
	BufferTag	tag = BlockTag(index, blkno);

	return buffer > 0 && SAME_TAG(GetBufferDescriptor(buffer - 1)->tag, tag);
}

/* Pin a block, to read it, if it still is in this buffer. */
bool
PipeannPinRecent(Relation index, BlockNumber blkno, Buffer buffer)
{
	if (!Pin(index, blkno, buffer))
		return false;
	NoteBufferUse(index, buffer);
	return true;
}

/*
 * Find a block and pin it. If it is found but cannot be pinned, it was evicted
 * meanwhile, and the file is as new as it was; or it is still being read in.
 */
static bool
PinResident(Relation index, BlockNumber blkno, Resident *resident)
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

/* Note that a page was found sound in the buffer in which it was seen. */
static void
NoteSound(const Resident *resident)
{
	uint32		seen = (uint32) resident->buffer;

	if (resident->seen != NULL && !resident->sound)
		(void) pg_atomic_compare_exchange_u32(resident->seen, &seen,
											  seen | PIPEANN_SEEN_SOUND);
}

/*
 * Lock a graph page's first block, to change it, if it is in shared_buffers; else return
 * InvalidBuffer. The buffer where it was seen last is tried before the mapping table. The
 * page is checked unless it was found sound in that buffer before.
 */
Buffer
PipeannLockSeen(Relation index, BlockNumber blkno, PipeannSeenPages *seen,
				uint32 page, int lockmode)
{
	Resident	resident = {.seen = PipeannPageLastSeen(seen, page)};

	if (resident.seen == NULL || !PinResident(index, blkno, &resident))
		return InvalidBuffer;
	NoteBufferUse(index, resident.buffer);
	LockBuffer(resident.buffer, lockmode);
	if (resident.sound)
		return resident.buffer;
	if (!PageIsNew(BufferGetPage(resident.buffer)))
	{
		PipeannPageCheck(index, BufferGetPage(resident.buffer), blkno,
						 PIPEANN_GRAPH);
		NoteSound(&resident);
	}
	return resident.buffer;
}

/*
 * Copy a block out of shared_buffers if it is there, without verifying it and
 * without I/O. If the buffer where it was seen last still has the block, the
 * mapping table is not searched. With length > 0, and if the block is known to
 * be sound, copies only the page header and length bytes from offset on. Sets
 * the other members of *resident.
 */
static bool
CopyResident(Relation index, BlockNumber blkno,
			 Resident *resident, Size offset, Size length,
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
	NoteBufferUse(index, buffer);
	ReleaseBuffer(buffer);
	return true;
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

typedef struct Source
{
	PipeannPageSource source;	/* first: what the search sees */
	Relation	index;
	const PipeannLayout *layout;
	PipeannExtents extents;
	uint32		graph_pages;	/* given out when the source was opened; there may be more now */
	PipeannReadOwner owner;
	dlist_head	frames;			/* the frames that the search holds */
	PipeannSeenPages *seen;		/* or NULL */
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

/* A block's bit in frame->resident; blocks from number 63 on share the last bit. */
static inline uint64
BlockBit(int block)
{
	return UINT64CONST(1) << Min(block, 63);
}

/*
 * Where pages were last seen of indexes that have no shared table for that, as
 * they are too small for codes: their searches visit every page each time. Two
 * pages may share an entry, so a buffer is used only if it has the block.
 */
#define OWN_SEEN 4096

static pg_atomic_uint32 own_seen[OWN_SEEN];

static inline pg_atomic_uint32 *
LastSeenOrOwn(Source *source, uint32 page)
{
	pg_atomic_uint32 *seen = PipeannPageLastSeen(source->seen, page);

	return seen != NULL ? seen :
		&own_seen[(RelationGetRelid(source->index) * UINT32_C(0x9E3779B1) + page) % OWN_SEEN];
}

static inline char *
FrameBlock(BufferedFrame *frame, int block)
{
	return frame->buffer + (Size) block * BLCKSZ;
}

static PipeannFrame *
MakeReady(Source *source, BufferedFrame *frame, bool hit)
{
	char	   *nodes = frame->buffer + PIPEANN_CONTENTS_OFFSET;

	/* the payloads of a page of several blocks move together */
	for (int i = 1; i < source->layout->node_pages; i++)
		memmove(nodes + (Size) i * PIPEANN_PAYLOAD,
				FrameBlock(frame, i) + PIPEANN_CONTENTS_OFFSET, PIPEANN_PAYLOAD);
	frame->frame.hit = hit;
	frame->frame.nodes = nodes;
	frame->frame.state = PIPEANN_FRAME_READY;
	return &frame->frame;
}

/*
 * Copy a block from shared_buffers. If it is a page of its own, and need not be
 * verified, only the given slot is copied, or all slots: a search finds the same.
 * No lock is held while the block is verified. PostgreSQL's own checksum is not
 * up to date in shared_buffers, but ours is.
 */
static bool
CopyBlock(Source *source, BufferedFrame *frame, int block, int slot)
{
	const PipeannLayout *l = source->layout;
	bool		some = slot != PIPEANN_ALL_SLOTS && l->node_pages == 1;
	Size		length = l->node_pages > 1 ? 0 :
		(some ? 1 : l->slots_per_page) * l->slot_size;
	BlockNumber blkno = frame->blkno + block;
	char	   *page = FrameBlock(frame, block);
	Resident	resident;

	resident.seen = block > 0 ? NULL : LastSeenOrOwn(source, frame->frame.page);
	if (!CopyResident(source->index, blkno, &resident,
					  PIPEANN_CONTENTS_OFFSET + (some ? (Size) slot * l->slot_size : 0),
					  length, page))
		return false;

	/*
	 * In a cluster without checksums an error of the disk may be in a page
	 * that was copied, so it is verified when it is first seen in a buffer.
	 * The page itself is then checked again, and errors reported of that.
	 */
	if (!resident.sound &&
		!(DataChecksumsEnabled() && PipeannPageIsKind(page, PIPEANN_GRAPH)) &&
		!PipeannPageIsValid(page, blkno, PIPEANN_GRAPH))
	{
		(void) CopyThroughBuffer(source->index, blkno, page);
		source->source.counters->retries++;
		ereport(LOG,
				(errmsg("index \"%s\": the copy of block %u was not sound and was made again",
						RelationGetRelationName(source->index), blkno)));
	}
	NoteSound(&resident);
	frame->frame.slot = some ? slot : PIPEANN_ALL_SLOTS;
	return true;
}

/*
 * Copy a page from shared_buffers. If part of it is missing there, note in the
 * frame which blocks are resident, and return NULL.
 */
static PipeannFrame *
CopyResidentPage(Source *source, BufferedFrame *frame, int slot)
{
	int			blocks = source->layout->node_pages;
	int			copied = 0;

	while (copied < blocks && CopyBlock(source, frame, copied, slot))
		copied++;
	if (copied == blocks)
	{
		source->source.counters->page_hits++;
		return MakeReady(source, frame, true);
	}

	for (int i = 0; i < blocks; i++)
		if (i < copied ||
			(i > copied && LookUpBlock(source->index, frame->blkno + i) != InvalidBuffer))
			frame->resident |= BlockBit(i);
	return NULL;
}

/*
 * Read a block of a frame through shared_buffers. The file may end before it: its page was given
 * out and is not written yet, or was not written before a crash. Errors if the file was
 * truncated.
 */
static bool
ReadBlock(const Source *source, BufferedFrame *frame, int block)
{
	char	   *page = FrameBlock(frame, block);

	if (frame->blkno + block < RelationGetNumberOfBlocks(source->index))
		return CopyThroughBuffer(source->index, frame->blkno + block, page);
	(void) PipeannCountGraphPages(source->index, source->layout, &source->extents,
								  Max(source->graph_pages, frame->frame.page + 1));
	memset(page, 0, BLCKSZ);
	return true;
}

/* For temporary relations, for pages to be kept in shared_buffers, or without a descriptor. */
static PipeannFrame *
ReadThroughBuffers(Source *source, BufferedFrame *frame)
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
	return MakeReady(source, frame, hit || source->source.keeps);
}

/* Queue the read of blocks into a frame. False if there is no descriptor. */
static bool
QueueRead(BufferedFrame *frame, PipeannReadOwner *owner, Relation relation,
		  BlockNumber blkno, int blocks)
{
	frame->read.owner = owner;
	frame->read.buffer = frame->buffer;
	return PipeannReadQueue(&frame->read, relation, blkno, blocks);
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
 * Blocks that were resident when the page was requested (the file may have
 * older versions), that do not verify, or whose read failed, are read through
 * shared_buffers.
 */
static PipeannFrame *
FinishRead(Source *source, BufferedFrame *frame)
{
	PipeannRead *read = &frame->read;
	bool		complete = read->result == read->length;
	bool		retry = false;

	if (read->lost)
	{
		char	   *buffer =
			MemoryContextAllocHuge(frame_context,
								   add_size(frame->slab->set->frame_size, BUFFER_ALIGN));

		/* another buffer, never freed: the kernel may write to the old one */
		frame->slab->leaked = true;
		frame->buffer = (char *) TYPEALIGN(BUFFER_ALIGN, buffer);
		read->lost = false;
	}

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
	/* let EXPLAIN (BUFFERS) and the statistics views count our reads as reads */
	pgBufferUsage.shared_blks_read += source->layout->node_pages;
	for (int i = 0; i < source->layout->node_pages; i++)
		pgstat_count_buffer_read(source->index);
	return MakeReady(source, frame, false);
}

static BufferedFrame *
NewFrame(Source *source, uint32 page)
{
	BufferedFrame *frame = AllocFrame(source->layout->node_pages);

	dlist_push_tail(&source->frames, &frame->node);
	frame->blkno = PipeannGraphBlock(&source->extents, source->layout, page);
	frame->frame.page = page;
	frame->frame.slot = PIPEANN_ALL_SLOTS;
	frame->frame.user = NULL;
	return frame;
}

/* Release a frame; one that the kernel still reads into becomes an orphan. */
static void
DropFrame(BufferedFrame *frame)
{
	dlist_delete(&frame->node);
	if (PipeannReadCancel(&frame->read))
		FreeFrame(frame);
}

/*
 * One in this many reads chooses its page to be brought into shared_buffers
 * after the search, at most one for each search: so pages that are read often
 * come in, and PostgreSQL's clock sweep evicts those that are not used again.
 */
#define READS_PER_WANTED 8

bool		pipeann_hot_pages = true;

static PipeannFrame *
SourceRequest(PipeannPageSource *self, uint32 page, int slot)
{
	Source	   *source = (Source *) self;
	BufferedFrame *frame = NewFrame(source, page);
	int			most = Max(self->max_in_flight, 1);

	if (RelationUsesLocalBuffers(source->index))
		return ReadThroughBuffers(source, frame);
	if (CopyResidentPage(source, frame, slot) != NULL)
		return &frame->frame;
	if (self->in_flight >= most)
		WaitForReads(source, most);
	if (self->keeps ||
		!QueueRead(frame, &source->owner, source->index, frame->blkno,
				   source->layout->node_pages))
	{
		(void) ReadThroughBuffers(source, frame);
		/* show only the slot, as if the page had been resident */
		if (self->keeps && source->layout->node_pages == 1)
			frame->frame.slot = slot;
		return &frame->frame;
	}
	CountRead(source);
	if (self->wanted == PIPEANN_INVALID_ID &&
		(pg_prng_uint32(&pg_global_prng_state) & (READS_PER_WANTED - 1)) == 0)
		self->wanted = page;
	frame->frame.hit = false;
	frame->frame.nodes = NULL;
	frame->frame.state = PIPEANN_FRAME_IN_FLIGHT;
	return &frame->frame;
}

/* Uses the buffer where the page was seen last: looking it up would take longer than this saves. */
static void
SourcePrefetch(PipeannPageSource *self, uint32 page, int slot)
{
	Source	   *source = (Source *) self;
	const PipeannLayout *l = source->layout;
	const pg_atomic_uint32 *seen = PipeannPageLastSeen(source->seen, page);

	if (seen != NULL && slot != PIPEANN_ALL_SLOTS && l->node_pages == 1)
	{
		Buffer		buffer = (Buffer)
			(pg_atomic_read_u32(unconstify(pg_atomic_uint32 *, seen)) &
			 ~PIPEANN_SEEN_SOUND);
		Size		offset = PIPEANN_CONTENTS_OFFSET + (Size) slot * l->slot_size;
		const char *block;

		/* only a hint to the processor: the buffer may hold another block by now */
		if (buffer == InvalidBuffer)
			return;
		block = BufferGetBlock(buffer);
		__builtin_prefetch(GetBufferDescriptor(buffer - 1));
		__builtin_prefetch(block);
		for (Size at = offset; at < offset + l->slot_size; at += PIPEANN_CACHE_LINE)
			__builtin_prefetch(block + at);
	}
}

/*
 * A page that no search has seen in shared_buffers is not looked up: a search
 * of an index on disk requests hundreds of pages in this way.
 */
static PipeannFrame *
SourceRequestResident(PipeannPageSource *self, uint32 page, int slot)
{
	Source	   *source = (Source *) self;
	pg_atomic_uint32 *seen = PipeannPageLastSeen(source->seen, page);
	BufferedFrame *frame;

	if (self->keeps)
		return SourceRequest(self, page, slot);
	if (seen != NULL && pg_atomic_read_u32(seen) == InvalidBuffer)
		return NULL;
	frame = NewFrame(source, page);
	if (RelationUsesLocalBuffers(source->index))
		return ReadThroughBuffers(source, frame);
	if (CopyResidentPage(source, frame, slot) != NULL)
		return &frame->frame;
	DropFrame(frame);
	return NULL;
}

/* Another slot of a page that was resident a moment ago. */
static void
SourceLoad(PipeannPageSource *self, PipeannFrame *self_frame, int slot)
{
	Source	   *source = (Source *) self;
	BufferedFrame *frame = (BufferedFrame *) self_frame;

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

	read = PipeannReadTake(&source->owner);
	return read == NULL ? NULL : FinishRead(source, FrameOf(read));
}

static void
SourceRelease(PipeannPageSource *self, PipeannFrame *frame)
{
	(void) self;
	DropFrame((BufferedFrame *) frame);
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
		DropFrame(dlist_head_element(BufferedFrame, node,
									 &source->frames));
	TrimFrames();
}

/*
 * Open a page source over an index's graph pages, of which at least
 * graph_pages were given out. layout must outlive it. It lives in
 * CurrentMemoryContext and is closed when that is reset or deleted.
 */
PipeannPageSource *
PipeannSourceOpen(Relation index, const PipeannLayout *layout,
				  const PipeannExtents *extents, uint32 graph_pages,
				  PipeannSeenPages *seen, PipeannCounters *counters)
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
	source->source.wanted = PIPEANN_INVALID_ID;
	source->source.counters = counters;
	source->index = index;
	source->layout = layout;
	source->extents = *extents;
	source->graph_pages = graph_pages;
	source->seen = seen;
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

/* Read a page into shared_buffers, if it has been written. */
void
PipeannSourceBringIn(PipeannPageSource *self, uint32 page)
{
	Source	   *source = (Source *) self;
	BlockNumber blkno = PipeannGraphBlock(&source->extents, source->layout, page);
	pg_atomic_uint32 *seen = PipeannPageLastSeen(source->seen, page);

	if (RelationGetNumberOfBlocks(source->index) < blkno + source->layout->node_pages)
		return;
	for (int i = 0; i < source->layout->node_pages; i++)
	{
		Buffer		buffer = ReadBuffer(source->index, blkno + i);

		if (i == 0 && seen != NULL && !BufferIsLocal(buffer))
			pg_atomic_write_u32(seen, (uint32) buffer);
		ReleaseBuffer(buffer);
	}
}

#define PROFILE_IN_FLIGHT 8
#define PROFILE_READS 384

/*
 * Set *us to the microseconds that a random read of a block takes, in a relation of nblocks
 * blocks, when read as a search does: several in flight, bypassing shared_buffers, by this
 * backend's method. False if the relation is temporary or a read fails.
 */
bool
PipeannProfileReads(Relation relation, BlockNumber nblocks, float *us)
{
	BufferedFrame *frames[PROFILE_IN_FLIGHT] = {NULL};
	int			in_flight = 0;
	PipeannReadOwner owner = {.in_flight = &in_flight};
	volatile bool failed = RelationUsesLocalBuffers(relation);
	pg_prng_state random;
	instr_time	start;
	instr_time	took;

	pg_prng_seed(&random, 1);
	dlist_init(&owner.done);
	(void) PipeannIoInUse(&(bool) {false});	/* finds out the method */
	PG_TRY();
	{
		INSTR_TIME_SET_CURRENT(start);
		for (int i = 0; i < PROFILE_READS && !failed; i++)
		{
			PipeannRead *read;

			if (i < PROFILE_IN_FLIGHT)
				read = &(frames[i] = AllocFrame(1))->read;
			else
			{
				while ((read = PipeannReadTake(&owner)) == NULL)
					PipeannReadWait(&owner, in_flight);
				failed = read->lost || read->result != read->length;
			}
			failed = failed ||
				!QueueRead(FrameOf(read), &owner, relation, (BlockNumber)
						   pg_prng_uint64_range(&random, 0, nblocks - 1), 1);
		}
		PipeannReadWait(&owner, 1);
		INSTR_TIME_SET_CURRENT(took);
		INSTR_TIME_SUBTRACT(took, start);
		*us = INSTR_TIME_GET_DOUBLE(took) * 1e6 / PROFILE_READS;
	}
	PG_FINALLY();
	{
		/* one that the kernel still reads into becomes an orphan */
		for (int i = 0; i < PROFILE_IN_FLIGHT; i++)
			if (frames[i] != NULL && PipeannReadCancel(&frames[i]->read))
				FreeFrame(frames[i]);
		TrimFrames();
	}
	PG_END_TRY();
	return !failed;
}
