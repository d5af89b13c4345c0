/*
 * exec.c
 *		Execution of our plan nodes: what all have in common, and the three kinds.
 *
 * A bitmap node searches for the nearest of the rows that other indexes find, a merge
 * node merges the nearest rows of partitions, a fill node fills a limit from scans that
 * may end before it is filled.
 */
#include "postgres.h"

#include <math.h>

#include "access/amapi.h"
#include "access/tableam.h"
#include "base/pause.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_type_d.h"
#include "commands/explain.h"
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#endif
#include "executor/execPartition.h"
#include "executor/executor.h"
#include "lib/binaryheap.h"
#include "miscadmin.h"
#include "nodes/extensible.h"
#include "nodes/nodeFuncs.h"
#include "nodes/tidbitmap.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "plan/plan.h"
#include "scan/scan.h"
#include "utils/float.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/spccache.h"
#include "utils/tuplesort.h"
#include "utils/tuplestore.h"

/* ---------- all nodes ---------- */

/*
 * A node returns its child's rows. It starts when the first one is requested:
 * it tells scans below it what it wants of them, and starts the child, or
 * restarts it. So a rescan does nothing by itself.
 */
typedef struct OwnNode
{
	CustomScanState state;
	const struct NodeMethods *methods;
	PlanState  *child;
	const LimitState *limit;	/* the nearest above; or NULL: all rows are wanted */
	Tuplestorestate *rows;		/* in order, or NULL */
	Tuplesortstate *sorted;		/* rows that did not come in order, or NULL */
	TupleTableSlot *slot;		/* for rows that were kept */
	MemoryContext memory;		/* reset by each rescan */
	bool		begun;			/* since the last rescan */
	bool		started_before; /* the child was started before */
} OwnNode;

/* What differs between kinds of nodes; NULL: nothing. */
typedef struct NodeMethods
{
	CustomScanMethods scan;		/* must be first */
	Size		size;			/* size of its state, which begins with an OwnNode */
	void		(*begin) (OwnNode *node);
	void		(*start) (OwnNode *node);	/* called before its first row */
	TupleTableSlot *(*next) (OwnNode *node);	/* NULL: the child's */
} NodeMethods;

/*
 * Whether EvalPlanQual checks a single row again: then scans return that row,
 * and the node what its child returns.
 */
static bool
IsRecheck(const OwnNode *node)
{
	return node->state.ss.ps.state->es_epq_active != NULL;
}

/* The child is the plan's outer one, or else the first of its own. */
static void
Begin(CustomScanState *state, EState *estate, int eflags)
{
	OwnNode *node = (OwnNode *) state;
	CustomScan *plan = (CustomScan *) state->ss.ps.plan;
	ListCell   *cell;

	outerPlanState(state) = ExecInitNode(outerPlan(plan), estate, eflags);
	foreach(cell, plan->custom_plans)
		state->custom_ps = lappend(state->custom_ps,
								   ExecInitNode(lfirst(cell), estate, eflags));
	node->child = outerPlanState(state) != NULL ? outerPlanState(state) :
		linitial(state->custom_ps);
	node->slot = ExecInitExtraTupleSlot(estate, ExecGetResultType(node->child),
										&TTSOpsMinimalTuple);

	/* it also returns its child's slots */
	state->ss.ps.resultopsset = true;
	state->ss.ps.resultopsfixed = false;
	node->memory = AllocSetContextCreate(estate->es_query_cxt, "pipeann node",
										 ALLOCSET_SMALL_SIZES);
	if (node->methods->begin != NULL)
		node->methods->begin(node);
}

static TupleTableSlot *
Exec(CustomScanState *state)
{
	OwnNode *node = (OwnNode *) state;

	if (IsRecheck(node))
		return ExecProcNode(node->child);
	if (!node->begun)
		node->methods->start(node);
	return node->methods->next == NULL ? ExecProcNode(node->child) :
		node->methods->next(node);
}

