/*
 * kernels.c
 *		Time of a distance by each code's natural kernel, and of what a query
 *		prepares for it.
 *
 * kernels DIM BYTES: codes of so many bytes, lists of 32 neighbours, in a table
 * that fits the caches (256 kB) and in one of 32 MB. PQ uses the index's kernel
 * and a table per query. A grid code (RaBitQ, principal components in int8) is
 * multiplied with the query's elements in int8; AVX2 only.
 */
#include "base/base.h"

#include <time.h>

#include "distance/distance.h"
#include "pq/pq.h"

#define NEIGHBOURS 32
#define NEAR_LISTS 1024
#define FAR_LISTS 8192
#define ROUNDS 15

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

typedef void (*Scan) (const void *query, int bytes,
					  const uint8 *const *codes, int n, float *out);

static void
ScanPq(const void *query, int bytes, const uint8 *const *codes, int n,
	   float *out)
{
	PipeannKernel->pq_scan(query, bytes, codes, n, out);
}

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

AVX2 static inline int
Sum(__m256i v)
{
	__m128i		s = _mm_add_epi32(_mm256_castsi256_si128(v),
								  _mm256_extracti128_si256(v, 1));

	s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
	s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1));
	return _mm_cvtsi128_si32(s);
}

/*
 * A grid code's product with the query's elements in int8, those of each bit
 * position together. Codes are padded to 32 bytes.
 */
AVX2 static inline __attribute__((always_inline)) void
ScanGrid(const int8 *query, int bytes, const uint8 *const *codes, int n,
		 float *out, int bits)
{
	__m256i		mask = _mm256_set1_epi8((1 << bits) - 1);
	__m256i		ones = _mm256_set1_epi16(1);

	for (int i = 0; i < n; i++)
		for (int at = 0; at < bytes; at += 64)
			__builtin_prefetch(codes[i] + at);
	for (int i = 0; i < n; i++)
	{
		__m256i		sum = _mm256_setzero_si256();
		const int8 *q = query;

		for (int at = 0; at < bytes; at += 32)
		{
			__m256i		code = _mm256_loadu_si256((const __m256i *)
												  (codes[i] + at));

			for (int plane = 0; plane < 8 / bits; plane++, q += 32)
			{
				__m256i		u = _mm256_and_si256(code, mask);
				__m256i		p = _mm256_maddubs_epi16(u,
													 _mm256_loadu_si256((const __m256i *) q));

				sum = _mm256_add_epi32(sum, _mm256_madd_epi16(p, ones));
				code = _mm256_srli_epi16(code, bits);
			}
		}
		out[i] = Sum(sum);
	}
}

AVX2 static void
Scan4(const void *query, int bytes, const uint8 *const *codes, int n,
	  float *out)
{
	ScanGrid(query, bytes, codes, n, out, 4);
}

AVX2 static void
Scan2(const void *query, int bytes, const uint8 *const *codes, int n,
	  float *out)
{
	ScanGrid(query, bytes, codes, n, out, 2);
}

/* 8 bits do not fit maddubs with a query in int8: 16 bits. */
AVX2 static void
Scan8(const void *query, int bytes, const uint8 *const *codes, int n,
	  float *out)
{
	const int16 *q = query;

	for (int i = 0; i < n; i++)
		for (int at = 0; at < bytes; at += 64)
			__builtin_prefetch(codes[i] + at);
	for (int i = 0; i < n; i++)
	{
		__m256i		sum = _mm256_setzero_si256();

		for (int at = 0; at < bytes; at += 16)
		{
			__m256i		x = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)
																 (codes[i] + at)));

			sum = _mm256_add_epi32(sum,
								   _mm256_madd_epi16(x, _mm256_loadu_si256((const __m256i *)
																		   (q + at))));
		}
		out[i] = Sum(sum);
	}
}
#endif

/* A code's kernel, and ns per neighbour of each round, in cache and not. */
typedef struct Kernel
{
	const char *name;
	Scan		scan;
	double		near[ROUNDS];
	double		far[ROUNDS];
} Kernel;

static double
Measure(const Kernel *kernel, const void *query, int bytes,
		const uint8 *const *codes, int nlists)
{
	float		out[NEIGHBOURS];
	double		start = Now();

	for (int i = 0; i < nlists; i++)
		kernel->scan(query, bytes, codes + i * NEIGHBOURS, NEIGHBOURS, out);
	return (Now() - start) / nlists / NEIGHBOURS;
}

