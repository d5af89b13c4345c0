/*
 * fill_exec.c
 *		Filling a limit from scans of ours.
 *
 * Rows are kept until there are as many as the limit wants. If a scan has come to its
 * end by then, and has left out rows that came late, they are dropped, and come again
 * from scans that find everything before they return a row.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "plan/node.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

typedef struct FillState
{
	PipeannNode node;
	Tuplestorestate *rows;		/* NULL before the first row is asked for */
	bool		ended;			/* there are no more rows */
	PipeannFill fill;
} FillState;

/* Begin the scans, anew if they were begun before, and keep the rows. */
static void
Collect(FillState *state, int64 wanted)
{
	PlanState  *plan = state->node.child;
	TupleTableSlot *slot;

	state->ended = false;
	PipeannNodeBeginChild(&state->node);
	for (int64 n = 0; n < wanted; n++)
	{
		CHECK_FOR_INTERRUPTS();
		slot = ExecProcNode(plan);
		state->ended = TupIsNull(slot);
		if (state->ended)
			return;
		tuplestore_puttupleslot(state->rows, slot);
	}
}

static void
CollectRows(PipeannNode *node)
{
	FillState  *state = (FillState *) node;
	MemoryContext old = MemoryContextSwitchTo(node->state.ss.ps.state->es_query_cxt);
	int64		wanted = PipeannNodeWanted(node, PG_INT64_MAX);

	if (state->rows == NULL)
		state->rows = tuplestore_begin_heap(false, false, work_mem);
	else
		tuplestore_clear(state->rows);
	MemoryContextSwitchTo(old);
	state->fill.late = false;
	state->fill.all = state->fill.whole = wanted == PG_INT64_MAX;
	Collect(state, wanted);
	if (!state->fill.late)
		return;
	tuplestore_clear(state->rows);
	state->fill.whole = true;
	Collect(state, wanted);
}

/* As IsFromScans() of plans (finished.c). A limit further down comes before this one. */
static void
TellScans(FillState *state, PlanState *plan)
{
	PipeannScanContext *context;

	if (plan == NULL)
		return;
	switch (nodeTag(plan))
	{
		case T_IndexScanState:
		case T_IndexOnlyScanState:
			context = PipeannContextOfScan(plan);
			if (context != NULL && context->fill == NULL)
				context->fill = &state->fill;
			return;
		case T_SubqueryScanState:
			TellScans(state, castNode(SubqueryScanState, plan)->subplan);
			return;
		case T_MergeAppendState:
			for (int i = 0; i < castNode(MergeAppendState, plan)->ms_nplans; i++)
				TellScans(state, castNode(MergeAppendState, plan)->mergeplans[i]);
			return;
		default:
			TellScans(state, outerPlanState(plan));
			if (IsA(plan, CustomScanState) &&
				castNode(CustomScanState, plan)->custom_ps != NIL)
				TellScans(state, linitial(castNode(CustomScanState, plan)->custom_ps));
			return;
	}
}

static void
BeginFill(PipeannNode *node)
{
	if (!PipeannNodeIsRecheck(node))
		TellScans((FillState *) node, node->child);
}

static TupleTableSlot *
NextRow(PipeannNode *node)
{
	const FillState *state = (const FillState *) node;

	if (tuplestore_gettupleslot(state->rows, true, false, node->slot))
		return node->slot;
	return state->ended ? NULL : ExecProcNode(node->child);
}

static void
EndFill(PipeannNode *node)
{
	const FillState *state = (const FillState *) node;

	if (state->rows != NULL)
		tuplestore_end(state->rows);
}

const PipeannNodeMethods PipeannFillMethods = {
	.scan = {
		.CustomName = "PipeannFill",
		.CreateCustomScanState = PipeannNodeCreate
	},
	.size = sizeof(FillState),
	.begin = BeginFill,
	.start = CollectRows,
	.next = NextRow,
	.end = EndFill
};
