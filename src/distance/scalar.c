/*
 * scalar.c
 *		Distance kernels in portable C, the reference for all other sets.
 *
 * Each uses four accumulators, so that additions overlap even if the compiler
 * does not vectorise (it may not reorder a float sum), and so that the error
 * of a long sum stays small.
 */
#include "distance/distance.h"

#include "distance/bulk.h"
#include "distance/half.h"
#include "distance/pq_scan.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/*
 * Element i of a stored vector, which need not be aligned. The storage is a
 * constant where this is inlined.
 */
ALWAYS_INLINE float
Load(const void *v, PipeannStorage storage, int i)
{
	switch (storage)
	{
		case PIPEANN_FLOAT4:
			{
				float		f;

				memcpy(&f, (const char *) v + (Size) i * sizeof(f), sizeof(f));
				return f;
			}
		case PIPEANN_FLOAT2:
			{
				uint16		h;

				memcpy(&h, (const char *) v + (Size) i * sizeof(h), sizeof(h));
				return HalfToFloat(h);
			}
		case PIPEANN_INT8:
			return ((const int8 *) v)[i];
		default:
			return ((const uint8 *) v)[i];
	}
}

ALWAYS_INLINE float
SquareOfDifference(float a, float b)
{
	return (a - b) * (a - b);
}

/* Sum over i < dim of (a[i] - b[i])^2. */
ALWAYS_INLINE float
FloatL2(const void *a, PipeannStorage sa, const void *b, PipeannStorage sb,
		int dim)
{
	float		s0 = 0.0f;
	float		s1 = 0.0f;
	float		s2 = 0.0f;
	float		s3 = 0.0f;
	int			i = 0;

	for (; i + 4 <= dim; i += 4)
	{
		s0 += SquareOfDifference(Load(a, sa, i), Load(b, sb, i));
		s1 += SquareOfDifference(Load(a, sa, i + 1), Load(b, sb, i + 1));
		s2 += SquareOfDifference(Load(a, sa, i + 2), Load(b, sb, i + 2));
		s3 += SquareOfDifference(Load(a, sa, i + 3), Load(b, sb, i + 3));
	}
	for (; i < dim; i++)
		s0 += SquareOfDifference(Load(a, sa, i), Load(b, sb, i));
	return (s0 + s1) + (s2 + s3);
}

/* Sum over i < dim of a[i] * b[i]. */
ALWAYS_INLINE float
FloatDot(const void *a, PipeannStorage sa, const void *b, PipeannStorage sb,
		 int dim)
{
	float		s0 = 0.0f;
	float		s1 = 0.0f;
	float		s2 = 0.0f;
	float		s3 = 0.0f;
	int			i = 0;

	for (; i + 4 <= dim; i += 4)
	{
		s0 += Load(a, sa, i) * Load(b, sb, i);
		s1 += Load(a, sa, i + 1) * Load(b, sb, i + 1);
		s2 += Load(a, sa, i + 2) * Load(b, sb, i + 2);
		s3 += Load(a, sa, i + 3) * Load(b, sb, i + 3);
	}
	for (; i < dim; i++)
		s0 += Load(a, sa, i) * Load(b, sb, i);
	return (s0 + s1) + (s2 + s3);
}

static float
L2Float4(const float *q, const void *v, int dim)
{
	return FloatL2(q, PIPEANN_FLOAT4, v, PIPEANN_FLOAT4, dim);
}

static float
L2Float2(const float *q, const void *v, int dim)
{
	return FloatL2(q, PIPEANN_FLOAT4, v, PIPEANN_FLOAT2, dim);
}

static float
L2Int8(const float *q, const void *v, int dim)
{
	return FloatL2(q, PIPEANN_FLOAT4, v, PIPEANN_INT8, dim);
}

static float
L2Uint8(const float *q, const void *v, int dim)
{
	return FloatL2(q, PIPEANN_FLOAT4, v, PIPEANN_UINT8, dim);
}

static float
DotFloat4(const float *q, const void *v, int dim)
{
	return FloatDot(q, PIPEANN_FLOAT4, v, PIPEANN_FLOAT4, dim);
}

static float
DotFloat2(const float *q, const void *v, int dim)
{
	return FloatDot(q, PIPEANN_FLOAT4, v, PIPEANN_FLOAT2, dim);
}

static float
DotInt8(const float *q, const void *v, int dim)
{
	return FloatDot(q, PIPEANN_FLOAT4, v, PIPEANN_INT8, dim);
}

static float
DotUint8(const float *q, const void *v, int dim)
{
	return FloatDot(q, PIPEANN_FLOAT4, v, PIPEANN_UINT8, dim);
}

static float
L2PairFloat4(const void *a, const void *b, int dim)
{
	return FloatL2(a, PIPEANN_FLOAT4, b, PIPEANN_FLOAT4, dim);
}

static float
L2PairFloat2(const void *a, const void *b, int dim)
{
	return FloatL2(a, PIPEANN_FLOAT2, b, PIPEANN_FLOAT2, dim);
}

static float
DotPairFloat4(const void *a, const void *b, int dim)
{
	return FloatDot(a, PIPEANN_FLOAT4, b, PIPEANN_FLOAT4, dim);
}

static float
DotPairFloat2(const void *a, const void *b, int dim)
{
	return FloatDot(a, PIPEANN_FLOAT2, b, PIPEANN_FLOAT2, dim);
}

/*
 * Bytes against bytes, exact: 255^2 * dim stays below 2^31 up to 33,025
 * dimensions, more than the 16,000 that the vector type allows.
 */
static float
L2PairInt8(const void *a, const void *b, int dim)
{
	const int8 *x = a;
	const int8 *y = b;
	int32		sum = 0;

	for (int i = 0; i < dim; i++)
		sum += (x[i] - y[i]) * (x[i] - y[i]);
	return (float) sum;
}

static float
L2PairUint8(const void *a, const void *b, int dim)
{
	const uint8 *x = a;
	const uint8 *y = b;
	int32		sum = 0;

	for (int i = 0; i < dim; i++)
		sum += (x[i] - y[i]) * (x[i] - y[i]);
	return (float) sum;
}

static float
DotPairInt8(const void *a, const void *b, int dim)
{
	const int8 *x = a;
	const int8 *y = b;
	int32		sum = 0;

	for (int i = 0; i < dim; i++)
		sum += x[i] * y[i];
	return (float) sum;
}

static float
DotPairUint8(const void *a, const void *b, int dim)
{
	const uint8 *x = a;
	const uint8 *y = b;
	int32		sum = 0;

	for (int i = 0; i < dim; i++)
		sum += x[i] * y[i];
	return (float) sum;
}

static void
PqScan(const float *table, int nchunks, const uint8 *const *codes, int n,
	   float *out)
{
	PqScanBody(table, nchunks, codes, n, out);
}

const PipeannKernels PipeannKernelsScalar = {
	.name = "scalar",
	.l2 = {NULL, L2Float4, L2Float2, L2Int8, L2Uint8},
	.dot = {NULL, DotFloat4, DotFloat2, DotInt8, DotUint8},
	.l2_pair = {NULL, L2PairFloat4, L2PairFloat2, L2PairInt8, L2PairUint8},
	.dot_pair = {NULL, DotPairFloat4, DotPairFloat2, DotPairInt8,
	DotPairUint8},
	.pq_scan = PqScan,
	BULK_KERNELS(Scalar)
};
