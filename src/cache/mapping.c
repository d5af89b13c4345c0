/*
 * mapping.c
 *		An attachment's mappings of segments: adding some, finding those that
 *		other backends added, and the arrays that lead from ids to codes.
 */
#include "cache/registry.h"
#include "base/huge.h"

/*
 * If the limit is reached, caches are evicted until the segment fits or none is
 * left. If the operating system refuses, this is done once only, since idle
 * backends may still map what was evicted; and if that did not help, not again
 * for segments of this size, lest each new backend evict all.
 */
static bool
MayTryAgain(PipeannControl *control, uint32 pages, PipeannArenaResult room,
			bool *refused)
{
	if (room == PIPEANN_ARENA_REFUSED)
	{
		if (*refused)
			control->hopeless_pages = pages;
		if (control->hopeless_pages > 0 && pages >= control->hopeless_pages)
			return false;
		*refused = true;
	}
	return PipeannMakeRoom(control, pages, room);
}

static bool
AllocateShared(PipeannControl *control, Size size, bool evict,
			   PipeannSegment *segment, PipeannMapping *mapping)
{
	uint32		pages = PipeannArenaPages(size);
	bool		refused = false;
	bool		swept = false;

	if (pages > PipeannArenaLimit(control))
		return false;
	for (;;)
	{
		PipeannArenaResult room = PipeannArenaAllocate(control, pages, segment,
													   mapping);

		if (room == PIPEANN_ARENA_OK)
			break;
		if (!swept)
			PipeannRegistrySweep(control);
		else if (!evict || !MayTryAgain(control, pages, room, &refused))
			return false;
		swept = true;
		/* this backend may still map caches that were dropped */
		PipeannAttachmentsClean(false);
	}
	if (pages >= control->hopeless_pages)
		control->hopeless_pages = 0;
	return true;
}

/*
 * A larger first chunk starts as a copy of the one that it replaces, before
 * other backends can find it.
 */
static void
CopyReplaced(const PipeannAttachment *attachment,
			 const PipeannMapping *mapping)
{
	if (attachment->nmappings == 0 || mapping->first > 0)
		return;
	memcpy(mapping->address, attachment->arrays->chunks[0],
		   mul_size(TYPEALIGN(PIPEANN_CODE_BLOCK,
							  pg_atomic_read_u32(&attachment->header->ncodes)),
					PipeannAttachmentCodeBytes(attachment)));
}

static bool
AddShared(PipeannAttachment *attachment, Size size, bool evict,
		  PipeannMapping *mapping)
{
	PipeannControl *control = PipeannControlAttached();
	PipeannSegment segment;

	if (!AllocateShared(control, size, evict, &segment, mapping))
		return false;
	segment.first = mapping->first;
	segment.nodes = mapping->nodes;
	CopyReplaced(attachment, mapping);
	if (PipeannRegistryAddSegment(control, attachment, &segment))
		return true;
	PipeannArenaDetach(mapping);
	PipeannArenaFree(control, &segment);
	return false;
}

/*
 * Add a segment of memory to a cache that this backend is loading, has its turn
 * on, or has to itself. False if there is no room.
 */
bool
PipeannAttachmentAddMapping(PipeannAttachment *attachment, Size size,
							uint32 first, uint32 nodes,
							bool evict)
{
	PipeannMapping mapping;

	if (attachment->nmappings == PIPEANN_MAX_ENTRY_SEGMENTS)
		return false;
	memset(&mapping, 0, sizeof(mapping));
	mapping.first = first;
	mapping.nodes = nodes;
	if (attachment->entry == NULL)
	{
		mapping.address = MemoryContextAllocHuge(attachment->context, size);
		PipeannHugeAdvise(mapping.address, size);
		CopyReplaced(attachment, &mapping);
	}
	else if (!AddShared(attachment, size, evict, &mapping))
		return false;
	attachment->mappings[attachment->nmappings++] = mapping;
	attachment->bytes = add_size(attachment->bytes,
								 attachment->entry == NULL ? size :
								 mul_size(PipeannArenaPages(size),
										  FPM_PAGE_SIZE));
	return true;
}

