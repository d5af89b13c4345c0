/*
 * place.h
 *		Finding room for slots and writing them; part of index.h.
 */
#ifndef PIPEANN_INDEX_PLACE_H
#define PIPEANN_INDEX_PLACE_H

#include "index/view.h"

/*
 * Change a slot: Begin locks its page exclusively and registers it for WAL; End
 * writes the record, Abort drops the changes; both release the page.
 */
typedef struct PipeannSlotUpdate
{
	Buffer		buffer;
	BlockNumber blkno;
	GenericXLogState *state;
	Page		page;
	PipeannSlot *slot;
} PipeannSlotUpdate;

/*
 * Change several graph pages (their first blocks) under one WAL record, at
 * most MAX_GENERIC_XLOG_PAGES. They are locked exclusively, in ascending order
 * of their ids. End writes the record and releases the registered pages.
 */
typedef struct PipeannPagesUpdate
{
	const PipeannIndexView *view;
	GenericXLogState *state;
	int			n;				/* registered */
	Buffer		buffers[MAX_GENERIC_XLOG_PAGES];
	Page		pages[MAX_GENERIC_XLOG_PAGES];
} PipeannPagesUpdate;

typedef void (*PipeannFillAttributes) (uint32 id, uint8 *attributes,
									   void *arg);

/* place.c */
extern uint32 PipeannPlaceSlot(PipeannIndexView *view, uint32 near,
							   const PipeannSlot *slot);
extern bool PipeannHasSpareSlots(const PipeannIndexView *view);
extern int	PipeannWantedFill(const PipeannLayout *l);
extern void PipeannSlotBegin(const PipeannIndexView *view, uint32 id,
							 PipeannSlotUpdate *update);
extern Buffer PipeannPagesLock(PipeannPagesUpdate *update, uint32 id);
extern Page PipeannPagesRegister(PipeannPagesUpdate *update, Buffer buffer);
extern void PipeannPagesEnd(PipeannPagesUpdate *update);
extern void PipeannSlotCopy(const PipeannIndexView *view, uint32 id,
							PipeannSlot *slot);
extern bool PipeannGraphPageCopy(const PipeannIndexView *view, uint32 page,
								 char *nodes);
extern void PipeannPlaceCode(PipeannIndexView *view, const PipeannLayout *l,
							 uint32 generation,
							 uint32 id, uint8 *code,
							 PipeannFillAttributes fill, void *arg);
extern bool PipeannChangeAttributes(PipeannIndexView *view, uint32 generation,
									uint32 id, PipeannFillAttributes fill,
									void *arg);
extern void PipeannClearAttributes(PipeannIndexView *view, uint32 code_page,
								   const bool *which);
extern void PipeannNoteCodePages(PipeannIndexView *view, const uint32 *pages,
								 uint32 n);
extern uint64 PipeannNoteNode(PipeannIndexView *view, uint32 id, bool is_new,
							  double strayed);
extern void PipeannFreeReserve(Relation index, uint32 extents);
extern void PipeannFreeRecord(const PipeannIndexView *view, uint32 page,
							  uint32 slots);

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
PipeannSlotEnd(PipeannSlotUpdate *update)
{
	PipeannPageSeal(update->page, update->blkno);
	GenericXLogFinish(update->state);
	UnlockReleaseBuffer(update->buffer);
}

static inline void
PipeannSlotAbort(PipeannSlotUpdate *update)
{
	GenericXLogAbort(update->state);
	UnlockReleaseBuffer(update->buffer);
}

static inline void
PipeannPagesBegin(const PipeannIndexView *view, PipeannPagesUpdate *update)
{
	update->view = view;
	update->state = GenericXLogStart(view->index);
	update->n = 0;
}

#endif							/* PIPEANN_INDEX_PLACE_H */
