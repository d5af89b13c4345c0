/*
 * piece.c
 *		A lens's pieces of memory: getting more, finding what other backends
 *		added, and the arrays that resolve ids.
 */
#include "cache/registry.h"

/*
 * The room that evictions can make is tried for until there is nothing left to
 * evict. When the operating system refuses it is tried only once, since images
 * that idle backends still have mapped do not go at once; and when that was in
 * vain, not again for a block of the size, lest each new backend evict all.
 */
static bool
MayTryAgain(PipeannControl *control, uint32 pages, PipeannRoom room,
			bool *refused)
{
	if (room == PIPEANN_ROOM_REFUSED)
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
			   PipeannBlock *block, PipeannPiece *piece)
{
	uint32		pages = PipeannAreaPages(size);
	bool		refused = false;
	bool		swept = false;

	if (pages > PipeannAreaLimit(control))
		return false;
	for (;;)
	{
		PipeannRoom room = PipeannAreaAllocate(control, pages, block, piece);

		if (room == PIPEANN_ROOM_OK)
			break;
		if (!swept)
			PipeannSweepRecords(control);
		else if (!evict || !MayTryAgain(control, pages, room, &refused))
			return false;
		swept = true;
		/* this backend, too, may still have mapped what was dropped */
		PipeannLensesClean(false);
	}
	if (pages >= control->hopeless_pages)
		control->hopeless_pages = 0;
	return true;
}

/*
 * A larger first chunk starts as a copy of the one that it replaces, before
 * anyone can find it.
 */
static void
CopyReplaced(const PipeannLens *lens, const PipeannPiece *piece)
{
	if (lens->npieces == 0 || piece->first > 0)
		return;
	memcpy(piece->address, lens->arrays->chunks[0],
		   mul_size(pg_atomic_read_u32(&lens->body->ncodes),
					lens->pq.nchunks));
}

static bool
AddShared(PipeannLens *lens, Size size, bool evict, PipeannPiece *piece)
{
	PipeannControl *control = PipeannControlAttached();
	PipeannBlock block;

	if (!AllocateShared(control, size, evict, &block, piece))
		return false;
	block.first = piece->first;
	block.nodes = piece->nodes;
	CopyReplaced(lens, piece);
	if (PipeannRegistryAddBlock(control, lens, &block))
		return true;
	PipeannAreaDetach(piece);
	PipeannAreaFree(control, &block);
	return false;
}

/*
 * Get another piece of memory for an image that this backend is loading, has
 * its turn on, or has to itself.
 */
bool
PipeannLensAddPiece(PipeannLens *lens, Size size, uint32 first, uint32 nodes,
					bool evict)
{
	PipeannPiece piece;

	if (lens->npieces == PIPEANN_MAX_RECORD_BLOCKS)
		return false;
	memset(&piece, 0, sizeof(piece));
	piece.first = first;
	piece.nodes = nodes;
	if (lens->record == NULL)
	{
		piece.address = MemoryContextAllocHuge(lens->context, size);
		PipeannAreaAdvise(piece.address, size);
		CopyReplaced(lens, &piece);
	}
	else if (!AddShared(lens, size, evict, &piece))
		return false;
	lens->pieces[lens->npieces++] = piece;
	lens->bytes = add_size(lens->bytes, lens->record == NULL ? size :
						   mul_size(PipeannAreaPages(size), FPM_PAGE_SIZE));
	return true;
}

/*
 * Map what other backends added. False when that fails for a part.
 */
static bool
FindPieces(PipeannLens *lens)
{
	PipeannControl *control = PipeannControlAttached();
	PipeannBlock blocks[PIPEANN_MAX_RECORD_BLOCKS];
	int			count;

	if (lens->record == NULL ||
		*(volatile uint32 *) &lens->record->nblocks == lens->npieces)
		return true;
	count = PipeannRegistryBlocks(control, lens, lens->npieces, blocks);
	for (int i = 0; i < count; i++)
	{
		PipeannPiece piece;

		piece.first = blocks[i].first;
		piece.nodes = blocks[i].nodes;
		if (!PipeannAreaAttach(control, &blocks[i], &piece))
			return false;
		lens->pieces[lens->npieces++] = piece;
		lens->bytes += (Size) blocks[i].pages * FPM_PAGE_SIZE;
	}
	lens->body = (PipeannBody *) lens->pieces[0].address;
	return true;
}

static uint32
PieceChunks(const PipeannPiece *piece)
{
	return ((uint64) piece->nodes + PIPEANN_CHUNK_NODES - 1) /
		PIPEANN_CHUNK_NODES;
}

static void
FillChunks(const PipeannLens *lens, PipeannArrays *arrays)
{
	for (uint32 i = 0; i < lens->npieces; i++)
	{
		const PipeannPiece *piece = &lens->pieces[i];
		uint32		first = piece->first >> PIPEANN_CHUNK_SHIFT;
		char	   *codes = piece->address;

		if (i == 0)
			codes += lens->body->codes;
		for (uint32 j = 0; j < PieceChunks(piece); j++)
			arrays->chunks[first + j] = (uint8 *) codes +
				(Size) j * PIPEANN_CHUNK_NODES * lens->pq.nchunks;
	}
}

/*
 * Made as a child of the current context, so that nothing stays of it when the
 * extent map cannot be read.
 */
static PipeannArrays *
MakeArrays(Relation index, PipeannLens *lens, const PipeannMeta *meta)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pipeann image arrays",
												  ALLOCSET_SMALL_SIZES);
	PipeannArrays *arrays = MemoryContextAllocZero(context,
												   sizeof(PipeannArrays));
	const PipeannPiece *last = &lens->pieces[lens->npieces - 1];

	arrays->context = context;
	arrays->refs = 1;
	arrays->npieces = lens->npieces;
	arrays->capacity = last->first + last->nodes;
	arrays->extents = PipeannExtentsInUse(meta);
	arrays->chunks =
		MemoryContextAlloc(context,
						   mul_size((last->first >> PIPEANN_CHUNK_SHIFT) +
									PieceChunks(last), sizeof(uint8 *)));
	FillChunks(lens, arrays);
	PipeannExtentMapLoad(index, meta, context, &arrays->map);
	arrays->mapped = PipeannGraphIds(&arrays->map, &meta->layout);
	MemoryContextSetParent(context, lens->context);
	return arrays;
}

void
PipeannArraysRelease(PipeannArrays *arrays)
{
	if (--arrays->refs == 0)
		MemoryContextDelete(arrays->context);
}

/*
 * See what was added to the image and to the index's file. False when part of
 * the image cannot be mapped into this backend.
 */
bool
PipeannLensRefresh(Relation index, PipeannLens *lens, const PipeannMeta *meta)
{
	bool		complete = FindPieces(lens);
	PipeannArrays *old = lens->arrays;

	if (lens->npieces == 0)
		return false;
	if (old != NULL && old->npieces == lens->npieces &&
		old->extents >= PipeannExtentsInUse(meta))
		return complete;
	lens->arrays = MakeArrays(index, lens, meta);
	if (old != NULL)
		PipeannArraysRelease(old);
	return complete;
}
