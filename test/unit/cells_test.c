/*
 * cells_test.c
 *		Bytes of wide centroids: the nearest one is never left out, and most others are.
 */
#include <math.h>

#include "base/base.h"
#include "unit.h"

#include "cells/bytes.h"
#include "distance/distance.h"

#define MOST_CENTROIDS 300
#define MOST_ELEMENTS 1537

static float Centroids[MOST_CENTROIDS * MOST_ELEMENTS];
static float X[MOST_ELEMENTS];
static float Distance[MOST_CENTROIDS];

/* Of those that have a large mean, and a few elements larger than others. */
static float
Element(uint64 *seed, int d, float spread)
{
	return (d % 97 == 5 ? 8 : 1) * (2 + spread * UnitRandomNormal(seed));
}

/* As cells.c decides. */
static double
Exact(const PipeannByteCentroids *c, int i)
{
	double		sum = 0;

	for (int d = 0; d < c->elements; d++)
	{
		float		between = X[d] - c->centroids[(Size) i * c->elements + d];

		sum += (double) between * between;
	}
	return sum;
}

/* All that are the nearest must be within the limit; returns how many were compared. */
static int
CheckNearest(const PipeannByteCentroids *c)
{
	float		limit = PipeannCellLimit(PipeannByteNearest(c, X, Distance), c->elements);
	double		least = INFINITY;
	int			compared = 0;

	for (int i = 0; i < c->n; i++)
		least = fmin(least, Exact(c, i));
	for (int i = 0; i < c->n; i++)
	{
		if (Exact(c, i) <= least)
			CHECK(Distance[i] <= limit);
		compared += Distance[i] < INFINITY;
	}
	CHECK(compared > 0 || !(limit < INFINITY));
	return compared;
}

static void
Free(PipeannByteCentroids *c)
{
	free(c->mean);
	free(c->bytes);
	free(c->about);
	free(c->fixed);
	free(c->x);
	free(c->squares);
	free(c);
}

static PipeannByteCentroids *
Make(int n, int elements, uint64 *seed)
{
	for (int i = 0; i < n * elements; i++)
		Centroids[i] = Element(seed, i % elements, 0.5f);
	return PipeannByteCentroidsMake(PipeannKernel, Centroids, n, elements);
}

/* The way from one centroid to another, and somewhat beside it. */
static void
Between(const PipeannByteCentroids *c, int a, int b, float part, float noise, uint64 *seed)
{
	for (int d = 0; d < c->elements; d++)
		X[d] = Centroids[(Size) a * c->elements + d] * (1 - part) +
			Centroids[(Size) b * c->elements + d] * part + noise * UnitRandomNormal(seed);
}

static void
NearestIsAmongThem(void)
{
	static const int elements[] = {256, 384, 769, 1536, 1537};
	uint64		seed = 1;

	for (int e = 0; e < (int) lengthof(elements); e++)
		for (int n = 1; n <= MOST_CENTROIDS; n += 299 / 2)
		{
			PipeannByteCentroids *c = Make(n, elements[e], &seed);

			for (int round = 0; round < 60; round++)
			{
				int			a = UnitRandom(&seed) % n;
				int			b = UnitRandom(&seed) % n;
				float		part = round % 3 == 0 ? 0.5f : UnitRandomFloat(&seed, 0, 1);

				Between(c, a, b, part, round % 4 == 0 ? 0 : 0.1f * (round % 4), &seed);
				(void) CheckNearest(c);
			}
			Free(c);
		}
}

static void
FewAreCompared(void)
{
	uint64		seed = 2;
	PipeannByteCentroids *c = Make(MOST_CENTROIDS, 768, &seed);
	int			compared = 0;

	for (int round = 0; round < 100; round++)
	{
		Between(c, round, 0, 0.05f, 0.3f, &seed);
		compared += CheckNearest(c);
	}
	CHECK(compared < 100 * 10);
	Free(c);
}

/* Equal ones, ones that differ by the last bit, and all at the same distance. */
static void
NearDuplicatesAreCompared(void)
{
	uint64		seed = 3;

	for (int kind = 0; kind < 4; kind++)
	{
		int			elements = 300 + kind;
		PipeannByteCentroids *c = Make(MOST_CENTROIDS, elements, &seed);

		for (int i = 1; i < c->n; i++)
			for (int d = 0; d < elements; d++)
			{
				float	   *x = &Centroids[i * elements + d];

				*x = Centroids[d];
				if (kind == 1 && UnitRandom(&seed) % 8 == 0)
					*x = nextafterf(*x, i % 2 == 0 ? 9 : -9);
				else if (kind == 2)
					*x += d == i ? 1 : 0;
				else if (kind == 3)
					*x *= 1 + i * 1e-6f;
			}
		Free(c);
		c = PipeannByteCentroidsMake(PipeannKernel, Centroids, MOST_CENTROIDS, elements);
		for (int round = 0; round < 50; round++)
		{
			Between(c, round, 299 - round, 0.5f, round % 2 == 0 ? 0 : 1e-6f, &seed);
			(void) CheckNearest(c);
		}
		Between(c, 0, 0, 0, 0, &seed);
		(void) CheckNearest(c);
		Free(c);
	}
}

static void
LengthsDoNotMatter(void)
{
	static const float lengths[] = {0, 1e-45f, 1e-40f, 1e-38f, 1e-30f, 1e-19f, 1, 1e10f, 1e18f, 1e19f, 1e30f, 3e38f};
	uint64		seed = 4;

	for (int of = 0; of < (int) lengthof(lengths); of++)
		for (int to = 0; to < (int) lengthof(lengths); to++)
		{
			int			elements = 260;
			PipeannByteCentroids *c = Make(50, elements, &seed);

			for (int i = 0; i < 50 * elements; i++)
				Centroids[i] = lengths[of] * UnitRandomFloat(&seed, -1, 1);
			Free(c);
			c = PipeannByteCentroidsMake(PipeannKernel, Centroids, 50, elements);
			for (int d = 0; d < elements; d++)
				X[d] = lengths[to] * UnitRandomFloat(&seed, -1, 1);
			(void) CheckNearest(c);
			memset(X + 3, 0, (elements - 3) * sizeof(float));
			(void) CheckNearest(c);
			Free(c);
		}
}

static void
DistancesAreNearlyRight(void)
{
	uint64		seed = 5;
	PipeannByteCentroids *c = Make(MOST_CENTROIDS, 1536, &seed);

	Between(c, 7, 8, 0.4f, 0.3f, &seed);
	PipeannByteDistances(c, X, Distance);
	for (int i = 0; i < c->n; i++)
		CHECK_CLOSE(Distance[i], Exact(c, i), 0.01 * Exact(c, i));
	Free(c);
}

int
main(void)
{
	/* scalar at first */
	UNIT_RUN(NearDuplicatesAreCompared);
	PipeannKernelsInit();
	UNIT_RUN(NearestIsAmongThem);
	UNIT_RUN(FewAreCompared);
	UNIT_RUN(NearDuplicatesAreCompared);
	UNIT_RUN(LengthsDoNotMatter);
	UNIT_RUN(DistancesAreNearlyRight);
	return UnitDone();
}
