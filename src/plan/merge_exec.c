/*
 * merge_exec.c
 *		Running a merge of the nearest rows of partitions.
 *
 * At first the partitions are asked one after the other, each for several rows. The
 * horizon is the farthest of the nearest rows, as many as the limit wants. When the
 * searches have been run it is where they expect that to be, and as soon as there
 * are so many rows it is known, and comes nearer with each nearer row: partitions
 * are asked for rows within it only. Then rows are handed up in order, and none
 * beyond the horizon.
 *
 * Only rows count that the partitions' nodes have returned. So what makes rows
 * fall out (conditions, rows that are not visible) only makes the horizon farther.
 *
 * If all of them together have fewer rows than are wanted, each scan begins again,
 * alone, and the merge is an ordinary one. What it was asked for before is
 * forgotten: a search that goes on where it had given all that it had finds nearer
 * rows too late.
 */
#include "postgres.h"

#include <math.h>

#include "access/amapi.h"
#include "executor/executor.h"
#include "executor/execPartition.h"
#include "index/index.h"
#include "miscadmin.h"
#include "plan/merge.h"
#include "scan/scan.h"
#include "utils/float.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* A limit beyond which the merge is run as it was planned. */
#define MOST_WANTED 1000

/* A row of a partition that was not handed up yet. */
typedef struct MergeRow
{
	struct MergeRow *next;
	MinimalTuple tuple;
	double		distance;
	bool		isnull;			/* comes after all distances */
} MergeRow;

typedef enum MergeStatus
{
	MERGE_OPEN,					/* may have rows within the horizon */
	MERGE_STOPPED,				/* has none; may have others */
	MERGE_DONE
} MergeStatus;

typedef struct MergeChild
{
	PlanState  *node;
	const ScanKeyData *keys;	/* of a scan that heeds the horizon, else NULL */
	float		entered;		/* how near its search begins */
	MergeStatus status;
	MergeRow   *first;			/* in order */
	MergeRow   *last;
} MergeChild;

typedef struct MergeState
{
	CustomScanState node;
	MergeAppendState *merge;
	AttrNumber	column;
	ExprState  *count;
	ExprState  *offset;			/* or NULL */
	TupleTableSlot *slot;
	MemoryContext rows;			/* reset by each rescan */
	MemoryContextCallback withdraw;

	bool		begun;
	bool		as_planned;
	int			wanted;
	int			returned;
	int			nnearest;
	double	   *nearest;		/* [wanted], sorted */
	int			nchildren;
	MergeChild *children;
	PipeannHorizon horizon;
} MergeState;

static void
Withdraw(void *arg)
{
	(void) arg;
	PipeannHorizonOffer(NULL, NULL);
}

/* The rows that the limit wants of the merge, or one too many if it is not known. */
static int
CountWanted(const MergeState *state)
{
	ExprContext *context = state->node.ss.ps.ps_ExprContext;
	bool		isnull;
	int64		count;
	int64		offset = 0;

	count = DatumGetInt64(ExecEvalExprSwitchContext(state->count, context,
													&isnull));
	if (isnull || count > MOST_WANTED)
		return MOST_WANTED + 1;
	if (state->offset != NULL)
	{
		offset = DatumGetInt64(ExecEvalExprSwitchContext(state->offset,
														 context, &isnull));
		if (isnull)
			offset = 0;
	}
	if (count <= 0 || offset < 0 || offset > MOST_WANTED)
		return MOST_WANTED + 1;
	return (int) (count + offset);
}

/*
 * An index-only scan holds rows back itself whose distances are only about known
 * (scan/held.c). It would hand them all up at the horizon, and leave out what is
 * nearer and comes later.
 */
static bool
HoldsRowsBack(Relation index)
{
	PipeannMeta meta;

	PipeannMetaRead(index, &meta);
	return meta.layout.storage == PIPEANN_FLOAT2;
}

