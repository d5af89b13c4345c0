/*
 * pq_scan.c
 *		Time of a code distance: the kernel sets, and other ways to do it.
 *
 * Neighbours come in lists, as in a graph of that degree, their codes
 * scattered over a table that fits the caches (128 KB), is as large as a
 * million codes of 32 bytes (32 MB), or far larger (1 GB), in pages of the
 * usual size and in huge ones. Prints ns per neighbour, best of several
 * rounds, in which the ways take turns.
 *
 *		pq_scan [MB [list]]: leaves out tables above MB; lists of 64.
 */
#include "base/base.h"

#include <sys/mman.h>
#include <time.h>

#include "distance/distance.h"
#include "pq_variants.h"

#define MAX_LIST 256
#define HUGE_PAGE ((Size) 2 << 20)

typedef enum TableKind
{
	TABLE_FLOAT,
	TABLE_WORD,
	TABLE_BYTE,
	NUM_TABLES
} TableKind;

typedef struct Way
{
	const char *name;
	TableKind	table;
	const PipeannKernels *kernels;	/* its pq_scan, or */
	PqVariantFn scan;
	int			multiple;		/* of code bytes that it can do */
	double		best;
} Way;

static Way ways[] = {
	{"scalar", TABLE_FLOAT, &PipeannKernelsScalar, NULL, 1, 0},
#if defined(__x86_64__)
	{"avx2", TABLE_FLOAT, &PipeannKernelsAvx2, NULL, 1, 0},
	{"avx512", TABLE_FLOAT, &PipeannKernelsAvx512, NULL, 1, 0},
#elif defined(__aarch64__)
	{"neon", TABLE_FLOAT, &PipeannKernelsNeon, NULL, 1, 0},
#endif
	{"nofetch", TABLE_FLOAT, NULL, FloatNoPrefetch, 1, 0},
	{"fetch8", TABLE_FLOAT, NULL, FloatAhead8, 1, 0},
	{"fetch24", TABLE_FLOAT, NULL, FloatAhead24, 1, 0},
	{"whole", TABLE_FLOAT, NULL, FloatWholeList, 1, 0},
	{"f4x1", TABLE_FLOAT, NULL, Float1, 1, 0},
	{"f4x2", TABLE_FLOAT, NULL, Float2, 1, 0},
	{"f4x4", TABLE_FLOAT, NULL, Float4, 1, 0},
	{"u16x2", TABLE_WORD, NULL, Word2, 1, 0},
	{"u16x4", TABLE_WORD, NULL, Word4, 1, 0},
	{"u8x2", TABLE_BYTE, NULL, Byte2, 1, 0},
	{"u8x4", TABLE_BYTE, NULL, Byte4, 1, 0},
#if defined(__x86_64__)
	{"gather", TABLE_FLOAT, NULL, FloatGather, 1, 0},
	{"shuffle", TABLE_BYTE, NULL, ByteShuffle, 16, 0},
#endif
};

#define NUM_WAYS ((int) (sizeof(ways) / sizeof(ways[0])))

static int	list_size = 64;

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

/* ns per neighbour of a pass over nlists lists. */
static double
Measure(const Way *way, void *const *tables, int nchunks,
		const uint8 *const *codes, int nlists)
{
	static float out[MAX_LIST];
	double		start = Now();

	for (int i = 0; i < nlists; i++)
	{
		const uint8 *const *list = codes + (Size) i * list_size;

		if (way->kernels != NULL)
			way->kernels->pq_scan(tables[TABLE_FLOAT], nchunks, list,
								  list_size, out);
		else
			way->scan(tables[way->table], nchunks, list, list_size, out);
	}
	return (Now() - start) / nlists / list_size;
}

static bool
CanDo(const Way *way, int nchunks)
{
#if defined(__x86_64__)
	if ((way->kernels == &PipeannKernelsAvx2 || way->scan == FloatGather ||
		 way->scan == ByteShuffle) && !PipeannCpuHasAvx2())
		return false;
	if (way->kernels == &PipeannKernelsAvx512 && !PipeannCpuHasAvx512())
		return false;
#endif
	return nchunks % way->multiple == 0 &&
		(way->multiple == 1 || list_size % 32 == 0);
}

static void
MeasureAll(const uint8 *memory, Size size, int nchunks, const char *pages)
{
	bool		cached = size < (1 << 20);
	int			nlists = cached ? 64 : 4096;
	int			rounds = cached ? 30 : 4;
	const uint8 **codes = palloc(sizeof(uint8 *) * nlists * list_size);
	void	   *tables[NUM_TABLES];
	uint64		random = 88172645463325252u;

	for (int i = 0; i < NUM_TABLES; i++)
		tables[i] = palloc0(sizeof(float) * PQ_ROW * nchunks);
	for (int i = 0; i < nlists * list_size; i++)
		codes[i] = memory + Random(&random) % (size / nchunks) * nchunks;
	for (int i = 0; i < NUM_WAYS; i++)
		ways[i].best = 1e18;
	for (int r = 0; r < rounds; r++)
		for (int i = 0; i < NUM_WAYS; i++)
			if (CanDo(&ways[i], nchunks))
			{
				double		time = Measure(&ways[i], tables, nchunks, codes,
										   nlists);

				ways[i].best = Min(ways[i].best, time);
			}

	printf("%5d %9zu %5s", nchunks, size >> 10, pages);
	for (int i = 0; i < NUM_WAYS; i++)
		if (CanDo(&ways[i], nchunks))
			printf(" %8.1f", ways[i].best);
		else
			printf(" %8s", "-");
	printf("\n");
	fflush(stdout);
	for (int i = 0; i < NUM_TABLES; i++)
		pfree(tables[i]);
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
	static const int nchunks[] = {16, 32, 50, 64, 96};
	Size		limit = argc > 1 ? strtoul(argv[1], NULL, 10) << 20 : 1 << 30;

	if (argc > 2)
		list_size = Max(1, Min(atoi(argv[2]), MAX_LIST));
	printf("ns a neighbour, lists of %d\nbytes        KB pages", list_size);
	for (int i = 0; i < NUM_WAYS; i++)
		printf(" %8s", ways[i].name);
	printf("\n");
	for (int i = 0; i < 3; i++)
		for (int huge = 0; huge < (sizes[i] < HUGE_PAGE ? 1 : 2); huge++)
		{
			uint8	   *memory;

			if (sizes[i] > Max(limit, 1 << 20))
				continue;
			memory = MakeMemory(Max(sizes[i], HUGE_PAGE), huge == 1);
			for (int j = 0; j < 5; j++)
				MeasureAll(memory, sizes[i], nchunks[j],
						   huge ? "huge" : "4 KB");
			munmap(memory, Max(sizes[i], HUGE_PAGE));
		}
	return 0;
}
