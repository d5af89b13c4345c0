/*
 * hot.h
 *		Which graph pages searches want often, which of them were brought into
 *		shared_buffers for that, and in which buffers pages were seen.
 *
 * Kept beside the codes in shared memory, one table per cache, so it goes with
 * it. Counts are approximate: they are changed without locks, and halved page
 * by page as searches go on, so that what was wanted long ago is forgotten. All
 * caches together bring in no more than pipeann.hot_pages allows.
 */
#ifndef PIPEANN_HOT_H
#define PIPEANN_HOT_H

#include "cache/cache.h"

#include "port/atomics.h"

/* GUC: per cent of shared_buffers. */
extern int	pipeann_hot_pages;

typedef struct PipeannHot
{
	uint32		npages;			/* ordinals from 0 on that are counted */
	pg_atomic_uint32 epoch;		/* the record's when kept was last empty */
	pg_atomic_uint32 hand;		/* word of kept where the next search looks */
	pg_atomic_uint64 uses;		/* counted so far */
	Size		kept;			/* offset of a bit for each page */
	Size		seen;			/* offset of a buffer number for each page */
	uint8		counts[FLEXIBLE_ARRAY_MEMBER];
} PipeannHot;

/* Count a use of a page; returns how often it was used of late. */
static inline uint8
PipeannHotCount(PipeannHot *hot, uint32 page)
{
	uint8	   *count;

	if (page >= hot->npages)
		return 0;
	count = &hot->counts[page];
	if (*count < PG_UINT8_MAX)
		(*count)++;
	return *count;
}

static inline uint8
PipeannHotGetCount(const PipeannHot *hot, uint32 page)
{
	return page < hot->npages ? hot->counts[page] : 0;
}

/* It was not wanted often enough to stay. */
static inline void
PipeannHotResetCount(PipeannHot *hot, uint32 page)
{
	if (page < hot->npages)
		hot->counts[page] = 0;
}

/*
 * The buffer in which the page's first block was seen last, 0 for none, and
 * whether it was found to be sound there; NULL for pages not counted. It may hold
 * something else by now.
 */
#define PIPEANN_SEEN_SOUND 0x80000000U

static inline pg_atomic_uint32 *
PipeannHotSeen(PipeannHot *hot, uint32 page)
{
	return page < hot->npages ?
		(pg_atomic_uint32 *) ((char *) hot + hot->seen) + page : NULL;
}

/* Age the counts by so many uses. */
extern void PipeannHotAge(PipeannHot *hot, uint32 uses);

/* Whether a page is one that was brought in and not given up since. */
extern bool PipeannHotIsKept(const PipeannHot *hot, uint32 page);

/*
 * The next pages that are kept, from where the last call of anybody stopped;
 * at most `most` of them. Looks at a bounded part of the table.
 */
extern int	PipeannHotNextKept(PipeannHot *hot, uint32 *pages, int most);

/* Keep a page of so many blocks, if the limit leaves room. */
extern bool PipeannHotKeep(PipeannCache *cache, uint32 page, int blocks);

/* Keep a page in the place of another. False if that is not kept any more. */
extern bool PipeannHotReplace(PipeannCache *cache, uint32 out, uint32 in,
							  int blocks);

/* Keep a page no more. False if it was not. */
extern bool PipeannHotGiveUp(PipeannCache *cache, uint32 page, int blocks);

/*
 * Whether the cache has to give pages up: more are kept than the limit allows,
 * or another index has less than its share and asked.
 */
extern bool PipeannHotHasSurplus(PipeannCache *cache);

/* Called by PipeannCacheInit: the GUC. */
extern void PipeannHotInit(void);

#endif							/* PIPEANN_HOT_H */
