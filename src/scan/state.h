/*
 * state.h
 *		An index scan's state; private to scan/.
 */
#ifndef PIPEANN_SCAN_STATE_H
#define PIPEANN_SCAN_STATE_H

#include "scan/tid_filter.h"
#include "scan/filter.h"
#include "scan/left_out.h"
#include "scan/only.h"
#include "scan/prefetch.h"

typedef struct PipeannHeld PipeannHeld;	/* results held back (scan.c) */

typedef struct PipeannScan
{
	MemoryContext context;		/* reset by each rescan */
	bool		started;
	bool		searched;		/* the search's first run is over */
	PipeannCounters counters;	/* over all rescans */
	int			mode;
	bool		replica;		/* a packing may be replaced during the scan */

	PipeannIndexView view;
	PipeannPageSource *source;
	PipeannSearch *search;
	PipeannFilter *filter;		/* NULL if there are no conditions */
	float	   *exact;			/* [dim] a vector before rounding */
	const float *query;
	bool		exhausted;		/* the search cannot or must not go on */
	bool		late;			/* rows were left out that came too late */
	uint64		taken;			/* results popped */
	int64		looked_at;		/* rows returned, or found not to be visible, but
								 * for those that are dead to everybody */
	float		last_dist;		/* of the result popped last */
	float		farthest;		/* the largest distance that a row returned so
								 * far may have */
	uint32		held;			/* rows that the executor may hold back */
	bool		comparable;		/* the executor can compare rows */
	bool		recheck;		/* the executor has to compare the current rows */
	PipeannScanContext heeds;
	PipeannTidFilterState *tid_filter;	/* of the nodes of given rows, or NULL */

	PipeannKilledRows killed;
	PipeannScanRow row;
	PipeannPrefetch prefetch;

	/* of an index-only scan, else NULL */
	PipeannOnly *only;
	bool		holds_back;		/* rows in doubt, not the executor */
	PipeannHeld *held_back;		/* NULL if no vector is rounded, too */
	float		last_held;		/* distance of the result taken from it last */

	/* of rows that the index leaves out, when there are no others */
	PipeannLeftOut *left_out;
	PipeannRow	row_left_out;

	/* rows of the current result */
	void	   *rows;
	const PipeannRow *next_row;
	uint32		rows_left;
	PipeannChain chain;			/* its rows in overflow slots */
} PipeannScan;

/* start.c */
extern void PipeannScanStart(IndexScanDesc scan, PipeannScan *state);

#endif							/* PIPEANN_SCAN_STATE_H */
