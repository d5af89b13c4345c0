/*
 * graph_build_test.c
 *		The parts of which the graph's build is made: vectors in fixed point,
 *		clusters, leaves, reservoirs.
 */
#include <math.h>

#include "base/base.h"
#include "unit.h"

#include "distance/distance.h"
#include "graph/internal.h"

#define DIM 19
#define PLACES 16

static float *Rows;

static PipeannVectors
Vectors(uint32 n)
{
	PipeannVectors v = {0};

	v.n = n;
	v.dim = DIM;
	v.storage = PIPEANN_FLOAT4;
	v.metric = PIPEANN_L2;
	v.data = (const char *) Rows;
	v.stride = DIM * sizeof(float);
	return v;
}

static void
RandomRows(uint32 n, uint64 seed)
{
	for (uint32 i = 0; i < n * DIM; i++)
		Rows[i] = UnitRandomFloat(&seed, -1, 1);
}

/* ---------- reservoirs ---------- */

#define OFFERS 500

/* Few hashes and distances, so that many are equal. */
static void
MakeOffers(PipeannOffer *offers, uint64 *random)
{
	for (uint32 i = 0; i < OFFERS; i++)
	{
		offers[i].id = i;
		offers[i].distance = UnitRandom(random) % 100;
		offers[i].hash = UnitRandom(random) % 40;
	}
}

static void
Shuffle(PipeannOffer *offers, uint64 *random)
{
	for (uint32 i = OFFERS - 1; i > 0; i--)
	{
		uint32		j = UnitRandom(random) % (i + 1);
		PipeannOffer other = offers[i];

		offers[i] = offers[j];
		offers[j] = other;
	}
}

