/*
 * reduce.c
 *		Wide vectors by their first principal axes, to build a graph of them.
 *
 * What a build compares vectors for, candidates, pruning, pages, needs no exact
 * distances: it takes those between the vectors' projections to the axes in which
 * they vary most (of 1,536 dimensions of embeddings 256 axes have 0.9 of the
 * variance, and distances to a node's candidates are in proportion within 3 %).
 * Searches measure, and pages hold, the vectors themselves.
 *
 * The axes span what subspace iteration finds of a sample's covariance (Golub
 * and Van Loan, Matrix Computations, 8.2.4); which axes of it they are makes no
 * difference to distances.
 */
#include "base/base.h"

#include <math.h>

#include "base/random.h"
#include "distance/distance.h"
#include "graph/fixed.h"

#define AXES PIPEANN_REDUCED_DIM

/*
 * Fewer dimensions, fewer vectors: not worth the search for axes. With more dimensions
 * the covariance takes too much memory.
 */
#define LEAST_DIM (2 * AXES)
#define MOST_DIM 4096
#define LEAST_VECTORS (4 * SAMPLE)

/* Vectors by which axes are chosen. */
#define SAMPLE 2048

#define ITERATIONS 3

#define SEED UINT64_C(0x61786573)

/*
 * The axes must have so much of the variance. One vector in FEW_LOST may
 * have less than so much of its own squared distance from the mean, or be so far
 * from it that fixed point shortens it: a kind of vectors that would not be told
 * apart is not to be lost.
 */
#define LEAST_VARIANCE 0.7
#define LEAST_KEPT 0.5
#define FEW_LOST 1000

/* The least squared length of vectors that were shortened. */
#define SHORTENED (0.99 * PIPEANN_FIXED_MAX * PIPEANN_FIXED_MAX)

/* Vectors projected at once, and dimensions or axes, by one member. */
#define RUN (20 * PIPEANN_TILE_ROWS)
#define BLOCK 16

/* An axis in fixed point has this length. */
#define UNIT 32767.0f

typedef struct Judgement
{
	double		kept;			/* the axes' part of the variance */
	uint32		lost;			/* vectors that are not told apart */
} Judgement;

/* Shared, but for the first two. */
typedef struct Axes
{
	PipeannFixedScale scale;
	int			dim;			/* of vectors in fixed point */
	float	   *sample;			/* [dim][SAMPLE] */
	float	   *covariance;		/* [dim][dim], times SAMPLE */
	float	   *axes;			/* [AXES][dim], orthonormal */
	float	   *moved;			/* the same times the covariance */
	Judgement  *judgement;
} Axes;

static float
Dot(const float *a, const float *b, int n)
{
	return PipeannKernel->dot_pair[PIPEANN_FLOAT4] (a, b, n);
}

/* Evenly spaced vectors, moved so that their mean is zero, dimension by dimension. */
static void
TakeSample(PipeannTeam *team, Axes *a, const PipeannVectors *v)
{
	PipeannFixed f;

	PipeannFixedInit(NULL, &a->scale, 1, &f);
	PipeannTeamEach(team, i, SAMPLE, BLOCK)
	{
		PipeannFixedSet(&f, 0, &a->scale, v,
						(uint32) (i * v->n / SAMPLE));
		for (int d = 0; d < a->dim; d++)
			a->sample[(Size) d * SAMPLE + i] = f.x[d] / UNIT;
	}
	PipeannFixedFree(NULL, &f);
}

static void
Covary(PipeannTeam *team, Axes *a)
{
	PipeannTeamRuns(team, from, to, a->dim, BLOCK)
		for (uint64 e = 0; e < to; e++)
			for (uint64 d = Max(from, e); d < to; d++)
			{
				float		product = Dot(a->sample + d * SAMPLE,
										  a->sample + e * SAMPLE, SAMPLE);

				a->covariance[d * a->dim + e] = product;
				a->covariance[e * a->dim + d] = product;
			}
}

/* Sets moved[] to the axes times the covariance. */
static void
MoveAxes(PipeannTeam *team, Axes *a)
{
	PipeannTeamRuns(team, from, to, a->dim, BLOCK)
		for (int k = 0; k < AXES; k++)
			for (uint64 d = from; d < to; d++)
				a->moved[(Size) k * a->dim + d] =
					Dot(a->covariance + d * a->dim,
						a->axes + (Size) k * a->dim, a->dim);
}

