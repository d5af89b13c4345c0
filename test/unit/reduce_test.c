/*
 * reduce_test.c
 *		Wide vectors reduced to their principal axes, and graphs of these.
 */
#include <math.h>

#include "base/base.h"
#include "unit.h"

#include "distance/distance.h"
#include "graph/graph.h"
#include "graph/internal.h"

#define DIM 600
#define ROWS 9000

/* Directions in which vectors of a kind vary. */
#define HIDDEN 80

static float *Rows;
static float *Aux;

/* Sums of a few directions that are not those of the axes, and some noise. */
static void
MakeRows(uint32 n, int dim, float noise, uint64 seed)
{
	float	   *directions = malloc(sizeof(float) * HIDDEN * dim);

	for (int i = 0; i < HIDDEN * dim; i++)
		directions[i] = UnitRandomNormal(&seed);
	for (uint32 row = 0; row < n; row++)
	{
		float	   *x = Rows + (Size) row * dim;

		for (int d = 0; d < dim; d++)
			x[d] = 3 + noise * UnitRandomNormal(&seed);
		for (int k = 0; k < HIDDEN; k++)
		{
			float		part = UnitRandomNormal(&seed) / (1 + k);

			for (int d = 0; d < dim; d++)
				x[d] += part * directions[k * dim + d];
		}
	}
	free(directions);
}

/* These rows vary in all directions, and as far from the mean as others. */
static void
Scatter(uint32 row, uint32 every, uint64 seed)
{
	for (; row < ROWS; row += every)
		for (int d = 0; d < DIM; d++)
			Rows[(Size) row * DIM + d] = 3 + UnitRandomNormal(&seed);
}

static PipeannVectors
Vectors(uint32 n, int dim, PipeannMetric metric)
{
	PipeannVectors v = {0};

	v.n = n;
	v.dim = dim;
	v.storage = PIPEANN_FLOAT4;
	v.metric = metric;
	v.data = (const char *) Rows;
	v.stride = dim * sizeof(float);
	for (uint32 i = 0; i < n; i++)
	{
		const float *x = Rows + (Size) i * dim;

		Aux[i] = sqrtf(PipeannKernel->dot_pair[PIPEANN_FLOAT4] (x, x, dim));
		v.max_norm = Max(v.max_norm, Aux[i]);
	}
	if (metric != PIPEANN_L2)
		v.aux = Aux;
	for (uint32 i = 0; i < n; i++)
		Aux[i] = metric == PIPEANN_COSINE ? 1 / Aux[i] :
			sqrtf(v.max_norm * v.max_norm - Aux[i] * Aux[i]);
	return v;
}

static bool
Reduces(const PipeannVectors *v, PipeannVectors *reduced)
{
	memset(reduced, 0, sizeof(*reduced));
	return PipeannReduce(PipeannTeamAlone(), v, reduced);
}

static void
NarrowOrFewAreNotReduced(void)
{
	PipeannVectors reduced;
	PipeannVectors v;

	MakeRows(ROWS, 500, 0.1f, 1);
	v = Vectors(ROWS, 500, PIPEANN_L2);
	CHECK(!Reduces(&v, &reduced) && reduced.n == 0);
	MakeRows(8000, DIM, 0.1f, 1);
	v = Vectors(8000, DIM, PIPEANN_L2);
	CHECK(!Reduces(&v, &reduced) && reduced.n == 0);
}

/* Of what varies in all directions 256 axes of 600 have half. */
static void
NoiseIsNotReduced(void)
{
	PipeannVectors reduced;
	PipeannVectors v;

	Scatter(0, 1, 2);
	v = Vectors(ROWS, DIM, PIPEANN_L2);
	CHECK(!Reduces(&v, &reduced) && reduced.n == 0);
	memset(Rows, 0, sizeof(float) * DIM * ROWS);
	v = Vectors(ROWS, DIM, PIPEANN_L2);
	CHECK(!Reduces(&v, &reduced) && reduced.n == 0);
}

/* Distances are in proportion: mean and deviation of what they are divided by. */
static void
CheckProportion(const PipeannVectors *v, const PipeannVectors *reduced)
{
	PipeannMeasure whole;
	PipeannMeasure part;
	double		sum = 0;
	double		squares = 0;
	uint64		seed = 3;
	int			n = 4000;

	PipeannMeasureInit(&whole, v);
	PipeannMeasureInit(&part, reduced);
	for (int i = 0; i < n; i++)
	{
		uint32		a = UnitRandom(&seed) % v->n;
		uint32		b = (a + 1 + UnitRandom(&seed) % (v->n - 1)) % v->n;
		double		ratio = PipeannMeasurePair(&part, a, b) /
			PipeannMeasurePair(&whole, a, b);

		sum += ratio / n;
		squares += ratio * ratio / n;
	}
	if (!CHECK(sqrt(Max(squares - sum * sum, 0)) < 0.05 * sum))
		NOTE("metric %d: %g +- %g", v->metric, sum,
			 sqrt(squares - sum * sum));
}