static int
CompareOffers(const void *a, const void *b)
{
	const PipeannOffer *x = a;
	const PipeannOffer *y = b;

	if (x->distance != y->distance)
		return x->distance < y->distance ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

static int
CompareIds(const void *a, const void *b)
{
	uint32		x = *(const uint32 *) a;
	uint32		y = *(const uint32 *) b;

	return x < y ? -1 : x > y;
}

/* What the header promises: of each hash the nearest; of these the nearest. */
static int
Expected(const PipeannOffer *offers, uint32 *ids)
{
	PipeannOffer sorted[OFFERS];
	bool		taken[40] = {false};
	int			n = 0;

	memcpy(sorted, offers, sizeof(sorted));
	qsort(sorted, OFFERS, sizeof(PipeannOffer), CompareOffers);
	for (int i = 0; i < OFFERS && n < PLACES; i++)
	{
		if (!taken[sorted[i].hash])
			ids[n++] = sorted[i].id;
		taken[sorted[i].hash] = true;
	}
	qsort(ids, n, sizeof(uint32), CompareIds);
	return n;
}

static int
Held(const PipeannReservoirs *r, uint32 node, uint32 *ids)
{
	PipeannOffer held[PIPEANN_LEAF];
	int			n = PipeannReservoirOffers(r, node, held);

	for (int i = 0; i < n; i++)
		ids[i] = held[i].id;
	qsort(ids, n, sizeof(uint32), CompareIds);
	return n;
}

/* Offers in random orders, in runs of random lengths, some of them again. */
static void
ReservoirsForgetTheOrder(void)
{
	PipeannTeam *team = PipeannTeamAlone();
	uint64		random = 1;

	for (int round = 0; round < 200; round++)
	{
		PipeannReservoirs r;
		PipeannOffer offers[OFFERS];
		uint32		want[PLACES];
		uint32		got[PLACES];
		int			n;

		PipeannReservoirsInit(team, &r, 2, PLACES, false);
		CHECK(Held(&r, 0, got) == 0);
		MakeOffers(offers, &random);
		n = Expected(offers, want);
		for (int again = 0; again < 2; again++)
		{
			Shuffle(offers, &random);
			for (int i = 0; i < OFFERS;)
			{
				int			run = UnitRandom(&random) % 50;

				run = Min(run, OFFERS - i);
				PipeannReservoirOffer(&r, 0, offers + i, run);
				i += run;
			}
			CHECK(Held(&r, 0, got) == n);
			CHECK(memcmp(got, want, n * sizeof(uint32)) == 0);
		}
		CHECK(Held(&r, 1, got) == 0);
		PipeannReservoirsFree(team, &r);
	}
}

/* What is in two reservoirs is enough to make that of all. */
static void
ReservoirsCanBeMerged(void)
{
	PipeannTeam *team = PipeannTeamAlone();
	uint64		random = 2;

	for (int round = 0; round < 200; round++)
	{
		PipeannReservoirs r;
		PipeannOffer offers[OFFERS];
		uint32		want[PLACES];
		uint32		got[PLACES];
		int			n;

		PipeannReservoirsInit(team, &r, 3, PLACES, false);
		MakeOffers(offers, &random);
		n = Expected(offers, want);
		for (int i = 0; i < OFFERS; i++)
			PipeannReservoirOffer(&r, UnitRandom(&random) % 2, offers + i, 1);
		for (uint32 half = 0; half < 2; half++)
		{
			PipeannOffer held[PLACES];

			PipeannReservoirOffer(&r, 2, held,
								  PipeannReservoirOffers(&r, half, held));
		}
		CHECK(Held(&r, 2, got) == n);
		CHECK(memcmp(got, want, n * sizeof(uint32)) == 0);
		PipeannReservoirsFree(team, &r);
	}
}

static void
ReservoirDistancesAreOrdered(void)
{
	uint64		random = 3;

	for (int i = 0; i < 100000; i++)
	{
		int32		a = (int32) (UnitRandom(&random) >> 33 >> i % 30);
		int32		b = (int32) (UnitRandom(&random) >> 33 >> i % 30);

		CHECK((a <= b) == (PipeannReservoirDistance(a) <=
						   PipeannReservoirDistance(b)) ||
			  PipeannReservoirDistance(a) == PipeannReservoirDistance(b));
		CHECK(PipeannReservoirDistance(a) < PG_UINT16_MAX);
	}
	CHECK(PipeannReservoirDistance(0) == 0);
	CHECK(PipeannReservoirDistance(INT32_MAX) < PG_UINT16_MAX);
}

/* ---------- fixed point ---------- */

static int64
FixedDot(const PipeannFixed *f, uint32 a, uint32 b)
{
	int64		sum = 0;

	for (int d = 0; d < f->dim; d++)
		sum += (int64) PipeannFixedAt(f, a)[d] * PipeannFixedAt(f, b)[d];
	return sum;
}

/* Elements, norms, and products are within what callers count on. */
static void
CheckFixed(const PipeannFixed *f)
{
	for (uint32 i = 0; i < f->n; i++)
	{
		int64		square = FixedDot(f, i, i);

		CHECK(f->half_norm[i] >= 0);
		CHECK_CLOSE(square, 2.0 * f->half_norm[i], 2);
		CHECK(square <= (int64) PIPEANN_FIXED_MAX * PIPEANN_FIXED_MAX);
		for (int d = 0; d < f->dim; d++)
			CHECK(abs(PipeannFixedAt(f, i)[d]) <= PIPEANN_FIXED_MAX);
		for (uint32 j = 0; j < Min(f->n, 20); j++)
		{
			int64		whole = (int64) f->half_norm[i] + f->half_norm[j] -
				FixedDot(f, i, j);

			CHECK(whole >= -2 && whole <= INT32_MAX);
		}
	}
}

static void
MakeFixed(uint32 n, PipeannClusters **clusters, PipeannFixed *f)
{
	PipeannTeam *team = PipeannTeamAlone();
	PipeannVectors v = Vectors(n);

	*clusters = PipeannClustersNew(team, &v, NULL, 7, NULL);
	PipeannFixedMake(team, &(*clusters)->scale, &v, f);
	CHECK(f->n == n && f->dim == DIM + 1);
	CheckFixed(f);
}

static void
FreeFixed(PipeannClusters *clusters, PipeannFixed *f)
{
	PipeannFixedFree(PipeannTeamAlone(), f);
	PipeannClustersFree(PipeannTeamAlone(), clusters);
}

static void
FixedDistancesAreNear(void)
{
	PipeannVectors v = Vectors(300);
	PipeannMeasure m;
	PipeannClusters *clusters;
	PipeannFixed f;

	PipeannMeasureInit(&m, &v);
	RandomRows(300, 4);
	MakeFixed(300, &clusters, &f);
	for (uint32 a = 0; a < 300; a++)
		for (uint32 b = 0; b < a; b++)
		{
			double		true_one = PipeannMeasurePair(&m, a, b) *
				clusters->scale.scale * clusters->scale.scale / 2;
			int32		d = PipeannFixedDistance(f.half_norm[a],
												 f.half_norm[b],
												 (int32) FixedDot(&f, a, b));

			CHECK_CLOSE(sqrt(d), sqrt(true_one), 10);
		}
	FreeFixed(clusters, &f);
}

/* It is shortened, in its direction; the others keep their distances. */
static void
FixedTakesOneLongVector(void)
{
	static const uint32 wheres[] = {0, 1, 150, 299};

	for (int i = 0; i < 4; i++)
	{
		uint32		where = wheres[i];
		PipeannClusters *clusters;
		PipeannFixed f;

		RandomRows(300, 5);
		for (int d = 0; d < DIM; d++)
			Rows[where * DIM + d] *= 1e6f;
		MakeFixed(300, &clusters, &f);
		CHECK(FixedDot(&f, where, where) >
			  0.9 * PIPEANN_FIXED_MAX * PIPEANN_FIXED_MAX);
		FreeFixed(clusters, &f);
	}
}

static void
FixedTakesAnyVectors(void)
{
	static const float values[] = {0, 1, -3e18f, 1e-30f};
	PipeannClusters *clusters;
	PipeannFixed f;

	for (int i = 0; i < 4; i++)
		for (uint32 n = 0; n < 4; n++)
		{
			for (uint32 d = 0; d < n * DIM; d++)
				Rows[d] = values[i];
			MakeFixed(n, &clusters, &f);
			for (uint32 a = 1; a < n; a++)
				CHECK(memcmp(PipeannFixedAt(&f, a), PipeannFixedAt(&f, 0),
							 f.dim * sizeof(int16)) == 0);
			FreeFixed(clusters, &f);
		}
}

/* ---------- leaves ---------- */

static int
CompareInt32(const void *a, const void *b)
{
	int32		x = *(const int32 *) a;
	int32		y = *(const int32 *) b;

	return x < y ? -1 : x > y;
}

static int32
DistanceIn(const PipeannFixed *f, uint32 a, uint32 b)
{
	return PipeannFixedDistance(f->half_norm[a], f->half_norm[b],
								(int32) FixedDot(f, a, b));
}

/*
 * With room for all, no other hash in the way, each has its nearest: of what is
 * farther than those, only what has it among its own.
 */
static void
CheckLeaf(const PipeannFixed *f, const uint32 *ids, int n, int nearest)
{
	PipeannTeam *team = PipeannTeamAlone();
	PipeannLeafSpace *space = PipeannLeafSpaceNew(f->dim, nearest,
													PIPEANN_LEAF);
	PipeannReservoirs r;
	uint32		got[PIPEANN_LEAF];
	int32		all[PIPEANN_LEAF];

	PipeannReservoirsInit(team, &r, f->n, PIPEANN_LEAF, false);
	PipeannLeaf(space, f, ids, n, 0, &r);
	for (int a = 0; a < n; a++)
	{
		int			held = Held(&r, ids[a], got);
		int			count = 0;
		int			most;

		for (int b = 0; b < n; b++)
			if (b != a)
				all[count++] = DistanceIn(f, ids[a], ids[b]);
		qsort(all, count, sizeof(int32), CompareInt32);
		most = Min(nearest, count);
		CHECK(most == 0 || held > 0);
		for (int b = 0; b < n && most > 0; b++)
		{
			bool		has = false;
			bool		direction = false;

			if (b == a || DistanceIn(f, ids[a], ids[b]) >= all[most - 1])
				continue;
			for (int i = 0; i < held; i++)
			{
				has |= got[i] == ids[b];
				/* a nearer one in the same direction */
				direction |= DistanceIn(f, ids[a], got[i]) <=
					DistanceIn(f, ids[a], ids[b]) &&
					PipeannSketchHash(f->sketch + ids[a] * PIPEANN_SKETCH,
									  f->sketch + got[i] * PIPEANN_SKETCH) ==
					PipeannSketchHash(f->sketch + ids[a] * PIPEANN_SKETCH,
									  f->sketch + ids[b] * PIPEANN_SKETCH);
			}
			CHECK(has || direction);
		}
		for (int i = 0; i < held; i++)
			CHECK(got[i] != ids[a] && got[i] < f->n);
	}
	PipeannReservoirsFree(team, &r);
	PipeannLeafSpaceFree(space);
}

static void
LeavesFindTheNearest(void)
{
	static const uint32 sizes[] = {1, 2, 3, 11, 12, 13, 15, 16, 17, 47, 48, 49,
	100, 511, PIPEANN_LEAF};
	PipeannClusters *clusters;
	PipeannFixed f;
	uint32		ids[PIPEANN_LEAF];

	RandomRows(2 * PIPEANN_LEAF, 6);
	MakeFixed(2 * PIPEANN_LEAF, &clusters, &f);
	for (int i = 0; i < PIPEANN_LEAF; i++)
		ids[i] = 2 * PIPEANN_LEAF - 1 - 2 * i;
	for (Size i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
	{
		CheckLeaf(&f, ids, (int) sizes[i], 2);
		CheckLeaf(&f, ids, (int) sizes[i], 10);
	}
	FreeFixed(clusters, &f);
}

/* ---------- clusters ---------- */

static void
CheckClusters(uint32 n, uint32 skip_every)
{
	PipeannTeam *team = PipeannTeamAlone();
	PipeannVectors v = Vectors(n);
	uint8	   *skip = PipeannAllocZero(n + 1);
	uint8	   *seen = PipeannAllocZero(n + 1);
	uint32	   *number = PipeannAlloc((n + 1) * sizeof(uint32));
	PipeannClusters *c;
	uint32		kept = 0;

	memset(number, 0xFF, (n + 1) * sizeof(uint32));
	for (uint32 i = 0; i < n; i++)
		skip[i] = skip_every > 0 && i % skip_every != 1;
	c = PipeannClustersNew(team, &v, skip_every > 0 ? skip : NULL, 9, number);
	for (uint32 i = 0; i < n; i++)
		kept += !skip[i];
	for (uint32 i = 0; i <= n; i++)
	{
		if (i == n || skip[i])
		{
			CHECK(number[i] == PG_UINT32_MAX);
			continue;
		}
		if (CHECK(number[i] < kept))
			CHECK(seen[number[i]]++ == 0);
	}
	CHECK((c->n > 0) == (n > PIPEANN_LEAF));
	memset(seen, 0, n);
	for (uint32 i = 0; c->n > 0 && i < c->starts[c->n]; i++)
		if (CHECK(c->ids[i] < kept))
			seen[c->ids[i]]++;
	for (uint32 i = 0; c->n > 0 && i < kept; i++)
		CHECK(seen[i] == Min(c->n, 10));
	PipeannClustersFree(team, c);
	pfree(skip);
	pfree(seen);
	pfree(number);
}

static void
ClustersNumberNodes(void)
{
	static const uint32 sizes[] = {0, 1, 2, PIPEANN_LEAF, PIPEANN_LEAF + 1,
	1020, 1021, 3000};

	RandomRows(3000, 8);
	for (Size i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
	{
		CheckClusters(sizes[i], 0);
		CheckClusters(sizes[i], 2);
		CheckClusters(sizes[i], 700);
		CheckClusters(sizes[i], PG_UINT32_MAX);
	}
	memset(Rows, 0, 3000 * DIM * sizeof(float));
	CheckClusters(3000, 0);
}

int
main(void)
{
	PipeannKernelsInit();
	Rows = PipeannAlloc(4000 * DIM * sizeof(float));
	UNIT_RUN(ReservoirsForgetTheOrder);
	UNIT_RUN(ReservoirsCanBeMerged);
	UNIT_RUN(ReservoirDistancesAreOrdered);
	UNIT_RUN(FixedDistancesAreNear);
	UNIT_RUN(FixedTakesOneLongVector);
	UNIT_RUN(FixedTakesAnyVectors);
	UNIT_RUN(LeavesFindTheNearest);
	UNIT_RUN(ClustersNumberNodes);
	return UnitDone();
}