/* Begin to sort rows by a column that is a distance. */
static void
BeginSort(OwnNode *node, TupleDesc row, AttrNumber column)
{
	MemoryContext old = MemoryContextSwitchTo(node->state.ss.ps.state->es_query_cxt);

	node->sorted = tuplesort_begin_heap(row, 1, &column, &(Oid) {Float8LessOperator},
										&(Oid) {InvalidOid}, &(bool) {false}, work_mem, NULL,
										TUPLESORT_NONE);
	MemoryContextSwitchTo(old);
}

static void
EndRows(OwnNode *node)
{
	ExecClearTuple(node->slot);
	if (node->rows != NULL)
		tuplestore_end(node->rows);
	if (node->sorted != NULL)
		tuplesort_end(node->sorted);
	node->rows = NULL;
	node->sorted = NULL;
}

static void
ReScan(CustomScanState *state)
{
	OwnNode *node = (OwnNode *) state;
	ListCell   *cell;

	if (state->ss.ps.chgParam != NULL)
		foreach(cell, state->custom_ps)
			UpdateChangedParamSet(lfirst(cell), state->ss.ps.chgParam);
	if (IsRecheck(node))
		ExecReScan(node->child);
	EndRows(node);
	MemoryContextReset(node->memory);
	node->begun = false;
}

static void
End(CustomScanState *state)
{
	OwnNode *node = (OwnNode *) state;
	ListCell   *cell;

	EndRows(node);
	ExecEndNode(outerPlanState(state));
	foreach(cell, state->custom_ps)
		ExecEndNode(lfirst(cell));
}

static void Explain(CustomScanState *state, List *ancestors, ExplainState *es);

static const CustomExecMethods exec_methods = {
	.CustomName = "Pipeann",
	.BeginCustomScan = Begin,
	.ExecCustomScan = Exec,
	.EndCustomScan = End,
	.ReScanCustomScan = ReScan,
	.ExplainCustomScan = Explain
};

static bool
IsOwn(const PlanState *node)
{
	return IsA(node, CustomScanState) &&
		((const CustomScanState *) node)->methods == &exec_methods;
}

static Node *
Create(CustomScan *plan)
{
	const NodeMethods *methods = (const NodeMethods *) plan->methods;
	OwnNode *node = palloc0(methods->size);

	NodeSetTag(node, T_CustomScanState);
	node->state.methods = &exec_methods;
	node->methods = methods;
	return (Node *) node;
}

/* Start the child, or restart it, after scans below were told what is wanted of them. */
static void
BeginChild(OwnNode *node)
{
	if (node->started_before)
		ExecReScan(node->child);
	node->begun = node->started_before = true;
}

