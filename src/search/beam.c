/*
 * beam.c
 *		Candidates that were chosen together, for policies that go in rounds.
 */
#include "search/beam.h"

#include "search/pages.h"
#include "search/settled.h"

/* Choose a candidate for a beam and ask for its page. */
void
PipeannChoose(PipeannSearch *search, int position, int beam)
{
	PipeannPoolChoose(&search->pool, position, beam);
	if (search->pool.items[position].ref == PIPEANN_NO_REF)
		PipeannRequestPage(search, position);
}

/* Choose the nearest width candidates that are in no beam, and start reads. */
void
PipeannChooseNearest(PipeannSearch *search, int beam, int width)
{
	PipeannPool *pool = &search->pool;
	int			n = 0;

	PipeannAddPageMates(search);
	PipeannKeepLimit(search, width);
	PipeannPrefetchNearest(search, width);
	for (int i = PipeannPoolFirstOpen(pool);
		 n < width && PipeannPoolWants(pool, i); i++)
	{
		if (pool->items[i].explored || pool->items[i].beam != 0)
			continue;
		if (n > 0 && PipeannHoldsTooMany(search))
			break;
		PipeannChoose(search, i, beam);
		n++;
	}
	PipeannStartReads(search);
}

/*
 * Explore the nearest of a beam whose pages are at hand; returns how many. Their
 * neighbours are scored together, so that codes have time to come from memory.
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
		n = PipeannExploreToBatch(search, i, n);
		explored++;
	}
	PipeannBatchToPool(search, n);
	return explored;
}

/*
 * Explore those of a beam whose pages are at hand; false when none is left.
 *
 * A candidate that is not ready when this passes it by is not ready before
 * another page comes.
 */
bool
PipeannExploreBeam(PipeannSearch *search, int beam)
{
	PipeannAddPageMates(search);
	while (ExploreBatch(search, beam) == PIPEANN_BATCH_NODES)
		;
	return search->pool.chosen[beam] > 0;
}
