/*
 * bitmap_exec.c
 *		Running a search for the nearest of the rows that other indexes find.
 *
 * The bitmap is made first, and its TIDs are offered to the scan of ours when that
 * begins. The scan's node returns the rows, having looked whether they are visible
 * and meet all conditions, as ever: so it does not matter what else the bitmap has.
 * If it has lost count of rows (work_mem) the scan goes without it.
 */
#include "postgres.h"

#include "base/planted.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/tidbitmap.h"
#include "plan/bitmap.h"
#include "scan/scan.h"
#include "utils/memutils.h"

#define FIRST_TIDS 1024

typedef struct BitmapState
{
	CustomScanState node;
	IndexScanState *scan;
	PlanState  *bitmap;
	MemoryContext tids;			/* reset by each rescan */
	MemoryContextCallback withdraw;
	bool		begun;
	bool		rescan;			/* the scan has to begin anew */
	bool		lossy;
	uint32		size;
	ItemPointerData *rows;
	PipeannAmong among;
} BitmapState;

static void
Withdraw(void *arg)
{
	PipeannAmongWithdraw(arg);
}

static void
AddTids(BitmapState *state, BlockNumber block, const OffsetNumber *offsets,
		int n)
{
	while (state->among.n + n > state->size)
	{
		state->size *= 2;
		state->rows = repalloc_huge(state->rows,
									mul_size(state->size,
											 sizeof(ItemPointerData)));
	}
	for (int i = 0; i < n; i++, state->among.n++)
		ItemPointerSet(&state->rows[state->among.n], block, offsets[i]);
}

/* In the order of TIDs. */
static void
TakeTids(BitmapState *state, TIDBitmap *bitmap)
{
#if PG_VERSION_NUM >= 180000
	TBMPrivateIterator *iterator = tbm_begin_private_iterate(bitmap);
	TBMIterateResult page;
	OffsetNumber offsets[TBM_MAX_TUPLES_PER_PAGE];

	while (!state->lossy && tbm_private_iterate(iterator, &page))
	{
		state->lossy = page.lossy;
		if (!page.lossy)
			AddTids(state, page.blockno, offsets,
					tbm_extract_page_tuple(&page, offsets,
										   TBM_MAX_TUPLES_PER_PAGE));
	}
	tbm_end_private_iterate(iterator);
#else
	TBMIterator *iterator = tbm_begin_iterate(bitmap);
	TBMIterateResult *page;

	while (!state->lossy && (page = tbm_iterate(iterator)) != NULL)
	{
		state->lossy = page->ntuples < 0;
		if (!state->lossy)
			AddTids(state, page->blockno, page->offsets, page->ntuples);
	}
	tbm_end_iterate(iterator);
#endif
}

static void
MakeTids(BitmapState *state)
{
	TIDBitmap  *bitmap = (TIDBitmap *) MultiExecProcNode(state->bitmap);

	if (bitmap == NULL || !IsA(bitmap, TIDBitmap))
		elog(ERROR, "unrecognized result from subplan");
	state->size = FIRST_TIDS;
	state->rows = MemoryContextAllocHuge(state->tids,
										 mul_size(state->size,
												  sizeof(ItemPointerData)));
	state->lossy = false;
	state->among.n = 0;
	TakeTids(state, bitmap);
	if (PIPEANN_PLANTED("bitmap-rows"))
		state->among.n /= 2;
	state->among.tids = state->rows;
	tbm_free(bitmap);
}

/* The first row: the scan begins while it is offered what it is to look among. */
static TupleTableSlot *
FirstRow(BitmapState *state)
{
	TupleTableSlot *slot;

	MakeTids(state);
	if (!state->lossy)
		PipeannAmongOffer(&state->among, state->scan->iss_OrderByKeys);
	if (state->rescan)
		ExecReScan(&state->scan->ss.ps);
	slot = ExecProcNode(&state->scan->ss.ps);
	PipeannAmongWithdraw(&state->among);
	state->begun = true;
	state->rescan = false;
	return slot;
}

static void
BeginBitmap(CustomScanState *node, EState *estate, int eflags)
{
	BitmapState *state = (BitmapState *) node;
	CustomScan *plan = (CustomScan *) node->ss.ps.plan;
	PlanState  *scan = ExecInitNode(linitial(plan->custom_plans), estate,
									eflags);

	state->scan = castNode(IndexScanState, scan);
	state->bitmap = ExecInitNode(lsecond(plan->custom_plans), estate, eflags);
	node->custom_ps = list_make2(scan, state->bitmap);
	state->tids = AllocSetContextCreate(estate->es_query_cxt,
										"pipeann bitmap",
										ALLOCSET_SMALL_SIZES);
	state->withdraw.func = Withdraw;
	state->withdraw.arg = &state->among;
	MemoryContextRegisterResetCallback(estate->es_query_cxt,
									   &state->withdraw);

	/* it returns the slots of the scan */
	node->ss.ps.resultopsset = true;
	node->ss.ps.resultopsfixed = false;
}

/* Where a row is looked at again by itself (EvalPlanQual) the scan has that row. */
static TupleTableSlot *
ExecBitmap(CustomScanState *node)
{
	BitmapState *state = (BitmapState *) node;

	if (!state->begun && node->ss.ps.state->es_epq_active == NULL)
		return FirstRow(state);
	return ExecProcNode(&state->scan->ss.ps);
}

static void
EndBitmap(CustomScanState *node)
{
	BitmapState *state = (BitmapState *) node;

	ExecEndNode(&state->scan->ss.ps);
	ExecEndNode(state->bitmap);
}

/*
 * The children are told what has changed; the scan begins anew when it is offered
 * the next bitmap.
 */
static void
ReScanBitmap(CustomScanState *node)
{
	BitmapState *state = (BitmapState *) node;

	if (node->ss.ps.chgParam != NULL)
	{
		UpdateChangedParamSet(&state->scan->ss.ps, node->ss.ps.chgParam);
		UpdateChangedParamSet(state->bitmap, node->ss.ps.chgParam);
	}
	if (node->ss.ps.state->es_epq_active != NULL)
	{
		ExecReScan(&state->scan->ss.ps);
		return;
	}
	if (state->bitmap->chgParam == NULL)
		ExecReScan(state->bitmap);
	state->rescan |= state->begun;
	state->begun = false;
	MemoryContextReset(state->tids);
}

Plan *
PipeannScanOfBitmap(const CustomScan *node)
{
	return node->methods == &PipeannBitmapMethods ?
		linitial(node->custom_plans) : NULL;
}

static const CustomExecMethods exec_methods = {
	.CustomName = "PipeannBitmap",
	.BeginCustomScan = BeginBitmap,
	.ExecCustomScan = ExecBitmap,
	.EndCustomScan = EndBitmap,
	.ReScanCustomScan = ReScanBitmap
};

static Node *
CreateState(CustomScan *plan)
{
	BitmapState *state = palloc0(sizeof(BitmapState));

	(void) plan;
	NodeSetTag(state, T_CustomScanState);
	state->node.methods = &exec_methods;
	return (Node *) state;
}

const CustomScanMethods PipeannBitmapMethods = {
	.CustomName = "PipeannBitmap",
	.CreateCustomScanState = CreateState
};
