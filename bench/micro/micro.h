/*
 * micro.h
 *		What the micro-benchmarks of kernels share: the sets, and a clock.
 */
#ifndef MICRO_H
#define MICRO_H

#include "base/base.h"

#include <time.h>

#include "distance/distance.h"

static const PipeannKernels *const sets[] = {
	&PipeannKernelsScalar,
#if defined(__x86_64__)
	&PipeannKernelsAvx2,
	&PipeannKernelsAvx512,
#elif defined(__aarch64__)
	&PipeannKernelsNeon
#endif
};

#define NUM_SETS ((int) (sizeof(sets) / sizeof(sets[0])))

/* In nanoseconds. */
static inline double
Now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

/* Whether the processor has what a set needs. */
static inline bool
Runs(const PipeannKernels *set)
{
#if defined(__x86_64__)
	if (set == &PipeannKernelsAvx2)
		return PipeannCpuHasAvx2();
	if (set == &PipeannKernelsAvx512)
		return PipeannCpuHasAvx512();
#endif
	return set != NULL;
}

#endif							/* MICRO_H */
