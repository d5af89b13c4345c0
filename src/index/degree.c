/*
 * degree.c
 *		The degree of the graph for m = 0, by a profile of the machine.
 *
 * After FlashANNS 3.3: a step of a search reads a page and computes distances
 * to the neighbours found there. While the distances take less time than the
 * read, more neighbours cost nothing and spare steps. So the degree is the one
 * at which both take the same time, as far as pages allow: neighbours take
 * room from page-mates, and a read should bring several nodes.
 */
#include "postgres.h"

#include <math.h>

#include "common/pg_prng.h"
#include "index/index.h"
#include "io/io.h"
#include "distance/sparse.h"
#include "portability/instr_time.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

#define MIN_DEGREE 24
#define MAX_DEGREE 128

/* A smaller table is soon in memory, and does not tell how fast the disk is. */
#define MIN_BLOCKS 256

#define LIST 64					/* codes of a list, like those of a node */
#define LISTS 64
#define ROUNDS 9
#define CODE_BYTES ((Size) 32 * 1024 * 1024)

static double
Nanoseconds(instr_time start)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, start);
	return INSTR_TIME_GET_DOUBLE(now) * 1e9;
}

/*
 * The time of one code distance, for lists of codes scattered over as much
 * memory as the codes will take, or over more than the CPU's caches hold.
 */
static double
ProfileNeighbor(const PipeannLayout *l, uint32 n)
{
	Size		most = Min(CODE_BYTES, (Size) maintenance_work_mem * 1024 / 4);
	uint32		ncodes = Max(Min(n, most / l->pq_bytes), 1);
	uint8	   *memory = palloc0(mul_size(ncodes, l->pq_bytes));
	float	   *table = palloc0(mul_size(l->pq_bytes, 256 * sizeof(float)));
	const uint8 *codes[LIST];
	float		out[LIST];
	PipeannPq	pq = PipeannPqNew(l->storage, l->dim, l->pq_bytes);
	pg_prng_state random;
	double		ns[ROUNDS];

	pg_prng_seed(&random, 1);
	for (Size i = 0; i < (Size) ncodes * l->pq_bytes; i++)
		memory[i] = (uint8) (i * 167);
	for (int round = 0; round < ROUNDS; round++)
	{
		ns[round] = 0;
		for (int i = 0; i < LISTS; i++)
		{
			instr_time	start;

			for (int j = 0; j < LIST; j++)
				codes[j] = memory + l->pq_bytes *
					pg_prng_uint64_range(&random, 0, ncodes - 1);
			INSTR_TIME_SET_CURRENT(start);
			PipeannPqScan(&pq, l->metric, table, codes, LIST, out);
			ns[round] += Nanoseconds(start) / (LIST * LISTS);
		}
	}
	pfree(table);
	pfree(memory);
	return PipeannProfileMedian(ns, ROUNDS);
}

/* The time of an exact distance between two vectors. */
static double
ProfileNode(const char *vectors, uint32 n, const PipeannLayout *l)
{
	Size		stride = PipeannVectorBytes(l->storage, l->dim);
	float	   *x = palloc(mul_size(PipeannFloats(l->storage, l->dim), sizeof(float)));
	float	   *room = palloc(mul_size(l->dim, sizeof(float)));
	const void *query;
	double		ns[ROUNDS];

	PipeannVectorUnpack(vectors, l->storage, l->dim, x);
	query = PipeannQueryFor(l->storage, x, l->dim, room);
	for (int round = 0; round < ROUNDS; round++)
	{
		instr_time	start;

		INSTR_TIME_SET_CURRENT(start);
		for (int i = 0; i < LIST; i++)
			(void) PipeannKernel->l2[l->storage] (query, vectors +
												  (Size) (i % n) * stride,
												  l->dim);
		ns[round] = Nanoseconds(start) / LIST;
	}
	pfree(x);
	pfree(room);
	return PipeannProfileMedian(ns, ROUNDS);
}

