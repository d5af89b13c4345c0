/*
 * ranked.c
 *		Searching among the few nodes that match, without the graph.
 *
 * The attribute codes tell which nodes may match, or whoever wants them. All of them are ranked by the
 * distances of their vectors' codes, and their pages are read from the nearest on,
 * until none that is left can be nearer than ten results, as far as codes tell. If
 * they are no more than the list would be, all are read: then the answer is exact.
 */
#include "search/ranked.h"

#include <math.h>

#include "distance/distance.h"
#include "search/explore.h"
#include "search/filter.h"
#include "search/list.h"
#include "search/pages.h"
#include "search/score.h"

/* Pages asked for together: at first as many as it takes in any case. */
#define FIRST_BATCH 16
#define LATER_BATCH 8
#define LATER_RUN 48

/* A first run reads at most so many times ef nodes. */
#define MOST_LISTS 20

/*
 * What the ways cost, in code distances at random places: to look at a byte of an
 * attribute code, to explore a node, to read a page, and what a search that ranks
 * does besides.
 */
#define BYTE_COST 0.01
#define EXPLORE_COST 60
#define READ_COST 1500
#define RANK_COST 1000

/* Matching nodes that a walk meets for each result. */
#define NODES_OF_RESULT 1.5

/* Pages that a search reads: for each node of its list, and if it ranks. */
#define READS_OF_NODE 0.4
#define READS_OF_RANKS 20

/* A list with nodes that do not match is longer by this power of their share. */
#define STRETCH 0.5
#define MOST_STRETCH 20

/*
 * By so many standard deviations a code errs hardly ever. Fewer errors than these
 * tell nothing.
 */
#define SURE_DEVIATIONS 5
#define FEWEST_ERRORS 10

/* ---------- which way ---------- */

static double
RankCost(const PipeannSearch *search)
{
	const PipeannCodes *codes = search->codes;

	return RANK_COST + codes->ncodes *
		(search->params.code_filter->n * BYTE_COST + search->share);
}

/* Nodes that a walk explores: its list, or until it has met enough that match. */
static double
WalkLength(const PipeannSearch *search)
{
	return Max(search->stretch * Max(search->params.ef, 1),
			   NODES_OF_RESULT * PIPEANN_EARLY_RESULTS /
			   Max(search->share * search->params.code_filter->precision,
				   1e-6));
}

void
PipeannChooseWay(PipeannSearch *search)
{
	search->stretch = 1;
	if (search->params.among != NULL && search->codes != NULL)
		search->ranking = true;
	if (search->params.code_filter == NULL || search->codes == NULL)
		return;
	search->share = PipeannSharePassing(search->codes,
										search->params.code_filter);
	search->stretch = Min(pow(Max(search->share, 1e-6), -STRETCH),
						  MOST_STRETCH);
	search->ranking = WalkLength(search) * EXPLORE_COST > RankCost(search);
}

bool
PipeannShouldRankUnread(const PipeannSearch *search)
{
	return search->params.code_filter != NULL && search->reads > 0 &&
		WalkLength(search) * READS_OF_NODE * READ_COST >
		RankCost(search) + READS_OF_RANKS * READ_COST;
}

bool
PipeannShouldRank(const PipeannSearch *search)
{
	return search->params.code_filter != NULL &&
		(double) search->explored * EXPLORE_COST > RankCost(search);
}

/* ---------- ranks ---------- */

static bool
Nearer(const PipeannDiscard *a, const PipeannDiscard *b)
{
	return a->dist < b->dist || (a->dist == b->dist && a->id < b->id);
}

static void
SiftDown(PipeannRanks *ranks, uint64 at)
{
	PipeannDiscard *heap = ranks->items;
	PipeannDiscard moved = heap[at];

	for (;;)
	{
		uint64		child = 2 * at + 1;

		if (child >= ranks->n)
			break;
		if (child + 1 < ranks->n && Nearer(&heap[child + 1], &heap[child]))
			child++;
		if (!Nearer(&heap[child], &moved))
			break;
		heap[at] = heap[child];
		at = child;
	}
	heap[at] = moved;
}

static PipeannDiscard
PopNearest(PipeannRanks *ranks)
{
	PipeannDiscard first = ranks->items[0];

	ranks->items[0] = ranks->items[--ranks->n];
	if (ranks->n > 0)
		SiftDown(ranks, 0);
	return first;
}

static void
AddBatch(PipeannSearch *search, int n)
{
	PipeannRanks *ranks = &search->ranks;

	while (ranks->n + n > ranks->size)
	{
		ranks->size = Max(ranks->size * 2, 1024);
		ranks->items = ranks->items == NULL ?
			PipeannAlloc(mul_size(ranks->size, sizeof(PipeannDiscard))) :
			PipeannRealloc(ranks->items, mul_size(ranks->size,
												  sizeof(PipeannDiscard)));
	}
	PipeannKernel->pq_scan(search->table, search->codes->pq.nchunks,
						   search->batch_codes, n, search->batch_dists);
	search->counters->code_distances += n;
	for (int i = 0; i < n; i++)
	{
		ranks->items[ranks->n].id = search->batch_ids[i];
		ranks->items[ranks->n++].dist = search->batch_dists[i];
	}
}

