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

typedef struct Loan
{
	PipeannSearch *search;
	MemoryContext context;		/* of the search's memory */
	MemoryContextCallback callback;
} Loan;

/* The search that no scan has now. */
static PipeannSearch *idle = NULL;

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

	if (idle == NULL &&
		MemoryContextMemAllocated(loan->context, true) <= KEEP_BYTES)
		idle = loan->search;
	else
		MemoryContextDelete(loan->context);
}

PipeannSearch *
PipeannBorrowSearch(void)
{
	Loan	   *loan = palloc(sizeof(Loan));

	if (idle == NULL)
		idle = NewSearch();
	loan->search = idle;
	loan->context = GetMemoryChunkContext(idle);
	loan->callback.func = GiveBack;
	loan->callback.arg = loan;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &loan->callback);
	idle = NULL;
	return loan->search;
}
