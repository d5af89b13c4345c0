/*
 * load.c
 *		A cache's contents: how they are read from the index, all of them or what is
 *		newer.
 */
#include "base/pause.h"
#include "cache/registry.h"

#define PREFETCH_PAGES 32

typedef struct CodeReader
{
	Relation	index;
	const PipeannMeta *meta;
	PipeannAttachment *attachment;
	uint32		ids;
	BlockNumber nblocks;
	BufferAccessStrategy strategy;
} CodeReader;

static CodeReader
NewReader(Relation index, PipeannAttachment *attachment,
		  const PipeannMeta *meta, uint32 ids)
{
	CodeReader	reader = {index, meta, attachment};

	reader.ids = Min(ids, attachment->arrays->capacity);
	reader.nblocks = RelationGetNumberOfBlocks(index);
	return reader;
}

/* The block of a code page; the file may not have it. */
static BlockNumber
CodeBlock(const CodeReader *reader, uint32 page)
{
	return PipeannCodeBlock(&reader->meta->places, &reader->meta->layout, page);
}

static void
ReportNoCodePage(const CodeReader *reader, uint32 page)
{
	const char *name = RelationGetRelationName(reader->index);

	ereport(ERROR,
			(errcode(ERRCODE_INDEX_CORRUPTED),
			 errmsg("index \"%s\" has no block %u", name,
					CodeBlock(reader, page)),
			 errdetail("The file has %u blocks, but codes stand there.",
					   reader->nblocks),
			 errhint("Run REINDEX INDEX \"%s\".", name)));
}

/*
 * Copy the first codes of a page, of ids first .. first + count - 1, to their
 * chunks, block by block.
 */
static void
StoreCodes(const CodeReader *reader, uint32 first, uint32 count,
		   const char *page)
{
	const PipeannLayout *l = &reader->meta->layout;
	uint32		done = 0;

	while (done < count)
	{
		uint32		at = (first + done) & (PIPEANN_CHUNK_NODES - 1);
		uint32		run = Min(count - done, PIPEANN_CODE_BLOCK -
							  (at & (PIPEANN_CODE_BLOCK - 1)));
		uint8	   *chunk = reader->attachment->arrays->chunks[(first + done) >>
															   PIPEANN_CHUNK_SHIFT];

		memcpy(chunk + PipeannCodeOffset(at, l->pq_bytes, l->attr_bytes),
			   page + (Size) done * l->pq_bytes, (Size) run * l->pq_bytes);
		for (uint32 i = 0; i < l->attr_bytes; i++)
			memcpy(chunk + PipeannAttributeOffset(at, l->pq_bytes,
												  l->attr_bytes, i),
				   page + PipeannPlaneOffset(l, i) + done, run);
		done += run;
	}
}

/*
 * Read one code page. Page numbers may come from the metapage's ring, so a
 * number out of range is ignored. The codes of a page that was never written are
 * zeroes, and so are those of one that the file lacks: a crash came before its codes
 * were written, or they are not written yet. One of another generation makes the cache
 * outdated, and changes nothing of it.
 */
static void
ReadCodePage(const CodeReader *reader, uint32 page)
{
	static const char zeros[PIPEANN_PAYLOAD];
	uint32		per_page = PipeannCodesPerPage(&reader->meta->layout);
	uint64		first = (uint64) page * per_page;
	BlockNumber blkno = CodeBlock(reader, page);
	uint32		count;
	Buffer		buffer;
	Page		content;

	if (first >= reader->ids)
		return;
	count = Min(per_page, reader->ids - (uint32) first);
	if (blkno >= reader->nblocks)
	{
		if (page < reader->meta->code_pages)
			ReportNoCodePage(reader, page);
		StoreCodes(reader, first, count, zeros);
		return;
	}
	buffer = PipeannReadBuffer(reader->index, blkno, PIPEANN_CODES,
							   BUFFER_LOCK_SHARE, true, reader->strategy);
	content = BufferGetPage(buffer);
	if (PageIsNew(content))
		StoreCodes(reader, first, count, zeros);
	else if (PipeannPageIsOf(content, reader->meta->generation))
		StoreCodes(reader, first, count, PipeannPagePayload(content));
	else
		reader->attachment->outdated = true;
	UnlockReleaseBuffer(buffer);
}

