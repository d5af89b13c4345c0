/*
 * sibling.h
 *		One codebook for the indexes of several partitions; private to build/.
 */
#ifndef PIPEANN_BUILD_SIBLING_H
#define PIPEANN_BUILD_SIBLING_H

#include "build/build.h"

/* Move count of n samples, evenly spaced, to the end. */
extern void PipeannMoveSamples(float *samples, uint32 n, int dim, uint32 count);

/*
 * Take the codebook of another partition's index if it is about as good for
 * samples[n][dim] as one of their own. The last `aside` of them stay where they
 * are, the others may be put in another order. True if centroids, which the team
 * shares, are that codebook. All members call.
 */
extern bool PipeannSiblingCodebook(PipeannTeam *team, Relation index,
								   const PipeannPq *pq, PipeannMetric metric,
								   float *samples, uint32 n,
								   uint32 aside, float *centroids);

/* Steps of the team for that. */
#define PIPEANN_SIBLING_STEPS 1

#endif							/* PIPEANN_BUILD_SIBLING_H */
