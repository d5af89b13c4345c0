/*
 * next_codebook.c
 *		The codebook of the generation that is being made, for inserts.
 */
#include "postgres.h"

#include "build/build.h"
#include "retrain/retrain.h"
#include "utils/memutils.h"

/* The next generation's codebook, kept while this backend inserts. */
typedef struct NextCodebook
{
	MemoryContext context;
	uint64		build_id;
	uint32		attempt;
	PipeannPq	pq;
} NextCodebook;

static NextCodebook next_codebook;

static void
LoadNextCodebook(PipeannIndexView *view)
{
	const PipeannLayout *l = &view->meta.layout;
	Size		size = PipeannCodebookBytes(l);
	MemoryContext old;
	float	   *centroids;

	if (next_codebook.context != NULL)
		MemoryContextDelete(next_codebook.context);
	next_codebook.context = NULL;
	next_codebook.context = AllocSetContextCreate(TopMemoryContext,
												  "pipeann next codebook",
												  ALLOCSET_SMALL_SIZES);
	next_codebook.attempt = 0;
	old = MemoryContextSwitchTo(next_codebook.context);
	next_codebook.pq = PipeannCodingLayout(l);
	centroids = PipeannAlloc(size);
	MemoryContextSwitchTo(old);
	PipeannStreamRead(view->index, view->map,
					  PIPEANN_CODEBOOK,
					  PipeannCodebookFirst(l, view->meta.generation + 1),
					  centroids, size);
	next_codebook.pq.centroids = centroids;
	next_codebook.build_id = view->meta.build_id;
	next_codebook.attempt = view->meta.attempt;
}

void
PipeannEncodeNext(PipeannIndexView *view, const float *x, uint8 *out)
{
	Assert(view->meta.flags & PIPEANN_META_RETRAINING);
	if (next_codebook.context == NULL ||
		next_codebook.build_id != view->meta.build_id ||
		next_codebook.attempt != view->meta.attempt)
		LoadNextCodebook(view);
	PipeannPqEncode(&next_codebook.pq, x, out);
}
