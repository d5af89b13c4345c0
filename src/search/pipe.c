/*
 * pipe.c
 *		PipeANN's search (algorithm 2): reads are decided by the pool as it is,
 *		not by which reads have come back.
 *
 * Each turn issues at most one read and explores one node, so that the n-th
 * read is decided with the neighbours of the (n - W)-th known (4.3). The width
 * W starts at 4 and grows by one whenever reads have arrived, once the five
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
 * Take what has arrived; returns how many reads that were.
 */
static int
Collect(PipeannSearch *search)
{
	PipeannFrame *frame;
	int			n = 0;

	while ((frame = search->source->next(search->source, false)) != NULL)
	{
		PipeannArrive(search, frame);
		n++;
	}
	return n;
}

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
Wait(PipeannSearch *search)
{
	PipeannFrame *frame;

	search->source->submit(search->source);
	while (PipeannScoreOne(search))
		if ((frame = search->source->next(search->source, false)) != NULL)
		{
			PipeannArrive(search, frame);
			return;
		}
	frame = search->source->next(search->source, true);
	if (frame != NULL)
		PipeannArrive(search, frame);
}

void
PipeannRunPipe(PipeannSearch *search)
{
	int			max_width = search->params.width > 0 ?
		search->params.width : MAX_WIDTH;

	max_width = Min(max_width, search->source->max_in_flight);
	if (search->width == 0)
		search->width = Min(FIRST_WIDTH, max_width);

	while (PipeannPoolFirstOpen(&search->pool) < search->pool.count)
	{
		bool		issued;
		int			ready;

		CHECK_FOR_INTERRUPTS();
		if (Collect(search) > 0)
			AdaptWidth(search, max_width);
		issued = IssueOne(search);
		ready = PipeannNearestReady(search);
		if (ready >= 0)
		{
			if (issued)
				search->source->submit(search->source);
			PipeannExplore(search, ready);
		}
		else if (!issued)
			Wait(search);
	}
}
