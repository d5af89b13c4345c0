/*
 * graph_test.c
 *		The graph: build, prune, packing, entry graph.
 *
 * Rows are images of the Fashion-MNIST data set where it is installed, and
 * points around random centres otherwise.
 */
#include <math.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "base/base.h"
#include "unit.h"

#include "distance/distance.h"
#include "graph/graph.h"
#include "graph/internal.h"

#define DIM 784
/* With sanitizers these are fewer rows, as 6,000 take a minute and a half. */
#ifdef __SANITIZE_ADDRESS__
#define NROWS 2000
#define GROUPS 20
#define OTHERS 700
#else
#define NROWS 6000
#define GROUPS 60
#define OTHERS 2000
#endif
#define NQUERIES 200
#define K 10

/* Rows 0 .. NROWS - 1 are indexed; the NQUERIES rows after them ask. */
static uint8 *Rows;
static float *Aux[4];			/* by metric, of all rows */
static float MaxNorm;

/* ---------- data ---------- */

static float
VectorsDistance(const PipeannVectors *v, uint32 a, uint32 b)
{
	PipeannMeasure m;

	PipeannMeasureInit(&m, v);
	return PipeannMeasurePair(&m, a, b);
}

/* Clusters in 20 dimensions, turned into DIM by a random map. */
static void
MakeImages(uint8 *to, int n)
{
	uint64		seed = 1;
	static float map[20][DIM];
	static float centre[10][20];
	int			i;
	int			j;
	int			d;

	for (j = 0; j < 20; j++)
		for (d = 0; d < DIM; d++)
			map[j][d] = UnitRandomFloat(&seed, -1, 1);
	for (i = 0; i < 10; i++)
		for (j = 0; j < 20; j++)
			centre[i][j] = UnitRandomFloat(&seed, -20, 20);
	for (i = 0; i < n; i++)
	{
		float		at[20];

		for (j = 0; j < 20; j++)
			at[j] = centre[i % 10][j] + UnitRandomFloat(&seed, -15, 15);
		for (d = 0; d < DIM; d++)
		{
			float		x = 128;

			for (j = 0; j < 20; j++)
				x += at[j] * map[j][d];
			to[(Size) i * DIM + d] = (uint8) Min(Max(x, 0), 255);
		}
	}
}

static void
Load(void)
{
	int			n = NROWS + NQUERIES;
	double		max = 0;
	int			i;

	Rows = PipeannAlloc((Size) n * DIM);
	if (!UnitReadImages("train", Rows, (Size) n * DIM))
	{
		NOTE("no Fashion-MNIST here: generated rows");
		MakeImages(Rows, n);
	}
	Aux[PIPEANN_IP] = PipeannAlloc(n * sizeof(float));
	Aux[PIPEANN_COSINE] = PipeannAlloc(n * sizeof(float));
	for (i = 0; i < n; i++)
	{
		const uint8 *row = Rows + (Size) i * DIM;
		float		norm2 = PipeannKernelsScalar.dot_pair[PIPEANN_UINT8]
			(row, row, DIM);

		Aux[PIPEANN_IP][i] = norm2;
		Aux[PIPEANN_COSINE][i] = 1 / sqrtf(norm2);
		max = Max(max, norm2);
	}
	MaxNorm = (float) sqrt(max);
	for (i = 0; i < n; i++)
		Aux[PIPEANN_IP][i] = (float) sqrt(max - Aux[PIPEANN_IP][i]);
}

static PipeannVectors
Vectors(PipeannMetric metric, uint32 n)
{
	PipeannVectors v;

	v.n = n;
	v.dim = DIM;
	v.storage = PIPEANN_UINT8;
	v.metric = metric;
	v.data = (const char *) Rows;
	v.stride = DIM;
	v.aux = Aux[metric];
	v.max_norm = MaxNorm;
	return v;
}

/* A few float rows of the caller. */
static PipeannVectors
FloatVectors(const float *rows, uint32 n, int dim)
{
	PipeannVectors v;

	v.n = n;
	v.dim = dim;
	v.storage = PIPEANN_FLOAT4;
	v.metric = PIPEANN_L2;
	v.data = (const char *) rows;
	v.stride = dim * sizeof(float);
	v.aux = NULL;
	v.max_norm = 0;
	return v;
}

