/*
 * overflow.c
 *		VACUUM takes overflow slots out of their chains.
 *
 * The first pass closed the slots that hold no TID, so no insert fills them
 * any more. Inserts only put slots in front of a chain, so a link to a closed
 * slot can be set to the slot behind it; only the link in the node may have
 * changed meanwhile. A slot out of its chain is garbage. Scans that still know
 * of it notice that it is not theirs (index/chain.c).
 */
#include "postgres.h"

#include "vacuum/passes.h"
#include "utils/rel.h"

/* As PipeannReadSlot(). */
static Buffer
ReadSlot(const PipeannVacuum *v, uint32 id, PipeannSlot **slot)
{
	return PipeannReadSlot(&v->view, id, v->info->strategy, slot);
}

/*
 * A walk along the overflow slots of a node. Their numbers fall from each to
 * the next, so a chain that leads back to itself is noticed at once.
 */
typedef struct ChainWalk
{
	uint32		owner;			/* the node */
	bool		begun;
	uint32		number;			/* of the slot passed last */
} ChainWalk;

static void
ChainError(const PipeannVacuum *v, const ChainWalk *walk, uint32 id)
{
	ereport(ERROR,
			(errcode(ERRCODE_INDEX_CORRUPTED),
			 errmsg("index \"%s\" has a broken chain of overflow slots at slot %u of node %u",
					RelationGetRelationName(v->view.index), id, walk->owner),
			 errhint("Run REINDEX INDEX \"%s\".",
					 RelationGetRelationName(v->view.index))));
}

/*
 * Skip the closed slots of a chain from id on. Returns the first open one, or
 * INVALID_ID, and sets *after to the slot behind it.
 */
static uint32
NextOpen(const PipeannVacuum *v, ChainWalk *walk, uint32 id, uint32 *after)
{
	bool		open = false;

	*after = PIPEANN_INVALID_ID;
	while (id != PIPEANN_INVALID_ID && !open)
	{
		PipeannSlot *slot;
		Buffer		buffer = ReadSlot(v, id, &slot);
		bool		ours = PipeannSlotIsTidsOf(slot, walk->owner) &&
			(!walk->begun || (int32) (slot->number - walk->number) < 0);

		walk->begun = true;
		walk->number = slot->number;
		*after = slot->ext_tids;
		open = !(slot->flags & PIPEANN_SLOT_CLOSED);
		UnlockReleaseBuffer(buffer);
		if (!ours)
			ChainError(v, walk, id);
		if (!open)
			id = *after;
	}
	return id;
}

/* The first overflow slot of a node, or INVALID_ID if it is no node. */
static uint32
FirstOverflow(const PipeannVacuum *v, uint32 owner)
{
	PipeannSlot *slot;
	Buffer		buffer = ReadSlot(v, owner, &slot);
	uint32		first = PipeannSlotIsNode(slot) ? slot->ext_tids :
		PIPEANN_INVALID_ID;

	UnlockReleaseBuffer(buffer);
	return first;
}

/*
 * Set the link in slot id, the node's or one of its overflow slots', from
 * "from" to "to". False if the link has changed.
 */
static bool
SetLink(PipeannVacuum *v, const ChainWalk *walk, uint32 id, uint32 from,
		uint32 to)
{
	PipeannSlotUpdate update;
	bool		ours;

	PipeannSlotBegin(&v->view, id, &update);
	ours = id == walk->owner ? PipeannSlotIsNode(update.slot) :
		PipeannSlotIsTidsOf(update.slot, walk->owner);
	if (!ours || update.slot->ext_tids != from)
	{
		PipeannSlotAbort(&update);
		if (!ours)
			ChainError(v, walk, id);
		return false;
	}
	update.slot->ext_tids = to;
	if (PipeannSlotIsDead(update.slot))
	{
		PipeannBitsRemove(&v->live, id);
		PipeannBitsAdd(&v->dead, id);
		if (update.slot->flags & PIPEANN_SLOT_OUT_OF_LINE)
			v->parts_died = true;
	}
	PipeannSlotEnd(&update);
	return true;
}

static void
CleanChain(PipeannVacuum *v, uint32 owner)
{
	ChainWalk	walk = {.owner = owner};
	uint32		at = owner;
	uint32		next = FirstOverflow(v, owner);

	while (next != PIPEANN_INVALID_ID)
	{
		uint32		after;
		uint32		open = NextOpen(v, &walk, next, &after);

		if (open != next && !SetLink(v, &walk, at, next, open))
		{
			/* an insert has put a slot before the chain */
			walk.begun = false;
			at = owner;
			next = FirstOverflow(v, owner);
			continue;
		}
		at = open;
		next = after;
	}
}

