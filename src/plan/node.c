/*
 * node.c
 *		How nodes of ours are run, as far as all are alike.
 */
#include "postgres.h"

#include "access/amapi.h"
#include "plan/node.h"
#include "utils/memutils.h"
#include "utils/rel.h"

static const PipeannNodeMethods *
MethodsOf(const CustomScanState *state)
{
	const CustomScan *plan = (const CustomScan *) state->ss.ps.plan;

	return (const PipeannNodeMethods *) plan->methods;
}

/* The child is the plan's outer one, or else the first of its own. */
static void
Begin(CustomScanState *state, EState *estate, int eflags)
{
	PipeannNode *node = (PipeannNode *) state;
	CustomScan *plan = (CustomScan *) state->ss.ps.plan;
	ListCell   *cell;

	outerPlanState(state) = ExecInitNode(outerPlan(plan), estate, eflags);
	foreach(cell, plan->custom_plans)
		state->custom_ps = lappend(state->custom_ps,
								   ExecInitNode(lfirst(cell), estate, eflags));
	node->child = outerPlanState(state) != NULL ? outerPlanState(state) :
		linitial(state->custom_ps);
	node->limit = ExecInitExprList(plan->custom_exprs, &state->ss.ps);
	if (node->limit != NIL)
		node->slot = ExecInitExtraTupleSlot(estate,
											ExecGetResultType(node->child),
											&TTSOpsMinimalTuple);

	/* it returns the slots of its child as well */
	state->ss.ps.resultopsset = true;
	state->ss.ps.resultopsfixed = false;
	node->memory = AllocSetContextCreate(estate->es_query_cxt, "pipeann node",
										 ALLOCSET_SMALL_SIZES);
	if (MethodsOf(state)->begin != NULL)
		MethodsOf(state)->begin(node);
}

static TupleTableSlot *
Exec(CustomScanState *state)
{
	const PipeannNodeMethods *methods = MethodsOf(state);
	PipeannNode *node = (PipeannNode *) state;

	if (PipeannNodeIsRecheck(node))
		return ExecProcNode(node->child);
	if (!node->begun)
		methods->start(node);
	return methods->next == NULL ? ExecProcNode(node->child) :
		methods->next(node);
}

static void
ReScan(CustomScanState *state)
{
	PipeannNode *node = (PipeannNode *) state;
	ListCell   *cell;

	if (state->ss.ps.chgParam != NULL)
		foreach(cell, state->custom_ps)
			UpdateChangedParamSet(lfirst(cell), state->ss.ps.chgParam);
	if (PipeannNodeIsRecheck(node))
		ExecReScan(node->child);
	if (node->slot != NULL)
		ExecClearTuple(node->slot);
	MemoryContextReset(node->memory);
	node->begun = false;
}

static void
End(CustomScanState *state)
{
	PipeannNode *node = (PipeannNode *) state;
	ListCell   *cell;

	if (node->slot != NULL)
		ExecClearTuple(node->slot);
	if (MethodsOf(state)->end != NULL)
		MethodsOf(state)->end(node);
	ExecEndNode(outerPlanState(state));
	foreach(cell, state->custom_ps)
		ExecEndNode(lfirst(cell));
}

Node *
PipeannNodeCreate(CustomScan *plan)
{
	PipeannNode *node =
		palloc0(((const PipeannNodeMethods *) plan->methods)->size);

	NodeSetTag(node, T_CustomScanState);
	node->methods = (CustomExecMethods)
	{
		.CustomName = plan->methods->CustomName,
		.BeginCustomScan = Begin,
		.ExecCustomScan = Exec,
		.EndCustomScan = End,
		.ReScanCustomScan = ReScan
	};
	node->state.methods = &node->methods;
	return (Node *) node;
}

/* A number of the limit, or what there is instead if it is NULL. */
static int64
Evaluate(PipeannNode *node, int number, int64 otherwise)
{
	bool		isnull;
	Datum		value;

	if (number >= list_length(node->limit))
		return otherwise;
	value = ExecEvalExprSwitchContext(list_nth(node->limit, number),
									  node->state.ss.ps.ps_ExprContext,
									  &isnull);
	return isnull ? otherwise : DatumGetInt64(value);
}

/*
 * Rows that the limit wants of the child; PG_INT64_MAX if it wants all, or what it
 * wants or leaves out is more than this or no number, which its own node reports.
 */
int64
PipeannNodeWanted(PipeannNode *node, int64 most)
{
	int64		count = Evaluate(node, 0, PG_INT64_MAX);
	int64		offset = Evaluate(node, 1, 0);

	return count <= 0 || count > most || offset < 0 || offset > most ||
		count > PG_INT64_MAX - offset ? PG_INT64_MAX : count + offset;
}

/* What a scan heeds when it begins; NULL if the node is no scan of ours. */
PipeannScanContext *
PipeannContextOfScan(PlanState *scan)
{
	Relation	index = NULL;	/* not if the plan is only explained */
	ScanKey		key = NULL;
	int			nkeys = 0;

	if (IsA(scan, IndexScanState))
	{
		index = castNode(IndexScanState, scan)->iss_RelationDesc;
		key = castNode(IndexScanState, scan)->iss_OrderByKeys;
		nkeys = castNode(IndexScanState, scan)->iss_NumOrderByKeys;
	}
	else if (IsA(scan, IndexOnlyScanState))
	{
		index = castNode(IndexOnlyScanState, scan)->ioss_RelationDesc;
		key = castNode(IndexOnlyScanState, scan)->ioss_OrderByKeys;
		nkeys = castNode(IndexOnlyScanState, scan)->ioss_NumOrderByKeys;
	}
	if (index == NULL || nkeys == 0 ||
		index->rd_indam->amgettuple != pipeanngettuple)
		return NULL;
	if (PIPEANN_SCAN_CONTEXT(key) == NULL)
		PIPEANN_SCAN_CONTEXT(key) =
			MemoryContextAllocZero(scan->state->es_query_cxt,
								   sizeof(PipeannScanContext));
	return PIPEANN_SCAN_CONTEXT(key);
}