static PipeannGraphParams
Params(int max_degree, int ef)
{
	PipeannGraphParams params;

	params.max_degree = max_degree;
	params.ef_construction = ef;
	params.seed = 42;
	params.far = false;
	return params;
}

/* ---------- checks that all graphs have to pass ---------- */

static bool
ListIsGood(const PipeannGraph *g, uint32 node)
{
	const uint32 *list = PipeannNeighbors(g, node);
	int			i;
	int			j;

	if (g->degree[node] > g->max_degree || (g->degree[node] == 0 && g->n > 1))
		return false;
	for (i = 0; i < g->degree[node]; i++)
	{
		if (list[i] == node || list[i] >= g->n)
			return false;
		for (j = 0; j < i; j++)
			if (list[i] == list[j])
				return false;
	}
	return true;
}

static void
CheckGraph(const PipeannGraph *g, uint32 n)
{
	uint32		bad = 0;
	uint32		i;

	if (!CHECK(g->n == n) || !CHECK(g->medoid < n))
		return;
	for (i = 0; i < n; i++)
		bad += !ListIsGood(g, i);
	CHECK(bad == 0);
}

static bool
SameGraph(const PipeannGraph *a, const PipeannGraph *b)
{
	uint32		i;

	if (a->n != b->n || a->medoid != b->medoid)
		return false;
	for (i = 0; i < a->n; i++)
		if (a->degree[i] != b->degree[i] ||
			memcmp(PipeannNeighbors(a, i), PipeannNeighbors(b, i),
				   a->degree[i] * sizeof(uint32)) != 0)
			return false;
	return true;
}

/* ---------- an independent search ---------- */

typedef struct Found
{
	float		dist;
	uint32		id;
	bool		expanded;
} Found;

/* Insert into the sorted best[*n], at most max long. */
static void
Insert(Found *best, int *n, int max, float dist, uint32 id)
{
	int			i;

	if (*n == max && dist >= best[max - 1].dist)
		return;
	if (*n < max)
		(*n)++;
	for (i = *n - 1; i > 0 && best[i - 1].dist > dist; i--)
		best[i] = best[i - 1];
	best[i].dist = dist;
	best[i].id = id;
	best[i].expanded = false;
}

static int
FirstToExpand(const Found *best, int n)
{
	int			i;

	for (i = 0; i < n; i++)
		if (!best[i].expanded)
			return i;
	return -1;
}

static int
Search(const PipeannGraph *g, const PipeannVectors *v, uint32 query, int ef,
	   Found *best)
{
	bool	   *seen = PipeannAllocZero(g->n);
	int			n = 0;
	int			at;
	int			i;

	seen[g->medoid] = true;
	Insert(best, &n, ef, VectorsDistance(v, query, g->medoid),
		   g->medoid);
	while ((at = FirstToExpand(best, n)) >= 0)
	{
		uint32		node = best[at].id;

		best[at].expanded = true;
		for (i = 0; i < g->degree[node]; i++)
		{
			uint32		next = PipeannNeighbors(g, node)[i];

			if (!seen[next])
				Insert(best, &n, ef, VectorsDistance(v, query, next),
					   next);
			seen[next] = true;
		}
	}
	pfree(seen);
	return n;
}

static double
Recall(const PipeannGraph *g, PipeannMetric metric, int ef)
{
	PipeannVectors v = Vectors(metric, NROWS);
	int			hits = 0;
	uint32		q;
	int			i;

	for (q = NROWS; q < NROWS + NQUERIES; q++)
	{
		Found		found[200];
		Found		exact[K];
		int			nexact = 0;
		uint32		row;

		for (row = 0; row < NROWS; row++)
			Insert(exact, &nexact, K, VectorsDistance(&v, q, row), row);
		if (!CHECK(Search(g, &v, q, ef, found) >= K))
			return 0;
		for (i = 0; i < K; i++)
			hits += found[i].dist <= exact[K - 1].dist;
	}
	return hits / (double) (NQUERIES * K);
}

/* ---------- build ---------- */

