/*
 * neighbors.c
 *		Embedding vectors in the space in which the graph's distances are, for
 *		changes of the graph, and neighbour lists on pages.
 */
#include "postgres.h"

#include "base/pause.h"
#include "distance/distance.h"
#include "index/neighbors.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/*
 * For inner product: the element that embedding adds to a vector, from its
 * norm and the largest norm of the index so far.
 */
static float
NormPart(const PipeannIndexView *view, const float *x)
{
	return PipeannAux(PIPEANN_IP, PipeannNorm(x, view->meta.layout.dim),
					  view->meta.max_norm);
}

/* Elements that are scaled together: compilers vectorise such loops. */
#define SCALED 8

/* Embed a vector with this aux into out. */
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

/* Rotate a vector of a quantised storage, or back; leave others as they are. */
static void
Rotate(const PipeannLayout *l, float *x, bool back)
{
	if (PipeannSqBits(l->storage) > 0)
		PipeannKernel->rotate(x, l->dim, back);
}

/* Embed a vector with this aux into out, rotated if it is stored so. */
void
PipeannEmbed(const PipeannIndexView *view, const float *x, float aux, void *out)
{
	const PipeannLayout *l = &view->meta.layout;

	if (l->storage == PIPEANN_BITS)
	{
		PipeannVectorFromFloat(x, l->storage, l->dim, out);
		return;
	}
	EmbedVector(view, x, aux, out);
	Rotate(l, out, false);
}

/*
 * Embed a node's vector from a copy of its slot (for a long sparse one, too); as_stored:
 * left rotated if the storage is quantised, which does not change distances between such
 * vectors. x[layout's dim] is work space. No page may be locked, as an out-of-line vector is
 * read from its chain.
 */
void
PipeannEmbedSlot(const PipeannIndexView *view, uint32 id, const PipeannSlot *slot,
				 bool as_stored, float *x, void *out)
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
	if (!as_stored)
		Rotate(l, out, true);
}

/*
 * The codebook in the order of codes, of the generation last decoded by this
 * backend. It is made once enough codes were decoded for it to pay.
 */
static struct
{
	uint64		build_id;
	int			decoded;
	float	   *by_code;		/* or NULL */
}			decoder;

#define DECODED_BEFORE 512

/* A larger codebook is not kept in that form. */
#define MOST_BY_CODE ((Size) 16 * 1024 * 1024)

/* Decode a node's code to out[dim]. */
static void
DecodeNode(const PipeannIndexView *view, uint32 id, float *out)
{
	const PipeannPq *pq = &view->codes.pq;
	const uint8 *code = PipeannCodeAt(&view->codes, id);
	Size		bytes = PipeannPqCentroidCount(pq->dim) * sizeof(float);

	if (decoder.build_id != view->meta.build_id)
	{
		if (decoder.by_code != NULL)
			pfree(decoder.by_code);
		memset(&decoder, 0, sizeof(decoder));
		decoder.build_id = view->meta.build_id;
	}
	if (decoder.by_code == NULL && bytes <= MOST_BY_CODE && decoder.decoded++ == DECODED_BEFORE)
	{
		decoder.by_code = MemoryContextAllocHuge(TopMemoryContext, bytes);
		PipeannPqByCode(pq, decoder.by_code);
	}
	if (decoder.by_code == NULL)
		PipeannPqDecode(pq, code, out);
	else
		PipeannPqDecodeFrom(pq, decoder.by_code, code, out);
}

/* Decode the bits of a code; x[dim] is work space if codes are of centroids. */
static void
BitsOfCode(const PipeannIndexView *view, uint32 id, float *x, uint8 *out)
{
	const PipeannPq *pq = &view->codes.pq;
	const uint8 *code = PipeannCodeAt(&view->codes, id);

	if (!pq->bits)
	{
		DecodeNode(view, id, x);
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
		DecodeNode(view, id, out);
		if (l->metric == PIPEANN_IP)
			((float *) out)[l->dim] = NormPart(view, out);
		return true;
	}
	/* a list may have a node that is newer than our copy of the metapage */
	if (id >= PipeannViewIds(view))
		return false;
	slot = PipeannSlotAlloc(l);
	PipeannSlotCopy(view, id, slot);
	PipeannEmbedSlot(view, id, slot, false, x, out);
	pfree(slot);
	return true;
}

/* ---------- lists on pages ---------- */

static int
CompareTargets(const void *a, const void *b)
{
	uint32		x = ((const PipeannListChange *) a)->target;
	uint32		y = ((const PipeannListChange *) b)->target;

	return x < y ? -1 : x > y;
}

/*
 * Write the planned lists whose old lists have not changed, and set their done. A WAL record
 * has as many pages as possible: a record for each page would have as much header as change.
 */
void
PipeannChangeLists(const PipeannIndexView *view, PipeannListChange *changes,
				   int n, BufferAccessStrategy strategy)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannListChange *end = changes + n;

	qsort(changes, n, sizeof(PipeannListChange), CompareTargets);
	for (PipeannListChange *change = changes; change < end;)
	{
		GenericXLogState *state;
		Buffer		buffers[MAX_GENERIC_XLOG_PAGES];
		Page		pages[MAX_GENERIC_XLOG_PAGES];
		int			npages = 0;

		CHECK_FOR_INTERRUPTS();
		PIPEANN_PAUSE("insert-back-edge");
		state = GenericXLogStart(view->index);
		while (change < end && npages < MAX_GENERIC_XLOG_PAGES)
		{
			uint32		number = PipeannIdPage(l, change->target);
			Buffer		buffer = PipeannLockGraphPage(view, number, BUFFER_LOCK_EXCLUSIVE,
													  strategy);
			Page		page = BufferGetPage(buffer);
			bool		registered = false;

			for (; change < end && PipeannIdPage(l, change->target) == number; change++)
			{
				uint32		at = PipeannIdSlot(l, change->target);
				PipeannSlot *slot = PipeannSlotAt(l, PipeannPagePayload(page), at);

				if (!PipeannSlotIsNode(slot) || slot->degree != change->seen->degree ||
					memcmp(slot->neighbors, change->seen->neighbors,
						   PipeannSlotDegree(l, slot) * sizeof(uint32)) != 0)
					continue;
				if (!registered)
					page = GenericXLogRegisterBuffer(state, buffer, 0);
				registered = true;
				slot = PipeannSlotAt(l, PipeannPagePayload(page), at);
				memcpy(slot->neighbors, change->list, change->n * sizeof(uint32));
				slot->degree = change->n;
				change->done = true;
			}
			if (registered)
			{
				buffers[npages] = buffer;
				pages[npages++] = page;
			}
			else
				UnlockReleaseBuffer(buffer);
		}
		for (int i = 0; i < npages; i++)
			PipeannPageSeal(pages[i], BufferGetBlockNumber(buffers[i]));
		if (npages > 0)
			GenericXLogFinish(state);
		else
			GenericXLogAbort(state);
		for (int i = 0; i < npages; i++)
			UnlockReleaseBuffer(buffers[i]);
	}
}
