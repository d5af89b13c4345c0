/*
 * recent.h
 *		What the latest queries of an index found, for queries like them.
 *
 * Kept with the codes, so that all backends share it. It is a hint: nobody
 * locks it, ids are bounds-checked, and an entry that two backends write at
 * once is a mixture of both.
 */
#ifndef PIPEANN_RECENT_H
#define PIPEANN_RECENT_H

#include "base/base.h"

#define PIPEANN_RECENT_QUERIES 256
#define PIPEANN_RECENT_IDS 4

typedef struct PipeannRecent
{
	uint32		next;			/* queries ever added */
	/* nearest first; INVALID_ID where there is none */
	uint32		ids[PIPEANN_RECENT_QUERIES][PIPEANN_RECENT_IDS];
} PipeannRecent;

extern void PipeannRecentInit(PipeannRecent *recent);

/* Begin a query's entry with its nearest result; returns the entry. */
extern uint32 PipeannRecentAdd(PipeannRecent *recent, uint32 id);

#endif							/* PIPEANN_RECENT_H */
