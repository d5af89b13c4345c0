/*
 * beam.c
 *		Candidates that were chosen together, for policies that go in rounds.
 */
#include "search/engine.h"

void
PipeannChoose(PipeannSearch *search, int position, int beam)
{
	PipeannPoolChoose(&search->pool, position, beam);
	if (search->pool.items[position].ref == PIPEANN_NO_REF)
		PipeannRequest(search, position);
}

int
PipeannChooseNearest(PipeannSearch *search, int beam, int width)
{
	PipeannPool *pool = &search->pool;
	int			n = 0;

	PipeannJoinPageMates(search);
	PipeannPrefetchNearest(search, width);
	for (int i = PipeannPoolFirstOpen(pool);
		 n < width && PipeannPoolWants(pool, i); i++)
		if (!pool->items[i].explored && pool->items[i].beam == 0)
		{
			PipeannChoose(search, i, beam);
			n++;
		}
	search->source->submit(search->source);
	return n;
}

/*
 * Explore the nearest of a beam whose pages are at hand; returns how many. Their
 * neighbours are scored together, so that codes have time to come from memory: a
 * search in memory takes 0.94 to 0.97 of the time at ef = 100, 0.99 with a fifth of
 * that. (Sixteen together take as long as eight.)
 */
static int
ExploreTogether(PipeannSearch *search, int beam)
{
	PipeannPool *pool = &search->pool;
	int			left = pool->chosen[beam];
	int			explored = 0;
	int			n = 0;

	for (int i = PipeannPoolFirstOpen(pool);
		 i < pool->count && left > 0 && explored < PIPEANN_TOGETHER; i++)
	{
		const PipeannCandidate *item = &pool->items[i];

		if (item->beam != beam || item->explored)
			continue;
		left--;
		if (!PipeannIsReady(search, item))
			continue;
		n = PipeannAddNeighbors(search, i, n);
		explored++;
	}
	PipeannPushBatch(search, n);
	return explored;
}

/*
 * What is not ready when it is passed by is not ready before another page comes.
 */
bool
PipeannExploreBeam(PipeannSearch *search, int beam)
{
	PipeannJoinPageMates(search);
	while (ExploreTogether(search, beam) == PIPEANN_TOGETHER)
		;
	return search->pool.chosen[beam] > 0;
}

void
PipeannAwaitPage(PipeannSearch *search)
{
	PipeannFrame *frame;

	CHECK_FOR_INTERRUPTS();
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
