/*
 * reduce.c
 *		Reducing wide vectors to their first principal axes, to build a graph
 *		of them. The comparisons of a build, for candidates, pruning and pages,
 *		need no exact distances: they are between the vectors' projections on
 *		the axes along which they vary most (for embeddings of 1,536 dimensions
 *		256 axes have 0.9 of the variance, and distances to a node's candidates
 *		are in proportion within 3 %). Searches measure, and pages hold, the
 *		vectors themselves. The axes span the subspace that subspace iteration
 *		finds for a sample's covariance (Golub and Van Loan, Matrix
 *		Computations, 8.2.4); which basis of it they are does not change
 *		distances. They are made orthonormal by the Cholesky factor of their
 *		products (ibid., 5.2; twice, which is as exact as Gram and Schmidt), in
 *		parallel.
 */
#include "base/base.h"

#include <math.h>

#include "base/random.h"
#include "graph/internal.h"

#define AXES PIPEANN_REDUCED_DIM

/*
 * With fewer dimensions or vectors the search for axes does not pay. With more
 * dimensions the sample takes too much memory.
 */
#define LEAST_DIM (2 * AXES)
#define MOST_DIM 4096
#define LEAST_VECTORS (4 * SAMPLE)

/* Sampled vectors from which axes are computed. */
#define SAMPLE 2048

#define ITERATIONS 3

#define SEED UINT64_C(0x61786573)

/*
 * The axes must have this share of the variance. At most one vector in FEW_LOST may be
 * lost, so that no kind of vectors is. A vector is lost that keeps less than LEAST_KEPT of
 * its squared distance from the mean, or is so far from it that fixed point shortens it.
 */
#define LEAST_VARIANCE 0.7
#define LEAST_KEPT 0.5
#define FEW_LOST 1000

/* The least squared length of vectors that were shortened. */
#define SHORTENED (0.99 * PIPEANN_FIXED_MAX * PIPEANN_FIXED_MAX)

/* Vectors, and dimensions or axes, that one member handles at a time. */
#define SLICE (20 * PIPEANN_TILE_ROWS)
#define BLOCK 16

/*
 * An axis in fixed point has this length. A byte stands for this many units of
 * a vector: one at the usual distance from the mean (fixed.c) has elements
 * of 500, one beyond four times that is shortened.
 */
#define UNIT 32767.0f
#define BYTE_UNIT 16.0f

/* The squared part of a column that is orthogonal to those before is at least this. */
#define LEAST_NEW 1e-7

typedef struct Judgement
{
	double		kept;			/* the axes' share of the variance */
	uint32		lost;			/* vectors that the axes do not distinguish */
} Judgement;

/* Shared, but for the first two. Matrices have AXES columns, one for each axis. */
typedef struct Axes
{
	PipeannFixedScale scale;
	int			dim;			/* of vectors in fixed point */
	float	   *sample;			/* [dim][SAMPLE] */
	float	   *projected;		/* [SAMPLE], the sample by the axes */
	float	   *axes;			/* [dim], orthonormal */
	float	   *moved;			/* [dim], the axes times the covariance */
	double	   *products;		/* [AXES], products of pairs of columns of moved[] */
	float	   *solution;		/* [AXES], matrix that makes moved[] orthonormal */
	Judgement  *judgement;
} Axes;

/*
 * Sets out[AXES] to the negated product of a row of n elements and a matrix,
 * by a kernel for centroids, which have 256 columns, too.
 */
static void
Times(const float *row, const float *matrix, int n, float *out)
{
	PipeannKernel->centroid_dot(row, matrix, n, out);
}

