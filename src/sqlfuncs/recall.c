/*
 * recall.c
 *		SQL functions: the recall of queries, and the curve for pipeann.target_recall.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "base/pause.h"
#include "catalog/index.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type_d.h"
#include "common/pg_prng.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "recall/recall.h"
#include "scan/scan.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(pipeann_recall);
PG_FUNCTION_INFO_V1(pipeann_query_recalls);
PG_FUNCTION_INFO_V1(pipeann_calibrate);
PG_FUNCTION_INFO_V1(pipeann_target_list);

/* Queries whose exact answers are computed in one pass over the index. */
#define AT_ONCE 100

typedef struct RecallState
{
	PipeannIndexView view;
	MemoryContext context;		/* for queries that are answered together */
	PipeannAsked *asked;
	int			nasked;
	int			k;
	Datum	   *shares;			/* found of the true neighbours, float8, of each
								 * query that has any */
	int			nshares;
} RecallState;

/* Open an index for at most `most` queries. */
static void
Begin(RecallState *state, Oid relid, int k, int most)
{
	if (k < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("k must be positive")));
	memset(state, 0, sizeof(*state));
	PipeannOpenView(&state->view, PipeannOpenIndex(relid));
	state->asked = palloc0(mul_size(Max(most, 1), sizeof(PipeannAsked)));
	state->shares = palloc(mul_size(Max(most, 1), sizeof(Datum)));
	state->k = (int) Min((uint64) k, Max(state->view.meta.nodes, 1));
	state->context = AllocSetContextCreate(CurrentMemoryContext,
										   "pipeann recall",
										   ALLOCSET_DEFAULT_SIZES);
}

static void
End(RecallState *state)
{
	MemoryContextDelete(state->context);
	if (state->view.cache != NULL)
		PipeannCacheRelease(state->view.cache);
	relation_close(state->view.index, AccessShareLock);
}

/* Compare the results of searches with the current settings with the exact answers. */
static void
CompareAll(RecallState *state)
{
	MemoryContext old = MemoryContextSwitchTo(state->context);
	PipeannSearchParams params = PipeannScanParams(&state->view.meta, state->k);

	params.max_pages = PG_INT32_MAX;
	for (int i = 0; i < state->nasked; i++)
		state->asked[i].k = state->k;
	PipeannAnswerExactly(&state->view, state->asked, state->nasked);
	PIPEANN_PAUSE("recall-truth");
	for (int i = 0; i < state->nasked; i++)
	{
		const PipeannAsked *asked = &state->asked[i];
		int			found = PipeannFoundByScan(&state->view, &params, asked);

		if (asked->n > 0)
			state->shares[state->nshares++] = Float8GetDatum((double) found / asked->n);
	}
	state->nasked = 0;
	MemoryContextSwitchTo(old);
	MemoryContextReset(state->context);
}

/*
 * pipeann_recall(regclass, k, samples): the mean share of the true k nearest
 * neighbours that a search with the current settings finds, for vectors of the
 * index, as if they were not there. NULL for an index of fewer than two nodes.
 */
Datum
pipeann_recall(PG_FUNCTION_ARGS)
{
	int			samples = PG_GETARG_INT32(2);
	double		sum = 0;
	RecallState state;

	if (samples < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("samples must be positive")));
	Begin(&state, PG_GETARG_OID(0), PG_GETARG_INT32(1), samples);
	for (int i = 0; i < samples; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(state.context);

		state.nasked += PipeannAskOwn(&state.view, i, samples,
									  pg_prng_uint64(&pg_global_prng_state),
									  &state.asked[state.nasked]);
		MemoryContextSwitchTo(old);
		if (state.nasked == AT_ONCE || i == samples - 1)
			CompareAll(&state);
	}
	End(&state);
	if (state.nshares == 0)
		PG_RETURN_NULL();
	for (int i = 0; i < state.nshares; i++)
		sum += DatumGetFloat8(state.shares[i]);
	PG_RETURN_FLOAT8(sum / state.nshares);
}

/*
 * Process the queries of an array, except those without distances, at_once of
 * them at a time.
 */
