/*
 * bounds_test.c
 *		Distances of rounded vectors: the bounds hold, and are close.
 */
#include "unit.h"

#include "distance/distance.h"
#include "storage/slot.h"
#include "search/search.h"

#define MAX_DIM 4096
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const int dims[] = {1, 3, 32, 100, 384, 1536, MAX_DIM};
static const PipeannStorage storages[] = {
	PIPEANN_FLOAT2, PIPEANN_SQ12, PIPEANN_SQ13, PIPEANN_SQ14
};
static const PipeannMetric metrics[] = {PIPEANN_L2, PIPEANN_IP, PIPEANN_COSINE,
PIPEANN_L1};

/* A vector, the same in a storage that rounds, and a query. */
typedef struct Case
{
	int			dim;
	float		x[MAX_DIM];
	PipeannStorage storage;
	char		form[2 * MAX_DIM];
	float		rounded[MAX_DIM];
	float		query[MAX_DIM];
	double		norm;
	double		lost;
} Case;

static double
Norm(const float *x, int dim)
{
	double		sum = 0;

	for (int i = 0; i < dim; i++)
		sum += (double) x[i] * x[i];
	return sqrt(sum);
}

/* Queries are at a distance of reach times the vector's length. */
static void
MakeCase(Case *c, PipeannStorage storage, int dim, float scale, float reach,
		 uint64 *random)
{
	double		lost = 0;

	c->dim = dim;
	c->storage = storage;
	for (int i = 0; i < dim; i++)
	{
		c->x[i] = UnitRandomFloat(random, -scale, scale);
		c->query[i] = c->x[i] + UnitRandomFloat(random, -scale, scale) * reach;
	}
	PipeannVectorFromFloat(c->x, storage, dim, c->form);
	PipeannVectorToFloat(c->form, storage, dim, c->rounded);
	for (int i = 0; i < dim; i++)
		lost += ((double) c->x[i] - c->rounded[i]) *
			((double) c->x[i] - c->rounded[i]);
	c->norm = Norm(c->x, dim);
	c->lost = sqrt(lost);
}

static void
Normalize(float *x, int dim)
{
	double		norm = Norm(x, dim);

	for (int i = 0; i < dim; i++)
		x[i] = (float) (x[i] / norm);
}

/* In the distance's own units, to the last bit. */
static double
Truth(const Case *c, PipeannMetric metric)
{
	double		square = 0;
	double		sizes = 0;
	double		dot = 0;

	for (int i = 0; i < c->dim; i++)
	{
		double		diff = (double) c->query[i] - c->x[i];

		square += diff * diff;
		sizes += fabs(diff);
		dot += (double) c->query[i] * c->x[i];
	}
	if (metric == PIPEANN_L2)
		return sqrt(square);
	if (metric == PIPEANN_L1)
		return sizes;
	return metric == PIPEANN_IP ? -dot :
		1 - dot / (c->norm * Norm(c->query, c->dim));
}

static void
CheckCase(const Case *c, PipeannMetric metric)
{
	PipeannLayout layout = {.dim = c->dim,.metric = metric,
	.storage = c->storage};
	static float query[MAX_DIM];
	static float rotated[MAX_DIM];
	PipeannBounds bounds;
	float		error = (float) ((c->lost + PIPEANN_ARITHMETIC_ERROR(c->dim) *
								  c->norm) * 1.000001);
	float		aux = metric == PIPEANN_COSINE ? (float) (1 / c->norm) : 0;
	double		truth = Truth(c, metric);
	double		unit = metric == PIPEANN_L2 ? 1 :
		metric == PIPEANN_L1 ? sqrt(c->dim) : metric == PIPEANN_IP ? Norm(c->query, c->dim) : 1 / c->norm;
	float		dist;
	float		least;
	float		most;

	memcpy(query, c->query, sizeof(float) * c->dim);
	if (metric == PIPEANN_COSINE)
		Normalize(query, c->dim);
	PipeannBoundsInit(&bounds, &layout, query);
	dist = PipeannExactDistance(&layout, PipeannQueryFor(c->storage, query, c->dim, rotated),
								c->form, c->storage, aux);
	PipeannBoundsOf(&bounds, dist, error, aux, &least, &most);

	CHECK(least <= dist && dist <= most);
	CHECK(PipeannSqlDistance(metric, least) <= truth);
	CHECK(truth <= PipeannSqlDistance(metric, most));

	/* no farther apart than the error and some arithmetic */
	CHECK(PipeannSqlDistance(metric, most) - PipeannSqlDistance(metric, least) <=
		  unit * (2.1 * error + 1e-4 * fabs(truth) / unit + 1e-5 * c->norm));
}

