/*
 * io.h
 *		Asynchronous reads of an index's graph pages, by the read rule
 *		(src/README).
 *
 * This room knows files, shared_buffers and the form of a page. It must not
 * know what searches and caches do with the pages.
 */
#ifndef PIPEANN_IO_H
#define PIPEANN_IO_H

#include "base/base.h"

#include "port/atomics.h"
#include "storage/storage.h"
#include "storage/page_source.h"

typedef enum PipeannIoMethod
{
	PIPEANN_IO_AUTO,
	PIPEANN_IO_URING,
	PIPEANN_IO_PREAD
} PipeannIoMethod;

/* GUCs: pipeann.io_method (enum), pipeann.direct_io, pipeann.hot_pages (bool). */
extern int	pipeann_io_method;
extern bool pipeann_direct_io;
extern bool pipeann_hot_pages;

/* The most reads that a source may have in flight. */
#define PIPEANN_MAX_IN_FLIGHT 64

/*
 * In which buffers graph pages were seen last. The owner gives the memory;
 * src/README, "io/: the read rule", describes its use.
 */
typedef struct PipeannSeenPages
{
	uint32		npages;			/* pages 0 .. npages - 1 are noted */

	/* where a page's first block was seen (0: nowhere), and whether it was sound there */
	pg_atomic_uint32 buffers[FLEXIBLE_ARRAY_MEMBER];
} PipeannSeenPages;

#define PIPEANN_SEEN_SOUND 0x80000000U

/* A page's entry, or NULL. The buffer may hold another block by now. */
static inline pg_atomic_uint32 *
PipeannPageLastSeen(PipeannSeenPages *seen, uint32 page)
{
	return seen != NULL && page < seen->npages ? &seen->buffers[page] : NULL;
}

/* ring.c */
extern void PipeannIoInit(void);
extern const char *PipeannIoInUse(bool *direct);

/* page_source.c */
extern PipeannPageSource *PipeannSourceOpen(Relation index,
											const PipeannLayout *layout,
											const PipeannExtents *extents,
											uint32 graph_pages,
											PipeannSeenPages *seen,
											PipeannCounters *counters);
extern void PipeannSourceClose(PipeannPageSource *source);
extern void PipeannSourceBringIn(PipeannPageSource *source, uint32 page);
extern bool PipeannBufferHas(Relation index, BlockNumber blkno, Buffer buffer);
extern bool PipeannPinRecent(Relation index, BlockNumber blkno, Buffer buffer);
extern Buffer PipeannLockSeen(Relation index, BlockNumber blkno,
							  PipeannSeenPages *seen, uint32 page,
							  int lockmode);
extern bool PipeannProfileReads(Relation relation, BlockNumber nblocks,
								float *us);

#endif							/* PIPEANN_IO_H */
