/*
 * policies.c
 *		The policies, which decide what a search reads when.
 */
#include "search/state.h"

/* Exploring candidates. */

/*
 * Explore a candidate whose page is at hand, but put its neighbours into the
 * batch, which has n entries, instead of the pool; returns the new number of
 * entries. Positions in the pool stay valid.
 *
 * Neighbour ids come from disk: those without a code are skipped (by
 * PipeannBatchAdd), and a slot that is no node has none.
 */
static int
ExploreToBatch(PipeannSearch *search, int position, int n)
{
	const PipeannLayout *l = search->layout;
	const PipeannCandidate *item = &search->pool.items[position];
	PipeannPageRef *ref = &search->refs[item->ref];
	const PipeannSlot *slot;

	PipeannPoolSetExplored(&search->pool, position);
	search->source->counters->nodes_explored++;
	slot = PipeannGetSlot(search, ref, PipeannIdSlot(l, item->id));
	if (!PipeannSlotIsNode(slot))
		return n;
	if (PipeannSlotIsLive(slot))
		PipeannNoteExplored(search, ref, item, slot);

	return PipeannBatchAdd(search, n, slot->neighbors, PipeannSlotDegree(l, slot));
}

/* Make the neighbours of a candidate whose page is at hand candidates. */
static void
ExploreToPool(PipeannSearch *search, int position)
{
	PipeannBatchToPool(search, ExploreToBatch(search, position, 0));
}

/*
 * Whether a candidate's page is at hand, or can be had without a read; looks
 * it up once.
 */
static bool
IsAtHand(PipeannSearch *search, int position)
{
	const PipeannCandidate *item = &search->pool.items[position];

	if (item->ref != PIPEANN_NO_REF)
		return PipeannIsReady(search, item);
	return !item->absent && PipeannLookUpPage(search, position);
}

/*
 * Prefetch the `width` nearest nodes in no beam into the CPU cache, while
 * nothing has to be read. Pinning a buffer takes an atomic operation, which
 * waits for all loads begun before: without this, slots would be loaded from
 * memory one after the other.
 */
static void
PrefetchNearest(PipeannSearch *search, int width)
{
	const PipeannPool *pool = &search->pool;

	if (search->reads > 0)
		return;
	for (int i = PipeannPoolFirstOpen(&search->pool);
		 i < pool->count && width > 0; i++)
	{
		const PipeannCandidate *item = &pool->items[i];

		if (!PipeannIsFree(item))
			continue;
		if (!item->absent)
			search->source->prefetch(search->source, item->page,
									 PipeannWantedSlot(search, item->id));
		width--;
	}
}

/* Choose a candidate for a beam and request its page. */
static void
Choose(PipeannSearch *search, int position, int beam)
{
	PipeannPoolChoose(&search->pool, position, beam);
	if (search->pool.items[position].ref == PIPEANN_NO_REF)
		PipeannRequestPageOf(search, search->pool.items[position].id,
							 search->pool.items[position].dist);
}

/* Nearest unexplored candidate whose page is at hand, or -1. */
static int
NearestReady(PipeannSearch *search)
{
	PipeannPool *pool = &search->pool;

	for (int i = PipeannPoolFirstOpen(pool); i < pool->count; i++)
		if (!pool->items[i].explored &&
			PipeannIsReady(search, &pool->items[i]))
			return i;
	return -1;
}

/* Beams: candidates that are chosen together, for policies that work in rounds. */

/* Choose the nearest width candidates that are in no beam, and start reads. */
static void
ChooseNearest(PipeannSearch *search, int beam, int width)
{
	PipeannPool *pool = &search->pool;
	int			n = 0;

	PipeannAddPageMates(search);
	PipeannKeepLimit(search, width);
	PrefetchNearest(search, width);
	for (int i = PipeannPoolFirstOpen(pool);
		 n < width && PipeannPoolWants(pool, i); i++)
	{
		if (!PipeannIsFree(&pool->items[i]))
			continue;
		if (n > 0 && PipeannHoldsTooMany(search))
			break;
		Choose(search, i, beam);
		n++;
	}
	PipeannStartReads(search);
}

/*
 * Explore the nearest of a beam whose pages are at hand; returns how many. Their
 * neighbours are scored together, so that codes have time to be fetched from memory.
 */
static int
ExploreBatch(PipeannSearch *search, int beam)
{
	PipeannPool *pool = &search->pool;
	int			left = pool->chosen[beam];
	int			explored = 0;
	int			n = 0;

	for (int i = PipeannPoolFirstOpen(pool);
		 i < pool->count && left > 0 && explored < PIPEANN_BATCH_NODES; i++)
	{
		const PipeannCandidate *item = &pool->items[i];

		if (item->beam != beam || item->explored)
			continue;
		left--;
		if (!PipeannIsReady(search, item))
			continue;
		n = ExploreToBatch(search, i, n);
		explored++;
	}
	PipeannBatchToPool(search, n);
	return explored;
}

