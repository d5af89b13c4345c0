/*
 * rows.c
 *		The rows of a node, in its slot and in overflow slots.
 */
#include "storage/storage.h"

/* Add a row behind the others of a slot; false if it has no room for it. */
bool
PipeannSlotAddRow(const PipeannLayout *l, PipeannSlot *slot,
				  const PipeannRow *row)
{
	PipeannRowList list = PipeannAnyRows(l, slot);
	uint32		size = PipeannRowSize(l, row);
	uint32		room = slot->flags & PIPEANN_SLOT_EXT ? PipeannExtBytes(l) :
		PipeannInlineBytes(l);

	if (list.n < slot->ntids || list.bytes + size > room)
		return false;
	memcpy((char *) list.rows + list.bytes, row, size);
	slot->ntids++;
	return true;
}

/*
 * Remove the rows for which is_dead() is true, in place. Returns how many were removed.
 */
uint32
PipeannSlotRemoveRows(const PipeannLayout *l, PipeannSlot *slot,
					  PipeannRowIsDead is_dead, void *arg)
{
	PipeannRowList list = PipeannAnyRows(l, slot);
	PipeannRow *row = list.rows;
	char	   *kept = (char *) list.rows;
	uint32		removed = 0;

	for (uint32 i = 0; i < list.n; i++)
	{
		uint32		size = PipeannRowSize(l, row);
		PipeannRow *next = PipeannRowNext(l, row);

		if (is_dead(row, arg))
			removed++;
		else
		{
			memmove(kept, row, size);
			kept += size;
		}
		row = next;
	}
	if (removed > 0)
		slot->ntids = list.n - removed;
	return removed;
}
