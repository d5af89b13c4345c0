/*
 * nearest.h
 *		The nearest of a chunk's centroids.
 *
 * Private to quant/.
 */
#ifndef PIPEANN_NEAREST_H
#define PIPEANN_NEAREST_H

#include "pq/pq.h"

#define NEAREST_LANES 16

/*
 * The place of the smallest of 256 distances, the first one if several are
 * equal; 0 if none is a number. Two passes, the smallest value of each lane
 * and then its place in that lane: compilers turn the first into vector
 * instructions, which they cannot where value and place are carried along.
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
