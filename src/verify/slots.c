/*
 * slots.c
 *		Each slot by itself: flags, counts, TIDs, links, vector.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "verify/verify.h"

#define KNOWN_FLAGS \
	(PIPEANN_SLOT_USED | PIPEANN_SLOT_EXT | PIPEANN_SLOT_OUT_OF_LINE | \
	 PIPEANN_SLOT_CLOSED)

static void
CheckFlags(const PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	if (slot->flags & ~KNOWN_FLAGS)
		PipeannCheckReport(check, id, "has unknown flags");
	if (slot->flags != 0 && !(slot->flags & PIPEANN_SLOT_USED))
		PipeannCheckReport(check, id, "is free but has flags");
	if ((slot->flags & PIPEANN_SLOT_EXT) && (slot->flags & PIPEANN_SLOT_OUT_OF_LINE))
		PipeannCheckReport(check, id, "is an overflow slot with a vector");
	if ((slot->flags & PIPEANN_SLOT_OUT_OF_LINE) &&
		!(check->view.meta.flags & PIPEANN_META_AUTO_STORAGE))
		PipeannCheckReport(check, id,
						   "has an out-of-line vector in an index that has none");
}

static void
CheckRows(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &check->view.meta.layout;
	PipeannRowList list = PipeannAnyRows(l, slot);
	const PipeannRow *row = list.rows;
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];

	for (uint32 i = 0; i < list.n; i++, row = PipeannRowNext(l, row))
	{
		if (check->columns.values != NULL && !PipeannRowIsApart(l, row) &&
			!PipeannDeformRow(check->columns.values, row, values, isnull))
			PipeannCheckReport(check, id, "has a row with broken values");
		if (!ItemPointerIsValid(&row->tid) ||
			ItemPointerGetOffsetNumberNoCheck(&row->tid) > MaxOffsetNumber)
			PipeannCheckReport(check, id, "has an invalid heap TID");
	}
	check->tids += list.n;
}

static void
CheckExtSlot(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &check->view.meta.layout;

	check->seen[id] |= PIPEANN_SEEN_EXT;
	if ((slot->length == 0 && slot->ntids > PipeannExtRows(l, slot).n) ||
		slot->length > PipeannExtBytes(l))
		PipeannCheckReport(check, id,
						   "is an overflow slot with too much in it");
	CheckRows(check, id, slot);
}

static void
CheckNode(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &check->view.meta.layout;

	check->seen[id] |= PIPEANN_SEEN_NODE;
	check->count++;
	if (slot->degree > l->max_degree)
		PipeannCheckReport(check, id, "has too many neighbours");
	if (slot->tree_edges > slot->degree)
		PipeannCheckReport(check, id, "has more spanning-tree edges than edges");
	if (slot->ntids > PipeannSlotRows(l, slot).n)
		PipeannCheckReport(check, id, "has too many inline TIDs");
	CheckRows(check, id, slot);
	PipeannCheckChains(check, id, slot);
	if (slot->ntids == 0 && slot->ext_tids == PIPEANN_INVALID_ID)
		return;
	check->seen[id] |= PIPEANN_SEEN_ROWS;
	PipeannCheckVector(check, id, slot);
}

static void
CheckSlot(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	MemoryContext old;

	CheckFlags(check, id, slot);
	if (!(slot->flags & PIPEANN_SLOT_USED))
		return;
	old = MemoryContextSwitchTo(check->scratch);
	if (slot->flags & PIPEANN_SLOT_EXT)
		CheckExtSlot(check, id, slot);
	else
		CheckNode(check, id, slot);
	MemoryContextSwitchTo(old);
	MemoryContextReset(check->scratch);
}

void
PipeannCheckSlots(PipeannCheck *check)
{
	PipeannCheckSweep(check, NULL, CheckSlot);
}
