/*
 * hot_table.h
 *		The hot table of a cache: how often searches use each graph page, which
 *		pages were brought into shared_buffers for that ("kept" pages), and in
 *		which buffers pages were seen; private to cache/.
 *
 * The table is in shared memory beside the codes, and goes with its cache.
 * Counts are approximate: they are changed without locks, and halved page by
 * page as searches go on, so that old uses are forgotten. All caches together
 * keep no more pages than pipeann.hot_pages allows.
 */
#ifndef PIPEANN_HOT_TABLE_H
#define PIPEANN_HOT_TABLE_H

#include "cache/cache.h"

/* Age the counts by so many uses. */
extern void PipeannHotAge(PipeannPageUses *hot, uint32 uses);

/* Whether a page was brought in and not given up since. */
extern bool PipeannHotIsKept(const PipeannPageUses *hot, uint32 page);

/*
 * Fill pages[most] with the next kept pages, from where the last call of any
 * backend stopped; returns how many. Looks at a bounded part of the table.
 */
extern int	PipeannHotNextKept(PipeannPageUses *hot, uint32 *pages, int most);

/* Keep a page of so many blocks. False if the limit leaves no room. */
extern bool PipeannHotKeep(PipeannCache *cache, uint32 page, int blocks);

/* Keep page "in" instead of "out". False if "out" is not kept any more. */
extern bool PipeannHotReplace(PipeannCache *cache, uint32 out, uint32 in,
							  int blocks);

/* Stop keeping a page. False if it was not kept. */
extern bool PipeannHotGiveUp(PipeannCache *cache, uint32 page, int blocks);

/*
 * Whether the cache has to give pages up: more are kept than the limit allows,
 * or an index with less than its share was refused room lately.
 */
extern bool PipeannHotHasSurplus(PipeannCache *cache);

#endif							/* PIPEANN_HOT_TABLE_H */
