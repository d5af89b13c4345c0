/*
 * codebook.c
 *		A codebook in an order in which codes are decoded fast, which no cache holds.
 */
#include "postgres.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <float.h>
#include <math.h>

#include "distance/distance.h"
#include "index/index.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/*
 * The codebook by code, of the index and generation for which the backend decoded last.
 * It is made when as many codes were decoded as pay for it. As bytes a centroid's element
 * is its distance from their mean, in steps of 1 / scale.
 */
static struct
{
	uint64		build_id;
	uint32		generation;
	int			decoded;
	float	   *by_code;		/* or NULL */
	float		scale;			/* of bytes; 0 if there can be none, -1: not known */
	float	   *mean;
	float		rotated_scale;	/* of vectors that are rotated as they are stored */
	float	   *rotated_mean;
	int16	   *fixed;			/* work space */
	int8	   *bytes_by_code;	/* or NULL */
}			decoder = {.scale = -1};

#define DECODED_BEFORE 512
#define MOST_BYTE 127

/* As a byte the usual distance of an element from its mean is so much at the least. */
#define LEAST_STEPS 4

/*
 * Rotated elements are distributed normally: of those that are this many standard
 * deviations of the centroids' from the mean, which are less than those of vectors, few are
 * clamped.
 */
#define MOST_DEVIATIONS 6

/* A codebook that takes more is not kept by code. */
#define MOST_BY_CODE ((Size) 16 * 1024 * 1024)

static void
Forget(void **memory)
{
	if (*memory != NULL)
		pfree(*memory);
	*memory = NULL;
}

/* Have the decoder be that of this index and generation; true if it pays by now. */
static bool
UseDecoder(const PipeannMeta *meta)
{
	if (decoder.build_id != meta->build_id ||
		decoder.generation != meta->generation)
	{
		Forget((void **) &decoder.by_code);
		Forget((void **) &decoder.bytes_by_code);
		Forget((void **) &decoder.mean);
		Forget((void **) &decoder.rotated_mean);
		Forget((void **) &decoder.fixed);
		decoder.scale = -1;
		decoder.decoded = 0;
		decoder.build_id = meta->build_id;
		decoder.generation = meta->generation;
	}
	return decoder.decoded > DECODED_BEFORE;
}

static void *
Keep(Size n, Size size)
{
	return MemoryContextAllocHuge(TopMemoryContext, mul_size(n, size));
}

/* Decode a node's code to out[dim]. */
void
PipeannDecodeNode(const PipeannIndexView *view, uint32 id, float *out)
{
	const PipeannPq *pq = &view->codes.pq;

	if (UseDecoder(&view->meta) && decoder.by_code == NULL &&
		PipeannPqCentroidCount(pq->dim) * sizeof(float) <= MOST_BY_CODE)
	{
		decoder.by_code = Keep(pq->dim, PIPEANN_CENTROIDS * sizeof(float));
		PipeannPqByCode(pq, decoder.by_code);
	}
	decoder.decoded++;
	if (decoder.by_code == NULL)
		PipeannPqDecode(pq, PipeannCodeAt(&view->codes, id), out);
	else
		PipeannPqDecodeFrom(pq, decoder.by_code,
							PipeannCodeAt(&view->codes, id), out);
}

/* The most of the means of blocks of elements that are rotated together. */
static double
MostOfBlock(const double *square, int dim)
{
	double		most = 0;

	for (int from = 0; from < dim; from += PIPEANN_SQ_MIN_DIM)
	{
		double		sum = 0;

		for (int d = 0; d < PIPEANN_SQ_MIN_DIM; d++)
			sum += square[Min(from, dim - PIPEANN_SQ_MIN_DIM) + d];
		most = Max(most, sum / PIPEANN_SQ_MIN_DIM);
	}
	return most;
}

/*
 * There are no bytes where the farthest element is so far that most others would be the
 * same number, or near the largest float.
 */
static void
ChooseBytes(const PipeannPq *pq)
{
	float		most = 0;
	double		squares = 0;
	double		usual;
	double	   *square = palloc0(mul_size(pq->dim, sizeof(double)));

	Forget((void **) &decoder.mean);
	Forget((void **) &decoder.rotated_mean);
	Forget((void **) &decoder.fixed);
	decoder.mean = Keep(pq->dim, sizeof(float));
	decoder.rotated_mean = Keep(pq->dim, sizeof(float));
	decoder.fixed = Keep(pq->dim, sizeof(int16));
	for (int j = 0; j < pq->nsubvectors; j++)
		for (int d = 0; d < pq->len[j]; d++)
		{
			const float *elements = pq->centroids + pq->offset[j] +
				d * PIPEANN_CENTROIDS;
			float		sum = 0;

			for (int k = 0; k < PIPEANN_CENTROIDS; k++)
				sum += elements[k];
			sum /= PIPEANN_CENTROIDS;
			decoder.mean[pq->start[j] + d] = sum;
			for (int k = 0; k < PIPEANN_CENTROIDS; k++)
			{
				float		far = fabsf(elements[k] - sum);

				most = Max(most, far);
				square[pq->start[j] + d] += (double) far * far / PIPEANN_CENTROIDS;
			}
			squares += square[pq->start[j] + d];
		}
	usual = sqrt(squares / pq->dim);
	decoder.scale = MOST_BYTE / most;
	memcpy(decoder.rotated_mean, decoder.mean, pq->dim * sizeof(float));
	PipeannKernel->rotate(decoder.rotated_mean, pq->dim, false);
	decoder.rotated_scale = MOST_BYTE / (MOST_DEVIATIONS * sqrt(MostOfBlock(square, pq->dim)));
	if (!(usual * decoder.scale >= LEAST_STEPS) || !isfinite(decoder.scale) ||
		!isfinite(decoder.rotated_scale))
		decoder.scale = 0;
	pfree(square);
}