/* The order-by keys of a scan that can heed the horizon, or NULL. */
static const ScanKeyData *
KeysOf(PlanState *node)
{
	Relation	index = NULL;
	const ScanKeyData *keys = NULL;

	if (IsA(node, IndexScanState))
	{
		index = ((IndexScanState *) node)->iss_RelationDesc;
		keys = ((IndexScanState *) node)->iss_OrderByKeys;
	}
	else if (IsA(node, IndexOnlyScanState))
	{
		index = ((IndexOnlyScanState *) node)->ioss_RelationDesc;
		keys = ((IndexOnlyScanState *) node)->ioss_OrderByKeys;
	}
	if (index == NULL || index->rd_indam->amgettuple != pipeanngettuple ||
		(IsA(node, IndexOnlyScanState) && HoldsRowsBack(index)))
		return NULL;
	return keys;
}

/* Partitions may be ruled out by values that are known only now. */
static const Bitmapset *
ValidChildren(MergeAppendState *merge)
{
	if (merge->ms_valid_subplans == NULL && merge->ms_prune_state != NULL)
		merge->ms_valid_subplans =
#if PG_VERSION_NUM >= 180000
			ExecFindMatchingSubPlans(merge->ms_prune_state, false, NULL);
#else
			ExecFindMatchingSubPlans(merge->ms_prune_state, false);
#endif
	return merge->ms_valid_subplans;
}

static void
FindChildren(MergeState *state)
{
	const Bitmapset *valid = ValidChildren(state->merge);
	int			i = -1;

	state->nchildren = 0;
	state->children = MemoryContextAllocZero(state->rows,
											 mul_size(sizeof(MergeChild),
													  Max(state->merge->ms_nplans, 1)));
	while ((i = bms_next_member(valid, i)) >= 0)
	{
		MergeChild *child = &state->children[state->nchildren++];

		child->node = state->merge->mergeplans[i];
		child->keys = KeysOf(child->node);
	}
}

/* The horizon is where the last of the rows is that are wanted. */
static void
NoteDistance(MergeState *state, double distance)
{
	int			at = state->nnearest;

	if (at == state->wanted)
	{
		if (!float8_lt(distance, state->nearest[at - 1]))
			return;
		at--;
	}
	else
		state->nnearest++;
	for (; at > 0 && float8_lt(distance, state->nearest[at - 1]); at--)
		state->nearest[at] = state->nearest[at - 1];
	state->nearest[at] = distance;
	if (state->nnearest == state->wanted &&
		float8_lt(state->nearest[state->wanted - 1], state->horizon.distance))
		state->horizon.distance = state->nearest[state->wanted - 1];
}

static bool
IsWithin(const MergeState *state, const MergeRow *row)
{
	return !row->isnull && float8_le(row->distance, state->horizon.distance);
}

static bool
IsBefore(const MergeRow *a, const MergeRow *b)
{
	if (a->isnull || b->isnull)
		return b->isnull && !a->isnull;
	return float8_lt(a->distance, b->distance);
}

/*
 * Nearly all rows come last. At the horizon a node of the executor's hands up what
 * it held back, as it takes that for the end; nearer rows may follow.
 */
static void
PutInOrder(MergeChild *child, MergeRow *row)
{
	MergeRow  **place = &child->first;

	if (child->first != NULL && !IsBefore(row, child->last))
		place = &child->last->next;
	while (*place != NULL && !IsBefore(row, *place))
		place = &(*place)->next;
	row->next = *place;
	*place = row;
	if (row->next == NULL)
		child->last = row;
}

static MergeRow *
KeepRow(MergeState *state, MergeChild *child, TupleTableSlot *slot)
{
	MemoryContext former = MemoryContextSwitchTo(state->rows);
	MergeRow   *row = palloc(sizeof(MergeRow));

	row->distance = DatumGetFloat8(slot_getattr(slot, state->column,
												&row->isnull));
	row->tuple = ExecCopySlotMinimalTuple(slot);
	MemoryContextSwitchTo(former);
	PutInOrder(child, row);
	return row;
}

/*
 * Ask a child for a row. The executor's node takes a scan that returned nothing to
 * be at its end, as it may hold rows back until then.
 */
static TupleTableSlot *
Ask(MergeState *state, MergeChild *child)
{
	TupleTableSlot *slot;

	CHECK_FOR_INTERRUPTS();
	if (child->keys != NULL && IsA(child->node, IndexScanState))
		((IndexScanState *) child->node)->iss_ReachedEnd = false;
	PipeannHorizonOffer(&state->horizon, child->keys);
	slot = ExecProcNode(child->node);
	PipeannHorizonOffer(NULL, NULL);
	return slot;
}

