/*
 * rounds.c
 *		Searches of several indexes for one query, run in rounds.
 *
 * In a round each search explores what is at hand, and then asks for the page of
 * its nearest candidate that is not, if it wants it. The pages of all searches are
 * on their way at the same time, and what each of them brings is known to all
 * before the next round. A search in memory asks for none, and is done in the
 * first round.
 *
 * How near the query an index has rows is not known before its search has come
 * there. So each reads one page at the least. Near nodes share pages, and codes
 * tell what is behind the edges of those that came: what is left to be read is
 * mostly what is within the bound. A search may find much nearer rows by its
 * first reads, less with each more.
 */
#include "search/rounds.h"

#include <math.h>

#include "search/beam.h"
#include "search/list.h"
#include "search/pages.h"
#include "search/settled.h"
#include "search/together.h"

#define BEAM 1

/*
 * Nodes in memory that all searches explore before they look again, while nothing
 * was read; and each at the least. Fewer are less work, and find less, with equal
 * lists.
 */
#define WIDTH 16
#define LEAST_WIDTH 2

/* Pages that all searches ask for in a round, if they are few. */
#define READS 5

/*
 * Of the nearest candidates so many are explored, once something was read, if they
 * are on pages that the search has, and so many if their pages are in memory.
 */
#define FREE 100
#define FREE_IN_MEMORY 20

/*
 * What a search reads for after its first page: so many times the factor of an
 * early end beyond the bound, the less the more searches there are. With each page
 * it is less, the sooner the shorter the list is.
 */
#define GAIN 40.0f
#define WANING 5.0f
#define LEAST_EF 10

/*
 * A search has found where it begins, and is run with the others from now on.
 */
void
PipeannRoundsJoin(PipeannTogether *together, PipeannSearch *search)
{
	PipeannSearch **place = &together->first;
	float		dist = PipeannListNearest(search);

	while (*place != NULL && PipeannListNearest(*place) <= dist)
		place = &(*place)->behind;
	search->behind = *place;
	*place = search;
}

/* Codes that tell nothing have a search go on alone. */
static inline bool
TakesPart(const PipeannSearch *search)
{
	return search->params.together != NULL;
}

/*
 * How far a candidate may be that is worth a read, apart from the bound: nothing is
 * before the first read, or where no bound is known.
 */
static float
ReadBound(const PipeannSearch *search)
{
	float		gain = GAIN / sqrtf(search->params.together->searches);
	float		kept = 1 - sqrtf(WANING / Max(search->params.ef, LEAST_EF));

	if (search->reads == 0 || !search->termination.on)
		return -INFINITY;
	return PipeannTerminationWiderBound(&search->termination,
										gain * powf(kept, search->reads - 1));
}

/* Whether a candidate that is not at hand has to be read. */
static bool
IsWorthRead(const PipeannSearch *search, int position, float bound)
{
	const PipeannPool *pool = &search->pool;

	return PipeannPoolWants(pool, position) ||
		(position < pool->length && pool->items[position].dist <= bound);
}

static inline bool
IsFree(const PipeannCandidate *item)
{
	return !item->explored && item->beam == 0;
}

/* Whether to explore a candidate if that costs no read. */
static bool
IsWantedFree(PipeannSearch *search, int position)
{
	const PipeannCandidate *item = &search->pool.items[position];

	if (!IsFree(item))
		return false;
	if (PipeannPoolWants(&search->pool, position) || position < FREE_IN_MEMORY)
		return PipeannIsAtHand(search, position);
	return PipeannIsReady(search, item);
}

/* Choose the nearest candidates at hand; returns how many. */
static int
ChooseAtHand(PipeannSearch *search)
{
	PipeannPool *pool = &search->pool;
	int			width = search->reads > 0 ? PIPEANN_BATCH_NODES :
		Max(WIDTH / search->params.together->searches, LEAST_WIDTH);
	int			least = search->reads > 0 ? FREE : 0;
	int			n = 0;

	PipeannKeepLimit(search, width);
	PipeannPrefetchNearest(search, width);
	for (int i = PipeannPoolFirstOpen(pool);
		 n < width && i < pool->count &&
		 (i < least || PipeannPoolWants(pool, i)); i++)
	{
		if (!IsWantedFree(search, i))
			continue;
		PipeannChoose(search, i, BEAM);
		n++;
	}
	return n;
}

/* Explore what was chosen, and all that is at hand then. */
static void
ExploreAtHand(PipeannSearch *search)
{
	do
	{
		CHECK_FOR_INTERRUPTS();
		while (PipeannExploreBeam(search, BEAM))
			PipeannAwaitPage(search);
		PipeannAddPageMates(search);
	} while (TakesPart(search) && ChooseAtHand(search) > 0);
}

/* Ask for the pages of the nearest candidates that are not at hand. */
static void
AskForPages(PipeannSearch *search)
{
	PipeannPool *pool = &search->pool;
	int			width = Max(READS / search->params.together->searches, 1);
	float		bound = ReadBound(search);

	PipeannKeepLimit(search, width);
	for (int i = PipeannPoolFirstOpen(pool);
		 width > 0 && i < pool->count && IsWorthRead(search, i, bound); i++)
	{
		if (!IsFree(&pool->items[i]) || PipeannIsAtHand(search, i))
			continue;
		PipeannChoose(search, i, BEAM);
		width--;
	}
	PipeannStartReads(search);
}

static void
Learn(const PipeannTogether *together, PipeannSearch *search)
{
	PipeannTogetherLearn(together, search);
	PipeannListSetBound(search);
}

static void
ExploreAll(PipeannTogether *together)
{
	for (PipeannSearch *search = together->first; search != NULL;
		 search = search->behind)
	{
		if (!TakesPart(search))
			continue;
		Learn(together, search);
		ExploreAtHand(search);
		PipeannTogetherTell(together, search);
	}
}

/* Returns whether any page was asked for. */
static bool
AskAll(PipeannTogether *together)
{
	bool		any = false;

	for (PipeannSearch *search = together->first; search != NULL;
		 search = search->behind)
	{
		if (!TakesPart(search))
			continue;
		Learn(together, search);
		AskForPages(search);
		any |= search->pool.chosen[BEAM] > 0;
	}
	return any;
}

/* Run all that have joined, unless they have been run. */
void
PipeannRoundsRun(PipeannTogether *together)
{
	do
		ExploreAll(together);
	while (AskAll(together));
	together->first = NULL;
}