static void
BuildAndSearch(PipeannMetric metric, const char *name, double at_least)
{
	PipeannVectors v = Vectors(metric, NROWS);
	PipeannGraphParams params = Params(32, 100);
	PipeannGraph *g = PipeannGraphBuild(PipeannTeamAlone(), &v, NULL, &params);
	double		recall;

	CheckGraph(g, NROWS);
	recall = Recall(g, metric, 20);
	NOTE("%s: recall@10 of a pool of 20: %.4f", name, recall);
	CHECK(recall >= at_least);
	PipeannGraphFree(PipeannTeamAlone(), g);
}

static void
TestRecallL2(void)
{
	BuildAndSearch(PIPEANN_L2, "L2", 0.98);
}

static void
TestRecallCosine(void)
{
	BuildAndSearch(PIPEANN_COSINE, "cosine", 0.98);
}

static void
TestRecallInnerProduct(void)
{
	BuildAndSearch(PIPEANN_IP, "inner product", 0.95);
}

static void
TestMeasure(void)
{
	PipeannMetric metric;
	uint32		i;

	for (metric = PIPEANN_L2; metric <= PIPEANN_COSINE; metric++)
	{
		PipeannVectors v = Vectors(metric, NROWS);
		double		scale = VectorsDistance(&v, 0, 1);

		for (i = 0; i < 100; i++)
		{
			float		ab = VectorsDistance(&v, i, i + 100);

			CHECK(ab >= 0);
			CHECK(ab == VectorsDistance(&v, i + 100, i));
			CHECK_CLOSE(VectorsDistance(&v, i, i), 0, scale * 1e-4);
		}
	}
}

/* Cosine and IP are squared Euclidean distances: the triangle holds. */
static void
TestMeasureIsMetric(void)
{
	PipeannMetric metric;
	uint32		i;

	for (metric = PIPEANN_L2; metric <= PIPEANN_COSINE; metric++)
	{
		PipeannVectors v = Vectors(metric, NROWS);

		for (i = 0; i < 200; i++)
		{
			double		ab = sqrt(VectorsDistance(&v, i, i + 1));
			double		bc = sqrt(VectorsDistance(&v, i + 1, i + 2));
			double		ac = sqrt(VectorsDistance(&v, i, i + 2));

			CHECK(ac <= (ab + bc) * 1.001);
		}
	}
}

static void
TestDeterministic(void)
{
	PipeannVectors v = Vectors(PIPEANN_L2, 2000);
	PipeannGraphParams params = Params(16, 40);
	PipeannGraph *a = PipeannGraphBuild(PipeannTeamAlone(), &v, NULL, &params);
	PipeannGraph *b = PipeannGraphBuild(PipeannTeamAlone(), &v, NULL, &params);
	PipeannGraph *c;

	CHECK(SameGraph(a, b));
	params.seed++;
	c = PipeannGraphBuild(PipeannTeamAlone(), &v, NULL, &params);
	CHECK(!SameGraph(a, c));
	CheckGraph(c, 2000);
	PipeannGraphFree(PipeannTeamAlone(), a);
	PipeannGraphFree(PipeannTeamAlone(), b);
	PipeannGraphFree(PipeannTeamAlone(), c);
}

static void
TestSmallDegrees(void)
{
	static const int degrees[] = {1, 2, 4};
	PipeannVectors v = Vectors(PIPEANN_L2, 1500);
	int			i;

	for (i = 0; i < 3; i++)
	{
		PipeannGraphParams params = Params(degrees[i], 10);
		PipeannGraph *g = PipeannGraphBuild(PipeannTeamAlone(), &v, NULL, &params);

		CheckGraph(g, 1500);
		PipeannGraphFree(PipeannTeamAlone(), g);
	}
}

static void
TestFewRows(void)
{
	PipeannGraphParams params = Params(8, 20);
	uint32		n;

	for (n = 1; n <= 40; n++)
	{
		PipeannVectors v = Vectors(PIPEANN_COSINE, n);
		PipeannGraph *g = PipeannGraphBuild(PipeannTeamAlone(), &v, NULL, &params);

		CheckGraph(g, n);
		if (n == 1)
			CHECK(g->degree[0] == 0);
		PipeannGraphFree(PipeannTeamAlone(), g);
	}
}

