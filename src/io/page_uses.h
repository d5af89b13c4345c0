/*
 * page_uses.h
 *		How often searches use graph pages, and in which buffers they saw them;
 *		a part of io.h.
 *
 * The table is plain memory, whoever gives it: for an index whose codes are in
 * shared memory the cache does, beside them, one for all backends. Counts are
 * approximate: they are changed without locks, and halved page by page as
 * searches go on, so that what was wanted long ago is forgotten. Which pages are
 * brought into shared_buffers for that is decided in cache/.
 */
#ifndef PIPEANN_PAGE_USES_H
#define PIPEANN_PAGE_USES_H

#include "base/base.h"

#include "port/atomics.h"

typedef struct PipeannPageUses
{
	uint32		npages;			/* ordinals from 0 on that are counted */
	pg_atomic_uint32 epoch;		/* the cache's when kept was last empty */
	pg_atomic_uint32 hand;		/* word of kept where the next search looks */
	pg_atomic_uint64 uses;		/* counted so far */
	Size		kept;			/* offset of a bit for each page */
	Size		seen;			/* offset of a buffer number for each page */
	uint8		counts[FLEXIBLE_ARRAY_MEMBER];
} PipeannPageUses;

/* Count a use of a page; returns how often it was used of late. */
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

static inline uint8
PipeannPageUseCount(const PipeannPageUses *uses, uint32 page)
{
	return page < uses->npages ? uses->counts[page] : 0;
}

/* It was not wanted often enough to stay. */
static inline void
PipeannPageResetUseCount(PipeannPageUses *uses, uint32 page)
{
	if (page < uses->npages)
		uses->counts[page] = 0;
}

/*
 * The buffer in which the page's first block was seen last, 0 for none, and
 * whether it was found to be sound there; NULL for pages not counted. It may hold
 * something else by now.
 */
#define PIPEANN_SEEN_SOUND 0x80000000U

static inline pg_atomic_uint32 *
PipeannPageLastSeen(PipeannPageUses *uses, uint32 page)
{
	return page < uses->npages ?
		(pg_atomic_uint32 *) ((char *) uses + uses->seen) + page : NULL;
}

/* Pages that one search may bring in. */
#define PIPEANN_HOT_PER_SEARCH 2

/* Uses of pages by one search, and the most wanted of those that it read. */
typedef struct PipeannSearchUses
{
	PipeannPageUses *table;		/* or NULL */
	bool		counting;		/* with a table only */
	uint32		count;
	int			nwanted;
	uint32		pages[PIPEANN_HOT_PER_SEARCH];
	uint8		counts[PIPEANN_HOT_PER_SEARCH];
} PipeannSearchUses;

/* page_uses.c: count a use by a search; hit: the page was resident */
extern void PipeannSearchCountUse(PipeannSearchUses *uses, uint32 page, bool hit);

#endif							/* PIPEANN_PAGE_USES_H */
