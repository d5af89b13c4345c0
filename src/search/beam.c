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
 * Explore a candidate; returns where it is then: its neighbours may come before
 * it.
 */
static int
ExploreAt(PipeannSearch *search, int position)
{
	PipeannPool *pool = &search->pool;
	uint32		id = pool->items[position].id;

	PipeannExplore(search, position);
	while (position < pool->count && pool->items[position].id != id)
		position++;
	return position;
}

/*
 * What is not ready when it is passed by is not ready before another page comes.
 */
bool
PipeannExploreBeam(PipeannSearch *search, int beam)
{
	PipeannPool *pool = &search->pool;
	int			waiting = 0;
	int			i;

	PipeannJoinPageMates(search);
	for (i = PipeannPoolFirstOpen(pool);
		 i < pool->count && waiting < pool->chosen[beam]; i++)
	{
		const PipeannCandidate *item = &pool->items[i];

		if (item->beam != beam || item->explored)
			continue;
		if (PipeannIsReady(search, item))
			i = ExploreAt(search, i);
		else
			waiting++;
	}
	return pool->chosen[beam] > 0;
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
