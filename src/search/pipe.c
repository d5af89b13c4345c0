/*
 * pipe.c
 *		PipeANN's search (algorithm 2): reads are decided by the pool as it is,
 *		not by which reads have come back.
 *
 * Each turn issues at most one read and explores one node, so that the n-th
 * read is decided with the neighbours of the (n - W)-th known (4.3). The width
 * W starts at 4 and grows by one with each read that arrives, once the five
 * nearest candidates are read and as long as at most a tenth of the reads was
 * wasted (4.2.3). Unlike the paper's program it waits in the kernel when
 * there is nothing to do: other backends want the processor.
 */
#include "search/engine.h"

#define FIRST_WIDTH 4
#define MAX_WIDTH 32
#define CONVERGED 5
#define MAX_WASTE 0.1

/*
 * Reads are handed to the kernel this many at a time while there is something
 * to explore: each system call and each ring of the disk's doorbell costs as
 * much as exploring a node or more. (GloVe, 76 reads a query: one at a time
 * 3.4 ms, two 2.8, four and eight 2.7, the reads being the same.)
 */
#define SUBMIT_BATCH 4

/*
 * A read has arrived: see whether the pipe should be wider.
 */
static void
AdaptWidth(PipeannSearch *search, int max_width)
{
	int			ahead = PipeannPoolFirstUnread(&search->pool);
	uint32		reads = search->reads_in + search->reads_out;

	search->converged_at = Max(search->converged_at, ahead);
	if (search->converged_at >= CONVERGED && search->width < max_width &&
		search->reads_out <= MAX_WASTE * reads)
		search->width++;
}

static void
Arrive(PipeannSearch *search, PipeannFrame *frame, int max_width)
{
	PipeannArrive(search, frame);
	AdaptWidth(search, max_width);
}

/*
 * Take what has arrived; false if that is nothing.
 */
static bool
Collect(PipeannSearch *search, int max_width)
{
	PipeannFrame *frame = search->source->next(search->source, false);

	if (frame == NULL)
		return false;
	for (; frame != NULL; frame = search->source->next(search->source, false))
		Arrive(search, frame, max_width);
	return true;
}

/*
 * Issue the best unread candidate's read if the pipe has room.
 */
static bool
IssueOne(PipeannSearch *search)
{
	int			next = PipeannPoolFirstUnread(&search->pool);

	if (next >= search->pool.count ||
		search->source->in_flight >= search->width)
		return false;
	PipeannRequest(search, next);
	return true;
}

/*
 * Nothing to explore and the pipe full or the pool used up: score pages that
 * came, looking for completions in between, then sleep.
 */
static void
Wait(PipeannSearch *search, int max_width)
{
	PipeannFrame *frame;

	search->source->submit(search->source);
	while (PipeannScoreOne(search))
		if (Collect(search, max_width))
			return;
	frame = search->source->next(search->source, true);
	if (frame != NULL)
		Arrive(search, frame, max_width);
}

void
PipeannRunPipe(PipeannSearch *search)
{
	int			max_width = search->params.width > 0 ?
		search->params.width : MAX_WIDTH;
	int			queued = 0;

	max_width = Min(max_width, search->source->max_in_flight);
	if (search->width == 0)
		search->width = Min(FIRST_WIDTH, max_width);

	while (PipeannPoolFirstOpen(&search->pool) < search->pool.count)
	{
		bool		issued;
		int			ready;

		CHECK_FOR_INTERRUPTS();
		(void) Collect(search, max_width);
		issued = IssueOne(search);
		ready = PipeannNearestReady(search);
		if (ready >= 0)
		{
			queued += issued;
			if (queued >= SUBMIT_BATCH)
			{
				search->source->submit(search->source);
				queued = 0;
			}
			PipeannExplore(search, ready);
		}
		else if (!issued)
			Wait(search, max_width);
	}
}
