/*
 * pq_scan.c
 *		Time of a code distance, for each kernel set.
 *
 * Neighbours come in lists of 64, as in a graph of that degree, their codes
 * scattered over a table that fits the caches (128 KB), is as large as a
 * million codes of 32 bytes (32 MB), or far larger (1 GB). Prints ns per
 * neighbour, best of several rounds. `pq_scan 32` leaves out the tables above
 * so many MB.
 */
#include "base.h"

#include <time.h>

#include "kernel/kernel.h"

#define NEIGHBOURS 64

static double
Now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static uint64
Random(uint64 *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Best ns per neighbour of `rounds` rounds over nlists lists. */
static double
Measure(const PipeannKernels *kernels, const float *table, int nchunks,
		const uint8 *const *codes, int nlists, int rounds)
{
	double		best = 1e18;
	float		out[NEIGHBOURS];

	for (int r = 0; r < rounds; r++)
	{
		double		start = Now();
		double		time;

		for (int i = 0; i < nlists; i++)
			kernels->pq_scan(table, nchunks, codes + i * NEIGHBOURS,
							 NEIGHBOURS, out);
		time = (Now() - start) / nlists / NEIGHBOURS;
		best = Min(best, time);
	}
	return best;
}

static void
MeasureSets(const uint8 *memory, Size size, int nchunks)
{
	static const PipeannKernels *sets[] = {
		&PipeannKernelsScalar,
#if defined(__x86_64__)
		&PipeannKernelsAvx2
#elif defined(__aarch64__)
		&PipeannKernelsNeon
#endif
	};
	bool		cached = size < (1 << 20);
	int			nlists = cached ? 64 : 4096;
	float	   *table = palloc0(sizeof(float) * 256 * nchunks);
	const uint8 **codes = palloc(sizeof(uint8 *) * nlists * NEIGHBOURS);
	uint64		random = 88172645463325252u;

	for (int i = 0; i < nlists * NEIGHBOURS; i++)
		codes[i] = memory + Random(&random) % (size / nchunks) * nchunks;
	printf("%3d-byte codes in %7zu KB:", nchunks, size >> 10);
	for (Size i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
	{
#if defined(__x86_64__)
		if (sets[i] == &PipeannKernelsAvx2 && !PipeannCpuHasAvx2())
			continue;
#endif
		printf("  %s %6.1f", sets[i]->name,
			   Measure(sets[i], table, nchunks, codes, nlists,
					   cached ? 50 : 4));
	}
	printf("  ns a neighbour\n");
	fflush(stdout);
	pfree(codes);
	pfree(table);
}

int
main(int argc, char **argv)
{
	static const Size sizes[] = {128 << 10, 32 << 20, 1 << 30};
	static const int nchunks[] = {16, 32, 64, 96};
	Size		limit = argc > 1 ? strtoul(argv[1], NULL, 10) << 20 : 1 << 30;
	uint8	   *memory = palloc(limit + (1 << 20));
	uint64		random = 1;

	for (Size i = 0; i < limit + (1 << 20); i += sizeof(random))
	{
		Random(&random);
		memcpy(memory + i, &random, sizeof(random));
	}
	for (Size i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (Size j = 0; j < sizeof(nchunks) / sizeof(nchunks[0]); j++)
			if (sizes[i] <= Max(limit, 1 << 20))
				MeasureSets(memory, sizes[i], nchunks[j]);
	pfree(memory);
	return 0;
}
