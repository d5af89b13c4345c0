/*
 * fixed.c
 *		Vectors in fixed point, and sketches of them (internal.h).
 */
#include "base/base.h"

#include <math.h>

#include "base/random.h"
#include "graph/internal.h"

/* Rows of the sample for offset and scale; and if these are needed only for sketches. */
#define MAX_SAMPLE 4096
#define FEW_SAMPLES 256

/* One in this many rows may be farther from the mean than usual. */
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

/* Shifts a usual vector's product with a hyperplane into the 16 bits of a sketch. */
#define SKETCH_SHIFT 7

/* Vectors that one member converts at a time. */
#define FIXED_SLICE 256

/*
 * The embedded vector as floats, x[dim or dim + 1]; a quantised one as it is
 * stored, rotated, which does not change distances.
 */
static void
Embed(const PipeannVectors *v, uint32 i, float *x)
{
	PipeannKernel->to_float[v->storage] (PipeannVectorAt(v, i), v->dim, x);
	if (v->metric == PIPEANN_COSINE)
		for (int d = 0; d < v->dim; d++)
			x[d] *= v->aux[i];
	if (v->metric == PIPEANN_IP)
		x[v->dim] = v->aux[i];
}

/* How far x is from the mean. */
static double
DistanceFromMean(const PipeannFixedScale *s, const float *x)
{
	double		squares = 0;

	for (int d = 0; d < s->dim; d++)
		squares += pow((double) x[d] - s->offset[d], 2);
	return sqrt(squares);
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
	double	   *sorted = PipeannArray(double, Max(m, 1));
	double		usual;

	memcpy(sorted, distance, m * sizeof(double));
	qsort(sorted, m, sizeof(double), CompareDoubles);
	usual = m > 0 ? sorted[m - 1 - m / FEW_FAR] : 0;
	pfree(sorted);
	return usual;
}

/*
 * A few vectors far from all others, such as broken rows, must not make the
 * others small, so mean and spread ignore them.
 */
static void
SetOffsetAndScale(PipeannFixedScale *s, const PipeannVectors *v)
{
	uint32		m = Min(v->n, PipeannComparesStored(v) ? FEW_SAMPLES : MAX_SAMPLE);
	int			rounds = s->bits ? 1 : ROUNDS;
	float	   *x = PipeannArray(float, s->dim);
	double	   *distance = PipeannAllocZero(mul_size(Max(m, 1),
													 sizeof(double)));
	double		usual = 0;

	for (int round = 0; round < rounds; round++)
	{
		double	   *sum = PipeannAllocZero(mul_size(s->dim, sizeof(double)));
		uint32		n = 0;

		/* set s->offset to the mean of the rows whose distance[] is at most usual */
		for (uint32 k = 0; k < m; k++)
		{
			CHECK_FOR_INTERRUPTS();
			if (distance[k] > usual)
				continue;
			Embed(v, PipeannPartOf(v->n, k, m), x);
			for (int d = 0; d < s->dim; d++)
				sum[d] += x[d];
			n++;
		}
		for (int d = 0; d < s->dim; d++)
			s->offset[d] = n > 0 ? (float) (sum[d] / n) : 0;
		pfree(sum);
		for (uint32 k = 0; k < m && !s->bits; k++)
		{
			CHECK_FOR_INTERRUPTS();
			Embed(v, PipeannPartOf(v->n, k, m), x);
			distance[k] = DistanceFromMean(s, x);
		}
		usual = UsualDistance(distance, m);
	}
	s->scale = usual > 0 ? (float) (SPREAD / usual) : 1;
	pfree(distance);
	pfree(x);
}

