/*
 * pq_test.c
 *		The product quantiser: layout, training, codes, tables.
 */
#include "unit.h"

#include <float.h>
#include <math.h>

#include "distance/distance.h"
#include "pq/pq.h"

#define IMAGE_DIM 784

/* Vectors to train on and others to test with, [n][dim]. */
typedef struct Data
{
	int			dim;
	uint32		n;
	float	   *train;
	uint32		ntest;
	float	   *test;
} Data;

static PipeannPq
MakePq(int dim, int nsubvectors)
{
	PipeannPq	pq = PipeannPqNew(PIPEANN_FLOAT4, dim, nsubvectors);

	pq.centroids = palloc(sizeof(float) * PipeannPqCentroidCount(dim));
	return pq;
}

static void
FreePq(PipeannPq *pq)
{
	pfree((void *) pq->start);
	pfree((void *) pq->len);
	pfree((void *) pq->offset);
	pfree((void *) pq->centroids);
}

static void
Train(PipeannPq *pq, const Data *data, uint32 n, uint64 seed)
{
	PipeannPqTrain(PipeannTeamAlone(), pq, data->train, n, seed,
				   (float *) pq->centroids);
}

/* Every dimension in exactly one subvector, of nearly equal sizes. */
static void
CheckLayout(int dim, int nsubvectors)
{
	PipeannPq	pq = MakePq(dim, nsubvectors);
	uint8	   *covered = palloc0(dim);
	uint8	   *used = palloc0(dim);

	for (int j = 0; j < nsubvectors; j++)
	{
		CHECK(pq.len[j] == dim / nsubvectors ||
			  pq.len[j] == (dim + nsubvectors - 1) / nsubvectors);
		CHECK(pq.start[j] >= 0 && pq.start[j] + pq.len[j] <= dim);
		CHECK(pq.offset[j] % PIPEANN_CENTROIDS == 0);
		for (int d = 0; d < pq.len[j]; d++)
		{
			covered[pq.start[j] + d]++;
			used[pq.offset[j] / PIPEANN_CENTROIDS + d]++;
		}
	}
	for (int d = 0; d < dim; d++)
		CHECK(covered[d] == 1 && used[d] == 1);
	pfree(used);
	pfree(covered);
	FreePq(&pq);
}

static void
LayoutCoversTheVector(void)
{
	for (int dim = 1; dim <= 130; dim++)
		for (int nsubvectors = 1; nsubvectors <= dim; nsubvectors++)
			CheckLayout(dim, nsubvectors);
	CheckLayout(784, 98);
	CheckLayout(1536, 96);
	CheckLayout(1537, 96);
	CheckLayout(16000, 96);
	CheckLayout(16000, 16000);
}

/* A prefix of p bytes leaves no gap much wider than the vector's p-th part. */
static void
PrefixesAreSpread(void)
{
	static const int sizes[] = {16, 25, 32, 50, 64, 96, 98};

	for (int i = 0; i < (int) (sizeof(sizes) / sizeof(sizes[0])); i++)
	{
		int			nsubvectors = sizes[i];
		PipeannPq	pq = MakePq(8 * nsubvectors, nsubvectors);
		bool	   *seen = palloc0(sizeof(bool) * (nsubvectors + 1));

		for (int p = 1; p <= nsubvectors; p++)
		{
			int			gap = 0;
			int			widest = 0;

			seen[pq.start[p - 1] / 8] = true;
			for (int run = 0; run < nsubvectors; run++)
			{
				gap = seen[run] ? 0 : gap + 1;
				widest = Max(widest, gap);
			}
			CHECK(widest <= 4 * nsubvectors / p);
		}
		pfree(seen);
		FreePq(&pq);
	}
}

/* Where subvectors are is written into indexes: these may never change. */
static void
LayoutIsStable(void)
{
	static const int start[] = {0, 4, 2, 6, 1, 5, 3};
	static const int len[] = {1, 1, 1, 2, 1, 1, 1};
	PipeannPq	pq = MakePq(8, 7);

	for (int j = 0; j < 7; j++)
	{
		CHECK(pq.start[j] == start[j]);
		CHECK(pq.len[j] == len[j]);
		CHECK(pq.offset[j] == (Size) start[j] * 256);
	}
	FreePq(&pq);
}

