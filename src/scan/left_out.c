/*
 * left_out.c
 *		Rows of the table that the index leaves out: those without a vector, and for
 *		cosine those whose vector is zero.
 *
 * In the order of a distance they come last, as their distance is NULL or no number.
 * So a scan returns them when it has nothing else and the executor wants more. The
 * index knows whether there may be any (PIPEANN_META_ALL_ROWS), but not which: the
 * table is read for them.
 *
 * A row that the scan's snapshot sees came before the snapshot, and the metapage was
 * told of it before that: who read the metapage later knows.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/relscan.h"
#include "access/tableam.h"
#include "catalog/index.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "scan/state.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

struct PipeannLeftOut
{
	IndexScanDesc scan;
	const PipeannIndexView *view;
	int			vector;			/* its position in the index */
	IndexInfo  *info;
	EState	   *estate;
	ExprState  *predicate;		/* of a partial index, else NULL */
	TupleTableSlot *slot;
	TableScanDesc table;		/* NULL: no pass is under way */
	int64		looked_at;		/* rows of the table */
	bool		nulls;			/* this pass is for rows without a vector */
	bool		wants_nulls;
	bool		met_nulls;		/* the pass before has met some */
	BlockNumber block;			/* of which the roots are known */
	OffsetNumber roots[MaxHeapTuplesPerPage];
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
};

static void
BeginPass(PipeannLeftOut *left_out, bool nulls)
{
	left_out->nulls = nulls;
	left_out->block = InvalidBlockNumber;
	left_out->table = table_beginscan_strat(left_out->scan->heapRelation,
											left_out->scan->xs_snapshot, 0,
											NULL, true, false);
}

static void
EndPass(PipeannLeftOut *left_out)
{
	ExecClearTuple(left_out->slot);
	if (left_out->table != NULL)
		table_endscan(left_out->table);
	left_out->table = NULL;
}

/* A condition that the vector is there rules out all that have none. */
static bool
WantsVector(IndexScanDesc scan, int vector)
{
	for (int i = 0; i < scan->numberOfKeys; i++)
		if (scan->keyData[i].sk_attno == vector + 1 &&
			(scan->keyData[i].sk_flags & SK_SEARCHNOTNULL))
			return true;
	return false;
}

/*
 * Begin to look for them in the table, in CurrentMemoryContext. NULL if the index
 * knows that there are none, or the scan wants none.
 */
PipeannLeftOut *
PipeannLeftOutBegin(IndexScanDesc scan, const PipeannIndexView *view)
{
	Relation	index = view->index;
	int			vector = PipeannVectorPosition(index);
	bool		zeroes = view->meta.layout.metric == PIPEANN_COSINE;
	bool		nulls = !WantsVector(scan, vector);
	PipeannLeftOut *left_out;

	if ((view->meta.flags & PIPEANN_META_ALL_ROWS) || !(zeroes || nulls))
		return NULL;
	left_out = palloc0(sizeof(PipeannLeftOut));
	left_out->scan = scan;
	left_out->view = view;
	left_out->vector = vector;
	left_out->info = BuildIndexInfo(index);
	left_out->estate = CreateExecutorState();
	left_out->predicate = ExecPrepareQual(left_out->info->ii_Predicate,
										  left_out->estate);
	left_out->slot = table_slot_create(scan->heapRelation, NULL);
	GetPerTupleExprContext(left_out->estate)->ecxt_scantuple = left_out->slot;
	left_out->wants_nulls = nulls;
	BeginPass(left_out, !zeroes);
	return left_out;
}

void
PipeannLeftOutEnd(PipeannLeftOut *left_out)
{
	EndPass(left_out);
	ExecDropSingleTupleTableSlot(left_out->slot);
	FreeExecutorState(left_out->estate);
}

/*
 * Whether the row in the slot is one of those that this pass is for. Policies may hide
 * it from whoever asks.
 */
