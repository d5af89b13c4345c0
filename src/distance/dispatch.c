/*
 * dispatch.c
 *		Choice of the kernels at run time; conversions between storages; panels of tiles.
 */
#include "distance/distance.h"
#include "distance/sparse.h"

#include "distance/common.h"

#include <math.h>

const PipeannKernels *PipeannKernel = &PipeannKernelsScalar;

void
PipeannKernelsInit(void)
{
#if defined(__x86_64__)
	if (PipeannCpuHasAvx512())
		PipeannKernel = &PipeannKernelsAvx512;
	else if (PipeannCpuHasAvx2())
		PipeannKernel = &PipeannKernelsAvx2;
#elif defined(__aarch64__)
	/* Advanced SIMD is part of every 64-bit ARM that runs PostgreSQL. */
	PipeannKernel = &PipeannKernelsNeon;
#endif
}

/*
 * The integer nearest to f within low .. high, ties away from zero; 0 for a
 * value that is not a number.
 */
static int
RoundClamp(float f, int low, int high)
{
	if (f != f)
		return 0;
	if (f <= (float) low)
		return low;
	if (f >= (float) high)
		return high;
	return (int) ((double) f + (f < 0 ? -0.5 : 0.5));
}

/* Set element i of v. v need not be aligned. */
static void
StoreElement(void *v, PipeannStorage storage, int i, float f)
{
	char	   *p = (char *) v + i * PipeannElementSize(storage);
	uint16		h;

	switch (storage)
	{
		case PIPEANN_FLOAT4:
			memcpy(p, &f, sizeof(f));
			break;
		case PIPEANN_FLOAT2:
			h = FloatToHalf(f);
			memcpy(p, &h, sizeof(h));
			break;
		case PIPEANN_INT8:
			*(int8 *) p = RoundClamp(f, INT8_MIN, INT8_MAX);
			break;
		default:
			*(uint8 *) p = RoundClamp(f, 0, UINT8_MAX);
			break;
	}
}

void
PipeannVectorToFloat(const void *src, PipeannStorage storage, int dim,
					 float *dst)
{
	PipeannKernel->to_float[storage] (src, dim, dst);
	if (PipeannSqBits(storage) > 0)
		PipeannKernel->rotate(dst, dim, true);
}

/* Elements are 0 or 1; bits beyond the last one are zeros. */
static void
PackBits(const float *x, int dim, uint8 *bits)
{
	for (int i = 0; i < dim; i += 8)
	{
		int			n = Min(8, dim - i);
		int			byte = 0;

		for (int k = 0; k < n; k++)
			byte = 2 * byte + (int) x[i + k];
		bits[i / 8] = (uint8) (byte << (8 - n));
	}
}

void
PipeannVectorUnpack(const void *src, PipeannStorage storage, int dim,
					float *dst)
{
	PipeannVectorToFloat(src, storage, dim, dst);
	if (PipeannIsSparse(storage))
	{
		PipeannSparse v = PipeannSparseIn(src, PipeannSparseRoom(storage));
		int32	   *form = PipeannSparseBehind(dst);

		form[0] = v.n;
		memcpy(form + 1, v.indices, 2 * sizeof(int32) * v.n);
	}
}

const void *
PipeannQueryFor(PipeannStorage storage, const float *query, int dim,
				float *room)
{
	if (PipeannIsSparse(storage))
		return PipeannSparseBehind(query);
	if (!PipeannQueryIsOther(storage))
		return query;
	if (storage == PIPEANN_BITS)
		PackBits(query, dim, (uint8 *) room);
	else
	{
		memcpy(room, query, dim * sizeof(float));
		PipeannKernel->rotate(room, dim, false);
	}
	return room;
}

/*
 * The scale makes a quantised vector's error orthogonal to the vector, so that products err
 * less the nearer the query is (storage/bounds.c).
 */
