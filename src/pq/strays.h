/*
 * strays.h
 *		Nodes whose codes err far more than those of others.
 *
 * A vector that is unlike all that the codebook was trained on has the code of others.
 * By that it is as far from every query as they are, and a list of candidates may be
 * full of them. The few that err most are known by id, and searches take for the distance
 * of such a code the least that the vector's may be.
 *
 * A code that errs as much, and that no other node's is near, misleads nobody: it is the
 * nearest of all to its vector. Such a stray is lonely. Searches make it a candidate, as no
 * edge may lead to it, but by its code's distance.
 */
#ifndef PIPEANN_STRAYS_H
#define PIPEANN_STRAYS_H

#include <math.h>

#include "pq/pq.h"

/* A code strays if its squared error is more than so many times the usual. */
#define PIPEANN_STRAYED 9.0f

#define PIPEANN_MAX_STRAYS 32

/*
 * A stray is not lonely if another code is as near to its own as half of the distance at
 * which its vector is. Of real sets (SIFT, GloVe, MiniLM, Fashion-MNIST) all strays are.
 */
#define PIPEANN_ALIKE 0.25f

/* On disk, in the metapage. */
typedef struct PipeannStray
{
	uint32		id;
	float		error;			/* squared distance of code and vector; less than 0
								 * (and as much) of a lonely one */
	float		code_square;	/* the code's squared length */
	float		square;			/* the vector's; for l1 the code's error by l1 */
} PipeannStray;

typedef struct PipeannStrays
{
	uint32		n;
	PipeannStray items[PIPEANN_MAX_STRAYS]; /* lonely ones last */
} PipeannStrays;

/* Whether a code of this squared error is one, where so much is usual; 0: nobody knows. */
static inline bool
PipeannHasStrayed(float error, float usual)
{
	return usual > 0 && error > PIPEANN_STRAYED * usual && error < INFINITY;
}

/* A bit for each of some ids. */
static inline uint64
PipeannStrayBit(uint32 id)
{
	return (uint64) 1 << (id % 64);
}

/* strays.c */
extern bool PipeannStrayMake(const PipeannPq *pq, PipeannMetric metric,
							 const float *x, const uint8 *code, float usual,
							 PipeannStray *stray);
extern void PipeannStraysSet(PipeannStrays *strays, uint32 id,
							 const PipeannStray *stray);
extern bool PipeannCodesAlike(const PipeannPq *pq, const PipeannStray *stray,
							  const uint8 *code, const uint8 *other);
extern uint64 PipeannStrayBits(const PipeannStrays *strays);
extern const PipeannStray *PipeannStrayFind(const PipeannStrays *strays,
											uint32 id);
extern float PipeannStrayLeast(const PipeannStray *stray, PipeannMetric metric,
							   float query_square, float dist);

#endif							/* PIPEANN_STRAYS_H */
