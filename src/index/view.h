/*
 * view.h
 *		One open index; part of index.h.
 */
#ifndef PIPEANN_INDEX_VIEW_H
#define PIPEANN_INDEX_VIEW_H

#include "cache/cache.h"
#include "storage/storage.h"
#include "utils/rel.h"

/* What scans, inserts and SQL functions need to search an index. */
typedef struct PipeannIndexView
{
	Relation	index;
	MemoryContext context;		/* holds the cache */
	PipeannMeta meta;
	PipeannCache *cache;		/* NULL if the index has no codes */
	uint64		build_id;		/* of the cache */
	PipeannCodes codes;
	bool		all_entries;	/* a refreshed view has the whole entry graph */
} PipeannIndexView;

/* Ids are below this. */
static inline uint32
PipeannViewIds(const PipeannIndexView *view)
{
	return view->meta.graph_pages * view->meta.layout.slots_per_page;
}

/* Graph pages that were written. */
static inline uint32
PipeannViewPages(const PipeannIndexView *view)
{
	return PipeannCountGraphPages(view->index, &view->meta.layout,
								  &view->meta.places, view->meta.graph_pages);
}

/* In which buffers its graph pages were seen last, and found sound; NULL if nobody notes it. */
static inline PipeannSeenPages *
PipeannViewSeen(const PipeannIndexView *view)
{
	return view->cache == NULL ? NULL : view->cache->seen;
}

/* A source of its graph pages, as long as the view stays as it is. */
static inline PipeannPageSource *
PipeannViewSource(const PipeannIndexView *view, PipeannCounters *counters)
{
	return PipeannSourceOpen(view->index, &view->meta.layout, &view->meta.places,
							 view->meta.graph_pages, PipeannViewSeen(view), counters);
}

/* view.c */
extern void PipeannOpenView(PipeannIndexView *view, Relation index);
extern void PipeannPeekView(PipeannIndexView *view, Relation index);
extern void PipeannRefreshView(PipeannIndexView *view);
extern BlockNumber PipeannViewBlock(const PipeannIndexView *view, uint32 page);
extern Relation PipeannOpenIndex(Oid relid);

/* degree.c */
extern int	PipeannChooseM(Relation heap, const char *vectors, uint32 n,
						   const PipeannLayout *base, int max_m,
						   PipeannDegree *degree);
extern char *PipeannDegreeText(const PipeannMeta *meta);

#endif							/* PIPEANN_INDEX_VIEW_H */
