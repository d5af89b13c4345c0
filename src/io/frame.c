/*
 * frame.c
 *		Frames and their buffers, kept by the backend across scans.
 *
 * Buffers come in slabs: one allocation, aligned for O_DIRECT, for frames of
 * one size. A slab is freed when all its frames are free and there are more
 * than KEEP_BYTES of free frames; a slab that the kernel may still write to,
 * never.
 */
#include "io/ring.h"

#define BUFFER_ALIGN 4096
#define SLAB_BYTES (512 * 1024)
#define MIN_SLAB_FRAMES 4
#define KEEP_BYTES (4 * SLAB_BYTES)

typedef struct PipeannSlab
{
	dlist_node	node;			/* of the set's slabs */
	struct FrameSet *set;
	int			nframes;
	int			nfree;
	bool		leaked;			/* never to be freed */
	PipeannBufferedFrame frames[FLEXIBLE_ARRAY_MEMBER];
} PipeannSlab;

/* The frames of one size. */
typedef struct FrameSet
{
	struct FrameSet *next;
	int			node_pages;
	Size		frame_size;
	dlist_head	slabs;
	dlist_head	free;			/* last freed first: may be in a CPU cache */
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

static void
AddSlab(FrameSet *set)
{
	int			nframes = Max(SLAB_BYTES / (int) set->frame_size,
							  MIN_SLAB_FRAMES);
	Size		head = offsetof(PipeannSlab, frames) +
		nframes * sizeof(PipeannBufferedFrame);
	Size		size = add_size(head + BUFFER_ALIGN,
								mul_size(nframes, set->frame_size));
	PipeannSlab *slab = MemoryContextAllocHuge(frame_context, size);
	char	   *buffers = (char *) TYPEALIGN(BUFFER_ALIGN,
											 (char *) slab + head);

	memset(slab, 0, head);
	slab->set = set;
	slab->nframes = nframes;
	slab->nfree = nframes;
	dlist_push_tail(&set->slabs, &slab->node);
	for (int i = 0; i < nframes; i++)
	{
		PipeannBufferedFrame *frame = &slab->frames[i];

		frame->slab = slab;
		frame->buffer = buffers + i * set->frame_size;
		dlist_push_tail(&set->free, &frame->node);
	}
	free_bytes += nframes * set->frame_size;
}

/* Free the frames of orphans that are done, of all sets. */
static void
CollectOrphans(void)
{
	PipeannRead *read;

	while ((read = PipeannReadNextOrphan()) != NULL)
		PipeannFrameFree(PipeannReadFrame(read));
}

/*
 * Take a frame with a buffer of node_pages blocks: one of the backend's free ones, or a
 * new one.
 */
PipeannBufferedFrame *
PipeannFrameAlloc(int node_pages)
{
	FrameSet   *set = GetSet(node_pages);
	PipeannBufferedFrame *frame;

	if (dlist_is_empty(&set->free))
	{
		PipeannReadPoll();
		CollectOrphans();
	}
	if (dlist_is_empty(&set->free))
		AddSlab(set);
	frame = dlist_container(PipeannBufferedFrame, node,
							dlist_pop_head_node(&set->free));
	frame->slab->nfree--;
	free_bytes -= set->frame_size;
	frame->read.state = PIPEANN_READ_IDLE;
	frame->resident = 0;
	return frame;
}

/*
 * Give back a frame that has no read in flight.
 *
 * May run while a transaction aborts: no error, no allocation.
 */
void
PipeannFrameFree(PipeannBufferedFrame *frame)
{
	PipeannSlab *slab = frame->slab;

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

/*
 * Give a frame whose read was lost another buffer.
 *
 * The old buffer stays where it is, for the kernel to write to. The new one is
 * never freed.
 */
void
PipeannFrameReplaceBuffer(PipeannBufferedFrame *frame)
{
	Size		size = frame->slab->set->frame_size;
	char	   *buffer = MemoryContextAllocHuge(frame_context,
												add_size(size, BUFFER_ALIGN));

	frame->slab->leaked = true;
	frame->buffer = (char *) TYPEALIGN(BUFFER_ALIGN, buffer);
	frame->read.lost = false;
}

static void
FreeSlab(PipeannSlab *slab)
{
	for (int i = 0; i < slab->nframes; i++)
		dlist_delete(&slab->frames[i].node);
	dlist_delete(&slab->node);
	free_bytes -= slab->nframes * slab->set->frame_size;
	pfree(slab);
}

/* Free what exceeds the memory that a backend keeps between scans. */
void
PipeannFrameTrim(void)
{
	PipeannReadPoll();
	CollectOrphans();
	for (FrameSet *set = sets; set != NULL; set = set->next)
	{
		dlist_mutable_iter iter;

		if (free_bytes <= KEEP_BYTES)
			return;
		dlist_foreach_modify(iter, &set->slabs)
		{
			PipeannSlab *slab = dlist_container(PipeannSlab, node, iter.cur);

			if (slab->nfree == slab->nframes && !slab->leaked &&
				free_bytes > KEEP_BYTES)
				FreeSlab(slab);
		}
	}
}
