/*
 * together.h
 *		Searches of several indexes for one query; private to search/.
 */
#ifndef PIPEANN_SEARCH_TOGETHER_H
#define PIPEANN_SEARCH_TOGETHER_H

#include "search/state.h"

extern void PipeannTogetherKeep(PipeannTogether *together, int length);
extern void PipeannTogetherNote(PipeannTogether *together, const float *dists,
								int n);
extern float PipeannTogetherBound(const PipeannTogether *together, int length);
extern int	PipeannTogetherLeast(const PipeannTogether *together, int length);
extern void PipeannMakeTable(PipeannSearch *search);

#endif							/* PIPEANN_SEARCH_TOGETHER_H */
