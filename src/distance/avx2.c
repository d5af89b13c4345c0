/*
 * avx2.c
 *		Distance kernels for x86-64 with AVX2, FMA and F16C (2013 and later).
 *
 * Every function carries the target attribute, so that the rest of the build
 * stays portable; dispatch.c checks the processor before one of them runs.
 */
#include "distance/distance.h"

#if defined(__x86_64__)

#include <cpuid.h>

#include "distance/avx2.h"
#include "distance/common.h"

#define KERNEL AVX2
#define INLINE AVX2_INLINE
#define V(op) _mm256_##op

typedef __m256 Floats;
typedef __m256i Bytes;
typedef __m256i Ints;

#define LANES 8
#define BYTES 32
#define CENTROID_VECTORS 8

#define Absolute(v) _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v)
#define NoInts _mm256_setzero_si256

AVX2_INLINE __m256
SqLoad8(const char *v, int bits, int i, float scale)
{
	const SqLanes *lanes = SqLanesFor(bits);
	__m128i		bytes = _mm_loadu_si128((const __m128i *) (v + i / 8 * bits));
	__m256i		numbers = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes),
											  _mm256_loadu_si256((const __m256i *) lanes->bytes));

	numbers = _mm256_sllv_epi32(numbers, Load8Ints(lanes->shift));
	numbers = _mm256_srai_epi32(numbers, 32 - bits);
	return _mm256_mul_ps(_mm256_cvtepi32_ps(numbers), _mm256_set1_ps(scale));
}

/*
 * Elements i .. i + 7 as floats, of a quantised vector with this scale; storage is a
 * constant where inlined.
 */
AVX2_INLINE __m256
Load(const void *v, PipeannStorage storage, int i, float scale)
{
	const char *p = (const char *) v;
	__m128i		bytes;

	if (PipeannSqBits(storage) > 0)
		return SqLoad8(p, PipeannSqBits(storage), i, scale);
	switch (storage)
	{
		case PIPEANN_FLOAT4:
			return _mm256_loadu_ps((const float *) (p + (Size) i * 4));
		case PIPEANN_FLOAT2:
			p += (Size) i * 2;
			return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) p));
		case PIPEANN_INT8:
			bytes = _mm_loadl_epi64((const __m128i *) (p + i));
			return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
		default:
			bytes = _mm_loadl_epi64((const __m128i *) (p + i));
			return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
	}
}

AVX2_INLINE float
SumFloats(__m256 v)
{
	__m128		s = _mm_add_ps(_mm256_castps256_ps128(v),
							   _mm256_extractf128_ps(v, 1));

	s = _mm_add_ps(s, _mm_movehl_ps(s, s));
	s = _mm_add_ss(s, _mm_movehdup_ps(s));
	return _mm_cvtss_f32(s);
}

AVX2_INLINE int32
SumInts(__m256i v)
{
	__m128i		s = _mm_add_epi32(_mm256_castsi256_si128(v),
								  _mm256_extracti128_si256(v, 1));

	s = _mm_add_epi32(s, _mm_shuffle_epi32(s, _MM_SHUFFLE(1, 0, 3, 2)));
	s = _mm_add_epi32(s, _mm_shuffle_epi32(s, _MM_SHUFFLE(2, 3, 0, 1)));
	return _mm_cvtsi128_si32(s);
}

AVX2_INLINE __m256i
LoadBytes(const void *v, int i)
{
	return _mm256_loadu_si256((const __m256i *) ((const char *) v + i));
}

AVX2_INLINE __m256i
LastBytes(__m256i v, int n)
{
	static const int8 mask[64] = {
		[32] = -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
		-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1
	};

	return _mm256_and_si256(v, LoadBytes(mask, n));
}

AVX2_INLINE __m256
LastLanes(__m256 v, int n)
{
	return _mm256_castsi256_ps(LastBytes(_mm256_castps_si256(v), 4 * n));
}

/* The smallest lane, in all lanes. */
AVX2_INLINE __m256
LeastLane(__m256 v)
{
	v = _mm256_min_ps(v, _mm256_permute2f128_ps(v, v, 1));
	v = _mm256_min_ps(v, _mm256_permute_ps(v, _MM_SHUFFLE(1, 0, 3, 2)));
	return _mm256_min_ps(v, _mm256_permute_ps(v, _MM_SHUFFLE(2, 3, 0, 1)));
}

AVX2_INLINE __m256i
EqualLanes(__m256 a, __m256 b)
{
	return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_EQ_OQ));
}

/* A bit for each of 32 floats that equals value, the first one lowest. */
AVX2_INLINE uint64
EqualBits(const __m256 *v, __m256 value)
{
	/* packs leave parts of four lanes in the order 0 2 4 6, 1 3 5 7 */
	__m256i		order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
	__m256i		low = _mm256_packs_epi32(EqualLanes(v[0], value),
										 EqualLanes(v[1], value));
	__m256i		high = _mm256_packs_epi32(EqualLanes(v[2], value),
										  EqualLanes(v[3], value));
	__m256i		bytes = _mm256_packs_epi16(low, high);

	bytes = _mm256_permutevar8x32_epi32(bytes, order);
	return (uint32) _mm256_movemask_epi8(bytes);
}

