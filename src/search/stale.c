/*
 * stale.c
 *		FlashANNS' relaxed dependency: the reads of a step are chosen before the
 *		pages of the step before it are looked at.
 *
 * Two beams take turns: while the pages of one are explored, those of the
 * other are being read. So a step reads what was ranked two steps before, and
 * reading and computing overlap fully; the paper found that this costs a few
 * steps more, and that a dependency older than one step does not pay (3.2).
 */
#include "search/engine.h"

/* The other of the two beams. */
#define OTHER(beam) (3 - (beam))

void
PipeannRunStale(PipeannSearch *search)
{
	int			width = (PipeannBeamWidth(search) + 1) / 2;
	int			beam = 1;

	(void) PipeannChooseNearest(search, beam, width);
	while (PipeannPoolIsOpen(&search->pool))
	{
		(void) PipeannChooseNearest(search, OTHER(beam), width);
		while (PipeannExploreBeam(search, beam))
			PipeannAwaitPage(search);
		PipeannJoinPageMates(search);
		beam = OTHER(beam);
	}
}
