/*
 * rounding.c
 *		What halves lose of a vector.
 *
 * Halves take half the room of floats, so that twice as many nodes share a page,
 * and lose what next to never matters: of MiniLM's ten nearest rows, one is nearer
 * to its neighbour in order than halves can tell. What they lose is kept as a bound
 * (PipeannRounding), and the executor compares the rows' own vectors where it says
 * that this is needed (scan.c).
 */
#include "postgres.h"

#include <float.h>
#include <math.h>

#include "index/index.h"
#include "distance/distance.h"

/* Halves hold 11 bits; a vector that loses more than twice that is not for them. */
#define MOST_LOST (1.0 / 1024)

/* Euclidean distance of a vector from itself in halves. */
static double
Lost(const float *x, int dim)
{
	double		sum = 0;

	for (int i = 0; i < dim; i++)
	{
		double		lost = (double) x[i] -
			PipeannHalfToFloat(PipeannFloatToHalf(x[i]));

		sum += lost * lost;
	}
	return sqrt(sum);
}

/* The least float of which only the upper half is not zero that is no less. */
static uint16
UpperHalf(double value)
{
	float		f = (float) value;
	uint32		bits;

	if (!(value < FLT_MAX / 2))
		return 0;
	memcpy(&bits, &f, sizeof(bits));
	/* one more: the conversion may have rounded down */
	return (uint16) ((bits >> 16) + 1);
}

/* Zeroes of either sign are one number. */
uint32
PipeannVectorHash(const float *x, int dim)
{
	uint64		hash = 0;

	for (int i = 0; i < dim; i++)
	{
		float		f = x[i] + 0.0f;
		uint32		bits;

		memcpy(&bits, &f, sizeof(bits));
		hash = (hash ^ bits) * UINT64CONST(0x9E3779B97F4A7C15);
		hash ^= hash >> 29;
	}
	return (uint32) (hash >> 32) ^ (uint32) hash;
}

bool
PipeannRound(const float *x, double norm, int dim, PipeannRounding *rounding)
{
	double		lost = Lost(x, dim);

	rounding->error = UpperHalf(lost + PIPEANN_ARITHMETIC_ERROR(dim) * norm);
	rounding->hash = PipeannVectorHash(x, dim);
	return lost <= norm * MOST_LOST;
}

/* Halves that the user chose round whatever comes. */
bool
PipeannIsOutOfLine(const PipeannMeta *meta, const float *x, double norm)
{
	const PipeannLayout *l = &meta->layout;

	if (l->storage == PIPEANN_FLOAT2 &&
		!(meta->flags & PIPEANN_META_AUTO_STORAGE))
		return false;
	return !PipeannIsStorable(x, norm, l->storage, l->dim);
}

bool
PipeannIsStorable(const float *x, double norm, PipeannStorage storage, int dim)
{
	return storage == PIPEANN_FLOAT2 ? Lost(x, dim) <= norm * MOST_LOST :
		PipeannVectorFits(x, storage, dim);
}