static void
AutomaticSizes(void)
{
	CHECK(PipeannPqAutoBytes(PIPEANN_FLOAT4, 1) == 1);
	CHECK(PipeannPqAutoBytes(PIPEANN_FLOAT4, 15) == 15);
	CHECK(PipeannPqAutoBytes(PIPEANN_FLOAT4, 16) == 16);
	CHECK(PipeannPqAutoBytes(PIPEANN_FLOAT4, 33) == 24);
	CHECK(PipeannPqAutoBytes(PIPEANN_FLOAT4, 100) == 56);
	CHECK(PipeannPqAutoBytes(PIPEANN_FLOAT4, 128) == 64);
	CHECK(PipeannPqAutoBytes(PIPEANN_FLOAT4, 192) == 96);
	CHECK(PipeannPqAutoBytes(PIPEANN_FLOAT4, 415) == 96);
	CHECK(PipeannPqAutoBytes(PIPEANN_FLOAT4, 416) == 104);
	CHECK(PipeannPqAutoBytes(PIPEANN_SQ12, 768) == 192);
	CHECK(PipeannPqAutoBytes(PIPEANN_UINT8, 784) == 192);
	CHECK(PipeannPqAutoBytes(PIPEANN_FLOAT4, 1536) == 192);
	CHECK(PipeannPqAutoBytes(PIPEANN_FLOAT4, 1599) == 192);
	CHECK(PipeannPqAutoBytes(PIPEANN_FLOAT4, 1600) == 200);
	CHECK(PipeannPqAutoBytes(PIPEANN_FLOAT4, 16000) == 1024);
	CHECK(PipeannPqAutoBytes(PIPEANN_SPARSE16, PIPEANN_SPARSE_DIM) == 128);
	CHECK(PipeannPqAutoBytes(PIPEANN_BITS, 1) == 1);
	CHECK(PipeannPqAutoBytes(PIPEANN_BITS, 8) == 1);
	CHECK(PipeannPqAutoBytes(PIPEANN_BITS, 9) == 2);
	CHECK(PipeannPqAutoBytes(PIPEANN_BITS, 384) == 48);
	CHECK(PipeannPqAutoBytes(PIPEANN_BITS, 64000) == 1024);
}

/*
 * Real images, if the package is installed; not where the processor is
 * emulated, which takes minutes for them.
 */
static bool
ReadImages(Data *data)
{
	Size		count = (Size) (data->n + data->ntest) * IMAGE_DIM;
	uint8	   *bytes;
	bool		good;

	if (getenv("PIPEANN_UNIT_QUICK") != NULL)
		return false;
	bytes = palloc(count);
	good = UnitReadImages("t10k", bytes, count);
	if (good)
	{
		data->dim = IMAGE_DIM;
		data->train = palloc(sizeof(float) * data->n * IMAGE_DIM);
		data->test = palloc(sizeof(float) * data->ntest * IMAGE_DIM);
		PipeannVectorToFloat(bytes, PIPEANN_UINT8, data->n * IMAGE_DIM,
							 data->train);
		PipeannVectorToFloat(bytes + (Size) data->n * IMAGE_DIM,
							 PIPEANN_UINT8, data->ntest * IMAGE_DIM,
							 data->test);
	}
	pfree(bytes);
	return good;
}

/*
 * Noise around 40 smooth curves, so that neighbouring dimensions depend on
 * each other as those of real data do.
 */
static float *
MakeCurves(int dim, uint32 n, uint64 seed)
{
	float	   *v = palloc(sizeof(float) * n * dim);

	for (uint32 i = 0; i < n; i++)
	{
		uint64		curve = UnitRandom(&seed) % 40;
		float		y = 0.0f;

		for (int d = 0; d < dim; d++)
		{
			y += UnitRandomFloat(&curve, -1.0f, 1.0f);
			v[(Size) i * dim + d] = y + UnitRandomFloat(&seed, -0.3f, 0.3f);
		}
	}
	return v;
}

static Data
MakeData(int dim, uint32 n, uint32 ntest)
{
	Data		data = {dim, n, NULL, ntest, NULL};

	data.train = MakeCurves(dim, n, 1);
	data.test = MakeCurves(dim, ntest, 2);
	return data;
}

static void
FreeData(Data *data)
{
	pfree(data->train);
	pfree(data->test);
}

