/*
 * lists.c
 *		Writing planned neighbour lists to pages.
 */
#include "postgres.h"

#include "base/pause.h"
#include "index/neighbors.h"
#include "miscadmin.h"

static bool
IsAsSeen(const PipeannLayout *l, const PipeannSlot *slot,
		 const PipeannSlot *seen)
{
	return PipeannSlotIsNode(slot) && slot->degree == seen->degree &&
		memcmp(slot->neighbors, seen->neighbors,
			   PipeannSlotDegree(l, seen) * sizeof(uint32)) == 0;
}

/* Change the lists of edges[n], all on one page, in a copy of the page. */
static void
ChangePage(const PipeannLayout *l, Page page, PipeannListChange *edges, int n)
{
	for (int i = 0; i < n; i++)
	{
		PipeannSlot *slot = PipeannSlotAt(l, PipeannPagePayload(page),
										  PipeannIdSlot(l, edges[i].target));

		if (!IsAsSeen(l, slot, edges[i].seen))
			continue;
		memcpy(slot->neighbors, edges[i].list, edges[i].n * sizeof(uint32));
		slot->degree = edges[i].n;
		edges[i].done = true;
	}
}

static bool
AnyIsAsSeen(const PipeannLayout *l, Page page, const PipeannListChange *edges,
			int n)
{
	for (int i = 0; i < n; i++)
		if (IsAsSeen(l, PipeannSlotAt(l, PipeannPagePayload(page),
									  PipeannIdSlot(l, edges[i].target)),
					 edges[i].seen))
			return true;
	return false;
}

/* The number of edges on the same page as edges[0]; they are sorted by page. */
static int
CountOnPage(const PipeannLayout *l, const PipeannListChange *edges, int n)
{
	int			i;

	for (i = 1; i < n; i++)
		if (PipeannIdPage(l, edges[i].target) !=
			PipeannIdPage(l, edges[0].target))
			break;
	return i;
}

/* Graph pages (their first blocks) that are changed under one WAL record. */
typedef struct PagesUpdate
{
	GenericXLogState *state;
	BufferAccessStrategy strategy;
	int			n;				/* registered */
	Buffer		buffers[MAX_GENERIC_XLOG_PAGES];
	Page		pages[MAX_GENERIC_XLOG_PAGES];
} PagesUpdate;

/* Change the lists of edges[n], all on one page, if any is still the same. */
static void
UpdatePage(const PipeannIndexView *view, PagesUpdate *update,
		   PipeannListChange *edges, int n)
{
	const PipeannLayout *l = &view->meta.layout;
	Buffer		buffer = PipeannLockGraphPage(view,
											  PipeannIdPage(l, edges[0].target),
											  BUFFER_LOCK_EXCLUSIVE,
											  update->strategy);
	Page		page;

	if (!AnyIsAsSeen(l, BufferGetPage(buffer), edges, n))
	{
		UnlockReleaseBuffer(buffer);
		return;
	}
	page = GenericXLogRegisterBuffer(update->state, buffer, 0);
	update->buffers[update->n] = buffer;
	update->pages[update->n++] = page;
	for (int i = 0; i < n; i++)
	ChangePage(l, page, edges, n);
}

static void
EndPages(PagesUpdate *update)
{
	for (int i = 0; i < update->n; i++)
		PipeannPageSeal(update->pages[i],
						BufferGetBlockNumber(update->buffers[i]));
	if (update->n > 0)
		GenericXLogFinish(update->state);
	else
		GenericXLogAbort(update->state);
	for (int i = 0; i < update->n; i++)
		UnlockReleaseBuffer(update->buffers[i]);
}

/*
 * Change the lists of the first edges on as many pages as one WAL record holds: a record
 * for each page would be as much header as change. Returns how many edges were dealt
 * with.
 */
static int
ApplyToPages(const PipeannIndexView *view, PipeannListChange *edges, int n,
			 BufferAccessStrategy strategy)
{
	PagesUpdate update = {.strategy = strategy};
	int			done = 0;

	PIPEANN_PAUSE("insert-back-edge");
	update.state = GenericXLogStart(view->index);
	while (done < n && update.n < MAX_GENERIC_XLOG_PAGES)
	{
		int			here = CountOnPage(&view->meta.layout, edges + done,
									   n - done);

		UpdatePage(view, &update, edges + done, here);
		done += here;
	}
	EndPages(&update);
	return done;
}

static int
CompareTargets(const void *a, const void *b)
{
	uint32		x = ((const PipeannListChange *) a)->target;
	uint32		y = ((const PipeannListChange *) b)->target;

	return x < y ? -1 : x > y;
}

/*
 * Write the planned lists whose old lists have not changed, and set their
 * done.
 */
void
PipeannChangeLists(const PipeannIndexView *view, PipeannListChange *changes,
				   int n, BufferAccessStrategy strategy)
{
	qsort(changes, n, sizeof(PipeannListChange), CompareTargets);
	for (int done = 0; done < n;)
	{
		CHECK_FOR_INTERRUPTS();
		done += ApplyToPages(view, changes + done, n - done, strategy);
	}
}
