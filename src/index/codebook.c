/*
 * codebook.c
 *		Codebooks that no cache holds: that of the generation being made, that of
 *		another partition's index, and one in an order in which codes are decoded fast.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/partition.h"
#include "catalog/pg_inherits.h"
#include "index/index.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* Indexes that are looked at. */
#define MOST_SIBLINGS 8

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
	next_codebook.pq = PipeannPqNew(l->dim, l->pq_bytes);
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

/*
 * While PIPEANN_META_RETRAINING is set: the next generation's code of
 * x[dim], normalised for cosine, to out[pq_bytes].
 */
void
PipeannEncodeNext(PipeannIndexView *view, const float *x, uint8 *out)
{
	Assert(view->meta.flags & PIPEANN_META_RETRAINING);
	if (next_codebook.context == NULL ||
		next_codebook.build_id != view->meta.build_id ||
		next_codebook.attempt != view->meta.attempt)
		LoadNextCodebook(view);
	(void) PipeannPqEncode(&next_codebook.pq, x, out);
}

/* One whose format is not read any more stands in no other index's way. */
static bool
HasOurFormat(Relation index)
{
	Buffer		buffer = PipeannReadBuffer(index, PIPEANN_METAPAGE,
										   PIPEANN_META, BUFFER_LOCK_SHARE,
										   false, NULL);
	bool		ours = PipeannReadsFormat(PipeannPageGetMeta(BufferGetPage(buffer))->format);

	UnlockReleaseBuffer(buffer);
	return ours;
}

/* Read an index's codebook, if it is for such codes of such vectors. */
static bool
ReadCodebook(Relation sibling, Relation index, const PipeannPq *pq,
			 PipeannMetric metric, float *centroids)
{
	PipeannMeta *meta;
	PipeannExtentMap map;
	bool		suits;

	if (sibling->rd_rel->relkind != RELKIND_INDEX ||
		sibling->rd_rel->relam != index->rd_rel->relam ||
		RELATION_IS_OTHER_TEMP(sibling) ||
		RelationGetNumberOfBlocks(sibling) == 0 || !HasOurFormat(sibling))
		return false;
	meta = palloc(sizeof(PipeannMeta));
	PipeannMetaRead(sibling, meta);
	suits = (meta->flags & PIPEANN_META_HAS_CODES) &&
		meta->layout.dim == (uint32) pq->dim &&
		meta->layout.pq_bytes == (uint32) pq->nsubvectors &&
		meta->layout.metric == metric;
	if (suits)
	{
		PipeannExtentMapLoad(sibling, meta, CurrentMemoryContext, &map);
		PipeannStreamRead(sibling, &map, PIPEANN_CODEBOOK,
						  PipeannCodebookFirst(&meta->layout, meta->generation),
						  centroids, PipeannCodebookBytes(&meta->layout));
		PipeannExtentMapFree(&map);
	}
	pfree(meta);
	return suits;
}

/* An index that somebody is making, or wants to drop, is passed over. */
static bool
ReadFrom(Oid sibling, Relation index, const PipeannPq *pq,
		 PipeannMetric metric, float *centroids)
{
	Relation	relation;
	bool		done;

	if (!ConditionalLockRelationOid(sibling, AccessShareLock))
		return false;
	relation = try_relation_open(sibling, NoLock);
	if (relation == NULL)
	{
		UnlockRelationOid(sibling, AccessShareLock);
		return false;
	}
	done = ReadCodebook(relation, index, pq, metric, centroids);
	relation_close(relation, AccessShareLock);
	return done;
}

/*
 * Read the codebook of another partition's index to centroids. False if there is
 * none for such codes of such vectors. The newest index comes first: that partition's
 * vectors may be the most alike.
 */
bool
PipeannReadSibling(Relation index, const PipeannPq *pq, PipeannMetric metric,
				   float *centroids)
{
	Oid			self = RelationGetRelid(index);
	List	   *siblings;
	bool		done = false;

	if (!index->rd_rel->relispartition)
		return false;
	siblings = find_inheritance_children(get_partition_parent(self, true),
										 NoLock);
	for (int i = 1; !done && i <= Min(list_length(siblings), MOST_SIBLINGS); i++)
	{
		Oid			sibling = list_nth_oid(siblings, list_length(siblings) - i);

		done = sibling != self &&
			ReadFrom(sibling, index, pq, metric, centroids);
	}
	list_free(siblings);
	return done;
}

/*
 * The codebook by code, of the index and generation for which the backend decoded last.
 * It is made when as many codes were decoded as pay for it.
 */
static struct
{
	uint64		build_id;
	uint32		generation;
	int			decoded;
	float	   *by_code;		/* or NULL */
}			decoder;

#define DECODED_BEFORE 512

/* Decode a node's code to out[dim]. */
void
PipeannDecodeNode(const PipeannIndexView *view, uint32 id, float *out)
{
	const PipeannPq *pq = &view->codes.pq;
	const PipeannMeta *meta = &view->meta;

	if (decoder.build_id != meta->build_id ||
		decoder.generation != meta->generation)
	{
		if (decoder.by_code != NULL)
			pfree(decoder.by_code);
		memset(&decoder, 0, sizeof(decoder));
		decoder.build_id = meta->build_id;
		decoder.generation = meta->generation;
	}
	if (decoder.by_code == NULL && ++decoder.decoded > DECODED_BEFORE)
	{
		decoder.by_code = MemoryContextAllocHuge(TopMemoryContext,
												 mul_size(pq->dim, PIPEANN_CENTROIDS * sizeof(float)));
		PipeannPqByCode(pq, decoder.by_code);
	}
	if (decoder.by_code == NULL)
		PipeannPqDecode(pq, PipeannCodeAt(&view->codes, id), out);
	else
		PipeannPqDecodeFrom(pq, decoder.by_code,
							PipeannCodeAt(&view->codes, id), out);
}
