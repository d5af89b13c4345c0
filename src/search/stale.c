/*
 * stale.c
 *		FlashANNS' relaxed dependency: the reads of a step are chosen before the
 *		pages of the step before it are looked at.
 *
 * Two beams take turns: while the pages of one are explored, those of the
 * other are being read. So a step reads what was chosen two steps before, and
 * reading and computing overlap fully. The paper found that this costs a few
 * steps more, and that an older dependency than that does not pay (3.2).
 */
#include "search/beam.h"
#include "search/policy.h"

/* The other of the two beams. */
#define OTHER(beam) (3 - (beam))

static void
RunStale(PipeannSearch *search)
{
	int			width = (PipeannBeamWidth(search) + 1) / 2;
	int			beam = 1;

	PipeannChooseNearest(search, beam, width);
	while (PipeannPoolIsOpen(&search->pool))
	{
		PipeannChooseNearest(search, OTHER(beam), width);
		while (PipeannExploreBeam(search, beam))
			PipeannAwaitPage(search);
		PipeannAddPageMates(search);
		beam = OTHER(beam);
	}
}

const PipeannPolicy PipeannStale = {
	.name = "stale",
	.run = RunStale
};
