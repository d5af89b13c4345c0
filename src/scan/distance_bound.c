/*
 * distance_bound.c
 *		What scans of several indexes know from one another.
 *
 * Partitions of a table are scanned one after the other for the nearest rows of
 * all. When the first ones have given enough rows, nothing farther than these is
 * wanted of the next: their searches may end when they are unlikely to find
 * anything nearer.
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "scan/state.h"
#include "utils/float.h"

/* The operator's distance and ours may differ in their last bits. */
#define SLACK (8 * FLT_EPSILON)

/* That of a vector in half precision by more. */
#define ROUNDED_SLACK (1.0 / 1024)

/* For so many rows of so many scans. */
void
PipeannDistanceBoundInit(PipeannDistanceBound *bound, int wanted, int scans)
{
	bound->entering = bound->expected = false;
	bound->distance = bound->trusted = get_float8_infinity();
	bound->wanted = wanted;
	bound->together.searches = scans;
	bound->together.first = NULL;
	bound->together.tabled = NULL;
	bound->together.most = 0;
	bound->together.ncodes = 0;
	bound->together.nnearest = 0;
	bound->together.nsubvectors = 0;
}

/* Where it is now, as a search's order key: no result is wanted beyond it. */
float
PipeannDistanceBoundKey(const PipeannDistanceBound *bound, PipeannMetric metric)
{
	double		distance = bound->distance;

	if (isinf(distance))
		return INFINITY;
	switch (metric)
	{
		case PIPEANN_L2:
			return (float) (distance * distance * (1 + SLACK));
		case PIPEANN_COSINE:
			return (float) (distance - 1 + SLACK);
		default:
			return (float) (distance + fabs(distance) * SLACK);
	}
}

/*
 * The searches have been run: as many rows as are wanted are expected to be within
 * the distance of what they have found.
 *
 * A row is looked up in its table before it counts: few that others push out are.
 */
static void
Expect(PipeannDistanceBound *bound, PipeannMetric metric)
{
	const PipeannTogether *together = &bound->together;
	double		distance;

	if (!isinf(bound->distance) || together->nnearest < bound->wanted)
		return;
	distance = PipeannSqlDistance(metric, together->nearest[bound->wanted - 1]);
	if (!isfinite(distance))
		return;
	bound->distance = distance + fabs(distance) * SLACK;
	bound->expected = true;
}

/*
 * A search was run, which is NULL if it has found all: how far what it has found can
 * be believed. There may be no bound.
 *
 * A search with others does not go on. By itself it would before it returned results
 * that are much farther than this (stream.c, MostReturnable()).
 */
void
PipeannDistanceBoundSearched(PipeannDistanceBound *bound, const PipeannLayout *l,
							 PipeannSearch *search)
{
	double		slack = l->storage == PIPEANN_FLOAT2 ? ROUNDED_SLACK : SLACK;
	double		trusted;

	if (bound == NULL)
		return;
	if (search != NULL && PipeannSearchIsTogether(search))
	{
		trusted = PipeannSqlDistance(l->metric, PipeannSearchTrusted(search));
		bound->trusted = Min(bound->trusted, trusted + fabs(trusted) * slack);
	}
	Expect(bound, l->metric);
}

/*
 * Set a search's parameters by it.
 *
 * Of all explored nodes only a part may be returned in strict order; here they are
 * those of all scans. None of them goes on after an early end, so there must not be one
 * if that is not enough.
 */
void
PipeannDistanceBoundBegin(PipeannDistanceBound *bound, PipeannSearchParams *params)
{
	params->together = &bound->together;
	params->may_end_early &= bound->wanted <= PIPEANN_EARLY_RESULTS;
	params->min_list = Max(params->min_list,
						   bound->wanted * PIPEANN_STRICT_PART);
}
