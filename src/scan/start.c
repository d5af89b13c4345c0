/*
 * start.c
 *		The beginning of an index scan: its view, query, conditions and search.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "io/io.h"
#include "miscadmin.h"
#include "scan/distance_bound.h"
#include "scan/state.h"

static float
OutOfLineDistance(uint32 id, const PipeannSlot *slot, void *arg)
{
	PipeannScan *state = arg;
	const PipeannLayout *l = &state->view.meta.layout;

	if (!PipeannChainVector(&state->view, id, slot, state->exact))
		return INFINITY;
	return PipeannExactDistance(l, state->query, state->exact, PIPEANN_FLOAT4,
								slot->aux);
}

/*
 * Whether rows in doubt are held back by the scan itself (held.c), not by the executor.
 * That does not do so in an index-only scan. Since PostgreSQL 18 it forgets where a
 * row is that it held back: FOR UPDATE takes it for an invisible one, and its ctid is
 * none (GiST's scans have the same).
 */
static bool
HoldsRowsBack(const PipeannScan *state)
{
#if PG_VERSION_NUM >= 180000
	bool		executor_can = false;
#else
	bool		executor_can = state->only == NULL;
#endif

	return state->view.meta.layout.storage == PIPEANN_FLOAT2 &&
		state->comparable && !executor_can;
}

/* Open the index, and begin a search by the scan's keys. */
void
PipeannScanStart(IndexScanDesc scan, PipeannScan *state)
{
	const PipeannLayout *l = &state->view.meta.layout;
	PipeannScanContext *heeds = &state->heeds;
	PipeannSearchParams params = PipeannScanParams();

	state->replica = RecoveryInProgress();
	PipeannOpenView(&state->view, scan->indexRelation);
	state->query = PipeannScanQuery(scan, l, &state->comparable);
	state->filter = PipeannFilterBegin(scan, &state->view);
	state->exact = palloc(mul_size(l->dim, sizeof(float)));
	state->source = PipeannSourceOpen(scan->indexRelation, l, state->view.map,
									  &state->counters);
	if (state->view.cache != NULL)
		PipeannHotCountUses(&state->view.cache->hot,
							PipeannSourceUses(state->source));
	params.max_pages = PipeannScanMaxPages(l);
	params.out_of_line_distance = OutOfLineDistance;
	params.out_of_line_arg = state;
	if (PipeannKilledBegin(&state->killed, scan, &state->view))
	{
		params.killed = PipeannKilledOfPage;
		params.killed_arg = &state->killed;
	}
	if (state->filter != NULL)
	{
		params.matches = PipeannFilterMatchesNode;
		params.matches_arg = state->filter;
		params.code_filter = PipeannFilterCodes(state->filter);
	}
	if (scan->xs_want_itup)
		state->only = PipeannOnlyBegin(scan, &state->view);
	PipeannPrefetchBegin(&state->prefetch, scan, l, state->only);
	params.settled = PipeannPrefetchSettled;
	params.settled_arg = &state->prefetch;
	params.most_settled = PipeannPrefetchEarly(&state->prefetch);
	if (heeds->tid_filter != NULL && state->view.cache != NULL)
		state->tid_filter = PipeannTidFilterBegin(scan, heeds->tid_filter,
												  &state->view, state->query,
												  &params);
	if (HoldsRowsBack(state))
		state->held_back = PipeannHeldBegin();
	if (!state->comparable || state->filter != NULL || state->tid_filter != NULL ||
		state->held_back != NULL ||
		(heeds->fill != NULL && heeds->fill->whole))
		heeds->bound = NULL;
	if (heeds->bound != NULL)
		PipeannDistanceBoundBegin(heeds->bound, &params);
	state->mode = pipeann_search_mode;
	state->search = PipeannReuseSearch();
	PipeannSearchBegin(state->search, l,
					   state->view.cache != NULL ? &state->view.codes : NULL,
					   state->source, state->query, &params);
	PipeannScanRowBegin(&state->row, scan, &state->view, state->search,
						&state->prefetch, state->replica);
	state->rows = palloc(Max(PipeannExtBytes(l), PipeannInlineBytes(l)));
}
