/*
 * kernels.h
 *		The kernels of vector instructions, written once, and a set's functions for each
 *		storage, and its table; private to distance/.
 *
 * Each set's file includes this at its end. By then it has defined SET and SET_NAME, and as
 * KERNEL what a function for its instructions begins with. See struct PipeannKernels for
 * what the functions do. The set in portable C has a FloatSum(), BytePair(), Centroids() and
 * ToFloat() of its own, always inlined, so that storages are constants in them. The others
 * define
 *
 *	INLINE			what a function begins with that is always inlined
 *	Floats, LANES	a register of floats, or several as one, and their number
 *	Bytes, BYTES	a register of bytes, and their number
 *	Ints			a register of 32-bit sums, of bytes' products
 *	V()				on x86-64, the name of an intrinsic of this width
 *	CENTROID_VECTORS	Floats of centroids' sums that are in registers at once; a multiple
 *					of a group's (64 centroids)
 *	Load()			elements from i on of a vector of any storage, times the scale if it
 *					is quantised
 *
 * and the other primitives that are called here, each one or a few instructions. One that
 * loads less than a register has by masks defines OWN_TAILS, and LoadTail() and
 * LoadBytesTail(); the others LastLanes() and LastBytes(), which clear all but the last n.
 */
#include "distance/common.h"
#include "distance/sparse.h"

#ifdef LANES
#ifdef V
/* Primitives that differ in width alone between AVX2 and AVX-512. */
#define SetAll V(set1_ps)
#define LoadFloats V(loadu_ps)
#define Store V(storeu_ps)
#define Add V(add_ps)
#define Sub V(sub_ps)
#define Mul V(mul_ps)
#define MulAdd V(fmadd_ps)
#define NegMulAdd V(fnmadd_ps)
#define Least V(min_ps)
#define Most V(max_ps)
#define AddInts V(add_epi32)

INLINE Bytes
ByteDifference(Bytes a, Bytes b, bool is_signed)
{
	return is_signed ? V(sub_epi8) (V(max_epi8) (a, b), V(min_epi8) (a, b)) :
		V(sub_epi8) (V(max_epu8) (a, b), V(min_epu8) (a, b));
}

/* Half of the bytes, every other eight, as 16-bit numbers. */
INLINE Bytes
Widen(Bytes v, bool high, bool is_signed)
{
	Bytes		zero = NoInts();

	if (is_signed)
		return V(srai_epi16) (high ? V(unpackhi_epi8) (zero, v) : V(unpacklo_epi8) (zero, v), 8);
	return high ? V(unpackhi_epi8) (v, zero) : V(unpacklo_epi8) (v, zero);
}

/* Adds the products of four bytes to each sum. */
INLINE Ints
AddByteProducts(Ints sum, Bytes a, Bytes b, bool is_signed)
{
	Ints		p0 = V(madd_epi16) (Widen(a, false, is_signed), Widen(b, false, is_signed));
	Ints		p1 = V(madd_epi16) (Widen(a, true, is_signed), Widen(b, true, is_signed));

	return AddInts(sum, AddInts(p0, p1));
}
#endif							/* V */

#ifndef OWN_TAILS
/*
 * Elements i .. dim - 1, the last dim % LANES, not 0, with zeros in the other lanes.
 * Never reads outside of the vector: a long one is read up to its end, and lanes that were
 * summed already are cleared; a short one is copied.
 */
INLINE Floats
LoadTail(const void *v, PipeannStorage storage, int i, int dim)
{
	if (dim >= LANES)
		return LastLanes(Load(v, storage, dim - LANES, 0), dim - i);
	else
	{
		char		copy[LANES * sizeof(float)] = {0};

		memcpy(copy, v, dim * PipeannElementSize(storage));
		return Load(copy, storage, 0, 0);
	}
}

/* The same of bytes. */
INLINE Bytes
LoadBytesTail(const void *v, int i, int dim)
{
	if (dim >= BYTES)
		return LastBytes(LoadBytes(v, dim - BYTES), dim - i);
	else
	{
		char		copy[BYTES] = {0};

		memcpy(copy, v, dim);
		return LoadBytes(copy, 0);
	}
}
#endif

/* Returns sum with the terms of a register of elements added. */
INLINE Floats
AddTerm(Floats sum, Floats a, Floats b, Term term)
{
	Floats		d;

	if (term == PRODUCTS)
		return MulAdd(a, b, sum);
	d = Sub(a, b);
	return term == SQUARES ? MulAdd(d, d, sum) : Add(sum, Absolute(d));
}

