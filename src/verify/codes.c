/*
 * codes.c
 *		A node's aux value and code against its vector, and codebook and entry
 *		graph.
 *
 * Build, retraining and insert compute a code in ways that round in different
 * places. A code is right if each of its centroids is the nearest one within
 * these errors.
 */
#include "postgres.h"

#include <math.h>

#include "verify/verify.h"
#include "distance/distance.h"
#include "miscadmin.h"
#include "utils/rel.h"

/*
 * Relative and absolute error of an element: of arithmetic, of half precision.
 */
#define FLOAT_ERROR 1e-6
#define HALF_ERROR (1.0 / 1024)
#define HALF_SMALLEST (1.0 / (1 << 24))

/* Relative error of a distance in single precision. */
#define DISTANCE_ERROR 1e-4

/* A node's vector, and how exact it is. */
typedef struct Value
{
	const float *x;				/* in the slot */
	const float *full;			/* exact one of an out-of-line node, else x */
	double		norm;			/* of full */
	double		relative;		/* error of x's elements */
	double		absolute;		/* the same */
	double		error;			/* PipeannSlotError(): of the whole vector */
} Value;

/* The entry graph is looked at so often, as VACUUM may be changing it. */
#define ENTRY_TRIES 50

/* False if an out-of-line node's chain, and so the node, is being changed. */
static bool
LoadValue(const PipeannCheck *check, const PipeannSlot *slot, Value *value)
{
	const PipeannLayout *l = &check->view.meta.layout;
	float	   *x = palloc(mul_size(l->dim, sizeof(float)));
	bool		half = l->storage == PIPEANN_FLOAT2;

	PipeannVectorToFloat(PipeannSlotVector(l, slot), l->storage, l->dim, x);
	value->x = value->full = x;
	value->relative = half ? HALF_ERROR : FLOAT_ERROR;
	value->absolute = half ? HALF_SMALLEST : 0;
	value->error = PipeannSlotError(l, slot);
	if (slot->flags & PIPEANN_SLOT_OUT_OF_LINE)
	{
		float	   *full = palloc(mul_size(l->dim, sizeof(float)));

		if (!PipeannCheckOutOfLineVector(check, slot, full))
			return false;
		value->full = full;
	}
	value->norm = PipeannNorm(value->full, l->dim);
	return true;
}

/* How much the exact vector's norm may differ from that of x. */
static double
NormError(const Value *value, int dim)
{
	return value->error > 0 ? value->error + FLOAT_ERROR * value->norm :
		2 * (value->relative * value->norm + value->absolute * sqrt(dim));
}

static bool
AuxIsRight(const PipeannCheck *check, const PipeannSlot *slot,
		   const Value *value)
{
	const PipeannLayout *l = &check->view.meta.layout;

	switch (l->metric)
	{
		case PIPEANN_COSINE:
			if (value->norm <= NormError(value, l->dim))
				return slot->aux > 0;
			return fabs(slot->aux * value->norm - 1) <=
				1.001 * NormError(value, l->dim) / value->norm;
		default:
			return slot->aux == 0;
	}
}

static double
Distance(const PipeannPq *pq, int subvector, int code, const float *x)
{
	const float *centroids = pq->centroids + pq->offset[subvector] + code;
	double		sum = 0;

	for (int d = 0; d < pq->len[subvector]; d++)
	{
		double		diff = x[pq->start[subvector] + d] -
			(double) centroids[(Size) d * PIPEANN_CENTROIDS];

		sum += diff * diff;
	}
	return sqrt(sum);
}

/*
 * A vector that errs by e may be nearer to another centroid by 2 e. scale is
 * the norm that normalising divided by.
 */
static bool
SubvectorIsRight(const PipeannPq *pq, int subvector, const Value *value,
				 const float *x, double scale, uint8 code, uint8 nearest)
{
	double		norm = PipeannNorm(x + pq->start[subvector],
								   pq->len[subvector]);
	double		error = value->relative * norm +
		value->absolute * sqrt(pq->len[subvector]) / scale;
	double		have = Distance(pq, subvector, code, x);
	double		want = Distance(pq, subvector, nearest, x);

	return have <= want * (1 + DISTANCE_ERROR) + 2 * error +
		FLOAT_ERROR * norm;
}

static bool
IsCodeOf(const PipeannCheck *check, const Value *value, const float *x,
		 const uint8 *code)
{
	const PipeannIndexView *view = &check->view;
	const PipeannPq *pq = &view->codes.pq;
	const float *point = x;
	double		scale = 1;
	uint8	   *want = palloc(pq->nsubvectors);

	if (view->meta.layout.metric == PIPEANN_COSINE)
	{
		float	   *normalized = palloc(mul_size(pq->dim, sizeof(float)));

		scale = PipeannNorm(x, pq->dim);
		PipeannNormalize(x, pq->dim, normalized);
		point = normalized;
	}
	PipeannPqEncode(pq, point, want);
	for (int i = 0; i < pq->nsubvectors; i++)
		if (code[i] != want[i] &&
			!SubvectorIsRight(pq, i, value, point, scale, code[i], want[i]))
			return false;
	return true;
}

