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

/* Candidates of a node, sorted by distance but for those that are forced. */
typedef struct PipeannPruned
{
	const uint32 *cand;			/* [n] */
	const float *dist;			/* [n] */
	int			n;
	int		   *next;			/* [n] work space: states */
	int		   *kept;			/* [max_degree] positions, as they were kept */
	int			nkept;
} PipeannPruned;

/*
 * RobustPrune. The first params->forced are always kept.
 *
 * A candidate is dropped if a kept one is nearer to it than the node is, by
 * the factor alpha. A first round with alpha 1 keeps the edges that no other
 * edge can replace, a second one those that alpha allows. Each candidate is
 * compared with the kept ones until one drops it, and the second round goes on
 * from there, which takes a fraction of the distances of an update of all
 * candidates for each kept one.
 */
static pg_attribute_always_inline void
PipeannPruneSorted(PipeannPruned *p, const PipeannPruneParams *params,
				   PipeannPruneDistance distance, void *arg)
{
	const uint32 *cand = p->cand;
	const float *dist = p->dist;
	int		   *next = p->next;
	int		   *kept = p->kept;
	float		alpha = params->alpha;
	int			nkept = 0;
	int			round;
	int			i;

	memset(next, 0, sizeof(int) * p->n);
	for (i = 0; i < params->forced && nkept < params->max_degree; i++)
	{
		kept[nkept++] = i;
		next[i] = PIPEANN_PRUNE_KEPT;
	}
	for (round = 0; round < (alpha > 1.0f ? 2 : 1); round++)
	{
		float		factor = round == 0 ? 1.0f : alpha;

		for (i = params->forced; i < p->n && nkept < params->max_degree; i++)
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
	p->nkept = nkept;
}

/*
 * Fill kept[] up to `most` with the nearest of the dropped candidates (DiskANN's
 * saturate_graph).
 */
static inline void
PipeannPruneFill(PipeannPruned *p, int most)
{
	for (int i = 0; i < p->n && p->nkept < most; i++)
		if (p->next[i] != PIPEANN_PRUNE_KEPT)
			p->kept[p->nkept++] = i;
}

#endif							/* PIPEANN_PRUNE_H */
