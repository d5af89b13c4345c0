/*
 * recall.c
 *		SQL functions for operating an index: recall, and the
 *		curve by which it is a setting.
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xlog.h"
#include "base/pause.h"
#include "catalog/index.h"
#include "catalog/pg_class.h"
#include "scan/scan.h"
#include "common/pg_prng.h"
#include "fmgr.h"
#include "funcapi.h"
#include "io/io.h"
#include "distance/sparse.h"
#include "miscadmin.h"
#include "recall/recall.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(pipeann_recall);
PG_FUNCTION_INFO_V1(pipeann_recall_of_queries);
PG_FUNCTION_INFO_V1(pipeann_recall_interval);
PG_FUNCTION_INFO_V1(pipeann_calibrate);
PG_FUNCTION_INFO_V1(pipeann_target_list);

/* Neighbours that a query is made of. */
#define NEAR 32

/* Queries whose exact answers are looked for in one pass over the index. */
#define AT_ONCE 100

typedef struct RecallState
{
	PipeannIndexView view;
	PipeannAsked *asked;
	int			nasked;
	int			k;
	MemoryContext context;		/* of a query, or what is made of many */

	/* what was found until now */
	int64		wanted;
	int64		found;
	int64		n;				/* queries that have neighbours */
	double		sum;			/* of their shares */
	double		sum_of_squares;
} RecallState;

/* The k nearest nodes that a search with the current settings finds. */
static int
Nearest(RecallState *state, const PipeannAsked *asked, int k, int least_ef,
		PipeannResult *nearest)
{
	PipeannSearchParams params = PipeannScanParams(&state->view.meta, k);
	PipeannCounters counters = {0};
	PipeannPageSource *source = PipeannViewSource(&state->view, &counters);
	int			n;

	params.max_pages = PG_INT32_MAX;
	params.ef = Max(params.ef, least_ef);
	n = PipeannFind(&state->view, source, &params, asked, k, nearest);
	PipeannSourceClose(source);
	return n;
}

/* Note how many of the nearest that were wanted for a query were found. */
static void
NoteShare(RecallState *state, int wanted, int found)
{
	double		share = (double) found / Max(wanted, 1);

	state->wanted += wanted;
	state->found += found;
	if (wanted == 0)
		return;
	state->n++;
	state->sum += share;
	state->sum_of_squares += share * share;
}

/* Compare the searches for all that was asked with the exact answers. */
static void
CompareAll(RecallState *state)
{
	PipeannAnswerExactly(&state->view, state->asked, state->nasked);
	PIPEANN_PAUSE("recall-truth");
	for (int i = 0; i < state->nasked; i++)
	{
		const PipeannAsked *asked = &state->asked[i];
		MemoryContext old = MemoryContextSwitchTo(state->context);
		PipeannResult *got = PipeannArray(PipeannResult, state->k);
		int			n = Nearest(state, asked, state->k, 0, got);
		int			found = PipeannFoundOf(asked, got, n, state->k);

		MemoryContextSwitchTo(old);
		MemoryContextReset(state->context);
		pfree(asked->nearest);
		NoteShare(state, asked->n, found);
	}
	state->nasked = 0;
}

/* ---------- queries ---------- */

/* Room for the next one's vector. */
static PipeannAsked *
Next(RecallState *state)
{
	PipeannAsked *asked = &state->asked[state->nasked];

	if (asked->query == NULL)
		asked->query = palloc(mul_size(PipeannFloats(state->view.meta.layout.storage,
													 state->view.meta.layout.dim),
									   sizeof(float)));
	asked->own = PIPEANN_INVALID_ID;
	asked->number = state->nasked;
	asked->k = state->k;
	return asked;
}

/* Ask for what a user gives, unless no distance to it is defined. */
static void
TakeQuery(RecallState *state, Datum query)
{
	const PipeannLayout *l = &state->view.meta.layout;
	PipeannAsked *asked = Next(state);
	const float *x;

	PipeannCheckQuery(state->view.index, query);
	x = PipeannDatumElements(l->type, query, l->dim);
	if (!PipeannIsIndexable(l->metric, PipeannNorm(x, l->dim)))
		return;
	PipeannQueryOf(l, x, asked->query);
	state->nasked++;
}

