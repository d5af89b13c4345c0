/*
 * join.c
 *		A row that joins a node; what of a row or a vector does not fit a slot.
 */
#include "postgres.h"

#include "base/pause.h"
#include "distance/sparse.h"
#include "index/index.h"
#include "miscadmin.h"

/*
 * Try to add the row to overflow slot first of node id. Sets *number to the
 * slot's number in any case.
 */
static bool
AddToExt(PipeannIndexView *view, uint32 id, uint32 first,
		 const PipeannRow *row, uint32 *number)
{
	PipeannPageUpdate update;

	PipeannSlotBegin(view, first, &update);
	*number = update.slot->number;
	if (!PipeannSlotIsTidsOf(update.slot, id) ||
		(update.slot->flags & PIPEANN_SLOT_CLOSED) ||
		!PipeannSlotAddRow(&view->meta.layout, update.slot, row))
	{
		PipeannPageAbort(&update);
		return false;
	}
	PipeannPageEnd(&update);
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
	PipeannPageUpdate update;
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
	pushed = PipeannSlotIsLive(update.slot) && update.slot->ext_tids == old_first;
	if (pushed)
	{
		update.slot->ext_tids = ext_id;
		PipeannPageEnd(&update);
		return true;
	}
	PipeannPageAbort(&update);
	PipeannSlotBegin(view, ext_id, &update);
	update.slot->flags = 0;
	PipeannPageEnd(&update);
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
		PipeannPageUpdate update;
		uint32		first;
		uint32		number = 0;

		CHECK_FOR_INTERRUPTS();
		/* notes a change of the node, wherever the row comes to stand */
		PipeannSlotBegin(view, id, &update);
		if (!PipeannSlotIsLive(update.slot))
		{
			PipeannPageAbort(&update);
			return false;
		}
		if (PipeannSlotAddRow(l, update.slot, row))
		{
			PipeannPageEnd(&update);
			return true;
		}
		first = update.slot->ext_tids;
		PipeannPageAbort(&update);
		PIPEANN_PAUSE("chain-first-read");
		if (first != PIPEANN_INVALID_ID &&
			AddToExt(view, id, first, row, &number))
			return true;
		if (PushExt(view, id, first, number, row))
			return true;
	}
}

/* What is out of line of a whole vector. */
const float *
PipeannOutOfLine(const PipeannLayout *l, const float *x)
{
	return PipeannIsSparse(l->storage) ? PipeannSparseBehind(x) : x;
}

/*
 * Write data to overflow slots, for a vector or a row that does not fit a
 * node's slot; returns the first one.
 *
 * The last part is written first, so that each slot can name the next.
 */
uint32
PipeannWriteParts(PipeannIndexView *view, const void *data, Size total)
{
	const PipeannLayout *l = &view->meta.layout;
	Size		part_size = PipeannPartBytes(l);
	uint32		parts = PipeannPartsOf(l, total);
	uint32		next = PIPEANN_INVALID_ID;

	while (parts-- > 0)
	{
		PipeannSlot *ext = PipeannSlotAlloc(l);

		ext->flags = PIPEANN_SLOT_USED | PIPEANN_SLOT_EXT;
		ext->length = Min(part_size, total - parts * part_size);
		ext->ext_vec = next;
		memcpy(PipeannSlotBody(ext), (const char *) data + parts * part_size,
			   ext->length);
		next = PipeannPlaceSlot(view, PIPEANN_INVALID_ID, ext);
		pfree(ext);
	}
	return next;
}

/*
 * A row in the form in which a slot holds it: the row itself, or what stands in
 * its place when this has written it to overflow slots.
 */
const PipeannRow *
PipeannStoreRow(PipeannIndexView *view, const PipeannRow *row)
{
	PipeannRowOutOfLine *out_of_line;

	if (!PipeannRowIsLong(&view->meta.layout, row))
		return row;
	out_of_line = palloc(sizeof(PipeannRowOutOfLine));
	*out_of_line =
		PipeannRowSetOutOfLine(row,
							   PipeannWriteParts(view, row,
												 row->info & PIPEANN_ROW_SIZE));
	return &out_of_line->row;
}
