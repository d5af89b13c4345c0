/*
 * key.h
 *		A candidate in one word: distance and node id.
 *
 * The bits of a float that is not negative are ordered like the float, so keys
 * compare as (distance, id). That makes every order a total one, and builds
 * deterministic.
 */
#ifndef PIPEANN_KEY_H
#define PIPEANN_KEY_H

#include "base/base.h"

typedef uint64 PipeannKey;

/* The key of a node at a distance >= 0. */
static inline PipeannKey
PipeannKeyMake(float dist, uint32 id)
{
	uint32		bits;

	memcpy(&bits, &dist, sizeof(bits));
	return ((uint64) (bits & 0x7FFFFFFF) << 32) | id;
}

static inline uint32
PipeannKeyId(PipeannKey key)
{
	return (uint32) key;
}

static inline float
PipeannKeyDistance(PipeannKey key)
{
	uint32		bits = (uint32) (key >> 32);
	float		dist;

	memcpy(&dist, &bits, sizeof(dist));
	return dist;
}

extern void PipeannKeySort(PipeannKey *keys, Size n);

#endif							/* PIPEANN_KEY_H */