/*
 * Explore those of a beam whose pages are at hand; false when none is left.
 *
 * A candidate that is found not ready stays so until another page arrives.
 */
static bool
ExploreBeam(PipeannSearch *search, int beam)
{
	PipeannAddPageMates(search);
	while (ExploreBatch(search, beam) == PIPEANN_BATCH_NODES)
		;
	return search->pool.chosen[beam] > 0;
}

/*
 * DiskANN's beam search: rounds of W reads of the best unexplored
 * candidates.
 *
 * Within a round each completion is handled as it arrives, and exact distances
 * are computed while the others are awaited (AIO-ANN), but the next round is
 * decided only when this one is explored completely.
 */

#define BEAM 1

/* Nodes explored in one round. */
#define BEAM_WIDTH 8

static void
RunBestFirst(PipeannSearch *search)
{
	while (PipeannPoolIsOpen(&search->pool))
	{
		ChooseNearest(search, BEAM, PipeannWidth(search, BEAM_WIDTH));
		while (ExploreBeam(search, BEAM))
			PipeannAwaitPage(search);
		PipeannAddPageMates(search);
	}
}

/*
 * FlashANNS' relaxed dependency: the reads of a step are chosen before the
 * pages of the previous step are explored.
 *
 * Two beams take turns: while the pages of one are explored, those of the
 * other are being read. So a step's reads are chosen by the results of two
 * steps before, and reading and computing overlap fully. The paper found that
 * this costs a few more steps, and that a longer delay does not pay (3.2).
 */

/* The other of the two beams. */
#define OTHER(beam) (3 - (beam))

static void
RunStale(PipeannSearch *search)
{
	int			width = (PipeannWidth(search, BEAM_WIDTH) + 1) / 2;
	int			beam = 1;

	ChooseNearest(search, beam, width);
	while (PipeannPoolIsOpen(&search->pool))
	{
		ChooseNearest(search, OTHER(beam), width);
		while (ExploreBeam(search, beam))
			PipeannAwaitPage(search);
		PipeannAddPageMates(search);
		beam = OTHER(beam);
	}
}

/*
 * LAANN's look-ahead search (algorithm 1).
 *
 * In the approach phase candidates whose pages are in memory go first, and a
 * better one that would have to be read is passed over: it is read only if it
 * is still among the W best when those are explored. So pages that a better
 * pool would not have requested are not read. When the search converges,
 * nearly all candidates will be needed: the width rises to alpha * L and
 * decays by beta with each round. While reads are under way the search
 * explores candidates in memory, also those of the overflow area, and then
 * computes exact distances; a page that arrives takes precedence over both.
 *
 * A page is in memory if it is in shared_buffers or if this search has read it.
 */

#define OVERFLOW 2.4f			/* the paper's mu */
#define WIDTH 5					/* the paper's W */
#define NEAR_WIDTH 3			/* if little is left to explore, and that without reads */
#define STABLE 5				/* the paper's n: converging when this many are explored */
#define ALPHA 0.25f
#define BETA 0.95f

/* The nearest candidate that must be read, or INVALID_ID. */
static uint32
NextToRead(PipeannSearch *search)
{
	PipeannPool *pool = &search->pool;

	for (int i = PipeannPoolFirstOpen(pool);
		 i < pool->count && !PipeannHoldsTooMany(search); i++)
		if (PipeannIsFree(&pool->items[i]) && !IsAtHand(search, i))
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
			return PipeannIsFree(&pool->items[i]);
		if (PipeannIsFree(&pool->items[i]))
			width--;
	}
	return false;
}

/*
 * Choose candidates in memory, nearest first; passes over others, and
 * remembers the first of them.
 */
static void
ChooseResident(PipeannSearch *search, int width)
{
	PipeannPool *pool = &search->pool;

	search->policy.passed_over = PIPEANN_INVALID_ID;
	PipeannKeepLimit(search, width);
	PrefetchNearest(search, width);
	for (int i = PipeannPoolFirstOpen(pool); i < pool->count && width > 0; i++)
	{
		if (!PipeannIsFree(&pool->items[i]))
			continue;
		if (IsAtHand(search, i))
		{
			Choose(search, i, BEAM);
			width--;
		}
		else if (search->policy.passed_over == PIPEANN_INVALID_ID)
			search->policy.passed_over = pool->items[i].id;
	}
}