/* Keep a row of a child; returns whether it is within the horizon. */
static bool
Take(MergeState *state, MergeChild *child, TupleTableSlot *slot)
{
	MergeRow   *row = KeepRow(state, child, slot);

	if (!row->isnull)
		NoteDistance(state, row->distance);
	return IsWithin(state, row);
}

/* Ask a child for a row; returns whether there is one within the horizon. */
static bool
Pull(MergeState *state, MergeChild *child)
{
	TupleTableSlot *slot = Ask(state, child);

	if (!TupIsNull(slot))
		return Take(state, child, slot);
	child->status = child->keys != NULL ? MERGE_STOPPED : MERGE_DONE;
	return false;
}

static int
CompareEntered(const void *a, const void *b)
{
	return float4_cmp_internal(((const MergeChild *) a)->entered,
							   ((const MergeChild *) b)->entered);
}

/*
 * Let all searches find where they begin before one is run. The nearest go first:
 * what they find is what others need not look for. A scan that heeds no horizon
 * (scan/start.c) does not say where it begins, and may return a row at once.
 */
static void
Enter(MergeState *state)
{
	state->horizon.entering = true;
	for (int i = 0; i < state->nchildren; i++)
	{
		MergeChild *child = &state->children[i];
		TupleTableSlot *slot;

		if (child->keys == NULL)
			continue;
		state->horizon.entered = get_float4_nan();
		slot = Ask(state, child);
		if (!TupIsNull(slot))
			(void) Take(state, child, slot);
		if (isnan(state->horizon.entered))
			child->keys = NULL;
		else
			child->entered = state->horizon.entered;
	}
	state->horizon.entering = false;
	qsort(state->children, state->nchildren, sizeof(MergeChild),
		  CompareEntered);
}

/* Rows that are nearer than what is there already, of one child after the other. */
static void
PullFirst(MergeState *state)
{
	for (int i = 0; i < state->nchildren; i++)
	{
		int			n = 0;

		while (n < state->wanted &&
			   state->children[i].status == MERGE_OPEN &&
			   Pull(state, &state->children[i]))
			n++;
	}
}

/* Ask those that have stopped again, now that the horizon is another one. */
static void
Reopen(MergeState *state)
{
	for (int i = 0; i < state->nchildren; i++)
	{
		if (state->children[i].status == MERGE_STOPPED)
			state->children[i].status = MERGE_OPEN;
	}
}

/*
 * Rows within the horizon that is expected may not be there, as they are dead or do
 * not match, or be farther than was thought.
 */
static void
PullNearest(MergeState *state)
{
	bool		known;

	PullFirst(state);
	if (!state->horizon.expected)
		return;
	state->horizon.expected = false;
	known = state->nnearest == state->wanted;
	if (known && float8_le(state->nearest[state->wanted - 1],
						   state->horizon.distance))
		return;
	state->horizon.distance = known ? state->nearest[state->wanted - 1] :
		get_float8_infinity();
	Reopen(state);
	PullFirst(state);
}

/*
 * Let each scan begin again, alone. Other children have rows in order already, and
 * nothing was handed up yet.
 */
static void
BeginAlone(MergeState *state)
{
	for (int i = 0; i < state->nchildren; i++)
	{
		MergeChild *child = &state->children[i];
		MergeRow   *next;

		if (child->keys == NULL)
			continue;
		for (MergeRow *row = child->first; row != NULL; row = next)
		{
			next = row->next;
			heap_free_minimal_tuple(row->tuple);
			pfree(row);
		}
		child->first = child->last = NULL;
		child->keys = NULL;
		child->status = MERGE_OPEN;
		ExecReScan(child->node);
	}
}

