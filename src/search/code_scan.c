/*
 * code_scan.c
 *		A scan of the codes: searching among the few nodes that match, without the
 *		graph.
 *
 * The attribute codes tell which nodes may match, or whoever asks names them. All of
 * them are put into the order of the distances of their vectors' codes, and their
 * pages are read from the nearest on, until none that is left can be nearer than ten
 * results, as far as codes tell. If they are no more than the list would be, that has
 * to be sure: then the answer is exact.
 */
#include "search/code_scan.h"

#include <math.h>

#include "search/explore.h"
#include "search/list.h"
#include "search/pages.h"
#include "search/code_order.h"
#include "search/score.h"

/* Pages asked for together: at first as many as it takes in any case. */
#define FIRST_BATCH 16
#define LATER_BATCH 8
#define LATER_RUN 48

/* A first run reads at most so many times ef nodes. */
#define MOST_LISTS 20

/*
 * By so many standard deviations a code errs hardly ever. Fewer errors than these
 * tell nothing.
 */
#define SURE_DEVIATIONS 5
#define FEWEST_ERRORS 10

/* From now on go through the nodes that match, but for those scored already. */
void
PipeannBeginCodeScan(PipeannSearch *search)
{
	search->scans_codes = search->code_scan_begun = true;
	search->params.disabled |= PIPEANN_PAGE_MATES;
	PipeannCodeOrderBegin(search);
}

/* Whether a node was scored already, as a page-mate or before the code scan began. */
static bool
IsScored(const PipeannSearch *search, uint32 id)
{
	const PipeannLayout *l = search->layout;
	const PipeannPageRef *ref;
	uint32		at;

	if (!PipeannIdSetGet(&search->pages, PipeannIdPage(l, id), &at))
		return false;
	ref = &search->refs[at];
	return ref->scored && (!ref->by_node ||
						   PipeannHasSlotBit(ref->slots, PipeannIdSlot(l, id)));
}

static PipeannPageRef *
RefOf(PipeannSearch *search, uint32 id)
{
	uint32		at = 0;

	(void) PipeannIdSetGet(&search->pages, PipeannIdPage(search->layout, id),
						   &at);
	return &search->refs[at];
}

/* Ask for a node's page, if it is not at hand or on its way. */
static void
Request(PipeannSearch *search, const PipeannDiscard *item)
{
	uint32		at;

	if (!PipeannIdSetGet(&search->pages,
						 PipeannIdPage(search->layout, item->id), &at))
		PipeannRequestPageOf(search, item->id, item->dist);
	else if (search->refs[at].frame == NULL)
		PipeannRequestAgain(search, at);
}

static void
AwaitPageOf(PipeannSearch *search, uint32 id)
{
	while (RefOf(search, id)->frame->state != PIPEANN_FRAME_READY)
		PipeannAwaitPage(search);
}

/* By how much codes err tells how far to go. */
static void
NoteError(PipeannSearch *search, const PipeannDiscard *item,
		  const PipeannSlot *slot)
{
	const PipeannLayout *l = search->layout;
	PipeannCodeErrors *errors = &search->code_scan_errors;
	float		error;

	if ((slot->flags & PIPEANN_SLOT_OUT_OF_LINE) || search->code_order.unordered)
		return;
	error = item->dist - PipeannExactDistance(l, search->query,
											  PipeannSlotVector(l, slot),
											  l->storage, slot->aux);
	if (PipeannTerminationWantsError(&search->termination))
		PipeannTerminationError(&search->termination, error);
	errors->n++;
	errors->error += error;
	errors->error_of_squares += (double) error * error;
}

/* Score a node whose page has come, if that was not done with its page. */
static void
Score(PipeannSearch *search, const PipeannDiscard *item)
{
	uint32		number = PipeannIdSlot(search->layout, item->id);
	PipeannPageRef *ref = RefOf(search, item->id);
	const PipeannSlot *slot = PipeannGetSlot(search, ref, number);

	if (!PipeannSlotIsLive(slot))
		return;					/* nor is a free slot a node */
	search->counters->nodes_explored++;
	search->explored++;
	if (PipeannHasSlotBit(ref->killed, number) ||
		!PipeannIsWanted(search, item->id, slot))
		return;
	search->matching++;
	NoteError(search, item, slot);
	if (!ref->by_node)
		return;
	ref->slots |= (uint64) 1 << number;
	(void) PipeannScoreSlot(search, item->id, slot, true);
}

