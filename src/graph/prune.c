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

/*
 * RobustPrune (DiskANN, algorithm 2). cand[ncand] are candidate numbers,
 * dist[ncand] their distances from the node; distance(a, b, arg) gives that
 * between two candidates. Sorts cand and dist by distance, except for the
 * forced ones. Writes the kept candidates to out, the forced ones first, then
 * the most needed first, and returns their number. For insert and repair; the
 * build does the same inline.
 */
int
PipeannRobustPrune(uint32 *cand, float *dist, int ncand,
				   const PipeannPruneParams *params,
				   PipeannPruneDistance distance, void *arg, uint32 *out)
{
	PipeannPruned pruned;
	int			nkept;
	int			i;

	Assert(params->forced <= ncand);
	if (ncand <= 0 || params->max_degree <= 0)
		return 0;
	SortCandidates(cand + params->forced, dist + params->forced,
				   ncand - params->forced);
	pruned.next = PipeannAlloc(mul_size(ncand, sizeof(int)));
	pruned.kept = PipeannAlloc(mul_size(params->max_degree, sizeof(int)));
	nkept = PipeannPruneSorted(cand, dist, ncand, params, distance, arg,
							   &pruned);
	nkept = PipeannPruneFill(&pruned, ncand,
							 Min(params->fill, params->max_degree), nkept);
	for (i = 0; i < nkept; i++)
		out[i] = cand[pruned.kept[i]];
	pfree(pruned.kept);
	pfree(pruned.next);
	return nkept;
}
