/*
 * prune.c
 *		RobustPrune for callers with a distance of their own.
 */
#include "base.h"

#include "graph/key.h"
#include "graph/prune.h"

static void
SortCandidates(uint32 *cand, float *dist, int ncand)
{
	PipeannKey *keys = PipeannAlloc(mul_size(ncand, sizeof(PipeannKey)));
	int			i;

	for (i = 0; i < ncand; i++)
		keys[i] = PipeannKeyMake(Max(dist[i], 0.0f), cand[i]);
	PipeannKeySort(keys, ncand);
	for (i = 0; i < ncand; i++)
	{
		cand[i] = PipeannKeyId(keys[i]);
		dist[i] = PipeannKeyDistance(keys[i]);
	}
	pfree(keys);
}

int
PipeannRobustPrune(uint32 *cand, float *dist, int ncand, float alpha,
				   int max_degree, PipeannPruneDistance distance, void *arg,
				   uint32 *out)
{
	int		   *next;
	int		   *kept;
	int			nkept;
	int			i;

	if (ncand <= 0 || max_degree <= 0)
		return 0;
	SortCandidates(cand, dist, ncand);
	next = PipeannAlloc(mul_size(ncand, sizeof(int)));
	kept = PipeannAlloc(mul_size(max_degree, sizeof(int)));
	nkept = PipeannPruneSorted(cand, dist, ncand, alpha, max_degree,
							   distance, arg, next, kept);
	for (i = 0; i < nkept; i++)
		out[i] = cand[kept[i]];
	pfree(kept);
	pfree(next);
	return nkept;
}
