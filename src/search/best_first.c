/*
 * best_first.c
 *		DiskANN's beam search: rounds of W reads of the best unexplored
 *		candidates.
 *
 * Within a round each completion is handled as it arrives, and exact distances
 * are computed while the others are awaited (AIO-ANN), but the next round is
 * decided only when all of this one is explored.
 */
#include "search/engine.h"

#define BEAM 1

void
PipeannRunBestFirst(PipeannSearch *search)
{
	while (PipeannPoolIsOpen(&search->pool))
	{
		(void) PipeannChooseNearest(search, BEAM, PipeannBeamWidth(search));
		while (PipeannExploreBeam(search, BEAM))
			PipeannAwaitPage(search);
		PipeannJoinPageMates(search);
	}
}
