/*
 * prune.c
 *		RobustPrune for callers with a distance of their own.
 */
#include "base/base.h"

#include "base/key.h"
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
PipeannRobustPrune(uint32 *cand, float *dist, int ncand,
				   const PipeannPruneParams *params,
				   PipeannPruneDistance distance, void *arg, uint32 *out)
{
	PipeannPruned p = {.cand = cand,.dist = dist,.n = ncand};

	Assert(params->forced <= ncand);
	if (ncand <= 0 || params->max_degree <= 0)
		return 0;
	SortCandidates(cand + params->forced, dist + params->forced,
				   ncand - params->forced);
	p.next = PipeannAlloc(mul_size(ncand, sizeof(int)));
	p.kept = PipeannAlloc(mul_size(params->max_degree, sizeof(int)));
	PipeannPruneSorted(&p, params, distance, arg);
	PipeannPruneFill(&p, Min(params->fill, params->max_degree));
	for (int i = 0; i < p.nkept; i++)
		out[i] = cand[p.kept[i]];
	pfree(p.kept);
	pfree(p.next);
	return p.nkept;
}
