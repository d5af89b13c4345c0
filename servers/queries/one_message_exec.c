/*
 * one_message_exec.c
 *		Asking other servers with one message each.
 *
 * All messages are sent before the first answer is waited for. While servers work,
 * partitions on this one are read. The nodes that scan other servers are initialised
 * as for EXPLAIN, so that their wrapper does nothing: rows come from here,
 * conditions and columns are theirs.
 *
 * A server's answer is from a transaction of its own. Only a statement that stands
 * alone would see the same from postgres_fdw: nothing of its transaction can have
 * changed rows there, and nothing else in it has to see the same rows. In all other
 * cases postgres_fdw asks: the Append is run as it was planned; or, if not all parts
 * are wanted as rows are divided by cells, its scans are run one after the other.
 *
 * postgres_fdw begins scans when the executor begins the statement. One that takes a
 * turn begins later: by then another user may fetch from a cursor, or do so in a
 * subtransaction, at whose end the server's cursor would be closed.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type_d.h"
#include "executor/executor.h"
#include "foreign/fdwapi.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "queries/one_message.h"
#include "queries/queries.h"
#include "remote/remote.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* Up to this many rows are read as one result; the sort above has room for them. */
#define MOST_AT_ONCE	1000

/* A partition. */
typedef struct Part
{
	PlanState  *scan;
	PipeannRemoteQuery *query;	/* NULL if it is on this server, or takes turns */
	bool		takes_turns;	/* its server is asked by its wrapper, in a wave of its own */
	TupleDesc	columns;
	List	   *retrieved;		/* column numbers, in the order of the answer */
	FmgrInfo   *input;			/* input functions of these columns */
	Oid		   *element;
	List	   *values;			/* parameters that are sent */
	FmgrInfo   *output;			/* output functions of these */
	PipeannMessage message;
	bool		asked;
	bool		done;
	bool		rescan;			/* when it is asked it has to be scanned again */
} Part;

typedef struct OneMessageState
{
	CustomScanState node;
	PipeannOneMessage plan;
	PlanState  *as_planned;		/* NULL if servers are asked from here */
	Part	   *parts;
	int			nparts;
	ExprState  *limit;
	PipeannWaves *waves;		/* NULL if all are asked at once */
	bool		in_turn;		/* servers are asked by their wrapper */
	int			eflags;
	Oid			user;			/* the user who began the statement */
	int			security;
	bool		begun;
	MemoryContext sending;		/* values that are sent */
} OneMessageState;

/*
 * Whether a function or a command runs the statement, which error context callbacks show.
 * A callback for the client's own parameters does not count.
 */
static bool
IsRunByAnother(void)
{
	return error_context_stack != NULL &&
		(error_context_stack->callback != ParamsErrorCallback ||
		 error_context_stack->previous != NULL);
}

/* Whether the statement is all of its transaction. */
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

/*
 * Prepare to send a value: vectors as bytes, which do not depend on the server, other
 * values as text.
 */
static void
PrepareValue(Part *part, int n, Oid type, Oid vector)
{
	Oid			function;
	bool		varlena;

	part->message.formats[n] = type == vector;
	if (type == vector)
		getTypeBinaryOutputInfo(type, &function, &varlena);
	else
		getTypeOutputInfo(type, &function, &varlena);
	fmgr_info(function, &part->output[n]);
}

static void
PrepareValues(Part *part, const ForeignScan *scan, Oid vector)
{
	PipeannMessage *message = &part->message;
	int			n = list_length(scan->fdw_exprs);
	ListCell   *cell;

	/* a text without values has the vector in it, so it will not be sent again */
	message->comes_again = n > 0;
	/* there may be one more: the largest distance */
	message->values = palloc0((n + 1) * sizeof(char *));
	message->lengths = palloc0((n + 1) * sizeof(int));
	message->formats = palloc0((n + 1) * sizeof(int));
	part->values = ExecInitExprList(scan->fdw_exprs, part->scan);
	part->output = palloc0((n + 1) * sizeof(FmgrInfo));
	foreach(cell, scan->fdw_exprs)
		PrepareValue(part, foreach_current_index(cell), exprType(lfirst(cell)),
					 vector);
}

/* Prepare to read the columns of the answer. */
static void
PrepareColumns(Part *part, const ForeignScan *scan)
{
	ListCell   *cell;
	Oid			function;

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
}

/* Set what the text of values depends on. */
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

