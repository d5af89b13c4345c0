/*
 * kernel_test.c
 *		Every kernel set of this processor against plain arithmetic.
 */
#include "unit.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "distance/distance.h"
#include "distance/common.h"

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
	double		l1;
} Exact;

static Exact
Compute(const double *a, const double *b, int dim)
{
	Exact		e = {0.0, 0.0, 0.0, 0.0};

	for (int i = 0; i < dim; i++)
	{
		double		product = a[i] * b[i];

		e.l2 += (a[i] - b[i]) * (a[i] - b[i]);
		e.l1 += fabs(a[i] - b[i]);
		e.dot += product;
		e.dot_size += product < 0 ? -product : product;
	}
	return e;
}

/*
 * How much a float sum of N terms may be off, as a part of the sum of
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
		/* quantised vectors are rotated, which changes it */
		good &= PipeannSqBits(s) > 0 ? CHECK(k->l1[s] == NULL) :
			CHECK_CLOSE(k->l1[s] (q, a, dim), query.l1, tolerance * query.l1) &&
			CHECK_CLOSE(k->l1_pair[s] (a, b, dim), pair.l1, tolerance * pair.l1);
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
			CHECK(Sets[i]->l1[PIPEANN_UINT8] (q, v, dim) ==
				  Sets[0]->l1[PIPEANN_UINT8] (q, v, dim));
		}
}

