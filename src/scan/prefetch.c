/*
 * prefetch.c
 *		Prefetching the table pages of the rows that a scan returns next.
 *
 * The rows nearest to a query may be anywhere in their table, and the executor
 * reads their pages one after the other. For a table on disk, ten of them take
 * as long as the search. So the operating system is asked for the pages of
 * several rows at once when a second row is wanted: a LIMIT 1, and most
 * partitions of a table that are searched together, never want one.
 */
#include "postgres.h"

#include "scan/only.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/spccache.h"

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

/* Rows in overflow slots are left out. */
int
PipeannPrefetchRows(IndexScanDesc scan, const PipeannLayout *l,
					PipeannSearch *search, PipeannOnly *only, uint64 taken,
					uint64 most)
{
	Relation	table = scan->heapRelation;
	uint64		at_once = MostRows(table);
	const PipeannResult *results[PIPEANN_MAX_PREFETCH];
	BlockNumber last = InvalidBlockNumber;
	int			wanted;
	int			rows = 0;
	int			n;
	int			i;

	if (at_once == 0)
		return 0;
	wanted = (int) Min(most, at_once - taken % at_once);
	n = PipeannSearchNext(search, results, wanted);
	for (i = 0; i < n && rows < wanted; i++)
	{
		PipeannRowList list = PipeannSearchRows(search, results[i]);
		const PipeannRow *row = list.rows;

		for (uint32 j = 0; j < list.n && rows < wanted;
			 j++, rows++, row = PipeannRowNext(l, row))
		{
			BlockNumber block = ItemPointerGetBlockNumberNoCheck(&row->tid);

			if (block != last &&
				(only == NULL || !PipeannOnlySkips(only, block)))
				(void) PrefetchBuffer(table, MAIN_FORKNUM, block);
			last = block;
		}
	}
	return i;
}
