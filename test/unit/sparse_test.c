/*
 * sparse_test.c
 *		Distances of sparse vectors against those of all their dimensions, what is left of
 *		a long one, its projection, and what comes of a broken one.
 */
#include "unit.h"

#include <math.h>

#include "distance/sparse.h"

#define DIM 3000

static uint64 random_state = 1;

typedef struct Form
{
	int32		words[1 + 2 * PIPEANN_MAX_NONZERO];
} Form;

/* A form of n elements at random indices, and the vector. */
static void
Fill(Form *form, float *dense, int n)
{
	int			taken = 0;

	memset(form, 0, sizeof(*form));
	memset(dense, 0, DIM * sizeof(float));
	form->words[0] = n;
	for (int i = 0; i < DIM; i++)
	{
		if (UnitRandom(&random_state) % (DIM - i) >= (uint32) (n - taken))
			continue;
		dense[i] = (float) ((int) (UnitRandom(&random_state) % 2001) - 1000) / 64 + 0.001f;
		form->words[1 + taken] = i;
		memcpy(&form->words[1 + n + taken], &dense[i], sizeof(float));
		taken++;
	}
	CHECK(taken == n);
}

static void
CheckDistances(int n, int m)
{
	static Form a;
	static Form b;
	static float x[DIM];
	static float y[DIM];
	double		l2 = 0;
	double		l1 = 0;
	double		dot = 0;
	double		size = 0;

	Fill(&a, x, n);
	Fill(&b, y, m);
	for (int i = 0; i < DIM; i++)
	{
		l2 += pow((double) x[i] - y[i], 2);
		l1 += fabs((double) x[i] - y[i]);
		dot += (double) x[i] * y[i];
		size += fabs((double) x[i] * y[i]);
	}
	for (PipeannStorage s = PIPEANN_SPARSE16; s < PIPEANN_NUM_STORAGE; s++)
	{
		if (m > PipeannSparseRoom(s))
			continue;
		CHECK(PipeannKernel->l2_pair[s] (&a, &b, DIM) ==
			  PipeannKernel->l2[s] (&a, &b, DIM));
		CHECK(PipeannKernel->l2[s] (&b, &b, DIM) == 0);
		if (s >= PIPEANN_ROOTS16)
		{
			CHECK(fabs(PipeannKernel->l2[s] (&a, &b, DIM) - l1) <= 1e-4 * l1);
			continue;
		}
		CHECK(fabs(PipeannKernel->l2[s] (&a, &b, DIM) - l2) <= 1e-4 * l2);
		CHECK(fabs(PipeannKernel->dot[s] (&a, &b, DIM) - dot) <= 1e-4 * size);
		CHECK(PipeannKernel->dot_pair[s] (&a, &b, DIM) ==
			  PipeannKernel->dot[s] (&a, &b, DIM));
	}
}

static void
DistancesOfAllLengths(void)
{
	const int	long_ones[] = {127, 511, 999, PIPEANN_MAX_INDEXED_NONZERO};

	for (int n = 0; n < 40; n++)
		for (int m = 0; m < 40; m++)
			CheckDistances(n, m);
	for (Size i = 0; i < lengthof(long_ones); i++)
		for (Size k = 0; k < lengthof(long_ones); k++)
			CheckDistances(long_ones[i], long_ones[k]);
	CheckDistances(2500, 900);	/* a query may have more */
}

/* What is left are the largest, in order, and what is gone is no larger. */
static void
LongOnesAreCut(void)
{
	static Form whole;
	static Form cut;
	static float x[DIM];

	for (int n = 0; n <= PIPEANN_MAX_INDEXED_NONZERO; n += 37)
		for (PipeannStorage s = PIPEANN_SPARSE16; s < PIPEANN_NUM_STORAGE; s++)
		{
			PipeannSparse left;
			float		least = INFINITY;
			int			larger = 0;

			Fill(&whole, x, n);
			if (n > 4)			/* equal ones at the border */
				for (int i = 0; i < n; i += 2)
				{
					float		same = i % 4 == 0 ? 3 : -3;

					x[whole.words[1 + i]] = same;
					memcpy(&whole.words[1 + n + i], &same, sizeof(float));
				}
			PipeannSparseCut(&whole, s, &cut);
			left = PipeannSparseOf(&cut);
			CHECK(left.n == Min(n, PipeannSparseRoom(s)));
			for (int i = 0; i < left.n; i++)
			{
				CHECK(i == 0 || left.indices[i] > left.indices[i - 1]);
				CHECK(left.values[i] == x[left.indices[i]]);
				least = Min(least, fabsf(left.values[i]));
			}
			for (int i = 0; i < DIM; i++)
				larger += x[i] != 0 && fabsf(x[i]) > least;
			CHECK(larger < Max(left.n, 1));
		}
}

/*
 * As long as the vector, or that of its roots; products are those of the vectors, but for a
 * small error.
 */
