/*
 * pq_scan.c
 *		Time of a code distance, for each kernel set.
 *
 * Neighbours come in lists, as in a graph of that degree, their codes
 * scattered over a table that fits the caches (128 KB), is as large as a
 * million codes of 32 bytes (32 MB), or far larger (1 GB), in pages of the
 * usual size and in huge ones. Prints ns per neighbour, best of several
 * rounds, in which the sets take turns.
 *
 *		pq_scan [MB]: leaves out tables above MB.
 */
#include "micro.h"

#include <sys/mman.h>

#include "distance/common.h"

#define LIST 64
#define HUGE_PAGE ((Size) 2 << 20)

static uint64
Random(uint64 *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* ns per neighbour of a pass over nlists lists. */
static double
Measure(const PipeannKernels *set, const float *table, int nsubvectors,
		const uint8 *const *codes, int nlists)
{
	static float out[LIST];
	double		start = Now();

	for (int i = 0; i < nlists; i++)
		set->pq_scan(table, nsubvectors, codes + (Size) i * LIST, LIST, out);
	return (Now() - start) / nlists / LIST;
}

static void
MeasureAll(const uint8 *memory, Size size, int nsubvectors, const char *pages)
{
	bool		cached = size < (1 << 20);
	int			nlists = cached ? 64 : 4096;
	int			rounds = cached ? 30 : 4;
	const uint8 **codes = palloc(sizeof(uint8 *) * nlists * LIST);
	float	   *table = palloc0(sizeof(float) * PQ_ROW * nsubvectors);
	double		best[NUM_SETS];
	uint64		random = 88172645463325252u;

	for (int i = 0; i < nlists * LIST; i++)
		codes[i] = memory + Random(&random) %
			(size / nsubvectors) * nsubvectors;
	for (int i = 0; i < NUM_SETS; i++)
		best[i] = 1e18;
	for (int r = 0; r < rounds; r++)
		for (int i = 0; i < NUM_SETS; i++)
			if (Runs(sets[i]))
				best[i] = Min(best[i], Measure(sets[i], table, nsubvectors,
											   codes, nlists));

	printf("%5d %9zu %5s", nsubvectors, size >> 10, pages);
	for (int i = 0; i < NUM_SETS; i++)
		if (Runs(sets[i]))
			printf(" %8.1f", best[i]);
	printf("\n");
	fflush(stdout);
	pfree(table);
	pfree(codes);
}

/* Random bytes, in huge pages if the system gives them. */
static uint8 *
MakeMemory(Size size, bool huge)
{
	char	   *map = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE,
						   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8	   *memory;
	uint64		random = 1;

	if (map == MAP_FAILED)
	{
		perror("mmap");
		exit(1);
	}
	memory = (uint8 *) (((uintptr_t) map + HUGE_PAGE - 1) &
						~(uintptr_t) (HUGE_PAGE - 1));
	if (madvise(memory, size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) != 0)
		perror("madvise");
	for (Size i = 0; i < size; i += sizeof(random))
	{
		Random(&random);
		memcpy(memory + i, &random, sizeof(random));
	}
	return memory;
}

int
main(int argc, char **argv)
{
	static const Size sizes[] = {128 << 10, 32 << 20, 1 << 30};
	static const int nsubvectors[] = {16, 32, 50, 64, 96};
	Size		limit = argc > 1 ? strtoul(argv[1], NULL, 10) << 20 : 1 << 30;

	printf("ns a neighbour, lists of %d\nbytes        KB pages", LIST);
	for (int i = 0; i < NUM_SETS; i++)
		if (Runs(sets[i]))
			printf(" %8s", sets[i]->name);
	printf("\n");
	for (int i = 0; i < 3; i++)
		for (int huge = 0; huge < (sizes[i] < HUGE_PAGE ? 1 : 2); huge++)
		{
			uint8	   *memory;

			if (sizes[i] > Max(limit, 1 << 20))
				continue;
			memory = MakeMemory(Max(sizes[i], HUGE_PAGE), huge == 1);
			for (int j = 0; j < 5; j++)
				MeasureAll(memory, sizes[i], nsubvectors[j],
						   huge ? "huge" : "4 KB");
			munmap(memory, Max(sizes[i], HUGE_PAGE));
		}
	return 0;
}
