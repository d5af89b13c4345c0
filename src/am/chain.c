/*
 * chain.c
 *		Overflow slots: TIDs and vectors that do not fit a node's slot.
 */
#include "postgres.h"

#include "am/am.h"
#include "utils/rel.h"

static void
ChainError(const PipeannIndexView *view, uint32 id)
{
	ereport(ERROR,
			(errcode(ERRCODE_INDEX_CORRUPTED),
			 errmsg("index \"%s\" has an invalid overflow slot %u",
					RelationGetRelationName(view->index), id),
			 errhint("Run REINDEX INDEX \"%s\".",
					 RelationGetRelationName(view->index))));
}

/*
 * Lock the page of an overflow slot.
 */
static Buffer
LockSlot(const PipeannIndexView *view, uint32 id, PipeannSlot **slot)
{
	const PipeannLayout *l = &view->meta.layout;
	BlockNumber blkno;
	Buffer		buffer;

	CHECK_FOR_INTERRUPTS();
	blkno = PipeannGraphBlock(view->map, l, PipeannIdPage(l, id));
	if (blkno == InvalidBlockNumber)
		ChainError(view, id);
	buffer = PipeannReadBuffer(view->index, blkno, PIPEANN_GRAPH,
							   BUFFER_LOCK_SHARE, false, NULL);
	*slot = PipeannSlotAt(l, PipeannPagePayload(BufferGetPage(buffer)),
						  PipeannIdSlot(l, id));
	if (((*slot)->flags & (PIPEANN_SLOT_USED | PIPEANN_SLOT_EXT)) !=
		(PIPEANN_SLOT_USED | PIPEANN_SLOT_EXT))
		ChainError(view, id);
	return buffer;
}

int
PipeannChainRead(const PipeannIndexView *view, uint32 id,
				 ItemPointerData *tids, uint32 *next)
{
	PipeannSlot *slot;
	Buffer		buffer = LockSlot(view, id, &slot);
	int			n = Min(slot->ntids, PipeannExtTids(&view->meta.layout));

	memcpy(tids, PipeannSlotBody(slot), n * sizeof(ItemPointerData));
	*next = slot->ext_tids;
	UnlockReleaseBuffer(buffer);
	return n;
}

void
PipeannChainVector(const PipeannIndexView *view, const PipeannSlot *node,
				   float *x)
{
	Size		left = mul_size(view->meta.layout.dim, sizeof(float));
	char	   *out = (char *) x;
	uint32		id = node->ext_vec;

	while (left > 0)
	{
		PipeannSlot *slot;
		Buffer		buffer = LockSlot(view, id, &slot);
		Size		part = slot->length;

		if (part == 0 || part > left ||
			part > PipeannExtBytes(&view->meta.layout))
			ChainError(view, id);
		memcpy(out, PipeannSlotBody(slot), part);
		out += part;
		left -= part;
		id = slot->ext_vec;
		UnlockReleaseBuffer(buffer);
	}
}