/* Mean squared error of the test vectors' codes. */
static double
TestError(const PipeannPq *pq, const Data *data)
{
	uint8	   *code = palloc(pq->nsubvectors);
	float	   *decoded = palloc(sizeof(float) * pq->dim);
	double		error = 0.0;

	for (uint32 i = 0; i < data->ntest; i++)
	{
		const float *x = data->test + (Size) i * pq->dim;

		PipeannPqEncode(pq, x, code);
		PipeannPqDecode(pq, code, decoded);
		error += PipeannKernel->l2[PIPEANN_FLOAT4] (x, decoded, pq->dim);
	}
	pfree(decoded);
	pfree(code);
	return error / data->ntest;
}

/* Against centroids that are samples chosen at random. */
static void
CheckTraining(const char *name, const Data *data, int nsubvectors)
{
	PipeannPq	pq = MakePq(data->dim, nsubvectors);
	float	   *centroids = (float *) pq.centroids;
	uint64		random = 5;
	double		before;
	double		after;

	for (int k = 0; k < PIPEANN_CENTROIDS; k++)
	{
		uint32		i = UnitRandom(&random) % data->n;

		for (int d = 0; d < data->dim; d++)
			centroids[d * PIPEANN_CENTROIDS + k] =
				data->train[(Size) i * data->dim + d];
	}
	before = TestError(&pq, data);
	Train(&pq, data, data->n, 7);
	after = TestError(&pq, data);
	NOTE("%s, %d bytes: error %g with samples as centroids, %g trained",
		 name, nsubvectors, before, after);
	CHECK(after < 0.85 * before);
	FreePq(&pq);
}

static void
TrainingLowersTheError(void)
{
	Data		images = {0, 4000, NULL, 500, NULL};
	Data		curves = MakeData(100, 4000, 500);

	if (ReadImages(&images))
	{
		CheckTraining("images", &images, 32);
		CheckTraining("images", &images, 98);
		FreeData(&images);
	}
	else
		NOTE("images are not there, or left out");
	CheckTraining("curves", &curves, 10);
	CheckTraining("curves", &curves, 33);
	FreeData(&curves);
}

/*
 * The sum over a code equals the distance to the decoded vector, for cosine that of
 * vectors of length 1, which these need not be.
 */
static void
CheckTable(const PipeannPq *pq, const Data *data, PipeannMetric metric)
{
	const float *q = data->test;
	float	   *table = palloc(sizeof(float) * pq->nsubvectors * 256);
	float	   *decoded = palloc(sizeof(float) * pq->dim);
	uint8	   *code = palloc(pq->nsubvectors);

	PipeannPqTable(pq, metric, q, table);
	for (uint32 i = 0; i < data->ntest; i++)
	{
		const uint8 *codes[1] = {code};
		float		sum;
		float		exact;

		PipeannPqEncode(pq, data->test + (Size) i * pq->dim, code);
		PipeannPqDecode(pq, code, decoded);
		PipeannPqScan(pq, metric, table, codes, 1, &sum);
		if (metric == PIPEANN_IP)
			exact = -PipeannKernel->dot[PIPEANN_FLOAT4] (q, decoded, pq->dim);
		else if (metric == PIPEANN_L1)
			exact = PipeannKernel->l1[PIPEANN_FLOAT4] (q, decoded, pq->dim);
		else
			exact = PipeannKernel->l2[PIPEANN_FLOAT4] (q, decoded, pq->dim);
		if (metric == PIPEANN_COSINE)
			exact = exact / 2 - 1;
		CHECK_CLOSE(sum, exact, 1e-5 * ((exact < 0 ? -exact : exact) + 100));
	}
	pfree(code);
	pfree(decoded);
	pfree(table);
}

/*
 * Codes of bits lose nothing, and their distances are order keys.
 */
