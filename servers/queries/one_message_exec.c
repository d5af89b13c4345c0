/*
 * one_message_exec.c
 *		How other servers are asked with one message each.
 *
 * All messages are sent before the first answer is waited for. While servers work
 * partitions of this one are read. The nodes that scan other servers are as the
 * executor makes them to explain them, when their wrapper does nothing: their rows
 * come from here, so that conditions and columns are theirs.
 *
 * A server's answer is of a moment of its own, in a transaction of its own. That is
 * what a statement sees that stands alone: nothing of its transaction can have
 * changed rows there, and nothing else of it has to see the same rows. In all other
 * cases the Append is run as it was planned.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/executor.h"
#include "foreign/fdwapi.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "queries/queries.h"
#include "remote/remote.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* A partition. */
typedef struct Part
{
	PlanState  *scan;
	PipeannRemoteQuery *query;	/* NULL if it is of this server */
	TupleDesc	columns;
	List	   *retrieved;		/* their numbers, in the order of the answer */
	FmgrInfo   *input;			/* functions that read them */
	Oid		   *element;
	List	   *values;			/* that are sent along */
	FmgrInfo   *output;			/* functions that write these */
	bool		done;
} Part;

typedef struct OneMessageState
{
	CustomScanState node;
	PlanState  *as_planned;		/* NULL if servers are asked from here */
	Part	   *parts;
	int			nparts;
	int			current;
	bool		sent;
	MemoryContext sending;		/* values that are sent */
} OneMessageState;

/*
 * Whether a function or a command runs the statement: it says so in errors. What
 * has values for parameters from the client says these.
 */
static bool
IsRunByAnother(void)
{
	return error_context_stack != NULL &&
		(error_context_stack->callback != ParamsErrorCallback ||
		 error_context_stack->previous != NULL);
}

/* Whether nothing else belongs to the transaction. */
static bool
StandsAlone(void)
{
	return !IsTransactionBlock() && GetCurrentTransactionNestLevel() == 1 &&
		(MyXactFlags & XACT_FLAGS_PIPELINING) == 0 &&
		!IsolationUsesXactSnapshot() && !IsInParallelMode() &&
		!IsRunByAnother() &&
		GetCurrentCommandId(false) == FirstCommandId;
}

static Oid
UserOf(const ForeignScan *scan, EState *estate)
{
#if PG_VERSION_NUM >= 160000
	Oid			user = scan->checkAsUser;
#else
	Oid			user = exec_rt_fetch(scan->scan.scanrelid, estate)->checkAsUser;
#endif

	return OidIsValid(user) ? user : GetUserId();
}

/* Where nothing is read, and nothing sent. */
static bool
BeginQuery(Part *part, const ForeignScan *scan, EState *estate)
{
	const char *sql = strVal(list_nth(scan->fdw_private, PIPEANN_FDW_SQL));

	part->query = PipeannRemoteBegin(UserOf(scan, estate), scan->fs_server, sql);
	return part->query != NULL;
}

/* How values become text, and text columns. */
static void
PrepareTexts(Part *part, const ForeignScan *scan)
{
	ListCell   *cell;
	Oid			function;
	bool		varlena;
	int			n = 0;

	part->columns = ((ScanState *) part->scan)->ss_ScanTupleSlot->tts_tupleDescriptor;
	part->retrieved = list_nth(scan->fdw_private, PIPEANN_FDW_COLUMNS);
	part->input = palloc0(part->columns->natts * sizeof(FmgrInfo));
	part->element = palloc0(part->columns->natts * sizeof(Oid));
	foreach(cell, part->retrieved)
	{
		int			i = lfirst_int(cell) - 1;

		getTypeInputInfo(TupleDescAttr(part->columns, i)->atttypid, &function,
						 &part->element[i]);
		fmgr_info(function, &part->input[i]);
	}
	part->values = ExecInitExprList(scan->fdw_exprs, part->scan);
	part->output = palloc0((list_length(part->values) + 1) * sizeof(FmgrInfo));
	foreach(cell, scan->fdw_exprs)
	{
		getTypeOutputInfo(exprType(lfirst(cell)), &function, &varlena);
		fmgr_info(function, &part->output[n++]);
	}
}

