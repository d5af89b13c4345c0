/*
 * sparse.c
 *		Sparse vectors: their projection, and forms of other lengths.
 */
#include "distance/sparse.h"

#include <float.h>
#include <math.h>

/*
 * The number of dimensions of the projection to which an element is added. They follow from its
 * index alone, so the projection is the same everywhere, and nothing has to be stored for it.
 */
#define SPREAD 4

/* Bits of a dimension's number, and one of a sign. */
#define PLACE_BITS 11

/* The finalizer of MurmurHash3. */
static uint64
Mix(uint64 h)
{
	h = (h ^ h >> 33) * UINT64_C(0xff51afd7ed558ccd);
	h = (h ^ h >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
	return h ^ h >> 33;
}

/*
 * x[PIPEANN_SPARSE_DIM] = the projection of a form in this much room: sums of its elements
 * with random signs, so that the product of two projections is on average that of the
 * vectors. It has the vector's length, and is computed from its direction, so that sums do
 * not overflow. If wanted, roots are projected, each with its element's sign.
 */
void
PipeannSparseProject(const void *form, int room, bool roots, float *x)
{
	PipeannSparse v = PipeannSparseIn(form, room);
	double		norm = 0;
	double		have = 0;
	double		scale;

	memset(x, 0, PIPEANN_SPARSE_DIM * sizeof(float));
	for (int i = 0; i < v.n; i++)
		norm += roots ? fabs(v.values[i]) : (double) v.values[i] * v.values[i];
	if (!(norm > 0))
		return;
	norm = sqrt(norm);
	for (int i = 0; i < v.n; i++)
	{
		uint64		h = Mix((uint64) v.indices[i] + 1);
		double		element = roots ? copysign(sqrt(fabs(v.values[i])), v.values[i]) :
			v.values[i];
		float		value = (float) (element / norm);

		for (int k = 0; k < SPREAD; k++, h >>= PLACE_BITS)
			x[(h >> 1) % PIPEANN_SPARSE_DIM] += h & 1 ? value : -value;
	}
	for (int d = 0; d < PIPEANN_SPARSE_DIM; d++)
		have += (double) x[d] * x[d];
	if (have == 0)
		x[0] = 1;				/* all elements have met their negatives */
	scale = have == 0 ? norm : norm / sqrt(have);
	for (int d = 0; d < PIPEANN_SPARSE_DIM; d++)
		x[d] = (float) Max(Min(x[d] * scale, FLT_MAX), -FLT_MAX);
}

/* A form of length 1, unless it is zero. */
void
PipeannSparseNormalize(const void *form, void *to)
{
	PipeannSparse v = PipeannSparseOf(form);
	float	   *values = (float *) to + 1 + v.n;
	double		sum = 0;

	memmove(to, form, PipeannSparseWords(form) * sizeof(int32));
	for (int i = 0; i < v.n; i++)
		sum += (double) v.values[i] * v.values[i];
	for (int i = 0; i < v.n && sum > 0; i++)
		values[i] = (float) (values[i] / sqrt(sum));
}

static int
CompareSizes(const void *a, const void *b)
{
	float		x = *(const float *) a;
	float		y = *(const float *) b;

	return (x < y) - (x > y);
}

/*
 * Copy a form that may be indexed to a storage's room, without the smallest elements if
 * that does not hold all of them; zeroes follow.
 */
void
PipeannSparseCut(const void *form, PipeannStorage storage, void *to)
{
	PipeannSparse v = PipeannSparseIn(form, PIPEANN_MAX_INDEXED_NONZERO);
	int			room = PipeannSparseRoom(storage);
	float		sizes[PIPEANN_MAX_INDEXED_NONZERO];
	int			n = Min(v.n, room);
	int			equal = n;		/* of the least size that there is room for */
	int32	   *words = to;
	int			taken = 0;

	memset(to, 0, PipeannVectorBytes(storage, PIPEANN_SPARSE_DIM));
	for (int i = 0; i < v.n; i++)
		sizes[i] = fabsf(v.values[i]);
	qsort(sizes, v.n, sizeof(float), CompareSizes);
	for (int i = 0; i < n; i++)
		equal -= sizes[i] > sizes[n - 1];
	words[0] = n;
	for (int i = 0; i < v.n; i++)
	{
		float		size = fabsf(v.values[i]);

		/* NaN, as on a broken page, is neither less nor equal */
		if (taken == n || size < sizes[n - 1] ||
			(size == sizes[n - 1] && equal-- <= 0))
			continue;
		words[1 + taken] = v.indices[i];
		memcpy(&words[1 + n + taken], &v.values[i], sizeof(float));
		taken++;
	}
}