static void
TestNoRows(void)
{
	PipeannGraphParams params = Params(8, 20);
	PipeannVectors v = Vectors(PIPEANN_L2, 0);
	PipeannGraph *g = PipeannGraphBuild(PipeannTeamAlone(), &v, NULL, &params);

	CHECK(g->n == 0);
	PipeannGraphPack(g, &v, 4, NULL, PipeannTeamAlone());
	PipeannGraphFree(PipeannTeamAlone(), g);
}

static void
TestEqualRows(void)
{
	static float rows[3000][4];
	static const int degrees[] = {1, 4, 32};
	PipeannVectors v = FloatVectors(&rows[0][0], 3000, 4);
	int			i;

	for (i = 0; i < 3; i++)
	{
		PipeannGraphParams params = Params(degrees[i], 50);
		PipeannGraph *g = PipeannGraphBuild(PipeannTeamAlone(), &v, NULL, &params);

		CheckGraph(g, 3000);
		PipeannGraphFree(PipeannTeamAlone(), g);
	}
}

/* Tight clumps far apart, whose lists have no reason to leave the clump. */
static void
TestFarClumps(void)
{
	static float rows[4000][2];
	PipeannVectors v = FloatVectors(&rows[0][0], 4000, 2);
	PipeannGraphParams params = Params(6, 10);
	uint64		seed = 3;
	PipeannGraph *g;
	int			i;

	for (i = 0; i < 4000; i++)
	{
		rows[i][0] = (i % 40) * 1000.0f + UnitRandomFloat(&seed, 0, 1e-3f);
		rows[i][1] = (i % 8) * 1e6f + UnitRandomFloat(&seed, 0, 1e-3f);
	}
	g = PipeannGraphBuild(PipeannTeamAlone(), &v, NULL, &params);
	CheckGraph(g, 4000);
	PipeannGraphFree(PipeannTeamAlone(), g);
}

/* Points on a line, each further out than all before: one-sided lists. */
static void
TestGrowingLine(void)
{
	static float rows[1200];
	PipeannVectors v = FloatVectors(rows, 1200, 1);
	PipeannGraphParams params = Params(3, 5);
	PipeannGraph *g;
	int			i;

	for (i = 0; i < 1200; i++)
		rows[i] = powf(1.05f, i);
	g = PipeannGraphBuild(PipeannTeamAlone(), &v, NULL, &params);
	CheckGraph(g, 1200);
	PipeannGraphFree(PipeannTeamAlone(), g);
}

/*
 * Rows are found by their own vectors, also those that have no near ones. Where
 * graphs of short lists only saw to it that nodes can be reached one or two in
 * each of these were not.
 */
#define CELL 4
#define SIDE (28 / CELL)
#define POOL 60

static void
Shrink(const uint8 *row, float *to)
{
	memset(to, 0, SIDE * SIDE * sizeof(float));
	for (int i = 0; i < DIM; i++)
		to[i / 28 / CELL * SIDE + i % 28 / CELL] += row[i];
}

static void
TestFoundByTheirVectors(void)
{
	static float rows[NROWS][SIDE * SIDE];
	PipeannVectors v = FloatVectors(&rows[0][0], NROWS, SIDE * SIDE);
	PipeannGraphParams params = Params(16, 40);
	int			lost = 0;

	for (int i = 0; i < NROWS; i++)
		Shrink(Rows + (Size) i * DIM, rows[i]);
	for (params.seed = 1; params.seed <= 4; params.seed++)
	{
		PipeannGraph *g = PipeannGraphBuild(PipeannTeamAlone(), &v, NULL, &params);

		for (uint32 i = 0; i < NROWS; i++)
		{
			Found		found[POOL];

			lost += Search(g, &v, i, POOL, found) == 0 ||
				found[0].dist > 0;
		}
		PipeannGraphFree(PipeannTeamAlone(), g);
	}
	NOTE("%d of %d rows not found", lost, 4 * NROWS);
	CHECK(lost <= 1);
}

/*
 * All of a group of equal or nearly equal rows are found, among other rows. The
 * groups are of the size of what an index in half precision keeps apart.
 */
#define GROUP 50
#define GROUP_DIM 32

