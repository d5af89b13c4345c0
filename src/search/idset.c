/*
 * idset.c
 *		Making and growing a set of ids.
 */
#include "search/idset.h"

void
PipeannIdSetInit(PipeannIdSet *set, uint32 slots, bool values)
{
	Size		size = mul_size(slots, sizeof(uint32));

	Assert((slots & (slots - 1)) == 0);
	set->keys = PipeannAlloc(size);
	memset(set->keys, 0xFF, size);
	set->values = values ? PipeannAlloc(size) : NULL;
	set->mask = slots - 1;
	set->used = 0;
}

void
PipeannIdSetGrow(PipeannIdSet *set)
{
	PipeannIdSet old = *set;

	PipeannIdSetInit(set, (old.mask + 1) * 2, old.values != NULL);
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
	pfree(old.keys);
	if (old.values != NULL)
		pfree(old.values);
}