static void
PrefetchCodePage(const CodeReader *reader, uint32 page)
{
	BlockNumber blkno = CodeBlock(reader, page);

	if (blkno < reader->nblocks)
		PrefetchBuffer(reader->index, MAIN_FORKNUM, blkno);
}

/* Read the codes of ids from .. ids - 1, and of others on the same pages. */
static void
ReadCodes(Relation index, PipeannAttachment *attachment,
		  const PipeannMeta *meta, uint32 from, uint32 ids)
{
	CodeReader	reader = NewReader(index, attachment, meta, ids);
	uint32		per_page = PipeannCodesPerPage(&meta->layout);
	uint32		first = from / per_page;
	uint32		end;

	if (from >= reader.ids)
		return;
	end = (reader.ids - 1) / per_page + 1;
	if (end - first > PREFETCH_PAGES)
		reader.strategy = GetAccessStrategy(BAS_BULKREAD);
	for (uint32 page = first; page < Min(first + PREFETCH_PAGES, end); page++)
		PrefetchCodePage(&reader, page);
	for (uint32 page = first; page < end; page++)
	{
		CHECK_FOR_INTERRUPTS();
		if (end - page > PREFETCH_PAGES)
			PrefetchCodePage(&reader, page + PREFETCH_PAGES);
		ReadCodePage(&reader, page);
	}
	if (reader.strategy != NULL)
		FreeAccessStrategy(reader.strategy);
}

static int
ComparePages(const void *a, const void *b)
{
	uint32		x = *(const uint32 *) a;
	uint32		y = *(const uint32 *) b;

	return x < y ? -1 : x > y;
}

/* Read the code pages that the metapage's ring names as changed. */
static void
ReadChanges(Relation index, PipeannAttachment *attachment,
			const PipeannMeta *meta, uint32 ids)
{
	uint64		applied = pg_atomic_read_u64(&attachment->header->applied);
	uint32		pages[PIPEANN_CHANGE_RING];
	int			count = 0;
	CodeReader	reader;

	if (applied >= meta->changes)
		return;
	Assert(meta->changes - applied <= PIPEANN_CHANGE_RING);
	for (uint64 c = applied; c < meta->changes; c++)
		pages[count++] = meta->change_ring[c % PIPEANN_CHANGE_RING];
	qsort(pages, count, sizeof(uint32), ComparePages);
	reader = NewReader(index, attachment, meta, ids);

	for (int i = 0; i < count; i++)
	{
		if (i > 0 && pages[i] == pages[i - 1])
			continue;
		CHECK_FOR_INTERRUPTS();
		ReadCodePage(&reader, pages[i]);
	}
}

static void
ReportInvalidEntryGraph(Relation index)
{
	PipeannCorrupted(index, "has an invalid entry graph");
}

/*
 * Searches use the entry graph's contents as array indexes, so these must fit.
 */
static void
CheckEntryIds(Relation index, const PipeannMeta *meta, const uint32 *id)
{
	uint32		ids = PipeannMetaIds(meta);

	for (uint32 i = 0; i < meta->entry_count; i++)
	{
		if (id[i] >= ids)
			ReportInvalidEntryGraph(index);
		if (i % 65536 == 0)
			CHECK_FOR_INTERRUPTS();
	}
}

static void
CheckEntryGraph(Relation index, const PipeannMeta *meta, const char *stream)
{
	uint32		count = meta->entry_count;
	const uint32 *id = (const uint32 *) stream;
	const uint16 *n = (const uint16 *) (id + count);
	const uint32 *neighbors = id + count + (count + 1) / 2;
	bool		ok = true;

	CheckEntryIds(index, meta, id);
	for (uint32 i = 0; ok && i < count; i++)
	{
		ok = n[i] <= PIPEANN_ENTRY_DEGREE;
		for (uint32 j = 0; ok && j < n[i]; j++)
			ok = neighbors[(Size) i * PIPEANN_ENTRY_DEGREE + j] < count;
		if (i % 65536 == 0)
			CHECK_FOR_INTERRUPTS();
	}
	if (!ok)
		ReportInvalidEntryGraph(index);
}