static BlockNumber
CodesBlock(const PipeannIndexView *view, uint32 page)
{
	return PipeannPlainBlock(view->map,
							 PipeannCodesKind(view->meta.generation), page);
}

/* The payload of a code's page, or NULL if that does not exist. */
static const uint8 *
PageOfCode(PipeannCheck *check, uint32 id, bool again)
{
	const PipeannIndexView *view = &check->view;
	uint32		per_page = PipeannCodesPerPage(&view->meta.layout);
	uint32		page = id / per_page;
	BlockNumber blkno = CodesBlock(view, page);
	Buffer		buffer;

	if (page != check->code_page || again)
	{
		check->code_page = PIPEANN_INVALID_ID;
		if (blkno == InvalidBlockNumber ||
			blkno >= RelationGetNumberOfBlocks(view->index))
			return NULL;
		buffer = PipeannReadBuffer(view->index, blkno,
								   PipeannCodesKind(view->meta.generation),
								   BUFFER_LOCK_SHARE, true, check->strategy);
		if (PageIsNew(BufferGetPage(buffer)))
			memset(check->codes, 0, PIPEANN_PAYLOAD);
		else
			memcpy(check->codes, PipeannPagePayload(BufferGetPage(buffer)),
				   PIPEANN_PAYLOAD);
		UnlockReleaseBuffer(buffer);
		check->code_page = page;
	}
	return check->codes;
}

/* What is wrong with a node's code, or NULL. */
static const char *
CodeProblem(PipeannCheck *check, uint32 id, const PipeannSlot *slot,
			const Value *value, bool again)
{
	const PipeannIndexView *view = &check->view;
	const PipeannLayout *l = &view->meta.layout;
	const uint8 *page = PageOfCode(check, id, again);
	uint8	   *code = palloc(PipeannCodeBytes(l));

	if (page == NULL)
		return "has no code";
	PipeannCodeGet(l, (const char *) page, id % PipeannCodesPerPage(l), code);
	if (!IsCodeOf(check, value, value->full, code) &&
		!IsCodeOf(check, value, value->x, code))
		return psprintf("does not have the code of its vector at block %u",
						CodesBlock(view, check->code_page));
	if (id >= view->codes.ncodes)
		return "has no code in memory";
	if (memcmp(code, PipeannCodeAt(&view->codes, id), l->pq_bytes) != 0)
		return "has another code in memory than on its page";
	for (uint32 i = 0; i < l->attr_bytes; i++)
		if (code[l->pq_bytes + i] != *PipeannAttributeAt(&view->codes, id, i))
			return "has another attribute code in memory than on its page";
	if (check->attributes != NULL &&
		!PipeannCheckCovers(check, id, slot, code + l->pq_bytes))
		return psprintf("has an attribute code that does not cover its rows at block %u",
						CodesBlock(view, check->code_page));
	return NULL;
}

static const char *
StorageProblem(const PipeannCheck *check, const PipeannSlot *slot,
			   const Value *value)
{
	const PipeannLayout *l = &check->view.meta.layout;
	Size		size = mul_size(l->dim, PipeannElementSize(l->storage));
	char	   *rounded;

	if (!(slot->flags & PIPEANN_SLOT_OUT_OF_LINE))
		return NULL;
	rounded = palloc(size);
	PipeannVectorFromFloat(value->full, l->storage, l->dim, rounded);
	return memcmp(rounded, PipeannSlotVector(l, slot), size) == 0 ? NULL :
		"has an out-of-line vector that is not the one rounded in its slot";
}

static const char *
VectorProblem(PipeannCheck *check, uint32 id, const PipeannSlot *slot,
			  bool again)
{
	const PipeannLayout *l = &check->view.meta.layout;
	const char *problem;
	Value		value;

	if (!LoadValue(check, slot, &value))
		return NULL;			/* the check of chains reports it */
	if (!isfinite(value.norm))
		return l->storage == PIPEANN_FLOAT2 ? NULL :
			"has a vector with an element that is not a finite number";
	problem = StorageProblem(check, slot, &value);
	if (problem == NULL && !AuxIsRight(check, slot, &value))
		problem = "does not have the aux value of its vector";
	if (problem == NULL && check->view.cache != NULL)
		problem = CodeProblem(check, id, slot, &value, again);
	return problem;
}

/*
 * A node that is being inserted, or that a crash or an error left, may lack
 * its code. A stable node may not; its slot's vector does not change any more.
 */