static void
Begin(MergeState *state)
{
	state->begun = true;
	state->returned = 0;
	state->wanted = CountWanted(state);
	state->as_planned = state->wanted > MOST_WANTED;
	if (state->as_planned)
		return;
	state->nnearest = 0;
	state->nearest = MemoryContextAlloc(state->rows,
										mul_size(sizeof(double),
												 state->wanted));
	FindChildren(state);
	PipeannHorizonInit(&state->horizon, state->wanted, state->nchildren);
	Enter(state);
	PullNearest(state);
	if (state->nnearest < state->wanted)
		BeginAlone(state);
}

/* The child whose next row comes first, or NULL. */
static MergeChild *
First(MergeState *state)
{
	MergeChild *first = NULL;

	for (int i = 0; i < state->nchildren; i++)
	{
		MergeChild *child = &state->children[i];

		if (child->first == NULL && child->status == MERGE_OPEN)
			(void) Pull(state, child);
		if (child->first != NULL &&
			(first == NULL || IsBefore(child->first, first->first)))
			first = child;
	}
	return first;
}

static TupleTableSlot *
NextRow(MergeState *state)
{
	MergeChild *child = state->returned < state->wanted ? First(state) : NULL;
	MergeRow   *row;

	if (child == NULL)
		return NULL;
	row = child->first;
	child->first = row->next;
	ExecStoreMinimalTuple(row->tuple, state->slot, true);
	pfree(row);
	state->returned++;
	return state->slot;
}

static void
BeginMerge(CustomScanState *node, EState *estate, int eflags)
{
	MergeState *state = (MergeState *) node;
	CustomScan *plan = (CustomScan *) node->ss.ps.plan;
	MemoryContext query = estate->es_query_cxt;

	outerPlanState(node) = ExecInitNode(outerPlan(plan), estate, eflags);
	state->merge = castNode(MergeAppendState, outerPlanState(node));
	state->column = linitial_int(plan->custom_private);
	state->count = ExecInitExpr(linitial(plan->custom_exprs), &node->ss.ps);
	state->offset = list_length(plan->custom_exprs) < 2 ? NULL :
		ExecInitExpr(lsecond(plan->custom_exprs), &node->ss.ps);
	state->slot = ExecInitExtraTupleSlot(estate,
										 ExecGetResultType(&state->merge->ps),
										 &TTSOpsMinimalTuple);
	state->rows = AllocSetContextCreate(query, "pipeann merge",
										ALLOCSET_SMALL_SIZES);
	state->withdraw.func = Withdraw;
	MemoryContextRegisterResetCallback(query, &state->withdraw);

	/* as planned it returns the slots of its children */
	node->ss.ps.resultopsset = true;
	node->ss.ps.resultopsfixed = false;
}

static TupleTableSlot *
ExecMerge(CustomScanState *node)
{
	MergeState *state = (MergeState *) node;
	Instrumentation *instrument = state->merge->ps.instrument;
	TupleTableSlot *slot;

	if (!state->begun)
		Begin(state);
	if (state->as_planned)
		return ExecProcNode(&state->merge->ps);
	if (instrument != NULL)
		InstrStartNode(instrument);
	slot = NextRow(state);
	if (instrument != NULL)
		InstrStopNode(instrument, slot == NULL ? 0 : 1);
	return slot;
}

static void
EndMerge(CustomScanState *node)
{
	ExecEndNode(outerPlanState(node));
}

/* Children whose parameters have changed are rescanned when they are asked. */
static void
ReScanMerge(CustomScanState *node)
{
	MergeState *state = (MergeState *) node;

	ExecClearTuple(state->slot);
	MemoryContextReset(state->rows);
	state->begun = false;
	ExecReScan(outerPlanState(node));
}

static const CustomExecMethods exec_methods = {
	.CustomName = "PipeannMerge",
	.BeginCustomScan = BeginMerge,
	.ExecCustomScan = ExecMerge,
	.EndCustomScan = EndMerge,
	.ReScanCustomScan = ReScanMerge
};

static Node *
CreateState(CustomScan *plan)
{
	MergeState *state = palloc0(sizeof(MergeState));

	(void) plan;
	NodeSetTag(state, T_CustomScanState);
	state->node.methods = &exec_methods;
	return (Node *) state;
}

const CustomScanMethods PipeannMergeMethods = {
	.CustomName = "PipeannMerge",
	.CreateCustomScanState = CreateState
};
