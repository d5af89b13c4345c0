/*
 * memory_source.h
 *		A page source over an index in memory. A page may be resident; a read
 *		takes a random number of looks. A frame that is given back is
 *		overwritten, so that code that still uses it fails.
 */
#ifndef PIPEANN_MEMORY_SOURCE_H
#define PIPEANN_MEMORY_SOURCE_H

#include "memory_index.h"
#include "unit.h"

typedef struct MemoryFrame
{
	PipeannFrame frame;
	int			looks;			/* until it arrives */
	bool		came;			/* but next() has yet to tell */
	bool		told;			/* as READY */
	char	   *copy;
} MemoryFrame;

#define MAX_FRAMES 4096

typedef struct MemorySource
{
	PipeannPageSource source;
	const Index *index;
	PipeannCounters counters;
	MemoryFrame *frames[MAX_FRAMES];	/* held */
	int			nframes;
	int			most_frames;	/* at once */
	bool	   *held;			/* [pages] */
	uint32	   *requests;		/* [pages] */
	int			resident;		/* per cent of the pages */
	int			mistakes;		/* breaches of the protocol */
	uint64		random;
} MemorySource;

extern MemorySource *OpenSource(const Index *index, int resident, uint64 seed);

#endif							/* PIPEANN_MEMORY_SOURCE_H */