/*
 * In the approach phase candidates in memory go first. When the search converges the nearest Wconv
 * unexplored ones are chosen. (The paper says those among the first Wconv of the pool; but it has
 * to go on when these are explored.) The pool is longer where the search may end early.
 */
static void
ChooseBeam(PipeannSearch *search)
{
	PipeannPool *pool = &search->pool;
	PipeannPolicyState *policy = &search->policy;
	int			width = PipeannWidth(search, WIDTH);

	if (PipeannPoolFirstOpen(pool) >=
		Min(STABLE, Min(pool->count, pool->length)))
		policy->converging = true;
	if (search->params.has_horizon && search->reads == 0)
		ChooseNearest(search, BEAM, Min(NEAR_WIDTH, width));
	else if (policy->converging)
	{
		int			length = search->termination.on ? PipeannListEf(search) :
			pool->length;

		policy->width = policy->width == 0 ? (int) (ALPHA * length) :
			(int) (BETA * policy->width);
		policy->width = Max(policy->width, width);
		ChooseNearest(search, BEAM, policy->width);
	}
	else if (policy->passed_over != PIPEANN_INVALID_ID &&
			 IsStillNear(search, policy->passed_over, width))
	{
		ChooseNearest(search, BEAM, width);
		policy->passed_over = NextToRead(search);
	}
	else
		ChooseResident(search, width);
	PipeannStartReads(search);
}

/*
 * Explore one candidate in memory that was not chosen; false if there is none.
 * There is none before the first unseen one until a page arrives.
 */
static bool
ExploreAhead(PipeannSearch *search)
{
	PipeannPool *pool = &search->pool;

	PipeannKeepLimit(search, 0);
	for (int i = pool->first_unseen; i < pool->count; i++)
	{
		pool->first_unseen = i;
		if (PipeannIsFree(&pool->items[i]) && IsAtHand(search, i))
		{
			ExploreToPool(search, i);
			return true;
		}
	}
	pool->first_unseen = pool->count;
	return false;
}

static void
RunLookAhead(PipeannSearch *search)
{
	while (PipeannPoolIsOpen(&search->pool))
	{
		CHECK_FOR_INTERRUPTS();
		PipeannAddPageMates(search);
		ChooseBeam(search);
		while (ExploreBeam(search, BEAM))
		{
			PipeannFrame *frame;

			/* use the time until the next page comes */
			while ((frame = search->source->next(search->source, false)) == NULL &&
				   search->source->in_flight > 0 && ExploreAhead(search))
				CHECK_FOR_INTERRUPTS();
			if (frame != NULL)
				PipeannNotePage(search, frame);
			else
				PipeannAwaitPage(search);
		}
		PipeannAddPageMates(search);
	}
}

/*
 * PipeANN's search (algorithm 2): reads are decided by the current pool, not
 * by which reads have completed.
 *
 * Each turn issues at most one read and explores one node, so that the n-th
 * read is decided with the neighbours of the (n - W)-th known (4.3). The width
 * W starts at 4 and grows by one with each read that arrives, once the five
 * nearest candidates are read and as long as at most a tenth of the reads were
 * wasted (4.2.3). Unlike the paper's program it waits in the kernel when there
 * is nothing to do, as other backends want the CPU.
 */

#define FIRST_WIDTH 4
#define MAX_WIDTH 32
#define CONVERGED 5
#define MAX_WASTE 0.1

/*
 * Reads are handed to the kernel this many at a time while there is something
 * to explore: each system call and each doorbell write to the disk costs as
 * much as exploring a node, or more.
 */
#define SUBMIT_BATCH 4

/* A read has arrived: make the pipe wider if it should be. */
static void
Arrive(PipeannSearch *search, PipeannFrame *frame, int max_width)
{
	PipeannPolicyState *policy = &search->policy;
	const PipeannPool *pool = &search->pool;
	float		dist = search->refs[(uintptr_t) frame->user].dist;

	policy->arrived++;
	policy->wasted += pool->count >= pool->length &&
		!(dist <= pool->items[pool->length - 1].dist);
	PipeannNotePage(search, frame);
	policy->converged_at = Max(policy->converged_at,
							   PipeannPoolFirstUnread(&search->pool));
	if (policy->converged_at >= CONVERGED && policy->width < max_width &&
		policy->wasted <= MAX_WASTE * policy->arrived)
		policy->width++;
}

/* Take the pages that have arrived; false if there are none. */
static bool
Collect(PipeannSearch *search, int max_width)
{
	PipeannFrame *frame;
	bool		any = false;

	while ((frame = search->source->next(search->source, false)) != NULL)
	{
		Arrive(search, frame, max_width);
		any = true;
	}
	return any;
}