static void
FindGroups(float spread, const char *name)
{
	static float rows[GROUPS * GROUP + OTHERS][GROUP_DIM];
	uint32		n = GROUPS * GROUP + OTHERS;
	PipeannVectors v = FloatVectors(&rows[0][0], n, GROUP_DIM);
	PipeannGraphParams params = Params(48, 108);
	uint64		seed = 5;
	PipeannGraph *g;
	int			missed = 0;

	for (uint32 i = 0; i < n; i++)
	{
		bool		first = i >= GROUPS * GROUP || i % GROUP == 0;

		for (int d = 0; d < GROUP_DIM; d++)
			rows[i][d] = first ? UnitRandomFloat(&seed, -0.5f, 0.5f) :
				rows[i / GROUP * GROUP][d] +
				UnitRandomFloat(&seed, -spread, spread);
	}
	g = PipeannGraphBuild(PipeannTeamAlone(), &v, NULL, &params);
	CheckGraph(g, n);
	for (uint32 i = 0; i < GROUPS * GROUP; i += GROUP)
	{
		Found		found[200];

		if (!CHECK(Search(g, &v, i, 200, found) == 200))
			break;
		for (int k = 0; k < GROUP; k++)
			missed += found[k].id / GROUP != i / GROUP;
	}
	NOTE("%s: %d of %d rows missed", name, missed, GROUPS * GROUP);
	CHECK(missed == 0);
	PipeannGraphFree(PipeannTeamAlone(), g);
}

static void
TestGroups(void)
{
	FindGroups(0, "equal rows");
	FindGroups(1e-5f, "nearly equal rows");
	FindGroups(1e-3f, "near rows");
}

/* ---------- memory and progress ---------- */

typedef struct Watch
{
	uint64		last;
	uint32		calls;
	Size		peak;
} Watch;

static Size
MemoryInUse(void)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
#else
	return 0;
#endif
}

static void
OnProgress(uint64 done, uint64 n, void *arg)
{
	Watch	   *watch = arg;
	Size		now = MemoryInUse();

	CHECK(done <= n);
	watch->last = done;
	watch->calls++;
	watch->peak = Max(watch->peak, now);
}

static void
TestMemory(void)
{
	PipeannVectors v = Vectors(PIPEANN_L2, NROWS);
	PipeannGraphParams params = Params(32, 40);
	PipeannTeam team;
	Watch		watch = {0};
	Size		before = MemoryInUse();
	Size		promised = PipeannGraphMemory(NROWS, &params, &v);
	PipeannGraph *g;

	PipeannTeamOfOne(&team);
	team.progress = OnProgress;
	team.progress_arg = &watch;
	g = PipeannGraphBuild(&team, &v, NULL, &params);
	CHECK(watch.calls > 10);
	if (before > 0)
	{
		double		used = (double) (watch.peak - before);

		NOTE("promised %zu bytes, used %.0f", promised, used);
		CHECK_CLOSE(used / promised, 1.0, 0.25);
	}
	PipeannGraphFree(&team, g);
	CHECK(MemoryInUse() <= before + 4096);
}

/* ---------- prune ---------- */

static float
LineDistance(uint32 a, uint32 b, void *arg)
{
	const float *at = arg;

	return (at[a] - at[b]) * (at[a] - at[b]);
}

/* From 0 on a line, only the nearest on each side stays, if alpha is 1. */
static void
TestPruneLine(void)
{
	float		at[6] = {3, -2, 5, 1, -7, 4};
	uint32		cand[6] = {0, 1, 2, 3, 4, 5};
	float		dist[6];
	uint32		out[6];
	int			i;

	for (i = 0; i < 6; i++)
		dist[i] = at[i] * at[i];
	CHECK(PipeannRobustPrune(cand, dist, 6, &(PipeannPruneParams) {1.0f, 6}, LineDistance, at, out)
		  == 2);
	CHECK(out[0] == 3 && out[1] == 1);
	for (i = 1; i < 6; i++)
		CHECK(dist[i - 1] <= dist[i]);
	for (i = 0; i < 6; i++)
		CHECK(dist[i] == at[cand[i]] * at[cand[i]]);

	/* Alpha lets more pass, never more than there is room for. */
	CHECK(PipeannRobustPrune(cand, dist, 6, &(PipeannPruneParams) {100.0f, 4}, LineDistance, at, out)
		  == 4);
	CHECK(out[0] == 3 && out[1] == 1);
	CHECK(PipeannRobustPrune(cand, dist, 6, &(PipeannPruneParams) {1.0f, 1}, LineDistance, at, out)
		  == 1);
	CHECK(PipeannRobustPrune(cand, dist, 0, &(PipeannPruneParams) {1.2f, 9}, LineDistance, at, out)
		  == 0);
}

