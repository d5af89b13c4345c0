/*
 * release.c
 *		VACUUM's last pass frees the slots to which nothing leads any more.
 */
#include "postgres.h"

#include "vacuum/passes.h"
#include "utils/rel.h"

static bool
HasFreed(const PipeannVacuum *v, uint32 page)
{
	for (uint32 i = 0; i < v->view.meta.layout.slots_per_page; i++)
		if (PipeannVacuumFreesSlot(v, PipeannVacuumId(v, page, i)))
			return true;
	return false;
}

/* Clear the header only: the next user of the slot sets all of it. */
static void
FreeSlot(PipeannVacuum *v, PipeannSlot *slot)
{
	if (PipeannSlotIsNode(slot))
		v->freed++;
	memset(slot, 0, PIPEANN_SLOT_HEADER);
}

static void
ReleasePage(PipeannVacuum *v, uint32 number)
{
	const PipeannLayout *l = &v->view.meta.layout;
	Buffer		buffer = PipeannVacuumPage(v, number, BUFFER_LOCK_EXCLUSIVE);
	GenericXLogState *xlog;
	Page		page;

	if (!BufferIsValid(buffer))
		return;
	xlog = GenericXLogStart(v->view.index);
	page = GenericXLogRegisterBuffer(xlog, buffer, 0);
	for (uint32 i = 0; i < l->slots_per_page; i++)
	{
		PipeannSlot *slot = PipeannSlotAt(l, PipeannPagePayload(page), i);

		if (PipeannVacuumFreesSlot(v, PipeannVacuumId(v, number, i)) &&
			!PipeannSlotIsLive(slot))
			FreeSlot(v, slot);
	}
	PipeannPageSeal(page, BufferGetBlockNumber(buffer));
	GenericXLogFinish(xlog);
	PipeannVacuumNoteFree(v, number, BufferGetPage(buffer), true);
	UnlockReleaseBuffer(buffer);
}

/* Free the slots of dead nodes and of garbage. */
void
PipeannVacuumRelease(PipeannVacuum *v)
{
	PipeannVacuumClearCodes(v);
	PipeannVacuumBeginPass(v);
	for (uint32 page = 0; page < v->pages; page++)
		if (HasFreed(v, page))
			ReleasePage(v, page);
}