/*
 * Make rows of moved[] orthonormal: they become the axes (modified Gram-Schmidt, each
 * row twice, as one that is nearly a sum of others loses its digits). A row that is such
 * a sum becomes zero.
 */
static void
Orthonormalise(Axes *a)
{
	memcpy(a->axes, a->moved, sizeof(float) * AXES * a->dim);
	for (int k = 0; k < AXES; k++)
	{
		float	   *axis = a->axes + (Size) k * a->dim;
		float		before = Dot(axis, axis, a->dim);
		float		square;

		CHECK_FOR_INTERRUPTS();
		for (int other = 0; other < 2 * k; other++)
		{
			const float *to = a->axes + (Size) (other % k) * a->dim;
			float		part = Dot(axis, to, a->dim);

			for (int d = 0; d < a->dim; d++)
				axis[d] -= part * to[d];
		}
		square = Dot(axis, axis, a->dim);
		if (!(square > before * 1e-8f))
			square = INFINITY;
		for (int d = 0; d < a->dim; d++)
			axis[d] /= sqrtf(square);
	}
}

/* The axes' part of the variance, by axes and what these moved to. */
static double
VarianceKept(const Axes *a)
{
	double		all = 0;
	double		kept = 0;

	for (int d = 0; d < a->dim; d++)
		all += a->covariance[(Size) d * a->dim + d];
	for (Size i = 0; i < (Size) AXES * a->dim; i++)
		kept += (double) a->axes[i] * a->moved[i];
	return all > 0 ? kept / all : 0;
}

/* Sets axes[], and how much of the variance they have. */
static void
FindAxes(PipeannTeam *team, Axes *a)
{
	uint64		seed = SEED;

	if (PipeannTeamLeads(team))
	{
		for (Size i = 0; i < (Size) AXES * a->dim; i++)
			a->moved[i] = (float) PipeannRandomBelow(&seed, 2001) - 1000;
		Orthonormalise(a);
	}
	PipeannTeamMeet(team);
	for (int i = 0; i < ITERATIONS; i++)
	{
		MoveAxes(team, a);
		if (PipeannTeamLeads(team))
		{
			a->judgement->kept = VarianceKept(a);
			Orthonormalise(a);
		}
		PipeannTeamMeet(team);
	}
}

/* The axes in fixed point, as columns of tiles. */
static int16 *
MakePanels(const Axes *a)
{
	int16	   *fixed = PipeannAlloc(mul_size(AXES * sizeof(int16), a->dim));
	int16	   *panels = PipeannAlloc(mul_size(AXES * sizeof(int16), a->dim));
	const int16 *columns[PIPEANN_TILE_COLUMNS];

	for (Size i = 0; i < (Size) AXES * a->dim; i++)
		fixed[i] = (int16) rintf(a->axes[i] * UNIT);
	for (int k = 0; k < AXES; k += PIPEANN_TILE_COLUMNS)
	{
		for (int c = 0; c < PIPEANN_TILE_COLUMNS; c++)
			columns[c] = fixed + (Size) (k + c) * a->dim;
		PipeannTilePanel(columns, PIPEANN_TILE_COLUMNS, a->dim,
						 panels + (Size) k * a->dim);
	}
	pfree(fixed);
	return panels;
}

/* Project n vectors in fixed point, of a tile; returns how many are lost. */
static uint32
ProjectTile(const PipeannFixed *f, const int16 *panels, uint32 at, int n,
			char *out)
{
	const int16 *rows[PIPEANN_TILE_ROWS];
	float		x[PIPEANN_TILE_ROWS][AXES];
	int32		dot[PIPEANN_TILE_ROWS * PIPEANN_TILE_COLUMNS];
	uint32		lost = 0;

	for (int r = 0; r < PIPEANN_TILE_ROWS; r++)
		rows[r] = PipeannFixedAt(f, at + Min(r, n - 1));
	for (int k = 0; k < AXES; k += PIPEANN_TILE_COLUMNS)
	{
		PipeannKernel->dot_tile(rows, panels + (Size) k * f->dim, f->dim, dot);
		for (int r = 0; r < n; r++)
			for (int c = 0; c < PIPEANN_TILE_COLUMNS; c++)
				x[r][k + c] = dot[r * PIPEANN_TILE_COLUMNS + c] / UNIT;
	}
	for (int r = 0; r < n; r++)
	{
		double		square = 2.0 * f->half_norm[at + r];

		lost += Dot(x[r], x[r], AXES) < LEAST_KEPT * square ||
			square > SHORTENED;
		PipeannVectorFromFloat(x[r], PIPEANN_FLOAT2, AXES,
							   out + (Size) r * AXES * sizeof(uint16));
	}
	return lost;
}

