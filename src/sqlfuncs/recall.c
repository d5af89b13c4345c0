/*
 * recall.c
 *		SQL functions for operating an index: measuring recall.
 */
#include "postgres.h"

#include <math.h>

#include "access/relation.h"
#include "base/pause.h"
#include "catalog/pg_type.h"
#include "scan/scan.h"
#include "common/pg_prng.h"
#include "fmgr.h"
#include "io/io.h"
#include "distance/sparse.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(pipeann_recall);
PG_FUNCTION_INFO_V1(pipeann_recall_of_queries);

/* Neighbours that a query is made of. */
#define NEAR 32

typedef struct RecallState
{
	PipeannIndexView view;
	uint32		pages;
	float	   *query;			/* normalised for cosine */
	float	   *exact;
	int			k;
	int64		wanted;
	int64		found;
	MemoryContext context;		/* of one query */
} RecallState;

static float
OutOfLineDistance(uint32 id, const PipeannSlot *slot, void *arg)
{
	RecallState *state = arg;

	if (!PipeannChainVector(&state->view, id, slot, state->exact))
		return INFINITY;
	return PipeannWholeDistance(&state->view.meta.layout, state->query,
								state->exact, slot->aux);
}

/*
 * The k nearest nodes, all of them or those that a search finds with a list of this
 * length at least; returns how many there are.
 */
static int
Nearest(RecallState *state, int k, int least_ef, bool exact,
		PipeannResult *nearest)
{
	PipeannIndexView *view = &state->view;
	PipeannCounters counters = {0};
	PipeannPageSource *source = PipeannViewSource(view, &counters);
	PipeannSearchParams params = PipeannScanParams();
	PipeannSearch *search = PipeannReuseSearch();
	const PipeannResult *result;
	int			n = 0;

	params.max_pages = PG_INT32_MAX;
	params.ef = Max(params.ef, least_ef);
	params.out_of_line_distance = OutOfLineDistance;
	params.out_of_line_arg = state;
	PipeannSearchBegin(search, &view->meta.layout, &view->codes, source,
					   state->query, &params);
	if (exact || view->cache == NULL)
		PipeannSearchExact(search, state->pages);
	else
	{
		(void) PipeannSearchRun(search);
		if (PipeannSearchTell(search).ended_early && k > PIPEANN_EARLY_RESULTS)
			(void) PipeannSearchRun(search);
	}
	while (n < k && (result = PipeannSearchPop(search)) != NULL)
		nearest[n++] = *result;
	PipeannSearchReleasePages(search);
	PipeannSourceClose(source);
	return n;
}

/*
 * Found are those as near as the k-th true neighbour: equal distances are
 * equally good. Rows may have come since the true neighbours were looked for:
 * no more are found than there were, which may have been none.
 */
static void
CompareOne(RecallState *state)
{
	Size		size = mul_size(state->k, sizeof(PipeannResult));
	PipeannResult *truth = palloc(size);
	PipeannResult *got = palloc(size);
	int			ntruth = Nearest(state, state->k, 0, true, truth);
	int			ngot;

	PIPEANN_PAUSE("recall-truth");
	ngot = Nearest(state, state->k, 0, false, got);

	state->wanted += ntruth;
	for (int i = 0; i < Min(ngot, ntruth); i++)
		if (got[i].dist <= truth[ntruth - 1].dist)
			state->found++;
}

/* ---------- queries ---------- */

/* False if no distance to it is defined. */
static bool
TakeQuery(RecallState *state, Datum query)
{
	const PipeannLayout *l = &state->view.meta.layout;
	const float *x;

	PipeannCheckQuery(state->view.index, query);
	x = PipeannDatumElements(l->type, query, l->dim);
	if (!PipeannIsIndexable(l->metric, PipeannNorm(x, l->dim)))
		return false;
	PipeannQueryOf(l, x, state->query);
	return true;
}

/*
 * Read a node's vector, of length 1 for cosine, with the memory of a page. False if it
 * has no rows, or an insert that did not end has left its page as it was.
 */
static bool
ReadNode(const RecallState *state, uint32 id, char *page, float *x)
{
	const PipeannLayout *l = &state->view.meta.layout;
	const PipeannSlot *slot;

	if (!PipeannGraphPageCopy(&state->view, PipeannIdPage(l, id), page))
		return false;
	slot = PipeannSlotAt(l, page, PipeannIdSlot(l, id));
	if (!PipeannSlotIsNode(slot) || slot->ntids == 0)
		return false;
	PipeannVectorUnpack(PipeannSlotVector(l, slot), l->storage, l->dim, x);
	PipeannQueryOf(l, x, x);
	return true;
}

static bool
ReadRandomNode(const RecallState *state, uint32 *id, float *x)
{
	const PipeannLayout *l = &state->view.meta.layout;
	char	   *page = palloc((Size) l->node_pages * PIPEANN_PAYLOAD);
	uint32		ids = state->pages * l->slots_per_page;

	for (int tries = 0; tries < 1000 && ids > 0; tries++)
	{
		*id = (uint32) pg_prng_uint64_range(&pg_global_prng_state, 0, ids - 1);
		if (ReadNode(state, *id, page, x))
			return true;
	}
	return false;
}