typedef struct PruneRows
{
	PipeannVectors v;
} PruneRows;

static float
RowDistance(uint32 a, uint32 b, void *arg)
{
	return VectorsDistance(&((PruneRows *) arg)->v, a, b);
}

/* How many of the first n of out no earlier one stands for, by alpha. */
static int
Unoccluded(PruneRows *rows, const uint32 *out, int n, float alpha)
{
	int			good = 0;
	int			i;
	int			j;

	for (i = 0; i < n; i++)
	{
		float		dist = RowDistance(0, out[i], rows);

		for (j = 0; j < i; j++)
			if (RowDistance(0, out[j], rows) <= dist &&
				alpha * RowDistance(out[j], out[i], rows) <= dist)
				break;
		good += i == j;
	}
	return good;
}

static void
TestPruneRows(void)
{
	PruneRows	rows = {Vectors(PIPEANN_L2, NROWS)};
	uint32		cand[300];
	float		dist[300];
	uint32		out[8];
	uint32		again[8];
	int			i;

	for (i = 0; i < 300; i++)
	{
		cand[i] = 1 + (i * 7) % 300;
		dist[i] = RowDistance(0, cand[i], &rows);
	}
	CHECK(PipeannRobustPrune(cand, dist, 300, &(PipeannPruneParams) {1.2f, 8}, RowDistance, &rows,
							 out) == 8);
	CHECK(out[0] == cand[0]);
	CHECK(Unoccluded(&rows, out, 8, 1.2f) == 8);

	/* The order of the candidates does not matter. */
	for (i = 0; i < 300; i++)
	{
		cand[i] = 1 + (i * 11) % 300;
		dist[i] = RowDistance(0, cand[i], &rows);
	}
	CHECK(PipeannRobustPrune(cand, dist, 300, &(PipeannPruneParams) {1.2f, 8}, RowDistance, &rows,
							 again) == 8);
	CHECK(memcmp(out, again, sizeof(out)) == 0);
}

#define LIST 16

/*
 * A node joins a full pruned list: what gives way, or that the node is superfluous, is
 * checked by its definition, and beside pruning list and node.
 */
static void
JoinRows(PruneRows *rows, uint64 *random, int *joined, int *same)
{
	uint32		cand[LIST + 1];
	float		dist[LIST + 1];
	float		near[LIST];
	uint32		out[LIST];
	uint32		node = 200 + UnitRandom(random) % 100;
	float		own = RowDistance(0, node, rows);
	bool		superfluous = false;
	int			place;
	int			n;

	for (int i = 0; i <= LIST; i++)
	{
		cand[i] = 1 + (i * 11 + UnitRandom(random) % 11);
		dist[i] = RowDistance(0, cand[i], rows);
	}
	n = PipeannRobustPrune(cand, dist, LIST + 1, &(PipeannPruneParams) {1.2f, LIST},
						   RowDistance, rows, out);
	for (int i = 0; n < LIST; i++)
		if (!PipeannListHas(out, n, cand[i]))
			out[n++] = cand[i];
	for (int i = 0; i < n; i++)
	{
		cand[i] = out[i];
		dist[i] = RowDistance(0, out[i], rows);
		near[i] = RowDistance(node, out[i], rows);
		superfluous |= dist[i] <= own && 1.2f * near[i] <= own;
	}
	place = PipeannGivesWay(dist, near, n, own);
	CHECK((place == PIPEANN_SUPERFLUOUS) == superfluous);
	if (place >= 0)
		CHECK(dist[place] > own);
	for (int i = 0; place != PIPEANN_SUPERFLUOUS && i < n; i++)
		if (dist[i] > own)
			CHECK(place >= 0 && dist[i] * near[place] <= dist[place] * near[i] * 1.0001f);

	/* what is not known stays, and decides nothing */
	for (int i = 0; place >= 0 && i < n; i++)
		near[i] = i == place ? near[i] : INFINITY;
	if (place >= 0)
		CHECK(PipeannGivesWay(dist, near, n, own) == place);
	for (int i = 0; i < n; i++)
		near[i] = INFINITY;
	CHECK(PipeannGivesWay(dist, near, n, own) == PIPEANN_UNDECIDED);

	/* pruning all pairs keeps the node, too, or drops it */
	if (place == PIPEANN_UNDECIDED)
		return;
	cand[n] = node;
	dist[n] = own;
	n = PipeannRobustPrune(cand, dist, n + 1, &(PipeannPruneParams) {1.2f, LIST},
						   RowDistance, rows, out);
	(*joined)++;
	*same += PipeannListHas(out, n, node) == (place >= 0);
}

