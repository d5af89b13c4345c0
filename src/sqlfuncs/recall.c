/*
 * recall.c
 *		SQL functions for operating an index: measuring recall.
 */
#include "postgres.h"

#include <math.h>

#include "access/relation.h"
#include "scan/scan.h"
#include "base/pause.h"
#include "common/pg_prng.h"
#include "fmgr.h"
#include "io/io.h"
#include "distance/distance.h"
#include "miscadmin.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(pipeann_recall);

typedef struct RecallState
{
	PipeannIndexView view;
	uint32		pages;
	float	   *query;			/* a sampled node's vector */
	float	   *exact;
	uint32		id;				/* of that node */
	int			k;
} RecallState;

/*
 * Take a random node as the query. False if none was met.
 */
static bool
SampleQuery(RecallState *state)
{
	const PipeannLayout *l = &state->view.meta.layout;
	PipeannSlot *slot = PipeannSlotAlloc(l);
	uint32		ids = state->pages * l->slots_per_page;
	bool		found = false;

	for (int tries = 0; tries < 1000 && ids > 0 && !found; tries++)
	{
		state->id = (uint32) pg_prng_uint64_range(&pg_global_prng_state, 0,
												  ids - 1);
		PipeannSlotCopy(&state->view, state->id, slot);
		found = PipeannSlotIsNode(slot) && slot->ntids > 0;
	}
	if (found)
	{
		PipeannVectorToFloat(PipeannSlotVector(l, slot), l->storage, l->dim,
							 state->query);
		if (l->metric == PIPEANN_COSINE)
			PipeannNormalize(state->query, l->dim, state->query);
	}
	pfree(slot);
	return found;
}

static float
OutOfLineDistance(uint32 id, const PipeannSlot *slot, void *arg)
{
	RecallState *state = arg;

	if (!PipeannChainVector(&state->view, id, slot, state->exact))
		return INFINITY;
	return PipeannExactDistance(&state->view.meta.layout, state->query,
								state->exact, PIPEANN_FLOAT4, slot->aux);
}

/*
 * Distances of the k nearest nodes but the sampled one itself; returns how
 * many there are.
 */
static int
Nearest(RecallState *state, bool exact, float *dists)
{
	PipeannIndexView *view = &state->view;
	PipeannCounters counters = {0};
	PipeannPageSource *source = PipeannSourceOpen(view->index,
												  &view->meta.layout,
												  view->map, &counters);
	PipeannSearchParams params = PipeannScanParams();
	PipeannSearch *search = PipeannBorrowSearch();
	const PipeannResult *result;
	int			n = 0;

	params.max_pages = PG_INT32_MAX;
	params.out_of_line_distance = OutOfLineDistance;
	params.out_of_line_arg = state;
	PipeannSearchBegin(search, &view->meta.layout, &view->codes, source,
					   state->query, &params);
	if (exact || view->cache == NULL)
		PipeannSearchExact(search, state->pages);
	else
		(void) PipeannSearchRun(search);
	if (PipeannSearchEndedEarly(search) && state->k > PIPEANN_EARLY_RESULTS)
		(void) PipeannSearchRun(search);
	while (n < state->k && (result = PipeannSearchPop(search)) != NULL)
		if (result->id != state->id)
			dists[n++] = result->dist;
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
CompareOne(RecallState *state, int64 *wanted, int64 *found)
{
	float	   *truth = palloc(mul_size(state->k, sizeof(float)));
	float	   *got = palloc(mul_size(state->k, sizeof(float)));
	int			ntruth = Nearest(state, true, truth);
	int			ngot;

	PIPEANN_PAUSE("recall-truth");
	ngot = Nearest(state, false, got);

	*wanted += ntruth;
	for (int i = 0; i < Min(ngot, ntruth); i++)
		if (got[i] <= truth[ntruth - 1])
			(*found)++;
}

/*
 * pipeann_recall(regclass, k, samples): the mean share of the true k nearest
 * neighbours that a search with the current settings finds, for vectors
 * sampled from the index. NULL for an index without rows.
 */
Datum
pipeann_recall(PG_FUNCTION_ARGS)
{
	Relation	index = PipeannOpenIndex(PG_GETARG_OID(0));
	int			samples = PG_GETARG_INT32(2);
	RecallState state;
	int64		wanted = 0;
	int64		found = 0;
	MemoryContext context;
	MemoryContext old;

	memset(&state, 0, sizeof(state));
	state.k = PG_GETARG_INT32(1);
	if (state.k < 1 || samples < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("k and samples must be positive")));
	PipeannOpenView(&state.view, index);
	state.pages = PipeannSourceCountPages(index, &state.view.meta.layout,
										  state.view.map,
										  state.view.meta.graph_pages);
	state.query = palloc(mul_size(state.view.meta.layout.dim, sizeof(float)));
	state.exact = palloc(mul_size(state.view.meta.layout.dim, sizeof(float)));

	context = AllocSetContextCreate(CurrentMemoryContext, "pipeann recall",
									ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	for (int i = 0; i < samples && SampleQuery(&state); i++)
	{
		CompareOne(&state, &wanted, &found);
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	if (state.view.cache != NULL)
		PipeannCacheRelease(state.view.cache);
	relation_close(index, AccessShareLock);
	if (wanted == 0)
		PG_RETURN_NULL();
	PG_RETURN_FLOAT8((double) found / wanted);
}