/* One code length: n codes, each right before a guard page or unaligned. */
static void
CheckScan(int nsubvectors, int n)
{
	float	   *table = palloc(sizeof(float) * 256 * nsubvectors);
	const uint8 **codes = palloc(sizeof(uint8 *) * n);
	float	   *out = palloc(sizeof(float) * (n + 1));
	uint64		random = nsubvectors * 1000 + n;

	/* Whole numbers, so that the order of additions does not matter. */
	for (int i = 0; i < 256 * nsubvectors; i++)
		table[i] = (float) (UnitRandom(&random) % 4096);
	for (Size i = 0; i < GuardA.map_size / 4; i++)
		GuardA.end[-1 - (int) i] = (char) UnitRandom(&random);
	for (int i = 0; i < n; i++)
		codes[i] = (uint8 *) GuardA.end - nsubvectors - (i == 0 ? 0 : i % 997);

	for (int s = 0; s < NumSets; s++)
	{
		out[n] = -1.0f;
		Sets[s]->pq_scan(table, nsubvectors, codes, n, out);
		for (int i = 0; i < n; i++)
		{
			float		sum = 0.0f;

			for (int c = 0; c < nsubvectors; c++)
				sum += table[c * 256 + codes[i][c]];
			if (!CHECK(out[i] == sum))
				NOTE("set %s, %d subvectors, code %d of %d", Sets[s]->name,
					 nsubvectors, i, n);
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

	for (int nsubvectors = 1; nsubvectors <= 100; nsubvectors++)
		for (int i = 0; i < (int) (sizeof(counts) / sizeof(counts[0])); i++)
			CheckScan(nsubvectors, counts[i]);
	CheckScan(1000, 65);
}

static void
CentroidDistances(void)
{
	static const int lens[] = {1, 2, 3, 4, 5, 8, 9, 16, 31, 168};
	static float rounded[256 * 168];
	static uint16 space[256 * 168];

	for (int l = 0; l < (int) (sizeof(lens) / sizeof(lens[0])); l++)
	{
		int			len = lens[l];
		float	   *x = (float *) GuardQ.end - len;
		float	   *centroids = (float *) GuardA.end - 256 * len;
		uint16	   *halves = space + 256 * (168 - len);
		float	   *out = (float *) GuardB.end - 256;
		uint64		random = len;

		for (int i = 0; i < len; i++)
			x[i] = UnitRandomFloat(&random, -2.0f, 2.0f);
		for (int i = 0; i < 256 * len; i++)
			centroids[i] = UnitRandomFloat(&random, -2.0f, 2.0f);
		PipeannKernel->to_half(centroids, 256 * len, halves);
		PipeannKernel->to_float[PIPEANN_FLOAT2] (halves, 256 * len, rounded);
		for (int k = 0; k < 256; k++)
		{
			double		a[168];
			double		b[168];
			Exact		e;
			Exact		half;

			for (int d = 0; d < len; d++)
			{
				a[d] = x[d];
				b[d] = centroids[d * 256 + k];
			}
			e = Compute(a, b, len);
			for (int d = 0; d < len; d++)
				b[d] = rounded[d * 256 + k];
			half = Compute(a, b, len);
			for (int s = 0; s < NumSets; s++)
			{
				Sets[s]->centroid_l2(x, centroids, len, out);
				CHECK_CLOSE(out[k], e.l2, 1e-5 * e.l2);
				Sets[s]->half_centroid_l2(x, halves, len, out);
				CHECK_CLOSE(out[k], half.l2, 1e-5 * half.l2);
				Sets[s]->centroid_dot(x, centroids, len, out);
				CHECK_CLOSE(out[k], -e.dot, 1e-5 * e.dot_size);
				Sets[s]->centroid_l1(x, centroids, len, out);
				CHECK_CLOSE(out[k], e.l1, 1e-5 * e.l1);
			}
		}
	}
}

/*
 * Nearest centroids by plain comparisons of a set's own distances. Whole
 * numbers from few values make many of them equal.
 */
static void
CheckNearest(const PipeannKernels *k, int len, int n, bool whole, float odd)
{
	Size		stride = len + 3;
	Size		code_stride = 5;
	float	   *x = (float *) GuardQ.end - (n - 1) * stride - len;
	float	   *centroids = (float *) GuardA.end - 256 * len;
	uint64		random = len * 1000 + n;
	uint8		codes[64 * 5];
	float		distances[65];

	for (Size i = 0; i < (n - 1) * stride + len; i++)
		x[i] = whole ? (float) (UnitRandom(&random) % 3) :
			UnitRandomFloat(&random, -2.0f, 2.0f);
	for (int i = 0; i < 256 * len; i++)
		centroids[i] = whole ? (float) (UnitRandom(&random) % 3) :
			UnitRandomFloat(&random, -2.0f, 2.0f);
	if (odd != 0.0f)			/* one vector, and a part of the centroids */
	{
		x[(n / 2) * stride] = odd;
		for (int i = 0; i < 256; i += 1 + i % 7)
			centroids[i] = odd;
	}
	memset(codes, 77, sizeof(codes));
	distances[n] = -1.0f;
	k->centroid_nearest(x, stride, n, centroids, len,
						&(PipeannNearest) {codes, code_stride, distances});
	CHECK(distances[n] == -1.0f);
	for (int i = 0; i < n; i++)
	{
		float		all[256];
		int			nearest = -1;

		k->centroid_l2(x + i * stride, centroids, len, all);
		for (int c = 0; c < 256; c++)
			if (all[c] == all[c] && (nearest < 0 || all[c] < all[nearest]))
				nearest = c;
		nearest = Max(nearest, 0);
		if (!CHECK(codes[i * code_stride] == nearest) ||
			!CHECK(memcmp(&distances[i], &all[nearest], sizeof(float)) == 0))
			NOTE("set %s, %d dimensions, vector %d of %d: %d, not %d",
				 k->name, len, i, n, codes[i * code_stride], nearest);
		for (Size b = 1; b < code_stride; b++)
			CHECK(codes[i * code_stride + b] == 77);
	}

	/* without distances, the same codes */
	for (int i = 0; i < n; i++)
	{
		uint8		code;

		k->centroid_nearest(x + i * stride, 0, 1, centroids, len,
							&(PipeannNearest) {&code, 0, NULL});
		CHECK(code == codes[i * code_stride]);
	}
}

static void
NearestCentroids(void)
{
	static const int lens[] = {1, 2, 3, 4, 5, 8, 9, 16, 31, 168};
	static const int counts[] = {1, 2, 7, 8, 9, 33, 64};

	for (int s = 0; s < NumSets; s++)
		for (int l = 0; l < (int) (sizeof(lens) / sizeof(lens[0])); l++)
			for (int c = 0; c < (int) (sizeof(counts) / sizeof(counts[0])); c++)
				for (int whole = 0; whole < 2; whole++)
				{
					CheckNearest(Sets[s], lens[l], counts[c], whole, 0.0f);
					CheckNearest(Sets[s], lens[l], counts[c], whole, 1e30f);
					CheckNearest(Sets[s], lens[l], counts[c], whole,
								 __builtin_inff());
					CheckNearest(Sets[s], lens[l], counts[c], whole,
								 __builtin_nanf(""));
				}
}

/* Each centroid in turn is the only near one: every place is found. */
static void
EveryCentroidIsFound(void)
{
	static float centroids[2 * 256];
	static const float x[2] = {3.0f, 4.0f};

	for (int s = 0; s < NumSets; s++)
		for (int k = 0; k < 256; k++)
		{
			uint8		code;
			float		distance;

			memset(centroids, 0, sizeof(centroids));
			centroids[k] = 1.0f;
			Sets[s]->centroid_nearest(x, 2, 1, centroids, 2,
									  &(PipeannNearest) {&code, 1, &distance});
			CHECK(code == k && distance == 20.0f);
		}
}

/* Few different numbers, some of them in the last place; no more is read. */
static void
ShortArrays(void)
{
	uint64		random = 17;

	for (int n = 8; n <= 128; n += 8)
		for (int turn = 0; turn < 200; turn++)
		{
			uint16	   *a = (uint16 *) GuardA.end - n;
			uint32		values = turn % 2 == 0 ? 5 : 65536;
			uint64		equal = 0;
			uint16		most = 0;
			uint16		value;

			for (int i = 0; i < n; i++)
			{
				a[i] = (uint16) (PG_UINT16_MAX - UnitRandom(&random) % values);
				most = Max(most, a[i]);
			}
			value = a[UnitRandom(&random) % n];
			for (int i = 0; i < Min(n, 64); i++)
				equal |= (uint64) (a[i] == value) << i;
			for (int s = 0; s < NumSets; s++)
			{
				CHECK(Sets[s]->most16(a, n) == most);
				CHECK(Sets[s]->equal16(a, Min(n, 64), value) == equal);
			}
		}
}

/* Sets of few and of many bytes; no more is read. */
static void
SetsOfBytes(void)
{
	uint64		random = 29;

	for (int turn = 0; turn < 300; turn++)
	{
		int			n = 64 * (1 + turn % 16);
		uint8	   *bytes = (uint8 *) GuardA.end - n;
		uint8	   *set = (uint8 *) GuardB.end - 32;
		uint64		before[16];
		uint64		want[16];

		for (int i = 0; i < 32; i++)
			set[i] = (uint8) (UnitRandom(&random) & UnitRandom(&random) & (turn % 3 == 0 ? UnitRandom(&random) : 255));
		for (int i = 0; i < n; i++)
			bytes[i] = (uint8) (turn % 2 == 0 ? UnitRandom(&random) : (uint64) i + turn);
		for (int i = 0; i < n / 64; i++)
			want[i] = before[i] = turn % 5 == 0 ? UnitRandom(&random) : ~(uint64) 0;
		for (int i = 0; i < n; i++)
			if (((set[bytes[i] / 8] >> bytes[i] % 8) & 1) == 0)
				want[i / 64] &= ~((uint64) 1 << i % 64);
		for (int s = 0; s < NumSets; s++)
		{
			uint64		mask[16];

			memcpy(mask, before, sizeof(mask));
			Sets[s]->keep_members(bytes, n, set, mask);
			CHECK(memcmp(mask, want, n / 8) == 0);
		}
	}
}

static uint8
ByteNear(uint64 *random, int number)
{
	static const int steps[4] = {0, 1, 255, 0};

	return UnitRandom(random) % 8 == 0 ? (uint8) UnitRandom(random) :
		(uint8) (number + steps[UnitRandom(random) % 4]);
}

/* Ranges of one number and of many, by numbers at their ends; no more is read. */
static void
RangesOfNumbers(void)
{
	uint64		random = 31;

	for (int turn = 0; turn < 400; turn++)
	{
		int			n = 64 * (1 + turn % 16);
		uint8	   *high = (uint8 *) GuardA.end - n;
		uint8	   *low = (uint8 *) GuardB.end - n;
		int			from = turn % 10 == 0 ? 0 : (int) (UnitRandom(&random) % 65536);
		int			span = turn % 3 == 0 ? 0 : (int) (UnitRandom(&random) % (turn % 3 == 1 ? 600 : 65536));
		int			to = turn % 10 == 1 ? 65535 : Min(from + span, 65535);
		uint64		before[16];
		uint64		want[16];

		for (int i = 0; i < n; i++)
		{
			int			end = i % 2 == 0 ? from : to;

			high[i] = i % 5 == 0 ? 0 : ByteNear(&random, end >> 8);
			low[i] = i % 7 == 0 ? 0 : ByteNear(&random, end);
		}
		for (int i = 0; i < n / 64; i++)
			want[i] = before[i] = turn % 5 == 0 ? UnitRandom(&random) : ~(uint64) 0;
		for (int i = 0; i < n; i++)
		{
			int			number = 256 * high[i] + low[i];

			if ((number < from || number > to) && (high[i] != 0 || low[i] == 0))
				want[i / 64] &= ~((uint64) 1 << i % 64);
		}
		for (int s = 0; s < NumSets; s++)
		{
			uint64		mask[16];

			memcpy(mask, before, sizeof(mask));
			Sets[s]->keep_range(high, low, n, (uint16) from, (uint16) to, mask);
			CHECK(memcmp(mask, want, n / 8) == 0);
		}
	}
}

/* How elements of tiles are filled. */
typedef enum TileFill
{
	TILE_RANDOM,				/* small enough for every sum */
	TILE_HIGHEST,				/* +-32000, sums leave int32 and come back */
	NUM_TILE_FILLS
} TileFill;

static int16
TileElement(TileFill fill, bool row, int d, int dim, uint64 *random)
{
	int			limit = dim <= 16 ? 11000 : 1000;

	if (fill == TILE_RANDOM)
		return (int16) ((int) (UnitRandom(random) % (2 * limit + 1)) - limit);
	if (row && d >= dim / 2)
		return -PIPEANN_FIXED_MAX;
	return PIPEANN_FIXED_MAX;
}

/* What a tile of bits counts of a row and a column. */
static int
BitsOfTile(const int16 *row, const int16 *column, int dim, bool common)
{
	int			sum = 0;

	for (int d = 0; d < dim; d++)
		for (int bit = 0; bit < 16; bit++)
		{
			bool		a = (uint16) row[d] >> bit & 1;
			bool		b = (uint16) column[d] >> bit & 1;

			sum += common ? a && b : a != b;
		}
	return sum;
}

/* Rows and the panel end at a guard page; rows are not aligned. */
static void
CheckTile(int dim, int ncolumns, TileFill fill)
{
	static int16 columns[PIPEANN_TILE_COLUMNS][MAX_DIM];
	const int16 *column[PIPEANN_TILE_COLUMNS];
	const int16 *rows[PIPEANN_TILE_ROWS];
	int16	   *panel = (int16 *) GuardA.end - PIPEANN_PANEL_SIZE(dim);
	int16	   *all = (int16 *) GuardB.end - dim - PIPEANN_TILE_ROWS * 3;
	int32		out[PIPEANN_TILE_ROWS * PIPEANN_TILE_COLUMNS + 1];
	uint64		random = dim * 100 + ncolumns;

	for (int c = 0; c < PIPEANN_TILE_COLUMNS; c++)
	{
		column[c] = columns[c];
		for (int d = 0; d < dim; d++)
			columns[c][d] = c >= ncolumns ? 0 :
				TileElement(fill, false, d, dim, &random);
	}
	for (int d = 0; d < dim + PIPEANN_TILE_ROWS * 3; d++)
		all[d] = TileElement(fill, true, d, dim + PIPEANN_TILE_ROWS * 3,
							 &random);
	for (int r = 0; r < PIPEANN_TILE_ROWS; r++)
		rows[r] = all + (PIPEANN_TILE_ROWS - r) * 3;
	PipeannTilePanel(column, ncolumns, dim, panel);

	for (int s = 0; s < NumSets; s++)
	{
		out[PIPEANN_TILE_ROWS * PIPEANN_TILE_COLUMNS] = -1;
		Sets[s]->dot_tile(rows, panel, dim, out);
		CHECK(out[PIPEANN_TILE_ROWS * PIPEANN_TILE_COLUMNS] == -1);
		for (int r = 0; r < PIPEANN_TILE_ROWS; r++)
			for (int c = 0; c < PIPEANN_TILE_COLUMNS; c++)
			{
				int64		sum = 0;

				for (int d = 0; d < dim; d++)
					sum += (int64) rows[r][d] * columns[c][d];

				/* of larger sums the lower half remains */
				if (!CHECK(out[r * PIPEANN_TILE_COLUMNS + c] ==
						   (int32) (uint32) (uint64) sum))
					NOTE("set %s, %d dimensions, %d columns, at %d, %d",
						 Sets[s]->name, dim, ncolumns, r, c);
			}
		for (int common = 0; common < 2; common++)
		{
			int			wrong = 0;

			Sets[s]->bit_tile(rows, panel, dim, common, out);
			for (int i = 0; i < PIPEANN_TILE_ROWS * PIPEANN_TILE_COLUMNS; i++)
				wrong += out[i] != BitsOfTile(rows[i / PIPEANN_TILE_COLUMNS],
											  columns[i % PIPEANN_TILE_COLUMNS], dim, common);
			if (!CHECK(wrong == 0 && out[PIPEANN_TILE_ROWS * PIPEANN_TILE_COLUMNS] == -1))
				NOTE("set %s, %d numbers of bits", Sets[s]->name, dim);
		}
	}
}

static void
TilesOfProducts(void)
{
	for (int fill = 0; fill < NUM_TILE_FILLS; fill++)
	{
		for (int dim = 0; dim <= 70; dim += PIPEANN_TILE_DIM)
			CheckTile(dim, PIPEANN_TILE_COLUMNS, fill);
		for (int ncolumns = 0; ncolumns < PIPEANN_TILE_COLUMNS; ncolumns++)
			CheckTile(24, ncolumns, fill);
		CheckTile(128, PIPEANN_TILE_COLUMNS, fill);
		CheckTile(1000, PIPEANN_TILE_COLUMNS, fill);
		CheckTile(1536, PIPEANN_TILE_COLUMNS, fill);
	}
}

/* All sets give distances and bits, also at equal limits. */
static void
TilesToDistances(void)
{
	const int	size = PIPEANN_TILE_ROWS * PIPEANN_TILE_COLUMNS;
	uint64		random = 1;

	for (int round = 0; round < 500; round++)
	{
		int			range = round % 2 == 0 ? 20 : PIPEANN_FIXED_MAX * (PIPEANN_FIXED_MAX / 2);
		int32		norms[2][PIPEANN_TILE_COLUMNS];
		int32		limits[2][PIPEANN_TILE_COLUMNS];
		int32		dot[PIPEANN_TILE_ROWS * PIPEANN_TILE_COLUMNS];

		for (int side = 0; side < 2; side++)
			for (int i = 0; i < PIPEANN_TILE_COLUMNS; i++)
			{
				norms[side][i] = UnitRandom(&random) % range;
				limits[side][i] = UnitRandom(&random) % 5 == 0 ? INT32_MAX :
					UnitRandom(&random) % range;
			}
		for (int i = 0; i < size; i++)
			dot[i] = (int32) (UnitRandom(&random) % range) - range / 2;
		for (int s = 0; s < NumSets; s++)
		{
			int32		tile[PIPEANN_TILE_ROWS * PIPEANN_TILE_COLUMNS + 1];
			uint16		near[PIPEANN_TILE_ROWS + 1];
			int			wrong = 0;

			memcpy(tile, dot, sizeof(dot));
			tile[size] = -1;
			near[PIPEANN_TILE_ROWS] = 77;
			Sets[s]->tile_near(norms[0], norms[1], limits[0], limits[1], tile,
							   near);
			CHECK(tile[size] == -1 && near[PIPEANN_TILE_ROWS] == 77);
			for (int i = 0; i < size; i++)
			{
				int			r = i / PIPEANN_TILE_COLUMNS;
				int			c = i % PIPEANN_TILE_COLUMNS;
				int32		d = Max(norms[0][r] + norms[1][c] - dot[i], 0);

				wrong += tile[i] != d ||
					(near[r] >> c & 1) != (d < limits[0][r] || d < limits[1][c]);
			}
			CHECK(wrong == 0);
		}
	}
}

/* What callers may count on of a panel: they may make one themselves. */
static void
PanelsAreInterleaved(void)
{
	int16		columns[3][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}};
	const int16 *column[3] = {columns[0], columns[1], columns[2]};
	int16		panel[4 * PIPEANN_TILE_COLUMNS];

	memset(panel, 77, sizeof(panel));
	PipeannTilePanel(column, 3, 4, panel);
	for (int p = 0; p < 2; p++)
		for (int c = 0; c < PIPEANN_TILE_COLUMNS; c++)
			for (int i = 0; i < 2; i++)
				CHECK(panel[(p * PIPEANN_TILE_COLUMNS + c) * 2 + i] ==
					  (c < 3 ? columns[c][2 * p + i] : 0));
}

/* All sets convert as single elements are converted, bit by bit. */
static void
CheckToFloat(PipeannStorage s, int dim, int back)
{
	Size		size = dim * PipeannElementSize(s);
	char	   *v = GuardA.end - back - size;
	float	   *out = (float *) GuardB.end - dim;
	uint64		random = dim * 10 + s;

	for (Size i = 0; i < size; i++)
		v[i] = (char) UnitRandom(&random);
	for (int k = 0; k < NumSets; k++)
	{
		memset(out - 1, 77, (dim + 1) * sizeof(float));
		Sets[k]->to_float[s] (v, dim, out);
		for (int i = 0; i < dim; i++)
		{
			char	   *element = v + i * PipeannElementSize(s);
			uint16		h;
			float		want;

			memcpy(&h, element, Min(sizeof(h), PipeannElementSize(s)));
			if (s == PIPEANN_FLOAT4)
				memcpy(&want, element, sizeof(want));
			else if (s == PIPEANN_FLOAT2)
				want = HalfToFloat(h);
			else
				want = s == PIPEANN_INT8 ? *(int8 *) element :
					*(uint8 *) element;
			if (!CHECK(memcmp(out + i, &want, sizeof(want)) == 0))
				NOTE("set %s, storage %d, %d dimensions", Sets[k]->name, s,
					 dim);
		}
		CHECK(((char *) out)[-1] == 77);
	}
}

static void
ConversionsToFloat(void)
{
	for (int s = 0; s < NUM_STORAGES; s++)
	{
		for (int dim = 0; dim <= 70; dim++)
			for (int back = 0; back < 4; back++)
				CheckToFloat(Storages[s], dim, back);
		CheckToFloat(Storages[s], 1535, 1);
		CheckToFloat(Storages[s], MAX_DIM, 0);
	}
}

static void
AllHalfsConvert(void)
{
	static uint16 halfs[65536];
	static float want[65536];
	static float got[65536];

	for (int h = 0; h < 65536; h++)
	{
		halfs[h] = h;
		want[h] = HalfToFloat(h);
	}
	for (int k = 0; k < NumSets; k++)
	{
		Sets[k]->to_float[PIPEANN_FLOAT2] (halfs, 65536, got);
		CHECK(memcmp(got, want, sizeof(want)) == 0);
	}
}

/* Rounds value, which no other compiler's arithmetic may have touched. */
static int
FixedValue(float x, float offset, float scale)
{
	volatile float difference = x - offset;
	volatile float product = difference * scale;
	double		value = product;
	double		whole;

	if (value >= PIPEANN_FIXED_MAX)
		return PIPEANN_FIXED_MAX;
	if (value <= -PIPEANN_FIXED_MAX)
		return -PIPEANN_FIXED_MAX;
	whole = (double) (int) value;
	if (value - whole > 0.5 || (value - whole == 0.5 && (int) whole % 2 != 0))
		whole += 1;
	if (whole - value > 0.5 || (whole - value == 0.5 && (int) whole % 2 != 0))
		whole -= 1;
	return (int) whole;
}

static void
CheckToFixed(int dim, float scale, bool halves)
{
	float	   *x = (float *) GuardQ.end - dim;
	float	   *offset = (float *) GuardA.end - dim;
	int16	   *out = (int16 *) GuardB.end - dim;
	uint64		random = dim * 10 + halves;

	for (int i = 0; i < dim; i++)
	{
		x[i] = halves ? (float) ((int) (UnitRandom(&random) % 40) - 20) / 2 :
			UnitRandomFloat(&random, -2.0f, 2.0f);
		offset[i] = halves ? (float) (int) (UnitRandom(&random) % 9) :
			UnitRandomFloat(&random, -0.5f, 0.5f);
		if (UnitRandom(&random) % 50 == 0)
			x[i] = UnitRandom(&random) % 2 == 0 ? 1e30f : -__builtin_inff();
	}
	for (int k = 0; k < NumSets; k++)
	{
		out[-1] = 77;
		Sets[k]->to_fixed(x, offset, scale, dim, out);
		CHECK(out[-1] == 77);
		for (int i = 0; i < dim; i++)
			if (!CHECK(out[i] == FixedValue(x[i], offset[i], scale)))
				NOTE("set %s, %d dimensions: (%.9g - %.9g) * %g is not %d",
					 Sets[k]->name, dim, x[i], offset[i], scale, out[i]);
	}
}

static void
FixedPointNumbers(void)
{
	for (int dim = 0; dim <= 70; dim++)
	{
		CheckToFixed(dim, 1.0f, true);
		CheckToFixed(dim, 3.7f, true);
		CheckToFixed(dim, 1000.0f, false);
		CheckToFixed(dim, 17000.7f, false);
	}
	CheckToFixed(MAX_DIM, 12345.6f, false);
	CheckToFixed(MAX_DIM, 1.0f, true);
	CheckToFixed(MAX_DIM, 0.0001f, false);
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
		float		f = HalfToFloat((uint16) h);
		bool		is_nan = (h & 0x7c00) == 0x7c00 && (h & 0x3ff) != 0;

		if (is_nan)
		{
			CHECK(f != f);
			CHECK((FloatToHalf(f) & 0x7fff) > 0x7c00);
			continue;
		}
		CHECK(FloatToHalf(f) == h);
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

		CHECK(FloatToHalf(middle) == (h % 2 == 0 ? h : h + 1));
		CHECK(FloatToHalf(-middle) ==
			  (0x8000 | (h % 2 == 0 ? h : h + 1)));
		CHECK(FloatToHalf(below) == h);
		CHECK(FloatToHalf(above) == h + 1);
	}
	CHECK(FloatToHalf(65519.0f) == 0x7bff);
	CHECK(FloatToHalf(65520.0f) == 0x7c00);
	CHECK(FloatToHalf(-1e30f) == 0xfc00);
	CHECK(FloatToHalf(1e-30f) == 0);
	CHECK(FloatToHalf(-1e-45f) == 0x8000);
}