static bool
ReadRandomNode(const RecallState *state, uint32 *id, float *x)
{
	const PipeannLayout *l = &state->view.meta.layout;
	char	   *page = palloc((Size) l->node_pages * PIPEANN_PAYLOAD);
	uint32		ids = PipeannViewPages(&state->view) * l->slots_per_page;

	for (int tries = 0; tries < 1000 && ids > 0; tries++)
	{
		*id = (uint32) pg_prng_uint64_range(&pg_global_prng_state, 0, ids - 1);
		if (PipeannReadNode(&state->view, *id, page, x))
			return true;
	}
	return false;
}

/* Vectors of nodes near a node's, but for its own; returns how many there are. */
static int
ReadNear(RecallState *state, const PipeannAsked *node, float *near)
{
	const PipeannLayout *l = &state->view.meta.layout;
	char	   *page = palloc((Size) l->node_pages * PIPEANN_PAYLOAD);
	PipeannResult nearest[NEAR];
	int			n = Nearest(state, node, NEAR, 2 * NEAR, nearest);
	int			taken = 0;

	for (int i = 0; i < n; i++)
		taken += PipeannReadNode(&state->view, nearest[i].id, page,
								 near + (Size) taken * PipeannFloats(l->storage, l->dim));
	return taken;
}

typedef struct Element
{
	int32		index;
	float		value;
} Element;

static int
CompareElements(const void *a, const void *b)
{
	int32		x = ((const Element *) a)->index;
	int32		y = ((const Element *) b)->index;

	return (x > y) - (x < y);
}

/*
 * The same of a sparse vector: of as many elements as x has each becomes one of a
 * neighbour, if that has any.
 */
static void
MixSparse(PipeannStorage whole, float *x, const float *near, int n)
{
	int32	   *form = PipeannSparseBehind(x);
	PipeannSparse v = PipeannSparseIn(form, PIPEANN_MAX_INDEXED_NONZERO);
	Element		elements[PIPEANN_MAX_INDEXED_NONZERO];
	float		values[PIPEANN_MAX_INDEXED_NONZERO];
	int			taken = 0;
	int			count = 0;

	for (int i = 0; i < v.n; i++)
	{
		Size		from = pg_prng_uint64_range(&pg_global_prng_state, 0, n - 1);
		PipeannSparse other =
			PipeannSparseOf(PipeannSparseBehind(near + from *
												PipeannFloats(whole,
															  PIPEANN_SPARSE_DIM)));
		int			at;

		if (other.n == 0)
			continue;
		at = (int) pg_prng_uint64_range(&pg_global_prng_state, 0, other.n - 1);
		elements[taken++] = (Element) {other.indices[at], other.values[at]};
	}
	qsort(elements, taken, sizeof(Element), CompareElements);
	for (int i = 0; i < taken; i++)
		if (i == 0 || elements[i].index != elements[i - 1].index)
		{
			values[count] = elements[i].value;
			form[1 + count++] = elements[i].index;
		}
	form[0] = count;
	memcpy(form + 1 + count, values, count * sizeof(float));
	PipeannVectorToFloat(form, whole, PIPEANN_SPARSE_DIM, x);
}

/*
 * Make a query that is like the index's vectors and is none of them: each element is
 * that of one of the NEAR nearest neighbours of a random node, and the whole is as
 * long as the node's vector. A vector of the index itself is found too easily, as its
 * neighbours were chosen for it, and so is what is next to one. False if there is none.
 */
static bool
MakeQuery(RecallState *state, float *query)
{
	const PipeannLayout *l = &state->view.meta.layout;
	Size		bytes = mul_size(PipeannFloats(l->storage, l->dim), sizeof(float));
	float	   *x = palloc(bytes);
	float	   *near = palloc(mul_size(NEAR, bytes));
	PipeannAsked node = {.query = query};
	double		length;
	double		norm;
	int			n;

	if (!ReadRandomNode(state, &node.own, query))
		return false;
	memcpy(x, query, bytes);
	n = ReadNear(state, &node, near);
	if (PipeannIsSparse(l->storage))
	{
		if (n > 0)
			MixSparse(PipeannTypes[l->type].storage, x, near, n);
		PipeannQueryOf(l, x, query);
		return true;
	}
	for (int d = 0; n > 0 && d < l->dim; d++)
		x[d] = near[pg_prng_uint64_range(&pg_global_prng_state, 0, n - 1) *
					l->dim + d];
	/* bits stay bits */
	length = l->storage == PIPEANN_BITS ? PipeannNorm(x, l->dim) :
		PipeannNorm(query, l->dim);
	norm = PipeannNorm(x, l->dim);
	if (norm > 0)
		for (int d = 0; d < l->dim; d++)
			query[d] = (float) (x[d] * length / norm);
	return true;
}

