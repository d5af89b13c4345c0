/*
 * order.c
 *		The order in which a scan returns rows: what the executor is told of their
 *		distances, and which rows are not in order.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "access/relscan.h"
#include "catalog/pg_type_d.h"
#include "scan/order.h"

/* Tell the executor the distance of the rows that come next. */
void
PipeannStoreDistance(IndexScanDesc scan, const PipeannScan *state, double value)
{
	Oid			type = FLOAT8OID;
	IndexOrderByDistance distance = {.value = value};

	/* where the scan itself holds rows back the executor compares nothing */
	index_store_float8_orderby_distances(scan, &type, &distance,
										 state->recheck && state->held_back == NULL);
}

/* The next rows are not compared, and come after those that were. */
void
PipeannEndComparing(IndexScanDesc scan, PipeannScan *state)
{
	state->recheck = false;
	state->held = 0;
	PipeannStoreDistance(scan, state,
						 PipeannSqlDistance(state->view.meta.layout.metric,
											state->farthest));
}

/*
 * Whether the order of a result taken just now and of one before or behind it
 * is not known.
 */
bool
PipeannIsInDoubt(PipeannScan *state, const PipeannResult *result)
{
	const PipeannResult *next = PipeannSearchPeek(state->search);

	return state->comparable && result->most > result->dist &&
		(result->dist <= state->farthest ||
		 (next != NULL && next->dist <= result->most) ||
		 PipeannTidFilterNextUnknown(state->tid_filter) <= result->most);
}

/*
 * Tell the executor a result's distance, or the least that it may be.
 *
 * Rows whose vectors were rounded are in order only as far as their distances
 * are known. If the order of a result's rows and others is in doubt, the
 * executor gets a lower bound of the distance and has to recheck: it computes
 * the distance itself, and holds the row back until bounds have grown past it.
 *
 * Where thousands of rows are nearer to each other than half precision can
 * tell, a LIMIT must not have all of them sorted: at most PIPEANN_MOST_HELD at a time
 * are.
 */
void
PipeannSetDistance(IndexScanDesc scan, PipeannScan *state,
				   const PipeannResult *result)
{
	bool		in_doubt = PipeannIsInDoubt(state, result);

	state->farthest = Max(state->farthest, result->most);
	state->recheck = in_doubt && state->held < PIPEANN_MOST_HELD;
	if (state->recheck)
	{
		state->held += result->nrows;
		PipeannStoreDistance(scan, state,
							 PipeannBoundsFloor(PipeannSearchBounds(state->search),
												result->dist, result->most));
	}
	else if (in_doubt)
		PipeannEndComparing(scan, state);
	else
	{
		state->held = 0;
		PipeannStoreDistance(scan, state,
							 PipeannSqlDistance(state->view.meta.layout.metric,
												result->dist));
	}
}

/*
 * By so much, relative to the distance, or for cosine to a vector's length, two
 * computations of one distance may differ. No order is lost by what is nearer than
 * the row before by less.
 */
#define ROUNDING (8 * FLT_EPSILON)

/*
 * Whether a result would be out of order after a row at another distance.
 *
 * Whether a result would be out of order after a row at another distance. A query
 * that has no distances has no order.
 */
bool
PipeannIsLate(const PipeannScan *state, float dist, float before)
{
	float		scale = state->view.meta.layout.metric == PIPEANN_COSINE ? 1 :
		fabsf(before);

	return pipeann_iterative_scan != PIPEANN_ITERATIVE_RELAXED &&
		state->comparable && dist < before - ROUNDING * scale;
}

/*
 * Hold back a result whose order is in doubt, at the distance of its vector as the
 * table has it. A result without a row that the snapshot sees is dropped.
 *
 * Hold back a result whose order is in doubt, at the distance of its vector as the
 * table has it. One without a row that the
 * snapshot sees is dropped.
 */
void
PipeannHoldBack(IndexScanDesc scan, PipeannScan *state,
				const PipeannResult *result)
{
	const PipeannLayout *l = &state->view.meta.layout;
	PipeannRowList list = PipeannSearchRows(state->search, result);

	state->farthest = Max(state->farthest, result->most);
	if (PipeannTableVectorOf(scan, &state->view, result, list, state->exact))
		PipeannHeldAdd(state->held_back, result, list,
					   PipeannExactDistance(l, state->query, state->exact,
											PIPEANN_FLOAT4,
											PipeannAux(l->metric,
													   PipeannNorm(state->exact, l->dim),
													   0)));
	state->recheck = !PipeannHeldIsEmpty(state->held_back);
}
