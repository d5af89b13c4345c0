/*
 * fill_exec.c
 *		Filling a limit from scans of ours.
 *
 * Rows are kept until there are as many as the limit wants. If a scan has come to its
 * end by then, and has left out rows that came late, they are dropped, and come again
 * from scans that find everything before they return a row.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "plan/fill.h"
#include "scan/scan.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

typedef struct FillState
{
	CustomScanState node;
	List	   *keys;			/* order-by keys of the scans */
	ExprState  *count;
	ExprState  *offset;			/* or NULL */
	TupleTableSlot *slot;
	Tuplestorestate *rows;		/* NULL before the first row is asked for */
	MemoryContextCallback withdraw;
	bool		rescan;			/* the scans have to begin anew */
	bool		ended;			/* there are no more rows */
	PipeannFill fill;
} FillState;

static void
Withdraw(void *arg)
{
	PipeannFillWithdraw(arg);
}

/* A number of the limit, or what there is instead if it is NULL. */
static int64
Evaluate(FillState *state, ExprState *number, int64 otherwise)
{
	bool		isnull;
	Datum		value;

	if (number == NULL)
		return otherwise;
	value = ExecEvalExprSwitchContext(number,
									  state->node.ss.ps.ps_ExprContext,
									  &isnull);
	return isnull ? otherwise : DatumGetInt64(value);
}

/* The limit's own node reports a number that is negative. */
static int64
CountWanted(FillState *state)
{
	int64		count = Evaluate(state, state->count, PG_INT64_MAX);
	int64		offset = Evaluate(state, state->offset, 0);

	return count <= 0 || offset < 0 || count > PG_INT64_MAX - offset ?
		PG_INT64_MAX : count + offset;
}

/* Begin the scans, anew if they were begun before, and keep the rows. */
static void
Collect(FillState *state, int64 wanted)
{
	PlanState  *plan = outerPlanState(state);
	TupleTableSlot *slot;

	PipeannFillOffer(&state->fill, state->keys);
	if (state->rescan)
		ExecReScan(plan);
	state->rescan = true;
	slot = ExecProcNode(plan);
	PipeannFillWithdraw(&state->fill);
	for (int64 n = 1; !TupIsNull(slot); n++)
	{
		tuplestore_puttupleslot(state->rows, slot);
		if (n >= wanted)
			return;
		CHECK_FOR_INTERRUPTS();
		slot = ExecProcNode(plan);
	}
	state->ended = true;
}

static void
CollectRows(FillState *state)
{
	MemoryContext old = MemoryContextSwitchTo(state->node.ss.ps.state->es_query_cxt);
	int64		wanted = CountWanted(state);

	state->rows = tuplestore_begin_heap(false, false, work_mem);
	MemoryContextSwitchTo(old);
	state->ended = state->fill.late = false;
	state->fill.all = state->fill.whole = wanted == PG_INT64_MAX;
	Collect(state, wanted);
	if (!state->fill.late)
		return;
	tuplestore_clear(state->rows);
	state->ended = false;
	state->fill.whole = true;
	Collect(state, wanted);
}

/* As FindScans() of plans (fill.c); keys of other indexes' scans do no harm. */
static void
FindKeys(FillState *state, PlanState *plan)
{
	if (plan == NULL)
		return;
	switch (nodeTag(plan))
	{
		case T_IndexScanState:
			state->keys = lappend(state->keys,
								  castNode(IndexScanState, plan)->iss_OrderByKeys);
			return;
		case T_IndexOnlyScanState:
			state->keys = lappend(state->keys,
								  castNode(IndexOnlyScanState, plan)->ioss_OrderByKeys);
			return;
		case T_SubqueryScanState:
			FindKeys(state, castNode(SubqueryScanState, plan)->subplan);
			return;
		case T_MergeAppendState:
			for (int i = 0; i < castNode(MergeAppendState, plan)->ms_nplans; i++)
				FindKeys(state, castNode(MergeAppendState, plan)->mergeplans[i]);
			return;
		default:
			FindKeys(state, outerPlanState(plan));
			if (IsA(plan, CustomScanState) &&
				castNode(CustomScanState, plan)->custom_ps != NIL)
				FindKeys(state, linitial(castNode(CustomScanState, plan)->custom_ps));
			return;
	}
}

static void
BeginFill(CustomScanState *node, EState *estate, int eflags)
{
	FillState  *state = (FillState *) node;
	CustomScan *plan = (CustomScan *) node->ss.ps.plan;
	PlanState  *child = ExecInitNode(outerPlan(plan), estate, eflags);

	outerPlanState(node) = child;
	FindKeys(state, child);
	state->count = ExecInitExpr(linitial(plan->custom_exprs), &node->ss.ps);
	state->offset = list_length(plan->custom_exprs) < 2 ? NULL :
		ExecInitExpr(lsecond(plan->custom_exprs), &node->ss.ps);
	state->slot = ExecInitExtraTupleSlot(estate, ExecGetResultType(child),
										 &TTSOpsMinimalTuple);
	state->withdraw.func = Withdraw;
	state->withdraw.arg = &state->fill;
	MemoryContextRegisterResetCallback(estate->es_query_cxt,
									   &state->withdraw);

	/* it returns the slots of its child as well */
	node->ss.ps.resultopsset = true;
	node->ss.ps.resultopsfixed = false;
}

/* Where a row is looked at again by itself (EvalPlanQual) the scans have that row. */
static TupleTableSlot *
ExecFill(CustomScanState *node)
{
	FillState  *state = (FillState *) node;

	if (node->ss.ps.state->es_epq_active != NULL)
		return ExecProcNode(outerPlanState(node));
	if (state->rows == NULL)
		CollectRows(state);
	if (tuplestore_gettupleslot(state->rows, true, false, state->slot))
		return state->slot;
	return state->ended ? NULL : ExecProcNode(outerPlanState(node));
}

static void
ForgetRows(FillState *state)
{
	ExecClearTuple(state->slot);
	if (state->rows != NULL)
		tuplestore_end(state->rows);
	state->rows = NULL;
}

static void
EndFill(CustomScanState *node)
{
	ForgetRows((FillState *) node);
	ExecEndNode(outerPlanState(node));
}

/* The scans begin anew when they are offered the limit, unless they never began. */
static void
ReScanFill(CustomScanState *node)
{
	if (node->ss.ps.state->es_epq_active != NULL)
		ExecReScan(outerPlanState(node));
	else
		ForgetRows((FillState *) node);
}

static const CustomExecMethods exec_methods = {
	.CustomName = "PipeannFill",
	.BeginCustomScan = BeginFill,
	.ExecCustomScan = ExecFill,
	.EndCustomScan = EndFill,
	.ReScanCustomScan = ReScanFill
};

static Node *
CreateState(CustomScan *plan)
{
	FillState  *state = palloc0(sizeof(FillState));

	(void) plan;
	NodeSetTag(state, T_CustomScanState);
	state->node.methods = &exec_methods;
	return (Node *) state;
}

const CustomScanMethods PipeannFillMethods = {
	.CustomName = "PipeannFill",
	.CreateCustomScanState = CreateState
};