static void
Begin(RecallState *state, Relation index, int k, int most)
{
	memset(state, 0, sizeof(*state));
	state->asked = palloc0(mul_size(Max(most, 1), sizeof(PipeannAsked)));
	PipeannOpenView(&state->view, index);
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

/* The share, as an SQL function returns it: NULL if nothing was asked for. */
static Datum
EndWithShare(RecallState *state, FunctionCallInfo fcinfo)
{
	End(state);
	if (state->wanted == 0)
		PG_RETURN_NULL();
	PG_RETURN_FLOAT8((double) state->found / state->wanted);
}

/*
 * pipeann_recall(regclass, k, samples): the mean share of the true k nearest
 * neighbours that a search with the current settings finds, for queries that are
 * made of the index's vectors. NULL for an index without rows.
 */
Datum
pipeann_recall(PG_FUNCTION_ARGS)
{
	int			k = PG_GETARG_INT32(1);
	int			samples = PG_GETARG_INT32(2);
	RecallState state;

	if (k < 1 || samples < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("k and samples must be positive")));
	Begin(&state, PipeannOpenIndex(PG_GETARG_OID(0)), k, AT_ONCE);
	for (int i = 0; i < samples; i++)
	{
		PipeannAsked *asked = Next(&state);
		MemoryContext old = MemoryContextSwitchTo(state.context);
		bool		made = MakeQuery(&state, asked->query);

		MemoryContextSwitchTo(old);
		MemoryContextReset(state.context);
		if (!made)
			break;
		if (++state.nasked == AT_ONCE)
			CompareAll(&state);
	}
	CompareAll(&state);
	return EndWithShare(&state, fcinfo);
}

/* What reads them takes them for values of the index's own type. */
static void
CheckType(Relation index, Oid type)
{
	Oid			own = index->rd_opcintype[PipeannVectorPosition(index)];

	if (type != own)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("queries are of type %s, but index \"%s\" is on values of type %s",
						format_type_be(type), RelationGetRelationName(index),
						format_type_be(own)),
				 errhint("Cast them to %s[].", format_type_be(own))));
}

static void
CheckK(int k, int most)
{
	if (k < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("k must be positive")));
	if (k > most)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("k must not be greater than %d", most)));
}

/*
 * Take the queries of an array, and have them answered at_once at a time.
 */
static void
TakeQueries(RecallState *state, ArrayType *array, int at_once)
{
	Datum	   *queries;
	bool	   *nulls;
	int			n;

	deconstruct_array(array, ARR_ELEMTYPE(array), -1, false, TYPALIGN_INT,
					  &queries, &nulls, &n);
	CheckType(state->view.index, ARR_ELEMTYPE(array));
	for (int i = 0; i < n; i++)
	{
		if (!nulls[i])
			TakeQuery(state, queries[i]);
		if (state->nasked == at_once)
			CompareAll(state);
	}
}

static void
RecallOfQueries(RecallState *state, FunctionCallInfo fcinfo)
{
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(1);
	int			k = PG_GETARG_INT32(2);

	CheckK(k, PG_INT32_MAX);
	Begin(state, PipeannOpenIndex(PG_GETARG_OID(0)), k, AT_ONCE);
	TakeQueries(state, array, AT_ONCE);
	CompareAll(state);
}

/* pipeann_recall(regclass, queries, k): the same for queries that the user has. */
Datum
pipeann_recall_of_queries(PG_FUNCTION_ARGS)
{
	RecallState state;

	RecallOfQueries(&state, fcinfo);
	return EndWithShare(&state, fcinfo);
}

/* ---------- how sure it is ---------- */

/* Standard deviations beyond which is one case in twenty. */
#define DEVIATIONS 1.96

/*
 * pipeann_recall_interval(regclass, queries, k): the same, and the interval in which the
 * recall of all queries of this kind is, 19 times of 20: Wilson's, for as many trials as
 * would vary as the queries' shares do. (Neighbours of one query are not found or missed
 * apart from one another.)
 */
