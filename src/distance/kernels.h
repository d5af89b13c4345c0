/*
 * kernels.h
 *		A set's functions for each storage, and its table; private to distance/.
 *
 * Each set's file includes this at its end (by way of simd.h). By then it has defined SET
 * and SET_NAME, and as KERNEL what a function for its instructions begins with. Its
 * FloatSum(), BytePair(), Centroids() and ToFloat() are always inlined, so that storages
 * are constants in them. See struct PipeannKernels for what the functions do.
 */
#include "distance/pq_scan.h"
#include "distance/sparse.h"

#define QUERY_KERNEL(name, storage, term) \
KERNEL static float \
name(const void *q, const void *v, int dim) \
{ \
	return FloatSum(q, PIPEANN_FLOAT4, v, storage, dim, term); \
}

#define PAIR_KERNEL(name, storage, term) \
KERNEL static float \
name(const void *a, const void *b, int dim) \
{ \
	return FloatSum(a, storage, b, storage, dim, term); \
}

/* The kernels for quantised vectors. */
#define SQ_KERNELS(bits) \
QUERY_KERNEL(L2Sq##bits, PIPEANN_SQ##bits, SQUARES) \
QUERY_KERNEL(DotSq##bits, PIPEANN_SQ##bits, PRODUCTS) \
PAIR_KERNEL(L2PairSq##bits, PIPEANN_SQ##bits, SQUARES) \
PAIR_KERNEL(DotPairSq##bits, PIPEANN_SQ##bits, PRODUCTS) \
TO_FLOAT_KERNEL(Sq##bits##ToFloat, PIPEANN_SQ##bits)

#define BYTE_PAIR_KERNEL(name, is_signed, is_dot) \
KERNEL static float \
name(const void *a, const void *b, int dim) \
{ \
	return BytePair(a, b, dim, is_signed, is_dot); \
}

#define CENTROID_KERNEL(name, type, storage, term) \
KERNEL static void \
name(const float *x, const type *centroids, int len, float *out) \
{ \
	Centroids(x, centroids, storage, len, out, term); \
}

#define TO_FLOAT_KERNEL(name, storage) \
KERNEL static void \
name(const void *src, int dim, float *dst) \
{ \
	ToFloat(src, storage, dim, dst); \
}

QUERY_KERNEL(L2Float4, PIPEANN_FLOAT4, SQUARES)
QUERY_KERNEL(L2Float2, PIPEANN_FLOAT2, SQUARES)
QUERY_KERNEL(L2Int8, PIPEANN_INT8, SQUARES)
QUERY_KERNEL(L2Uint8, PIPEANN_UINT8, SQUARES)
QUERY_KERNEL(DotFloat4, PIPEANN_FLOAT4, PRODUCTS)
QUERY_KERNEL(DotFloat2, PIPEANN_FLOAT2, PRODUCTS)
QUERY_KERNEL(DotInt8, PIPEANN_INT8, PRODUCTS)
QUERY_KERNEL(DotUint8, PIPEANN_UINT8, PRODUCTS)
QUERY_KERNEL(L1Float4, PIPEANN_FLOAT4, DIFFERENCES)
QUERY_KERNEL(L1Float2, PIPEANN_FLOAT2, DIFFERENCES)
QUERY_KERNEL(L1Int8, PIPEANN_INT8, DIFFERENCES)
QUERY_KERNEL(L1Uint8, PIPEANN_UINT8, DIFFERENCES)

PAIR_KERNEL(L2PairFloat4, PIPEANN_FLOAT4, SQUARES)
PAIR_KERNEL(DotPairFloat4, PIPEANN_FLOAT4, PRODUCTS)
PAIR_KERNEL(L1PairFloat2, PIPEANN_FLOAT2, DIFFERENCES)
PAIR_KERNEL(L1PairInt8, PIPEANN_INT8, DIFFERENCES)
PAIR_KERNEL(L1PairUint8, PIPEANN_UINT8, DIFFERENCES)
/* avx2.h has those of two sets */
#ifndef L2PairFloat2
PAIR_KERNEL(L2PairFloat2, PIPEANN_FLOAT2, SQUARES)
PAIR_KERNEL(DotPairFloat2, PIPEANN_FLOAT2, PRODUCTS)
#endif
BYTE_PAIR_KERNEL(L2PairInt8, true, false)
BYTE_PAIR_KERNEL(L2PairUint8, false, false)
BYTE_PAIR_KERNEL(DotPairInt8, true, true)
BYTE_PAIR_KERNEL(DotPairUint8, false, true)

SQ_KERNELS(12)
SQ_KERNELS(13)
SQ_KERNELS(14)

/* Codes between a prefetch and its use. */
#define BITS_AHEAD 16

/* A population count is an instruction of every target; a set may count more at once. */
#ifndef OWN_BIT_SUMS
/* 8 bytes of a vector, or those that are left. */
ALWAYS_INLINE uint64
LoadBits(const uint8 *p, int left)
{
	uint64		word = 0;

	if (left >= (int) sizeof(word))
		memcpy(&word, p, sizeof(word));
	else
		for (int i = 0; i < left; i++)
			word = word << 8 | p[i];
	return word;
}

/* Ones where a differs from each of b[n], or for PRODUCTS that it has in common with it. */
ALWAYS_INLINE void
BitSums(const void *a, const uint8 *const *b, int n, int bytes, Term term,
		float *out)
{
	const uint8 *x = a;
	int			sum[BITS_AT_ONCE] = {0};

	for (int i = 0; i < bytes; i += sizeof(uint64))
	{
		uint64		v = LoadBits(x + i, bytes - i);

		UNROLL(4)
		for (int k = 0; k < n; k++)
		{
			uint64		w = LoadBits(b[k] + i, bytes - i);

			sum[k] += __builtin_popcountll(term == PRODUCTS ? v & w : v ^ w);
		}
	}
	for (int k = 0; k < n; k++)
		out[k] = (float) sum[k];
}
#endif

/* Jaccard distance, from how many ones only one of two vectors has, and how many both have. */
ALWAYS_INLINE float
Jaccard(float different, float common)
{
	return common > 0 ? different / (different + common) : 1;
}

/* The distances of n strings from a; n and jaccard are constants where this is inlined. */
KERNEL static inline __attribute__((always_inline)) void
BitDistances(const void *a, const uint8 *const *b, int n, int bytes, bool jaccard,
			 float *out)
{
	float		common[BITS_AT_ONCE];

	BitSums(a, b, n, bytes, SQUARES, out);
	if (!jaccard)
		return;
	BitSums(a, b, n, bytes, PRODUCTS, common);
	for (int k = 0; k < n; k++)
		out[k] = Jaccard(out[k], common[k]);
}

#define BIT_PAIR_KERNEL(name, jaccard) \
KERNEL static float \
name(const void *a, const void *b, int dim) \
{ \
	const uint8 *one = b; \
	float		distance; \
	\
	BitDistances(a, &one, 1, (dim + 7) / 8, jaccard, &distance); \
	return distance; \
}

BIT_PAIR_KERNEL(BitsDifferent, false)
BIT_PAIR_KERNEL(BitsJaccard, true)

KERNEL static void
BitsToFloat(const void *src, int dim, float *dst)
{
	const uint8 *bytes = src;
	int			whole = dim / 8;

	for (int i = 0; i < whole; i++)
	{
		int			byte = bytes[i];

		for (int k = 0; k < 8; k++)
			dst[8 * i + k] = byte & 128 >> k ? 1 : 0;
	}
	for (int i = 8 * whole; i < dim; i++)
		dst[i] = bytes[whole] & 128 >> i % 8 ? 1 : 0;
}

KERNEL static void
SqRotate(float *x, int dim, bool back)
{
	SqRotateBody(x, dim, back);
}

/* Bits are constants in each, so that loops over numbers are unrolled. */
KERNEL static void
SqQuantize(const float *x, int bits, int dim, void *dst)
{
	switch (bits)
	{
		case 12:
			SqQuantizeBody(x, 12, dim, dst);
			break;
		case 13:
			SqQuantizeBody(x, 13, dim, dst);
			break;
		default:
			SqQuantizeBody(x, 14, dim, dst);
	}
}

CENTROID_KERNEL(CentroidL2, float, PIPEANN_FLOAT4, SQUARES)
CENTROID_KERNEL(HalfCentroidL2, uint16, PIPEANN_FLOAT2, SQUARES)
CENTROID_KERNEL(CentroidDot, float, PIPEANN_FLOAT4, PRODUCTS)
CENTROID_KERNEL(CentroidL1, float, PIPEANN_FLOAT4, DIFFERENCES)

TO_FLOAT_KERNEL(Float2ToFloat, PIPEANN_FLOAT2)
TO_FLOAT_KERNEL(Int8ToFloat, PIPEANN_INT8)
TO_FLOAT_KERNEL(Uint8ToFloat, PIPEANN_UINT8)

/* Plain C, compiled for the set's target; pq_scan.h says why it uses no gathers. */
#ifndef PQ_SCAN_KERNEL
#define PQ_SCAN_KERNEL KERNEL
#endif

PQ_SCAN_KERNEL static void
PqScan(const float *table, int nsubvectors, const uint8 *const *codes, int n,
	   float *out)
{
	PqScanBody(table, nsubvectors, codes, n, out);
}

/* jaccard is a constant where this is inlined. */
KERNEL static inline __attribute__((always_inline)) void
BitScanBody(const void *query, int bytes, const uint8 *const *codes, int n,
			bool jaccard, float *out)
{
	int			i = 0;

	for (; i + BITS_AT_ONCE <= n; i += BITS_AT_ONCE)
	{
		for (int k = i + BITS_AHEAD; k < Min(n, i + BITS_AHEAD + BITS_AT_ONCE); k++)
			for (int at = 0; at < bytes; at += PIPEANN_CACHE_LINE)
				__builtin_prefetch(codes[k] + at);
		BitDistances(query, codes + i, BITS_AT_ONCE, bytes, jaccard, out + i);
	}
	for (; i < n; i++)
		BitDistances(query, codes + i, 1, bytes, jaccard, out + i);
}

KERNEL static void
BitScan(const void *query, int bytes, const uint8 *const *codes, int n,
		bool jaccard, float *out)
{
	if (jaccard)
		BitScanBody(query, bytes, codes, n, true, out);
	else
		BitScanBody(query, bytes, codes, n, false, out);
}

static void
Float4ToFloat(const void *src, int dim, float *dst)
{
	memcpy(dst, src, dim * sizeof(float));
}

/* Storages of sparse vectors differ in their room; all have the same dimensions. */
#define SPARSE_KERNEL(name, room) \
static float \
name##_##room(const void *q, const void *v, int dim) \
{ \
	(void) dim; \
	return Pipeann##name(q, v, room); \
}
#define SPARSE_PROJECTION(name, room, roots) \
static void \
name##_##room(const void *v, int dim, float *x) \
{ \
	(void) dim; \
	PipeannSparseProject(v, room, roots, x); \
}
#define SPARSE_KERNELS(room) \
	SPARSE_KERNEL(SparseL2, room) \
	SPARSE_KERNEL(SparseL1, room) \
	SPARSE_KERNEL(SparseDot, room) \
	SPARSE_PROJECTION(SparseToFloat, room, false) \
	SPARSE_PROJECTION(SparseRoots, room, true)

SPARSE_KERNELS(16)
SPARSE_KERNELS(32)
SPARSE_KERNELS(64)
SPARSE_KERNELS(128)
SPARSE_KERNELS(256)
SPARSE_KERNELS(512)
SPARSE_KERNELS(1000)
#define SPARSE_STORAGES(first, kernel) \
	[first] = kernel##_16, [(first) + 1] = kernel##_32, \
	[(first) + 2] = kernel##_64, [(first) + 3] = kernel##_128, \
	[(first) + 4] = kernel##_256, [(first) + 5] = kernel##_512, \
	[(first) + 6] = kernel##_1000
#define SPARSES(kernel) SPARSE_STORAGES(PIPEANN_SPARSE16, kernel)
#define ROOTS(kernel) SPARSE_STORAGES(PIPEANN_ROOTS16, kernel)

const PipeannKernels SET = {
	.name = SET_NAME,
	.l2 = {NULL, L2Float4, L2Float2, L2Int8, L2Uint8, L2Sq12, L2Sq13, L2Sq14,
	BitsDifferent, SPARSES(SparseL2), ROOTS(SparseL1)},
	.dot = {NULL, DotFloat4, DotFloat2, DotInt8, DotUint8, DotSq12, DotSq13,
	DotSq14, NULL, SPARSES(SparseDot)},
	.l1 = {NULL, L1Float4, L1Float2, L1Int8, L1Uint8, NULL, NULL, NULL, NULL,
	SPARSES(SparseL1)},
	.l2_pair = {NULL, L2PairFloat4, L2PairFloat2, L2PairInt8, L2PairUint8,
	L2PairSq12, L2PairSq13, L2PairSq14, BitsDifferent,
	SPARSES(SparseL2), ROOTS(SparseL1)},
	.dot_pair = {NULL, DotPairFloat4, DotPairFloat2, DotPairInt8, DotPairUint8,
	DotPairSq12, DotPairSq13, DotPairSq14, NULL,
	SPARSES(SparseDot)},
	.l1_pair = {NULL, L1Float4, L1PairFloat2, L1PairInt8, L1PairUint8,
	NULL, NULL, NULL, NULL, SPARSES(SparseL1)},
	.jaccard = BitsJaccard,
	.pq_scan = PqScan,
	.bit_scan = BitScan,
	.centroid_l2 = CentroidL2,
	.half_centroid_l2 = HalfCentroidL2,
	.centroid_dot = CentroidDot,
	.centroid_l1 = CentroidL1,
	.centroid_nearest = CentroidNearest,
	.dot_tile = DotTile,
	.tile_near = TileNear,
	.equal16 = Equal16,
	.most16 = Most16,
	.keep_members = KeepMembers,
	.keep_range = KeepRange,
	.to_float = {NULL, Float4ToFloat, Float2ToFloat, Int8ToFloat, Uint8ToFloat,
	Sq12ToFloat, Sq13ToFloat, Sq14ToFloat, BitsToFloat,
	SPARSES(SparseToFloat), ROOTS(SparseRoots)},
	.rotate = SqRotate,
	.quantize = SqQuantize,
	.to_fixed = ToFixed,
	.to_half = ToHalf
};
