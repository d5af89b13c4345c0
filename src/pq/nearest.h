/*
 * nearest.h
 *		The nearest of a chunk's centroids; private to pq/.
 */
#ifndef PIPEANN_NEAREST_H
#define PIPEANN_NEAREST_H

#include "pq/pq.h"

#define NEAREST_LANES 16

/*
 * The index of the smallest of distance[256], the first one if several are
 * equal, 0 if none is a number. Two passes, for the smallest value of each
 * lane and then for its place in that lane: compilers turn the first into
 * vector instructions, which they cannot do to a loop that carries both along.
 */
static inline int
NearestCentroid(const float *distance)
{
	float		lane[NEAREST_LANES];
	float		smallest;
	int			nearest = PIPEANN_CENTROIDS;

	for (int i = 0; i < NEAREST_LANES; i++)
		lane[i] = distance[i];
	for (int k = NEAREST_LANES; k < PIPEANN_CENTROIDS; k += NEAREST_LANES)
		for (int i = 0; i < NEAREST_LANES; i++)
			lane[i] = distance[k + i] < lane[i] ? distance[k + i] : lane[i];

	smallest = lane[0];
	for (int i = 1; i < NEAREST_LANES; i++)
		smallest = lane[i] < smallest ? lane[i] : smallest;

	for (int i = 0; i < NEAREST_LANES; i++)
	{
		if (lane[i] != smallest)
			continue;
		for (int k = i; k < nearest; k += NEAREST_LANES)
			if (distance[k] == smallest)
				nearest = k;
	}
	return nearest < PIPEANN_CENTROIDS ? nearest : 0;
}

#endif							/* PIPEANN_NEAREST_H */
