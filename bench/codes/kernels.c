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
#include "base.h"

#include <time.h>

#include "kernel/kernel.h"
#include "quant/pq.h"

#define NEIGHBOURS 32
#define ROUNDS 7

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

/* Best ns per neighbour. */
static double
Measure(Scan scan, const void *query, int bytes, const uint8 *memory,
		Size size)
{
	int			stride = (bytes + 31) / 32 * 32;
	Size		count = size / stride;
	int			nlists = 4096;
	const uint8 **codes = palloc(sizeof(uint8 *) * nlists * NEIGHBOURS);
	float		out[NEIGHBOURS];
	uint64		random = 88172645463325252;
	double		best = 1e18;

	for (int i = 0; i < nlists * NEIGHBOURS; i++)
		codes[i] = memory + Random(&random) % count * stride;
	for (int r = 0; r < ROUNDS; r++)
	{
		double		start = Now();

		for (int i = 0; i < nlists; i++)
			scan(query, bytes, codes + i * NEIGHBOURS, NEIGHBOURS, out);
		best = Min(best, (Now() - start) / nlists / NEIGHBOURS);
	}
	free(codes);
	return best;
}

static void
Report(const char *name, Scan scan, const void *query, int bytes,
	   const uint8 *memory)
{
	printf("%-24s %4d bytes %8.1f ns %8.1f ns\n", name, bytes,
		   Measure(scan, query, bytes, memory, 256 * 1024),
		   Measure(scan, query, bytes, memory, 32 * 1024 * 1024));
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
	for (int r = 0; r < 20 * ROUNDS; r++)
	{
		double		times[3];

		times[0] = Now();
		PipeannPqTable(&pq, PIPEANN_L2, q, 0, nchunks, table);
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

	PipeannKernelsInit();
	for (Size i = 0; i < size; i++)
		memory[i] = Random(&random);
	query = palloc0((Size) (bytes + 64) * 256 * sizeof(float));
	printf("%-24s %10s %11s %11s   (%s)\n", "code", "", "in cache", "in 32 MB",
		   PipeannKernel->name);
	Report("pq", ScanPq, query, bytes, memory);
#if defined(__x86_64__)
	if (PipeannCpuHasAvx2())
	{
		Report("rabitq 4 bits", Scan4, query, bytes, memory);
		Report("rabitq 2 bits", Scan2, query, bytes, memory);
		Report("pca int8", Scan8, query, bytes, memory);
	}
#endif
	ReportQuery(dim, bytes);
	return 0;
}