static bool
SendsText(const Part *part)
{
	for (int i = 0; i < list_length(part->values); i++)
		if (part->message.formats[i] == 0)
			return true;
	return false;
}

static void
WriteValue(Part *part, int i, Datum value)
{
	PipeannMessage *message = &part->message;
	bytea	   *bytes;

	if (message->formats[i] == 0)
	{
		message->values[i] = OutputFunctionCall(&part->output[i], value);
		return;
	}
	bytes = SendFunctionCall(&part->output[i], value);
	message->values[i] = VARDATA(bytes);
	message->lengths[i] = VARSIZE(bytes) - VARHDRSZ;
}

static void
WriteValues(Part *part)
{
	bool		text = SendsText(part);
	int			level = text ? SetForText() : 0;
	ListCell   *cell;

	foreach(cell, part->values)
	{
		bool		is_null;
		Datum		value = ExecEvalExpr((ExprState *) lfirst(cell),
										 part->scan->ps_ExprContext, &is_null);

		if (is_null)
			part->message.values[foreach_current_index(cell)] = NULL;
		else
			WriteValue(part, foreach_current_index(cell), value);
	}
	if (text)
		AtEOXact_GUC(false, level);
}

/* The number of rows wanted of each part; -1 if that is not known. */
static int64
RowsWanted(OneMessageState *state)
{
	const Expr *expr = state->plan.limit;
	Datum		value;
	bool		is_null;

	if (state->limit == NULL)
		return -1;
	value = ExecEvalExpr(state->limit, state->node.ss.ps.ps_ExprContext, &is_null);
	if (is_null)
		return -1;
	switch (exprType((const Node *) expr))
	{
		case INT4OID:
			return DatumGetInt32(value);
		case INT8OID:
			return DatumGetInt64(value);
		default:
			return -1;
	}
}

/* Ask a part for its rows, or for those up to a distance. */
static void
Send(OneMessageState *state, int number, const double *bound)
{
	Part	   *part = &state->parts[number];
	ForeignScan *scan = list_nth(state->plan.scans, number);
	PipeannMessage *message = &part->message;

	WriteValues(part);
	message->sql = strVal(list_nth(scan->fdw_private, PIPEANN_FDW_SQL));
	message->nvalues = list_length(part->values);
	if (bound != NULL)
	{
		message->sql = strVal(list_nth(state->plan.bounded, number));
		message->formats[message->nvalues] = 0;
		message->values[message->nvalues++] = psprintf("%.17g", *bound);
	}
	PipeannRemoteSend(part->query, message);
}

/* Have a part's wrapper ask its server, perhaps not for the first time. */
static void
TakeTurn(OneMessageState *state, Part *part, const double *bound)
{
	ForeignScanState *scan = (ForeignScanState *) part->scan;
	EState	   *estate = scan->ss.ps.state;
	ParamExecData *param = &estate->es_param_exec_vals[state->plan.bound];
	MemoryContext former;
	Oid			user;
	int			security;

	param->execPlan = NULL;
	param->isnull = bound == NULL;
	param->value = bound == NULL ? (Datum) 0 : Float8GetDatum(*bound);
	if (scan->fdw_state != NULL)
		return;
	former = MemoryContextSwitchTo(estate->es_query_cxt);
	/* an error ends the (sub)transaction, which gives them back, too */
	GetUserIdAndSecContext(&user, &security);
	SetUserIdAndSecContext(state->user, state->security);
	scan->fdwroutine->BeginForeignScan(scan, state->eflags);
	SetUserIdAndSecContext(user, security);
	MemoryContextSwitchTo(former);
}

/*
 * A part has no more rows: close its cursor, which might belong to a subtransaction. A
 * rescan with changed parameters does that.
 */
static void
EndTurn(const OneMessageState *state, Part *part)
{
	part->scan->chgParam = bms_add_member(part->scan->chgParam, state->plan.bound);
	ExecReScan(part->scan);
}

/*
 * Ask a part on this server. A rescan begins now, as a scan obeys only what it was told
 * before.
 */
static void
AskHere(Part *part, const double *bound, bool waves)
{
	if (waves)
		pipeann_core->bound_scans(part->scan, bound == NULL ?
								  get_float8_infinity() : *bound);
	if (part->rescan && part->scan->chgParam == NULL)
	{
		MemoryContext former = MemoryContextSwitchTo(part->scan->state->es_query_cxt);

		ExecReScan(part->scan);
		MemoryContextSwitchTo(former);
	}
	part->rescan = false;
}