Datum
pipeann_recall_interval(PG_FUNCTION_ARGS)
{
	Datum		values[4] = {0};
	bool		nulls[4] = {true, true, true, false};
	TupleDesc	desc;
	RecallState state;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	RecallOfQueries(&state, fcinfo);
	if (state.n > 0)
	{
		double		mean = state.sum / state.n;
		double		variance = Max(state.sum_of_squares / state.n - mean * mean, 0);
		double		trials = variance > 0 ?
			Max(mean * (1 - mean) / variance, 1) * state.n : state.n;
		double		z = DEVIATIONS * DEVIATIONS / trials;
		double		middle = (mean + z / 2) / (1 + z);
		double		width = sqrt(z * (mean * (1 - mean) + z / 4)) / (1 + z);

		values[0] = Float8GetDatum(mean);
		values[1] = Float8GetDatum(Max(middle - width, 0));
		values[2] = Float8GetDatum(Min(middle + width, 1));
		memset(nulls, false, sizeof(nulls));
	}
	values[3] = Int64GetDatum(state.n);
	End(&state);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc),
													  values, nulls)));
}

/* ---------- the curve ---------- */

/* Fewer tell too little. */
#define LEAST_CALIBRATING 20
#define MOST_CALIBRATING 10000
#define MOST_K 1000

/* Only the table's owner may, and only where pages can be changed. */
static void
CheckMayCalibrate(Relation index)
{
	Oid			table = IndexGetRelation(RelationGetRelid(index), false);

#if PG_VERSION_NUM >= 160000
	bool		owns = object_ownercheck(RelationRelationId, table, GetUserId());
#else
	bool		owns = pg_class_ownercheck(table, GetUserId());
#endif

	if (!owns)
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_INDEX,
					   RelationGetRelationName(index));
	PreventCommandIfReadOnly("pipeann_calibrate()");
	PreventCommandDuringRecovery("pipeann_calibrate()");
}

/*
 * pipeann_calibrate(regclass, queries, k): measure with these queries how long a
 * search's list has to be, and keep it in the index; returns how many queries there were.
 */
Datum
pipeann_calibrate(PG_FUNCTION_ARGS)
{
	Relation	index = PipeannOpenIndex(PG_GETARG_OID(0));
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(1);
	int			k = PG_GETARG_INT32(2);
	int			most = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	PipeannCurve curve;
	RecallState state;

	CheckK(k, MOST_K);
	CheckMayCalibrate(index);
	if (most > MOST_CALIBRATING)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("%d queries are more than %d", most, MOST_CALIBRATING)));
	Begin(&state, index, k, most);
	if (PipeannIsSparse(state.view.meta.layout.storage))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("searches of sparse vectors go through all codes, and have no list"),
				 errhint("Set \"pipeann.ef_search\".")));
	TakeQueries(&state, array, PG_INT32_MAX);
	if (state.nasked < LEAST_CALIBRATING)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%d queries tell too little of an index", state.nasked),
				 errhint("Give at least %d, better some hundreds.",
						 LEAST_CALIBRATING)));
	if (state.view.cache == NULL)
		ereport(NOTICE,
				(errmsg("index \"%s\" is so small that a search finds all there is",
						RelationGetRelationName(index))));
	else
	{
		curve = PipeannCurveMeasure(&state.view, state.asked, state.nasked, k);
		curve.queries = (uint16) state.nasked;
		PipeannCurveKeep(index, &curve);
	}
	End(&state);
	PG_RETURN_INT32(state.nasked);
}

/*
 * pipeann_target_list(regclass, recall, k): the lists of searches that aim at a recall, by
 * the curve, NULL if there is none; the queries that made it; and whether it is stale.
 */
Datum
pipeann_target_list(PG_FUNCTION_ARGS)
{
	double		target = PG_GETARG_FLOAT8(1);
	int			k = PG_GETARG_INT32(2);
	Datum		values[4] = {0};
	bool		nulls[4] = {true, true, true, true};
	PipeannMeta meta;
	TupleDesc	desc;
	Relation	index;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (!(target > 0 && target <= PIPEANN_MOST_TARGET))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("recall must be greater than 0, and %g at the most",
						PIPEANN_MOST_TARGET)));
	CheckK(k, PG_INT32_MAX);
	index = PipeannOpenIndex(PG_GETARG_OID(0));
	PipeannMetaRead(index, &meta);
	relation_close(index, AccessShareLock);
	values[0] = Int32GetDatum(PipeannCurveList(&meta, target, k,
											   PIPEANN_CURVE_MEMORY));
	values[1] = Int32GetDatum(PipeannCurveList(&meta, target, k,
											   PIPEANN_CURVE_DISK));
	values[2] = Int32GetDatum(meta.curve.queries);
	values[3] = BoolGetDatum(PipeannCurveIsStale(&meta));
	memset(nulls, DatumGetInt32(values[0]) == 0, sizeof(nulls));
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc),
													  values, nulls)));
}