/* Put a node in the batch of n, which is added when it is full; its new length. */
static int
Batch(PipeannSearch *search, int n, uint32 id)
{
	search->batch_ids[n] = id;
	search->batch_codes[n] = PipeannCodeAt(search->codes, id);
	__builtin_prefetch(search->batch_codes[n]);
	if (++n < search->batch_size)
		return n;
	CHECK_FOR_INTERRUPTS();
	AddBatch(search, n);
	return 0;
}

/* Returns how many are left in the batch. */
static int
CollectPassing(PipeannSearch *search)
{
	const PipeannCodes *codes = search->codes;
	int			n = 0;

	for (uint32 first = 0; first < codes->ncodes; first += PIPEANN_CODE_BLOCK)
	{
		uint64		mask[PIPEANN_BLOCK_WORDS];

		CHECK_FOR_INTERRUPTS();
		PipeannBlockPassing(codes, search->params.code_filter, first, mask);
		for (uint32 i = 0; i < PIPEANN_BLOCK_WORDS; i++)
			for (; mask[i] != 0; mask[i] &= mask[i] - 1)
				n = Batch(search, n, first + i * 64 + __builtin_ctzll(mask[i]));
	}
	return n;
}

static int
CollectGiven(PipeannSearch *search)
{
	int			n = 0;

	for (uint32 i = 0; i < search->params.namong; i++)
		n = Batch(search, n, search->params.among[i]);
	return n;
}

/* Rank all nodes that may match. */
static void
Collect(PipeannSearch *search)
{
	AddBatch(search, search->params.among != NULL ? CollectGiven(search) :
			 CollectPassing(search));
	for (uint64 i = search->ranks.n / 2; i-- > 0;)
		SiftDown(&search->ranks, i);
}

void
PipeannBeginRanking(PipeannSearch *search)
{
	PipeannMemory former = PipeannMemoryEnter(search);

	search->ranking = search->ranked = true;
	search->params.disabled |= PIPEANN_PAGE_MATES;
	search->ranks.n = 0;
	PipeannPqTable(&search->codes->pq, search->layout->metric, search->query,
				   search->table);
	Collect(search);
	PipeannMemoryLeave(former);
}

/* ---------- reading ---------- */

/* Whether a node was scored already, as a page-mate or before ranking began. */
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
						   PipeannIsKilled(ref->slots, PipeannIdSlot(l, id)));
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
	PipeannCodeErrors *errors = &search->rank_errors;
	float		error;

	if (slot->flags & PIPEANN_SLOT_OUT_OF_LINE)
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

	search->counters->nodes_explored++;
	search->explored++;
	if (!PipeannSlotIsLive(slot) || PipeannIsKilled(ref->killed, number) ||
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
	PipeannRanks *ranks = &search->ranks;
	int			taken = 0;

	while (taken < n && ranks->n > 0 && !(ranks->items[0].dist > bound))
	{
		batch[taken] = PopNearest(ranks);
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
	uint64		done = 0;
	int			n;

	while (done < most &&
		   (n = TakeBatch(search, batch, (int) Min(most - done, (uint64) size),
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
		done += n;
		size = LATER_BATCH;
	}
	return done >= most;
}

/* Whether the first run of a search that ranks ends when ten results are settled. */
static bool
MayEndEarly(const PipeannSearch *search)
{
	return !search->started && search->params.may_end_early &&
		PipeannIsOn(search, PIPEANN_EARLY_TERMINATION) &&
		search->ranks.n > (uint64) Max(search->params.ef, 1);
}

/*
 * The first run ends early if it may. Where codes let many pass that do not match it
 * takes more than ef nodes to come to that. The second goes on to ef, and later ones
 * are short: whoever wants more asks again.
 */
bool
PipeannRunRanked(PipeannSearch *search)
{
	uint64		ef = Max(search->params.ef, 1);
	uint64		most = Max(ef, search->explored) - search->explored;

	if (search->started)
		most = Max(most, LATER_RUN);
	if (!search->ranked)
		PipeannBeginRanking(search);
	search->termination.on = false;
	if (MayEndEarly(search))
	{
		PipeannTerminationInit(&search->termination, PIPEANN_L2,
							   search->params.ef);
		most *= MOST_LISTS;
	}
	search->started = true;
	if (search->ranks.n == 0)
		return false;
	if (ReadNearest(search, most) || search->ranks.n == 0)
		search->termination.on = false;
	return true;
}

bool
PipeannSearchIsRanked(const PipeannSearch *search)
{
	return search->ranked;
}

bool
PipeannSearchIsSettled(PipeannSearch *search)
{
	const PipeannCodeErrors *errors = &search->rank_errors;
	const PipeannResult *next = PipeannResultsPeek(&search->results);
	double		mean;
	double		variance;

	if (!search->ranked || search->ranks.n == 0 || next == NULL)
		return true;
	if (errors->n < FEWEST_ERRORS)
		return false;
	mean = errors->error / errors->n;
	variance = errors->error_of_squares / errors->n - mean * mean;
	return next->most <= search->ranks.items[0].dist - mean -
		SURE_DEVIATIONS * sqrt(Max(variance, 0));
}
