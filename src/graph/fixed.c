/*
 * fixed.c
 *		Making vectors in fixed point.
 */
#include "base/base.h"

#include <math.h>

#include "base/random.h"
#include "distance/distance.h"
#include "graph/fixed.h"

/* Rows of the sample for offset and scale. */
#define MAX_SAMPLE 4096

/* One of so many rows may be farther from the mean than is usual. */
#define FEW_FAR 20

/* Rounds in which mean and usual distance are found. */
#define ROUNDS 3

/*
 * The usual distance from the mean becomes SPREAD. No vector is longer than
 * LONGEST: then squared distances fit 32 bits, and elements 16.
 */
#define SPREAD 8000.0
#define LONGEST ((double) PIPEANN_FIXED_MAX)

/* Elements of hyperplanes are within -PLANE .. PLANE. */
#define PLANE 127

/* Brings a vector of the usual length within the 16 bits of a sketch. */
#define SKETCH_SHIFT 7

/* Vectors made at once by one member. */
#define RUN 256

/* The embedded vector as floats, x[dim or dim + 1]. */
static void
Embed(const PipeannVectors *v, uint32 i, float *x)
{
	PipeannVectorToFloat(PipeannVectorAt(v, i), v->storage, v->dim, x);
	if (v->metric == PIPEANN_COSINE)
		for (int d = 0; d < v->dim; d++)
			x[d] *= v->aux[i];
	if (v->metric == PIPEANN_IP)
		x[v->dim] = v->aux[i];
}

/* Row k of a sample of m evenly spaced rows. */
static uint32
SampleRow(const PipeannVectors *v, uint32 k, uint32 m)
{
	return (uint32) ((uint64) k * v->n / m);
}

/* Sets s->offset to the mean of the rows of which distance[] is not above. */
static void
SetOffset(PipeannFixedScale *s, const PipeannVectors *v,
		  const double *distance, uint32 m, double limit, float *x)
{
	double	   *sum = PipeannAllocZero(mul_size(s->dim, sizeof(double)));
	uint32		n = 0;

	for (uint32 k = 0; k < m; k++)
	{
		CHECK_FOR_INTERRUPTS();
		if (distance[k] > limit)
			continue;
		Embed(v, SampleRow(v, k, m), x);
		for (int d = 0; d < s->dim; d++)
			sum[d] += x[d];
		n++;
	}
	for (int d = 0; d < s->dim; d++)
		s->offset[d] = n > 0 ? (float) (sum[d] / n) : 0;
	pfree(sum);
}

static void
SetDistances(const PipeannFixedScale *s, const PipeannVectors *v,
			 double *distance, uint32 m, float *x)
{
	for (uint32 k = 0; k < m; k++)
	{
		double		squares = 0;

		CHECK_FOR_INTERRUPTS();
		Embed(v, SampleRow(v, k, m), x);
		for (int d = 0; d < s->dim; d++)
			squares += pow((double) x[d] - s->offset[d], 2);
		distance[k] = sqrt(squares);
	}
}

static int
CompareDoubles(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return x < y ? -1 : x > y;
}

/* The distance that all but one of FEW_FAR do not exceed. */
static double
UsualDistance(const double *distance, uint32 m)
{
	double	   *sorted = PipeannAlloc(mul_size(Max(m, 1), sizeof(double)));
	double		usual;

	memcpy(sorted, distance, m * sizeof(double));
	qsort(sorted, m, sizeof(double), CompareDoubles);
	usual = m > 0 ? sorted[m - 1 - m / FEW_FAR] : 0;
	pfree(sorted);
	return usual;
}

/*
 * A few vectors far from all others, as broken rows are, must not make the
 * others small: so mean and spread are those of the others.
 */
static void
SetOffsetAndScale(PipeannFixedScale *s, const PipeannVectors *v)
{
	uint32		m = Min(v->n, MAX_SAMPLE);
	float	   *x = PipeannAlloc(mul_size(s->dim, sizeof(float)));
	double	   *distance = PipeannAllocZero(mul_size(Max(m, 1),
													 sizeof(double)));
	double		usual = 0;

	for (int round = 0; round < ROUNDS; round++)
	{
		SetOffset(s, v, distance, m, usual, x);
		SetDistances(s, v, distance, m, x);
		usual = UsualDistance(distance, m);
	}
	s->scale = usual > 0 ? (float) (SPREAD / usual) : 1;
	pfree(distance);
	pfree(x);
}

/* Sums of four uniform numbers are near enough to the normal distribution. */
static void
SetPlanes(PipeannFixedScale *s, uint64 seed)
{
	s->planes = PipeannAlloc(mul_size(s->fixed_dim, PIPEANN_SKETCH *
									  sizeof(int16)));
	for (int i = 0; i < s->fixed_dim * PIPEANN_SKETCH; i++)
	{
		int			sum = 0;

		for (int k = 0; k < 4; k++)
			sum += (int) PipeannRandomBelow(&seed, 2 * PLANE + 1) - PLANE;
		s->planes[i] = (int16) (sum / 4);
	}
}