/* Numbers within int16. */
AVX2_INLINE void
StoreInt16(int16 *out, __m256 v)
{
	__m256i		numbers = _mm256_cvtps_epi32(v);

	_mm_storeu_si128((__m128i *) out,
					 _mm_packs_epi32(_mm256_castsi256_si128(numbers),
									 _mm256_extracti128_si256(numbers, 1)));
}

AVX2_INLINE void
StoreHalf(uint16 *out, __m256 v)
{
	_mm_storeu_si128((__m128i *) out, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

/* Half of the rows of a tile: their sums take 12 of the 16 registers. */
#define HALF_TILE (PIPEANN_TILE_ROWS / 2)

/* The term of eight columns. Bits are counted by half bytes, in bytes, and these summed. */
AVX2_INLINE __m256i
TileTermOf(__m256i pair, __m256i columns, TileTerm term)
{
	const __m256i counts = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4,
											0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
	const __m256i low = _mm256_set1_epi8(15);
	__m256i		bits;
	__m256i		ones;

	if (term == TILE_PRODUCTS)
		return _mm256_madd_epi16(pair, columns);
	bits = term == TILE_COMMON ? _mm256_and_si256(pair, columns) :
		_mm256_xor_si256(pair, columns);
	ones = _mm256_add_epi8(_mm256_shuffle_epi8(counts, _mm256_and_si256(bits, low)),
						   _mm256_shuffle_epi8(counts, _mm256_and_si256(_mm256_srli_epi16(bits, 4), low)));
	return _mm256_madd_epi16(_mm256_maddubs_epi16(ones, _mm256_set1_epi8(1)),
							 _mm256_set1_epi16(1));
}

AVX2_INLINE void
HalfTile(const int16 *const *rows, const int16 *panel, int dim, TileTerm term, int32 *out)
{
	__m256i		sum[HALF_TILE][2];

	UNROLL(6)
	for (int r = 0; r < HALF_TILE; r++)
		sum[r][0] = sum[r][1] = _mm256_setzero_si256();
	for (int d = 0; d < dim; d += PIPEANN_TILE_DIM)
	{
		const __m256i *columns = (const __m256i *)
			(panel + PIPEANN_PANEL_SIZE(d));
		__m256i		c0 = _mm256_loadu_si256(columns);
		__m256i		c1 = _mm256_loadu_si256(columns + 1);

		UNROLL(6)
		for (int r = 0; r < HALF_TILE; r++)
		{
			__m256i		pair = _mm256_set1_epi32(LoadPair(rows[r] + d));

			sum[r][0] = _mm256_add_epi32(sum[r][0], TileTermOf(pair, c0, term));
			sum[r][1] = _mm256_add_epi32(sum[r][1], TileTermOf(pair, c1, term));

			/* row by row: in gcc's order there are too few registers */
			__asm__ volatile ("":"+x" (sum[r][0]), "+x" (sum[r][1]));
		}
	}
	UNROLL(6)
	for (int r = 0; r < HALF_TILE; r++)
	{
		__m256i    *to = (__m256i *) (out + r * PIPEANN_TILE_COLUMNS);

		_mm256_storeu_si256(to, sum[r][0]);
		_mm256_storeu_si256(to + 1, sum[r][1]);
	}
}

AVX2_INLINE void
Tile(const int16 *const *rows, const int16 *panel, int dim, TileTerm term, int32 *out)
{
	HalfTile(rows, panel, dim, term, out);
	HalfTile(rows + HALF_TILE, panel, dim, term, out + HALF_TILE * PIPEANN_TILE_COLUMNS);
}

#define SET PipeannKernelsAvx2
#define SET_NAME "avx2"
#include "distance/kernels.h"

AVX2 float
L2PairFloat2(const void *a, const void *b, int dim)
{
	return FloatSum(a, PIPEANN_FLOAT2, b, PIPEANN_FLOAT2, dim, SQUARES);
}

AVX2 float
DotPairFloat2(const void *a, const void *b, int dim)
{
	return FloatSum(a, PIPEANN_FLOAT2, b, PIPEANN_FLOAT2, dim, PRODUCTS);
}

/* Whether this processor and the operating system support this file. */
bool
PipeannCpuHasAvx2(void)
{
	unsigned int eax;
	unsigned int ebx;
	unsigned int ecx;
	unsigned int edx;

	/*
	 * The builtins look at XGETBV, too, since the system must save the wide
	 * registers. Not all compilers know F16C by name; the system need not
	 * support more for it than for AVX.
	 */
	__builtin_cpu_init();
	return __builtin_cpu_supports("avx2") &&
		__builtin_cpu_supports("fma") &&
		__builtin_cpu_supports("popcnt") &&
		__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 &&
		(ecx & bit_F16C) != 0;
}

#endif							/* __x86_64__ */
