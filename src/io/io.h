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

/* The most reads that a source may have in flight. */
#define PIPEANN_MAX_IN_FLIGHT 64

/* ring.c */
extern void PipeannIoInit(void);
extern const char *PipeannIoMethodInUse(void);
extern const char *PipeannIoFilesInUse(void);

/* page_source.c */
extern PipeannPageSource *PipeannSourceOpen(Relation index,
											const PipeannLayout *layout,
											const PipeannExtentMap *map,
											uint32 graph_pages,
											PipeannCounters *counters);
extern void PipeannSourceClose(PipeannPageSource *source);
extern PipeannSearchUses *PipeannSourceUses(PipeannPageSource *source);
extern bool PipeannIsResident(Relation index, BlockNumber blkno);
extern void PipeannEvictResident(Relation index, BlockNumber blkno);

/* profile.c */
extern bool PipeannProfileReads(Relation relation, BlockNumber nblocks,
								double *us);
extern double PipeannProfileMedian(double *times, int n);

#endif							/* PIPEANN_IO_H */
