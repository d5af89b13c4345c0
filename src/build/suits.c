/*
 * suits.c
 *		Which storage suits vectors.
 */
#include "postgres.h"

#include <math.h>

#include "build/rows.h"
#include "distance/distance.h"

/*
 * How far vectors may be from zero for half precision, in units of their
 * distance from their mean: rounding errs by 2e-4 of the former, while the
 * latter tells near vectors from far ones.
 */
#define MOST_OFFSET 5

/*
 * An error if x[dim] does not fit a storage that the user chose, which is kept; half
 * precision rounds, integers do not.
 */
void
PipeannRequireFit(PipeannStorage storage, const float *x, int dim)
{
	if (storage == PIPEANN_STORAGE_AUTO || storage == PIPEANN_FLOAT2 ||
		PipeannVectorFits(x, storage, dim))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
			 errmsg("vector does not fit the index's storage"),
			 errdetail("Storage int8 holds whole numbers from -128 to 127, uint8 from 0 to 255."),
			 errhint("Use storage = auto or float4.")));
}

/*
 * Whether half precision would lose what tells the first PIPEANN_MIN_JUDGED
 * vectors apart: they are much farther from zero than from one another.
 * Compares mean squares of the norms and of the distances from the mean; for
 * cosine, of normalised vectors, as only directions matter.
 */
bool
PipeannIsFarFromZero(const PipeannVectors *v)
{
	double	   *mean = palloc0(mul_size(v->dim, sizeof(double)));
	float	   *x = palloc(mul_size(v->dim, sizeof(float)));
	uint32		n = Min(v->n, PIPEANN_MIN_JUDGED);
	double		squares = 0;
	double		of_mean = 0;

	for (uint32 i = 0; i < n; i++)
	{
		double		scale = v->metric == PIPEANN_COSINE ? v->aux[i] : 1;

		PipeannVectorToFloat(PipeannVectorAt(v, i), v->storage, v->dim, x);
		for (int d = 0; d < v->dim; d++)
		{
			mean[d] += x[d] * scale / n;
			squares += pow(x[d] * scale, 2) / n;
		}
	}
	for (int d = 0; d < v->dim; d++)
		of_mean += mean[d] * mean[d];
	pfree(mean);
	pfree(x);
	return squares > (double) MOST_OFFSET * MOST_OFFSET * (squares - of_mean);
}
