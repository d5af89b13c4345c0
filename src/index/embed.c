/*
 * embed.c
 *		Vectors in the space in which the graph is, as those who change it compare them.
 */
#include "postgres.h"

#include "distance/distance.h"
#include "index/neighbors.h"

/*
 * For inner product: the element that embedding adds to a vector, from its
 * norm and the largest norm at present.
 */
static float
NormPart(const PipeannIndexView *view, const float *x)
{
	return PipeannAux(PIPEANN_IP, PipeannNorm(x, view->meta.layout.dim),
					  view->meta.max_norm);
}

/* Elements that are scaled together: compilers make vector instructions of such loops. */
#define SCALED 8

/* Embed a vector with this aux to out. */
static void
EmbedVector(const PipeannIndexView *view, const float *restrict x, float aux,
			float *restrict out)
{
	const PipeannLayout *l = &view->meta.layout;
	float		scale = l->metric == PIPEANN_COSINE ? aux : 1;
	int			left = l->dim;

	if (l->metric == PIPEANN_IP)
		out[l->dim] = NormPart(view, x);
	for (; left >= SCALED; left -= SCALED, x += SCALED, out += SCALED)
		for (int k = 0; k < SCALED; k++)
			out[k] = x[k] * scale;
	for (int k = 0; k < left; k++)
		out[k] = x[k] * scale;
}

/* Rotate a vector as those of a quantised storage are, or back; others stay. */
static void
Rotate(const PipeannLayout *l, float *x, bool back)
{
	if (PipeannSqBits(l->storage) > 0)
		PipeannKernel->rotate(x, l->dim, back);
}

/* An embedded vector that is rotated as it is stored becomes what it was. */
void
PipeannTurnBack(const PipeannLayout *l, float *x)
{
	Rotate(l, x, true);
}

/* Embed a vector with this aux to out; rotated as it is stored, if wanted. */
void
PipeannEmbed(const PipeannIndexView *view, const float *x, float aux,
			 bool rotated, void *out)
{
	const PipeannLayout *l = &view->meta.layout;

	if (l->storage == PIPEANN_BITS)
	{
		PipeannVectorFromFloat(x, l->storage, l->dim, out);
		return;
	}
	EmbedVector(view, x, aux, out);
	if (rotated)
		Rotate(l, out, false);
}

/*
 * Embed a node's vector from a copy of its slot (of a long sparse one that is enough),
 * rotated where the storage is quantised: distances of such vectors from each other are
 * the same.
 */
void
PipeannEmbedAsStored(const PipeannIndexView *view, uint32 id,
					 const PipeannSlot *slot, float *x, void *out)
{
	const PipeannLayout *l = &view->meta.layout;

	if (l->storage == PIPEANN_BITS)
	{
		memcpy(out, PipeannSlotVector(l, slot), PipeannEmbeddedBytes(l));
		return;
	}
	if (PipeannIsPoorlyCoded(l, slot) &&
		PipeannChainVector(view, id, slot, x))
		Rotate(l, x, false);
	else
		PipeannKernel->to_float[l->storage] (PipeannSlotVector(l, slot), l->dim,
											 x);
	EmbedVector(view, x, slot->aux, out);
}

/*
 * Embed a node's vector from a copy of its slot. x[layout's dim] is work
 * space. The caller must not hold page locks, as an out-of-line vector is read
 * from its chain.
 */
void
PipeannEmbedSlot(const PipeannIndexView *view, uint32 id,
				 const PipeannSlot *slot, float *x, void *out)
{
	PipeannEmbedAsStored(view, id, slot, x, out);
	PipeannTurnBack(&view->meta.layout, out);
}

/* The bits of a code, x[dim] of which is work space where it is one of centroids. */
static void
BitsOfCode(const PipeannIndexView *view, uint32 id, float *x, uint8 *out)
{
	const PipeannPq *pq = &view->codes.pq;
	const uint8 *code = PipeannCodeAt(&view->codes, id);

	if (!pq->bits)
	{
		PipeannDecodeNode(view, id, x);
		for (int d = 0; d < pq->dim; d++)
			x[d] = x[d] >= 0.5f;
		PipeannVectorFromFloat(x, PIPEANN_BITS, pq->dim, out);
		return;
	}
	memset(out, 0, PipeannVectorBytes(PIPEANN_BITS, pq->dim));
	for (int j = 0; j < pq->nsubvectors; j++)
	{
		int			at = pq->start[j];

		out[at / 8] |= code[j] >> at % 8;
		if (at % 8 + pq->len[j] > 8)
			out[at / 8 + 1] |= code[j] << (8 - at % 8);
	}
}

/*
 * Embed a node's vector: decoded from its code or, in an index without codes,
 * from its slot; no page may be locked. False if its code is not known yet.
 */
bool
PipeannEmbedNode(const PipeannIndexView *view, uint32 id, float *x, void *out)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannSlot *slot;

	if (view->cache != NULL)
	{
		if (id >= view->codes.ncodes)
			return false;
		if (l->storage == PIPEANN_BITS)
		{
			BitsOfCode(view, id, x, out);
			return true;
		}
		/* for cosine, codes are of normalised vectors */
		PipeannDecodeNode(view, id, out);
		if (l->metric == PIPEANN_IP)
			((float *) out)[l->dim] = NormPart(view, out);
		return true;
	}
	/* a list may name a node that is newer than our copy of the metapage */
	if (id >= PipeannViewIds(view))
		return false;
	slot = PipeannSlotAlloc(l);
	PipeannSlotCopy(view, id, slot);
	PipeannEmbedSlot(view, id, slot, x, out);
	pfree(slot);
	return true;
}