/* Choose offset and scale by a sample of the vectors, and hyperplanes. */
void
PipeannFixedScaleInit(PipeannFixedScale *s, const PipeannVectors *v,
					  uint64 seed)
{
	s->dim = v->dim + (v->metric == PIPEANN_IP);
	s->fixed_dim = (s->dim + 1) / 2 * 2;
	s->offset = PipeannAlloc(mul_size(s->dim, sizeof(float)));
	SetOffsetAndScale(s, v);
	SetPlanes(s, seed);
}

static double
Square(const int16 *x, int dim)
{
	int64		sum = 0;

	for (int d = 0; d < dim; d++)
		sum += (int32) x[d] * x[d];
	return (double) sum;
}

/* The scale with which x becomes nearly as long as a vector may be. */
static float
ShorterScale(const PipeannFixedScale *s, const float *x)
{
	double		sum = 0;

	for (int d = 0; d < s->dim; d++)
		sum += pow((double) x[d] - s->offset[d], 2);
	return (float) (LONGEST * 0.999 / sqrt(sum));
}

/* Sets out[] to x[] in fixed point; returns half of its squared length. */
static int32
MakeOne(const PipeannFixedScale *s, const float *x, int16 *out)
{
	double		square;

	PipeannKernel->to_fixed(x, s->offset, s->scale, s->dim, out);
	if (s->fixed_dim > s->dim)
		out[s->dim] = 0;
	square = Square(out, s->dim);
	if (square > LONGEST * LONGEST)
	{
		PipeannKernel->to_fixed(x, s->offset, ShorterScale(s, x), s->dim, out);
		square = Square(out, s->dim);
	}
	/* elements near the largest float: their differences are not numbers */
	if (square > LONGEST * LONGEST)
	{
		memset(out, 0, s->dim * sizeof(int16));
		square = 0;
	}
	return (int32) (square / 2);
}

static void
MakeSketches(const PipeannFixedScale *s, PipeannFixed *f, uint32 from,
			 uint32 to)
{
	const int16 *rows[PIPEANN_TILE_ROWS];
	int32		dot[PIPEANN_TILE_ROWS * PIPEANN_TILE_COLUMNS];

	for (uint32 i = from; i < to; i += PIPEANN_TILE_ROWS)
	{
		int			n = Min(to - i, PIPEANN_TILE_ROWS);

		for (int r = 0; r < PIPEANN_TILE_ROWS; r++)
			rows[r] = PipeannFixedAt(f, i + Min(r, n - 1));
		PipeannKernel->dot_tile(rows, s->planes, f->dim, dot);
		for (int k = 0; k < n * PIPEANN_SKETCH; k++)
			f->sketch[(Size) i * PIPEANN_SKETCH + k] =
				(int16) Max(Min(dot[k] >> SKETCH_SHIFT, INT16_MAX), INT16_MIN);
	}
}

/* Room for n vectors, without sketches. All members call; or there is no team. */
void
PipeannFixedInit(PipeannTeam *team, const PipeannFixedScale *s, uint32 n,
				 PipeannFixed *f)
{
	f->n = n;
	f->dim = s->fixed_dim;
	f->x = PipeannTeamAlloc(team, mul_size(n, f->dim * sizeof(int16)));
	f->half_norm = PipeannTeamAlloc(team, mul_size(n, sizeof(int32)));
	f->sketch = NULL;
	f->float_x = PipeannAlloc(mul_size(s->dim, sizeof(float)));
}

/* Set one of them to row r of v. */
void
PipeannFixedSet(PipeannFixed *f, uint32 i, const PipeannFixedScale *s,
				const PipeannVectors *v, uint32 r)
{
	Embed(v, r, f->float_x);
	f->half_norm[i] = MakeOne(s, f->float_x, f->x + (Size) i * f->dim);
}

/* All vectors in fixed point, with sketches. All members call. */
void
PipeannFixedMake(PipeannTeam *team, const PipeannFixedScale *s,
				 const PipeannVectors *v, PipeannFixed *f)
{
	uint64		from;
	uint64		to;

	PipeannFixedInit(team, s, v->n, f);
	f->sketch = PipeannTeamAlloc(team, mul_size(v->n, PIPEANN_SKETCH *
												sizeof(int16)));
	PipeannTeamBegin(team, v->n, RUN);
	while (PipeannTeamNext(team, &from, &to))
	{
		for (uint32 i = from; i < to; i++)
			PipeannFixedSet(f, i, s, v, i);
		MakeSketches(s, f, from, to);
	}
	PipeannTeamEnd(team);
}

void
PipeannFixedFree(PipeannTeam *team, PipeannFixed *f)
{
	PipeannTeamFree(team, f->x);
	PipeannTeamFree(team, f->half_norm);
	if (f->sketch != NULL)
		PipeannTeamFree(team, f->sketch);
	pfree(f->float_x);
}