/* The next nodes that are not scored, up to n; returns how many. */
static int
TakeBatch(PipeannSearch *search, PipeannDiscard *batch, int n, float bound)
{
	PipeannCodeOrder *order = &search->code_order;
	int			taken = 0;

	while (taken < n && PipeannCodeOrderHasNext(search) &&
		   !(order->items[0].dist > bound))
	{
		batch[taken] = PipeannCodeOrderPop(order);
		if (IsScored(search, batch[taken].id))
			search->matching++;
		else
			taken++;
	}
	return taken;
}

/*
 * Read and score nodes until so many are done; false if it ended since what is left
 * is too far, or nothing was left.
 */
static bool
ReadNearest(PipeannSearch *search, uint64 most)
{
	PipeannDiscard batch[FIRST_BATCH];
	int			size = FIRST_BATCH;
	uint64		end = search->explored + most;
	int			n;

	while (search->explored < end &&
		   (n = TakeBatch(search, batch,
						  (int) Min(end - search->explored, (uint64) size),
						  PipeannTerminationErrorBound(&search->termination))) > 0)
	{
		PipeannKeepLimit(search, n);
		for (int i = 0; i < n; i++)
			Request(search, &batch[i]);
		search->source->submit(search->source);
		for (int i = 0; i < n; i++)
		{
			AwaitPageOf(search, batch[i].id);
			Score(search, &batch[i]);
		}
		while (PipeannScoreNext(search))
			;
		size = LATER_BATCH;
	}
	return search->explored >= end;
}

/* Whether the first run of a code scan ends when ten results are settled. */
static bool
MayEndEarly(const PipeannSearch *search)
{
	return !search->started && search->params.may_end_early &&
		PipeannIsOn(search, PIPEANN_EARLY_TERMINATION);
}

/*
 * A run of such a search; false if nothing was left.
 *
 * The first run ends early if it may. Where codes let many pass that do not match it
 * takes more than ef nodes to come to that. The second goes on to ef, and later ones
 * are short: whoever wants more asks again.
 */
bool
PipeannRunCodeScan(PipeannSearch *search)
{
	uint64		ef = Max(search->params.ef, 1);
	uint64		most = Max(ef, search->explored) - search->explored;

	if (search->started)
		most = Max(most, LATER_RUN);
	if (!search->code_scan_begun)
		PipeannBeginCodeScan(search);
	search->termination.on = false;
	if (MayEndEarly(search))
	{
		PipeannTerminationInit(&search->termination, PIPEANN_L2,
							   search->params.ef);
		if (search->code_order.passing <= ef)
			search->termination.deviations = SURE_DEVIATIONS;
		most *= MOST_LISTS;
	}
	search->started = true;
	if (!PipeannCodeOrderHasNext(search))
		return false;
	if (ReadNearest(search, most) || !PipeannCodeOrderHasNext(search))
		search->termination.on = false;
	return true;
}

/* Whether it is a scan of the codes. */
bool
PipeannSearchIsCodeScan(const PipeannSearch *search)
{
	return search->code_scan_begun;
}

/*
 * Whether no nearer result than the next one is to be expected. Only a search that
 * goes through matching nodes in the order of their codes can tell; others say true.
 */
bool
PipeannSearchIsSettled(PipeannSearch *search)
{
	const PipeannCodeErrors *errors = &search->code_scan_errors;
	const PipeannResult *next = PipeannResultsPeek(&search->results);
	double		mean;
	double		variance;

	if (!search->code_scan_begun || next == NULL || !PipeannCodeOrderHasNext(search))
		return true;
	if (errors->n < FEWEST_ERRORS)
		return false;
	mean = errors->error / errors->n;
	variance = errors->error_of_squares / errors->n - mean * mean;
	return next->most <= search->code_order.items[0].dist - mean -
		SURE_DEVIATIONS * sqrt(Max(variance, 0));
}
