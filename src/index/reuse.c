/*
 * reuse.c
 *		The memory of searches, kept by the backend from one scan to the next.
 *
 * A search takes a few hundred kilobytes, in allocations too large for a memory
 * context to keep. To return them to the operating system after each scan costs
 * page faults in the next one.
 */
#include "postgres.h"

#include "index/index.h"
#include "utils/memutils.h"

/* A search that has grown larger is not kept. */
#define KEEP_BYTES (1024 * 1024)

/*
 * Searches that are kept, as scans of a table's partitions have one each at the same
 * time; and their bytes in all.
 */
#define KEEP_SEARCHES 64
#define KEEP_ALL (16 * KEEP_BYTES)

typedef struct InUse
{
	PipeannSearch *search;
	MemoryContext context;		/* of the search's memory */
	MemoryContextCallback callback;
} InUse;

/* The searches that no scan has now. */
static struct
{
	PipeannSearch *search;
	Size		bytes;
}			idle[KEEP_SEARCHES];
static int	nidle = 0;
static Size idle_bytes = 0;

static PipeannSearch *
NewSearch(void)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pipeann search",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext former = MemoryContextSwitchTo(context);
	PipeannSearch *search = PipeannSearchCreate();

	MemoryContextSwitchTo(former);
	MemoryContextSetParent(context, TopMemoryContext);
	return search;
}

/* May run while a transaction aborts: no error, no allocation. */
static void
GiveBack(void *arg)
{
	InUse	   *in_use = arg;
	Size		bytes = MemoryContextMemAllocated(in_use->context, true);

	if (nidle == KEEP_SEARCHES || bytes > KEEP_BYTES ||
		idle_bytes + bytes > KEEP_ALL)
	{
		MemoryContextDelete(in_use->context);
		return;
	}
	idle[nidle].search = in_use->search;
	idle[nidle++].bytes = bytes;
	idle_bytes += bytes;
}

/*
 * A search that has not begun, if possible with the memory of an
 * earlier one. It goes back to the backend when CurrentMemoryContext is reset
 * or deleted.
 */
PipeannSearch *
PipeannReuseSearch(void)
{
	InUse	   *in_use = palloc(sizeof(InUse));

	if (nidle == 0)
		in_use->search = NewSearch();
	else
	{
		in_use->search = idle[--nidle].search;
		idle_bytes -= idle[nidle].bytes;
	}
	in_use->context = GetMemoryChunkContext(in_use->search);
	in_use->callback.func = GiveBack;
	in_use->callback.arg = in_use;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &in_use->callback);
	return in_use->search;
}