/* All sets round as FloatToHalf() does, vectors of any length and alignment. */
static void
CheckToHalf(int dim, uint64 seed)
{
	float	   *x = (float *) GuardQ.end - dim;
	char	   *out = (char *) GuardA.end - dim * sizeof(uint16) -
		(seed % 2);

	for (int i = 0; i < dim; i++)
	{
		uint32		bits = (uint32) UnitRandom(&seed);
		int			exponent = 100 + (int) (UnitRandom(&seed) % 46);

		/* mostly of the size that halfs have */
		if (UnitRandom(&seed) % 8 != 0)
			bits = (bits & 0x807fffff) | (uint32) exponent << 23;
		/* in the middle between two halfs */
		if (UnitRandom(&seed) % 4 == 0)
			bits = (bits & 0xffffe000) | 0x1000;
		memcpy(x + i, &bits, sizeof(bits));
	}
	for (int k = 0; k < NumSets; k++)
	{
		out[-1] = 77;
		memset(out, 0, dim * sizeof(uint16));
		Sets[k]->to_half(x, dim, out);
		CHECK(out[-1] == 77);
		for (int i = 0; i < dim; i++)
		{
			uint16		half;

			memcpy(&half, out + i * sizeof(uint16), sizeof(half));
			if (!CHECK(half == FloatToHalf(x[i])))
				NOTE("set %s, %d dimensions: %.9g is not %x", Sets[k]->name,
					 dim, x[i], half);
		}
	}
}

