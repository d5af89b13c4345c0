/*
 * hot_table.h
 *		Which graph pages searches want often, which of them were brought into
 *		shared_buffers for that, and in which buffers pages were seen.
 *
 * Kept beside the codes in shared memory, one table per cache, so it goes with
 * it. Counts are approximate: they are changed without locks, and halved page
 * by page as searches go on, so that what was wanted long ago is forgotten. All
 * caches together bring in no more than pipeann.hot_pages allows.
 */
#ifndef PIPEANN_HOT_TABLE_H
#define PIPEANN_HOT_TABLE_H

#include "cache/cache.h"

/* GUC: per cent of shared_buffers. */
extern int	pipeann_hot_pages;

/* Age the counts by so many uses. */
extern void PipeannHotAge(PipeannPageUses *hot, uint32 uses);

/* Whether a page is one that was brought in and not given up since. */
extern bool PipeannHotIsKept(const PipeannPageUses *hot, uint32 page);

/*
 * The next pages that are kept, from where the last call of anybody stopped;
 * at most `most` of them. Looks at a bounded part of the table.
 */
extern int	PipeannHotNextKept(PipeannPageUses *hot, uint32 *pages, int most);

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


#endif							/* PIPEANN_HOT_TABLE_H */
