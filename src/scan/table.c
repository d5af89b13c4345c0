/*
 * table.c
 *		The vectors that a scan itself reads from the table.
 */
#include "postgres.h"

#include "access/relscan.h"
#include "access/tableam.h"
#include "catalog/index.h"
#include "executor/executor.h"
#include "scan/state.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/*
 * Copy the vector of a row in a slot; false if it has none. As for an insert the
 * index's expression is computed for whoever asks.
 */
static bool
CopyVector(Relation index, TupleTableSlot *slot, int dim, float *x)
{
	AttrNumber	column = PipeannVectorColumn(index);
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	int			vector = 0;
	EState	   *estate = NULL;

	if (column != InvalidAttrNumber)
		values[0] = slot_getattr(slot, column, &isnull[0]);
	else
	{
		estate = CreateExecutorState();
		vector = PipeannVectorPosition(index);
		GetPerTupleExprContext(estate)->ecxt_scantuple = slot;
		FormIndexDatum(BuildIndexInfo(index), slot, estate, values, isnull);
	}
	if (!isnull[vector])
		memcpy(x, PipeannDatumElements(values[vector], dim),
			   mul_size(dim, sizeof(float)));
	if (estate != NULL)
		FreeExecutorState(estate);
	return !isnull[vector];
}

/* Read a row's vector to x[dim]. False if the snapshot does not see the row. */
bool
PipeannTableVector(IndexScanDesc scan, const ItemPointerData *tid, int dim,
				   float *x)
{
	Relation	table = scan->heapRelation;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pipeann table row",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	IndexFetchTableData *fetch = table_index_fetch_begin(table);
	TupleTableSlot *slot = table_slot_create(table, NULL);
	ItemPointerData at = *tid;
	bool		again = false;
	bool		dead = false;
	bool		found;

	found = table_index_fetch_tuple(fetch, &at, scan->xs_snapshot, slot,
									&again, &dead) &&
		CopyVector(scan->indexRelation, slot, dim, x);
	ExecDropSingleTupleTableSlot(slot);
	table_index_fetch_end(fetch);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return found;
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

/*
 * Read the vector of the first row of a result that the snapshot sees to x[dim].
 */
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
