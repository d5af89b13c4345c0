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

#include "base/parts.h"
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

/* GUCs: pipeann.io_method (enum), pipeann.direct_io (bool). */
extern int	pipeann_io_method;
extern bool pipeann_direct_io;

/* The most reads that a source may have in flight. */
#define PIPEANN_MAX_IN_FLIGHT 64

/*
 * How often searches use graph pages, and in which buffers they saw them.
 *
 * The owner of the table gives its memory; src/README, "hints/: hot pages", tells
 * what is done with it.
 */
typedef struct PipeannPageUses
{
	uint32		npages;			/* pages 0 .. npages - 1 are counted */
	pg_atomic_uint32 epoch;		/* the cache's when kept was last cleared */
	pg_atomic_uint32 hand;		/* word of kept to look at next */
	pg_atomic_uint64 uses;		/* counted so far */
	Size		kept;			/* offset of a bit for each page */
	Size		seen;			/* offset of a buffer number for each page */
	uint8		counts[FLEXIBLE_ARRAY_MEMBER];
} PipeannPageUses;

/* Count a use of a page; returns the count of its recent uses. */
static inline uint8
PipeannPageCountUse(PipeannPageUses *uses, uint32 page)
{
	uint8	   *count;

	if (page >= uses->npages)
		return 0;
	count = &uses->counts[page];
	if (*count < PG_UINT8_MAX)
		(*count)++;
	return *count;
}

/* The count of a page's recent uses. */
static inline uint8
PipeannPageUseCount(const PipeannPageUses *uses, uint32 page)
{
	return page < uses->npages ? uses->counts[page] : 0;
}

/* Set the count of a page to zero. */
static inline void
PipeannPageResetUseCount(PipeannPageUses *uses, uint32 page)
{
	if (page < uses->npages)
		uses->counts[page] = 0;
}

/*
 * Where a page's first block was seen last: its buffer (0: nowhere), and a
 * flag if it was found sound there. The buffer may hold another block by now.
 * NULL for pages that are not counted.
 */
#define PIPEANN_SEEN_SOUND 0x80000000U

static inline pg_atomic_uint32 *
PipeannPageLastSeen(PipeannPageUses *uses, uint32 page)
{
	return page < uses->npages ?
		(pg_atomic_uint32 *) ((char *) uses + uses->seen) + page : NULL;
}

/* Pages that one search may bring into shared_buffers. */
#define PIPEANN_HOT_PER_SEARCH 2

/* Uses of pages by one search, and the most used of the pages that it read. */
typedef struct PipeannSearchUses
{
	PipeannPageUses *table;		/* NULL: nothing is counted or noted */
	bool		counting;		/* needs a table */
	PipeannParts parts;			/* none: all pages may be wanted */
	uint32		own_part;		/* those of it may */
	uint32		count;
	int			nwanted;
	uint32		pages[PIPEANN_HOT_PER_SEARCH];
	uint8		counts[PIPEANN_HOT_PER_SEARCH];
} PipeannSearchUses;

/* ring.c */
extern void PipeannIoInit(void);
extern const char *PipeannIoInUse(bool *direct);

/* page_source.c */
extern PipeannPageSource *PipeannSourceOpen(Relation index,
											const PipeannLayout *layout,
											const PipeannPlaces *places,
											uint32 graph_pages,
											PipeannCounters *counters);
extern void PipeannSourceClose(PipeannPageSource *source);
extern PipeannSearchUses *PipeannSourceUses(PipeannPageSource *source);
extern bool PipeannBufferHas(Relation index, BlockNumber blkno, Buffer buffer);
extern bool PipeannPinRecent(Relation index, BlockNumber blkno, Buffer buffer);
extern Buffer PipeannLockSeen(Relation index, BlockNumber blkno,
							  PipeannPageUses *table, uint32 page,
							  int lockmode);
extern bool PipeannIsResident(Relation index, BlockNumber blkno);
extern void PipeannEvictResident(Relation index, BlockNumber blkno);
extern bool PipeannProfileReads(Relation relation, BlockNumber nblocks,
								float *us);

#endif							/* PIPEANN_IO_H */