/* Sum over i < dim of (a[i] - b[i])^2, a[i] * b[i] or |a[i] - b[i]|. */
INLINE float
FloatSum(const void *a, PipeannStorage sa, const void *b, PipeannStorage sb,
		 int dim, Term term)
{
	float		scale_a = SqScale(a, sa, dim);
	float		scale_b = SqScale(b, sb, dim);
	Floats		s0 = SetAll(0);
	Floats		s1 = s0;
	Floats		s2 = s0;
	Floats		s3 = s0;
	int			i = 0;

	for (; i + 4 * LANES <= dim; i += 4 * LANES)
	{
		s0 = AddTerm(s0, Load(a, sa, i, scale_a), Load(b, sb, i, scale_b), term);
		s1 = AddTerm(s1, Load(a, sa, i + LANES, scale_a),
					 Load(b, sb, i + LANES, scale_b), term);
		s2 = AddTerm(s2, Load(a, sa, i + 2 * LANES, scale_a),
					 Load(b, sb, i + 2 * LANES, scale_b), term);
		s3 = AddTerm(s3, Load(a, sa, i + 3 * LANES, scale_a),
					 Load(b, sb, i + 3 * LANES, scale_b), term);
	}
	for (; i + LANES <= dim; i += LANES)
		s0 = AddTerm(s0, Load(a, sa, i, scale_a), Load(b, sb, i, scale_b), term);
	if (i < dim)
		s1 = AddTerm(s1, LoadTail(a, sa, i, dim), LoadTail(b, sb, i, dim), term);
	return SumFloats(Add(Add(s0, s1), Add(s2, s3)));
}

/*
 * The difference of two signed bytes fits an unsigned byte, like that of two unsigned
 * ones.
 */
INLINE Ints
AddBytes(Ints sum, Bytes a, Bytes b, bool is_signed, bool is_dot)
{
	Bytes		d;

	if (is_dot)
		return AddByteProducts(sum, a, b, is_signed);
	d = ByteDifference(a, b, is_signed);
	return AddByteProducts(sum, d, d, false);
}

/* Bytes against bytes, exact (scalar.c). */
INLINE float
BytePair(const void *a, const void *b, int dim, bool is_signed, bool is_dot)
{
	Ints		s0 = NoInts();
	Ints		s1 = NoInts();
	int			i = 0;

	for (; i + 2 * BYTES <= dim; i += 2 * BYTES)
	{
		s0 = AddBytes(s0, LoadBytes(a, i), LoadBytes(b, i), is_signed, is_dot);
		s1 = AddBytes(s1, LoadBytes(a, i + BYTES), LoadBytes(b, i + BYTES),
					  is_signed, is_dot);
	}
	if (i + BYTES <= dim)
	{
		s0 = AddBytes(s0, LoadBytes(a, i), LoadBytes(b, i), is_signed, is_dot);
		i += BYTES;
	}
	if (i < dim)
		s1 = AddBytes(s1, LoadBytesTail(a, i, dim), LoadBytesTail(b, i, dim),
					  is_signed, is_dot);
	return (float) SumInts(AddInts(s0, s1));
}

/*
 * Several registers of sums for centroids, so that additions overlap. sum:
 * those of the centroids from number `first` on.
 */
INLINE void
SumCentroids(const float *x, const void *centroids, PipeannStorage storage,
			 int first, int len, Term term, Floats *sum)
{
	int			d = 0;

	/* the first difference needs no sum to be added to */
	if (term == PRODUCTS)
	{
		UNROLL(CENTROID_VECTORS)
		for (int j = 0; j < CENTROID_VECTORS; j++)
			sum[j] = SetAll(0);
	}
	else
	{
		Floats		value = SetAll(x[0]);

		UNROLL(CENTROID_VECTORS)
		for (int j = 0; j < CENTROID_VECTORS; j++)
		{
			sum[j] = Sub(value, Load(centroids, storage, first + LANES * j, 0));
			sum[j] = term == SQUARES ? Mul(sum[j], sum[j]) : Absolute(sum[j]);
		}
		d = 1;
	}
	for (; d < len; d++)
	{
		Floats		value = SetAll(x[d]);

		UNROLL(CENTROID_VECTORS)
		for (int j = 0; j < CENTROID_VECTORS; j++)
		{
			Floats		c = Load(centroids, storage, d * PQ_ROW + first + LANES * j, 0);

			sum[j] = term == PRODUCTS ? NegMulAdd(value, c, sum[j]) :
				AddTerm(sum[j], value, c, term);
		}
	}
}