/* Codes anywhere in the first `size` bytes. */
static void
Scatter(const uint8 **codes, int n, const uint8 *memory, Size size, int bytes)
{
	int			stride = (bytes + 31) / 32 * 32;
	uint64		random = 88172645463325252;

	for (int i = 0; i < n; i++)
		codes[i] = memory + Random(&random) % (size / stride) * stride;
}

static int
Compare(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return x < y ? -1 : x > y;
}

static double
Median(double *values)
{
	qsort(values, ROUNDS, sizeof(double), Compare);
	return values[ROUNDS / 2];
}

/* In turn, so that the machine's noise hits all. */
static void
ReportKernels(Kernel *kernels, int n, const void *query, int bytes,
			  const uint8 *memory)
{
	const uint8 **near = palloc(sizeof(uint8 *) * NEAR_LISTS * NEIGHBOURS);
	const uint8 **far = palloc(sizeof(uint8 *) * FAR_LISTS * NEIGHBOURS);

	Scatter(near, NEAR_LISTS * NEIGHBOURS, memory, 256 * 1024, bytes);
	Scatter(far, FAR_LISTS * NEIGHBOURS, memory, 32 * 1024 * 1024, bytes);
	for (int r = 0; r < ROUNDS; r++)
		for (int i = 0; i < n; i++)
		{
			kernels[i].near[r] = Measure(&kernels[i], query, bytes, near,
										 NEAR_LISTS);
			kernels[i].far[r] = Measure(&kernels[i], query, bytes, far,
										FAR_LISTS);
		}
	for (int i = 0; i < n; i++)
	{
		double		near_median = Median(kernels[i].near);
		double		far_median = Median(kernels[i].far);

		printf("%-16s %6.1f (%.1f) ns %8.1f (%.1f) ns\n", kernels[i].name,
			   near_median, kernels[i].near[0], far_median,
			   kernels[i].far[0]);
	}
	free(near);
	free(far);
}

/* Microseconds of a query's table, and of turning the query. */
static void
ReportQuery(int dim, int nchunks)
{
	int		   *start = palloc(nchunks * sizeof(int));
	int		   *len = palloc(nchunks * sizeof(int));
	Size	   *offset = palloc(nchunks * sizeof(Size));
	PipeannPq	pq = {dim, nchunks, start, len, offset, NULL};
	float	   *matrix = palloc0((Size) dim * dim * sizeof(float));
	float	   *q = palloc0(dim * sizeof(float));
	float	   *turned = palloc0(dim * sizeof(float));
	float	   *table = palloc0((Size) nchunks * 256 * sizeof(float));
	double		best[2] = {1e18, 1e18};

	PipeannPqLayout(dim, nchunks, start, len, offset);
	pq.centroids = palloc0(PipeannPqCentroidCount(dim) * sizeof(float));
	for (int r = 0; r < 8 * ROUNDS; r++)
	{
		double		times[3];

		times[0] = Now();
		PipeannPqTable(&pq, PIPEANN_L2, q, table);
		times[1] = Now();
		for (int i = 0; i < dim; i++)
			turned[i] = PipeannKernel->dot[PIPEANN_FLOAT4] (q, matrix + (Size) i * dim, dim);
		times[2] = Now();
		best[0] = Min(best[0], times[1] - times[0]);
		best[1] = Min(best[1], times[2] - times[1]);
	}
	printf("a query: table %.1f us, rotation %.1f us\n", best[0] / 1000,
		   best[1] / 1000);
}

int
main(int argc, char **argv)
{
	int			dim = argc > 2 ? atoi(argv[1]) : 100;
	int			bytes = argc > 2 ? atoi(argv[2]) : 56;
	Size		size = 32 * 1024 * 1024 + 4096;
	uint8	   *memory = palloc(size);
	uint64		random = 1;
	void	   *query;
	int			nkernels = 1;
	Kernel		kernels[] = {
		{"pq", ScanPq},
#if defined(__x86_64__)
		{"rabitq 4 bits", Scan4},
		{"rabitq 2 bits", Scan2},
		{"pca int8", Scan8}
#endif
	};

	PipeannKernelsInit();
#if defined(__x86_64__)
	if (PipeannCpuHasAvx2())
		nkernels = sizeof(kernels) / sizeof(kernels[0]);
#endif
	for (Size i = 0; i < size; i++)
		memory[i] = Random(&random);
	query = palloc((Size) (bytes + 64) * 256 * sizeof(float));
	memset(query, 1, (Size) (bytes + 64) * 256 * sizeof(float));
	printf("%d bytes, %s: median (least) in cache and in 32 MB\n", bytes,
		   PipeannKernel->name);
	ReportKernels(kernels, nkernels, query, bytes, memory);
	ReportQuery(dim, bytes);
	return 0;
}
