/*
 * unroll.h
 *		Unrolling of short loops over registers; private to distance/.
 *
 * An array of accumulators is kept in registers only if the loops over it are
 * unrolled, which gcc does not do at -O2 by itself.
 */
#ifndef PIPEANN_UNROLL_H
#define PIPEANN_UNROLL_H

#define PRAGMA(text) _Pragma(#text)

/* Unroll the loop that follows, of n rounds; n is a literal. */
#if defined(__clang__)
#define UNROLL(n) PRAGMA(clang loop unroll_count(n))
#elif defined(__GNUC__)
#define UNROLL(n) PRAGMA(GCC unroll n)
#else
#define UNROLL(n)
#endif

#endif							/* PIPEANN_UNROLL_H */
