/*
 * id_set.c
 *		Making and growing a set of ids.
 */
#include "base/id_set.h"

static void
Free(PipeannIdSet *set)
{
	if (set->keys != NULL)
		pfree(set->keys);
	if (set->values != NULL)
		pfree(set->values);
}

static void
Clear(PipeannIdSet *set, uint32 slots)
{
	Assert(slots > 1 && (slots & (slots - 1)) == 0);
	memset(set->keys, 0xFF, mul_size(slots, sizeof(uint32)));
	set->mask = slots - 1;
	set->shift = 64 - __builtin_ctz(slots);
	set->used = 0;
}

static void
Init(PipeannIdSet *set, uint32 slots, bool values)
{
	Size		size = mul_size(slots, sizeof(uint32));

	set->keys = PipeannAlloc(size);
	set->values = values ? PipeannAlloc(size) : NULL;
	set->slots = slots;
	Clear(set, slots);
}

/*
 * Empty a set that is no longer needed, or initialise one of all zeroes,
 * reusing its memory.
 */
void
PipeannIdSetReset(PipeannIdSet *set, uint32 slots, bool values)
{
	PipeannIdSet old = *set;

	if (old.slots >= slots)
	{
		Assert((set->values != NULL) == values);
		Clear(set, slots);
		return;
	}
	Init(set, slots, values);
	Free(&old);
}

void
PipeannIdSetGrow(PipeannIdSet *set)
{
	PipeannIdSet old = *set;
	PipeannMemory former = PipeannMemoryEnter(old.keys);

	Init(set, (old.mask + 1) * 2, old.values != NULL);
	PipeannMemoryLeave(former);
	for (uint32 i = 0; i <= old.mask; i++)
	{
		uint32		to;

		if (old.keys[i] == PIPEANN_INVALID_ID)
			continue;
		to = PipeannIdSetFind(set, old.keys[i]);
		set->keys[to] = old.keys[i];
		if (old.values != NULL)
			set->values[to] = old.values[i];
	}
	set->used = old.used;
	Free(&old);
}
