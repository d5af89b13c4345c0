/*
 * prefetch.c
 *		Prefetching the table pages of the rows that a scan returns next.
 *
 * The rows nearest to a query may be anywhere in their table, and the executor
 * reads their pages one after the other. For a table on disk, ten of them take
 * as long as the search. So the operating system is asked for the pages of
 * several rows at once, and for those of a row that the search is sure of while
 * the search still waits for pages of its own.
 *
 * Nobody tells a scan how many rows are wanted of it: a LIMIT 1, and most
 * partitions of a table that are searched together, never want a second one. But
 * the next scan of an index is likely to be asked for as many as the last one of
 * this session. The first of a session asks for one, and for others when a second
 * row is wanted.
 */
#include "postgres.h"

#include "scan/only.h"
#include "scan/prefetch.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/spccache.h"

/* What a session remembers of an index until its relcache entry is made anew. */
typedef struct LastScan
{
	int			rows;			/* that were wanted */
} LastScan;

static int
RowsOfLastScan(Relation index)
{
	return index->rd_amcache == NULL ? 1 :
		((LastScan *) index->rd_amcache)->rows;
}

/*
 * The number of rows to ask for: that of the setting, or none if the table's
 * tablespace is not read ahead. Only of heaps is it known that TIDs name
 * blocks.
 */
static int
MostRows(Relation table)
{
	if (!PipeannIsHeap(table) ||
		get_tablespace_io_concurrency(table->rd_rel->reltablespace) == 0)
		return 0;
	return pipeann_prefetch_rows;
}

/*
 * Begin a scan. only is NULL unless the scan is index-only: then pages that it
 * will not read are left out.
 */
void
PipeannPrefetchBegin(PipeannPrefetch *prefetch, IndexScanDesc scan,
					 const PipeannLayout *layout, PipeannOnly *only)
{
	prefetch->table = scan->heapRelation;
	prefetch->layout = layout;
	prefetch->only = only;
	prefetch->at_once = MostRows(scan->heapRelation);
	prefetch->expected = RowsOfLastScan(scan->indexRelation);
	prefetch->taken = prefetch->until = prefetch->vectors_until = 0;
	prefetch->nasked = 0;
}

/* So many rows were wanted of a scan. */
void
PipeannPrefetchEnd(Relation index, uint64 rows)
{
	if (index->rd_amcache == NULL)
		index->rd_amcache = MemoryContextAlloc(index->rd_indexcxt,
											   sizeof(LastScan));
	((LastScan *) index->rd_amcache)->rows = (int) Min(rows,
													   PIPEANN_MAX_PREFETCH);
}

/* Whether a page is among those asked for last; notes that it is. */
static bool
WasAsked(PipeannPrefetch *prefetch, BlockNumber block)
{
	uint32		n = Min(prefetch->nasked, PIPEANN_ASKED);

	for (uint32 i = 0; i < n; i++)
		if (prefetch->asked[i] == block)
			return true;
	prefetch->asked[prefetch->nasked++ % PIPEANN_ASKED] = block;
	return false;
}

/* Ask for the pages of a list's rows, up to `most`; returns of how many. */
static int
Ask(PipeannPrefetch *prefetch, PipeannRowList list, int most)
{
	const PipeannRow *row = list.rows;
	int			n = (int) Min(list.n, (uint32) most);

	for (int i = 0; i < n; i++, row = PipeannRowNext(prefetch->layout, row))
	{
		BlockNumber block = ItemPointerGetBlockNumberNoCheck(&row->tid);

		if (!WasAsked(prefetch, block) &&
			(prefetch->only == NULL ||
			 !PipeannOnlySkips(prefetch->only, block)))
			(void) PrefetchBuffer(prefetch->table, MAIN_FORKNUM, block);
	}
	return n;
}

/* How many results the search may ask for before it ends. */
int
PipeannPrefetchEarly(const PipeannPrefetch *prefetch)
{
	return Min(prefetch->expected, prefetch->at_once);
}

/* For PipeannSearchParams: asks for a result's rows. */
void
PipeannPrefetchSettled(PipeannRowList rows, void *arg)
{
	PipeannPrefetch *prefetch = arg;

	(void) Ask(prefetch, rows, PipeannPrefetchEarly(prefetch));
}

/* How many rows to ask for at a time when so many were taken. */
static int
RowsWanted(const PipeannPrefetch *prefetch, uint64 taken)
{
	int			wanted = prefetch->at_once - (int) (taken % prefetch->at_once);

	if (taken > 0)
		return wanted;
	return prefetch->expected > 1 ? Min(wanted, prefetch->expected) : 0;
}

/*
 * When `taken` results were taken and the next one is about to be, ask the
 * operating system for the pages of the next ones, up to `most`, unless that was
 * done.
 *
 * Rows in overflow slots are left out.
 */
void
PipeannPrefetchRows(PipeannPrefetch *prefetch, PipeannSearch *search,
					uint64 taken, uint64 most)
{
	const PipeannResult *results[PIPEANN_MAX_PREFETCH];
	int			wanted;
	int			rows = 0;
	int			n;
	int			i;

	prefetch->taken = taken;
	if (prefetch->at_once == 0 || taken < prefetch->until)
		return;
	wanted = RowsWanted(prefetch, taken);
	wanted = (int) Min(most, (uint64) wanted);
	n = PipeannSearchNext(search, results, wanted);
	for (i = 0; i < n && rows < wanted; i++)
		rows += Ask(prefetch, PipeannSearchRows(search, results[i]),
					wanted - rows);
	prefetch->until = taken + i;
}
