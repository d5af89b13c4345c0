/*
 * exact.c
 *		Time of an exact distance, for each kernel set.
 *
 * One query against vectors of a page: a few that stay in the first-level
 * cache, and 64 MB of them in order, as pages that come from disk. Prints ns
 * per vector and, from the first, bytes of stored vector a ns (GB/s).
 */
#include "micro.h"

#define CACHED_BYTES ((Size) 16 << 10)
#define LARGE_BYTES ((Size) 64 << 20)

static const struct
{
	PipeannStorage storage;
	const char *name;
}			storages[] = {
	{PIPEANN_FLOAT4, "float4"}, {PIPEANN_FLOAT2, "float2"},
	{PIPEANN_INT8, "int8"}, {PIPEANN_UINT8, "uint8"}
};

static volatile float sink;

/* ns per vector: n vectors one after the other, `times` times. */
static double
MeasureQuery(PipeannQueryFn fn, const float *q, const char *vectors, int dim,
			 Size stride, int n, int times)
{
	float		sum = 0;
	double		start = Now();

	for (int t = 0; t < times; t++)
		for (int i = 0; i < n; i++)
			sum += fn(q, vectors + i * stride, dim);
	sink = sum;
	return (Now() - start) / times / n;
}

static double
MeasurePair(PipeannPairFn fn, const char *vectors, int dim, Size stride,
			int n, int times)
{
	float		sum = 0;
	double		start = Now();

	for (int t = 0; t < times; t++)
		for (int i = 1; i < n; i++)
			sum += fn(vectors, vectors + i * stride, dim);
	sink = sum;
	return (Now() - start) / times / (n - 1);
}

/* Best of rounds: L2, dot, their pair versions, and L2 over LARGE_BYTES. */
#define NUM_COLUMNS 5

static void
MeasureSet(const PipeannKernels *set, int s, const float *q,
		   const char *vectors, int dim)
{
	PipeannStorage storage = storages[s].storage;
	Size		stride = dim * PipeannElementSize(storage);
	int			n = Max((int) (CACHED_BYTES / stride), 2);
	int			large = (int) (LARGE_BYTES / stride);
	int			times = Max(1, 200000 / (dim * n));
	double		best[NUM_COLUMNS];

	for (int i = 0; i < NUM_COLUMNS; i++)
		best[i] = 1e18;
	for (int r = 0; r < 40; r++)
	{
		double		t[NUM_COLUMNS];

		t[0] = MeasureQuery(set->l2[storage], q, vectors, dim, stride, n,
							times);
		t[1] = MeasureQuery(set->dot[storage], q, vectors, dim, stride, n,
							times);
		t[2] = MeasurePair(set->l2_pair[storage], vectors, dim, stride, n,
						   times);
		t[3] = MeasurePair(set->dot_pair[storage], vectors, dim, stride, n,
						   times);
		t[4] = r >= 3 ? 1e18 :
			MeasureQuery(set->l2[storage], q, vectors, dim, stride, large, 1);
		for (int i = 0; i < NUM_COLUMNS; i++)
			best[i] = Min(best[i], t[i]);
	}
	printf("%-7s %-7s %5d %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f\n",
		   storages[s].name, set->name, dim, best[0], best[1], best[2],
		   best[3], best[4], stride / best[0]);
	fflush(stdout);
}

int
main(void)
{
	static const int dims[] = {50, 100, 128, 384, 784};
	char	   *vectors = palloc0(LARGE_BYTES);
	float		q[784];

	for (Size i = 0; i < LARGE_BYTES / sizeof(uint16); i++)
	{
		/* finite as floats and as halfs, and not subnormal */
		uint16		value = 0x3c00 | (i * 7919 % 255);

		memcpy(vectors + i * sizeof(value), &value, sizeof(value));
	}
	for (int i = 0; i < 784; i++)
		q[i] = i % 11;
	printf("ns a vector\nstored  kernels   dim       l2      dot  l2_pair dot_pair l2 64 MB     GB/s\n");
	for (int s = 0; s < 4; s++)
		for (int d = 0; d < 5; d++)
			for (int i = 0; i < NUM_SETS; i++)
				if (Runs(sets[i]))
					MeasureSet(sets[i], s, q, vectors, dims[d]);
	pfree(vectors);
	return 0;
}
