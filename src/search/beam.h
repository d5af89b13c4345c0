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

extern void PipeannChoose(PipeannSearch *search, int position, int beam);
extern void PipeannChooseNearest(PipeannSearch *search, int beam, int width);
extern bool PipeannExploreBeam(PipeannSearch *search, int beam);

#endif							/* PIPEANN_SEARCH_BEAM_H */
