/*
 * page_source.h
 *		Where a search gets its graph pages from.
 *
 * A search asks for graph pages by ordinal and gets frames. The real source
 * (io/page_source.c) follows the read rule: shared_buffers first, io_uring
 * past it; unit tests have one over memory.
 */
#ifndef PIPEANN_SOURCE_H
#define PIPEANN_SOURCE_H

#include "base/base.h"

#define PIPEANN_ALL_SLOTS (-1)

typedef enum PipeannFrameState
{
	PIPEANN_FRAME_FREE,
	PIPEANN_FRAME_IN_FLIGHT,	/* being read */
	PIPEANN_FRAME_READY			/* nodes may be used */
} PipeannFrameState;

typedef struct PipeannFrame
{
	uint32		page;			/* graph page ordinal */
	PipeannFrameState state;
	bool		hit;			/* from shared_buffers */
	int			slot;			/* READY: that may be used, or ALL_SLOTS */
	const char *nodes;			/* READY: slot 0 of the page */
	void	   *user;			/* the search's own */
} PipeannFrame;

/* Counters of one scan; summed per index in pipeann_stats. */
typedef struct PipeannCounters
{
	uint64		nodes_explored;
	uint64		code_distances;
	uint64		exact_distances;
	uint64		page_hits;
	uint64		page_reads;
	uint64		in_flight_sum;	/* over reads: in flight when it was queued */
	uint64		in_flight_peak;
	uint64		rounds;			/* times the search stopped to wait */
	uint64		wait_us;		/* microseconds in those waits */
	uint64		retries;		/* reads that did not verify at first */
	uint64		rows_out_of_order;	/* found too late for strict order */
} PipeannCounters;

typedef struct PipeannPageSource PipeannPageSource;

struct PipeannPageSource
{
	/*
	 * Ask for a page. READY at once when it is resident, else IN_FLIGHT: the
	 * read is queued and starts with the next submit() or next(). The frame
	 * stays valid until release(). Never NULL; errors are raised. Of a page
	 * that is resident the frame may have only the slot, unless it is
	 * PIPEANN_ALL_SLOTS.
	 */
	PipeannFrame *(*request) (PipeannPageSource *source, uint32 page,
							  int slot);

	/* The same only if it is resident, else NULL and nothing happens. */
	PipeannFrame *(*request_resident) (PipeannPageSource *source, uint32 page,
									   int slot);

	/*
	 * Have the processor fetch what request() will look at if the page is
	 * resident. Only a hint.
	 */
	void		(*prefetch) (PipeannPageSource *source, uint32 page, int slot);

	/*
	 * Make another slot of a frame that has not all of them the one that may be
	 * used: it is of the page as it is now. May read, and raise errors.
	 */
	void		(*load) (PipeannPageSource *source, PipeannFrame *frame,
						 int slot);

	/* Start all queued reads. */
	void		(*submit) (PipeannPageSource *source);

	/*
	 * A frame that has become READY since, or NULL. Frames returned by
	 * request() as READY do not come again. With wait, blocks until there is
	 * one as long as any read is in flight (interruptible); submits first.
	 */
	PipeannFrame *(*next) (PipeannPageSource *source, bool wait);

	/* Give a frame back; one in flight is left to finish by itself. */
	void		(*release) (PipeannPageSource *source, PipeannFrame *frame);

	int			in_flight;		/* queued or being read, for this source */
	int			max_in_flight;	/* request() beyond it blocks for one */
	PipeannCounters *counters;
};

/* Called with all slots of a graph page. */
typedef void (*PipeannVisit) (uint32 page, const char *nodes, void *arg);

/* Visit graph pages from .. to - 1 in order, reading ahead (visit.c). */
extern void PipeannVisitPages(PipeannPageSource *source, uint32 from,
							  uint32 to, PipeannVisit visit, void *arg);

#endif							/* PIPEANN_SOURCE_H */