static void
TestGivesWay(void)
{
	PruneRows	rows = {Vectors(PIPEANN_L2, NROWS)};
	uint64		random = 7;
	int			joined = 0;
	int			same = 0;

	for (int i = 0; i < 500; i++)
		JoinRows(&rows, &random, &joined, &same);
	NOTE("%d of %d as by pruning", same, joined);
	CHECK(joined > 100 && same > joined * 0.8);

	/* an equal vector is superfluous, one at no distance from a farther one takes its place */
	CHECK(PipeannGivesWay((float[]) {1}, (float[]) {0}, 1, 1) == PIPEANN_SUPERFLUOUS);
	CHECK(PipeannGivesWay((float[]) {3, 2}, (float[]) {1, 0}, 2, 1) == 1);
}

/* ---------- packing ---------- */

static bool
IsPermutation(const uint32 *order, uint32 n)
{
	bool	   *seen = PipeannAllocZero(n);
	bool		good = true;
	uint32		i;

	for (i = 0; i < n && good; i++)
	{
		good = order[i] < n && !seen[order[i]];
		if (good)
			seen[order[i]] = true;
	}
	pfree(seen);
	return good;
}

/* Mean distance of a page's nodes from its first; order NULL: as they are. */
static double
MateDistance(const PipeannVectors *v, const uint32 *order, int fill)
{
	double		sum = 0;
	uint32		count = 0;
	uint32		i;

	for (i = 0; i < v->n; i++)
	{
		uint32		seed = i / fill * fill;

		if (i == seed)
			continue;
		sum += order == NULL ? VectorsDistance(v, seed, i) :
			VectorsDistance(v, order[seed], order[i]);
		count++;
	}
	return sum / count;
}

static void
TestPack(void)
{
	static const int fills[] = {1, 2, 7, 20, NROWS - 1, NROWS, NROWS + 1000};
	PipeannVectors v = Vectors(PIPEANN_L2, NROWS);
	PipeannGraphParams params = Params(32, 50);
	PipeannGraph *g = PipeannGraphBuild(PipeannTeamAlone(), &v, NULL, &params);
	uint32	   *order = PipeannAlloc(NROWS * sizeof(uint32));
	int			i;

	for (i = 0; i < 7; i++)
	{
		Watch		watch = {0};
		PipeannTeam team;

		memset(order, 0xFF, NROWS * sizeof(uint32));
		PipeannTeamOfOne(&team);
		team.progress = OnProgress;
		team.progress_arg = &watch;
		PipeannGraphPack(g, &v, fills[i], order, &team);
		CHECK(IsPermutation(order, NROWS));
		CHECK(watch.last == NROWS);
		if (fills[i] > 1 && fills[i] < 100)
		{
			double		packed = MateDistance(&v, order, fills[i]);
			double		unpacked = MateDistance(&v, NULL, fills[i]);

			NOTE("%d a page: mates' squared distance %.3g, unpacked %.3g",
				 fills[i], packed, unpacked);
			CHECK(packed < unpacked / 2.5);
		}
	}
	pfree(order);
	PipeannGraphFree(PipeannTeamAlone(), g);
}

