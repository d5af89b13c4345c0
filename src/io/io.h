/*
 * io.h
 *		Asynchronous reads of an index's graph pages, by the read rule
 *		(src/README).
 *
 * This room knows files, shared_buffers and the form of a page. It must not
 * know what searches and caches do with the pages.
 *
 * Each backend has one ring for its life. Several scans may be open at once (a
 * nested loop, cursors), each the owner of its own reads. Read buffers live as
 * long as the backend: a scan that ends with reads in flight, by error or
 * otherwise, leaves their buffers behind as orphans, which are used again only
 * when the kernel has finished with them.
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

/* Registers the relcache callback; _PG_init() calls this. */
extern void PipeannIoInit(void);

/*
 * How this backend reads, found out at the first call: the method, "io_uring"
 * or "pread", and whether it opens files with O_DIRECT, "direct" or
 * "buffered".
 */
extern const char *PipeannIoMethodInUse(void);
extern const char *PipeannIoFilesInUse(void);

/* The most reads that a source may have in flight. */
#define PIPEANN_MAX_IN_FLIGHT 64

/*
 * Open a page source over an index's graph pages. layout and map must outlive
 * it. It lives in CurrentMemoryContext and is closed when that is reset or
 * deleted (error, cancel): reads in flight become orphans, frames go back to
 * the backend's free ones.
 */
extern PipeannPageSource *PipeannSourceOpen(Relation index,
											const PipeannLayout *layout,
											const PipeannExtentMap *map,
											PipeannCounters *counters);
extern void PipeannSourceClose(PipeannPageSource *source);

/* Whether a block is in shared_buffers. */
extern bool PipeannIsResident(Relation index, BlockNumber blkno);

/* Free a block's buffer if it is clean and not pinned. */
extern void PipeannEvictResident(Relation index, BlockNumber blkno);

/*
 * The uses of pages by the source's search. A table that the caller sets there
 * must outlive the source.
 */
extern PipeannSearchUses *PipeannSourceUses(PipeannPageSource *source);

/*
 * The number of graph pages that exist in the file now: at most graph_pages,
 * the number in the metapage. For sequential passes. Errors if pages are
 * missing.
 */
extern uint32 PipeannSourceCountPages(Relation index,
									  const PipeannLayout *layout,
									  const PipeannExtentMap *map,
									  uint32 graph_pages);

/*
 * Set *us to the microseconds that a random read of a block takes while
 * several are in flight, measured on a relation of nblocks blocks. False if
 * the relation is temporary or reads fail.
 */
extern bool PipeannProfileReads(Relation relation, BlockNumber nblocks,
								double *us);

/* The median of times[n], which are sorted for it: others use the machine, too. */
extern double PipeannProfileMedian(double *times, int n);

#endif							/* PIPEANN_IO_H */