INLINE void
Centroids(const float *x, const void *centroids, PipeannStorage storage,
		  int len, float *out, Term term)
{
	for (int k = 0; k < PQ_ROW; k += LANES * CENTROID_VECTORS)
	{
		Floats		sum[CENTROID_VECTORS];

		SumCentroids(x, centroids, storage, k, len, term, sum);
		UNROLL(CENTROID_VECTORS)
		for (int j = 0; j < CENTROID_VECTORS; j++)
			Store(out + k + LANES * j, sum[j]);
	}
}

/* Centroids whose least distance is kept, so that one group is looked through for its place. */
#define GROUP 64
#define GROUPS (PQ_ROW / GROUP)

/* One vector's distances, and in all lanes the least ones of each group. */
typedef struct Distances
{
	float		all[PQ_ROW];
	float		low[GROUPS][LANES];
} Distances;

/* NaN does not count as a distance: Least() then returns the second operand. */
INLINE void
SumAll(const float *x, const float *centroids, int len, Distances *distances)
{
	for (int k = 0; k < PQ_ROW; k += LANES * CENTROID_VECTORS)
	{
		Floats		sum[CENTROID_VECTORS];
		Floats		low = SetAll(__builtin_inff());

		SumCentroids(x, centroids, PIPEANN_FLOAT4, k, len, SQUARES, sum);
		UNROLL(CENTROID_VECTORS)
		for (int j = 0; j < CENTROID_VECTORS; j++)
		{
			Store(distances->all + k + LANES * j, sum[j]);
			low = Least(sum[j], low);
			if ((j + 1) * LANES % GROUP != 0)
				continue;
			Store(distances->low[(k + LANES * j) / GROUP], low);
			low = SetAll(__builtin_inff());
		}
	}
}

INLINE int
FindLeast(const Distances *distances)
{
	Floats		v[GROUPS];
	Floats		least;
	uint64		places = 0;
	int			first;

	UNROLL(4)
	for (int g = 0; g < GROUPS; g++)
		v[g] = LoadFloats(distances->low[g]);
	least = LeastLane(Least(Least(v[0], v[1]), Least(v[2], v[3])));
	first = __builtin_ctzll(EqualBits(v, least)) / LANES * GROUP;
	UNROLL(2)
	for (int i = 0; i < GROUP; i += 4 * LANES)
	{
		UNROLL(4)
		for (int j = 0; j < 4; j++)
			v[j] = LoadFloats(distances->all + first + i + LANES * j);
		places |= EqualBits(v, least) << i;
	}
	return places == 0 ? 0 : first + __builtin_ctzll(places);
}

/*
 * Vectors whose distances are computed before the least ones are found. Each of the two is
 * a chain of instructions that wait for each other, so that the processor needs to see
 * several vectors at once.
 */
#define NEAREST_BLOCK 8

KERNEL static void
CentroidNearest(const float *x, Size stride, int n, const float *centroids,
				int len, const PipeannNearest *out)
{
	uint8	   *codes = out->codes;
	Size		code_stride = out->code_stride;
	float	   *distances = out->distances;
	Distances	block[NEAREST_BLOCK] __attribute__((aligned(64)));

	for (int i = 0; i < n; i += NEAREST_BLOCK)
	{
		int			m = Min(n - i, NEAREST_BLOCK);

		for (int v = 0; v < m; v++)
			SumAll(x + (i + v) * stride, centroids, len, block + v);
		for (int v = 0; v < m; v++)
		{
			int			nearest = FindLeast(block + v);

			codes[(i + v) * code_stride] = nearest;
			if (distances != NULL)
				distances[i + v] = block[v].all[nearest];
		}
	}
}

/*
 * The last few elements of a long vector are converted again with those before them; a
 * short vector is copied, so that nothing outside of it is touched.
 */
INLINE void
ToFloat(const void *src, PipeannStorage storage, int dim, float *dst)
{
	float		scale = SqScale(src, storage, dim);
	int			i = 0;

	for (; i + LANES <= dim; i += LANES)
		Store(dst + i, Load(src, storage, i, scale));
	if (i == dim)
		return;
	if (dim >= LANES)
		Store(dst + dim - LANES, Load(src, storage, dim - LANES, 0));
	else
	{
		float		floats[LANES];

		Store(floats, LoadTail(src, storage, 0, dim));
		memcpy(dst, floats, dim * sizeof(float));
	}
}

