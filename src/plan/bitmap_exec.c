/*
 * bitmap_exec.c
 *		Running a search for the nearest of the rows that other indexes find.
 *
 * The bitmap is made first, and the scan of ours is told its TIDs before it begins.
 * The scan's node returns the rows, having looked whether they are visible and meet
 * all conditions, as ever: so it does not matter what else the bitmap has. If it has
 * lost count of rows (work_mem) the scan goes without it.
 */
#include "postgres.h"

#include "base/planted.h"
#include "miscadmin.h"
#include "nodes/tidbitmap.h"
#include "plan/node.h"
#include "utils/memutils.h"

#define FIRST_TIDS 1024

typedef struct BitmapState
{
	PipeannNode node;			/* its child is the scan */
	bool		lossy;
	uint32		size;
	ItemPointerData *rows;
	PipeannTidFilter tid_filter;
} BitmapState;

static void
AddTids(BitmapState *state, BlockNumber block, const OffsetNumber *offsets,
		int n)
{
	while (state->tid_filter.n + n > state->size)
	{
		state->size *= 2;
		state->rows = repalloc_huge(state->rows,
									mul_size(state->size,
											 sizeof(ItemPointerData)));
	}
	for (int i = 0; i < n; i++, state->tid_filter.n++)
		ItemPointerSet(&state->rows[state->tid_filter.n], block, offsets[i]);
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
	PlanState  *scans = lsecond(state->node.state.custom_ps);
	TIDBitmap  *bitmap;

	if (state->node.anew && scans->chgParam == NULL)
		ExecReScan(scans);
	bitmap = (TIDBitmap *) MultiExecProcNode(scans);
	if (bitmap == NULL || !IsA(bitmap, TIDBitmap))
		elog(ERROR, "unrecognized result from subplan");
	state->size = FIRST_TIDS;
	state->rows = MemoryContextAllocHuge(state->node.memory,
										 mul_size(state->size,
												  sizeof(ItemPointerData)));
	state->lossy = false;
	state->tid_filter.n = 0;
	TakeTids(state, bitmap);
	if (PIPEANN_PLANTED("bitmap-rows"))
		state->tid_filter.n /= 2;
	state->tid_filter.tids = state->rows;
	tbm_free(bitmap);
}

static void
Start(PipeannNode *node)
{
	BitmapState *state = (BitmapState *) node;

	MakeTids(state);
	PipeannContextOfScan(node->child)->tid_filter = state->lossy ? NULL :
		&state->tid_filter;
	PipeannNodeBeginChild(node);
}

const PipeannNodeMethods PipeannBitmapMethods = {
	.scan = {
		.CustomName = "PipeannBitmap",
		.CreateCustomScanState = PipeannNodeCreate
	},
	.size = sizeof(BitmapState),
	.start = Start
};
