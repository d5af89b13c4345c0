/*
 * page_uses.h
 *		How often searches use graph pages, and in which buffers they saw them;
 *		a part of io.h.
 *
 * The owner of the table gives its memory: for an index with a shared cache
 * that is the cache, and the table is one for all backends. Counts are
 * approximate: they are changed without locks, and halved page by page as
 * searches go on, so that old uses are forgotten. The cache decides which
 * pages are brought into shared_buffers.
 */
#ifndef PIPEANN_PAGE_USES_H
#define PIPEANN_PAGE_USES_H

#include "base/base.h"

#include "port/atomics.h"

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

/* Start the count of a page anew. */
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
	uint32		count;
	int			nwanted;
	uint32		pages[PIPEANN_HOT_PER_SEARCH];
	uint8		counts[PIPEANN_HOT_PER_SEARCH];
} PipeannSearchUses;

#endif							/* PIPEANN_PAGE_USES_H */