static void
TestPackFewRows(void)
{
	PipeannGraphParams params = Params(4, 10);
	uint32		order[40];
	uint32		n;

	for (n = 1; n <= 40; n++)
	{
		PipeannVectors v = Vectors(PIPEANN_L2, n);
		PipeannGraph *g = PipeannGraphBuild(PipeannTeamAlone(), &v, NULL, &params);

		PipeannGraphPack(g, &v, 5, order, PipeannTeamAlone());
		CHECK(IsPermutation(order, n));
		PipeannGraphFree(PipeannTeamAlone(), g);
	}
}

/* ---------- entry graph ---------- */

static void
TestEntryGraph(void)
{
	PipeannMetric metric;
	uint32		ids[300];
	uint32		i;

	for (i = 0; i < 300; i++)
		ids[i] = NROWS - 1 - i * (NROWS / 460);
	for (metric = PIPEANN_L2; metric <= PIPEANN_COSINE; metric++)
	{
		PipeannVectors v = Vectors(metric, NROWS);
		PipeannGraph *g = PipeannEntryGraphBuild(PipeannTeamAlone(), &v, ids, 300, 16, 7);
		double		near = 0;
		double		far = 0;

		CheckGraph(g, 300);
		for (i = 0; i < 300; i++)
		{
			near += VectorsDistance(&v, ids[i],
										   ids[PipeannNeighbors(g, i)[0]]);
			far += VectorsDistance(&v, ids[i], ids[(i + 150) % 300]);
		}
		CHECK(near < far);
		PipeannGraphFree(PipeannTeamAlone(), g);
	}
}

/*
 * A search begins in the entry graph and may have to come a long way, of which
 * edges to near nodes make many steps: along a curve through many dimensions.
 */
#define CURVE_ROWS 6000
#define CURVE_DIM 32

static void
TestEntryGraphLeadsFar(void)
{
	static float rows[CURVE_ROWS][CURVE_DIM];
	static uint32 ids[CURVE_ROWS];
	PipeannVectors v = FloatVectors(&rows[0][0], CURVE_ROWS, CURVE_DIM);
	int			lost = 0;
	PipeannGraph *g;

	for (int i = 0; i < CURVE_ROWS; i++)
	{
		/* in an order that is not the curve's */
		float		at = (i * 1999 % CURVE_ROWS) / (float) CURVE_ROWS;

		ids[i] = i;
		for (int d = 0; d < CURVE_DIM; d++)
			rows[i][d] = cosf(at * (d + 1));
	}
	g = PipeannEntryGraphBuild(PipeannTeamAlone(), &v, ids, CURVE_ROWS, 16, 7);
	CheckGraph(g, CURVE_ROWS);
	for (uint32 i = 0; i < CURVE_ROWS; i += 7)
	{
		Found		found[40];

		(void) Search(g, &v, i, 40, found);
		lost += found[0].id != i;
	}
	NOTE("%d of %d rows not found", lost, CURVE_ROWS / 7 + 1);
	CHECK(lost == 0);
	PipeannGraphFree(PipeannTeamAlone(), g);
}

int
main(void)
{
	PipeannKernelsInit();
	Load();
	UNIT_RUN(TestMeasure);
	UNIT_RUN(TestMeasureIsMetric);
	UNIT_RUN(TestRecallL2);
	UNIT_RUN(TestRecallCosine);
	UNIT_RUN(TestRecallInnerProduct);
	UNIT_RUN(TestDeterministic);
	UNIT_RUN(TestSmallDegrees);
	UNIT_RUN(TestFewRows);
	UNIT_RUN(TestNoRows);
	UNIT_RUN(TestEqualRows);
	UNIT_RUN(TestFarClumps);
	UNIT_RUN(TestGrowingLine);
	UNIT_RUN(TestFoundByTheirVectors);
	UNIT_RUN(TestGroups);
	UNIT_RUN(TestMemory);
	UNIT_RUN(TestPruneLine);
	UNIT_RUN(TestPruneRows);
	UNIT_RUN(TestGivesWay);
	UNIT_RUN(TestPack);
	UNIT_RUN(TestPackFewRows);
	UNIT_RUN(TestEntryGraph);
	UNIT_RUN(TestEntryGraphLeadsFar);
	return UnitDone();
}
