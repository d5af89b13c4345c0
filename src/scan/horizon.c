/*
 * horizon.c
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

#include "scan/horizon.h"
#include "utils/float.h"

/* The operator's distance and ours may differ in their last bits. */
#define SLACK (8 * FLT_EPSILON)

/* That of a vector in half precision by more. */
#define ROUNDED_SLACK (1.0 / 1024)

void
PipeannHorizonInit(PipeannHorizon *horizon, int wanted, int scans)
{
	horizon->entering = horizon->expected = false;
	horizon->distance = horizon->reach = get_float8_infinity();
	horizon->wanted = wanted;
	horizon->together.searches = scans;
	horizon->together.first = NULL;
	horizon->together.tabled = NULL;
	horizon->together.most = 0;
	horizon->together.ncodes = 0;
	horizon->together.nnearest = 0;
	horizon->together.nchunks = 0;
}

/* Where it is now, as a search's order key. */
static float
KeyOf(const PipeannHorizon *horizon, PipeannMetric metric)
{
	double		distance = horizon->distance;

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

/* A row is looked up in its table before it counts: few that others push out are. */
void
PipeannHorizonExpect(PipeannHorizon *horizon, PipeannMetric metric)
{
	const PipeannTogether *together;
	double		distance;

	if (horizon == NULL || !isinf(horizon->distance))
		return;
	together = &horizon->together;
	if (together->nnearest < horizon->wanted)
		return;
	distance = PipeannSqlDistance(metric, together->nearest[horizon->wanted - 1]);
	if (!isfinite(distance))
		return;
	horizon->distance = distance + fabs(distance) * SLACK;
	horizon->expected = true;
}

/*
 * A search with others does not go on. By itself it would before it returned results
 * that are much farther than this (scan.c, MostReturnable()).
 */
void
PipeannHorizonReach(PipeannHorizon *horizon, const PipeannLayout *l,
					const PipeannSearch *search)
{
	double		slack = l->storage == PIPEANN_FLOAT2 ? ROUNDED_SLACK : SLACK;
	double		reach;

	if (horizon == NULL || !PipeannSearchIsTogether(search))
		return;
	reach = PipeannSqlDistance(l->metric,
							   PipeannSearchReach(search));
	horizon->reach = Min(horizon->reach, reach + fabs(reach) * slack);
}

bool
PipeannHorizonHides(const PipeannHorizon *horizon, PipeannMetric metric,
					const PipeannResult *result)
{
	return horizon != NULL && result != NULL &&
		result->dist > KeyOf(horizon, metric);
}

int
PipeannHorizonWithin(const PipeannHorizon *horizon, PipeannMetric metric,
					 PipeannSearch *search)
{
	const PipeannResult *results[PIPEANN_EARLY_RESULTS];
	float		key = KeyOf(horizon, metric);
	int			n = PipeannSearchNext(search, results, lengthof(results));
	int			within = 0;

	while (within < n && !(results[within]->dist > key))
		within++;
	return within;
}

/*
 * Of all explored nodes only a part may be returned in strict order; here they are
 * those of all scans. None of them goes on after an early end, so there must not be one
 * if that is not enough.
 */
void
PipeannHorizonBegin(PipeannHorizon *horizon, PipeannSearchParams *params)
{
	params->together = &horizon->together;
	params->may_end_early &= horizon->wanted <= PIPEANN_EARLY_RESULTS;
	params->min_list = Max(params->min_list,
						   horizon->wanted * PIPEANN_STRICT_PART);
}
