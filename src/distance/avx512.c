/*
 * avx512.c
 *		Distance kernels for x86-64 with AVX-512 (F, BW, VL, VNNI, VPOPCNTDQ), 2019
 *		and later.
 *
 * Where there is no processor with AVX-512 the unit tests run this by
 * emulation. Besides the width, masked loads save copies of a vector's end.
 *
 * Code distances are plain C here, too (common.h): gathers of this width are
 * many times slower than loads on processors whose microcode mitigates Gather
 * Data Sampling, and permutes of rows in registers (VBMI) need a table of
 * bytes, which costs recall.
 */
#include "distance/distance.h"

#if defined(__x86_64__)

#include "distance/avx2.h"
#include "distance/common.h"

#ifdef PIPEANN_EMULATE_AVX512
#include "avx512_emulation.h"

#define TARGET
#else
#include <immintrin.h>

#define TARGET target("avx512f,avx512bw,avx512vl,avx512vnni,avx512vpopcntdq,avx2,fma,f16c,popcnt")
#endif

#define KERNEL __attribute__((TARGET))
#define INLINE \
	static inline __attribute__((always_inline, TARGET))
#define V(op) _mm512_##op

typedef __m512 Floats;
typedef __m512i Bytes;
typedef __m512i Ints;

#define LANES 16
#define BYTES 64
#define CENTROID_VECTORS 16		/* half of the registers */

#define Absolute _mm512_abs_ps
#define SumFloats _mm512_reduce_add_ps
#define LeastLane(v) _mm512_set1_ps(_mm512_reduce_min_ps(v))
#define NoInts _mm512_setzero_si512
#define SumInts _mm512_reduce_add_epi32

/* An operation on 8 lanes, done twice. */
INLINE __m512i
Twice(const void *lanes)
{
	return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *) lanes));
}

INLINE __m512
SqLoad16(const char *v, int bits, int i, float scale)
{
	const SqLanes *lanes = SqLanesFor(bits);
	const char *p = v + i / 8 * bits;
	__m128i		low = _mm_loadu_si128((const __m128i *) p);
	__m128i		high = _mm_loadu_si128((const __m128i *) (p + bits));
	__m512i		numbers;

	numbers = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_broadcastsi128_si256(low)),
								 _mm256_broadcastsi128_si256(high), 1);
	numbers = _mm512_shuffle_epi8(numbers, Twice(lanes->bytes));
	numbers = _mm512_sllv_epi32(numbers, Twice(lanes->shift));
	numbers = _mm512_srav_epi32(numbers, _mm512_set1_epi32(32 - bits));
	return _mm512_mul_ps(_mm512_cvtepi32_ps(numbers), _mm512_set1_ps(scale));
}

/*
 * n elements from i on as floats, of a quantised vector with this scale, with zeros in the
 * other lanes: what the mask leaves out is not read. storage and a whole register's n are
 * constants where inlined.
 */
INLINE __m512
LoadSome(const void *v, PipeannStorage storage, int i, int n, float scale)
{
	const char *p = (const char *) v + (Size) i * PipeannElementSize(storage);
	__mmask16	mask = (__mmask16) ((1 << n) - 1);
	__m128i		bytes;

	if (PipeannSqBits(storage) > 0)
		return SqLoad16(v, PipeannSqBits(storage), i, scale);
	switch (storage)
	{
		case PIPEANN_FLOAT4:
			return _mm512_maskz_loadu_ps(mask, p);
		case PIPEANN_FLOAT2:
			return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
		case PIPEANN_INT8:
			bytes = _mm_maskz_loadu_epi8(mask, p);
			return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
		default:
			bytes = _mm_maskz_loadu_epi8(mask, p);
			return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
	}
}

#define Load(v, storage, i, scale) LoadSome(v, storage, i, LANES, scale)
#define LoadTail(v, storage, i, dim) LoadSome(v, storage, i, (dim) - (i), 0)

INLINE __m512i
LoadBytes(const void *v, int i)
{
	return _mm512_loadu_si512((const char *) v + i);
}

INLINE __m512i
LoadBytesTail(const void *v, int i, int dim)
{
	return _mm512_maskz_loadu_epi8(((__mmask64) 1 << (dim - i)) - 1,
								   (const char *) v + i);
}

#define OWN_TAILS

