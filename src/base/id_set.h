/*
 * id_set.h
 *		A set of uint32 keys with a uint32 value: visited nodes, known pages.
 *
 * Open addressing with linear probing; PIPEANN_INVALID_ID cannot be a key. It
 * starts small, since most queries touch a few thousand nodes and clearing it
 * is part of each query's cost, and doubles when half full.
 */
#ifndef PIPEANN_IDSET_H
#define PIPEANN_IDSET_H

#include "base/base.h"

typedef struct PipeannIdSet
{
	uint32	   *keys;
	uint32	   *values;			/* NULL for a plain set */
	uint32		mask;			/* slots - 1 */
	int			shift;			/* 64 - log2(slots) */
	uint32		used;
	uint32		slots;			/* slots that there is memory for */
} PipeannIdSet;

extern void PipeannIdSetGrow(PipeannIdSet *set);

/*
 * The first slot probed for a key. The upper bits of a product with the golden
 * ratio depend on the whole key, spread consecutive keys evenly, and are
 * enough for sets of any size.
 */
static inline uint32
PipeannIdSetHome(const PipeannIdSet *set, uint32 key)
{
	return (uint32) ((key * UINT64_C(0x9E3779B97F4A7C15)) >> set->shift);
}

/* Position of key, or of the empty place where it belongs. */
static inline uint32
PipeannIdSetFind(const PipeannIdSet *set, uint32 key)
{
	uint32		i = PipeannIdSetHome(set, key);

	while (set->keys[i] != key && set->keys[i] != PIPEANN_INVALID_ID)
		i = (i + 1) & set->mask;
	return i;
}

/* Add key; false if it was there. */
static inline bool
PipeannIdSetAdd(PipeannIdSet *set, uint32 key)
{
	uint32		i = PipeannIdSetFind(set, key);
	bool		added = set->keys[i] != key;

	set->keys[i] = key;
	set->used += added;
	if (set->used * 2 > set->mask)
		PipeannIdSetGrow(set);
	return added;
}

static inline bool
PipeannIdSetHas(const PipeannIdSet *set, uint32 key)
{
	return set->keys[PipeannIdSetFind(set, key)] == key;
}

static inline bool
PipeannIdSetGet(const PipeannIdSet *set, uint32 key, uint32 *value)
{
	uint32		i = PipeannIdSetFind(set, key);

	if (set->keys[i] != key)
		return false;
	*value = set->values[i];
	return true;
}

static inline void
PipeannIdSetPut(PipeannIdSet *set, uint32 key, uint32 value)
{
	uint32		i = PipeannIdSetFind(set, key);
	bool		added = set->keys[i] != key;

	set->keys[i] = key;
	set->values[i] = value;
	if (added && ++set->used * 2 > set->mask)
		PipeannIdSetGrow(set);
}

extern void PipeannIdSetReset(PipeannIdSet *set, uint32 slots, bool values);

/* ---------- sets of numbers, a bit each ---------- */

/* An empty set of numbers below n. */
static inline uint8 *
PipeannNoBits(Size n)
{
	return PipeannAllocZero(n / 8 + 1);
}

static inline bool
PipeannHasBit(const uint8 *bits, uint32 i)
{
	return (bits[i / 8] >> i % 8) & 1;
}

static inline void
PipeannSetBit(uint8 *bits, uint32 i)
{
	bits[i / 8] |= 1 << i % 8;
}

static inline void
PipeannClearBit(uint8 *bits, uint32 i)
{
	bits[i / 8] &= ~(1 << i % 8);
}

#endif							/* PIPEANN_IDSET_H */