/* The text of values depends on settings. */
static int
SetForText(void)
{
	int			level = NewGUCNestLevel();

	(void) set_config_option("datestyle", "ISO", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	(void) set_config_option("intervalstyle", "postgres", PGC_USERSET,
							 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	if (extra_float_digits < 3)
		(void) set_config_option("extra_float_digits", "3", PGC_USERSET,
								 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	(void) set_config_option("search_path", "pg_catalog", PGC_USERSET,
							 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	return level;
}

static void
Send(Part *part)
{
	int			n = list_length(part->values);
	const char **texts = palloc0((n + 1) * sizeof(char *));
	int			level = n > 0 ? SetForText() : 0;
	int			i = 0;
	ListCell   *cell;

	foreach(cell, part->values)
	{
		bool		is_null;
		Datum		value = ExecEvalExpr((ExprState *) lfirst(cell),
										 part->scan->ps_ExprContext, &is_null);

		texts[i] = is_null ? NULL : OutputFunctionCall(&part->output[i], value);
		i++;
	}
	if (n > 0)
		AtEOXact_GUC(false, level);
	PipeannRemoteSend(part->query, n, texts);
}

static void
SendAll(OneMessageState *state)
{
	MemoryContext former = MemoryContextSwitchTo(state->sending);

	for (int i = 0; i < state->nparts; i++)
		if (state->parts[i].query != NULL)
			Send(&state->parts[i]);
	MemoryContextSwitchTo(former);
	state->sent = true;
}

/* Which column could not be read. */
typedef struct Reading
{
	const Part *part;
	int			column;
} Reading;

static void
SayColumn(void *arg)
{
	const Reading *reading = arg;
	const TupleDesc columns = reading->part->columns;
	const ScanState *scan = (const ScanState *) reading->part->scan;

	errcontext("column \"%s\" of foreign table \"%s\"",
			   NameStr(TupleDescAttr(columns, reading->column)->attname),
			   RelationGetRelationName(scan->ss_currentRelation));
}

static HeapTuple
ReadRow(const Part *part, Datum *values, bool *nulls)
{
	Reading		reading = {.part = part};
	ErrorContextCallback callback = {
		.callback = SayColumn, .arg = &reading, .previous = error_context_stack
	};
	int			number = 0;
	ListCell   *cell;

	if (list_length(part->retrieved) > 0 &&
		list_length(part->retrieved) != PipeannRemoteColumns(part->query))
		elog(ERROR, "remote query result does not match the foreign table");
	memset(nulls, true, part->columns->natts * sizeof(bool));
	error_context_stack = &callback;
	foreach(cell, part->retrieved)
	{
		int			i = reading.column = lfirst_int(cell) - 1;
		char	   *text = PipeannRemoteValue(part->query, number++);

		/* a domain may not allow null */
		values[i] = InputFunctionCall(&part->input[i], text, part->element[i],
									  TupleDescAttr(part->columns, i)->atttypmod);
		nulls[i] = text == NULL;
	}
	error_context_stack = callback.previous;
	return heap_form_tuple(part->columns, values, nulls);
}

static TupleTableSlot *
NextForeign(ScanState *scan)
{
	const Part *part = ((ForeignScanState *) scan)->fdw_state;
	TupleTableSlot *slot = scan->ss_ScanTupleSlot;
	MemoryContext former;
	HeapTuple	row;

	if (!PipeannRemoteNext(part->query))
		return ExecClearTuple(slot);
	former = MemoryContextSwitchTo(scan->ps.ps_ExprContext->ecxt_per_tuple_memory);
	row = ReadRow(part, palloc(part->columns->natts * sizeof(Datum)),
				  palloc(part->columns->natts * sizeof(bool)));
	MemoryContextSwitchTo(former);
	ExecStoreHeapTuple(heap_copytuple(row), slot, true);
	slot->tts_tableOid = RelationGetRelid(scan->ss_currentRelation);
	return slot;
}

/* Conditions that the server was sent hold. */
static bool
Recheck(ScanState *scan, TupleTableSlot *slot)
{
	return true;
}

static TupleTableSlot *
ExecForeign(PlanState *node)
{
	return ExecScan((ScanState *) node, NextForeign, Recheck);
}

static void
BeginForeign(Part *part, const ForeignScan *scan)
{
	ForeignScanState *node = (ForeignScanState *) part->scan;

	PrepareTexts(part, scan);
	node->fdw_state = part;
	ExecSetExecProcNode(&node->ss.ps, ExecForeign);
}

/* Connections for all servers; false if one has to be postgres_fdw's. */
static bool
BeginQueries(OneMessageState *state, const List *plans, EState *estate)
{
	ListCell   *cell;

	foreach(cell, plans)
	{
		Part	   *part = &state->parts[foreach_current_index(cell)];

		if (!PipeannIsSendable(lfirst(cell), estate->es_range_table) ||
			BeginQuery(part, lfirst(cell), estate))
			continue;
		for (part--; part >= state->parts; part--)
			if (part->query != NULL)
				PipeannRemoteEnd(part->query);
		return false;
	}
	return true;
}

static void
BeginParts(OneMessageState *state, const List *plans, EState *estate,
		   int eflags)
{
	ListCell   *cell;

	foreach(cell, plans)
	{
		Plan	   *plan = lfirst(cell);
		Part	   *part = &state->parts[foreach_current_index(cell)];
		bool		foreign = PipeannIsSendable(plan, estate->es_range_table);

		part->scan = ExecInitNode(plan, estate,
								  eflags | (foreign ? EXEC_FLAG_EXPLAIN_ONLY : 0));
		if (part->query != NULL)
			BeginForeign(part, (const ForeignScan *) plan);
		state->node.custom_ps = lappend(state->node.custom_ps, part->scan);
	}
}

static void
BeginOneMessage(CustomScanState *node, EState *estate, int eflags)
{
	OneMessageState *state = (OneMessageState *) node;
	Append	   *append = (Append *) outerPlan(node->ss.ps.plan);
	bool		explain = (eflags & EXEC_FLAG_EXPLAIN_ONLY) != 0;

	state->nparts = list_length(append->appendplans);
	state->parts = palloc0(state->nparts * sizeof(Part));
	state->sending = AllocSetContextCreate(estate->es_query_cxt,
										   "pipeann one message",
										   ALLOCSET_SMALL_SIZES);
	if (StandsAlone() &&
		(explain || BeginQueries(state, append->appendplans, estate)))
		BeginParts(state, append->appendplans, estate, eflags);
	else
	{
		state->as_planned = ExecInitNode(&append->plan, estate, eflags);
		node->custom_ps = list_make1(state->as_planned);
	}

	/* it returns the slots of its children */
	node->ss.ps.resultopsset = true;
	node->ss.ps.resultopsfixed = false;
}

/* Partitions of this server first: meanwhile others work. */
static Part *
NextPart(OneMessageState *state)
{
	Part	   *next = NULL;

	for (int i = 0; i < state->nparts; i++)
	{
		Part	   *part = &state->parts[i];

		if (part->done)
			continue;
		if (part->query == NULL)
			return part;
		if (next == NULL)
			next = part;
	}
	return next;
}

static TupleTableSlot *
ExecOneMessage(CustomScanState *node)
{
	OneMessageState *state = (OneMessageState *) node;
	Part	   *part;

	if (state->as_planned != NULL)
		return ExecProcNode(state->as_planned);
	if (!state->sent)
		SendAll(state);
	while ((part = NextPart(state)) != NULL)
	{
		TupleTableSlot *slot = ExecProcNode(part->scan);

		if (!TupIsNull(slot))
			return slot;
		part->done = true;
	}
	return NULL;
}

static void
EndOneMessage(CustomScanState *node)
{
	OneMessageState *state = (OneMessageState *) node;

	if (state->as_planned != NULL)
	{
		ExecEndNode(state->as_planned);
		return;
	}
	for (int i = 0; i < state->nparts; i++)
	{
		Part	   *part = &state->parts[i];

		if (part->query != NULL)
		{
			PipeannRemoteEnd(part->query);
			((ForeignScanState *) part->scan)->fdw_state = NULL;
		}
		ExecEndNode(part->scan);
	}
}

static void
ReScanPart(const OneMessageState *state, Part *part)
{
	part->done = false;
	if (state->node.ss.ps.chgParam != NULL)
		UpdateChangedParamSet(part->scan, state->node.ss.ps.chgParam);
	if (part->query == NULL)
	{
		if (part->scan->chgParam == NULL)
			ExecReScan(part->scan);
		return;
	}
	/* its wrapper does not know of it */
	PipeannRemoteReset(part->query);
	bms_free(part->scan->chgParam);
	part->scan->chgParam = NULL;
	ReScanExprContext(part->scan->ps_ExprContext);
	ExecScanReScan((ScanState *) part->scan);
}

static void
ReScanOneMessage(CustomScanState *node)
{
	OneMessageState *state = (OneMessageState *) node;

	if (state->as_planned != NULL)
	{
		if (node->ss.ps.chgParam != NULL)
			UpdateChangedParamSet(state->as_planned, node->ss.ps.chgParam);
		if (state->as_planned->chgParam == NULL)
			ExecReScan(state->as_planned);
		return;
	}
	for (int i = 0; i < state->nparts; i++)
		ReScanPart(state, &state->parts[i]);
	MemoryContextReset(state->sending);
	state->sent = false;
}

static const CustomExecMethods exec_methods = {
	.CustomName = "PipeannOneMessage",
	.BeginCustomScan = BeginOneMessage,
	.ExecCustomScan = ExecOneMessage,
	.EndCustomScan = EndOneMessage,
	.ReScanCustomScan = ReScanOneMessage
};

static Node *
CreateState(CustomScan *plan)
{
	OneMessageState *state = palloc0(sizeof(OneMessageState));

	(void) plan;
	NodeSetTag(state, T_CustomScanState);
	state->node.methods = &exec_methods;
	return (Node *) state;
}

const CustomScanMethods PipeannOneMessageMethods = {
	.CustomName = "PipeannOneMessage",
	.CreateCustomScanState = CreateState
};
