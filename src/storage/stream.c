/*
 * stream.c
 *		Streams: a kind's pages as one run of bytes.
 */
#include "storage/storage.h"

#include "utils/rel.h"

static BlockNumber
StreamBlock(Relation index, const PipeannExtentMap *map, PipeannKind kind,
			uint32 ordinal)
{
	BlockNumber blkno = PipeannPlainBlock(map, kind, ordinal);

	if (blkno == InvalidBlockNumber)
		ereport(ERROR,
				(errcode(ERRCODE_INDEX_CORRUPTED),
				 errmsg("index \"%s\" lacks page %u of kind %d",
						RelationGetRelationName(index), ordinal, kind),
				 errhint("Run REINDEX INDEX \"%s\".",
						 RelationGetRelationName(index))));
	return blkno;
}

/* Read length bytes of a stream, from its beginning, to dst. */
void
PipeannStreamRead(Relation index, const PipeannExtentMap *map,
				  PipeannKind kind, uint32 first, void *dst,
				  Size length)
{
	char	   *out = dst;

	for (uint32 ordinal = first; length > 0; ordinal++)
	{
		BlockNumber blkno = StreamBlock(index, map, kind, ordinal);
		Buffer		buffer = PipeannReadBuffer(index, blkno, kind,
											   BUFFER_LOCK_SHARE, false, NULL);
		Size		part = Min(length, (Size) PIPEANN_PAYLOAD);

		memcpy(out, PipeannPagePayload(BufferGetPage(buffer)), part);
		UnlockReleaseBuffer(buffer);
		out += part;
		length -= part;
		CHECK_FOR_INTERRUPTS();
	}
}

/* Fill one page. In a build, without WAL, the page is only marked dirty. */
static void
WritePage(Relation index, BlockNumber blkno, PipeannKind kind, const char *src,
		  Size length, bool wal)
{
	Buffer		buffer = PipeannGetBlock(index, blkno);
	GenericXLogState *state = NULL;
	Page		page = BufferGetPage(buffer);

	if (wal)
	{
		state = GenericXLogStart(index);
		page = GenericXLogRegisterBuffer(state, buffer,
										 GENERIC_XLOG_FULL_IMAGE);
	}
	PipeannPageInit(page, kind);
	memcpy(PipeannPagePayload(page), src, length);
	PipeannPageSeal(page, blkno);
	if (wal)
		GenericXLogFinish(state);
	else
		MarkBufferDirty(buffer);
	UnlockReleaseBuffer(buffer);
}

/*
 * Write a stream of length bytes to pages that have their extents; WAL-logged
 * if wal is set.
 */
void
PipeannStreamWrite(Relation index, const PipeannExtentMap *map,
				   PipeannKind kind, uint32 first, const void *src,
				   Size length, bool wal)
{
	const char *in = src;

	for (uint32 ordinal = first; length > 0; ordinal++)
	{
		Size		part = Min(length, (Size) PIPEANN_PAYLOAD);

		WritePage(index, StreamBlock(index, map, kind, ordinal), kind, in,
				  part, wal);
		in += part;
		length -= part;
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Change word number `at` of a stream as part of a WAL record; returns the
 * page's buffer, to be unlocked when the record is finished.
 */
Buffer
PipeannStreamPut(Relation index, const PipeannExtentMap *map,
				 PipeannKind kind, uint32 first, uint32 at, uint32 word,
				 GenericXLogState *state)
{
	uint32		per_page = PIPEANN_PAYLOAD / sizeof(uint32);
	BlockNumber blkno = StreamBlock(index, map, kind, first + at / per_page);
	Buffer		buffer = PipeannReadBuffer(index, blkno, kind,
										   BUFFER_LOCK_EXCLUSIVE, false, NULL);
	Page		page = GenericXLogRegisterBuffer(state, buffer, 0);

	((uint32 *) PipeannPagePayload(page))[at % per_page] = word;
	PipeannPageSeal(page, blkno);
	return buffer;
}