void
PipeannCheckVector(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	const char *problem = VectorProblem(check, id, slot, false);

	for (int i = 0; problem != NULL && i < PIPEANN_CHECK_TRIES; i++)
	{
		if (!PipeannCheckIsStable(check, slot))
			return;
		PipeannCheckRefresh(check);
		problem = VectorProblem(check, id, slot, true);
		if (problem != NULL)
			PipeannCheckPause();
	}
	if (problem != NULL)
		PipeannCheckReport(check, id, problem);
}

static void
CheckHistograms(const PipeannCheck *check)
{
	const PipeannIndexView *view = &check->view;
	const PipeannLayout *l = &view->meta.layout;
	char	   *histograms = PipeannAlloc(Max(PipeannHistogramsBytes(l), 1));

	PipeannStreamRead(view->index, view->map, PIPEANN_CODEBOOK,
					  PipeannHistogramsFirst(l, view->meta.generation), histograms,
					  PipeannHistogramsBytes(l));
	if (memcmp(histograms, view->cache->histograms, PipeannHistogramsBytes(l)) != 0)
		PipeannCheckReport(check, PIPEANN_INVALID_ID,
						   "the histograms of attribute codes in memory are not those on pages");
	pfree(histograms);
}

static void
CheckCodebook(const PipeannCheck *check)
{
	const PipeannIndexView *view = &check->view;
	const PipeannPq *pq = &view->codes.pq;
	Size		count = PipeannPqCentroidCount(pq->dim);
	float	   *centroids = PipeannAlloc(mul_size(count, sizeof(float)));

	PipeannStreamRead(view->index, view->map, PIPEANN_CODEBOOK,
					  PipeannCodebookFirst(&view->meta.layout,
										   view->meta.generation), centroids,
					  mul_size(count, sizeof(float)));
	if (memcmp(centroids, pq->centroids, count * sizeof(float)) != 0)
		PipeannCheckReport(check, PIPEANN_INVALID_ID,
						   "the codebook in memory is not the one on pages");
	for (Size i = 0; i < count; i++)
		if (!isfinite(centroids[i]))
			PipeannCheckReport(check, PIPEANN_INVALID_ID,
							   "the codebook has an element that is not a finite number");
	pfree(centroids);
	CheckHistograms(check);
}

static bool
EntryGraphIsSame(const PipeannCheck *check, const uint32 *stream, Size size)
{
	const PipeannCodes *codes = &check->view.codes;
	Size		neighbors = (Size) codes->entry_count * codes->entry_degree;

	return codes->entry_count == check->view.meta.entry_count &&
		memcmp(stream, codes->entry_ids,
			   codes->entry_count * sizeof(uint32)) == 0 &&
		memcmp(stream + size / sizeof(uint32) - neighbors,
			   codes->entry_neighbors, neighbors * sizeof(uint32)) == 0;
}

static uint32 *
ReadEntryGraph(const PipeannCheck *check, Size *size)
{
	const PipeannIndexView *view = &check->view;
	uint32	   *stream;

	*size = PipeannEntryGraphBytes(view->codes.entry_count,
								   view->codes.entry_degree);
	stream = PipeannAlloc(Max(*size, 1));
	PipeannStreamRead(view->index, view->map, PIPEANN_ENTRY,
					  view->meta.entry_first, stream, *size);
	return stream;
}

/* An entry of the entry graph that is no node, or INVALID_ID. */
static uint32
FindNoNode(PipeannCheck *check, const uint32 *ids)
{
	for (uint32 i = 0; i < check->view.codes.entry_count; i++)
		if (ids[i] < check->ids && !PipeannCheckIsNodeNow(check, ids[i]))
			return ids[i];
	return PIPEANN_INVALID_ID;
}

/*
 * Loading the cache has checked that ids and neighbours are in range. VACUUM
 * may be replacing ids and freeing the former nodes, so an apparent error is
 * looked at again.
 */
static void
CheckEntryGraph(PipeannCheck *check)
{
	uint32		id = PIPEANN_INVALID_ID;
	bool		same = false;

	for (int i = 0; i <= ENTRY_TRIES; i++)
	{
		Size		size;
		uint32	   *stream;

		if (i > 0)
		{
			PipeannCheckPause();
			PipeannCheckRefresh(check);
		}
		stream = ReadEntryGraph(check, &size);
		same = EntryGraphIsSame(check, stream, size);
		id = same ? FindNoNode(check, stream) : PIPEANN_INVALID_ID;
		pfree(stream);
		if (same && id == PIPEANN_INVALID_ID)
			return;
	}
	if (!same)
		PipeannCheckReport(check, PIPEANN_INVALID_ID,
						   "the entry graph in memory is not the one on pages");
	PipeannCheckReport(check, id, "is in the entry graph but is not a node");
}

void
PipeannCheckStreams(PipeannCheck *check)
{
	CheckCodebook(check);
	CheckEntryGraph(check);
}