static void
CodesOfBits(void)
{
	static float x[2][100];
	static float decoded[100];
	static const int dims[] = {1, 7, 8, 9, 63, 64, 65, 100};
	uint64		random = 1;

	for (int i = 0; i < (int) (sizeof(dims) / sizeof(dims[0])); i++)
	{
		int			dim = dims[i];
		PipeannPq	pq = PipeannPqNew(PIPEANN_BITS, dim, (dim + 7) / 8);
		float	   *centroids = PipeannArray(float, PipeannPqCentroidCount(dim));
		float	   *table = PipeannArray(float, (Size) pq.nsubvectors * 256);

		CHECK(pq.bits);
		CHECK(!PipeannPqNew(PIPEANN_BITS, 9, 1).bits);
		PipeannPqTrain(PipeannTeamAlone(), &pq, NULL, 0, 0, centroids);
		pq.centroids = centroids;
		for (int round = 0; round < 100; round++)
		{
			uint8		code[13];
			const uint8 *codes[1] = {code};
			float		sum;
			float		different = 0;
			float		common = 0;
			float		ones = 0;

			for (int d = 0; d < dim; d++)
			{
				x[0][d] = (float) (UnitRandom(&random) & 1);
				x[1][d] = (float) (UnitRandom(&random) & 1);
				ones += x[0][d];
				different += x[0][d] != x[1][d];
				common += x[0][d] * x[1][d];
			}
			(void) PipeannPqEncode(&pq, x[1], code);
			PipeannPqDecode(&pq, code, decoded);
			CHECK(memcmp(decoded, x[1], dim * sizeof(float)) == 0);
			PipeannPqTable(&pq, PIPEANN_HAMMING, x[0], table);
			PipeannPqScan(&pq, PIPEANN_HAMMING, table, codes, 1, &sum);
			CHECK(sum == different);
			PipeannPqTable(&pq, PIPEANN_JACCARD, x[0], table);
			PipeannPqScan(&pq, PIPEANN_JACCARD, table, codes, 1, &sum);
			CHECK(sum == (common > 0 ? different / (different + common) : 1));
			/* by centroids, which codes of wider vectors have: see pq.c */
			pq.bits = false;
			(void) PipeannPqEncode(&pq, x[1], code);
			PipeannPqTable(&pq, PIPEANN_HAMMING, x[0], table);
			PipeannPqScan(&pq, PIPEANN_HAMMING, table, codes, 1, &sum);
			CHECK(sum == different);
			PipeannPqTable(&pq, PIPEANN_JACCARD, x[0], table);
			PipeannPqScan(&pq, PIPEANN_JACCARD, table, codes, 1, &sum);
			CHECK_CLOSE(sum, 0.125 + 0.75 / Max(ones, 1) *
						(ones - common + 0.5 * (different + common - ones)), 1e-5);
			pq.bits = true;
		}
		pfree(centroids);
		pfree(table);
	}
}

/* From the codebook by code comes what comes from the codebook, whatever the lengths. */
static void
DecodersAgree(void)
{
	static const int sizes[][2] = {{8, 8}, {7, 3}, {100, 33}, {96, 24}, {768, 96}, {130, 16}};
	static float want[768];
	static float got[768];
	static uint8 code[768];
	uint64		random = 3;

	for (int i = 0; i < (int) (sizeof(sizes) / sizeof(sizes[0])); i++)
	{
		int			dim = sizes[i][0];
		PipeannPq	pq = MakePq(dim, sizes[i][1]);
		float	   *by_code = palloc(sizeof(float) * dim * 256);

		for (int k = 0; k < dim * 256; k++)
			((float *) pq.centroids)[k] = (float) k;
		PipeannPqByCode(&pq, by_code);
		for (int round = 0; round < 300; round++)
		{
			for (int j = 0; j < pq.nsubvectors; j++)
				code[j] = (uint8) (round < 256 ? (uint64) (round + j) : UnitRandom(&random));
			PipeannPqDecode(&pq, code, want);
			memset(got, 0xFF, sizeof(got));
			PipeannPqDecodeFrom(&pq, by_code, code, got);
			CHECK(memcmp(got, want, dim * sizeof(float)) == 0);
		}
		pfree(by_code);
		FreePq(&pq);
	}
}

static void
TableSumsAreDistances(void)
{
	Data		data = MakeData(100, 2000, 200);

	for (int nsubvectors = 1; nsubvectors <= 100; nsubvectors += 11)
	{
		PipeannPq	pq = MakePq(data.dim, nsubvectors);

		Train(&pq, &data, 600, 3);
		CheckTable(&pq, &data, PIPEANN_L2);
		CheckTable(&pq, &data, PIPEANN_IP);
		CheckTable(&pq, &data, PIPEANN_COSINE);
		CheckTable(&pq, &data, PIPEANN_L1);
		FreePq(&pq);
	}
	FreeData(&data);
}