/* Vectors of nodes near x, but for its own; returns how many there are. */
static int
ReadNear(RecallState *state, uint32 own, float *near)
{
	const PipeannLayout *l = &state->view.meta.layout;
	char	   *page = palloc((Size) l->node_pages * PIPEANN_PAYLOAD);
	PipeannResult nearest[NEAR + 1];
	int			n = Nearest(state, NEAR + 1, 2 * NEAR, false, nearest);
	int			taken = 0;

	for (int i = 0; i < n && taken < NEAR; i++)
		if (nearest[i].id != own &&
			ReadNode(state, nearest[i].id, page,
					 near + (Size) taken * PipeannFloats(l->storage, l->dim)))
			taken++;
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
MixSparse(float *x, const float *near, int n)
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
												PipeannFloats(PIPEANN_SPARSE1000,
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
	PipeannSparseProject(form, count, x);
}

/*
 * Make a query that is like the index's vectors and is none of them: each element is
 * that of one of the NEAR nearest neighbours of a random node, and the whole is as
 * long as the node's vector. A vector of the index itself is found too easily, as its
 * neighbours were chosen for it, and so is what is next to one. False if there is none.
 */
static bool
MakeQuery(RecallState *state)
{
	const PipeannLayout *l = &state->view.meta.layout;
	Size		bytes = mul_size(PipeannFloats(l->storage, l->dim), sizeof(float));
	float	   *x = palloc(bytes);
	float	   *near = palloc(mul_size(NEAR, bytes));
	double		length;
	double		norm;
	uint32		own;
	int			n;

	if (!ReadRandomNode(state, &own, x))
		return false;
	memcpy(state->query, x, bytes);
	n = ReadNear(state, own, near);
	if (l->type == PIPEANN_SPARSEVEC)
	{
		if (n > 0)
			MixSparse(x, near, n);
		PipeannQueryOf(l, x, state->query);
		return true;
	}
	for (int d = 0; n > 0 && d < l->dim; d++)
		x[d] = near[pg_prng_uint64_range(&pg_global_prng_state, 0, n - 1) *
					l->dim + d];
	/* bits stay bits */
	length = l->storage == PIPEANN_BITS ? PipeannNorm(x, l->dim) :
		PipeannNorm(state->query, l->dim);
	norm = PipeannNorm(x, l->dim);
	if (norm > 0)
		for (int d = 0; d < l->dim; d++)
			state->query[d] = (float) (x[d] * length / norm);
	return true;
}

static void
Begin(RecallState *state, Oid index, int k)
{
	const PipeannLayout *l;

	memset(state, 0, sizeof(*state));
	state->k = k;
	PipeannOpenView(&state->view, PipeannOpenIndex(index));
	state->pages = PipeannViewPages(&state->view);
	l = &state->view.meta.layout;
	state->query = palloc(mul_size(PipeannFloats(l->storage, l->dim), sizeof(float)));
	state->exact = palloc(mul_size(PipeannFloats(l->storage, l->dim), sizeof(float)));
	state->context = AllocSetContextCreate(CurrentMemoryContext,
										   "pipeann recall",
										   ALLOCSET_DEFAULT_SIZES);
}

/* The share, as an SQL function returns it: NULL if nothing was asked for. */
static Datum
End(RecallState *state, FunctionCallInfo fcinfo)
{
	MemoryContextDelete(state->context);
	if (state->view.cache != NULL)
		PipeannCacheRelease(state->view.cache);
	relation_close(state->view.index, AccessShareLock);
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
	MemoryContext old;

	if (k < 1 || samples < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("k and samples must be positive")));
	Begin(&state, PG_GETARG_OID(0), k);
	old = MemoryContextSwitchTo(state.context);
	for (int i = 0; i < samples && MakeQuery(&state); i++)
	{
		CompareOne(&state);
		MemoryContextReset(state.context);
	}
	MemoryContextSwitchTo(old);
	return End(&state, fcinfo);
}

/* What reads them takes them for values of the index's own type. */
static void
CheckType(const RecallState *state, Oid type)
{
	Relation	index = state->view.index;
	Oid			own = index->rd_opcintype[PipeannVectorPosition(index)];

	if (type != own)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("queries are of type %s, but index \"%s\" is on values of type %s",
						format_type_be(type), RelationGetRelationName(index),
						format_type_be(own)),
				 errhint("Cast them to %s[].", format_type_be(own))));
}

/* pipeann_recall(regclass, queries, k): the same for queries that the user has. */
Datum
pipeann_recall_of_queries(PG_FUNCTION_ARGS)
{
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(1);
	int			k = PG_GETARG_INT32(2);
	RecallState state;
	MemoryContext old;
	Datum	   *queries;
	bool	   *nulls;
	int			n;

	if (k < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("k must be positive")));
	deconstruct_array(array, ARR_ELEMTYPE(array), -1, false, TYPALIGN_INT,
					  &queries, &nulls, &n);
	Begin(&state, PG_GETARG_OID(0), k);
	CheckType(&state, ARR_ELEMTYPE(array));
	old = MemoryContextSwitchTo(state.context);
	for (int i = 0; i < n; i++)
	{
		if (nulls[i] || !TakeQuery(&state, queries[i]))
			continue;
		CompareOne(&state);
		MemoryContextReset(state.context);
	}
	MemoryContextSwitchTo(old);
	return End(&state, fcinfo);
}