/* The context that a scan copies when it begins; NULL if the node is no scan of ours. */
static PipeannScanContext *
ContextOfScan(PlanState *scan)
{
	Relation	index = NULL;	/* NULL if the plan is only explained */
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

/* ---------- limits ---------- */

/*
 * Tell our scans and nodes which limit is the nearest above them. By the time
 * their first row is requested it knows how many it wants. A node that reads
 * all rows first, as a sort does, wants all.
 */
bool
PipeannTellLimit(PlanState *node, void *limit)
{
	PipeannScanContext *context = ContextOfScan(node);

	if (IsOwn(node))
		((OwnNode *) node)->limit = limit;
	else if (context != NULL)
		context->limit = limit;
	if (IsA(node, LimitState))
		limit = node;
	else if (PipeannPlanHas(node->plan, PIPEANN_PLAN_DRAINS))
		limit = NULL;
	return planstate_tree_walker(node, PipeannTellLimit, limit);
}

/* ---------- bitmaps ---------- */

/*
 * The bitmap is made first, and our scan gets its TIDs before it begins, or
 * none if the bitmap is lossy (work_mem). The scan's node checks each row as
 * usual, so the bitmap may contain too many.
 */

#define FIRST_TIDS 1024

typedef struct BitmapState
{
	OwnNode node;			/* its child is the scan */
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
		state->rows = repalloc_huge(state->rows, mul_size(state->size, sizeof(ItemPointerData)));
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
StartBitmap(OwnNode *node)
{
	BitmapState *state = (BitmapState *) node;
	PlanState  *scans = lsecond(node->state.custom_ps);
	TIDBitmap  *bitmap;

	if (node->started_before && scans->chgParam == NULL)
		ExecReScan(scans);
	bitmap = (TIDBitmap *) MultiExecProcNode(scans);
	if (bitmap == NULL || !IsA(bitmap, TIDBitmap))
		elog(ERROR, "unrecognized result from subplan");
	state->size = FIRST_TIDS;
	state->rows = MemoryContextAlloc(node->memory, FIRST_TIDS * sizeof(ItemPointerData));
	state->lossy = false;
	state->tid_filter.n = 0;
	TakeTids(state, bitmap);
	if (PIPEANN_PLANTED("bitmap-rows"))
		state->tid_filter.n /= 2;
	state->tid_filter.tids = state->rows;
	tbm_free(bitmap);
	ContextOfScan(node->child)->tid_filter = state->lossy ? NULL :
		&state->tid_filter;
	BeginChild(node);
}

static const NodeMethods bitmap_methods = {
	.scan = {"PipeannBitmap", Create},
	.size = sizeof(BitmapState),
	.start = StartBitmap
};

const CustomScanMethods *const PipeannBitmapNode = &bitmap_methods.scan;

/* ---------- limits to be filled ---------- */

/*
 * Rows are collected until there are as many as the limit wants. If a scan
 * ends before that, and has left out late rows, the collected rows are
 * dropped, and the scans run again, this time to find everything before they
 * return a row. If a scan has given up, the rows come from the table, sorted.
 */

typedef struct FillState
{
	OwnNode node;
	TupleTableSlot *entry;		/* distance and TID of rows that are sorted */
	ExprState  *most;			/* the bound that a condition sets, or NULL */
	bool		ended;			/* there are no more rows */
	double		bound;			/* rows farther than this are not wanted */
	PipeannFill fill;
} FillState;

/* Begin the scans, again if they were begun before, and keep the rows. */
static void
Collect(FillState *state, int64 wanted)
{
	PlanState  *plan = state->node.child;
	TupleTableSlot *slot;

	state->ended = false;
	BeginChild(&state->node);
	for (int64 n = 0; n < wanted; n++)
	{
		CHECK_FOR_INTERRUPTS();
		slot = ExecProcNode(plan);
		state->ended = TupIsNull(slot);
		if (state->ended)
			return;
		tuplestore_puttupleslot(state->node.rows, slot);
	}
}

/*
 * The distance beyond which no row meets the condition: infinity if there is none or it
 * compares with NaN, and minus infinity if it compares with NULL, which no row meets.
 */
static double
MostDistance(const FillState *state)
{
	bool		isnull;
	double		most = state->most == NULL ? get_float8_infinity() :
		DatumGetFloat8(ExecEvalExprSwitchContext(state->most,
												 state->node.state.ss.ps.ps_ExprContext,
												 &isnull));

	if (state->most != NULL && isnull)
		return -get_float8_infinity();
	return isnan(most) ? get_float8_infinity() : most;
}

/*
 * Rows that a scan looks at before it gives up: at least three times as many as the
 * planner expected, which assumes that rows that meet a condition are spread evenly,
 * and at least as many as cost twice what reading the table does, at a page of the
 * table and one of the index each. 0 for a scan that nothing can replace.
 */
static int64
MostRows(const PlanState *plan, int64 wanted)
{
	const IndexScanState *scan = (const IndexScanState *) plan;
	const FormData_pg_class *table;
	double		page_cost;
	double		next_page_cost;
	QualCost	qual;
	double		expected;
	double		cost;

	if (!IsA(plan, IndexScanState) || plan->qual == NULL || !enable_seqscan ||
		RelationGetIndexPredicate(scan->iss_RelationDesc) != NIL)
		return 0;
	table = scan->ss.ss_currentRelation->rd_rel;
	get_tablespace_page_costs(table->reltablespace, &page_cost, &next_page_cost);
	cost_qual_eval(&qual, plan->plan->qual, NULL);
	qual.per_tuple += cpu_tuple_cost;
	expected = wanted * table->reltuples / Max(plan->plan->plan_rows, 1);
	cost = table->relpages * next_page_cost + table->reltuples * qual.per_tuple;
	return (int64) Min(Max(3 * expected, 2 * cost / (2 * page_cost + qual.per_tuple)),
					   PG_INT32_MAX);
}

/* Sort the rows of a scan's table that meet its conditions, by their distances. */
static void
SortTable(FillState *state)
{
	IndexScanState *scan = castNode(IndexScanState, state->node.child);
	EState	   *estate = scan->ss.ps.state;
	ExprContext *context = scan->ss.ps.ps_ExprContext;
	TupleTableSlot *row = scan->ss.ss_ScanTupleSlot;
	TableScanDesc table;

	if (state->entry == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(estate->es_query_cxt);
		TupleDesc	columns = CreateTemplateTupleDesc(2);

		TupleDescInitEntry(columns, 1, "distance", FLOAT8OID, -1, 0);
		TupleDescInitEntry(columns, 2, "row", TIDOID, -1, 0);
		state->entry = ExecInitExtraTupleSlot(estate, columns, &TTSOpsMinimalTuple);
		MemoryContextSwitchTo(old);
	}
	BeginSort(&state->node, state->entry->tts_tupleDescriptor, 1);
	table = table_beginscan(scan->ss.ss_currentRelation, estate->es_snapshot, 0, NULL);
	while (table_scan_getnextslot(table, ForwardScanDirection, row))
	{
		CHECK_FOR_INTERRUPTS();
		ResetExprContext(context);
		context->ecxt_scantuple = row;
		if (!ExecQual(scan->indexqualorig, context) || !ExecQual(scan->ss.ps.qual, context))
			continue;
		ExecClearTuple(state->entry);
		state->entry->tts_values[0] =
			ExecEvalExprSwitchContext(linitial(scan->indexorderbyorig), context,
									  &state->entry->tts_isnull[0]);
		state->entry->tts_values[1] = PointerGetDatum(&row->tts_tid);
		state->entry->tts_isnull[1] = false;
		ExecStoreVirtualTuple(state->entry);
		tuplesort_puttupleslot(state->node.sorted, state->entry);
	}
	table_endscan(table);
	tuplesort_performsort(state->node.sorted);
}

/* The next row of the sorted table, as the scan would return it; NULL at the end. */
static TupleTableSlot *
NextSorted(FillState *state)
{
	ScanState  *scan = (ScanState *) state->node.child;
	ExprContext *context = scan->ps.ps_ExprContext;
	TupleTableSlot *row = scan->ss_ScanTupleSlot;
	ItemPointer tid;
	bool		isnull;

	if (!tuplesort_gettupleslot(state->node.sorted, true, false, state->entry, NULL))
		return NULL;
	tid = (ItemPointer) DatumGetPointer(slot_getattr(state->entry, 2, &isnull));
	if (!table_tuple_fetch_row_version(scan->ss_currentRelation, tid,
									   scan->ps.state->es_snapshot, row))
		elog(ERROR, "failed to fetch a row that was read before");
	ResetExprContext(context);
	context->ecxt_scantuple = row;
	return scan->ps.ps_ProjInfo == NULL ? row : ExecProject(scan->ps.ps_ProjInfo);
}

static void
StartFill(OwnNode *node)
{
	FillState  *state = (FillState *) node;
	const CustomScan *plan = (const CustomScan *) node->state.ss.ps.plan;
	MemoryContext old = MemoryContextSwitchTo(node->state.ss.ps.state->es_query_cxt);
	int64		wanted = PipeannRowsWanted(node->limit);

	node->rows = tuplestore_begin_heap(false, false, work_mem);
	MemoryContextSwitchTo(old);
	state->fill.most = Min(MostDistance(state), state->bound);
	state->fill.no_numbers = plan->custom_private != NIL &&
		linitial_int(plan->custom_private) != 0;
	state->fill.late = state->fill.gave_up = false;
	state->fill.whole = wanted == PG_INT64_MAX;
	state->fill.most_rows = state->fill.whole ? 0 : MostRows(node->child, wanted);
	Collect(state, wanted);
	state->fill.most_rows = 0;
	if (!state->fill.late && !state->fill.gave_up)
		return;
	tuplestore_clear(node->rows);
	state->fill.whole = true;
	if (state->fill.gave_up)
		SortTable(state);
	else
		Collect(state, wanted);
}

/* Walks nodes as IsFromScans() walks plans (plan.c). A limit further down takes precedence. */
static void
TellOfFill(FillState *state, PlanState *plan)
{
	PipeannScanContext *context = ContextOfScan(plan);

	if (context != NULL && context->fill == NULL)
		context->fill = &state->fill;
	switch (nodeTag(plan))
	{
		case T_SubqueryScanState:
			TellOfFill(state, castNode(SubqueryScanState, plan)->subplan);
			break;
		case T_AppendState:
			for (int i = 0; i < castNode(AppendState, plan)->as_nplans; i++)
				TellOfFill(state, castNode(AppendState, plan)->appendplans[i]);
			break;
		case T_MergeAppendState:
			for (int i = 0; i < castNode(MergeAppendState, plan)->ms_nplans; i++)
				TellOfFill(state, castNode(MergeAppendState, plan)->mergeplans[i]);
			break;
		default:
			if (outerPlanState(plan) != NULL)
				TellOfFill(state, outerPlanState(plan));
			else if (IsA(plan, CustomScanState) && castNode(CustomScanState, plan)->custom_ps != NIL)
				TellOfFill(state, linitial(castNode(CustomScanState, plan)->custom_ps));
	}
}

/*
 * Tell a scan that rows beyond `most` are not wanted, if the nodes above it return its rows
 * one by one, in its order: no other scan is for the same rows and by the same distance. A
 * fill node passes this on; other scans get it from here, or nothing if most is infinite.
 */
void
PipeannBoundScans(PlanState *node, double most)
{
	PipeannScanContext *context;

	while (node != NULL && (IsA(node, LimitState) || IsA(node, ResultState) ||
							IsA(node, SubqueryScanState) || IsOwn(node)))
	{
		if (IsOwn(node) && &((OwnNode *) node)->methods->scan == PipeannFillNode)
		{
			((FillState *) node)->bound = most;
			return;
		}
		node = IsOwn(node) ? ((OwnNode *) node)->child :
			IsA(node, SubqueryScanState) ? castNode(SubqueryScanState, node)->subplan :
			outerPlanState(node);
	}
	context = node == NULL ? NULL : ContextOfScan(node);
	if (context == NULL)
		return;
	context->bounded.most = most;
	context->fill = isinf(most) ? NULL : &context->bounded;
}

static void
BeginFill(OwnNode *node)
{
	FillState  *state = (FillState *) node;
	const CustomScan *plan = (const CustomScan *) node->state.ss.ps.plan;

	state->bound = get_float8_infinity();
	if (plan->custom_exprs != NIL)
		state->most = ExecInitExpr(linitial(plan->custom_exprs), &node->state.ss.ps);
	if (!IsRecheck(node))
		TellOfFill(state, node->child);
}

static TupleTableSlot *
NextOfFill(OwnNode *node)
{
	FillState  *state = (FillState *) node;

	if (node->sorted != NULL)
		return NextSorted(state);
	if (tuplestore_gettupleslot(node->rows, true, false, node->slot))
		return node->slot;
	return state->ended ? NULL : ExecProcNode(node->child);
}

static const NodeMethods fill_methods = {
	.scan = {"PipeannFill", Create},
	.size = sizeof(FillState),
	.begin = BeginFill,
	.start = StartFill,
	.next = NextOfFill
};

const CustomScanMethods *const PipeannFillNode = &fill_methods.scan;

/* Show that a scan gave up in its last run. */
static void
Explain(CustomScanState *state, List *ancestors, ExplainState *es)
{
	if (((OwnNode *) state)->methods == &fill_methods && ((OwnNode *) state)->sorted != NULL)
		ExplainPropertyText("Ended By", "Seq Scan and Sort", es);
}

/* ---------- merges of partitions ---------- */

/*
 * The partitions are read one after the other, beginning with the one whose search begins
 * nearest, for rows within the distance bound: if the limit wants N rows, the distance of
 * the N-th nearest that partitions have returned. It only shrinks, so rows that a partition
 * has not returned are not wanted (src/README, "partitions in one server").
 */

/* With a larger limit the merge runs as it was planned. */
#define MOST_WANTED 1000

typedef struct MergeChild
{
	PlanState  *node;
	float		entered;		/* how near its search begins */
} MergeChild;

typedef struct MergeState
{
	OwnNode node;			/* its child is the merge as it was planned */
	AttrNumber	column;
	bool		as_planned;
	int			wanted;
	binaryheap *nearest;		/* distances, the farthest first */
	int			nchildren;
	MergeChild *children;
	PipeannDistanceBound bound;
} MergeState;

/* Give this bound, or none, to scans that begin from now on. */
static void
TellOfBound(const MergeState *state, PipeannDistanceBound *bound)
{
	const MergeAppendState *merge = castNode(MergeAppendState, state->node.child);

	for (int i = 0; i < merge->ms_nplans; i++)
	{
		PipeannScanContext *context = ContextOfScan(merge->mergeplans[i]);

		if (context != NULL)
			context->bound = bound;
	}
}

/* Find the partitions that run-time pruning leaves, if any; the merge keeps them for later runs. */
static void
FindChildren(MergeState *state)
{
	MergeAppendState *merge = castNode(MergeAppendState, state->node.child);
	int			i = -1;

	if (merge->ms_nplans > 0 && merge->ms_valid_subplans == NULL &&
		merge->ms_prune_state != NULL)
		merge->ms_valid_subplans =
#if PG_VERSION_NUM >= 180000
			ExecFindMatchingSubPlans(merge->ms_prune_state, false, NULL);
#else
			ExecFindMatchingSubPlans(merge->ms_prune_state, false);
#endif
	state->nchildren = 0;
	state->children = MemoryContextAllocZero(state->node.memory,
											 sizeof(MergeChild) * Max(merge->ms_nplans, 1));
	while ((i = bms_next_member(merge->ms_valid_subplans, i)) >= 0)
		state->children[state->nchildren++].node = merge->mergeplans[i];
}

static int
CompareDistances(Datum a, Datum b, void *arg)
{
	return float8_cmp_internal(DatumGetFloat8(a), DatumGetFloat8(b));
}

/* Note a row's distance. The distance bound is that of the last wanted row. */
static void
NoteDistance(MergeState *state, Datum distance)
{
	binaryheap *nearest = state->nearest;

	if (nearest->bh_size < state->wanted)
		binaryheap_add(nearest, distance);
	else if (CompareDistances(distance, binaryheap_first(nearest), NULL) < 0)
		binaryheap_replace_first(nearest, distance);
	if (nearest->bh_size == state->wanted)	/* NaN sets no bound */
		state->bound.distance = Min(DatumGetFloat8(binaryheap_first(nearest)), state->bound.distance);
}

/*
 * Ask a child for a row. The executor's node assumes that a scan that returned
 * nothing has ended; one that stopped at the distance bound has not.
 */
static TupleTableSlot *
NextChildRow(const MergeChild *child)
{
	CHECK_FOR_INTERRUPTS();
	if (IsA(child->node, IndexScanState))
		((IndexScanState *) child->node)->iss_ReachedEnd = false;
	return ExecProcNode(child->node);
}

/* Keep a row of a child; returns whether others of it may be within the distance bound. */
static bool
Take(MergeState *state, TupleTableSlot *slot)
{
	Datum		distance;
	bool		isnull;

	if (TupIsNull(slot))
		return false;
	tuplesort_puttupleslot(state->node.sorted, slot);
	distance = slot_getattr(slot, state->column, &isnull);
	if (!isnull)
		NoteDistance(state, distance);
	/* NaN and NULL come last, but are wanted until there are enough rows */
	return !PIPEANN_PLANTED("merge-bound") && (isinf(state->bound.distance) ||
		(!isnull && float8_le(DatumGetFloat8(distance), state->bound.distance)));
}

static int
CompareEntered(const void *a, const void *b)
{
	return float4_cmp_internal(((const MergeChild *) a)->entered,
							   ((const MergeChild *) b)->entered);
}

/* Let all searches find where they begin, and request their first pages at once. */
static void
Enter(MergeState *state)
{
	state->bound.entering = true;
	for (int i = 0; i < state->nchildren; i++)
	{
		MergeChild *child = &state->children[i];

		if (ContextOfScan(child->node) == NULL)
			continue;
		state->bound.entered = 0;
		(void) Take(state, NextChildRow(child));
		child->entered = state->bound.entered;
	}
	state->bound.entering = false;
	qsort(state->children, state->nchildren, sizeof(MergeChild),
		  CompareEntered);
}

static void
StartMerge(OwnNode *node)
{
	MergeState *state = (MergeState *) node;
	int64		wanted = PipeannRowsWanted(node->limit);
	MemoryContext old;

	state->as_planned = wanted > MOST_WANTED;
	TellOfBound(state, state->as_planned ? NULL : &state->bound);
	BeginChild(node);
	if (state->as_planned)
		return;
	state->column = linitial_int(((CustomScan *) node->state.ss.ps.plan)->custom_private);
	state->wanted = (int) wanted;
	old = MemoryContextSwitchTo(node->memory);
	state->nearest = binaryheap_allocate(state->wanted, CompareDistances, NULL);
	MemoryContextSwitchTo(old);
	FindChildren(state);
	BeginSort(node, ExecGetResultType(node->child), state->column);
	state->bound = (PipeannDistanceBound) {.distance = get_float8_infinity()};
	Enter(state);
	for (int i = 0; i < state->nchildren; i++)
		for (int n = 0; n < state->wanted && Take(state, NextChildRow(&state->children[i])); n++)
			;
	tuplesort_performsort(node->sorted);
}

static TupleTableSlot *
NextOfMerge(OwnNode *node)
{
	MergeState *state = (MergeState *) node;
	PlanState  *merge = node->child;
	bool		found;

	if (state->as_planned)
		return ExecProcNode(merge);
	if (merge->instrument != NULL)
		InstrStartNode(merge->instrument);
	found = tuplesort_gettupleslot(node->sorted, true, false, node->slot, NULL);
	if (merge->instrument != NULL)
		InstrStopNode(merge->instrument, found);
	return found ? node->slot : NULL;
}

static const NodeMethods merge_methods = {
	.scan = {"PipeannMerge", Create},
	.size = sizeof(MergeState),
	.start = StartMerge,
	.next = NextOfMerge
};

const CustomScanMethods *const PipeannMergeNode = &merge_methods.scan;
