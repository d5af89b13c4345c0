/*
 * random.h
 *		The random numbers of builds: the same on every platform and version.
 *
 * SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
 * generators, OOPSLA 2014). The state is one word; any seed is a good seed.
 */
#ifndef PIPEANN_RANDOM_H
#define PIPEANN_RANDOM_H

#include "base/base.h"

static inline uint64
PipeannRandomNext(uint64 *state)
{
	uint64		z;

	*state += UINT64_C(0x9E3779B97F4A7C15);
	z = *state;
	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

/*
 * A number in [0, bound), bound > 0. The multiplication's bias is below bound
 * / 2^32, which does not matter for an order of insertion.
 */
static inline uint32
PipeannRandomBelow(uint64 *state, uint32 bound)
{
	return (uint32) (((PipeannRandomNext(state) >> 32) * bound) >> 32);
}

#endif							/* PIPEANN_RANDOM_H */
