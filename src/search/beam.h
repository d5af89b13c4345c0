/*
 * beam.h
 *		Candidates that were chosen together, for policies that go in rounds;
 *		private to search/. Those that leave the pool leave their beam, too.
 */
#ifndef PIPEANN_SEARCH_BEAM_H
#define PIPEANN_SEARCH_BEAM_H

#include "search/explore.h"

/* Nodes explored in one round, unless pipeline_width says otherwise. */
#define PIPEANN_BEAM_WIDTH 8

static inline int
PipeannBeamWidth(const PipeannSearch *search)
{
	return search->params.width > 0 ? search->params.width :
		PIPEANN_BEAM_WIDTH;
}

/* Choose a candidate for a beam and ask for its page. */
extern void PipeannChoose(PipeannSearch *search, int position, int beam);

/* Choose the nearest width candidates that are in no beam, and start reads. */
extern void PipeannChooseNearest(PipeannSearch *search, int beam, int width);

/* Explore those of a beam whose pages are at hand; false when none is left. */
extern bool PipeannExploreBeam(PipeannSearch *search, int beam);

#endif							/* PIPEANN_SEARCH_BEAM_H */
