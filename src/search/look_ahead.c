/*
 * look_ahead.c
 *		LAANN's look-ahead search (algorithm 1).
 *
 * In the approach phase candidates whose pages are in memory go first, and a
 * better one that would have to be read is passed over: it is read only if it is
 * still among the W best when those are explored. So pages are not read that a
 * better pool would not have asked for. When the search converges, nearly all
 * candidates will be needed: the width rises to alpha * L and decays by beta with
 * each round. While reads are under way the search explores candidates in memory,
 * also those of the overflow area, and then computes exact distances; when a page
 * comes, it goes before both.
 *
 * A page is in memory if it is in shared_buffers or if this search has read it.
 */
#include "search/beam.h"
#include "search/list.h"
#include "search/pages.h"
#include "search/policy.h"
#include "search/settled.h"

#define OVERFLOW 2.4f			/* the paper's mu */
#define WIDTH 5					/* the paper's W */
#define STABLE 5				/* its n: converging when these are explored */
#define ALPHA 0.25f
#define BETA 0.95f

#define BEAM 1

static bool
IsFree(const PipeannCandidate *item)
{
	return !item->explored && item->beam == 0;
}

static bool
IsConverging(PipeannSearch *search)
{
	PipeannPool *pool = &search->pool;

	return PipeannPoolFirstOpen(pool) >=
		Min(STABLE, Min(pool->count, pool->length));
}

/* The nearest candidate from a position on that must be read, or INVALID_ID. */
static uint32
NextToRead(PipeannSearch *search, int from)
{
	PipeannPool *pool = &search->pool;

	for (int i = from; i < pool->count && !PipeannHoldsTooMany(search); i++)
		if (IsFree(&pool->items[i]) && !PipeannIsAtHand(search, i))
			return pool->items[i].id;
	return PIPEANN_INVALID_ID;
}

/* Whether a candidate is among the width nearest that are not explored. */
static bool
IsStillNear(PipeannSearch *search, uint32 id, int width)
{
	PipeannPool *pool = &search->pool;

	for (int i = PipeannPoolFirstOpen(pool); i < pool->count && width > 0; i++)
	{
		if (pool->items[i].id == id)
			return IsFree(&pool->items[i]);
		if (IsFree(&pool->items[i]))
			width--;
	}
	return false;
}

/*
 * Choose what is in memory, nearest first; passes over what is not, and
 * remembers the first of it.
 */
static void
ChooseResident(PipeannSearch *search, int width)
{
	PipeannPool *pool = &search->pool;

	search->policy.passed_over = PIPEANN_INVALID_ID;
	PipeannKeepLimit(search, width);
	PipeannPrefetchNearest(search, width);
	for (int i = PipeannPoolFirstOpen(pool); i < pool->count && width > 0; i++)
	{
		if (!IsFree(&pool->items[i]))
			continue;
		if (PipeannIsAtHand(search, i))
		{
			PipeannChoose(search, i, BEAM);
			width--;
		}
		else if (search->policy.passed_over == PIPEANN_INVALID_ID)
			search->policy.passed_over = pool->items[i].id;
	}
}

static void
ChooseApproaching(PipeannSearch *search, int width)
{
	if (!PipeannIsOn(search, PIPEANN_MEMORY_FIRST))
		PipeannChooseNearest(search, BEAM, width);
	else if (search->policy.passed_over != PIPEANN_INVALID_ID &&
			 IsStillNear(search, search->policy.passed_over, width))
	{
		PipeannChooseNearest(search, BEAM, width);
		search->policy.passed_over =
			NextToRead(search, PipeannPoolFirstOpen(&search->pool));
	}
	else
		ChooseResident(search, width);
}

/*
 * Choose the nearest Wconv. (The paper says those among the first Wconv of the
 * pool; when these are explored it has to go on, too.)
 */
static void
ChooseConverging(PipeannSearch *search, int width)
{
	search->policy.width = search->policy.width == 0 ?
		(int) (ALPHA * PipeannListLength(search)) :
		(int) (BETA * search->policy.width);
	search->policy.width = Max(search->policy.width, width);
	PipeannChooseNearest(search, BEAM, search->policy.width);
}

static void
Choose(PipeannSearch *search)
{
	int			width = search->params.width > 0 ? search->params.width :
		WIDTH;

	if (!search->policy.converging)
		search->policy.converging = IsConverging(search);
	if (!search->policy.converging)
		ChooseApproaching(search, width);
	else if (PipeannIsOn(search, PIPEANN_CONVERGENCE_BURST))
		ChooseConverging(search, width);
	else
		PipeannChooseNearest(search, BEAM, width);
	PipeannStartReads(search);
}

/*
 * Explore one candidate in memory that was not chosen; false if there is none.
 * Before the first unseen one there is none, as long as no page comes.
 */
static bool
ExploreAhead(PipeannSearch *search)
{
	PipeannPool *pool = &search->pool;

	PipeannKeepLimit(search, 0);
	for (int i = pool->first_unseen; i < pool->count; i++)
	{
		pool->first_unseen = i;
		if (IsFree(&pool->items[i]) && PipeannIsAtHand(search, i))
		{
			PipeannExplore(search, i);
			return true;
		}
	}
	pool->first_unseen = pool->count;
	return false;
}

/*
 * Use the time until the next page comes.
 */
static void
LookAhead(PipeannSearch *search)
{
	PipeannFrame *frame;

	while ((frame = search->source->next(search->source, false)) == NULL &&
		   search->source->in_flight > 0 && ExploreAhead(search))
		CHECK_FOR_INTERRUPTS();
	if (frame != NULL)
		PipeannNotePage(search, frame);
	else
		PipeannAwaitPage(search);
}

static void
RunLookAhead(PipeannSearch *search)
{
	while (PipeannPoolIsOpen(&search->pool))
	{
		CHECK_FOR_INTERRUPTS();
		PipeannAddPageMates(search);
		Choose(search);
		while (PipeannExploreBeam(search, BEAM))
			LookAhead(search);
		PipeannAddPageMates(search);
	}
}

static void
BeginLookAhead(PipeannSearch *search)
{
	search->policy.passed_over = PIPEANN_INVALID_ID;
}

const PipeannPolicy PipeannLookAhead = {
	.name = "look_ahead",
	.overflow = OVERFLOW,
	.begin = BeginLookAhead,
	.run = RunLookAhead
};