static int
CompareIds(const void *a, const void *b)
{
	uint32		x = *(const uint32 *) a;
	uint32		y = *(const uint32 *) b;

	return x < y ? -1 : x > y;
}

/* Take overflow slots out of their chains. */
void
PipeannVacuumOverflow(PipeannVacuum *v)
{
	if (v->nowners == 0)
		return;
	qsort(v->owners, v->nowners, sizeof(uint32), CompareIds);
	for (uint32 i = 0; i < v->nowners; i++)
		if ((i == 0 || v->owners[i] != v->owners[i - 1]) &&
			v->owners[i] < v->ids)
			CleanChain(v, v->owners[i]);
}

/*
 * Take the parts of a vector or row out of v->parts. An insert writes the last
 * part first: of one that was under way in the first pass only later parts may
 * have been noted, so the chain is followed to its end. The number of steps is
 * bounded, as a broken chain may lead in a circle.
 */
static void
KeepParts(PipeannVacuum *v, uint32 first)
{
	const PipeannLayout *l = &v->view.meta.layout;
	uint32		left = Max(PipeannPartsOf(l, mul_size(l->dim, sizeof(float))),
						   PipeannPartsOf(l, PIPEANN_ROW_SIZE));
	uint32		next = first;

	while (next < v->ids && left-- > 0)
	{
		PipeannSlot *slot;
		Buffer		buffer = ReadSlot(v, next, &slot);

		PipeannBitsRemove(&v->parts, next);
		next = slot->ext_vec;
		UnlockReleaseBuffer(buffer);
	}
}

/* First parts of the vectors and rows that a page's slots name. */
typedef struct FirstParts
{
	uint32	   *ids;
	uint32		n;
	uint32		size;
} FirstParts;

static void
AddFirst(FirstParts *firsts, uint32 id)
{
	if (firsts->n == firsts->size)
	{
		firsts->size *= 2;
		firsts->ids = repalloc(firsts->ids,
							   mul_size(firsts->size, sizeof(uint32)));
	}
	firsts->ids[firsts->n++] = id;
}

static void
AddFirstsOfSlot(FirstParts *firsts, const PipeannLayout *l,
				const PipeannSlot *slot)
{
	PipeannRowList list = PipeannAnyRows(l, slot);
	const PipeannRow *row = list.rows;

	if (PipeannSlotIsLive(slot) && (slot->flags & PIPEANN_SLOT_OUT_OF_LINE))
		AddFirst(firsts, slot->ext_vec);
	for (uint32 i = 0; i < list.n; i++, row = PipeannRowNext(l, row))
		if (PipeannRowIsOutOfLine(l, row))
			AddFirst(firsts, PipeannRowFirstPart(row));
}

/*
 * Get those of a page. They may be on this very page, so they are followed when
 * its lock is released.
 */
static void
FindFirsts(PipeannVacuum *v, uint32 page, FirstParts *firsts)
{
	const PipeannLayout *l = &v->view.meta.layout;
	Buffer		buffer = PipeannVacuumPage(v, page, BUFFER_LOCK_SHARE);
	const char *nodes;

	firsts->n = 0;
	if (!BufferIsValid(buffer))
		return;
	nodes = PipeannPagePayload(BufferGetPage(buffer));
	for (uint32 i = 0; i < l->slots_per_page; i++)
	{
		const PipeannSlot *slot = PipeannSlotAt(l, nodes, i);

		if (slot->flags & PIPEANN_SLOT_USED)
			AddFirstsOfSlot(firsts, l, slot);
	}
	UnlockReleaseBuffer(buffer);
}

/*
 * Parts to which no live node and no row leads are garbage: theirs have died,
 * or were never written. They are rare, so they are looked for only if a node
 * or row with parts died or a VACUUM was interrupted. Inserts under way when
 * the parts were noted have ended by now.
 */
void
PipeannVacuumParts(PipeannVacuum *v)
{
	FirstParts	firsts = {.size = 64};

	if (v->parts.count == 0 || !(v->parts_died || v->interrupted))
		return;
	firsts.ids = palloc(mul_size(firsts.size, sizeof(uint32)));
	PipeannVacuumBeginPass(v);
	for (uint32 page = 0; page < v->pages; page++)
	{
		FindFirsts(v, page, &firsts);
		for (uint32 i = 0; i < firsts.n; i++)
			KeepParts(v, firsts.ids[i]);
	}
	for (uint32 id = 0; id < v->ids && v->parts.count > 0; id++)
		if (PipeannBitsHas(&v->parts, id))
		{
			PipeannBitsAdd(&v->garbage, id);
			PipeannBitsRemove(&v->parts, id);
		}
	pfree(firsts.ids);
}
