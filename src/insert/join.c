/*
 * join.c
 *		A row that joins the node of its vector.
 */
#include "postgres.h"

#include "base/pause.h"
#include "insert/join.h"
#include "miscadmin.h"

/*
 * Try to add the row to overflow slot first of node id. Sets *number to the
 * slot's number in any case.
 */
static bool
AddToExt(PipeannIndexView *view, uint32 id, uint32 first,
		 const PipeannRow *row, uint32 *number)
{
	PipeannSlotUpdate update;

	PipeannSlotBegin(view, first, &update);
	*number = update.slot->number;
	if (!PipeannSlotIsTidsOf(update.slot, id) ||
		(update.slot->flags & PIPEANN_SLOT_CLOSED) ||
		!PipeannSlotAddRow(&view->meta.layout, update.slot, row))
	{
		PipeannSlotAbort(&update);
		return false;
	}
	PipeannSlotEnd(&update);
	return true;
}

/*
 * Put a new overflow slot with the row in front of the node's others, of which
 * old_first has the given number. False if another insert has changed the chain
 * meanwhile or the node has died; then the new slot is emptied again.
 */
static bool
PushExt(PipeannIndexView *view, uint32 id, uint32 old_first,
		uint32 number, const PipeannRow *row)
{
	PipeannSlot *ext = PipeannSlotAlloc(&view->meta.layout);
	PipeannSlotUpdate update;
	uint32		ext_id;
	bool		pushed;

	ext->flags = PIPEANN_SLOT_USED | PIPEANN_SLOT_EXT;
	ext->ext_tids = old_first;
	ext->owner = id;
	ext->number = number + 1;
	(void) PipeannSlotAddRow(&view->meta.layout, ext, row);
	ext_id = PipeannPlaceSlot(view, PIPEANN_INVALID_ID, ext);
	pfree(ext);
	PIPEANN_PAUSE("chain-slot-written");

	PipeannSlotBegin(view, id, &update);
	pushed = PipeannSlotIsLive(update.slot) &&
		update.slot->ext_tids == old_first;
	if (pushed)
	{
		update.slot->ext_tids = ext_id;
		PipeannSlotEnd(&update);
		return true;
	}
	PipeannSlotAbort(&update);
	PipeannSlotBegin(view, ext_id, &update);
	update.slot->flags = 0;
	PipeannSlotEnd(&update);
	return false;
}

/*
 * Add a row to node id, inline if there is room, else in an overflow slot.
 * False if the node has died meanwhile.
 */
bool
PipeannJoinNode(PipeannIndexView *view, uint32 id, const PipeannRow *row)
{
	const PipeannLayout *l = &view->meta.layout;

	for (;;)
	{
		PipeannSlotUpdate update;
		uint32		first;
		uint32		number = 0;

		CHECK_FOR_INTERRUPTS();
		PipeannSlotBegin(view, id, &update);
		if (!PipeannSlotIsLive(update.slot))
		{
			PipeannSlotAbort(&update);
			return false;
		}
		if (PipeannSlotAddRow(l, update.slot, row))
		{
			PipeannSlotEnd(&update);
			return true;
		}
		first = update.slot->ext_tids;
		PipeannSlotAbort(&update);
		if (first != PIPEANN_INVALID_ID &&
			AddToExt(view, id, first, row, &number))
			return true;
		if (PushExt(view, id, first, number, row))
			return true;
	}
}
