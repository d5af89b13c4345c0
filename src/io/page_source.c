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
#include "pgstat.h"
#include "portability/instr_time.h"

#define SEGMENT_BLOCKS ((BlockNumber) RELSEG_SIZE)

typedef struct Source
{
	PipeannPageSource source;	/* first: what the search sees */
	Relation	index;
	const PipeannLayout *layout;
	const PipeannExtentMap *map;
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
		(void) PipeannCopyThroughBuffer(source->index, blkno, page);
		source->source.counters->retries++;
		ereport(LOG,
				(errmsg("index \"%s\": the copy of block %u was not sound and was made again",
						RelationGetRelationName(source->index), blkno)));
	}
	PipeannNoteSound(resident);
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
	if (!PipeannCopyResident(source->index, frame->blkno + block, &resident,
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
	PipeannSearchCountUse(&source->uses, frame->frame.page, true);
	(void) MakeReady(source, frame, true);
	frame->frame.slot = slot;
	return &frame->frame;
}

/* For temporary relations, and if no descriptor is to be had. */
static PipeannFrame *
ReadThroughBuffers(Source *source, PipeannBufferedFrame *frame)
{
	bool		hit = true;

	for (int i = 0; i < source->layout->node_pages; i++)
		hit &= PipeannCopyThroughBuffer(source->index, frame->blkno + i,
										FrameBlock(frame, i));
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
		char	   *page = FrameBlock(frame, i);

		if (complete && !resident &&
			PipeannPageIsValid(page, frame->blkno + i, PIPEANN_GRAPH))
			continue;
		retry |= !resident;
		(void) PipeannCopyThroughBuffer(source->index, frame->blkno + i, page);
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
	PipeannSearchCountUse(&source->uses, page, false);
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
		PipeannPrefetchResident(seen, PIPEANN_CONTENTS_OFFSET +
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
		(void) PipeannCopyThroughBuffer(source->index, frame->blkno,
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
 * Open a page source over an index's graph pages. layout and map must outlive
 * it. It lives in CurrentMemoryContext and is closed when that is reset or
 * deleted (error, cancel): reads in flight become orphans, frames go back to
 * the backend's free ones.
 */
PipeannPageSource *
PipeannSourceOpen(Relation index, const PipeannLayout *layout,
				  const PipeannExtentMap *map, PipeannCounters *counters)
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

/*
 * The number of graph pages that exist in the file now: at most graph_pages,
 * the number in the metapage. For sequential passes. Errors if pages are
 * missing.
 *
 * Extents are filled in order, but may be in any order in the file.
 */
uint32
PipeannSourceCountPages(Relation index, const PipeannLayout *layout,
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
