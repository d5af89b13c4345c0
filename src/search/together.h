/*
 * together.h
 *		Searches of several indexes for one query; private to search/.
 */
#ifndef PIPEANN_SEARCH_TOGETHER_H
#define PIPEANN_SEARCH_TOGETHER_H

#include "search/state.h"

/* Lists may be as long as this, from now on. */
extern void PipeannTogetherKeep(PipeannTogether *together, int length);

/* Candidates were found whose codes are at these distances. */
extern void PipeannTogetherNote(PipeannTogether *together, const float *dists,
								int n);

/*
 * The distance of the code of the candidate that is the last of a list of this
 * length of all. Infinity while there are fewer, or for too long a list.
 */
extern float PipeannTogetherBound(const PipeannTogether *together, int length);

/*
 * Candidates that each search explores at the least, whatever others have; length
 * is that of the list of all.
 */
extern int	PipeannTogetherLeast(const PipeannTogether *together, int length);

/*
 * Make the table of the distances of codes, or have that of another search: of
 * one together with this one, for the same query and codebook. As long as one of
 * them is run none of them begins anew.
 */
extern void PipeannMakeTable(PipeannSearch *search);

/* Before a run, learn what others have met; after it, tell them. */
extern void PipeannTogetherLearn(const PipeannTogether *together,
								 PipeannSearch *search);
extern void PipeannTogetherTell(PipeannTogether *together,
								const PipeannSearch *search);

#endif							/* PIPEANN_SEARCH_TOGETHER_H */
