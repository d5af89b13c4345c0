/*
 * attach.c
 *		Making attachments, to a cache that is there or to a new one, which is
 *		then loaded.
 */
#include "cache/registry.h"

#include "access/xact.h"

static void
SetPq(PipeannAttachment *attachment, const PipeannLayout *l)
{
	int			n = l->pq_bytes;
	int		   *start = MemoryContextAlloc(attachment->context,
										   n * sizeof(int));
	int		   *len = MemoryContextAlloc(attachment->context, n * sizeof(int));
	Size	   *offset = MemoryContextAlloc(attachment->context,
											n * sizeof(Size));

	PipeannPqLayout(l->dim, n, start, len, offset);
	attachment->pq.dim = l->dim;
	attachment->pq.nchunks = n;
	attachment->pq.start = start;
	attachment->pq.len = len;
	attachment->pq.offset = offset;
}

static PipeannAttachment *
NewAttachment(Relation index, const PipeannMeta *meta)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pipeann cache",
												  ALLOCSET_SMALL_SIZES);
	PipeannAttachment *attachment = MemoryContextAllocZero(context,
														   sizeof(PipeannAttachment));

	attachment->context = context;
	attachment->key = PipeannAttachmentKeyOf(index);
	attachment->relid = RelationGetRelid(index);
	attachment->build_id = meta->build_id;
	attachment->entry_count = meta->entry_count;
	attachment->entry_degree = meta->entry_degree;
	attachment->place = PIPEANN_CACHE_PRIVATE;
	attachment->tried = GetCurrentStatementStartTimestamp();
	dlist_init(&attachment->idle);
	SetPq(attachment, &meta->layout);
	attachment->attr_bytes = meta->layout.attr_bytes;
	MemoryContextSetParent(context, TopMemoryContext);
	PipeannAttachmentAdd(attachment);
	return attachment;
}

/* Get memory and read the index into it. False if there is no memory. */
static bool
Load(Relation index, PipeannAttachment *attachment, const PipeannMeta *meta,
	 bool evict)
{
	PipeannCacheHeader plan;
	uint32		nodes;
	Size		size = PipeannCachePlan(meta, &plan, &nodes);
	PipeannCacheHeader *header;

	if (!PipeannAttachmentAddMapping(attachment, size, 0, nodes, evict))
		return false;
	header = (PipeannCacheHeader *) attachment->mappings[0].address;
	header->killed = plan.killed;
	PipeannKilledInit((PipeannKilledTable *) ((char *) header + plan.killed),
					  meta);
	header->hot = plan.hot;
	PipeannHotInitTable((PipeannPageUses *) ((char *) header + header->hot),
						meta);
	header->centroids = plan.centroids;
	header->books = plan.books;
	header->entry_graph = plan.entry_graph;
	header->codes = plan.codes;
	pg_atomic_init_u32(&header->ncodes, 0);
	pg_atomic_init_u32(&header->row_map, 0);
	pg_atomic_init_u64(&header->applied, 0);
	pg_atomic_init_u64(&header->entry_graph_applied, 0);
	attachment->header = header;
	PipeannAttachmentRefresh(index, attachment, meta);
	PipeannCacheLoad(index, attachment, meta);
	return true;
}

/* Attach to the cache in shared memory, or make one there. */
static bool
FillShared(Relation index, PipeannAttachment *attachment,
		   const PipeannMeta *meta,
		   bool evict)
{
	PipeannControl *control = PipeannControlGet();

	attachment->place = control->arena_pages > 0 ? PIPEANN_CACHE_SHARED :
		PIPEANN_CACHE_DYNAMIC;
	switch (PipeannRegistryClaim(control, attachment, evict))
	{
		case PIPEANN_CLAIM_READY:
			return PipeannAttachmentRefresh(index, attachment, meta);
		case PIPEANN_CLAIM_LOAD:
			if (!Load(index, attachment, meta, evict))
				return false;
			PipeannRegistryPublish(control, attachment);
			return true;
		default:
			return false;
	}
}

/*
 * Returns a new attachment, not yet in the hash table, or NULL if there is no
 * shared memory for it. With evict, unused caches may go to make room.
 */
PipeannAttachment *
PipeannAttachmentMake(Relation index, const PipeannMeta *meta, bool shared,
					  bool evict)
{
	PipeannAttachment *volatile attachment = NewAttachment(index, meta);
	volatile bool ok = false;

	PG_TRY();
	{
		if (shared)
			ok = FillShared(index, attachment, meta, evict);
		else
			ok = Load(index, attachment, meta, false);
	}
	PG_CATCH();
	{
		PipeannAttachmentFree(attachment);
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (ok)
		return attachment;
	PipeannAttachmentFree(attachment);
	return NULL;
}