void
PipeannFixedScaleInit(PipeannFixedScale *s, const PipeannVectors *v, uint64 seed)
{
	s->dim = v->dim + (v->metric == PIPEANN_IP);
	s->fixed_dim = (s->dim + 1) / 2 * 2;
	s->offset = PipeannArray(float, s->dim);
	s->pair = NULL;
	s->bits = v->storage == PIPEANN_BITS;
	SetOffsetAndScale(s, v);
	if (s->bits)
	{
		int			words = (v->dim + 31) / 32 * 2;

		/* distances from random strings are projections to axes with elements of 1 and -1 */
		s->planes = PipeannArray(int16, mul_size(words, PIPEANN_SKETCH));
		for (int i = 0; i < words * PIPEANN_SKETCH; i++)
			s->planes[i] = (int16) (PipeannRandomNext(&seed) >> 32);
		for (int d = 0; d < v->dim; d++)
			s->offset[d] = s->offset[d] > 0.5f;
		PipeannVectorFromFloat(s->offset, PIPEANN_BITS, v->dim, s->offset);
	}
	else
	{
		/* the sum of four uniform numbers is close enough to normally distributed */
		s->planes = PipeannArray(int16, mul_size(s->fixed_dim, PIPEANN_SKETCH));
		for (int i = 0; i < s->fixed_dim * PIPEANN_SKETCH; i++)
		{
			int			sum = 0;

			for (int k = 0; k < 4; k++)
				sum += (int) PipeannRandomBelow(&seed, 2 * PLANE + 1) - PLANE;
			s->planes[i] = (int16) (sum / 4);
		}
	}
	s->jaccard = v->metric == PIPEANN_JACCARD;
	s->squared = v->metric == PIPEANN_L1;
	if (PipeannComparesStored(v))
	{
		uint32		m = Min(v->n, MAX_SAMPLE);
		double	   *distance = PipeannArray(double, Max(m, 1));
		double		usual;

		/* scale the usual distance as in fixed point; Manhattan distances are squared */
		s->pair = PipeannPairKernel(v->metric, v->storage);
		for (uint32 k = 0; k < m; k++)
			distance[k] = s->pair(PipeannVectorAt(v, PipeannPartOf(v->n, k, m)),
								  PipeannVectorAt(v, PipeannPartOf(v->n, (k + 1) % m, m)), v->dim);
		usual = UsualDistance(distance, m);
		s->pair_scale = usual > 0 ? (s->squared ? SPREAD : SPREAD * SPREAD) / usual : 1;
		/* of bits whole numbers are counted, up to all of them */
		if (s->bits && !s->jaccard)
			s->pair_scale = (int) Min(s->pair_scale, INT32_MAX / (s->dim + 1));
		pfree(distance);
	}
}

static double
Square(const int16 *x, int dim)
{
	int64		sum = 0;

	for (int d = 0; d < dim; d++)
		sum += (int32) x[d] * x[d];
	return (double) sum;
}

/*
 * Room for n vectors like v's; for all of v's own, which need no copies where stored
 * vectors are compared, if there is a team, whose members all call.
 */
void
PipeannFixedInit(PipeannTeam *team, const PipeannFixedScale *s, const PipeannVectors *v,
				 uint32 n, PipeannFixed *f)
{
	bool		own = team == NULL || s->pair == NULL ||
		(s->bits && v->stride % 4 != 0);

	f->scale = s;
	f->n = n;
	f->row_bytes = PipeannVectorBytes(v->storage, v->dim);
	f->dim = PipeannRowWords(s, f->row_bytes);
	f->stride = own ? f->dim * sizeof(int16) : v->stride;
	f->own_rows = own ? PipeannTeamAlloc(team, mul_size(n, f->stride)) : NULL;
	f->rows = own ? f->own_rows : v->data;
	f->half_norm = PipeannTeamArray(team, int32, n);
	f->sketch = NULL;
	f->float_x = PipeannArray(float, s->dim);
}