/* Ask the next parts; false if there are none. */
static bool
AskNext(OneMessageState *state)
{
	MemoryContext former = MemoryContextSwitchTo(state->sending);
	Bitmapset  *next = NULL;
	double		distance;
	const double *bound = state->waves != NULL &&
		PipeannWavesBound(state->waves, &distance) ? &distance : NULL;

	if (state->waves != NULL)
		next = PipeannWavesNext(state->waves);
	else if (!state->parts[0].asked)
		next = bms_add_range(NULL, 0, state->nparts - 1);
	for (int i = 0; i < state->nparts; i++)
	{
		if (!bms_is_member(i, next))
			continue;
		state->parts[i].asked = true;
		if (state->parts[i].query != NULL)
			Send(state, i, bound);
		else if (state->parts[i].takes_turns)
			TakeTurn(state, &state->parts[i], bound);
		else
			AskHere(&state->parts[i], bound, state->waves != NULL);
	}
	MemoryContextSwitchTo(former);
	return next != NULL;
}

static void
Begin(OneMessageState *state)
{
	MemoryContext former = MemoryContextSwitchTo(state->sending);
	int64		limit = RowsWanted(state);

	for (int i = 0; i < state->nparts; i++)
		state->parts[i].message.at_once = limit >= 0 && limit <= MOST_AT_ONCE;
	if (state->waves != NULL)
		PipeannWavesStart(state->waves, limit);
	state->begun = true;
	MemoryContextSwitchTo(former);
}

/* For errors: the column that could not be read. */
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

static void
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
}

static TupleTableSlot *
NextForeign(ScanState *scan)
{
	const Part *part = ((ForeignScanState *) scan)->fdw_state;
	TupleTableSlot *slot = scan->ss_ScanTupleSlot;
	MemoryContext former;
	Datum	   *values;
	bool	   *nulls;

	if (!PipeannRemoteNext(part->query))
		return ExecClearTuple(slot);
	former = MemoryContextSwitchTo(scan->ps.ps_ExprContext->ecxt_per_tuple_memory);
	values = palloc(part->columns->natts * sizeof(Datum));
	nulls = palloc(part->columns->natts * sizeof(bool));
	ReadRow(part, values, nulls);
	MemoryContextSwitchTo(former);
	ExecStoreHeapTuple(heap_form_tuple(part->columns, values, nulls), slot, true);
	slot->tts_tableOid = RelationGetRelid(scan->ss_currentRelation);
	return slot;
}

/* Conditions were checked by the server. */
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
BeginForeign(Part *part, const ForeignScan *scan, Oid vector)
{
	ForeignScanState *node = (ForeignScanState *) part->scan;

	PrepareValues(part, scan, vector);
	PrepareColumns(part, scan);
	node->fdw_state = part;
	ExecSetExecProcNode(&node->ss.ps, ExecForeign);
}

/* Get connections to all servers; false if postgres_fdw has to make one of them. */
static bool
BeginQueries(OneMessageState *state, EState *estate)
{
	for (int i = 0; i < state->nparts; i++)
	{
		const ForeignScan *scan = list_nth(state->plan.scans, i);

		if (scan == NULL)
			continue;
		state->parts[i].query = PipeannRemoteBegin(UserOf(scan, estate),
												   scan->fs_server,
												   state->plan.cells != NULL);
		if (state->parts[i].query != NULL)
			continue;
		for (i--; i >= 0; i--)
			if (state->parts[i].query != NULL)
			{
				PipeannRemoteEnd(state->parts[i].query);
				state->parts[i].query = NULL;
			}
		return false;
	}
	return true;
}

static void
BeginParts(OneMessageState *state, const List *plans, EState *estate,
		   int eflags)
{
	Oid			vector = state->plan.distance == NULL ? InvalidOid :
		exprType(linitial(state->plan.distance->args));

	for (int i = 0; i < state->nparts; i++)
	{
		ForeignScan *scan = list_nth(state->in_turn ? state->plan.turns :
									 state->plan.scans, i);
		Part	   *part = &state->parts[i];

		part->takes_turns = state->in_turn && scan != NULL;
		if (scan == NULL)
			part->scan = ExecInitNode(list_nth(plans, i), estate, eflags);
		else
			part->scan = ExecInitNode((Plan *) scan, estate,
									  eflags | EXEC_FLAG_EXPLAIN_ONLY);
		if (part->query != NULL)
			BeginForeign(part, scan, vector);
		state->node.custom_ps = lappend(state->node.custom_ps, part->scan);
	}
	state->waves = PipeannWavesBegin(&state->plan, &state->node, state->in_turn);
}

