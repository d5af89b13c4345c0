/*
 * dispatch.c
 *		Choice of the kernels at run time, and conversions between storages.
 */
#include "distance/distance.h"

#include "distance/common.h"

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

float
PipeannHalfToFloat(uint16 h)
{
	return HalfToFloat(h);
}

/* Drop the low `shift` bits of value, rounding to nearest, ties to even. */
static uint32
ShiftRoundEven(uint32 value, int shift)
{
	uint32		half = (uint32) 1 << (shift - 1);
	uint32		rest = value & ((half << 1) - 1);
	uint32		result = value >> shift;

	if (rest > half || (rest == half && (result & 1)))
		result++;
	return result;
}

uint16
PipeannFloatToHalf(float f)
{
	uint32		bits;
	uint32		sign;
	uint32		magnitude;
	int			exponent;

	memcpy(&bits, &f, sizeof(bits));
	sign = (bits >> 16) & 0x8000;
	magnitude = bits & 0x7fffffff;
	exponent = (int) (magnitude >> 23) - 127;

	if (magnitude > 0x7f800000)	/* NaN: keep the top of it, quiet */
		return sign | 0x7e00 | ((magnitude >> 13) & 0x1ff);
	if (exponent > 15)			/* too large, or infinity */
		return sign | 0x7c00;

	/*
	 * In both cases below a carry out of the mantissa rightly gives the next
	 * larger exponent, which is infinity above the largest number.
	 */
	if (exponent >= -14)
		return sign |
			ShiftRoundEven(magnitude - ((uint32) (127 - 15) << 23), 13);
	if (exponent >= -25)
	{
		/* subnormal: units of 2^-24, so shift by 14 for 2^-15, and so on */
		uint32		mantissa = (magnitude & 0x7fffff) | 0x800000;

		return sign | ShiftRoundEven(mantissa, -1 - exponent);
	}
	return sign;				/* at most half of the smallest: zero */
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
			h = PipeannFloatToHalf(f);
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
}

/* Integers are rounded to the nearest, and clamped to their range. */
void
PipeannVectorFromFloat(const float *src, PipeannStorage storage, int dim,
					   void *dst)
{
	for (int i = 0; i < dim; i++)
		StoreElement(dst, storage, i, src[i]);
}

/* Negative zero counts as zero; a value that is not a number never fits. */
bool
PipeannVectorFits(const float *src, PipeannStorage storage, int dim)
{
	for (int i = 0; i < dim; i++)
	{
		float		element;

		StoreElement(&element, storage, 0, src[i]);
		if (LoadElement(&element, storage, 0) != src[i])
			return false;
	}
	return true;
}
