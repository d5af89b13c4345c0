/*
 * strays.c
 *		Nodes whose codes err far more than those of others.
 */
#include "pq/strays.h"

#include "distance/distance.h"

/* By so much, relatively, distances in single precision may be wrong here. */
#define ROUNDING 1e-4f

/*
 * Whether a node strays whose x[dim] has this code, by the error that stray has of it and
 * the usual one. If so, the rest of what is to be known.
 */
bool
PipeannStrayMake(const PipeannPq *pq, PipeannMetric metric, const float *x,
				 const uint8 *code, float usual, PipeannStray *stray)
{
	float	   *decoded;

	if (!PipeannHasStrayed(stray->error, usual))
		return false;
	decoded = PipeannArray(float, pq->dim);
	PipeannPqDecode(pq, code, decoded);
	stray->code_square = PipeannKernel->dot[PIPEANN_FLOAT4] (decoded, decoded,
															 pq->dim);
	stray->square = metric == PIPEANN_L1 ?
		PipeannKernel->l1[PIPEANN_FLOAT4] (x, decoded, pq->dim) :
		PipeannKernel->dot[PIPEANN_FLOAT4] (x, x, pq->dim);
	pfree(decoded);
	return true;
}

/*
 * Whether the code of another node is so near to a stray's that by codes the two are hard
 * to tell apart.
 */
bool
PipeannCodesAlike(const PipeannPq *pq, const PipeannStray *stray,
				  const uint8 *code, const uint8 *other)
{
	float		left = PIPEANN_ALIKE * fabsf(stray->error);

	for (int j = 0; j < pq->nsubvectors && left >= 0; j++)
	{
		const float *a = pq->centroids + pq->offset[j] + code[j];
		const float *b = pq->centroids + pq->offset[j] + other[j];

		for (int d = 0; d < pq->len[j]; d++)
		{
			float		diff = a[(Size) d * PIPEANN_CENTROIDS] -
				b[(Size) d * PIPEANN_CENTROIDS];

			left -= diff * diff;
		}
	}
	return left >= 0;
}

/* Lonely ones come last, those that err more first; of equal ones that with the lower id. */
static bool
ComesFirst(const PipeannStray *a, const PipeannStray *b)
{
	if ((a->error > 0) != (b->error > 0))
		return a->error > 0;
	if (a->error != b->error)
		return fabsf(a->error) > fabsf(b->error);
	return a->id < b->id;
}

/*
 * A node has got a code, by which it is a stray, or not (NULL). Where there is no room
 * the last goes. The order in which nodes come does not matter.
 */
void
PipeannStraysSet(PipeannStrays *strays, uint32 id, const PipeannStray *stray)
{
	uint32		n = 0;
	uint32		at;

	for (uint32 i = 0; i < Min(strays->n, PIPEANN_MAX_STRAYS); i++)
		if (strays->items[i].id != id)
			strays->items[n++] = strays->items[i];
	strays->n = n;
	if (stray == NULL)
		return;
	for (at = n; at > 0 && ComesFirst(stray, &strays->items[at - 1]); at--)
		if (at < PIPEANN_MAX_STRAYS)
			strays->items[at] = strays->items[at - 1];
	if (at < PIPEANN_MAX_STRAYS)
	{
		strays->items[at] = *stray;
		strays->n = Min(n + 1, PIPEANN_MAX_STRAYS);
	}
}

/* An id whose bit is not among these is none, or a lonely one. */
uint64
PipeannStrayBits(const PipeannStrays *strays)
{
	uint64		bits = 0;

	for (uint32 i = 0; i < Min(strays->n, PIPEANN_MAX_STRAYS) && strays->items[i].error > 0; i++)
		bits |= PipeannStrayBit(strays->items[i].id);
	return bits;
}

const PipeannStray *
PipeannStrayFind(const PipeannStrays *strays, uint32 id)
{
	for (uint32 i = 0; i < Min(strays->n, PIPEANN_MAX_STRAYS) && strays->items[i].error > 0; i++)
		if (strays->items[i].id == id)
			return &strays->items[i];
	return NULL;
}

/*
 * The least order key that the vector may have for a query of this squared length, from
 * which its code is so far.
 *
 * |q - x| is at least the difference of |q - c| and |x - c|, whichever is larger: a
 * query near the code is far from the vector. An inner product follows from three lengths.
 */
float
PipeannStrayLeast(const PipeannStray *stray, PipeannMetric metric,
				  float query_square, float dist)
{
	float		error = sqrtf(stray->error);
	float		to_code = dist;
	float		least;

	if (metric == PIPEANN_JACCARD)
		return dist;			/* no difference of lengths bounds it */
	if (metric == PIPEANN_IP)
		to_code = query_square + stray->code_square + 2 * dist;
	if (metric == PIPEANN_COSINE)
		to_code = 2 * (dist + 1);
	to_code = sqrtf(Max(to_code, 0));
	least = fabsf(to_code - error) - ROUNDING * (to_code + error);
	least = least > 0 ? least * least : 0;
	if (metric == PIPEANN_IP)
		least = (least - query_square - stray->square) / 2;
	if (metric == PIPEANN_COSINE)
		least = least / 2 - 1;
	if (metric == PIPEANN_L1)
		least = fabsf(dist - stray->square) * (1 - ROUNDING);
	return isfinite(least) ? least : dist;
}