static void
Project(PipeannTeam *team, const Axes *a, const PipeannVectors *v,
		PipeannVectors *reduced)
{
	int16	   *panels = MakePanels(a);
	PipeannFixed f;

	PipeannFixedInit(NULL, &a->scale, RUN, &f);
	PipeannTeamRuns(team, from, to, v->n, RUN)
	{
		uint32		lost = 0;

		for (uint32 i = from; i < to; i++)
			PipeannFixedSet(&f, i - from, &a->scale, v, i);
		for (uint32 i = from; i < to; i += PIPEANN_TILE_ROWS)
			lost += ProjectTile(&f, panels, i - from,
								Min(to - i, PIPEANN_TILE_ROWS),
								(char *) PipeannVectorAt(reduced, i));
		__atomic_fetch_add(&a->judgement->lost, lost, __ATOMIC_RELAXED);
	}
	PipeannFixedFree(NULL, &f);
	pfree(panels);
}

/*
 * Bytes that PipeannReduce() may work with, and for each vector those of its result; 0
 * if such vectors are never reduced.
 */
Size
PipeannReduceMemory(uint32 n, int dim, Size *each)
{
	Size		row = mul_size(dim + 1, sizeof(float));
	bool		may = n >= LEAST_VECTORS && dim >= LEAST_DIM && dim <= MOST_DIM;

	*each = may ? AXES * sizeof(uint16) : 0;
	return *each == 0 ? 0 : mul_size(row, SAMPLE + dim + 2 * AXES);
}

/*
 * Whether vectors can do for a graph of v in PIPEANN_REDUCED_DIM dimensions. If so
 * sets *reduced to them (else it stays as it is), with squared Euclidean distances that are in
 * proportion to v's measure. All members call.
 */
bool
PipeannReduce(PipeannTeam *team, const PipeannVectors *v,
			  PipeannVectors *reduced)
{
	Size		stride;
	Size		row;
	Axes		a;
	bool		suits;

	(void) PipeannReduceMemory(v->n, v->dim, &stride);
	if (stride == 0)
		return false;
	PipeannFixedScaleInit(&a.scale, v, SEED);
	a.dim = a.scale.fixed_dim;
	row = mul_size(a.dim, sizeof(float));
	a.sample = PipeannTeamAlloc(team, mul_size(row, SAMPLE));
	a.covariance = PipeannTeamAlloc(team, mul_size(row, a.dim));
	a.axes = PipeannTeamAlloc(team, mul_size(row, AXES));
	a.moved = PipeannTeamAlloc(team, mul_size(row, AXES));
	a.judgement = PipeannTeamAlloc(team, sizeof(Judgement));
	TakeSample(team, &a, v);
	Covary(team, &a);
	FindAxes(team, &a);
	suits = a.judgement->kept >= LEAST_VARIANCE;
	if (suits)
	{
		PipeannVectors projected = {
			.n = v->n,.dim = AXES,.storage = PIPEANN_FLOAT2,
			.metric = PIPEANN_L2,.stride = stride,
			.data = PipeannTeamAlloc(team, mul_size(v->n, stride))
		};

		Project(team, &a, v, &projected);
		suits = a.judgement->lost <= v->n / FEW_LOST;
		if (suits)
			*reduced = projected;
		else
			PipeannTeamFree(team, projected.data);
	}
	PipeannTeamMeet(team);
	pfree(a.scale.offset);
	pfree(a.scale.planes);
	PipeannTeamFree(team, a.sample);
	PipeannTeamFree(team, a.covariance);
	PipeannTeamFree(team, a.axes);
	PipeannTeamFree(team, a.moved);
	PipeannTeamFree(team, a.judgement);
	return suits;
}
