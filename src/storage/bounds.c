/*
 * bounds.c
 *		How far a row may be from a query if its vector was rounded.
 *
 * With e the Euclidean distance between a vector and the rounded one, distances
 * from a query differ by e at most (triangle inequality), products by |query| e
 * (Cauchy-Schwarz), and cosines, of a normalised query, by e / |vector|, or less.
 * Manhattan distances differ by the Manhattan distance between the two, which is at most
 * e times the root of the dimensions (Cauchy-Schwarz again), and mostly little less.
 *
 * PostgreSQL's executor must not compute a distance below the bound that an
 * index gave it. It adds in any order, so that dim operations may all err to
 * one side. Such an error is too large a margin for deciding which rows are in
 * doubt, but it does no harm in the bound, which may be lower than it need be.
 */
#include "storage/slot.h"

/* Half an ulp of single precision, relative. */
#define EPSILON (1.0 / (1 << 24))

/* For distances from query[layout->dim] to nodes of this layout. */
void
PipeannBoundsInit(PipeannBounds *bounds, const PipeannLayout *layout,
				  const float *query)
{
	double		sum = 0;

	bounds->metric = layout->metric;
	bounds->dim = layout->dim;
	bounds->arithmetic = (float) PIPEANN_ARITHMETIC_ERROR(layout->dim);
	for (int i = 0; i < layout->dim; i++)
		sum += (double) query[i] * query[i];
	bounds->query_norm = (float) sqrt(sum);
	bounds->orthogonal = PipeannSqBits(layout->storage) > 0;
}

/*
 * A part of `dist` allows for arithmetic; for products the error includes it
 * already (PipeannRounding).
 */
static void
BoundsOfDistance(const PipeannBounds *bounds, float dist, float error,
				 float *least, float *most)
{
	float		margin = error + dist * bounds->arithmetic;

	*least = Max(dist - margin, 0);
	*most = dist + margin;
}

/* A vector that has lost a larger share of its norm may have lost everything. */
#define LARGE_SHARE 0.1f

/*
 * By how much a cosine, -dist, may err, where a vector has lost at most this share
 * of its norm. A quantised vector's error is orthogonal to the vector, except for
 * arithmetic, so only the query's component orthogonal to the vector counts.
 */
static float
CosineMargin(const PipeannBounds *bounds, float dist, float share)
{
	float		along = Max(fabsf(dist) - share, 0);

	if (!bounds->orthogonal || share > LARGE_SHARE || share < bounds->arithmetic)
		return share;
	return bounds->arithmetic + (share - bounds->arithmetic) *
		sqrtf(Max(1 - along * along, 0));
}

/*
 * The order keys between which a row's distance is, by that of its rounded
 * vector, dist, and the node's error (PipeannSlotError) and aux. Both are dist
 * if that is not finite.
 */
void
PipeannBoundsOf(const PipeannBounds *bounds, float dist, float error,
				float aux, float *least, float *most)
{
	float		margin = bounds->metric == PIPEANN_IP ?
		error * bounds->query_norm : CosineMargin(bounds, dist, error * aux);

	if (bounds->metric == PIPEANN_L2)
	{
		BoundsOfDistance(bounds, sqrtf(dist), error, least, most);
		*least *= *least;
		*most *= *most;
	}
	else if (bounds->metric == PIPEANN_L1)
		BoundsOfDistance(bounds, dist, error * sqrtf(bounds->dim), least, most);
	else
	{
		*least = dist - margin;
		*most = dist + margin;
	}
	if (!isfinite(dist) || !isfinite(*least) || !isfinite(*most))
		*least = *most = dist;
}
