/*
 * vector.c
 *		The vector of the row that a scan of this backend came to last.
 *
 * A scan has the vector of the row that it returns in memory, where the executor
 * would have to fetch it from TOAST. Only the scan that came to a row last is
 * asked, only for that row, and only where the slot has the vector to the last
 * bit: every other case gets no answer, and the vector is fetched. Where the slot
 * has it rounded, the TOAST of the rows that come next is asked for: their vectors
 * will be wanted, too.
 *
 * The answer does not depend on who asks. A row that a scan came to is visible to
 * its snapshot, so its place in the table is not used again while the scan is
 * there, and its node is live: the place names one vector, whatever query, portal
 * or process of evaluation wants it.
 */
#include "postgres.h"

#include "access/relscan.h"
#include "scan/prefetch.h"
#include "distance/distance.h"
#include "utils/rel.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* NULL while the scan that was asked last looks for its next row. */
static PipeannScanRow *current = NULL;

/* May run while a transaction aborts: no error, no allocation. */
static void
Forget(void *arg)
{
	if (current == arg)
		current = NULL;
}

/*
 * Begin a scan. When CurrentMemoryContext is reset or deleted the row is
 * forgotten.
 */
void
PipeannScanRowBegin(PipeannScanRow *row, IndexScanDesc scan,
					PipeannIndexView *view, PipeannSearch *search,
					PipeannPrefetch *prefetch, bool replica)
{
	row->scan = scan;
	row->view = view;
	row->search = search;
	row->prefetch = prefetch;
	row->replica = replica;
	row->column = PipeannVectorColumn(view->index);
	row->exact = view->meta.layout.storage != PIPEANN_FLOAT2;
	row->callback.func = Forget;
	row->callback.arg = row;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &row->callback);
}

/* A scan looks for its next row, and has come to it. */
void
PipeannScanRowLeave(void)
{
	current = NULL;
}

void
PipeannScanRowArrive(PipeannScanRow *row)
{
	current = row;
}

/* The heap has put the row's own place where the scan put that of its chain. */
static bool
IsAt(const PipeannScanRow *row, Oid table, AttrNumber column,
	 ItemPointer tid)
{
	return row != NULL && PipeannIsHeap(row->scan->heapRelation) &&
		RelationGetRelid(row->scan->heapRelation) == table &&
		row->column == column &&
		ItemPointerEquals(&row->scan->xs_heaptid, tid);
}

/* The slot of a row, if it has the vector exactly. */
static const PipeannSlot *
ExactSlot(const PipeannScanRow *row)
{
	const PipeannSlot *slot = !row->exact ? NULL :
		PipeannSearchLoadSlot(row->search, row->id);

	return slot != NULL && PipeannSlotIsNode(slot) &&
		!(slot->flags & PIPEANN_SLOT_OUT_OF_LINE) ? slot : NULL;
}

/*
 * The vector in a column of the row at a place of a table, in
 * CurrentMemoryContext. NULL unless that row is the one that a scan of this backend
 * returned last, by an index on the column, and the scan has the vector at hand to
 * the last bit.
 */
PipeannVector *
PipeannScanVector(Oid table, AttrNumber column, ItemPointer tid)
{
	const PipeannLayout *l;
	const PipeannSlot *slot;
	PipeannVector *vector;
	Size		size;
	bool		exact;

	if (!IsAt(current, table, column, tid))
		return NULL;
	slot = ExactSlot(current);
	if (slot == NULL)
	{
		PipeannPrefetchVectors(current->prefetch, current->scan,
							   current->search);
		return NULL;
	}
	l = &current->view->meta.layout;
	size = offsetof(PipeannVector, x) + mul_size(l->dim, sizeof(float));
	vector = palloc(size);
	SET_VARSIZE(vector, size);
	vector->dim = l->dim;
	vector->unused = 0;
	exact = PipeannExactVector(&current->view->meta, slot, vector->x);
	if (current->replica)
		PipeannCheckPacking(current->view);
	if (exact)
		return vector;
	pfree(vector);
	return NULL;
}
