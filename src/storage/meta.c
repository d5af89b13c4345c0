/*
 * meta.c
 *		The metapage.
 */
#include "storage/storage.h"

#include "base/metric.h"
#include "distance/distance.h"
#include "pq/pq.h"

#include "utils/rel.h"

static bool
WidthsAreRight(const PipeannMeta *meta)
{
	int			sum = 0;

	for (int i = 0; i < PIPEANN_MOST_CODED; i++)
	{
		if (meta->widths.of[i] > PIPEANN_MOST_WIDTH)
			return false;
		sum += meta->widths.of[i];
	}
	return sum == meta->layout.attr_bytes;
}

/*
 * The layout must be what PipeannLayoutInit() computes: a size or divisor from
 * disk is never used unchecked.
 */
static void
CheckLayout(Relation index, const PipeannMeta *meta)
{
	const PipeannLayout *have = &meta->layout;
	PipeannLayout want;

	if (have->dim < 1 || have->max_degree < 4 || have->max_degree % 2 != 0 ||
		have->max_degree > 200 || have->pq_bytes < 1 ||
		have->pq_bytes > Min(have->dim, PIPEANN_MAX_PQ_BYTES) ||
		have->row_bytes > PIPEANN_MOST_ROW_BYTES ||
		(have->row_bytes > 0 && have->row_bytes < PIPEANN_LEAST_ROW_BYTES) ||
		have->storage < PIPEANN_FLOAT4 ||
		have->storage >= PIPEANN_NUM_STORAGE ||
		(PipeannSqBits(have->storage) > 0 &&
		 (!PipeannSqSuits(have->dim) || have->metric == PIPEANN_L1)) ||
		have->type >= PIPEANN_NUM_TYPES || !PipeannIsMetric(have->metric) ||
		(have->storage == PIPEANN_BITS) != (have->type == PIPEANN_BIT) ||
		PipeannIsSparse(have->storage) != (have->type >= PIPEANN_SPARSEVEC) ||
		(have->storage >= PIPEANN_ROOTS16) != (have->type == PIPEANN_SPARSEVEC_L1) ||
		(PipeannIsSparse(have->storage) && have->dim != PIPEANN_SPARSE_DIM) ||
		!PipeannIsMetricOf(have->metric, have->type))
		PipeannCorrupted(index, "has an invalid metapage: an option is out of range");

	PipeannLayoutInit(&want, have, 100);
	if (have->fill < 1 || have->fill > want.slots_per_page)
		PipeannCorrupted(index, "has an invalid metapage: the fill of a page is out of range");
	want.fill = have->fill;
	if (have->attr_bytes > (have->row_bytes > 0 ?
							PIPEANN_MAX_ATTRIBUTE_BYTES : 0) ||
		!WidthsAreRight(meta))
		PipeannCorrupted(index, "has an invalid metapage: the bytes of attribute codes are out of range");
	PipeannSetAttributeBytes(&want, have->attr_bytes);
	if (memcmp(&want, have, sizeof(want)) != 0)
		PipeannCorrupted(index, "has an invalid metapage: the page layout is inconsistent");
}

/* Whether extents follow each other, and the one in use has room for its contents. */
static bool
ExtentsAreValid(const PipeannMeta *meta)
{
	const PipeannExtents *extents = &meta->extents;
	uint64		end = 1;

	for (int i = 0; i < PIPEANN_EXTENTS; i++)
	{
		if (extents->length[i] > 0 &&
			(extents->first[i] < end || (i > 0 && extents->length[i - 1] == 0)))
			return false;
		if (extents->length[i] > 0)
			end = (uint64) extents->first[i] + extents->length[i];
	}
	return end <= MaxBlockNumber && extents->current < PIPEANN_EXTENTS &&
		((meta->flags & PIPEANN_META_HAS_CODES) == 0 ||
		 PipeannExtentPages(&meta->layout, meta->entry_count) <=
		 extents->length[extents->current]);
}

/*
 * Check the format before anything else, so that the hint is right even if a
 * later format changes the rest.
 */
static void
CheckMeta(Relation index, const PipeannMeta *meta)
{
	const PipeannLayout *l = &meta->layout;
	uint64		ids = (uint64) meta->graph_pages * l->slots_per_page;

	if (meta->magic != PIPEANN_MAGIC)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("index \"%s\" has a format that this version of pipeann does not read",
						RelationGetRelationName(index)),
				 errdetail("Its magic number is %08X, that of this version is %08X.",
						   meta->magic, PIPEANN_MAGIC),
				 errhint("Run REINDEX INDEX \"%s\".",
						 RelationGetRelationName(index))));
	CheckLayout(index, meta);
	if ((IndexRelationGetNumberOfAttributes(index) > 1) !=
		(meta->layout.row_bytes > 0))
		PipeannCorrupted(index, "has an invalid metapage: the columns do not suit the layout");
	if (ids >= PIPEANN_INVALID_ID)
		PipeannCorrupted(index, "has an invalid metapage: the number of graph pages is out of range");
	if (meta->entry_count > ids)
		PipeannCorrupted(index, "has an invalid metapage: the entry graph is out of range");
	if (!ExtentsAreValid(meta) ||
		PipeannBlocksInUse(&meta->extents, l, meta->graph_pages, true) > MaxBlockNumber)
		PipeannCorrupted(index, "has an invalid metapage: the extents are out of range");
}

/* Copy the metapage after checking magic, layout and counts. */
void
PipeannMetaRead(Relation index, PipeannMeta *meta)
{
	Buffer		buffer = PipeannReadBuffer(index, PIPEANN_METAPAGE,
										   PIPEANN_META, BUFFER_LOCK_SHARE,
										   false, NULL);

	memcpy(meta, PipeannPageGetMeta(BufferGetPage(buffer)),
		   sizeof(PipeannMeta));
	UnlockReleaseBuffer(buffer);
	CheckMeta(index, meta);
}

/*
 * The metapage's removals as they are now.
 *
 * Called for each row of an index-only scan, which has read the whole metapage before.
 */
uint32
PipeannMetaRemovals(Relation index)
{
	Buffer		buffer = ReadBuffer(index, PIPEANN_METAPAGE);
	uint32		removals;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	removals = PipeannPageGetMeta(BufferGetPage(buffer))->removals;
	UnlockReleaseBuffer(buffer);
	return removals;
}

void
PipeannMetaBegin(Relation index, PipeannMetaUpdate *update)
{
	update->buffer = PipeannReadBuffer(index, PIPEANN_METAPAGE, PIPEANN_META,
									   BUFFER_LOCK_EXCLUSIVE, false, NULL);
	update->state = GenericXLogStart(index);
	update->meta = PipeannPageGetMeta(GenericXLogRegisterBuffer(update->state,
																update->buffer, 0));
	CheckMeta(index, update->meta);
}

void
PipeannMetaEnd(PipeannMetaUpdate *update)
{
	Page		page = (Page) ((char *) update->meta - PIPEANN_CONTENTS_OFFSET);

	PipeannPageSeal(page, PIPEANN_METAPAGE);
	GenericXLogFinish(update->state);
	UnlockReleaseBuffer(update->buffer);
}
