/*
 * rounds.h
 *		Searches of several indexes for one query, run in rounds; private to
 *		search/.
 */
#ifndef PIPEANN_SEARCH_ROUNDS_H
#define PIPEANN_SEARCH_ROUNDS_H

#include "search/state.h"

extern void PipeannRoundsJoin(PipeannTogether *together,
							  PipeannSearch *search);
extern void PipeannRoundsRun(PipeannTogether *together);

#endif							/* PIPEANN_SEARCH_ROUNDS_H */