static void
ProjectionsOf(bool roots)
{
	static Form a;
	static Form b;
	static float x[DIM];
	static float y[DIM];
	static float p[PIPEANN_SPARSE_DIM];
	static float q[PIPEANN_SPARSE_DIM];
	double		errors = 0;

	for (int n = 1; n <= 1000; n += 9)
	{
		double		norms[2] = {0};
		double		lengths[2] = {0};
		double		dot = 0;
		double		projected = 0;

		Fill(&a, x, n);
		Fill(&b, y, n);
		PipeannSparseProject(&a, n, roots, p);
		PipeannVectorToFloat(&b, roots ? PIPEANN_ROOTS1000 : PIPEANN_SPARSE1000, PIPEANN_SPARSE_DIM, q);
		for (int i = 0; i < DIM; i++)
		{
			if (roots)
			{
				x[i] = copysignf(sqrtf(fabsf(x[i])), x[i]);
				y[i] = copysignf(sqrtf(fabsf(y[i])), y[i]);
			}
			norms[0] += (double) x[i] * x[i];
			norms[1] += (double) y[i] * y[i];
			dot += (double) x[i] * y[i];
		}
		for (int i = 0; i < PIPEANN_SPARSE_DIM; i++)
		{
			lengths[0] += (double) p[i] * p[i];
			lengths[1] += (double) q[i] * q[i];
			projected += (double) p[i] * q[i];
		}
		CHECK(fabs(lengths[0] - norms[0]) < 1e-5 * norms[0]);
		CHECK(fabs(lengths[1] - norms[1]) < 1e-5 * norms[1]);
		errors += pow((projected - dot) / sqrt(norms[0] * norms[1]), 2) / 112;
	}
	/* with signs by chance they err by the root of the dimensions */
	CHECK(errors < 2.0 / PIPEANN_SPARSE_DIM);
}

static void
Projections(void)
{
	ProjectionsOf(false);
	ProjectionsOf(true);
}

/* Codes on disk rely on it: the same on all machines, and for ever. */
static void
ProjectionIsFixed(void)
{
	for (int roots = 0; roots <= 1; roots++)
	{
		const int32 form[3] = {1, 4711, roots ? 0x40800000 : 0x40000000};	/* 4.0, 2.0 */
		float		x[PIPEANN_SPARSE_DIM];
		int			places = 0;
		uint32		sum = 0;

		PipeannSparseProject(form, 1, roots, x);
		for (int i = 0; i < PIPEANN_SPARSE_DIM; i++)
			if (x[i] != 0)
			{
				CHECK(fabsf(x[i]) == 1);
				sum = sum * 31 + i * 2 + (x[i] > 0);
				places++;
			}
		CHECK(places == 4);
		CHECK_CLOSE(sum, 18477091, 0);
	}
}

/* Of one whose number of elements is broken no more is read than there is room for. */
static void
BrokenOnesLeadNowhere(void)
{
	const int32 numbers[] = {INT32_MIN, -1, 0, 1, INT32_MAX};
	static Form query;
	static float dense[DIM];
	static float whole[PIPEANN_SPARSE_DIM + 1 + 2 * PIPEANN_MAX_NONZERO];

	Fill(&query, dense, 900);
	for (PipeannStorage s = PIPEANN_SPARSE16; s < PIPEANN_NUM_STORAGE; s++)
		for (Size i = 0; i < lengthof(numbers); i++)
		{
			Size		bytes = PipeannVectorBytes(s, PIPEANN_SPARSE_DIM);
			int32	   *form = malloc(bytes);	/* which a sanitizer guards */
			int			n = PipeannSparseRoom(s);

			memset(form, 0, bytes);
			form[0] = numbers[i];
			n = Max(Min(numbers[i], n), 0);
			for (int k = 1; k <= n; k++)
				form[k] = INT32_MAX;
			CHECK(isfinite(PipeannKernel->l2[s] (&query, form, PIPEANN_SPARSE_DIM)));
			CHECK(s >= PIPEANN_ROOTS16 ||
				  PipeannKernel->dot[s] (&query, form, PIPEANN_SPARSE_DIM) == 0);
			PipeannVectorUnpack(form, s, PIPEANN_SPARSE_DIM, whole);
			CHECK(PipeannSparseOf(PipeannSparseBehind(whole)).n == n);
			PipeannSparseTrim(form, 5);
			CHECK(form[0] == Max(Min(numbers[i], 2), 0));
			PipeannSparseTrim(form, 0);
			CHECK(form[0] == 0);
			free(form);
		}
}

/* On a broken page an element may be no number. */
static void
NoNumbersAreCut(void)
{
	static Form whole;
	static float dense[DIM];
	static struct
	{
		int32		words[1 + 2 * 128];
		int32		behind[256];
	}			cut;
	float		nan = NAN;

	Fill(&whole, dense, 200);
	for (int i = 0; i < 200; i++)
		memcpy(&whole.words[1 + 200 + i], &nan, sizeof(float));
	memset(&cut, 0x55, sizeof(cut));
	PipeannSparseCut(&whole, PipeannSparseFor(PIPEANN_SPARSE1000, 128), &cut);
	CHECK(cut.words[0] == 128);
	for (int i = 0; i < 256; i++)
		CHECK(cut.behind[i] == 0x55555555);
}

int
main(void)
{
	PipeannKernelsInit();
	UNIT_RUN(DistancesOfAllLengths);
	UNIT_RUN(LongOnesAreCut);
	UNIT_RUN(NoNumbersAreCut);
	UNIT_RUN(Projections);
	UNIT_RUN(ProjectionIsFixed);
	UNIT_RUN(BrokenOnesLeadNowhere);
	return UnitDone();
}
