/*
 * hot_table.h
 *		The hot table of a cache: how often searches use each graph page, which
 *		pages were brought into shared_buffers for that ("kept" pages), and in
 *		which buffers pages were seen; private to hints/.
 *
 * The table is in shared memory, and goes with its index's cache. Counts are approximate: they are changed without locks, and halved page by
 * page as searches go on, so that old uses are forgotten. All tables together
 * keep no more pages than pipeann.hot_pages allows.
 */
#ifndef PIPEANN_HOT_TABLE_H
#define PIPEANN_HOT_TABLE_H

#include "hints/hints.h"

/* Note a search: age the counts by its uses. */
extern void PipeannHotAge(const PipeannHot *hot, uint32 uses);

/* Whether a page was brought in and not given up since. */
extern bool PipeannHotIsKept(const PipeannPageUses *table, uint32 page);

/*
 * Fill pages[most] with the next kept pages, from where the last call of any
 * backend stopped; returns how many. Looks at a bounded part of the table.
 */
extern int	PipeannHotNextKept(PipeannPageUses *table, uint32 *pages, int most);

/* Keep a page of so many blocks. False if the limit leaves no room. */
extern bool PipeannHotKeep(const PipeannHot *hot, uint32 page, int blocks);

/* Keep page "in" instead of "out". False if "out" is not kept any more. */
extern bool PipeannHotReplace(const PipeannHot *hot, uint32 out, uint32 in,
							  int blocks);

/* Stop keeping a page. False if it was not kept. */
extern bool PipeannHotGiveUp(const PipeannHot *hot, uint32 page, int blocks);

/*
 * Whether the table has to give pages up: more are kept than the limit allows,
 * or an index with less than its share was refused room lately.
 */
extern bool PipeannHotHasSurplus(const PipeannHot *hot);

#endif							/* PIPEANN_HOT_TABLE_H */