/* Issue the best unread candidate's read if the pipe has room; returns how many. */
static int
Issue(PipeannSearch *search)
{
	int			next = PipeannPoolFirstUnread(&search->pool);

	if (!PipeannPoolWants(&search->pool, next) ||
		search->source->in_flight >= search->policy.width ||
		PipeannHoldsTooMany(search))
		return 0;
	PipeannRequestPageOf(search, search->pool.items[next].id, search->pool.items[next].dist);
	return 1;
}

/*
 * There is nothing to explore, and the pipe is full or the pool exhausted: score
 * pages that have arrived, checking for completions in between, then sleep.
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

/* Reads are handed to the kernel a few at a time. */
static void
RunPipe(PipeannSearch *search)
{
	int			max_width = Min(PipeannWidth(search, MAX_WIDTH),
								search->source->max_in_flight);
	int			queued = 0;

	if (search->policy.width == 0)
		search->policy.width = Min(FIRST_WIDTH, max_width);
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
		ready = NearestReady(search);
		if (ready >= 0)
		{
			queued += issued;
			if (queued >= SUBMIT_BATCH)
			{
				PipeannStartReads(search);
				queued = 0;
			}
			ExploreToPool(search, ready);
		}
		else if (issued == 0)
			Wait(search, max_width);
	}
}

/*
 * BatANN's search (algorithm 2), for servers that all have the index and each keep a part
 * of it in memory: among the W nearest candidates it explores those whose pages are in its
 * own part, or at hand anyway, even if others are nearer. When all of them are in other
 * parts, the server of the nearest one's part continues the search, once, and the ids in
 * its list become candidates here. In the end the pages of the nearest are read here.
 */

#define BATON_WIDTH 8			/* the paper's W */

#define NO_PART PG_UINT32_MAX

/*
 * Returns how many are explored here; sets *other to the part of the nearest
 * other candidate whose server was not asked yet.
 */
static int
ChooseOwn(PipeannSearch *search, int width, uint32 *other)
{
	const PipeannSearchParams *params = &search->params;
	PipeannPool *pool = &search->pool;
	int			n = 0;

	*other = NO_PART;
	PipeannKeepLimit(search, width);
	PrefetchNearest(search, width);
	for (int i = PipeannPoolFirstOpen(pool);
		 width > 0 && PipeannPoolWants(pool, i); i++)
	{
		uint32		part = PipeannPartOfPage(&params->parts, pool->items[i].page);

		if (!PipeannIsFree(&pool->items[i]))
			continue;
		width--;
		if (n > 0 && PipeannHoldsTooMany(search))
			break;
		if (part == params->parts.own || IsAtHand(search, i))
		{
			Choose(search, i, BEAM);
			n++;
		}
		else if (*other == NO_PART && !PipeannHasBit(search->policy.asked, part))
			*other = part;
	}
	return n;
}

static void
RunBaton(PipeannSearch *search)
{
	PipeannSearchParams *params = &search->params;
	int			width = PipeannWidth(search, BATON_WIDTH);
	uint32		other;

	while (params->pass_on != NULL && PipeannPoolIsOpen(&search->pool))
	{
		CHECK_FOR_INTERRUPTS();
		PipeannAddPageMates(search);
		if (ChooseOwn(search, width, &other) == 0)
		{
			if (other == NO_PART)
				break;
			PipeannSetBit(search->policy.asked, other);
			if (!params->pass_on(search, other, params->arg))
				return;
		}
		PipeannStartReads(search);
		while (ExploreBeam(search, BEAM))
			PipeannAwaitPage(search);
		PipeannAddPageMates(search);
	}
	params->pass_on = NULL;
	/* the nearest candidates are known: they are read at once */
	search->policy.converging = true;
	RunLookAhead(search);
}

/* The policies, by the value of pipeann.search_mode. */

const PipeannPolicy *const PipeannPolicies[PIPEANN_SEARCH_MODES] = {
	[PIPEANN_BEST_FIRST] = &(const PipeannPolicy) {
		.name = "best_first",.run = RunBestFirst
	},
	[PIPEANN_PIPE] = &(const PipeannPolicy) {
		.name = "pipe",.run = RunPipe
	},
	[PIPEANN_STALE] = &(const PipeannPolicy) {
		.name = "stale",.run = RunStale
	},
	[PIPEANN_LOOK_AHEAD] = &(const PipeannPolicy) {
		.name = "look_ahead",.overflow = OVERFLOW,.run = RunLookAhead
	},
	[PIPEANN_BATON] = &(const PipeannPolicy) {
		.name = "baton",.overflow = OVERFLOW,.run = RunBaton
	}
};
