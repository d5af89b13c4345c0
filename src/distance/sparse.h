/*
 * sparse.h
 *		Sparse vectors: their elements that are not zero.
 *
 * A form is their number n, n indices in ascending order, and n values, 4 bytes each, as
 * far as the storage has room for them. What is graph and codes for others is made of a
 * projection of a sparse vector, float[PIPEANN_SPARSE_DIM], as if that were the vector.
 * Distances are computed of the forms.
 *
 * For Manhattan distance it is a projection of the elements' roots, with their signs: a
 * squared distance between roots of equal sign, (sqrt a - sqrt b)^2, is at most |a - b|, and
 * that itself if one of them is zero, as nearly always one is. So the squared L2 of such a
 * storage is the sum of the differences, and all else is as by L2.
 *
 * A whole sparse vector in floats (PipeannFloats()) is its projection with its form behind
 * it: so it goes where vectors go.
 */
#ifndef PIPEANN_SPARSE_H
#define PIPEANN_SPARSE_H

#include "distance/distance.h"

typedef struct PipeannSparse
{
	int			n;
	const int32 *indices;
	const float *values;
} PipeannSparse;

/* A form in this much room, which it is never read beyond; it has to be aligned. */
static inline PipeannSparse
PipeannSparseIn(const void *form, int room)
{
	const int32 *words = form;
	int			n = Max(Min(words[0], room), 0);

	return (PipeannSparse) {
		.n = n,.indices = words + 1,.values = (const float *) (words + 1 + n)
	};
}

/* A form that was made in this process's memory. */
static inline PipeannSparse
PipeannSparseOf(const void *form)
{
	return PipeannSparseIn(form, PIPEANN_MAX_NONZERO);
}

/* The form behind a projection. */
static inline void *
PipeannSparseBehind(const float *x)
{
	return (void *) (x + PIPEANN_SPARSE_DIM);
}

/* Words of a form, without room for more. */
static inline int
PipeannSparseWords(const void *form)
{
	return 1 + 2 * PipeannSparseOf(form).n;
}

/* Limit a form's number of elements, read from disk, to what this many words hold. */
static inline void
PipeannSparseTrim(void *form, Size words)
{
	int32	   *n = form;

	*n = words == 0 ? 0 : Max(Min(*n, (int32) (words - 1) / 2), 0);
}

/* The storage with the least room for n elements, of those up to the one for whole vectors. */
static inline PipeannStorage
PipeannSparseFor(PipeannStorage whole, int n)
{
	PipeannStorage storage = whole - PIPEANN_SPARSE_SIZES + 1;

	while (storage < whole && PipeannSparseRoom(storage) < n)
		storage++;
	return storage;
}

/* Room for a whole vector in memory, in floats: dim, or for a sparse one more (see above). */
static inline int
PipeannFloats(PipeannStorage storage, int dim)
{
	return PipeannIsSparse(storage) ? dim + 1 + 2 * PIPEANN_MAX_NONZERO : dim;
}

/* Floats of a whole vector x. */
static inline int
PipeannFloatsOf(PipeannStorage storage, int dim, const float *x)
{
	return PipeannIsSparse(storage) ? dim + PipeannSparseWords(PipeannSparseBehind(x)) : dim;
}

/* sparse.c */
extern void PipeannSparseProject(const void *form, int room, bool roots,
								 float *x);
extern void PipeannSparseNormalize(const void *form, void *to);
extern void PipeannSparseCut(const void *form, PipeannStorage storage, void *to);

#endif							/* PIPEANN_SPARSE_H */
