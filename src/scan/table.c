/*
 * table.c
 *		What a scan itself reads of the table: rows that it is not sure that its
 *		snapshot sees, and vectors that the index has only rounded.
 */
#include "postgres.h"

#include "access/relscan.h"
#include "access/tableam.h"
#include "executor/tuptable.h"
#include "scan/only.h"
#include "utils/memutils.h"
#include "utils/rel.h"

bool
PipeannTableSees(IndexScanDesc scan, const ItemPointerData *tid, bool *dead)
{
	ItemPointerData at = *tid;

	*dead = false;
	return table_index_fetch_tuple_check(scan->heapRelation, &at,
										 scan->xs_snapshot, dead);
}

bool
PipeannTableVector(IndexScanDesc scan, const ItemPointerData *tid, int dim,
				   float *x)
{
	Relation	table = scan->heapRelation;
	AttrNumber	column = PipeannVectorColumn(scan->indexRelation);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pipeann table row",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	IndexFetchTableData *fetch = table_index_fetch_begin(table);
	TupleTableSlot *slot = table_slot_create(table, NULL);
	ItemPointerData at = *tid;
	bool		again = false;
	bool		dead = false;
	bool		isnull = true;
	bool		found;

	found = table_index_fetch_tuple(fetch, &at, scan->xs_snapshot, slot,
									&again, &dead);
	if (found)
	{
		Datum		value = slot_getattr(slot, column, &isnull);

		if (!isnull)
			memcpy(x, PipeannDatumElements(value, dim),
				   mul_size(dim, sizeof(float)));
	}
	ExecDropSingleTupleTableSlot(slot);
	table_index_fetch_end(fetch);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return found && !isnull;
}

/* As PipeannTableVector(), of the first row of a list that is seen. */
static bool
VectorOfAny(IndexScanDesc scan, const PipeannLayout *l, PipeannRowList list,
			float *x)
{
	const PipeannRow *row = list.rows;

	for (uint32 i = 0; i < list.n; i++, row = PipeannRowNext(l, row))
		if (PipeannTableVector(scan, &row->tid, l->dim, x))
			return true;
	return false;
}

bool
PipeannTableVectorOf(IndexScanDesc scan, const PipeannIndexView *view,
					 const PipeannResult *result, PipeannRowList rows,
					 float *x)
{
	const PipeannLayout *l = &view->meta.layout;
	bool		found = VectorOfAny(scan, l, rows, x);
	PipeannChain chain;
	void	   *copy;

	if (found || result->ext_tids == PIPEANN_INVALID_ID)
		return found;
	copy = palloc(PipeannExtBytes(l));
	PipeannChainBegin(&chain, result->id, result->ext_tids);
	while (!found && chain.next != PIPEANN_INVALID_ID)
		found = VectorOfAny(scan, l, PipeannChainRead(view, &chain, copy), x);
	pfree(copy);
	return found;
}