/* A bit for each of 64 floats that equals value, the first one lowest. */
INLINE uint64
EqualBits(const __m512 *v, __m512 value)
{
	uint64		bits = 0;

	UNROLL(4)
	for (int i = 0; i < 4; i++)
		bits |= (uint64) _mm512_cmp_ps_mask(v[i], value, _CMP_EQ_OQ) <<
			(16 * i);
	return bits;
}

INLINE void
StoreInt16(int16 *out, __m512 v)
{
	_mm256_storeu_si256((__m256i *) out, _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(v)));
}

INLINE void
StoreHalf(uint16 *out, __m512 v)
{
	_mm256_storeu_si256((__m256i *) out, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

/* A register holds a pair of dimensions of all columns. */
INLINE void
Tile(const int16 *const *rows, const int16 *panel, int dim, TileTerm term, int32 *out)
{
	__m512i		sum[PIPEANN_TILE_ROWS];

	UNROLL(12)
	for (int r = 0; r < PIPEANN_TILE_ROWS; r++)
		sum[r] = _mm512_setzero_si512();
	for (int d = 0; d < dim; d += PIPEANN_TILE_DIM)
	{
		__m512i		columns = _mm512_loadu_si512(panel +
												 PIPEANN_PANEL_SIZE(d));

		UNROLL(12)
		for (int r = 0; r < PIPEANN_TILE_ROWS; r++)
		{
			__m512i		pair = _mm512_set1_epi32(LoadPair(rows[r] + d));

			if (term == TILE_PRODUCTS)
			{
				sum[r] = _mm512_dpwssd_epi32(sum[r], pair, columns);
				continue;
			}
			pair = term == TILE_COMMON ? _mm512_and_si512(pair, columns) :
				_mm512_xor_si512(pair, columns);
			sum[r] = _mm512_add_epi32(sum[r], _mm512_popcnt_epi32(pair));
		}
	}
	UNROLL(12)
	for (int r = 0; r < PIPEANN_TILE_ROWS; r++)
		_mm512_storeu_si512(out + r * PIPEANN_TILE_COLUMNS, sum[r]);
}

/* Adds the ones of a register to the sums of as many. */
INLINE __m512i
AddBits(__m512i sum, __m512i x, __m512i y, Term term)
{
	x = term == PRODUCTS ? _mm512_and_si512(x, y) : _mm512_xor_si512(x, y);
	return _mm512_add_epi64(sum, _mm512_popcnt_epi64(x));
}

/* Half of the time of one count after the other with 1,024 bits, a third with more. */
INLINE void
BitSums(const void *a, const uint8 *const *b, int n, int bytes, Term term,
		float *out)
{
	const char *x = a;
	__m512i		sum[BITS_AT_ONCE];
	int			i = 0;

	UNROLL(4)
	for (int k = 0; k < n; k++)
		sum[k] = _mm512_setzero_si512();
	for (; i + 64 <= bytes; i += 64)
	{
		UNROLL(4)
		for (int k = 0; k < n; k++)
			sum[k] = AddBits(sum[k], LoadBytes(x, i), LoadBytes(b[k], i), term);
	}
	if (i < bytes)
	{
		UNROLL(4)
		for (int k = 0; k < n; k++)
			sum[k] = AddBits(sum[k], LoadBytesTail(x, i, bytes),
							 LoadBytesTail(b[k], i, bytes), term);
	}
	UNROLL(4)
	for (int k = 0; k < n; k++)
		out[k] = (float) SumInts(sum[k]);
}

#define OWN_BIT_SUMS

/*
 * Not compiled for AVX-512: GCC would use wide instructions for this loop,
 * which makes it slower from 50 bytes on.
 */
#define PQ_SCAN_KERNEL

#define SET PipeannKernelsAvx512
#define SET_NAME "avx512"
#include "distance/kernels.h"

/*
 * Whether this processor and the operating system support this file. The
 * builtins look at XGETBV, too, since the system must save the mask registers
 * and all of the wide ones. VBMI2 is not used here, but CPUs that have AVX-512
 * without it lower their clock for a while when they execute instructions of
 * this width, and a backend has other work, too.
 */
bool
PipeannCpuHasAvx512(void)
{
	__builtin_cpu_init();
	return PipeannCpuHasAvx2() &&
		__builtin_cpu_supports("avx512f") &&
		__builtin_cpu_supports("avx512bw") &&
		__builtin_cpu_supports("avx512vl") &&
		__builtin_cpu_supports("avx512vnni") &&
		__builtin_cpu_supports("avx512vpopcntdq") &&
		__builtin_cpu_supports("avx512vbmi2");
}

#endif							/* __x86_64__ */
