/*
 * read_size.c
 *		Random reads of 4 KB and of 8 KB from a file, past the page cache.
 *
 *		read_size FILE [SECONDS]
 *
 * With 1, 4, 8 and 32 reads in flight, set up as the server's rings are. The
 * sizes take turns, in rounds, so that the machine's noise hits both. Prints
 * reads a second and microseconds of CPU a read, medians of the rounds.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <liburing.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 8192
#define MAX_DEPTH 32
#define ROUNDS 9

static int	file;
static uint64_t blocks;
static char *buffers;
static uint64_t seed = 88172645463325252u;

typedef struct Figures
{
	double		rate;			/* reads a second */
	double		cpu_us;			/* of CPU a read */
} Figures;

static void
Fail(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t
Random(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static double
Now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static double
Cpu(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_utime.tv_sec + u.ru_stime.tv_sec +
		(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* Either half of a random page, or all of it. */
static void
Queue(struct io_uring *ring, uintptr_t slot, unsigned size)
{
	uint64_t	halves = BLOCK / size;
	uint64_t	at = (Random() % blocks) * BLOCK + Random() % halves * size;
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	io_uring_prep_read(sqe, file, buffers + slot * BLOCK, size, at);
	io_uring_sqe_set_data(sqe, (void *) slot);
}

static Figures
Measure(unsigned size, unsigned depth, double seconds)
{
	struct io_uring ring;
	struct io_uring_params params = {
		.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
		IORING_SETUP_TASKRUN_FLAG
	};
	uint64_t	reads = 0;
	double		start;
	double		cpu;
	Figures		result;

	if (io_uring_queue_init_params(64, &ring, &params) < 0)
		Fail("io_uring_queue_init");
	start = Now();
	cpu = Cpu();
	for (uintptr_t i = 0; i < depth; i++)
		Queue(&ring, i, size);
	while (Now() - start < seconds)
	{
		struct io_uring_cqe *cqes[MAX_DEPTH];
		unsigned	n;

		io_uring_submit_and_wait(&ring, 1);
		n = io_uring_peek_batch_cqe(&ring, cqes, MAX_DEPTH);
		for (unsigned i = 0; i < n; i++)
		{
			if (cqes[i]->res != (int) size)
			{
				fprintf(stderr, "read failed: %d\n", cqes[i]->res);
				exit(1);
			}
			Queue(&ring, (uintptr_t) io_uring_cqe_get_data(cqes[i]), size);
		}
		io_uring_cq_advance(&ring, n);
		reads += n;
	}
	result.rate = reads / (Now() - start);
	result.cpu_us = reads == 0 ? 0 : (Cpu() - cpu) * 1e6 / reads;
	io_uring_queue_exit(&ring);
	return result;
}

static int
Compare(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return (x > y) - (x < y);
}

static double
Median(double *values)
{
	qsort(values, ROUNDS, sizeof(double), Compare);
	return values[ROUNDS / 2];
}

int
main(int argc, char **argv)
{
	static const unsigned depths[] = {1, 4, 8, 32};
	static const unsigned sizes[] = {4096, 8192};
	double		seconds = argc > 2 ? atof(argv[2]) : 20;
	struct stat st;

	if (argc < 2)
	{
		fprintf(stderr, "usage: read_size FILE [SECONDS]\n");
		return 1;
	}
	file = open(argv[1], O_RDONLY | O_DIRECT);
	if (file < 0 || fstat(file, &st) < 0)
		Fail(argv[1]);
	blocks = st.st_size / BLOCK;
	if (blocks == 0 ||
		posix_memalign((void **) &buffers, 4096, MAX_DEPTH * BLOCK) != 0)
		return 1;
	for (int d = 0; d < 4; d++)
	{
		double		rates[2][ROUNDS];
		double		cpus[2][ROUNDS];

		for (int r = 0; r < ROUNDS; r++)
			for (int s = 0; s < 2; s++)
			{
				int			which = (r + s) % 2;
				Figures		f = Measure(sizes[which], depths[d],
										seconds / (4 * 2 * ROUNDS));

				rates[which][r] = f.rate;
				cpus[which][r] = f.cpu_us;
			}
		for (int s = 0; s < 2; s++)
			printf("%2u in flight  %u KB  %7.0f reads/s  %5.1f us of CPU a read\n",
				   depths[d], sizes[s] / 1024, Median(rates[s]),
				   Median(cpus[s]));
	}
	return 0;
}