static bool
IsOfThisPass(PipeannLeftOut *left_out)
{
	const PipeannLayout *l = &left_out->view->meta.layout;
	ExprContext *context = GetPerTupleExprContext(left_out->estate);
	MemoryContext old;
	bool		zero = false;

	ResetExprContext(context);
	if (!ExecQual(left_out->predicate, context))
		return false;
	old = MemoryContextSwitchTo(context->ecxt_per_tuple_memory);
	FormIndexDatum(left_out->info, left_out->slot, left_out->estate,
				   left_out->values, left_out->isnull);
	left_out->met_nulls |= left_out->isnull[left_out->vector];
	if (!left_out->isnull[left_out->vector] && !left_out->nulls)
	{
		const float *x = PipeannDatumElements(left_out->values[left_out->vector],
											  l->dim);

		zero = !PipeannIsIndexable(l->metric, PipeannNorm(x, l->dim));
	}
	MemoryContextSwitchTo(old);
	return left_out->nulls ? left_out->isnull[left_out->vector] : zero;
}

/*
 * The same, with the index's expressions computed as they were when the row was
 * indexed: for the table's owner, not with the rights of whoever asks.
 */
static bool
IsLeftOut(PipeannLeftOut *left_out)
{
	bool		found;
	Oid			user;
	int			context;

	if (left_out->predicate == NULL && left_out->info->ii_Expressions == NIL)
		return IsOfThisPass(left_out);
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(left_out->scan->heapRelation->rd_rel->relowner,
						   context | SECURITY_RESTRICTED_OPERATION);
	found = IsOfThisPass(left_out);
	SetUserIdAndSecContext(user, context);
	return found;
}

/* An index names a row by the place where its chain of HOT updates begins. */
static void
NameByRoot(PipeannLeftOut *left_out, ItemPointer tid)
{
	Buffer		buffer;
	BlockNumber block = ItemPointerGetBlockNumber(tid);

	if (!PipeannIsHeap(left_out->scan->heapRelation))
		return;
	if (left_out->block != block)
	{
		buffer = ((BufferHeapTupleTableSlot *) left_out->slot)->buffer;
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		heap_get_root_tuples(BufferGetPage(buffer), left_out->roots);
		LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
		left_out->block = block;
	}
	if (OffsetNumberIsValid(left_out->roots[ItemPointerGetOffsetNumber(tid) - 1]))
		ItemPointerSetOffsetNumber(tid,
								   left_out->roots[ItemPointerGetOffsetNumber(tid) - 1]);
}

/* What an index-only scan returns of the row in the slot, until the next one. */
static void
SetTuple(PipeannLeftOut *left_out)
{
	MemoryContext old =
		MemoryContextSwitchTo(GetPerTupleMemoryContext(left_out->estate));

	left_out->scan->xs_hitup =
		heap_form_tuple(RelationGetDescr(left_out->view->index),
						left_out->values, left_out->isnull);
	MemoryContextSwitchTo(old);
}

/* After the zeroes those without a vector, if there are any and they are wanted. */
static bool
BeginNextPass(PipeannLeftOut *left_out)
{
	bool		nulls = !left_out->nulls && left_out->wants_nulls &&
		left_out->met_nulls;

	EndPass(left_out);
	if (nulls)
		BeginPass(left_out, true);
	return nulls;
}

/*
 * The next one: those whose distance is no number first, then those without any. It
 * meets the predicate of a partial index; the scan's conditions are for others to
 * look at. Ends when `most` rows of the table were looked at.
 */
bool
PipeannLeftOutNext(PipeannLeftOut *left_out, int64 most, ItemPointer tid)
{
	while (left_out->table != NULL && left_out->looked_at < most)
	{
		CHECK_FOR_INTERRUPTS();
		if (!table_scan_getnextslot(left_out->table, ForwardScanDirection,
									left_out->slot))
		{
			if (!BeginNextPass(left_out))
				return false;
			continue;
		}
		left_out->looked_at++;
		if (!IsLeftOut(left_out))
			continue;
		*tid = left_out->slot->tts_tid;
		NameByRoot(left_out, tid);
		if (left_out->scan->xs_want_itup)
			SetTuple(left_out);
		return true;
	}
	return false;
}
