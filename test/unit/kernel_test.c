/*
 * kernel_test.c
 *		Every kernel set of this processor against plain arithmetic.
 */
#include "unit.h"

#include <sys/mman.h>
#include <unistd.h>

#include "distance/distance.h"

#define MAX_DIM 16000

/* How vectors are filled. */
typedef enum Fill
{
	FILL_RANDOM,
	FILL_LOWEST,				/* all at the storage's lowest value */
	FILL_HIGHEST,
	FILL_SMALLEST,				/* tiny values: subnormal halfs */
	NUM_FILLS
} Fill;

static const PipeannStorage Storages[] = {
	PIPEANN_FLOAT4, PIPEANN_FLOAT2, PIPEANN_INT8, PIPEANN_UINT8
};

#define NUM_STORAGES ((int) (sizeof(Storages) / sizeof(Storages[0])))

#if defined(__x86_64__)
/* avx512.c on any processor (avx512_emulation.h): equal, but never chosen. */
extern const PipeannKernels PipeannKernelsEmulated;
#endif

/* The kernel sets that run here, the scalar one first. */
static const PipeannKernels *Sets[4];
static int	NumSets;

/* The last one that may be chosen. */
static const PipeannKernels *BestSet;

/* Memory whose last byte is followed by a page that must not be touched. */
typedef struct Guarded
{
	char	   *map;
	Size		map_size;
	char	   *end;			/* first byte out of bounds */
} Guarded;

static Guarded GuardQ;
static Guarded GuardA;
static Guarded GuardB;

static void
FindSets(void)
{
	Sets[NumSets++] = &PipeannKernelsScalar;
#if defined(__x86_64__)
	if (PipeannCpuHasAvx2())
		Sets[NumSets++] = &PipeannKernelsAvx2;
	if (PipeannCpuHasAvx512())
		Sets[NumSets++] = &PipeannKernelsAvx512;
#elif defined(__aarch64__)
	Sets[NumSets++] = &PipeannKernelsNeon;
#endif
	BestSet = Sets[NumSets - 1];
#if defined(__x86_64__)
	Sets[NumSets++] = &PipeannKernelsEmulated;
#endif
	for (int i = 0; i < NumSets; i++)
		NOTE("kernel set: %s%s", Sets[i]->name,
			 Sets[i] == Sets[NumSets - 1] && Sets[i] != BestSet ?
			 ", emulated" : "");
}