/* An encoder that is off by one somewhere would still lower the error. */
static void
CodesAreNearest(void)
{
	Data		data = MakeData(21, 1000, 100);
	PipeannPq	pq = MakePq(data.dim, 4);
	uint8		code[4];

	Train(&pq, &data, data.n, 3);
	for (uint32 i = 0; i < data.ntest; i++)
	{
		const float *x = data.test + (Size) i * data.dim;

		PipeannPqEncode(&pq, x, code);
		for (int j = 0; j < pq.nsubvectors; j++)
		{
			double		best = 1e30;
			double		chosen = 0.0;

			for (int k = 0; k < PIPEANN_CENTROIDS; k++)
			{
				double		sum = 0.0;

				for (int d = 0; d < pq.len[j]; d++)
				{
					double		diff = x[pq.start[j] + d] -
						pq.centroids[pq.offset[j] + d * 256 + k];

					sum += diff * diff;
				}
				best = Min(best, sum);
				if (k == code[j])
					chosen = sum;
			}
			CHECK_CLOSE(chosen, best, 1e-5 * best);
		}
	}
	FreePq(&pq);
	FreeData(&data);
}

/* Many at once are encoded like one by one, and only their bytes are set. */
static void
ManyAreEncodedAlike(void)
{
	static const int counts[] = {0, 1, 2, 31, 32, 33, 64, 100};
	Data		data = MakeData(21, 1000, 100);
	PipeannPq	pq = MakePq(data.dim, 8);
	int			stride = 8 + 3;
	uint8		many[100 * (8 + 3)];
	uint8		code[8];
	float		errors[100];
	float		decoded[21];

	Train(&pq, &data, data.n, 3);
	for (int c = 0; c < (int) (sizeof(counts) / sizeof(counts[0])); c++)
	{
		memset(many, 77, sizeof(many));
		PipeannPqEncodeMany(&pq, data.test, counts[c], many, stride, errors);
		for (int i = 0; i < 100; i++)
		{
			const uint8 *row = many + i * stride;

			memset(code, 77, 8);
			if (i < counts[c])
			{
				float		error = PipeannPqEncode(&pq, data.test + i * data.dim,
													code);
				float		far;

				PipeannPqDecode(&pq, code, decoded);
				far = PipeannKernel->l2[PIPEANN_FLOAT4] (data.test + i * data.dim,
														 decoded, data.dim);
				CHECK_CLOSE(error, far, 1e-4 * far);
				CHECK(errors[i] == error);
			}
			CHECK(memcmp(row, code, 8) == 0);
			CHECK(row[8] == 77 && row[9] == 77 && row[10] == 77);
		}
	}
	FreePq(&pq);
	FreeData(&data);
}

static void
SeedDecides(void)
{
	Data		data = MakeData(30, 3000, 1);
	PipeannPq	a = MakePq(30, 7);
	PipeannPq	b = MakePq(30, 7);
	Size		size = sizeof(float) * PipeannPqCentroidCount(30);

	Train(&a, &data, data.n, 42);
	Train(&b, &data, data.n, 42);
	CHECK(memcmp(a.centroids, b.centroids, size) == 0);
	Train(&b, &data, data.n, 43);
	CHECK(memcmp(a.centroids, b.centroids, size) != 0);
	FreePq(&a);
	FreePq(&b);
	FreeData(&data);
}

/* With as many centroids as samples, codes lose nothing. */
static void
FewSamples(void)
{
	static const uint32 counts[] = {1, 2, 255, 256};
	Data		data = MakeData(17, 300, 1);

	for (int i = 0; i < 4; i++)
	{
		PipeannPq	pq = MakePq(17, 5);
		Data		part = data;

		Train(&pq, &data, counts[i], 1);
		part.test = data.train;
		part.ntest = counts[i];
		CHECK(TestError(&pq, &part) == 0.0);
		FreePq(&pq);
	}
	FreeData(&data);
}

