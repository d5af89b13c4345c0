/*
 * io.h
 *		Asynchronous reads of an index's segment files, and the read rule.
 *
 * One ring per backend, for its life; several scans may be open at once (a
 * nested loop, cursors), each the owner of its own reads. Read buffers live as
 * long as the backend: a scan that ends with reads in flight, by error or
 * otherwise, leaves their buffers behind as orphans, which are not used again
 * before the kernel has finished with them.
 */
#ifndef PIPEANN_IO_H
#define PIPEANN_IO_H

#include "base/base.h"

#include "io/page_uses.h"
#include "storage/storage.h"
#include "storage/page_source.h"

typedef enum PipeannIoMethod
{
	PIPEANN_IO_AUTO,
	PIPEANN_IO_URING,
	PIPEANN_IO_PREAD
} PipeannIoMethod;

/* GUCs: pipeann.io_method (enum), pipeann.direct_io (bool). */
extern int	pipeann_io_method;
extern bool pipeann_direct_io;

/* Called once by _PG_init: registers the relcache callback. */
extern void PipeannIoInit(void);

/*
 * The method in use by this backend, "io_uring" or "pread", after probing; and
 * whether it opens files with O_DIRECT, "direct" or "buffered".
 */
extern const char *PipeannIoMethodInUse(void);
extern const char *PipeannIoFilesInUse(void);

/* The most reads that a source may have in flight. */
#define PIPEANN_MAX_IN_FLIGHT 64

/*
 * Open a page source over an index's graph pages. The layout and extent map
 * must outlive it. Lives in CurrentMemoryContext, and is cleaned up with it
 * when that is reset or deleted (error, cancel): reads in flight become
 * orphans, frames go back to the backend's pool.
 */
extern PipeannPageSource *PipeannSourceOpen(Relation index,
											const PipeannLayout *layout,
											const PipeannExtentMap *map,
											PipeannCounters *counters);
extern void PipeannSourceClose(PipeannPageSource *source);

/* Whether a block is in shared_buffers. */
extern bool PipeannIsResident(Relation index, BlockNumber blkno);

/* Let a block's buffer be the next to be used for something else. */
extern void PipeannEvictResident(Relation index, BlockNumber blkno);

/*
 * The uses of pages by the source's search. A table that is set there must outlive
 * the source.
 */
extern PipeannSearchUses *PipeannSourceUses(PipeannPageSource *source);

/*
 * The number of graph pages that exist in the file right now: min of what the
 * metapage says and the file's size allow. For sequential passes.
 */
extern uint32 PipeannSourceCountPages(Relation index,
									  const PipeannLayout *layout,
									  const PipeannExtentMap *map,
									  uint32 graph_pages);

/*
 * profile.c: microseconds that a read of a block at random takes while several
 * are in flight, tried on a relation of so many blocks. False if that cannot
 * be told: it is temporary, or reads fail.
 */
extern bool PipeannProfileReads(Relation relation, BlockNumber nblocks,
								double *us);

#endif							/* PIPEANN_IO_H */