/* The parts of the nodes' five nearest that are their neighbours. */
static double
NearestKept(const PipeannVectors *v, const PipeannVectors *by)
{
	PipeannTeam *team = PipeannTeamAlone();
	PipeannGraphParams params = {
		.max_degree = 32,.ef_construction = 64,.seed = 4
	};
	PipeannGraph *graph = PipeannGraphBuild(team, by, NULL, &params);
	PipeannMeasure measure;
	int			kept = 0;
	int			all = 0;

	PipeannMeasureInit(&measure, v);
	for (uint32 a = 0; a < v->n; a += 50)
	{
		uint32		near[5];
		float		distance[5];
		int			n = 0;

		for (uint32 b = 0; b < v->n; b++)
		{
			float		d = PipeannMeasurePair(&measure, a, b);
			int			at;

			if (b == a || (n == 5 && d >= distance[4]))
				continue;
			n = Min(n + 1, 5);
			for (at = n - 1; at > 0 && distance[at - 1] > d; at--)
			{
				distance[at] = distance[at - 1];
				near[at] = near[at - 1];
			}
			distance[at] = d;
			near[at] = b;
		}
		for (int i = 0; i < n; i++, all++)
			kept += PipeannListHas(PipeannNeighbors(graph, a),
								   graph->degree[a], near[i]);
	}
	PipeannGraphFree(team, graph);
	return (double) kept / all;
}

static void
CheckGraphs(const PipeannVectors *v, const PipeannVectors *reduced)
{
	double		whole = NearestKept(v, v);
	double		part = NearestKept(v, reduced);

	if (!CHECK(part > whole - 0.02))
		NOTE("metric %d: %.3f of the nearest are neighbours, of the reduced %.3f",
			 v->metric, whole, part);
}

static void
DistancesAndGraphsAreAlike(void)
{
	const PipeannMetric metrics[] = {PIPEANN_L2, PIPEANN_COSINE, PIPEANN_IP};

	MakeRows(ROWS, DIM, 0.1f, 5);
	for (int m = 0; m < 3; m++)
	{
		PipeannVectors v = Vectors(ROWS, DIM, metrics[m]);
		PipeannVectors reduced;

		if (!CHECK(Reduces(&v, &reduced)))
			continue;
		CHECK(reduced.n == v.n && reduced.dim == PIPEANN_REDUCED_DIM &&
			  reduced.metric == PIPEANN_L2);
		CheckProportion(&v, &reduced);
		/* with sanitizers a minute, by what graph_test runs with them, too */
		if (getenv("PIPEANN_UNIT_QUICK") == NULL)
			CheckGraphs(&v, &reduced);
		PipeannTeamFree(PipeannTeamAlone(), (void *) reduced.data);
	}
}

/* A kind of vectors that would look alike: none is reduced. A few may be. */
static void
NoKindIsLost(void)
{
	PipeannVectors reduced;
	PipeannVectors v;

	MakeRows(ROWS, DIM, 0.1f, 6);
	Scatter(7, 1100, 7);
	v = Vectors(ROWS, DIM, PIPEANN_L2);
	if (CHECK(Reduces(&v, &reduced)))
		PipeannTeamFree(PipeannTeamAlone(), (void *) reduced.data);
	Scatter(7, 100, 8);
	v = Vectors(ROWS, DIM, PIPEANN_L2);
	CHECK(!Reduces(&v, &reduced) && reduced.n == 0);
}

/* Vectors very far from all others have only their direction in fixed point. */
static void
NoLengthIsLost(void)
{
	PipeannVectors reduced;
	PipeannVectors v;

	MakeRows(ROWS, DIM, 0.1f, 9);
	for (uint32 row = 7; row < ROWS; row += 1100)
		for (int d = 0; d < DIM; d++)
			Rows[(Size) row * DIM + d] *= 50;
	v = Vectors(ROWS, DIM, PIPEANN_L2);
	if (CHECK(Reduces(&v, &reduced)))
		PipeannTeamFree(PipeannTeamAlone(), (void *) reduced.data);
	for (uint32 row = 8; row < ROWS; row += 100)
		for (int d = 0; d < DIM; d++)
			Rows[(Size) row * DIM + d] *= 50;
	v = Vectors(ROWS, DIM, PIPEANN_L2);
	CHECK(!Reduces(&v, &reduced) && reduced.n == 0);
}

int
main(void)
{
	PipeannKernelsInit();
	Rows = malloc(sizeof(float) * DIM * ROWS);
	Aux = malloc(sizeof(float) * ROWS);
	UNIT_RUN(NarrowOrFewAreNotReduced);
	UNIT_RUN(NoiseIsNotReduced);
	UNIT_RUN(DistancesAndGraphsAreAlike);
	UNIT_RUN(NoKindIsLost);
	UNIT_RUN(NoLengthIsLost);
	free(Rows);
	free(Aux);
	return UnitDone();
}
