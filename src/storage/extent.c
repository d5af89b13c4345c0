/*
 * extent.c
 *		Growing the file, and contiguous pages of one kind.
 */
#include "storage/storage.h"

#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/rel.h"

/* Blocks by which the file grows at a time; others may extend it in between. */
#define BLOCKS_AT_A_TIME 16

/* Blocks of an extent that are prefetched. */
#define PREFETCH_BLOCKS 64

/*
 * Make sure that a block exists, and return it locked exclusively. mode is RBM_NORMAL, and
 * the page new or initialised; or RBM_ZERO_AND_LOCK if the whole page is to be written.
 */
Buffer
PipeannGetBlock(Relation index, BlockNumber blkno, ReadBufferMode mode)
{
	Buffer		buffer;

	while (RelationGetNumberOfBlocks(index) <= blkno)
	{
		LockRelationForExtension(index, ExclusiveLock);
		for (int i = 0; i < BLOCKS_AT_A_TIME &&
			 RelationGetNumberOfBlocks(index) <= blkno; i++)
			ReleaseBuffer(ReadBuffer(index, P_NEW));
		UnlockRelationForExtension(index, ExclusiveLock);
		CHECK_FOR_INTERRUPTS();
	}
	buffer = ReadBufferExtended(index, MAIN_FORKNUM, blkno, mode, NULL);
	if (mode == RBM_NORMAL)
		LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	return buffer;
}

/* Whether the file ends before the end of a graph page. */
static bool
IsCutOff(const PipeannLayout *l, const PipeannExtents *extents, uint32 page,
		 BlockNumber blocks)
{
	return PipeannGraphBlock(extents, l, page) + l->node_pages > blocks;
}

/*
 * The number of graph pages that exist in the file now, of graph_pages in the
 * metapage: a crash after the metapage was written may have left out the last
 * one. Errors if more are missing.
 */
uint32
PipeannCountGraphPages(Relation index, const PipeannLayout *l,
					   const PipeannExtents *extents, uint32 graph_pages)
{
	BlockNumber blocks = RelationGetNumberOfBlocks(index);
	uint32		count = graph_pages;

	if (count > 0 && IsCutOff(l, extents, count - 1, blocks))
		count--;
	if (count > 0 && IsCutOff(l, extents, count - 1, blocks))
		PipeannCorrupted(index, "has no block %u, where it has nodes: the file has %u blocks",
						 PipeannGraphBlock(extents, l, count - 1), blocks);
	return count;
}

/* Write length bytes to pages from block `first` on; without WAL they are only marked dirty. */
void
PipeannWritePages(Relation index, BlockNumber first, PipeannKind kind,
				  uint32 generation, const void *src, Size length, bool wal)
{
	const char *in = src;

	for (BlockNumber blkno = first; length > 0; blkno++)
	{
		Size		part = Min(length, (Size) PIPEANN_PAYLOAD);
		Buffer		buffer = PipeannGetBlock(index, blkno, RBM_ZERO_AND_LOCK);
		GenericXLogState *state = NULL;
		Page		page = BufferGetPage(buffer);

		if (wal)
		{
			state = GenericXLogStart(index);
			page = GenericXLogRegisterBuffer(state, buffer,
											 GENERIC_XLOG_FULL_IMAGE);
		}
		PipeannPageInit(page, kind, generation);
		memcpy(PipeannPagePayload(page), in, part);
		PipeannPageSeal(page, blkno);
		if (wal)
			GenericXLogFinish(state);
		else
			MarkBufferDirty(buffer);
		UnlockReleaseBuffer(buffer);
		in += part;
		length -= part;
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Read length bytes from pages from block `first` on. False if one of them has become
 * that of another generation.
 */
bool
PipeannExtentRead(Relation index, BlockNumber first, PipeannKind kind,
				  uint32 generation, void *dst, Size length)
{
	char	   *out = dst;
	BlockNumber end = first + PipeannPagesOf(length);
	BlockNumber ahead = first;

	for (BlockNumber blkno = first; length > 0; blkno++)
	{
		Buffer		buffer;
		Page		page;
		Size		part = Min(length, (Size) PIPEANN_PAYLOAD);
		bool		same;

		for (; ahead < Min(end, blkno + PREFETCH_BLOCKS); ahead++)
			PrefetchBuffer(index, MAIN_FORKNUM, ahead);
		buffer = PipeannReadBuffer(index, blkno, kind, BUFFER_LOCK_SHARE, false, NULL);
		page = BufferGetPage(buffer);
		same = PipeannPageIsOf(page, generation);
		if (same)
			memcpy(out, PipeannPagePayload(page), part);
		UnlockReleaseBuffer(buffer);
		if (!same)
			return false;
		out += part;
		length -= part;
		CHECK_FOR_INTERRUPTS();
	}
	return true;
}

/*
 * Change the first bytes of a page's contents, as part of a WAL record; returns the
 * page's buffer, to be unlocked when the record is finished.
 */
Buffer
PipeannExtentPut(Relation index, BlockNumber blkno, PipeannKind kind, const void *src,
				 Size length, GenericXLogState *state)
{
	Buffer		buffer = PipeannReadBuffer(index, blkno, kind,
										   BUFFER_LOCK_EXCLUSIVE, false, NULL);
	Page		page = GenericXLogRegisterBuffer(state, buffer, 0);

	memcpy(PipeannPagePayload(page), src, length);
	PipeannPageSeal(page, blkno);
	return buffer;
}