/* Row r of v in fixed point, at out; returns half of its squared length. */
static int32
InFixedPoint(const PipeannFixed *f, const PipeannVectors *v, uint32 r, int16 *out)
{
	const PipeannFixedScale *s = f->scale;
	float	   *x = f->float_x;
	double		square;

	Embed(v, r, x);
	PipeannKernel->to_fixed(x, s->offset, s->scale, s->dim, out);
	if (s->fixed_dim > s->dim)
		out[s->dim] = 0;
	square = Square(out, s->dim);
	if (square > LONGEST * LONGEST)
	{
		float		shorter = LONGEST * 0.999 / DistanceFromMean(s, x);

		PipeannKernel->to_fixed(x, s->offset, shorter, s->dim, out);
		square = Square(out, s->dim);
	}
	/* elements near the largest float: their differences are infinite or NaN */
	if (square > LONGEST * LONGEST)
	{
		memset(out, 0, s->dim * sizeof(int16));
		square = 0;
	}
	return (int32) (square / 2);
}

/* Set vector i to row r of v. */
void
PipeannFixedSet(PipeannFixed *f, uint32 i, const PipeannVectors *v, uint32 r)
{
	int16	   *at = (int16 *) PipeannFixedAt(f, i);

	if (f->scale->pair == NULL)
		f->half_norm[i] = InFixedPoint(f, v, r, at);
	else
	{
		memset(at + f->dim - PIPEANN_TILE_DIM, 0, PIPEANN_TILE_DIM * sizeof(int16));
		memcpy(at, PipeannVectorAt(v, r), f->row_bytes);
	}
}

/* All vectors, with sketches. All members call. */
void
PipeannFixedMake(PipeannTeam *team, const PipeannFixedScale *s,
				 const PipeannVectors *v, PipeannFixed *f)
{
	int16	   *buffer = s->pair == NULL || s->bits ? NULL :
		PipeannArray(int16, FIXED_SLICE * s->fixed_dim);

	PipeannFixedInit(team, s, v, v->n, f);
	f->sketch = PipeannTeamArray(team, int16, mul_size(v->n, PIPEANN_SKETCH));
	PipeannTeamSlices(team, from, to, v->n, FIXED_SLICE)
	{
		int			n = to - from;
		int16	   *x = buffer != NULL ? buffer : (int16 *) PipeannFixedAt(f, from);
		Size		stride = buffer != NULL ? (Size) s->fixed_dim : f->stride / sizeof(int16);
		int16	   *sketch = f->sketch + from * PIPEANN_SKETCH;
		const int16 *rows[PIPEANN_TILE_ROWS];
		int32		dot[PIPEANN_TILE_ROWS * PIPEANN_TILE_COLUMNS];

		for (uint32 i = from; i < to; i++)
		{
			if (!s->bits)
				f->half_norm[i] = InFixedPoint(f, v, i, x + (i - from) * stride);
			else
				f->half_norm[i] = (int32) PipeannKernel->l2_pair[PIPEANN_BITS] (PipeannVectorAt(v, i), s->offset, v->dim);
			if (s->bits && f->own_rows != NULL)
				PipeannFixedSet(f, i, v, i);
		}
		for (; n > 0; n -= PIPEANN_TILE_ROWS, x += PIPEANN_TILE_ROWS * stride)
		{
			int			count = Min(n, PIPEANN_TILE_ROWS);

			for (int r = 0; r < PIPEANN_TILE_ROWS; r++)
				rows[r] = x + Min(r, count - 1) * stride;
			if (s->bits)
				PipeannKernel->bit_tile(rows, s->planes, f->dim, false, dot);
			else
				PipeannKernel->dot_tile(rows, s->planes, s->fixed_dim, dot);
			for (int k = 0; k < count * PIPEANN_SKETCH; k++)
				*sketch++ = s->bits ? (int16) (dot[k] - v->dim / 2) :
					(int16) Max(Min(dot[k] >> SKETCH_SHIFT, INT16_MAX), INT16_MIN);
		}
	}
	if (buffer != NULL)
		pfree(buffer);
}
