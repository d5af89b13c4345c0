/*
 * chain.c
 *		Overflow slots: rows and vectors that do not fit a node's slot.
 *
 * A scan holds no lock from one slot to the next, and VACUUM frees slots.
 * Owner and number show that a slot of TIDs is gone or used again: then the
 * walk starts again from the node, and goes on with the first slot that is
 * numbered below the last one read. Slots with higher numbers were read
 * already, or came later and hold nothing that the scan's snapshot sees; TIDs
 * never change places. A node that is gone held nothing that any snapshot
 * sees.
 */
#include "postgres.h"

#include "base/pause.h"
#include "index/index.h"
#include "distance/sparse.h"
#include "utils/rel.h"

/* A chain that has to be walked again more often than this is broken. */
#define MAX_REWINDS 20

static void
ChainError(const PipeannIndexView *view, uint32 id)
{
	PipeannCorrupted(view->index, "has an invalid overflow slot %u", id);
}

/*
 * Lock the page of a slot, shared. Page and slot may be newer than the view.
 * Errors if there is no such page.
 */
Buffer
PipeannReadSlot(const PipeannIndexView *view, uint32 id,
				BufferAccessStrategy strategy, PipeannSlot **slot)
{
	const PipeannLayout *l = &view->meta.layout;
	BlockNumber blkno;
	Buffer		buffer;

	CHECK_FOR_INTERRUPTS();
	blkno = PipeannViewBlock(view, PipeannIdPage(l, id));
	buffer = PipeannReadBuffer(view->index, blkno, PIPEANN_GRAPH,
							   BUFFER_LOCK_SHARE, false, strategy);
	*slot = PipeannSlotAt(l, PipeannPagePayload(BufferGetPage(buffer)),
						  PipeannIdSlot(l, id));
	return buffer;
}

static void
Rewind(const PipeannIndexView *view, PipeannChain *chain)
{
	PipeannSlot *slot;
	Buffer		buffer;

	if (++chain->rewinds > MAX_REWINDS)
		ChainError(view, chain->next);
	buffer = PipeannReadSlot(view, chain->owner, NULL, &slot);
	chain->next = PipeannSlotIsNode(slot) ? slot->ext_tids :
		PIPEANN_INVALID_ID;
	UnlockReleaseBuffer(buffer);
}

/*
 * Copy the rows of the next overflow slot to copy[PipeannExtBytes()]. Errors
 * if the chain is broken.
 */
PipeannRowList
PipeannChainRead(const PipeannIndexView *view, PipeannChain *chain,
				 void *copy)
{
	PipeannRowList rows = {.rows = copy};
	bool		found = false;

	chain->slot = PIPEANN_INVALID_ID;
	while (!found && chain->next != PIPEANN_INVALID_ID)
	{
		PipeannSlot *slot;
		Buffer		buffer = PipeannReadSlot(view, chain->next, NULL, &slot);
		bool		ours = PipeannSlotIsTidsOf(slot, chain->owner);

		if (++chain->steps > (uint64) PipeannViewIds(view) * MAX_REWINDS)
			PipeannCorrupted(view->index,
							 "has a cycle in an overflow chain at slot %u",
							 chain->next);
		if (ours)
		{
			/* numbers wrap around */
			if (!chain->begun || (int32) (slot->number - chain->number) < 0)
			{
				rows = PipeannExtRows(&view->meta.layout, slot);
				memcpy(copy, rows.rows, rows.bytes);
				rows.rows = copy;
				if (PIPEANN_PLANTED("chain-row") && rows.n > 0)
					rows.n--;
				chain->slot = chain->next;
				chain->number = slot->number;
				chain->begun = found = true;
			}
			chain->next = slot->ext_tids;
		}
		UnlockReleaseBuffer(buffer);
		if (!ours)
			Rewind(view, chain);
	}
	return rows;
}

/*
 * Read total bytes from the chain of slots that begins at *at. False if one of
 * them is not what it should be; *at is then that slot.
 */
static bool
ReadParts(const PipeannIndexView *view, uint32 *at, void *out, Size total)
{
	char	   *to = out;

	while (total > 0)
	{
		PipeannSlot *slot;
		Buffer		buffer = PipeannReadSlot(view, *at, NULL, &slot);
		Size		part = slot->length;
		bool		ok = (slot->flags & PIPEANN_SLOT_EXT) && part > 0 &&
			part <= Min(total, (Size) PipeannExtBytes(&view->meta.layout));

		if (ok)
		{
			memcpy(to, PipeannSlotBody(slot), part);
			to += part;
			total -= part;
			*at = slot->ext_vec;
		}
		UnlockReleaseBuffer(buffer);
		if (!ok)
			return false;
	}
	return true;
}

/*
 * Read the exact vector of an out-of-line node into x[dim], or if it is sparse
 * behind that, without a projection. False if VACUUM has removed the node meanwhile.
 */
bool
PipeannChainVector(const PipeannIndexView *view, uint32 id,
				   const PipeannSlot *node, float *x)
{
	const PipeannLayout *l = &view->meta.layout;
	float	   *to = PipeannIsSparse(l->storage) ? PipeannSparseBehind(x) : x;
	Size		bytes = PipeannOutOfLineBytes(l, node);
	uint32		at = node->ext_vec;
	PipeannSlot *slot;
	Buffer		buffer;
	bool		there;

	if (ReadParts(view, &at, to, bytes))
	{
		if (PipeannIsSparse(l->storage))
			PipeannSparseTrim(to, bytes / sizeof(float));
		return true;
	}
	buffer = PipeannReadSlot(view, id, NULL, &slot);
	there = PipeannSlotIsLive(slot) && slot->ext_vec == node->ext_vec;
	UnlockReleaseBuffer(buffer);
	if (there)
		ChainError(view, at);
	return false;
}

/*
 * Whether a row that was read whole is still in its slots. The parts of a row are
 * freed together, so as long as the first part is the row's all parts read were.
 */
static bool
IsStillThere(const PipeannIndexView *view, const PipeannRow *row,
			 PipeannRow *whole)
{
	PipeannSlot *slot;
	Buffer		buffer = PipeannReadSlot(view, PipeannRowFirstPart(row), NULL,
										 &slot);
	bool		same = (slot->flags & PIPEANN_SLOT_EXT) &&
		slot->length <= PipeannExtBytes(&view->meta.layout) &&
		slot->length <= (whole->info & PIPEANN_ROW_SIZE) &&
		memcmp(PipeannSlotBody(slot), whole, slot->length) == 0 &&
		ItemPointerEquals(&whole->tid, unconstify(ItemPointerData *, &row->tid));

	UnlockReleaseBuffer(buffer);
	return same;
}

/*
 * The whole of a row that is out of line, palloc'd. NULL if it is removable,
 * and VACUUM has removed it meanwhile. It is not removable if a snapshot sees
 * it, or VACUUM is kept out: then a missing row is an error.
 */
PipeannRow *
PipeannReadRow(const PipeannIndexView *view, const PipeannRow *row,
			   bool removable)
{
	Size		length = PipeannRowLength(&view->meta.layout, row);
	PipeannRow *whole = palloc(Max(length, sizeof(PipeannRow)));
	uint32		at = PipeannRowFirstPart(row);

	if (ReadParts(view, &at, whole, length) &&
		(whole->info & PIPEANN_ROW_SIZE) == length &&
		(!removable || IsStillThere(view, row, whole)))
		return whole;
	if (!removable)
		ChainError(view, at);
	pfree(whole);
	return NULL;
}
