/*
 * prune.h
 *		RobustPrune as a template: the build inlines its distance into it.
 */
#ifndef PIPEANN_PRUNE_H
#define PIPEANN_PRUNE_H

#include "graph/graph.h"
#include "graph/measure.h"

/* States of a candidate that needs no more comparisons with kept ones. */
#define PIPEANN_PRUNE_KEPT (-1)
#define PIPEANN_PRUNE_OUT (-2)

/* What pruning leaves: how far each candidate was compared, and which are kept. */
typedef struct PipeannPruned
{
	int		   *next;			/* [ncand] */
	int		   *kept;			/* [max_degree] */
} PipeannPruned;

/*
 * RobustPrune of cand[ncand] with dist[ncand], sorted by distance except for
 * the first `forced`, which are always kept. kept[] gets the positions of the
 * kept candidates in the order in which they were kept. Returns their number.
 *
 * A candidate is dropped if a kept one is nearer to it than the node is, by
 * the factor alpha. A first round with alpha 1 keeps the edges that no other
 * edge can replace, a second one those that alpha allows. Each candidate is
 * compared with the kept ones until one drops it, and the second round goes on
 * from there, which takes a fraction of the distances of an update of all
 * candidates for each kept one.
 */
static pg_attribute_always_inline int
PipeannPruneSorted(const uint32 *cand, const float *dist, int ncand,
				   const PipeannPruneParams *params,
				   PipeannPruneDistance distance, void *arg,
				   const PipeannPruned *out)
{
	int			forced = params->forced;
	float		alpha = params->alpha;
	int			max_degree = params->max_degree;
	int		   *next = out->next;
	int		   *kept = out->kept;
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
 * Fill kept[nkept] up to max_degree with the nearest of the dropped candidates
 * (DiskANN's saturate_graph). Returns the new length.
 */
static inline int
PipeannPruneFill(const PipeannPruned *out, int ncand, int max_degree,
				 int nkept)
{
	int			i;

	for (i = 0; i < ncand && nkept < max_degree; i++)
		if (out->next[i] != PIPEANN_PRUNE_KEPT)
			out->kept[nkept++] = i;
	return nkept;
}

#endif							/* PIPEANN_PRUNE_H */