/*
 * Whether vectors may be compared by bytes: those that have a dozen bits an element at
 * most as they are stored. What their distances err by then is less than what codes do.
 */
bool
PipeannHasBytes(const PipeannIndexView *view)
{
	const PipeannLayout *l = &view->meta.layout;

	if (view->cache == NULL || PipeannSqBits(l->storage) == 0 ||
		l->metric == PIPEANN_IP)
		return false;
	(void) UseDecoder(&view->meta);
	if (decoder.scale < 0)
		ChooseBytes(&view->codes.pq);
	return decoder.scale > 0;
}

/* Eight bytes of numbers that are clamped. */
static inline void
Narrow(const int16 *fixed, int8 *out)
{
#if defined(__SSE2__)
	__m128i		most = _mm_set1_epi16(MOST_BYTE);
	__m128i		least = _mm_set1_epi16(-MOST_BYTE);
	__m128i		x = _mm_loadu_si128((const __m128i *) fixed);

	x = _mm_max_epi16(_mm_min_epi16(x, most), least);
	_mm_storel_epi64((__m128i *) out, _mm_packs_epi16(x, x));
#else
	for (int k = 0; k < 8; k++)
		out[k] = (int8) Max(Min(fixed[k], MOST_BYTE), -MOST_BYTE);
#endif
}

/*
 * x[dim] as bytes, to compare with others of this index that are rotated or not as this is;
 * normalised for cosine.
 */
void
PipeannToBytes(const PipeannIndexView *view, const float *x, bool rotated, int8 *out)
{
	int			dim = view->meta.layout.dim;
	const int16 *fixed = decoder.fixed;

	PipeannKernel->to_fixed(x, rotated ? decoder.rotated_mean : decoder.mean,
							rotated ? decoder.rotated_scale : decoder.scale, dim, decoder.fixed);
	/* dim is a multiple of 8 */
	for (int8 *end = out + dim; out < end; out += 8, fixed += 8)
		Narrow(fixed, out);
}

/* All centroids as bytes, in the order of PipeannPqByCode(). */
static void
MakeBytesByCode(const PipeannIndexView *view)
{
	const PipeannPq *pq = &view->codes.pq;
	uint8	   *code = palloc(pq->nsubvectors);
	float	   *x = palloc(mul_size(pq->dim, sizeof(float)));
	int8	   *bytes = palloc(pq->dim);

	decoder.bytes_by_code = Keep(pq->dim, PIPEANN_CENTROIDS);
	for (int k = 0; k < PIPEANN_CENTROIDS; k++)
	{
		memset(code, k, pq->nsubvectors);
		PipeannPqDecode(pq, code, x);
		PipeannToBytes(view, x, false, bytes);
		for (int j = 0; j < pq->nsubvectors; j++)
			memcpy(decoder.bytes_by_code + pq->offset[j] + k * pq->len[j],
				   bytes + pq->start[j], pq->len[j]);
	}
	pfree(code);
	pfree(x);
	pfree(bytes);
}

/* What stands in memory is told apart from out[], so that it need not be read again. */
static void
DecodeBytes(const int *restrict start, const int *restrict lens, const Size *restrict offset,
			int n, const int8 *restrict by_code, const uint8 *restrict code,
			int8 *restrict out)
{
	for (int j = 0; j < n; j++)
	{
		int			len = lens[j];
		const int8 *from = by_code + offset[j] + code[j] * len;

		if (len == 8)
			memcpy(out + start[j], from, 8);
		else
			memcpy(out + start[j], from, len);
	}
}

/* Decode a node's code to bytes out[dim]; PipeannHasBytes() was asked before. */
void
PipeannDecodeBytes(const PipeannIndexView *view, uint32 id, int8 *out)
{
	const PipeannPq *pq = &view->codes.pq;
	const uint8 *code = PipeannCodeAt(&view->codes, id);

	if (UseDecoder(&view->meta) && decoder.bytes_by_code == NULL)
		MakeBytesByCode(view);
	decoder.decoded++;
	if (decoder.bytes_by_code == NULL)
	{
		float	   *x = palloc(mul_size(pq->dim, sizeof(float)));

		PipeannPqDecode(pq, code, x);
		PipeannToBytes(view, x, false, out);
		pfree(x);
		return;
	}
	DecodeBytes(pq->start, pq->len, pq->offset, pq->nsubvectors, decoder.bytes_by_code, code, out);
}
