/*
 * settled.h
 *		Results that are likely to be returned, told while a search waits.
 */
#ifndef PIPEANN_SETTLED_H
#define PIPEANN_SETTLED_H

#include "search/state.h"

extern void PipeannTellSettled(PipeannSearch *search);

/* Start the reads that are queued, and tell. */
static inline void
PipeannStartReads(PipeannSearch *search)
{
	search->source->submit(search->source);
	PipeannTellSettled(search);
}

#endif							/* PIPEANN_SETTLED_H */