static PipeannLayout
LayoutOfDegree(const PipeannLayout *base, int degree)
{
	PipeannLayout l = *base;

	l.max_degree = degree / 2 * 2;
	PipeannLayoutInit(&l, &l, 100);
	return l;
}

/* The most neighbours whose distances take no more time than a read. */
static int
BalancedDegree(const PipeannDegree *d, const PipeannLayout *base)
{
	for (int degree = MAX_DEGREE; degree > MIN_DEGREE; degree -= 2)
	{
		PipeannLayout l = LayoutOfDegree(base, degree);

		if (degree * d->neighbor_ns + l.slots_per_page * d->node_ns <=
			d->read_us * 1000)
			return degree;
	}
	return MIN_DEGREE;
}

/*
 * The number of a search's reads goes with a power of the degree and one of
 * the nodes a page. No one law fits all data sets; these powers are a
 * compromise. They fill a page that has room left, and let neighbours take
 * half as much room again as vectors do.
 */
#define DEGREE_POWER -0.6
#define SLOTS_POWER -1.0

/* The degree, at most `most`, for which a search has the fewest reads. */
static int
PickDegree(const PipeannLayout *base, int most)
{
	int			best = Min(MIN_DEGREE, most);
	double		best_reads = 0;

	for (int degree = best; degree <= most; degree += 2)
	{
		PipeannLayout l = LayoutOfDegree(base, degree);
		double		reads = pow(degree, DEGREE_POWER) * l.node_pages *
			pow(l.slots_per_page, SLOTS_POWER);

		if (best_reads == 0 || reads < best_reads)
		{
			best = degree;
			best_reads = reads;
		}
	}
	return best;
}

/* Measure read and distances. False if the machine cannot be profiled. */
static bool
Profile(Relation heap, const char *vectors, uint32 n,
		const PipeannLayout *base, PipeannDegree *degree)
{
	BlockNumber nblocks;
	double		us;

	degree->reason = PIPEANN_DEGREE_FEW_ROWS;
	if (n < PIPEANN_MIN_CODED_NODES)
		return false;
	nblocks = RelationGetNumberOfBlocks(heap);
	if (nblocks < MIN_BLOCKS)
		return false;
	degree->reason = PIPEANN_DEGREE_NO_PROFILE;
	if (!PipeannProfileReads(heap, nblocks, &us))
		return false;
	degree->reason = PIPEANN_DEGREE_PROFILED;
	degree->read_us = us;
	degree->neighbor_ns = ProfileNeighbor(base, n);
	degree->node_ns = ProfileNode(vectors, n, base);
	return true;
}

/*
 * Choose m, at most max_m, for vectors[n] of a table, one after the other; base has
 * the layout's other options. Sets *degree to the reason. If the machine cannot be
 * profiled, returns the default m, or max_m if that is less.
 */
int
PipeannChooseM(Relation heap, const char *vectors, uint32 n,
			   const PipeannLayout *base, int max_m, PipeannDegree *degree)
{
	int			balanced;

	memset(degree, 0, sizeof(*degree));
	if (!Profile(heap, vectors, n, base, degree))
		return Min(PIPEANN_DEFAULT_M, max_m);
	balanced = BalancedDegree(degree, base);
	degree->balanced = balanced;
	return PickDegree(base, Min(balanced, 2 * max_m)) / 2;
}

char *
PipeannDegreeText(const PipeannMeta *meta)
{
	const PipeannDegree *d = &meta->degree;

	switch (d->reason)
	{
		case PIPEANN_DEGREE_OPTION:
			return pstrdup("option m");
		case PIPEANN_DEGREE_PROFILED:
			return psprintf("profile: a read takes %.1f us, a code distance %.1f ns, an exact one %.1f ns: up to %u neighbors balance a read; with %d a page holds %d",
							d->read_us, d->neighbor_ns, d->node_ns,
							d->balanced, meta->layout.max_degree,
							meta->layout.slots_per_page);
		case PIPEANN_DEGREE_FEW_ROWS:
			return pstrdup("default: too few rows for a profile when the index was built");
		default:
			return pstrdup("default: pages could not be read for a profile");
	}
}