/* Map the segments that other backends added. False if one cannot be mapped. */
static bool
FindMappings(PipeannAttachment *attachment)
{
	PipeannControl *control = PipeannControlAttached();
	PipeannSegment segments[PIPEANN_MAX_ENTRY_SEGMENTS];
	int			count;

	if (attachment->entry == NULL ||
		*(volatile uint32 *) &attachment->entry->nsegments ==
		attachment->nmappings)
		return true;
	count = PipeannRegistryCopySegments(control, attachment,
										attachment->nmappings, segments);
	for (int i = 0; i < count; i++)
	{
		PipeannMapping mapping;

		mapping.first = segments[i].first;
		mapping.nodes = segments[i].nodes;
		if (!PipeannArenaAttach(control, &segments[i], &mapping))
			return false;
		attachment->mappings[attachment->nmappings++] = mapping;
		attachment->bytes += (Size) segments[i].pages * FPM_PAGE_SIZE;
	}
	attachment->header = (PipeannCacheHeader *) attachment->mappings[0].address;
	return true;
}

static uint32
MappingChunks(const PipeannMapping *mapping)
{
	return ((uint64) mapping->nodes + PIPEANN_CHUNK_NODES - 1) /
		PIPEANN_CHUNK_NODES;
}

static void
FillChunks(const PipeannAttachment *attachment, PipeannArrays *arrays)
{
	for (uint32 i = 0; i < attachment->nmappings; i++)
	{
		const PipeannMapping *mapping = &attachment->mappings[i];
		uint32		first = mapping->first >> PIPEANN_CHUNK_SHIFT;
		char	   *codes = mapping->address;

		if (i == 0)
			codes += attachment->header->codes;
		for (uint32 j = 0; j < MappingChunks(mapping); j++)
			arrays->chunks[first + j] = (uint8 *) codes +
				(Size) j * PIPEANN_CHUNK_NODES *
				PipeannAttachmentCodeBytes(attachment);
	}
}

/*
 * The arrays are made as a child of the current context, so that nothing is
 * left of them if the extent map cannot be read.
 */
static PipeannArrays *
MakeArrays(Relation index, PipeannAttachment *attachment,
		   const PipeannMeta *meta)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pipeann cache arrays",
												  ALLOCSET_SMALL_SIZES);
	PipeannArrays *arrays = MemoryContextAllocZero(context,
												   sizeof(PipeannArrays));
	const PipeannMapping *last =
		&attachment->mappings[attachment->nmappings - 1];

	arrays->context = context;
	arrays->refs = 1;
	arrays->nmappings = attachment->nmappings;
	arrays->capacity = last->first + last->nodes;
	arrays->extents = PipeannExtentsInUse(meta);
	arrays->chunks =
		MemoryContextAlloc(context,
						   mul_size((last->first >> PIPEANN_CHUNK_SHIFT) +
									MappingChunks(last), sizeof(uint8 *)));
	FillChunks(attachment, arrays);
	PipeannExtentMapLoad(index, meta, context, &arrays->map);
	arrays->mapped = PipeannGraphIds(&arrays->map, &meta->layout);
	MemoryContextSetParent(context, attachment->context);
	return arrays;
}

void
PipeannArraysRelease(PipeannArrays *arrays)
{
	if (--arrays->refs == 0)
		MemoryContextDelete(arrays->context);
}

/*
 * Take in what was added to the cache and to the index's file. False if part of
 * the cache cannot be mapped into this backend.
 */
bool
PipeannAttachmentRefresh(Relation index, PipeannAttachment *attachment,
						 const PipeannMeta *meta)
{
	bool		complete = FindMappings(attachment);
	PipeannArrays *old = attachment->arrays;

	if (attachment->nmappings == 0)
		return false;
	if (old != NULL && old->nmappings == attachment->nmappings &&
		old->extents >= PipeannExtentsInUse(meta))
		return complete;
	attachment->arrays = MakeArrays(index, attachment, meta);
	if (old != NULL)
		PipeannArraysRelease(old);
	return complete;
}
