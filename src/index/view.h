/*
 * view.h
 *		One open index, room for slots in it, and writing them; part of index.h.
 */
#ifndef PIPEANN_INDEX_VIEW_H
#define PIPEANN_INDEX_VIEW_H

#include "cache/cache.h"
#include "storage/freespace.h"
#include "storage/storage.h"
#include "utils/rel.h"

/* What scans, inserts and SQL functions need to search an index. */
typedef struct PipeannIndexView
{
	Relation	index;
	MemoryContext context;		/* holds the cache */
	PipeannMeta meta;
	PipeannCache *cache;		/* NULL if the index has no codes */
	PipeannCodes codes;
	bool		all_entries;	/* a refreshed view has the whole entry graph */
} PipeannIndexView;

/* All ids are below this. */
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
								  &view->meta.extents, view->meta.graph_pages);
}

/* In which buffers its graph pages were seen last, and found sound; NULL if that is not noted. */
static inline PipeannSeenPages *
PipeannViewSeen(const PipeannIndexView *view)
{
	return view->cache == NULL ? NULL : view->cache->seen;
}

/* A source of the index's graph pages, valid until the view changes. */
static inline PipeannPageSource *
PipeannViewSource(const PipeannIndexView *view, PipeannCounters *counters)
{
	return PipeannSourceOpen(view->index, &view->meta.layout, &view->meta.extents,
							 view->meta.graph_pages, PipeannViewSeen(view), counters);
}

/* view.c */
extern void PipeannOpenView(PipeannIndexView *view, Relation index);
extern void PipeannPeekView(PipeannIndexView *view, Relation index);
extern void PipeannRefreshView(PipeannIndexView *view);
extern BlockNumber PipeannViewBlock(const PipeannIndexView *view, uint32 page);
extern Relation PipeannOpenIndex(Oid relid);

/* ---------- slots and codes ---------- */

/*
 * A change of a page that is locked exclusively and registered for WAL: End writes the
 * record, Abort drops the changes; both release the page.
 */
typedef struct PipeannPageUpdate
{
	Buffer		buffer;
	GenericXLogState *state;
	Page		page;
	bool		is_new;			/* the page */
	PipeannSlot *slot;			/* the slot to be changed, set by PipeannSlotBegin() */
} PipeannPageUpdate;

typedef void (*PipeannFillAttributes) (uint32 id, uint8 *attributes,
									   void *arg);

/* Inserts keep slots for a tenth more nodes, so that nodes can be placed near others. */
#define PIPEANN_WANTED_SLOTS 1.1

/* Whether the index has at least as many free slots as inserts want. */
static inline bool
PipeannHasSpareSlots(const PipeannIndexView *view)
{
	return PIPEANN_WANTED_SLOTS * view->meta.nodes < PipeannViewIds(view);
}

/*
 * Lock a graph page's first block, which was written, and check it unless it
 * was found sound in that buffer before.
 */
static inline Buffer
PipeannLockGraphPage(const PipeannIndexView *view, uint32 page, int lockmode,
					 BufferAccessStrategy strategy)
{
	BlockNumber blkno = PipeannViewBlock(view, page);
	Buffer		buffer = PipeannLockSeen(view->index, blkno,
										 PipeannViewSeen(view), page, lockmode);

	if (BufferIsValid(buffer) && !PageIsNew(BufferGetPage(buffer)))
		return buffer;
	if (BufferIsValid(buffer))
		UnlockReleaseBuffer(buffer);
	return PipeannReadBuffer(view->index, blkno, PIPEANN_GRAPH, lockmode, false,
							 strategy);
}

/* place.c */
extern uint32 PipeannPlaceSlot(PipeannIndexView *view, uint32 near,
							   const PipeannSlot *slot);
extern void PipeannSlotBegin(const PipeannIndexView *view, uint32 id,
							 PipeannPageUpdate *update);
extern void PipeannSlotCopy(const PipeannIndexView *view, uint32 id,
							PipeannSlot *slot);
extern bool PipeannGraphPageCopy(const PipeannIndexView *view, uint32 page,
								 char *nodes);
extern bool PipeannChangeCode(PipeannIndexView *view, uint32 id,
							  const uint8 *vector_code,
							  PipeannFillAttributes fill, void *arg);
extern void PipeannClearAttributes(PipeannIndexView *view, uint32 code_page,
								   const bool *which);
extern void PipeannNoteCodePages(PipeannIndexView *view, const uint32 *pages,
								 uint32 n);
extern void PipeannFreeRecord(const PipeannIndexView *view, uint32 page,
							  uint32 slots);

/*
 * Extend the free space map for one more stripe, so that VACUUM can note free
 * slots even when the disk is full.
 */
static inline void
PipeannFreeReserve(Relation index, const PipeannMeta *meta)
{
	const PipeannLayout *l = &meta->layout;

	RecordPageWithFreeSpace(index,
							PipeannGraphBlock(&meta->extents, l, meta->graph_pages +
											  l->stripe_pages), 0);
}

/* Bytes of a slot buffer; palloc0'd by PipeannSlotAlloc(). */
static inline PipeannSlot *
PipeannSlotAlloc(const PipeannLayout *layout)
{
	PipeannSlot *slot = palloc0(layout->slot_size);

	slot->ext_tids = PIPEANN_INVALID_ID;
	slot->ext_vec = PIPEANN_INVALID_ID;
	return slot;
}

static inline void
PipeannPageEnd(PipeannPageUpdate *update)
{
	PipeannPageSeal(update->page, BufferGetBlockNumber(update->buffer));
	GenericXLogFinish(update->state);
	UnlockReleaseBuffer(update->buffer);
}

static inline void
PipeannPageAbort(PipeannPageUpdate *update)
{
	GenericXLogAbort(update->state);
	UnlockReleaseBuffer(update->buffer);
}

#endif							/* PIPEANN_INDEX_VIEW_H */
