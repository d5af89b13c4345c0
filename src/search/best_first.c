/*
 * best_first.c
 *		DiskANN's beam search: rounds of W reads of the best unexplored
 *		candidates.
 *
 * Within a round each completion is handled as it arrives, and exact distances
 * are computed while the others are awaited (AIO-ANN), but the next round is
 * decided only when all of this one is explored.
 */
#include "search/engine.h"

#define DEFAULT_BEAM 8
#define MAX_BEAM 64

/*
 * Choose the beam and ask for its pages; returns the ids chosen.
 */
static int
StartRound(PipeannSearch *search, uint32 *beam, int width)
{
	PipeannPool *pool = &search->pool;
	int			n = 0;

	for (int i = PipeannPoolFirstOpen(pool); i < pool->count && n < width; i++)
	{
		if (pool->items[i].explored)
			continue;
		beam[n++] = pool->items[i].id;
		if (pool->items[i].ref == PIPEANN_NO_REF)
			PipeannRequest(search, i);
	}
	search->source->submit(search->source);
	return n;
}

/*
 * Explore those of the beam whose pages are at hand; the others remain in it.
 * One that has fallen out of the pool meanwhile is given up.
 */
static int
ExploreReady(PipeannSearch *search, uint32 *beam, int n)
{
	int			left = 0;

	for (int i = 0; i < n; i++)
	{
		PipeannPool *pool = &search->pool;
		int			at = PipeannPoolFirstOpen(pool);

		while (at < pool->count && pool->items[at].id != beam[i])
			at++;
		if (at == pool->count)
			continue;
		if (PipeannIsReady(search, &pool->items[at]))
			PipeannExplore(search, at);
		else
			beam[left++] = beam[i];
	}
	return left;
}

static void
Wait(PipeannSearch *search)
{
	PipeannFrame *frame;

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
PipeannRunBestFirst(PipeannSearch *search)
{
	uint32		beam[MAX_BEAM];
	int			width = search->params.width > 0 ?
		Min(search->params.width, MAX_BEAM) : DEFAULT_BEAM;

	while (PipeannPoolFirstOpen(&search->pool) < search->pool.count)
	{
		int			n = StartRound(search, beam, width);

		while ((n = ExploreReady(search, beam, n)) > 0)
		{
			CHECK_FOR_INTERRUPTS();
			Wait(search);
		}
	}
}