/* Rounds as the default mode does, ties to even. */
INLINE void
Fix(Floats x, Floats offset, float scale, int16 *out)
{
	Floats		v = Mul(Sub(x, offset), SetAll(scale));

	v = Least(v, SetAll(PIPEANN_FIXED_MAX));
	StoreInt16(out, Most(v, SetAll(-PIPEANN_FIXED_MAX)));
}

/* The end of a vector is treated as in ToFloat(). */
KERNEL static void
ToFixed(const float *x, const float *offset, float scale, int dim, int16 *out)
{
	int			i = 0;

	for (; i + LANES <= dim; i += LANES)
		Fix(LoadFloats(x + i), LoadFloats(offset + i), scale, out + i);
	if (i == dim)
		return;
	if (dim >= LANES)
	{
		i = dim - LANES;
		Fix(LoadFloats(x + i), LoadFloats(offset + i), scale, out + i);
	}
	else
	{
		int16		fixed[LANES];

		Fix(LoadTail(x, PIPEANN_FLOAT4, 0, dim),
			LoadTail(offset, PIPEANN_FLOAT4, 0, dim), scale, fixed);
		memcpy(out, fixed, dim * sizeof(int16));
	}
}

KERNEL static void
ToHalf(const float *x, int dim, void *out)
{
	int			i = 0;

	for (; i + LANES <= dim; i += LANES)
		StoreHalf((uint16 *) out + i, LoadFloats(x + i));
	if (i == dim)
		return;
	if (dim >= LANES)
		StoreHalf((uint16 *) out + dim - LANES, LoadFloats(x + dim - LANES));
	else
	{
		uint16		half[LANES];

		StoreHalf(half, LoadTail(x, PIPEANN_FLOAT4, 0, dim));
		memcpy(out, half, dim * sizeof(uint16));
	}
}

#endif							/* LANES */

/* ---------- a set's functions ---------- */

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

KERNEL static void
DotTile(const int16 *const *rows, const int16 *panel, int dim, int32 *out)
{
	Tile(rows, panel, dim, TILE_PRODUCTS, out);
}

KERNEL static void
BitTile(const int16 *const *rows, const int16 *panel, int dim, bool common, int32 *out)
{
	if (common)
		Tile(rows, panel, dim, TILE_COMMON, out);
	else
		Tile(rows, panel, dim, TILE_DIFFERENT, out);
}

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
		out[k] = PipeannJaccard(out[k], common[k]);
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

/* Plain C, compiled for the set's target; common.h says why it uses no gathers. */
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

/* The index of an element; a number above all indices behind the last one. */
static inline int64
Step(const PipeannSparse *x, int i)
{
	return i < x->n ? x->indices[i] : INT64_MAX;
}

/* Sums a term of x and y, the elements of both, in the order of indices, as pgvector adds. */
#define SPARSE_SUM(name, term) \
static float \
name(const void *q, const void *form, int room) \
{ \
	PipeannSparse a = PipeannSparseOf(q); \
	PipeannSparse b = PipeannSparseIn(form, room); \
	float		sum = 0; \
	\
	for (int i = 0, j = 0; i < a.n || j < b.n;) \
	{ \
		int64		at = Step(&a, i); \
		int64		other = Step(&b, j); \
		float		x = at <= other ? a.values[i] : 0; \
		float		y = other <= at ? b.values[j] : 0; \
		\
		sum += term; \
		i += at <= other; \
		j += other <= at; \
	} \
	return sum; \
}

SPARSE_SUM(SparseL2, (x - y) * (x - y))
SPARSE_SUM(SparseL1, fabsf(x - y))

static float
SparseDot(const void *q, const void *form, int room)
{
	PipeannSparse a = PipeannSparseOf(q);
	PipeannSparse b = PipeannSparseIn(form, room);
	float		sum = 0;
	int			i = 0;
	int			j = 0;

	while (i < a.n && j < b.n)
	{
		int32		at = a.indices[i];
		int32		other = b.indices[j];

		if (unlikely(at == other))
			sum += a.values[i] * b.values[j];
		i += at <= other;
		j += other <= at;
	}
	return sum;
}

/* Storages of sparse vectors differ in their room; all have the same dimensions. */
#define SPARSE_KERNEL(name, room) \
static float \
name##_##room(const void *q, const void *v, int dim) \
{ \
	(void) dim; \
	return name(q, v, room); \
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
	.bit_tile = BitTile,
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
