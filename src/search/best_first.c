/*
 * best_first.c
 *		DiskANN's beam search: rounds of W reads of the best unexplored
 *		candidates.
 *
 * Within a round each completion is handled as it arrives, and exact distances
 * are computed while the others are awaited (AIO-ANN), but the next round is
 * decided only when all of this one is explored.
 */
#include "search/beam.h"
#include "search/policy.h"

#define BEAM 1

static void
RunBestFirst(PipeannSearch *search)
{
	while (PipeannPoolIsOpen(&search->pool))
	{
		PipeannChooseNearest(search, BEAM, PipeannBeamWidth(search));
		while (PipeannExploreBeam(search, BEAM))
			PipeannAwaitPage(search);
		PipeannAddPageMates(search);
	}
}

const PipeannPolicy PipeannBestFirst = {
	.name = "best_first",
	.run = RunBestFirst
};
