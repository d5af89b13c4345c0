/*
 * prune.h
 *		RobustPrune as a template: the build inlines its distance into it.
 */
#ifndef PIPEANN_PRUNE_H
#define PIPEANN_PRUNE_H

#include "graph/graph.h"
#include "graph/measure.h"

/* States of a candidate that no kept one has to be compared with any more. */
#define PIPEANN_PRUNE_KEPT (-1)
#define PIPEANN_PRUNE_OUT (-2)

/*
 * cand[ncand], dist[ncand] as for PipeannRobustPrune() but sorted by distance,
 * apart from the first `forced`, which are kept whatever they are. next[ncand]
 * and kept[max_degree] are work space; kept has the ranks of the kept
 * candidates in the order they were kept. Returns their number.
 *
 * A candidate is dropped when a kept one is nearer to it than the node is, by
 * alpha. A first round with alpha 1 keeps the edges no other edge can stand
 * for, before a second takes those that alpha lets pass. Comparing each
 * candidate with the kept ones until one drops it, and going on from there in
 * the second round, needs a fraction of the distances that updating all
 * candidates on each kept one does.
 */
static pg_attribute_always_inline int
PipeannPruneSorted(const uint32 *cand, const float *dist, int ncand,
				   int forced, float alpha, int max_degree,
				   PipeannPruneDistance distance, void *arg,
				   int *next, int *kept)
{
	int			nkept = 0;
	int			round;
	int			i;

	memset(next, 0, sizeof(int) * ncand);
	for (i = 0; i < forced && nkept < max_degree; i++)
	{
		kept[nkept++] = i;
		next[i] = PIPEANN_PRUNE_KEPT;
	}
	for (round = 0; round < (alpha > 1.0f ? 2 : 1); round++)
	{
		float		factor = round == 0 ? 1.0f : alpha;

		for (i = forced; i < ncand && nkept < max_degree; i++)
		{
			int			s = next[i];

			if (s < 0)
				continue;
			for (; s < nkept; s++)
			{
				float		d = distance(cand[kept[s]], cand[i], arg);

				if (factor * d <= dist[i])
				{
					next[i] = alpha * d <= dist[i] ? PIPEANN_PRUNE_OUT : s + 1;
					break;
				}
			}
			if (s == nkept)
			{
				kept[nkept++] = i;
				next[i] = PIPEANN_PRUNE_KEPT;
			}
		}
	}
	return nkept;
}

/*
 * Fill kept[nkept] up to max_degree with the nearest of those dropped
 * (DiskANN's saturate_graph). Returns the new length.
 */
static inline int
PipeannPruneFill(const int *next, int ncand, int max_degree, int *kept,
				 int nkept)
{
	int			i;

	for (i = 0; i < ncand && nkept < max_degree; i++)
		if (next[i] != PIPEANN_PRUNE_KEPT)
			kept[nkept++] = i;
	return nkept;
}

#endif							/* PIPEANN_PRUNE_H */