/* Whether a value is known before the statement is run. */
static bool
IsKnown(const OneMessageState *state, const Expr *expr)
{
	return IsA(expr, Const) ||
		(IsA(expr, Param) && ((const Param *) expr)->paramkind == PARAM_EXTERN &&
		 state->node.ss.ps.state->es_param_list_info != NULL);
}

/*
 * Whether it is already known that all parts will be asked. Then the Append asks them at
 * the same time.
 */
static bool
WantsAll(OneMessageState *state)
{
	Expr	   *vector = PipeannQueryVector(state->plan.distance);
	PlanState  *node = &state->node.ss.ps;
	bool		is_null = false;

	if (IsKnown(state, vector))
		(void) ExecEvalExpr(ExecInitExpr(vector, node), node->ps_ExprContext, &is_null);
	return is_null || (IsKnown(state, state->plan.limit) &&
					   !PipeannWavesChoose(RowsWanted(state)));
}

/*
 * Whether parts can take turns, if their wrapper asks. With one snapshot for the
 * transaction they cannot: all servers are asked at the same time.
 */
static bool
CanTakeTurns(OneMessageState *state)
{
	return state->plan.cells != NULL && pipeann_shard_coverage < 1 &&
		!IsolationUsesXactSnapshot() && !WantsAll(state);
}

static void
BeginOneMessage(CustomScanState *node, EState *estate, int eflags)
{
	OneMessageState *state = (OneMessageState *) node;
	Append	   *append = (Append *) outerPlan(node->ss.ps.plan);
	bool		explain = (eflags & EXEC_FLAG_EXPLAIN_ONLY) != 0;

	PipeannOneMessageOf((CustomScan *) node->ss.ps.plan, &state->plan);
	state->nparts = list_length(append->appendplans);
	state->parts = palloc0(state->nparts * sizeof(Part));
	state->sending = AllocSetContextCreate(estate->es_query_cxt,
										   "pipeann one message",
										   ALLOCSET_SMALL_SIZES);
	state->eflags = eflags;
	GetUserIdAndSecContext(&state->user, &state->security);
	state->limit = ExecInitExpr(state->plan.limit, &node->ss.ps);
	state->in_turn = !StandsAlone() || (!explain && !BeginQueries(state, estate));
	if (!state->in_turn || CanTakeTurns(state))
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

/* The next part to read. Partitions on this server come first: meanwhile other servers work. */
static Part *
NextPart(OneMessageState *state)
{
	Part	   *next = NULL;

	for (int i = 0; i < state->nparts; i++)
	{
		Part	   *part = &state->parts[i];

		if (part->done || !part->asked)
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
	if (!state->begun)
		Begin(state);
	for (;;)
	{
		TupleTableSlot *slot;

		part = NextPart(state);
		if (part == NULL)
		{
			if (!AskNext(state))
				return NULL;
			continue;
		}
		slot = ExecProcNode(part->scan);
		if (TupIsNull(slot))
		{
			part->done = true;
			if (part->takes_turns)
				EndTurn(state, part);
			continue;
		}
		if (state->waves != NULL)
			PipeannWavesRow(state->waves, slot);
		return slot;
	}
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
	part->asked = part->done = false;
	if (part->takes_turns && ((ForeignScanState *) part->scan)->fdw_state == NULL)
		return;
	if (state->node.ss.ps.chgParam != NULL)
		UpdateChangedParamSet(part->scan, state->node.ss.ps.chgParam);
	/* the largest distance will have changed */
	if (part->takes_turns)
		part->scan->chgParam = bms_add_member(part->scan->chgParam, state->plan.bound);
	part->rescan = part->query == NULL;
	if (part->rescan)
		return;
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
	state->begun = false;
}

static void
ExplainOneMessage(CustomScanState *node, List *ancestors, ExplainState *es)
{
	const OneMessageState *state = (const OneMessageState *) node;

	if (state->waves != NULL)
		PipeannWavesExplain(state->waves, es);
}

static const CustomExecMethods exec_methods = {
	.CustomName = "PipeannOneMessage",
	.BeginCustomScan = BeginOneMessage,
	.ExecCustomScan = ExecOneMessage,
	.EndCustomScan = EndOneMessage,
	.ReScanCustomScan = ReScanOneMessage,
	.ExplainCustomScan = ExplainOneMessage
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