static Guarded
AllocInTree(Size size)
{
	Size		page = sysconf(_SC_PAGESIZE);
	Size		usable = (size + page - 1) / page * page;
	Guarded		g;

	g.map_size = usable + page;
	g.map = mmap(NULL, g.map_size, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (g.map == MAP_FAILED || mprotect(g.map + usable, page, PROT_NONE) != 0)
	{
		perror("mmap");
		exit(1);
	}
	g.end = g.map + usable;
	return g;
}

static float
Highest(PipeannStorage storage)
{
	switch (storage)
	{
		case PIPEANN_FLOAT4:
			return 1e15f;		/* its square times 16,000 is a float still */
		case PIPEANN_FLOAT2:
			return 65504.0f;
		case PIPEANN_INT8:
			return 127.0f;
		default:
			return 255.0f;
	}
}

static float
Lowest(PipeannStorage storage)
{
	switch (storage)
	{
		case PIPEANN_INT8:
			return -128.0f;
		case PIPEANN_UINT8:
			return 0.0f;
		default:
			return -Highest(storage);
	}
}

static float
FillValue(PipeannStorage storage, Fill fill, uint64 *random)
{
	bool		is_float = storage == PIPEANN_FLOAT4 ||
		storage == PIPEANN_FLOAT2;

	switch (fill)
	{
		case FILL_LOWEST:
			return Lowest(storage);
		case FILL_HIGHEST:
			return Highest(storage);
		case FILL_SMALLEST:
			return is_float ? UnitRandomFloat(random, -5e-5f, 5e-5f) :
				(float) (UnitRandom(random) & 1);
		default:
			return is_float ? UnitRandomFloat(random, -2.0f, 2.0f) :
				UnitRandomFloat(random, Lowest(storage),
								Highest(storage) + 0.49f);
	}
}

/* Fill v, storage elements, and give back its values as doubles. */
static void
FillVector(void *v, PipeannStorage storage, int dim, Fill fill,
		   uint64 *random, double *values)
{
	Size		size = PipeannElementSize(storage);

	for (int i = 0; i < dim; i++)
	{
		char	   *element = (char *) v + i * size;
		float		f = FillValue(storage, fill, random);

		PipeannVectorFromFloat(&f, storage, 1, element);
		PipeannVectorToFloat(element, storage, 1, &f);
		values[i] = f;
	}
}

/* The exact results, and the sizes that rounding errors are relative to. */
typedef struct Exact
{
	double		l2;
	double		dot;
	double		dot_size;
} Exact;

static Exact
Compute(const double *a, const double *b, int dim)
{
	Exact		e = {0.0, 0.0, 0.0};

	for (int i = 0; i < dim; i++)
	{
		double		product = a[i] * b[i];

		e.l2 += (a[i] - b[i]) * (a[i] - b[i]);
		e.dot += product;
		e.dot_size += product < 0 ? -product : product;
	}
	return e;
}

/*
 * What a float sum of so many terms may be off by, as a part of the sum of
 * their sizes. Errors of equal terms add up: with 4 sums of dim / 4 terms,
 * each addition is off by 2^-24 at most.
 */
static double
Tolerance(int dim)
{
	return (dim / 4 + 16) / 16777216.0;
}

/* Check all sets on a stored a and b, and a query q. Values as doubles. */
static void
CheckVectors(PipeannStorage s, int dim, const void *q, const void *a,
			 const void *b, const double *dq, const double *da,
			 const double *db)
{
	bool		bytes = s == PIPEANN_INT8 || s == PIPEANN_UINT8;
	double		tolerance = Tolerance(dim);
	Exact		query = Compute(dq, da, dim);
	Exact		pair = Compute(da, db, dim);

	for (int i = 0; i < NumSets; i++)
	{
		const PipeannKernels *k = Sets[i];
		bool		good = true;

		good &= CHECK_CLOSE(k->l2[s] (q, a, dim), query.l2,
							tolerance * query.l2);
		good &= CHECK_CLOSE(k->dot[s] (q, a, dim), query.dot,
							tolerance * query.dot_size);
		if (bytes)
		{
			good &= CHECK(k->l2_pair[s] (a, b, dim) == (float) pair.l2);
			good &= CHECK(k->dot_pair[s] (a, b, dim) == (float) pair.dot);
		}
		else
		{
			good &= CHECK_CLOSE(k->l2_pair[s] (a, b, dim), pair.l2,
								tolerance * pair.l2);
			good &= CHECK_CLOSE(k->dot_pair[s] (a, b, dim), pair.dot,
								tolerance * pair.dot_size);
		}
		if (!good)
			NOTE("set %s, storage %d, %d dimensions", k->name, s, dim);
	}
}

/*
 * One storage and dimension: vectors end `back` bytes before the guard page
 * (which makes them unaligned, too).
 */
static void
CheckCase(PipeannStorage s, int dim, Fill fill_a, Fill fill_b, int back)
{
	static double dq[MAX_DIM];
	static double da[MAX_DIM];
	static double db[MAX_DIM];
	Size		size = dim * PipeannElementSize(s);
	char	   *q = GuardQ.end - dim * sizeof(float);
	char	   *a = GuardA.end - back - size;
	char	   *b = GuardB.end - back - size;
	uint64		random = dim * 1000 + s * 100 + fill_a * 10 + fill_b;

	/* The query of extreme vectors is extreme, too: like the other one. */
	FillVector(a, s, dim, fill_a, &random, da);
	FillVector(b, s, dim, fill_b, &random, db);
	for (int i = 0; i < dim; i++)
	{
		float		f = fill_b == FILL_RANDOM ?
			UnitRandomFloat(&random, -3.0f, 200.0f) : (float) db[i];

		memcpy(q + i * sizeof(float), &f, sizeof(f));
		dq[i] = f;
	}
	CheckVectors(s, dim, q, a, b, dq, da, db);
}

static const int LargeDims[] = {100, 127, 128, 255, 784, 1000, 1535, 1536,
	15999, 16000};

#define NUM_LARGE_DIMS ((int) (sizeof(LargeDims) / sizeof(LargeDims[0])))

static void
DistancesOfSmallDimensions(void)
{
	for (int s = 0; s < NUM_STORAGES; s++)
		for (int dim = 1; dim <= 70; dim++)
			for (int back = 0; back < 4; back++)
				CheckCase(Storages[s], dim, FILL_RANDOM, FILL_RANDOM, back);
}

static void
DistancesOfLargeDimensions(void)
{
	for (int s = 0; s < NUM_STORAGES; s++)
		for (int i = 0; i < NUM_LARGE_DIMS; i++)
			for (int back = 0; back < 2; back++)
				CheckCase(Storages[s], LargeDims[i], FILL_RANDOM, FILL_RANDOM,
						  back);
}

static void
DistancesOfExtremeValues(void)
{
	static const int dims[] = {1, 7, 8, 15, 33, 63, 64, 65, 1536, 16000};

	for (int s = 0; s < NUM_STORAGES; s++)
		for (int i = 0; i < (int) (sizeof(dims) / sizeof(dims[0])); i++)
			for (int a = 0; a < NUM_FILLS; a++)
				for (int b = 0; b < NUM_FILLS; b++)
					CheckCase(Storages[s], dims[i], a, b, 0);
}

/* All sets add the same numbers: small whole ones leave nothing to round. */
static void
WholeNumbersAreExact(void)
{
	static float q[MAX_DIM];
	static uint8 v[MAX_DIM];

	for (int i = 0; i < MAX_DIM; i++)
	{
		q[i] = i % 5;
		v[i] = i % 7;
	}
	for (int dim = 1; dim <= MAX_DIM; dim = dim * 3 / 2 + 1)
		for (int i = 1; i < NumSets; i++)
		{
			CHECK(Sets[i]->l2[PIPEANN_UINT8] (q, v, dim) ==
				  Sets[0]->l2[PIPEANN_UINT8] (q, v, dim));
			CHECK(Sets[i]->dot[PIPEANN_UINT8] (q, v, dim) ==
				  Sets[0]->dot[PIPEANN_UINT8] (q, v, dim));
		}
}

/* One code length: n codes, each right before a guard page or unaligned. */
static void
CheckScan(int nchunks, int n)
{
	float	   *table = palloc(sizeof(float) * 256 * nchunks);
	const uint8 **codes = palloc(sizeof(uint8 *) * n);
	float	   *out = palloc(sizeof(float) * (n + 1));
	uint64		random = nchunks * 1000 + n;

	/* Whole numbers, so that the order of additions does not matter. */
	for (int i = 0; i < 256 * nchunks; i++)
		table[i] = (float) (UnitRandom(&random) % 4096);
	for (Size i = 0; i < GuardA.map_size / 4; i++)
		GuardA.end[-1 - (int) i] = (char) UnitRandom(&random);
	for (int i = 0; i < n; i++)
		codes[i] = (uint8 *) GuardA.end - nchunks - (i == 0 ? 0 : i % 997);

	for (int s = 0; s < NumSets; s++)
	{
		out[n] = -1.0f;
		Sets[s]->pq_scan(table, nchunks, codes, n, out);
		for (int i = 0; i < n; i++)
		{
			float		sum = 0.0f;

			for (int c = 0; c < nchunks; c++)
				sum += table[c * 256 + codes[i][c]];
			if (!CHECK(out[i] == sum))
				NOTE("set %s, %d chunks, code %d of %d", Sets[s]->name,
					 nchunks, i, n);
		}
		CHECK(out[n] == -1.0f);
	}
	pfree(out);
	pfree(codes);
	pfree(table);
}

static void
ScansOfCodes(void)
{
	static const int counts[] = {0, 1, 2, 3, 4, 5, 23, 24, 25, 64, 131, 200};

	for (int nchunks = 1; nchunks <= 100; nchunks++)
		for (int i = 0; i < (int) (sizeof(counts) / sizeof(counts[0])); i++)
			CheckScan(nchunks, counts[i]);
	CheckScan(1000, 65);
}

static void
CentroidDistances(void)
{
	static const int lens[] = {1, 2, 3, 4, 5, 8, 9, 16, 31, 168};

	for (int l = 0; l < (int) (sizeof(lens) / sizeof(lens[0])); l++)
	{
		int			len = lens[l];
		float	   *x = (float *) GuardQ.end - len;
		float	   *centroids = (float *) GuardA.end - 256 * len;
		float	   *out = (float *) GuardB.end - 256;
		uint64		random = len;

		for (int i = 0; i < len; i++)
			x[i] = UnitRandomFloat(&random, -2.0f, 2.0f);
		for (int i = 0; i < 256 * len; i++)
			centroids[i] = UnitRandomFloat(&random, -2.0f, 2.0f);
		for (int k = 0; k < 256; k++)
		{
			double		a[168];
			double		b[168];
			Exact		e;

			for (int d = 0; d < len; d++)
			{
				a[d] = x[d];
				b[d] = centroids[d * 256 + k];
			}
			e = Compute(a, b, len);
			for (int s = 0; s < NumSets; s++)
			{
				Sets[s]->centroid_l2(x, centroids, len, out);
				CHECK_CLOSE(out[k], e.l2, 1e-5 * e.l2);
				Sets[s]->centroid_dot(x, centroids, len, out);
				CHECK_CLOSE(out[k], -e.dot, 1e-5 * e.dot_size);
			}
		}
	}
}

/* The value of a half, from its definition. */
static double
HalfValue(int h)
{
	int			exponent = (h >> 10) & 31;
	double		value = h & 1023;

	if (exponent > 0)
		value += 1024.0;
	for (int e = Max(exponent, 1); e < 25; e++)
		value /= 2.0;
	for (int e = 25; e < exponent; e++)
		value *= 2.0;
	return (h & 0x8000) ? -value : value;
}

static void
HalfsSurvive(void)
{
	for (int h = 0; h < 65536; h++)
	{
		float		f = PipeannHalfToFloat((uint16) h);
		bool		is_nan = (h & 0x7c00) == 0x7c00 && (h & 0x3ff) != 0;

		if (is_nan)
		{
			CHECK(f != f);
			CHECK((PipeannFloatToHalf(f) & 0x7fff) > 0x7c00);
			continue;
		}
		CHECK(PipeannFloatToHalf(f) == h);
		if ((h & 0x7c00) != 0x7c00)
			CHECK(f == (float) HalfValue(h));
		else
			CHECK(f - f != 0.0f && (f < 0) == (h >= 0x8000));
	}
}

/* Between two halfs: nearest, and to the even one from the middle. */
static void
FloatsRoundToHalfs(void)
{
	for (int h = 0; h < 0x7bff; h++)
	{
		double		low = HalfValue(h);
		double		high = HalfValue(h + 1);
		float		middle = (float) ((low + high) / 2);
		float		below = (float) (low + (high - low) * 0.499);
		float		above = (float) (low + (high - low) * 0.501);

		CHECK(PipeannFloatToHalf(middle) == (h % 2 == 0 ? h : h + 1));
		CHECK(PipeannFloatToHalf(-middle) ==
			  (0x8000 | (h % 2 == 0 ? h : h + 1)));
		CHECK(PipeannFloatToHalf(below) == h);
		CHECK(PipeannFloatToHalf(above) == h + 1);
	}
	CHECK(PipeannFloatToHalf(65519.0f) == 0x7bff);
	CHECK(PipeannFloatToHalf(65520.0f) == 0x7c00);
	CHECK(PipeannFloatToHalf(-1e30f) == 0xfc00);
	CHECK(PipeannFloatToHalf(1e-30f) == 0);
	CHECK(PipeannFloatToHalf(-1e-45f) == 0x8000);
}

static bool
Fits(float f, PipeannStorage storage)
{
	float		v[3] = {0.0f, f, 1.0f};

	return PipeannVectorFits(v, storage, 3);
}

static void
FittingStorages(void)
{
	for (int i = -300; i <= 300; i++)
	{
		CHECK(Fits(i, PIPEANN_INT8) == (i >= -128 && i <= 127));
		CHECK(Fits(i, PIPEANN_UINT8) == (i >= 0 && i <= 255));
		CHECK(Fits(i, PIPEANN_FLOAT2));
		CHECK(Fits(i, PIPEANN_FLOAT4));
		CHECK(!Fits(i + 0.25f, PIPEANN_INT8));
		CHECK(!Fits(i + 0.25f, PIPEANN_UINT8));
	}
	CHECK(Fits(2048.0f, PIPEANN_FLOAT2));
	CHECK(!Fits(2049.0f, PIPEANN_FLOAT2));
	CHECK(!Fits(65520.0f, PIPEANN_FLOAT2));
	CHECK(!Fits(0.1f, PIPEANN_FLOAT2));
	CHECK(Fits(0.1f, PIPEANN_FLOAT4));
	CHECK(!Fits(1e-30f, PIPEANN_INT8));
	CHECK(!Fits(1e30f, PIPEANN_UINT8));
	CHECK(!Fits(__builtin_nanf(""), PIPEANN_FLOAT4));
}

static void
ConversionsClampAndRound(void)
{
	static const float in[] = {-1e30f, -128.6f, -1.6f, -0.4f, 0.0f, 0.49999997f,
		0.6f, 126.7f, 254.6f, 1e30f, __builtin_nanf("")};
	static const int as_int8[] = {-128, -128, -2, 0, 0, 0, 1, 127, 127, 127,
		0};
	static const int as_uint8[] = {0, 0, 0, 0, 0, 0, 1, 127, 255, 255, 0};
	int			n = sizeof(in) / sizeof(in[0]);
	int8		i8[16];
	uint8		u8[16];

	PipeannVectorFromFloat(in, PIPEANN_INT8, n, i8);
	PipeannVectorFromFloat(in, PIPEANN_UINT8, n, u8);
	for (int i = 0; i < n; i++)
	{
		CHECK(i8[i] == as_int8[i]);
		CHECK(u8[i] == as_uint8[i]);
	}
}

static void
InitChoosesTheBestSet(void)
{
	CHECK(PipeannKernel == &PipeannKernelsScalar);
	PipeannKernelsInit();
	CHECK(PipeannKernel == BestSet);
	PipeannKernelsInit();
	CHECK(PipeannKernel == BestSet);
}

int
main(void)
{
	FindSets();
	GuardQ = AllocInTree(MAX_DIM * sizeof(float));
	GuardA = AllocInTree(256 * 168 * sizeof(float));
	GuardB = AllocInTree(MAX_DIM * sizeof(float) + 8);

	UNIT_RUN(InitChoosesTheBestSet);
	UNIT_RUN(HalfsSurvive);
	UNIT_RUN(FloatsRoundToHalfs);
	UNIT_RUN(FittingStorages);
	UNIT_RUN(ConversionsClampAndRound);
	UNIT_RUN(DistancesOfSmallDimensions);
	UNIT_RUN(DistancesOfLargeDimensions);
	UNIT_RUN(DistancesOfExtremeValues);
	UNIT_RUN(WholeNumbersAreExact);
	UNIT_RUN(ScansOfCodes);
	UNIT_RUN(CentroidDistances);
	return UnitDone();
}
