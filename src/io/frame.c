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
	dlist_node	node;			/* of the pool's slabs */
	struct FramePool *pool;
	int			nframes;
	int			nfree;
	bool		leaked;			/* never to be freed */
	PipeannBufferedFrame frames[FLEXIBLE_ARRAY_MEMBER];
} PipeannSlab;

/* The frames of one size. */
typedef struct FramePool
{
	struct FramePool *next;
	int			node_pages;
	Size		frame_size;
	dlist_head	slabs;
	dlist_head	free;			/* last freed first: may be in a CPU cache */
} FramePool;

static MemoryContext frame_context = NULL;
static FramePool *pools = NULL;
static Size free_bytes = 0;

static FramePool *
GetPool(int node_pages)
{
	FramePool  *pool;

	for (pool = pools; pool != NULL; pool = pool->next)
		if (pool->node_pages == node_pages)
			return pool;

	if (frame_context == NULL)
		frame_context = AllocSetContextCreate(TopMemoryContext,
											  "pipeann frames",
											  ALLOCSET_DEFAULT_SIZES);
	pool = MemoryContextAllocZero(frame_context, sizeof(FramePool));
	pool->node_pages = node_pages;
	pool->frame_size = TYPEALIGN(BUFFER_ALIGN,
								 mul_size(node_pages, BLCKSZ));
	dlist_init(&pool->slabs);
	dlist_init(&pool->free);
	pool->next = pools;
	pools = pool;
	return pool;
}

static void
AddSlab(FramePool *pool)
{
	int			nframes = Max(SLAB_BYTES / (int) pool->frame_size,
							  MIN_SLAB_FRAMES);
	Size		head = offsetof(PipeannSlab, frames) +
		nframes * sizeof(PipeannBufferedFrame);
	Size		size = add_size(head + BUFFER_ALIGN,
								mul_size(nframes, pool->frame_size));
	PipeannSlab *slab = MemoryContextAllocHuge(frame_context, size);
	char	   *buffers = (char *) TYPEALIGN(BUFFER_ALIGN,
											 (char *) slab + head);

	memset(slab, 0, head);
	slab->pool = pool;
	slab->nframes = nframes;
	slab->nfree = nframes;
	dlist_push_tail(&pool->slabs, &slab->node);
	for (int i = 0; i < nframes; i++)
	{
		PipeannBufferedFrame *frame = &slab->frames[i];

		frame->slab = slab;
		frame->buffer = buffers + i * pool->frame_size;
		dlist_push_tail(&pool->free, &frame->node);
	}
	free_bytes += nframes * pool->frame_size;
}

/* Free the frames of orphans that are done, of all pools. */
static void
CollectOrphans(void)
{
	PipeannRead *read;

	while ((read = PipeannReadNextOrphan()) != NULL)
		PipeannFrameFree(PipeannReadFrame(read));
}

PipeannBufferedFrame *
PipeannFrameAlloc(int node_pages)
{
	FramePool  *pool = GetPool(node_pages);
	PipeannBufferedFrame *frame;

	if (dlist_is_empty(&pool->free))
	{
		PipeannReadPoll();
		CollectOrphans();
	}
	if (dlist_is_empty(&pool->free))
		AddSlab(pool);
	frame = dlist_container(PipeannBufferedFrame, node,
							dlist_pop_head_node(&pool->free));
	frame->slab->nfree--;
	free_bytes -= pool->frame_size;
	frame->read.state = PIPEANN_READ_IDLE;
	frame->resident = 0;
	return frame;
}

/* May run while a transaction aborts: no error, no allocation. */
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
	free_bytes += slab->pool->frame_size;
	dlist_push_head(&slab->pool->free, &frame->node);
}

/*
 * The old buffer stays where it is, for the kernel to write to. The new one is
 * never freed.
 */
void
PipeannFrameReplaceBuffer(PipeannBufferedFrame *frame)
{
	Size		size = frame->slab->pool->frame_size;
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
	free_bytes -= slab->nframes * slab->pool->frame_size;
	pfree(slab);
}

void
PipeannFrameTrim(void)
{
	PipeannReadPoll();
	CollectOrphans();
	for (FramePool *pool = pools; pool != NULL; pool = pool->next)
	{
		dlist_mutable_iter iter;

		if (free_bytes <= KEEP_BYTES)
			return;
		dlist_foreach_modify(iter, &pool->slabs)
		{
			PipeannSlab *slab = dlist_container(PipeannSlab, node, iter.cur);

			if (slab->nfree == slab->nframes && !slab->leaked &&
				free_bytes > KEEP_BYTES)
				FreeSlab(slab);
		}
	}
}
