/*
 * beam.c
 *		Candidates that were chosen together, for policies that go in rounds.
 */
#include "search/engine.h"

void
PipeannChoose(PipeannSearch *search, int position, int beam)
{
	PipeannCandidate *item = &search->pool.items[position];

	item->beam = beam;
	if (item->ref == PIPEANN_NO_REF)
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
 * Each node explored may put others before the rest of the beam, so the next
 * one is looked for from the start.
 */
bool
PipeannExploreBeam(PipeannSearch *search, int beam)
{
	PipeannPool *pool = &search->pool;
	bool		left = false;
	int			i;

	PipeannJoinPageMates(search);
	for (i = PipeannPoolFirstOpen(pool); i < pool->count; i++)
	{
		const PipeannCandidate *item = &pool->items[i];

		if (item->beam != beam || item->explored)
			continue;
		if (PipeannIsReady(search, item))
		{
			PipeannExplore(search, i);
			left = false;
			i = PipeannPoolFirstOpen(pool) - 1;
		}
		else
			left = true;
	}
	return left;
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
