/*
 * page_source.h
 *		The interface through which a search gets its graph pages.
 *
 * A search requests graph pages by ordinal and gets frames. The source of a
 * server (io/page_source.c) follows the read rule of src/README; unit tests
 * have one in memory.
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
	int			slot;			/* READY: the only usable one, or ALL_SLOTS */
	const char *nodes;			/* READY: slot 0 of the page */
	void	   *user;			/* for the search's use */
} PipeannFrame;

/* Counters of one scan; pipeann_stats sums them per index. */
typedef struct PipeannCounters
{
	uint64		nodes_explored;
	uint64		code_distances;
	uint64		exact_distances;
	uint64		page_hits;
	uint64		page_reads;
	uint64		code_page_reads;	/* for codes that were not in memory */
	uint64		in_flight_sum;	/* sum, over reads, of the reads in flight at that time */
	uint64		in_flight_peak;
	uint64		rounds;			/* times the search stopped to wait */
	uint64		wait_us;		/* microseconds in those waits */
	uint64		retries;		/* reads that did not verify at first */
	uint64		rows_out_of_order;	/* found too late for strict order */
	uint64		code_scans;		/* searches that went through codes */
} PipeannCounters;

typedef struct PipeannPageSource PipeannPageSource;

struct PipeannPageSource
{
	/*
	 * Request a page. READY at once if it is resident, else IN_FLIGHT: the read
	 * is queued and starts with the next submit() or next(). The frame stays
	 * valid until release(). Never NULL; raises errors. Of a resident page the
	 * frame may have only the given slot, unless that is PIPEANN_ALL_SLOTS.
	 */
	PipeannFrame *(*request) (PipeannPageSource *source, uint32 page,
							  int slot);

	/*
	 * The same for a resident page; NULL if the page is not resident. A page
	 * that was never requested before counts as not resident.
	 */
	PipeannFrame *(*request_resident) (PipeannPageSource *source, uint32 page,
									   int slot);

	/* Prefetch into the CPU cache what request() of a resident page reads. */
	void		(*prefetch) (PipeannPageSource *source, uint32 page, int slot);

	/*
	 * Load another slot, from the page's current version, into a frame that
	 * has only one. May read, and raise errors.
	 */
	void		(*load) (PipeannPageSource *source, PipeannFrame *frame,
						 int slot);

	/* Start all queued reads. */
	void		(*submit) (PipeannPageSource *source);

	/*
	 * A frame that has become READY since the last call, or NULL; not those
	 * that request() returned READY. With wait, submits and blocks
	 * (interruptibly) until there is one or no read is in flight.
	 */
	PipeannFrame *(*next) (PipeannPageSource *source, bool wait);

	/* Give a frame back; its read, if any, ends by itself. */
	void		(*release) (PipeannPageSource *source, PipeannFrame *frame);

	int			in_flight;		/* queued or being read, for this source */
	int			max_in_flight;	/* with this many in flight, request() waits for one */
	bool		keeps;			/* pages that are not resident are read into shared_buffers */
	uint32		wanted;			/* a page that was read, to be brought into
								 * shared_buffers, or PIPEANN_INVALID_ID */
	PipeannCounters *counters;
};

/* Called for each graph page, with all its slots. */
typedef void (*PipeannVisit) (uint32 page, const char *nodes, void *arg);

/* visit.c */
extern void PipeannVisitPages(PipeannPageSource *source, uint32 n,
							  PipeannVisit visit, void *arg);

#endif							/* PIPEANN_SOURCE_H */