static void
VectorsToHalfs(void)
{
	for (int dim = 0; dim <= 70; dim++)
		CheckToHalf(dim, dim);
	for (int i = 0; i < 10; i++)
		CheckToHalf(MAX_DIM, 1000 + i);
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

/* Vectors of bits that end `back` bytes before a guard page, and one query's. */
static void
CheckBits(int dim, int ones, int back)
{
	static float x[2][64000];
	Size		size = PipeannVectorBytes(PIPEANN_BITS, dim);
	char	   *v[2] = {GuardA.end - back - size, GuardB.end - back - size};
	float	   *room = (float *) GuardQ.end - dim;
	float	   *out = PipeannAlloc(dim * sizeof(float));
	uint64		random = dim * 10 + ones;
	int			different = 0;
	int			common = 0;
	const void *query;

	for (int i = 0; i < dim; i++)
	{
		for (int k = 0; k < 2; k++)
			x[k][i] = (int) (UnitRandom(&random) % 8) < ones;
		different += x[0][i] != x[1][i];
		common += x[0][i] == 1 && x[1][i] == 1;
	}
	for (int k = 0; k < 2; k++)
	{
		CHECK(PipeannVectorFits(x[k], PIPEANN_BITS, dim));
		memset(v[k], 77, size);
		PipeannVectorFromFloat(x[k], PIPEANN_BITS, dim, v[k]);
		for (Size i = 0; i < size * 8; i++)
			if (!CHECK(((uint8) v[k][i / 8] >> (7 - i % 8) & 1) ==
					   (i < (Size) dim && x[k][i] == 1)))
				break;
	}
	query = PipeannQueryFor(PIPEANN_BITS, x[0], dim, room);
	CHECK(memcmp(query, v[0], size) == 0);
	for (int k = 0; k < NumSets; k++)
	{
		bool		good = CHECK(Sets[k]->l2[PIPEANN_BITS] (query, v[1], dim) == different);

		good &= CHECK(Sets[k]->l2_pair[PIPEANN_BITS] (v[0], v[1], dim) == different);
		good &= CHECK(Sets[k]->jaccard(v[0], v[1], dim) ==
					  (common > 0 ? different / (float) (different + common) : 1));
		memset(out, 77, dim * sizeof(float));
		Sets[k]->to_float[PIPEANN_BITS] (v[1], dim, out);
		good &= CHECK(memcmp(out, x[1], dim * sizeof(float)) == 0);
		if (!good)
			NOTE("set %s, %d bits", Sets[k]->name, dim);
	}
	pfree(out);
}

static void
VectorsOfBits(void)
{
	static const int large[] = {511, 512, 513, 1000, 1024, 4097, 63999, 64000};

	for (int dim = 1; dim <= 300; dim++)
		for (int back = 0; back < 3; back++)
			CheckBits(dim, 1 + dim % 8, back);
	for (int i = 0; i < (int) (sizeof(large) / sizeof(large[0])); i++)
		for (int ones = 0; ones <= 8; ones += 4)
			CheckBits(large[i], ones, i % 2);
	CHECK(!Fits(0.5f, PIPEANN_BITS));
	CHECK(!Fits(-1, PIPEANN_BITS));
	CHECK(!Fits(2, PIPEANN_BITS));
	CHECK(!Fits(__builtin_nanf(""), PIPEANN_BITS));
}

/* Vectors to quantise: even, with one large element, all alike, and extreme ones. */
static void
FillToQuantize(int kind, int dim, uint64 *random, float *x)
{
	static const float sizes[] = {1, 1, 1, 0, 1e-37f, 1e30f, 1e-44f, 3e38f};

	for (int i = 0; i < dim; i++)
		x[i] = kind == 2 ? 0.1f :
			UnitRandomFloat(random, -1, 1) * sizes[kind];
	if (kind == 1)
		x[dim / 3] = 40;
	if (kind == 7)
		x[0] = sizes[kind];		/* sums are infinite, with any sign */
}

#define QUANTIZED_KINDS 8

/* Number i of b bits as the format describes it, bit by bit. */
static int
NumberOf(const uint8 *v, int bits, int i)
{
	int			number = 0;

	for (int k = 0; k < bits; k++)
	{
		int			bit = i % 8 * bits + k;

		number |= (v[i / 8 * bits + bit / 8] >> bit % 8 & 1) << k;
	}
	return number >= 1 << (bits - 1) ? number - (1 << bits) : number;
}

/* A quantised vector in plain arithmetic; rotated as it is. */
static void
Decode(const void *v, PipeannStorage s, int dim, double *out)
{
	float		scale;

	memcpy(&scale, (const char *) v + dim / 8 * PipeannSqBits(s), sizeof(scale));
	for (int i = 0; i < dim; i++)
		out[i] = NumberOf(v, PipeannSqBits(s), i) * (double) scale;
}

/* All sets rotate and quantise alike, and back. */
static void
CheckQuantizing(PipeannStorage s, int dim, const float *x, char *form)
{
	static float rotated[PIPEANN_SQ_MAX_DIM];
	static float other[PIPEANN_SQ_MAX_DIM];
	static char other_form[PIPEANN_SQ_MAX_DIM * 2];
	static double decoded[PIPEANN_SQ_MAX_DIM];
	Size		size = PipeannVectorBytes(s, dim);

	memcpy(rotated, x, dim * sizeof(float));
	Sets[0]->rotate(rotated, dim, false);
	Sets[0]->quantize(rotated, PipeannSqBits(s), dim, form);
	Decode(form, s, dim, decoded);
	for (int k = 0; k < NumSets; k++)
	{
		memcpy(other, x, dim * sizeof(float));
		Sets[k]->rotate(other, dim, false);
		CHECK(fabsf(x[0]) > 1e38f ||
			  memcmp(other, rotated, dim * sizeof(float)) == 0);
		Sets[k]->quantize(rotated, PipeannSqBits(s), dim, other_form);
		CHECK(memcmp(other_form, form, size) == 0);
		Sets[k]->to_float[s] (form, dim, other);
		for (int i = 0; i < dim; i++)
			CHECK(other[i] == (float) decoded[i]);
	}
}

/*
 * No element errs by more than half of the scale; with a vector's norm kept, as a
 * rotation keeps it, the largest is not large. (Nothing is promised of a vector too
 * small or large to have a scale.)
 */
static void
CheckLoss(PipeannStorage s, int dim, const float *x, const char *form)
{
	static float back[PIPEANN_SQ_MAX_DIM];
	double		lost = 0;
	double		norm = 0;
	float		scale;

	memcpy(&scale, form + dim / 8 * PipeannSqBits(s), sizeof(scale));
	PipeannVectorToFloat(form, s, dim, back);
	for (int i = 0; i < dim; i++)
	{
		lost += ((double) x[i] - back[i]) * ((double) x[i] - back[i]);
		norm += (double) x[i] * x[i];
	}
	if (norm == 0)
		CHECK(scale == 0 && lost == 0);
	else if (scale > 1e-36f)
	{
		CHECK(sqrt(lost) <= 0.5001 * scale * sqrt(dim) + 1e-6 * sqrt(norm));
		CHECK(sqrt(lost) <= sqrt(norm) * 8 / (1 << PipeannSqBits(s)));
	}
}

/* Distances of quantised vectors that end where memory does. */
static void
CheckQuantizedDistances(PipeannStorage s, int dim, const float *x,
						const float *y, int back)
{
	static double dq[PIPEANN_SQ_MAX_DIM];
	static double da[PIPEANN_SQ_MAX_DIM];
	static double db[PIPEANN_SQ_MAX_DIM];
	Size		size = PipeannVectorBytes(s, dim);
	float	   *q = (float *) (GuardQ.end - dim * sizeof(float));
	char	   *a = GuardA.end - back - size;
	char	   *b = GuardB.end - back - size;

	PipeannVectorFromFloat(x, s, dim, a);
	PipeannVectorFromFloat(y, s, dim, b);
	(void) PipeannQueryFor(s, y, dim, q);
	Decode(a, s, dim, da);
	Decode(b, s, dim, db);
	for (int i = 0; i < dim; i++)
		dq[i] = q[i];
	CheckVectors(s, dim, q, a, b, dq, da, db);
}

static void
QuantizedVectors(void)
{
	static const int dims[] = {256, 272, 384, 512, 768, 1008, 1536, 4096};
	static float x[PIPEANN_SQ_MAX_DIM];
	static float y[PIPEANN_SQ_MAX_DIM];
	static char form[PIPEANN_SQ_MAX_DIM * 2];
	uint64		random = 5;

	for (int d = 0; d < (int) (sizeof(dims) / sizeof(dims[0])); d++)
		for (PipeannStorage s = PIPEANN_SQ12; s <= PIPEANN_SQ14; s++)
			for (int kind = 0; kind < QUANTIZED_KINDS; kind++)
			{
				FillToQuantize(kind, dims[d], &random, x);
				FillToQuantize(0, dims[d], &random, y);
				CheckQuantizing(s, dims[d], x, form);
				CheckLoss(s, dims[d], x, form);
				if (kind < 4)
					CheckQuantizedDistances(s, dims[d], x, y, kind);
			}
}

/* What a query and vectors are at, before and after all of them are rotated. */
static void
RotationsKeepDistances(void)
{
	static float x[PIPEANN_SQ_MAX_DIM];
	static float y[PIPEANN_SQ_MAX_DIM];
	static double dx[PIPEANN_SQ_MAX_DIM];
	static double dy[PIPEANN_SQ_MAX_DIM];
	uint64		random = 6;

	for (int dim = PIPEANN_SQ_MIN_DIM; dim <= PIPEANN_SQ_MAX_DIM; dim += 240)
	{
		Exact		before;
		Exact		after;

		FillToQuantize(1, dim, &random, x);
		FillToQuantize(0, dim, &random, y);
		for (int i = 0; i < dim; i++)
		{
			dx[i] = x[i];
			dy[i] = y[i];
		}
		before = Compute(dx, dy, dim);
		PipeannKernel->rotate(x, dim, false);
		PipeannKernel->rotate(y, dim, false);
		for (int i = 0; i < dim; i++)
		{
			CHECK(fabsf(x[i]) < 16);	/* not the 40 of before */
			dx[i] = x[i];
			dy[i] = y[i];
		}
		after = Compute(dx, dy, dim);
		CHECK_CLOSE(before.l2, after.l2, 1e-6 * before.l2);
		CHECK_CLOSE(before.dot, after.dot, 1e-6 * before.l2);
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
	GuardQ = AllocInTree(64000 * sizeof(float));
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
	UNIT_RUN(NearestCentroids);
	UNIT_RUN(EveryCentroidIsFound);
	UNIT_RUN(ShortArrays);
	UNIT_RUN(SetsOfBytes);
	UNIT_RUN(RangesOfNumbers);
	UNIT_RUN(PanelsAreInterleaved);
	UNIT_RUN(TilesOfProducts);
	UNIT_RUN(TilesToDistances);
	UNIT_RUN(ConversionsToFloat);
	UNIT_RUN(AllHalfsConvert);
	UNIT_RUN(VectorsToHalfs);
	UNIT_RUN(FixedPointNumbers);
	UNIT_RUN(VectorsOfBits);
	UNIT_RUN(QuantizedVectors);
	UNIT_RUN(RotationsKeepDistances);
	return UnitDone();
}
