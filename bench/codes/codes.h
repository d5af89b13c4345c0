/*
 * codes.h
 *		Searches with any code, for measurements: an index in memory, built and
 *		searched by the code of src/, in which a code is given as what it decodes
 *		to.
 *
 * A code's distance is bias[id] minus twice the product of the query and the
 * decoded vector; every code tried is of that form. The files here make a
 * library for index.py.
 */
#ifndef PIPEANN_BENCH_CODES_H
#define PIPEANN_BENCH_CODES_H

#include "distance/distance.h"
#include "memory_index.h"

#define CODES_K 10

/* The code being measured, and the query being searched. */
typedef struct Coded
{
	const float *vectors;		/* [ids][dim], decoded */
	const float *bias;			/* [ids] */
	const float *query;
	int			dim;
} Coded;

extern Coded CodesCoded;

static inline float
CodesDistance(uint32 id)
{
	const Coded *c = &CodesCoded;

	return c->bias[id] - 2 *
		PipeannKernel->dot[PIPEANN_FLOAT4] (c->query,
											c->vectors + (Size) id * c->dim,
											c->dim);
}

/* What a search gives: the nearest nodes and what they cost. */
typedef struct Found
{
	uint32		reads;
	uint32		code_distances;
	uint32		explored;
	uint32		nodes[CODES_K];
} Found;

/* engine.c: by the engine, in a mode of its own. */
extern void CodesSearchEngine(const Index *index, const float *query,
							  int mode, int width, int ef, int latency,
							  Found *found);

#endif							/* PIPEANN_BENCH_CODES_H */