static void
TakeQueries(RecallState *state, ArrayType *array, int at_once)
{
	Relation	index = state->view.index;
	const PipeannLayout *l = &state->view.meta.layout;
	Oid			own = index->rd_opcintype[PipeannVectorPosition(index)];
	Oid			type = ARR_ELEMTYPE(array);
	Datum	   *queries;
	bool	   *nulls;
	int			n;

	/* they will be read as values of the index's own type */
	if (type != own)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("queries are of type %s, but index \"%s\" is on values of type %s",
						format_type_be(type), RelationGetRelationName(index),
						format_type_be(own)),
				 errhint("Cast them to %s[].", format_type_be(own))));
	deconstruct_array(array, type, -1, false, TYPALIGN_INT, &queries, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(state->context);
		const float *x;

		if (!nulls[i])
		{
			PipeannCheckQuery(index, queries[i]);
			x = PipeannDatumElements(l->type, queries[i], l->dim);
			if (PipeannIsIndexable(l->metric, PipeannNorm(x, l->dim)))
				PipeannAskVector(l, x, &state->asked[state->nasked++]);
		}
		MemoryContextSwitchTo(old);
		if (state->nasked == at_once)
			CompareAll(state);
	}
}

static int
LengthOf(ArrayType *array)
{
	return ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
}

/*
 * pipeann_query_recalls(regclass, queries, k): the shares of the user's
 * queries, for pipeann_recall() and pipeann_recall_interval().
 */
Datum
pipeann_query_recalls(PG_FUNCTION_ARGS)
{
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(1);
	RecallState state;

	Begin(&state, PG_GETARG_OID(0), PG_GETARG_INT32(2), LengthOf(array));
	TakeQueries(&state, array, AT_ONCE);
	CompareAll(&state);
	End(&state);
	PG_RETURN_ARRAYTYPE_P(construct_array(state.shares, state.nshares, FLOAT8OID, sizeof(float8),
										  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* With fewer queries the curve is too imprecise. */
#define LEAST_CALIBRATING 20
#define MOST_CALIBRATING 10000
#define MOST_K 1000

/*
 * pipeann_calibrate(regclass, queries, k): measure with these queries how long
 * a search's list has to be, and store that in the index; returns the number
 * of queries. Only the table's owner may, and not on a replica.
 */
Datum
pipeann_calibrate(PG_FUNCTION_ARGS)
{
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(1);
	int			k = PG_GETARG_INT32(2);
	int			most = LengthOf(array);
	RecallState state;
	Oid			table;
	bool		owns;

	if (k > MOST_K)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("k must not be greater than %d", MOST_K)));
	if (most > MOST_CALIBRATING)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("%d queries are more than %d", most, MOST_CALIBRATING)));
	Begin(&state, PG_GETARG_OID(0), k, most);
	table = IndexGetRelation(PG_GETARG_OID(0), false);
#if PG_VERSION_NUM >= 160000
	owns = object_ownercheck(RelationRelationId, table, GetUserId());
#else
	owns = pg_class_ownercheck(table, GetUserId());
#endif
	if (!owns)
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_INDEX,
					   RelationGetRelationName(state.view.index));
	PreventCommandIfReadOnly("pipeann_calibrate()");
	PreventCommandDuringRecovery("pipeann_calibrate()");
	if (PipeannIsSparse(state.view.meta.layout.storage))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("searches of sparse vectors go through all codes, and have no list"),
				 errhint("Set \"pipeann.ef_search\".")));
	TakeQueries(&state, array, PG_INT32_MAX);
	if (state.nasked < LEAST_CALIBRATING)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%d queries are too few to measure an index", state.nasked),
				 errhint("Use at least %d, preferably a few hundred.",
						 LEAST_CALIBRATING)));
	if (state.view.cache == NULL)
		ereport(NOTICE,
				(errmsg("index \"%s\" is so small that a search finds all there is",
						RelationGetRelationName(state.view.index))));
	else
		PipeannCurveCalibrate(&state.view, state.asked, state.nasked, k);
	End(&state);
	PG_RETURN_INT32(state.nasked);
}

/*
 * pipeann_target_list(regclass, recall, k): the list length for a target recall, by the curve,
 * NULL if there is none; by how many queries it was measured; and whether it is stale.
 */
Datum
pipeann_target_list(PG_FUNCTION_ARGS)
{
	double		target = PG_GETARG_FLOAT8(1);
	int			k = PG_GETARG_INT32(2);
	Datum		values[3];
	bool		nulls[3];
	PipeannMeta meta;
	TupleDesc	desc;
	Relation	index;
	int			list;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (!(target > 0 && target <= PIPEANN_MOST_TARGET))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("recall must be greater than 0 and at most %g",
						PIPEANN_MOST_TARGET)));
	if (k < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("k must be positive")));
	index = PipeannOpenIndex(PG_GETARG_OID(0));
	PipeannMetaRead(index, &meta);
	relation_close(index, AccessShareLock);
	list = PipeannCurveList(&meta, target, k);
	values[0] = Int32GetDatum(list);
	values[1] = Int32GetDatum(meta.curve.queries);
	values[2] = BoolGetDatum(PipeannCurveIsStale(&meta));
	memset(nulls, list == 0, sizeof(nulls));
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc),
													  values, nulls)));
}
