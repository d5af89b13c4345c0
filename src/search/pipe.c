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
 *
 * The last two can be left out (5.5): without the dynamic width the pipe is as
 * wide as a beam, and without a read per step all of it is filled at once.
 * (Without pipelining, the first of the paper's three steps, this would be
 * best-first search.)
 */
#include "search/beam.h"
#include "search/pages.h"
#include "search/settled.h"
#include "search/policy.h"

#define FIRST_WIDTH 4
#define MAX_WIDTH 32
#define CONVERGED 5
#define MAX_WASTE 0.1

/*
 * Reads are handed to the kernel this many at a time while there is something
 * to explore: each system call and each ring of the disk's doorbell costs as
 * much as exploring a node or more.
 */
#define SUBMIT_BATCH 4

/*
 * A read has arrived: make the pipe wider if it should be.
 */
static void
AdaptWidth(PipeannSearch *search, int max_width)
{
	int			ahead = PipeannPoolFirstUnread(&search->pool);
	uint32		reads = search->reads_in + search->reads_out;

	search->policy.converged_at = Max(search->policy.converged_at, ahead);
	if (PipeannIsOn(search, PIPEANN_DYNAMIC_WIDTH) &&
		search->policy.converged_at >= CONVERGED && search->policy.width < max_width &&
		search->reads_out <= MAX_WASTE * reads)
		search->policy.width++;
}

static void
Arrive(PipeannSearch *search, PipeannFrame *frame, int max_width)
{
	PipeannNotePage(search, frame);
	AdaptWidth(search, max_width);
}

/* Take what has arrived; false if that is nothing. */
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

	if (!PipeannPoolWants(&search->pool, next) ||
		search->source->in_flight >= search->policy.width ||
		PipeannHoldsTooMany(search))
		return false;
	PipeannRequestPage(search, next);
	return true;
}

/* Issue one read, or as many as there is room for; returns how many. */
static int
Issue(PipeannSearch *search)
{
	int			issued = 0;

	while (IssueOne(search))
	{
		issued++;
		if (PipeannIsOn(search, PIPEANN_READ_PER_STEP))
			break;
	}
	return issued;
}

/*
 * There is nothing to explore, and the pipe is full or the pool used up: score
 * pages that came, looking for completions in between, then sleep.
 */
static void
Wait(PipeannSearch *search, int max_width)
{
	PipeannFrame *frame;

	PipeannStartReads(search);
	while (PipeannScoreNext(search))
		if (Collect(search, max_width))
			return;
	frame = search->source->next(search->source, true);
	if (frame != NULL)
		Arrive(search, frame, max_width);
}

static int
FirstWidth(PipeannSearch *search, int max_width)
{
	return Min(PipeannIsOn(search, PIPEANN_DYNAMIC_WIDTH) ? FIRST_WIDTH :
			   PipeannBeamWidth(search), max_width);
}

/* Explore until the list is; hand reads to the kernel a few at a time. */
static void
FillAndExplore(PipeannSearch *search, int max_width)
{
	int			queued = 0;

	while (PipeannPoolIsOpen(&search->pool))
	{
		int			issued;
		int			ready;

		CHECK_FOR_INTERRUPTS();
		(void) Collect(search, max_width);
		PipeannAddPageMates(search);
		PipeannKeepLimit(search, 0);
		issued = Issue(search);
		PipeannAddPageMates(search);
		ready = PipeannNearestReady(search);
		if (ready >= 0)
		{
			queued += issued;
			if (queued >= SUBMIT_BATCH)
			{
				PipeannStartReads(search);
				queued = 0;
			}
			PipeannExplore(search, ready);
		}
		else if (issued == 0)
			Wait(search, max_width);
	}
}

static void
RunPipe(PipeannSearch *search)
{
	int			max_width = search->params.width > 0 ?
		search->params.width : MAX_WIDTH;

	max_width = Min(max_width, search->source->max_in_flight);
	if (search->policy.width == 0)
		search->policy.width = FirstWidth(search, max_width);
	FillAndExplore(search, max_width);
}

const PipeannPolicy PipeannPipe = {
	.name = "pipe",
	.run = RunPipe
};