static void
BoundsHoldTheTruth(void)
{
	static Case c;
	uint64		random = 20;

	for (int d = 0; d < (int) LENGTH(dims); d++)
		for (float scale = 1e-3f; scale < 1e5f; scale *= 30)
			for (float reach = 1e-4f; reach < 1e3f; reach *= 10)
				for (int i = 0; i < 3 * (int) LENGTH(storages); i++)
				{
					PipeannStorage storage = storages[i / 3];

					if (PipeannSqBits(storage) > 0 && !PipeannSqSuits(dims[d]))
						continue;
					MakeCase(&c, storage, dims[d], scale, reach, &random);
					for (int m = 0; m < (int) LENGTH(metrics); m++)
						if (PipeannSqBits(storage) == 0 || metrics[m] != PIPEANN_L1)
							CheckCase(&c, metrics[m]);
				}
}

/* What is no finite number has no bounds. */
static void
BoundsOfInfinity(void)
{
	PipeannLayout layout = {.dim = 2,.storage = PIPEANN_FLOAT2};
	const float query[2] = {3e38f, 3e38f};
	const float dists[] = {INFINITY, -INFINITY, NAN, 3e38f};

	for (int m = 0; m < (int) LENGTH(metrics); m++)
		for (int i = 0; i < (int) LENGTH(dists); i++)
		{
			PipeannBounds bounds;
			float		least;
			float		most;

			layout.metric = metrics[m];
			PipeannBoundsInit(&bounds, &layout, query);
			PipeannBoundsOf(&bounds, dists[i], 2e38f, 2e38f, &least, &most);
			CHECK(memcmp(&least, &dists[i], sizeof(float)) == 0 &&
				  memcmp(&most, &dists[i], sizeof(float)) == 0);
		}
}

/* A node knows its error only where half precision has rounded it, and nothing absurd. */
static void
SlotsKnowTheirError(void)
{
	PipeannLayout half = {.storage = PIPEANN_FLOAT2};
	PipeannLayout floats = {.storage = PIPEANN_FLOAT4};
	PipeannLayout exact = {.storage = PIPEANN_FLOAT2,.type = PIPEANN_HALFVEC};
	PipeannRounding rounding = {0x3F81, 77};
	PipeannSlot slot;

	memset(&slot, 0, sizeof(slot));
	slot.flags = PIPEANN_SLOT_USED;
	slot.ext_vec = PIPEANN_INVALID_ID;
	PipeannSlotSetRounding(&slot, &rounding);
	CHECK(PipeannSlotError(&half, &slot) == 1.0078125f && slot.hash == 77);
	CHECK(PipeannSlotError(&floats, &slot) == 0);
	CHECK(PipeannSlotError(&exact, &slot) == 0);
	slot.flags |= PIPEANN_SLOT_OUT_OF_LINE;
	CHECK(PipeannSlotError(&half, &slot) == 0);
	slot.flags = PIPEANN_SLOT_USED;
	slot.error = 0x7F80;		/* infinity */
	CHECK(PipeannSlotError(&half, &slot) == 0);
	slot.error = 0xFFC0;		/* no number */
	CHECK(PipeannSlotError(&half, &slot) == 0);
	slot.error = 0xBF80;		/* less than nothing */
	CHECK(PipeannSlotError(&half, &slot) == 0);

	/* unknown: what stands there is a chain's end */
	rounding.error = 0;
	slot.ext_vec = PIPEANN_INVALID_ID;
	PipeannSlotSetRounding(&slot, &rounding);
	CHECK(PipeannSlotError(&half, &slot) == 0 &&
		  slot.ext_vec == PIPEANN_INVALID_ID);
}

int
main(void)
{
	PipeannKernelsInit();
	UNIT_RUN(BoundsHoldTheTruth);
	UNIT_RUN(BoundsOfInfinity);
	UNIT_RUN(SlotsKnowTheirError);
	return UnitDone();
}
