/*
 * bits.h
 *		Sets of numbers, a bit each.
 */
#ifndef PIPEANN_BITS_H
#define PIPEANN_BITS_H

#include "base/base.h"

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

#endif							/* PIPEANN_BITS_H */
