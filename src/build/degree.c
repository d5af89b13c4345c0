/*
 * degree.c
 *		The degree of the graph for m = 0, by a profile of the machine.
 *
 * After FlashANNS 3.3: a step of a search reads a page and computes distances
 * to the neighbours found there. While the distances take less time than the
 * read, more neighbours cost nothing and save steps. So the degree is the one
 * at which both take the same time, as far as pages allow: neighbours take
 * room from page-mates, and a read should bring in several nodes.
 */
#include "postgres.h"

#include <math.h>

#include "base/key.h"
#include "build/internal.h"
#include "common/pg_prng.h"
#include "distance/sparse.h"
#include "io/io.h"
#include "portability/instr_time.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

#define MIN_DEGREE 24
#define MAX_DEGREE 128

/* A smaller table is soon in memory, so reading it does not show how fast the disk is. */
#define MIN_BLOCKS 256

#define LIST 64					/* codes of a list, like those of a node */
#define LISTS 255
#define CODE_BYTES ((Size) 32 * 1024 * 1024)

/* Nanoseconds from then to now, each of LIST distances. */
static double
EachTook(instr_time then)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, then);
	return INSTR_TIME_GET_DOUBLE(now) * 1e9 / LIST;
}

/*
 * Measure the time of a code distance, with codes scattered over as much
 * memory as they will take, or over more than the CPU's caches hold, and of an
 * exact distance: medians, as other processes use the machine, too.
 */
static void
ProfileDistances(const PipeannLayout *l, const char *vectors, uint32 n,
				 PipeannDegree *d)
{
	Size		most = Min(CODE_BYTES, (Size) maintenance_work_mem * 1024 / 4);
	uint32		ncodes = Max(Min(n, most / l->pq_bytes), 1);
	uint8	   *memory = palloc0(mul_size(ncodes, l->pq_bytes));
	float	   *table = palloc0(mul_size(l->pq_bytes, 256 * sizeof(float)));
	float	   *x = palloc(mul_size(PipeannFloats(l->storage, l->dim), sizeof(float)));
	float	   *room = palloc(mul_size(l->dim, sizeof(float)));
	const void *query;
	const uint8 *codes[LIST];
	float		out[LIST];
	PipeannPq	pq = PipeannPqNew(l->storage, l->dim, l->pq_bytes);
	pg_prng_state random;
	PipeannKey	of_code[LISTS];
	PipeannKey	of_vector[LISTS];

	pg_prng_seed(&random, 1);
	for (Size i = 0; i < (Size) ncodes * l->pq_bytes; i++)
		memory[i] = (uint8) (i * 167);
	PipeannVectorUnpack(vectors, l->storage, l->dim, x);
	query = PipeannQueryFor(l->storage, x, l->dim, room);
	for (uint32 i = 0; i < LISTS; i++)
	{
		instr_time	start;

		for (int j = 0; j < LIST; j++)
			codes[j] = memory + l->pq_bytes *
				pg_prng_uint64_range(&random, 0, ncodes - 1);
		INSTR_TIME_SET_CURRENT(start);
		PipeannPqScan(&pq, l->metric, table, codes, LIST, out);
		of_code[i] = PipeannKeyMake(EachTook(start), i);
		INSTR_TIME_SET_CURRENT(start);
		for (uint32 j = 0; j < LIST; j++)
			(void) PipeannKernel->l2[l->storage] (query, vectors + j % n *
												  PipeannVectorBytes(l->storage, l->dim),
												  l->dim);
		of_vector[i] = PipeannKeyMake(EachTook(start), i);
	}
	PipeannKeySort(of_code, LISTS);
	PipeannKeySort(of_vector, LISTS);
	d->neighbor_ns = PipeannKeyDistance(of_code[LISTS / 2]);
	d->node_ns = PipeannKeyDistance(of_vector[LISTS / 2]);
	pfree(memory);
	pfree(table);
	pfree(x);
	pfree(room);
}

/*
 * The number of a search's reads is proportional to a power of the degree, and falls with the
 * number of nodes on a page. No one law fits all data sets; this power is a compromise. It fills a
 * page that has room left, and lets neighbours take up to half as much room again as vectors.
 */
#define DEGREE_POWER -0.6

/*
 * Choose m, at most max_m, for vectors[n] of a table, stored one after the other;
 * base has the layout's other options. Of the degrees whose distances take no more
 * time than a read it is the one with the fewest reads. Sets *d to the reason. If
 * the machine cannot be profiled, returns the default m, or max_m if that is less.
 */
int
PipeannChooseM(Relation heap, const char *vectors, uint32 n,
			   const PipeannLayout *base, int max_m, PipeannDegree *d)
{
	BlockNumber nblocks = RelationGetNumberOfBlocks(heap);
	int			least = Min(MIN_DEGREE, 2 * max_m);
	int			best = least;
	double		best_reads = INFINITY;

	memset(d, 0, sizeof(*d));
	d->reason = PIPEANN_DEGREE_FEW_ROWS;
	if (n >= PIPEANN_MIN_CODED_NODES && nblocks >= MIN_BLOCKS)
		d->reason = PipeannProfileReads(heap, nblocks, &d->read_us) ?
			PIPEANN_DEGREE_PROFILED : PIPEANN_DEGREE_NO_PROFILE;
	if (d->reason != PIPEANN_DEGREE_PROFILED)
		return Min(PIPEANN_DEFAULT_M, max_m);
	ProfileDistances(base, vectors, n, d);
	for (int degree = least; degree <= MAX_DEGREE; degree += 2)
	{
		PipeannLayout l = *base;
		double		reads;

		l.max_degree = degree;
		PipeannLayoutInit(&l, &l, 100);
		if (degree > least && degree * d->neighbor_ns +
			l.slots_per_page * d->node_ns > d->read_us * 1000)
			continue;
		d->balanced = degree;
		reads = pow(degree, DEGREE_POWER) * l.node_pages / l.slots_per_page;
		if (degree <= 2 * max_m && reads < best_reads)
		{
			best = degree;
			best_reads = reads;
		}
	}
	return best / 2;
}
