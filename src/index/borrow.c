/*
 * borrow.c
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
 * Scans of a table's partitions have a search each, all at a time: so many are
 * kept, and no more in all than this.
 */
#define KEEP_SEARCHES 64
#define KEEP_ALL (16 * KEEP_BYTES)

typedef struct Loan
{
	PipeannSearch *search;
	MemoryContext context;		/* of the search's memory */
	MemoryContextCallback callback;
} Loan;

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
	Loan	   *loan = arg;
	Size		bytes = MemoryContextMemAllocated(loan->context, true);

	if (nidle == KEEP_SEARCHES || bytes > KEEP_BYTES ||
		idle_bytes + bytes > KEEP_ALL)
	{
		MemoryContextDelete(loan->context);
		return;
	}
	idle[nidle].search = loan->search;
	idle[nidle++].bytes = bytes;
	idle_bytes += bytes;
}

PipeannSearch *
PipeannBorrowSearch(void)
{
	Loan	   *loan = palloc(sizeof(Loan));

	if (nidle == 0)
		loan->search = NewSearch();
	else
	{
		loan->search = idle[--nidle].search;
		idle_bytes -= idle[nidle].bytes;
	}
	loan->context = GetMemoryChunkContext(loan->search);
	loan->callback.func = GiveBack;
	loan->callback.arg = loan;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &loan->callback);
	return loan->search;
}
