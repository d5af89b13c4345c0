/*
 * exact.c
 *		Scoring every node: for an index too small to have codes.
 */
#include "search/engine.h"

#define READ_AHEAD 32

static void
ScoreAndRelease(PipeannSearch *search, PipeannFrame *frame)
{
	PipeannScorePage(search, frame->page, frame->nodes);
	search->source->release(search->source, frame);
}

void
PipeannSearchExact(PipeannSearch *search, uint32 pages)
{
	PipeannPageSource *source = search->source;
	int			depth = Min(READ_AHEAD, source->max_in_flight);
	uint32		next = 0;
	int			awaited = 0;

	while (next < pages || awaited > 0)
	{
		PipeannFrame *frame;

		CHECK_FOR_INTERRUPTS();
		if (next < pages && awaited < depth)
		{
			frame = source->request(source, next++);
			if (frame->state == PIPEANN_FRAME_READY)
				ScoreAndRelease(search, frame);
			else
				awaited++;
			continue;
		}
		frame = source->next(source, true);
		if (frame == NULL)
			break;
		awaited--;
		ScoreAndRelease(search, frame);
	}
}
