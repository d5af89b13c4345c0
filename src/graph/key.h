/*
 * key.h
 *		A candidate in one word: distance, node id and one flag.
 *
 * The bits of a float that is not negative are ordered like the float, so keys
 * compare as (distance, id). That makes every order here a total one, and the
 * build deterministic. As the sign bit is not needed, the lowest bit is a
 * flag, "expanded".
 */
#ifndef PIPEANN_KEY_H
#define PIPEANN_KEY_H

#include "base/base.h"

typedef uint64 PipeannKey;

#define PIPEANN_KEY_EXPANDED UINT64_C(1)

/* The key of a node at a distance >= 0, not expanded. */
static inline PipeannKey
PipeannKeyMake(float dist, uint32 id)
{
	uint32		bits;

	memcpy(&bits, &dist, sizeof(bits));
	return ((uint64) (bits & 0x7FFFFFFF) << 33) | ((uint64) id << 1);
}

static inline uint32
PipeannKeyId(PipeannKey key)
{
	return (uint32) (key >> 1);
}

static inline float
PipeannKeyDistance(PipeannKey key)
{
	uint32		bits = (uint32) (key >> 33);
	float		dist;

	memcpy(&dist, &bits, sizeof(dist));
	return dist;
}

/* Sort keys[n] in place, ascending. */
extern void PipeannKeySort(PipeannKey *keys, int n);

/* Move the m smallest of keys[n] to the front, in no particular order. */
extern void PipeannKeySelect(PipeannKey *keys, int n, int m);

#endif							/* PIPEANN_KEY_H */
