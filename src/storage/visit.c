/*
 * visit.c
 *		Passing over graph pages in order.
 */
#include "storage/page_source.h"

#define READ_AHEAD 32

/* Visit graph pages from .. to - 1 in order, reading ahead. */
void
PipeannVisitPages(PipeannPageSource *source, uint32 from, uint32 to,
				  PipeannVisit visit, void *arg)
{
	PipeannFrame *frames[READ_AHEAD];
	uint32		depth = Min(READ_AHEAD, source->max_in_flight);
	uint32		next = from;

	for (uint32 page = from; page < to; page++)
	{
		PipeannFrame *frame;

		CHECK_FOR_INTERRUPTS();
		for (; next < to && next - page < depth; next++)
			frames[next % READ_AHEAD] = source->request(source, next,
														PIPEANN_ALL_SLOTS);
		source->submit(source);
		frame = frames[page % READ_AHEAD];
		while (frame->state != PIPEANN_FRAME_READY)
			(void) source->next(source, true);
		visit(page, frame->nodes, arg);
		source->release(source, frame);
	}
}
