/*
 * visit.c
 *		Visiting graph pages in order.
 */
#include "storage/page_source.h"

#define READ_AHEAD 32

/*
 * Visit the first n graph pages in order, reading ahead. Each page in memory is copied
 * just before it is visited, so that the copy is in the CPU's first-level cache.
 */
void
PipeannVisitPages(PipeannPageSource *source, uint32 n, PipeannVisit visit,
				  void *arg)
{
	PipeannFrame *frames[READ_AHEAD];
	uint32		most = Min(READ_AHEAD, source->max_in_flight);
	uint32		depth = most;
	uint32		next = 0;

	for (uint32 page = 0; page < n; page++)
	{
		PipeannFrame *frame;

		CHECK_FOR_INTERRUPTS();
		for (; next < n && next - page < depth; next++)
			frames[next % READ_AHEAD] = source->request(source, next,
														PIPEANN_ALL_SLOTS);
		source->submit(source);
		frame = frames[page % READ_AHEAD];
		while (frame->state != PIPEANN_FRAME_READY)
			(void) source->next(source, true);
		depth = frame->hit ? 1 : most;
		visit(page, frame->nodes, arg);
		source->release(source, frame);
	}
}