static void
Quantize(const float *x, PipeannStorage storage, int dim, char *form)
{
	float		rotated[PIPEANN_SQ_MAX_DIM];
	float		quantized[PIPEANN_SQ_MAX_DIM];
	char	   *at = form + dim / 8 * PipeannSqBits(storage);
	double		square[4] = {0};
	double		product[4] = {0};
	float		scale;
	float		fitting;

	(void) PipeannQueryFor(storage, x, dim, rotated);
	PipeannKernel->quantize(rotated, PipeannSqBits(storage), dim, form);
	PipeannKernel->to_float[storage] (form, dim, quantized);
	for (int i = 0; i < dim; i += 4)
		for (int k = 0; k < 4; k++)
		{
			square[k] += (double) rotated[i + k] * rotated[i + k];
			product[k] += (double) rotated[i + k] * quantized[i + k];
		}
	memcpy(&scale, at, sizeof(scale));
	fitting = (float) (scale * ((square[0] + square[1]) + (square[2] + square[3])) /
					   ((product[0] + product[1]) + (product[2] + product[3])));
	if (isfinite(fitting))
		memcpy(at, &fitting, sizeof(fitting));
}

void
PipeannVectorFromFloat(const float *src, PipeannStorage storage, int dim,
					   void *dst)
{
	if (storage == PIPEANN_FLOAT2)
		PipeannKernel->to_half(src, dim, dst);
	else if (PipeannSqBits(storage) > 0)
		Quantize(src, storage, dim, dst);
	else if (storage == PIPEANN_BITS)
		PackBits(src, dim, dst);
	else if (PipeannIsSparse(storage))
		PipeannSparseCut(PipeannSparseBehind(src), storage, dst);
	else
		for (int i = 0; i < dim; i++)
			StoreElement(dst, storage, i, src[i]);
}

/* Negative zero counts as zero; a value that is not a number never fits. */
bool
PipeannVectorFits(const float *src, PipeannStorage storage, int dim)
{
	Assert(PipeannSqBits(storage) == 0);
	for (int i = 0; i < dim; i++)
	{
		float		element;

		if (storage == PIPEANN_BITS && (src[i] == 0 || src[i] == 1))
			continue;
		if (storage == PIPEANN_BITS)
			return false;
		StoreElement(&element, storage, 0, src[i]);
		if (LoadElement(&element, storage, 0) != src[i])
			return false;
	}
	return true;
}

/* Dimensions that are interleaved at once, and 16-bit numbers of a word. */
#define STEP 4

static const int16 Zeros[STEP];

static inline uint64
LoadWord(const int16 *from)
{
	uint64		word;

	memcpy(&word, from, sizeof(word));
	return word;
}

static inline void
StoreWord(int16 *to, uint64 word)
{
	memcpy(to, &word, sizeof(word));
}

/*
 * Four dimensions of two neighbouring columns: the first pairs of both become
 * one word, and so do the second ones.
 */
static inline void
Interleave(const int16 *a, const int16 *b, int16 *panel)
{
	uint64		x = LoadWord(a);
	uint64		y = LoadWord(b);
	uint64		low = UINT64_C(0xffffffff);
	int16	   *next = panel + PIPEANN_PANEL_SIZE(PIPEANN_TILE_DIM);

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	StoreWord(panel, (x & low) | y << 32);
	StoreWord(next, x >> 32 | (y & ~low));
#else
	StoreWord(panel, (x & ~low) | y >> 32);
	StoreWord(next, x << 32 | (y & low));
#endif
}

void
PipeannTilePanel(const int16 *const *columns, int ncolumns, int dim,
				 int16 *panel)
{
	int			whole = dim / STEP * STEP;

	Assert(ncolumns >= 0 && ncolumns <= PIPEANN_TILE_COLUMNS);
	Assert(dim % PIPEANN_TILE_DIM == 0);

	for (int d = 0; d < whole; d += STEP)
		for (int c = 0; c < PIPEANN_TILE_COLUMNS; c += 2)
			Interleave(c < ncolumns ? columns[c] + d : Zeros,
					   c + 1 < ncolumns ? columns[c + 1] + d : Zeros,
					   panel + PIPEANN_PANEL_SIZE(d) + c * PIPEANN_TILE_DIM);
	if (whole < dim)
		for (int c = 0; c < PIPEANN_TILE_COLUMNS; c++)
			memcpy(panel + PIPEANN_PANEL_SIZE(whole) + c * PIPEANN_TILE_DIM,
				   c < ncolumns ? columns[c] + whole : Zeros,
				   sizeof(int16) * PIPEANN_TILE_DIM);
}
