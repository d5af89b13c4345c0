/*
 * rounds.h
 *		Searches of several indexes for one query, run in rounds; private to
 *		search/.
 */
#ifndef PIPEANN_SEARCH_ROUNDS_H
#define PIPEANN_SEARCH_ROUNDS_H

#include "search/state.h"

/* A search has found where it begins, and is run with the others from now on. */
extern void PipeannRoundsJoin(PipeannTogether *together,
							  PipeannSearch *search);

/* Run all that have joined, unless they have been run. */
extern void PipeannRoundsRun(PipeannTogether *together);

#endif							/* PIPEANN_SEARCH_ROUNDS_H */