/* Fewer distinct samples than centroids, one sample too many, all equal. */
static void
RepeatedSamples(void)
{
	Data		data = MakeData(12, 2000, 1);
	PipeannPq	pq = MakePq(12, 5);
	Data		part = data;

	for (uint32 i = 100; i < data.n; i++)
		memcpy(data.train + i * 12, data.train + i % 100 * 12,
			   12 * sizeof(float));
	part.test = data.train;
	part.ntest = 100;
	Train(&pq, &data, 257, 1);
	CHECK(TestError(&pq, &part) < 1e-9);
	Train(&pq, &data, data.n, 1);
	CHECK(TestError(&pq, &part) < 1e-9);

	memset(data.train, 0, data.n * 12 * sizeof(float));
	Train(&pq, &data, data.n, 1);
	part.ntest = 1;
	CHECK(TestError(&pq, &part) == 0.0);
	FreePq(&pq);
	FreeData(&data);
}

/* A rare value that seeding did not see gets a centroid of its own. */
static void
RareValuesGetCentroids(void)
{
	Data		data = MakeData(4, 50000, 1);
	PipeannPq	pq = MakePq(4, 1);
	Data		rare = data;

	memset(data.train, 0, data.n * 4 * sizeof(float));
	for (uint32 i = 0; i < 20; i++)
		data.train[i * 7 * 4 + 1] = 100.0f + i;
	Train(&pq, &data, data.n, 1);
	rare.test = data.train;
	rare.ntest = 140;
	CHECK(TestError(&pq, &rare) < 1e-6);
	FreePq(&pq);
	FreeData(&data);
}

/*
 * The largest difference between a query's distances with and without halves, relative to
 * the largest distance; a negative number if there are no halves.
 */
static double
DifferenceOfHalves(const Data *data)
{
	PipeannPq	pq = MakePq(data->dim, 4);
	Size		entries = pq.nsubvectors * PIPEANN_CENTROIDS;
	uint16	   *halves = palloc(PipeannPqCentroidCount(data->dim) * sizeof(uint16));
	float	   *with = palloc(entries * sizeof(float));
	float	   *without = palloc(entries * sizeof(float));
	double		most = 0;
	double		difference = 0;

	Train(&pq, data, data->n, 1);
	PipeannPqTable(&pq, PIPEANN_L2, data->test, without);
	if (PipeannPqHalves(&pq, halves))
		pq.halves = halves;
	PipeannPqTable(&pq, PIPEANN_L2, data->test, with);
	for (Size i = 0; i < entries; i++)
	{
		most = Max(most, without[i]);
		difference = Max(difference, fabs(with[i] - without[i]));
	}
	pfree(without);
	pfree(with);
	pfree(halves);
	difference = pq.halves == NULL ? -1 : difference / most;
	FreePq(&pq);
	return difference;
}

/* Where halves could not tell the centroids apart there are none. */
static void
HalvesArePrecise(void)
{
	Data		data = MakeData(16, 2000, 1);
	double		difference = DifferenceOfHalves(&data);
	Size		elements = (Size) data.n * data.dim;

	NOTE("halves differ by %g", difference);
	CHECK(difference > 0 && difference < 2e-3);
	for (Size i = 0; i < elements; i++)
		data.train[i] += 500.0f;
	for (int d = 0; d < data.dim; d++)
		data.test[d] += 500.0f;
	CHECK(DifferenceOfHalves(&data) < 0);
	for (Size i = 0; i < elements; i++)
		data.train[i] = (data.train[i] - 500.0f) * 1e30f;
	CHECK(DifferenceOfHalves(&data) < 0);
	FreeData(&data);
}

int
main(void)
{
	PipeannKernelsInit();
	UNIT_RUN(LayoutCoversTheVector);
	UNIT_RUN(PrefixesAreSpread);
	UNIT_RUN(LayoutIsStable);
	UNIT_RUN(AutomaticSizes);
	UNIT_RUN(TrainingLowersTheError);
	UNIT_RUN(CodesOfBits);
	UNIT_RUN(DecodersAgree);
	UNIT_RUN(TableSumsAreDistances);
	UNIT_RUN(CodesAreNearest);
	UNIT_RUN(ManyAreEncodedAlike);
	UNIT_RUN(SeedDecides);
	UNIT_RUN(FewSamples);
	UNIT_RUN(RepeatedSamples);
	UNIT_RUN(RareValuesGetCentroids);
	UNIT_RUN(HalvesArePrecise);
	return UnitDone();
}