static double
Product(const double *a, const double *b, int n)
{
	double		sum = 0;

	for (int i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

/* Make the columns of moved[] orthonormal: they become the axes. */
static void
Orthonormalise(PipeannTeam *team, Axes *a)
{
	float		column[BLOCK];
	float		part[AXES];

	/* in parts, as a sum in float is not precise enough for axes of little variance */
	PipeannTeamEach(team, k, AXES, BLOCK)
	{
		double	   *sum = a->products + k * AXES;

		memset(sum, 0, AXES * sizeof(double));
		for (int d = 0; d < a->dim; d += BLOCK)
		{
			const float *rows = a->moved + (Size) d * AXES;
			int			n = Min(BLOCK, a->dim - d);

			for (int i = 0; i < n; i++)
				column[i] = rows[(Size) i * AXES + k];
			Times(column, rows, n, part);
			for (int j = 0; j < AXES; j++)
				sum[j] -= part[j];
		}
	}
	if (PipeannTeamLeads(team))
	{
		double		inverse[AXES][AXES] = {{0}};	/* its columns */

		/*
		 * Sets solution[] to the inverse of the triangle by which the columns of
		 * moved[] are made of orthonormal ones (Cholesky's decomposition of their
		 * products). A column that is nearly a sum of those before it becomes zero.
		 */
		for (int k = 0; k < AXES; k++)
		{
			double	   *row = a->products + k * AXES;
			double		least = row[k] * LEAST_NEW;

			CHECK_FOR_INTERRUPTS();
			for (int j = 0; j < k; j++)
				row[j] = (row[j] - Product(row, a->products + j * AXES, j)) * inverse[j][j];
			row[k] -= Product(row, row, k);
			if (row[k] > least)
				inverse[k][k] = 1 / sqrt(row[k]);
			for (int j = 0; j < k; j++)
				inverse[j][k] = -inverse[k][k] * Product(row + j, inverse[j] + j, k - j);
		}
		for (int i = 0; i < AXES * AXES; i++)
			a->solution[i] = (float) inverse[i / AXES][i % AXES];
	}
	PipeannTeamMeet(team);
	PipeannTeamEach(team, d, a->dim, BLOCK)
		Times(a->moved + d * AXES, a->solution, AXES, a->axes + d * AXES);
}

/* The axes' share of the variance, by axes[] and moved[]. */
static double
VarianceKept(const Axes *a)
{
	double		all = 0;
	double		kept = 0;

	for (Size i = 0; i < (Size) a->dim * SAMPLE; i++)
		all += (double) a->sample[i] * a->sample[i];
	for (Size i = 0; i < (Size) AXES * a->dim; i++)
		kept += (double) a->axes[i] * a->moved[i];
	return all > 0 ? kept / all : 0;
}

/* Sets axes[], and their share of the variance. */
static void
FindAxes(PipeannTeam *team, Axes *a)
{
	uint64		seed = SEED;

	if (PipeannTeamLeads(team))
		for (Size i = 0; i < (Size) AXES * a->dim; i++)
			a->moved[i] = (float) PipeannRandomBelow(&seed, 2001) - 1000;
	PipeannTeamMeet(team);
	Orthonormalise(team, a);
	for (int i = 0; i < ITERATIONS; i++)
	{
		float	   *row = PipeannArray(float, a->dim);

		/* sets moved[] to the axes times the covariance, without making that */
		PipeannTeamEach(team, k, SAMPLE, BLOCK)
		{
			for (int d = 0; d < a->dim; d++)
				row[d] = a->sample[(Size) d * SAMPLE + k];
			Times(row, a->axes, a->dim, a->projected + k * AXES);
		}
		pfree(row);
		PipeannTeamEach(team, d, a->dim, BLOCK)
			Times(a->sample + d * SAMPLE, a->projected, SAMPLE, a->moved + d * AXES);
		if (PipeannTeamLeads(team) && i == ITERATIONS - 1)
			a->judgement->kept = VarianceKept(a);
		PipeannTeamMeet(team);
		Orthonormalise(team, a);
	}
	/* once more, as the first time loses digits of columns that are nearly dependent */
	if (PipeannTeamLeads(team))
		memcpy(a->moved, a->axes, sizeof(float) * AXES * a->dim);
	PipeannTeamMeet(team);
	Orthonormalise(team, a);
}

/*
 * The axes in fixed point, as columns of tiles. They are rotated, so that all
 * have about the same share of each vector: then byte elements are enough.
 */
static int16 *
MakePanels(const Axes *a)
{
	int16	   *fixed = PipeannAlloc(mul_size(AXES * sizeof(int16), a->dim));
	int16	   *panels = PipeannAlloc(mul_size(AXES * sizeof(int16), a->dim));
	const int16 *columns[PIPEANN_TILE_COLUMNS];

	for (int d = 0; d < a->dim; d++)
	{
		float		row[AXES];

		memcpy(row, a->axes + (Size) d * AXES, sizeof(row));
		PipeannKernel->rotate(row, AXES, false);
		for (int k = 0; k < AXES; k++)
			fixed[(Size) k * a->dim + d] = (int16) rintf(row[k] * UNIT);
	}
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

/* Project a tile of n vectors in fixed point; returns how many are lost. */
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
				x[r][k + c] = dot[r * PIPEANN_TILE_COLUMNS + c] / (UNIT * BYTE_UNIT);
	}
	for (int r = 0; r < n; r++, out += AXES)
	{
		double		square = 2.0 * f->half_norm[at + r];
		double		kept;

		PipeannVectorFromFloat(x[r], PIPEANN_INT8, AXES, out);
		kept = PipeannKernel->dot_pair[PIPEANN_INT8] (out, out, AXES) *
			(BYTE_UNIT * BYTE_UNIT);
		lost += kept < LEAST_KEPT * square || square > SHORTENED;
	}
	return lost;
}

static void
Project(PipeannTeam *team, const Axes *a, const PipeannVectors *v,
		PipeannVectors *reduced)
{
	int16	   *panels = MakePanels(a);
	PipeannFixed f;

	PipeannFixedInit(NULL, &a->scale, v, SLICE, &f);
	PipeannTeamSlices(team, from, to, v->n, SLICE)
	{
		uint32		lost = 0;

		for (uint32 i = from; i < to; i++)
			PipeannFixedSet(&f, i - from, v, i);
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
 * Bytes that PipeannReduce() may work with, and for each vector those of its result;
 * 0 if such vectors are never reduced. Only v's description is used, not its data.
 */
Size
PipeannReduceMemory(const PipeannVectors *v, Size *each)
{
	Size		row = mul_size(v->dim + 1, sizeof(float));
	bool		may = v->n >= LEAST_VECTORS && v->dim >= LEAST_DIM &&
		v->dim <= MOST_DIM && !PipeannComparesStored(v);

	*each = may ? AXES : 0;
	return *each == 0 ? 0 : mul_size(row, SAMPLE + 2 * AXES) +
		AXES * ((SAMPLE + AXES) * sizeof(float) + AXES * sizeof(double));
}

/*
 * Whether vectors of PIPEANN_REDUCED_DIM dimensions are good enough to build a
 * graph of v. If so sets *reduced to them, with squared Euclidean distances in
 * proportion to v's measure; else leaves it unchanged. All members call.
 */
bool
PipeannReduce(PipeannTeam *team, const PipeannVectors *v,
			  PipeannVectors *reduced)
{
	Size		stride;
	Size		row;
	Axes		a;
	bool		suits;
	PipeannFixed f;

	(void) PipeannReduceMemory(v, &stride);
	if (stride == 0)
		return false;
	PipeannFixedScaleInit(&a.scale, v, SEED);
	a.dim = a.scale.fixed_dim;
	row = mul_size(a.dim, sizeof(float));
	a.sample = PipeannTeamAlloc(team, mul_size(row, SAMPLE));
	a.projected = PipeannTeamArray(team, float, SAMPLE * AXES);
	a.axes = PipeannTeamAlloc(team, mul_size(row, AXES));
	a.moved = PipeannTeamAlloc(team, mul_size(row, AXES));
	a.products = PipeannTeamArray(team, double, AXES * AXES);
	a.solution = PipeannTeamArray(team, float, AXES * AXES);
	a.judgement = PipeannTeamAlloc(team, sizeof(Judgement));
	/* evenly spaced vectors, moved so that their mean is zero, dimension by dimension */
	PipeannFixedInit(NULL, &a.scale, v, 1, &f);
	PipeannTeamEach(team, i, SAMPLE, BLOCK)
	{
		PipeannFixedSet(&f, 0, v, (uint32) (i * v->n / SAMPLE));
		for (int d = 0; d < a.dim; d++)
			a.sample[(Size) d * SAMPLE + i] = PipeannFixedAt(&f, 0)[d] / UNIT;
	}
	PipeannFixedFree(NULL, &f);
	FindAxes(team, &a);
	suits = a.judgement->kept >= LEAST_VARIANCE;
	if (suits)
	{
		PipeannVectors projected = {
			.n = v->n,.dim = AXES,.storage = PIPEANN_INT8,
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
	PipeannTeamFree(team, a.projected);
	PipeannTeamFree(team, a.axes);
	PipeannTeamFree(team, a.moved);
	PipeannTeamFree(team, a.products);
	PipeannTeamFree(team, a.solution);
	PipeannTeamFree(team, a.judgement);
	return suits;
}