/* Have the header say that there are no halves if they are not precise. */
static void
RoundCentroids(PipeannAttachment *attachment)
{
	PipeannCacheHeader *header = attachment->header;
	PipeannPq	pq = attachment->model.codes.pq;

	pq.centroids = (float *) ((char *) header + header->centroids);
	if (!PipeannPqHalves(&pq, (uint16 *) ((char *) header + header->halves)))
		header->halves = 0;
}

/* Read length bytes of the run, from one of its pages on; the cache may become outdated. */
static void
ReadRun(Relation index, PipeannAttachment *attachment, const PipeannMeta *meta,
		PipeannKind kind, uint32 page, void *dst, Size length)
{
	if (!PipeannRunRead(index, PipeannRunBlock(&meta->places) + page, kind,
						meta->generation, dst, length))
		attachment->outdated = true;
}

/* Read everything into a new cache's first segment. */
void
PipeannCacheLoad(Relation index, PipeannAttachment *attachment,
				 const PipeannMeta *meta)
{
	const PipeannLayout *l = &meta->layout;
	PipeannCacheHeader *header = attachment->header;
	char	   *base = (char *) header;
	uint32		ids = PipeannMetaIds(meta);

	ReadRun(index, attachment, meta, PIPEANN_CODEBOOK, 0,
			base + header->centroids, PipeannCodebookBytes(l));
	ReadRun(index, attachment, meta, PIPEANN_CODEBOOK, PipeannHistogramsPage(l),
			base + header->histograms, PipeannHistogramsBytes(l));
	ReadRun(index, attachment, meta, PIPEANN_ENTRY, PipeannEntryPage(l),
			base + header->entry_graph, PipeannEntryGraphBytes(meta->entry_count));
	if (attachment->outdated)
		return;
	if (header->halves != 0)
		RoundCentroids(attachment);
	CheckEntryGraph(index, meta, base + header->entry_graph);
	PIPEANN_PAUSE("cache-load");
	ReadCodes(index, attachment, meta, 0, ids);
	pg_atomic_write_u32(&header->ncodes, ids);
	pg_atomic_write_u64(&header->applied, meta->changes);
	pg_atomic_write_u64(&header->entry_graph_applied, meta->entry_changes);
}

/* Read the ids again: VACUUM has put live nodes in the places of dead ones. */
static void
ReadEntryIds(Relation index, PipeannAttachment *attachment,
			 const PipeannMeta *meta)
{
	PipeannCacheHeader *header = attachment->header;
	Size		size = mul_size(meta->entry_count, sizeof(uint32));
	uint32	   *ids;

	if (pg_atomic_read_u64(&header->entry_graph_applied) >=
		meta->entry_changes ||
		meta->entry_count != attachment->model.codes.entry_count)
		return;
	ids = PipeannAlloc(size);
	ReadRun(index, attachment, meta, PIPEANN_ENTRY, PipeannEntryPage(&meta->layout),
			ids, size);
	if (!attachment->outdated)
	{
		CheckEntryIds(index, meta, ids);
		memcpy((char *) header + header->entry_graph, ids, size);
		pg_atomic_write_u64(&header->entry_graph_applied, meta->entry_changes);
	}
	pfree(ids);
}

/*
 * Read what is newer than this cache, which has codes of so many ids by now: those
 * below ids that were added or changed, and the entry graph's ids.
 */
void
PipeannCacheReadNewer(Relation index, PipeannAttachment *attachment,
					  const PipeannMeta *meta, uint32 have, uint32 ids)
{
	uint64		applied = pg_atomic_read_u64(&attachment->header->applied);

	if (meta->changes > applied + PIPEANN_CHANGE_RING)
		ReadCodes(index, attachment, meta, 0, ids);
	else
	{
		ReadChanges(index, attachment, meta, have);
		ReadCodes(index, attachment, meta, have, ids);
	}
	ReadEntryIds(index, attachment, meta);
}
