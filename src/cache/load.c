/*
 * load.c
 *		Loading a cache: its root, its codes, page by page as searches need
 *		them, and what has changed. A code page that a backend has read is kept
 *		in memory for all, if there is room. Otherwise it is read into a buffer
 *		of the search, from or through shared_buffers, many at once.
 */
#include "cache/registry.h"

#include "base/id_set.h"
#include "base/pause.h"
#include "storage/bufmgr.h"

/*
 * The state of a code page. Its upper bits count the changes noted while the page was not kept,
 * so that a backend that is storing what it read before such a change notices and drops it.
 */
#define ABSENT 0
#define STORING 1
#define KEPT 2
#define STATE 3
#define ONE_CHANGE 4

/* Pages for which a search has buffers, more than it gathers at once; and pages of one block. */
#define MOST_READ (2 * PIPEANN_MOST_GATHERED)
#define BLOCK_PAGES 32

/* Missing pages that each scan loads into memory, if there is room. */
#define FILL_PAGES 16

/* After finding no memory for codes a backend tries again after this time (ms). */
#define ROOM_RETRY_MS 1000

typedef struct PipeannPageLoader
{
	PipeannCodeLoader loader;
	Relation	index;
	PipeannAttachment *attachment;
	PipeannLayout layout;
	PipeannExtents extents;
	uint32		generation;
	uint32		code_pages;		/* code pages written */
	uint32		ncodes;
	BlockNumber nblocks;		/* blocks of the file */
	uint32		block;			/* block of codes that was found to be kept */
	PipeannIdSet read;			/* code page -> buffer */
	uint32		nread;
	char	   *blocks[MOST_READ / BLOCK_PAGES];	/* buffers of BLOCK_PAGES pages */
	MemoryContextCallback callback;
} PipeannPageLoader;

/* ---------- pages in memory ---------- */

static inline pg_atomic_uint32 *
StateOf(const PipeannPageLoader *pl, uint32 page)
{
	PipeannCacheHeader *header = pl->attachment->header;

	return (pg_atomic_uint32 *) PipeannRootAt(header, header->pages) + page;
}

/* Map a chunk's memory into this backend. NULL if it has none, or cannot be mapped. */
static uint8 *
MapChunk(PipeannAttachment *attachment, uint32 chunk)
{
	PipeannCacheHeader *header = attachment->header;
	pg_atomic_uint64 *chunks = PipeannRootAt(header, header->chunks);

	if (attachment->chunks[chunk] == NULL)
		attachment->chunks[chunk] = (uint8 *) PipeannPartAt(attachment, &chunks[chunk]);
	return attachment->chunks[chunk];
}

/*
 * Where a part of a cache is in this backend, after taking memory for it unless another backend
 * has; a cache of the backend's own has no larger parts than `own` bytes. NULL if there is none.
 */
static char *
MakePart(Relation index, PipeannAttachment *attachment, pg_atomic_uint64 *where, uint64 pages,
		 Size own)
{
	uint64		nowhere = PIPEANN_NOWHERE;

	if (attachment->entry == NULL)
		return pages * FPM_PAGE_SIZE > own ? NULL :
			MemoryContextAllocHuge(attachment->context, pages * FPM_PAGE_SIZE);
	if (pg_atomic_read_u64(where) == PIPEANN_NOWHERE)
	{
		PipeannArenaPlace place;

		if (PipeannAttachmentIsDoomed(attachment) ||
			(attachment->no_room != 0 &&
			 !TimestampDifferenceExceeds(attachment->no_room, GetCurrentTimestamp(),
										 ROOM_RETRY_MS)))
			return NULL;
		place = PipeannRegistryTake(attachment->entry, pages);
		attachment->no_room = place != PIPEANN_NOWHERE ? 0 : GetCurrentTimestamp();
		if (place == PIPEANN_NOWHERE)
			PipeannReportNoRoom(RelationGetRelationName(index));
		else if (!pg_atomic_compare_exchange_u64(where, &nowhere, place))
			PipeannRegistryGive(attachment->entry, place, pages);
	}
	return PipeannPartAt(attachment, where);
}

/* Whether the chunks with codes of a page are mapped; make: give memory to those without. */
static bool
HasChunks(PipeannPageLoader *pl, uint32 page, bool make)
{
	PipeannAttachment *attachment = pl->attachment;
	PipeannCacheHeader *header = attachment->header;
	pg_atomic_uint64 *chunks = PipeannRootAt(header, header->chunks);
	uint32		per_page = PipeannCodesPerPage(&pl->layout);
	uint64		end = Min((uint64) (page + 1) * per_page, header->ids);
	uint32		last = (uint32) ((end - 1) >> PIPEANN_CHUNK_SHIFT);

	for (uint32 i = page * per_page >> PIPEANN_CHUNK_SHIFT; i <= last; i++)
	{
		if (MapChunk(attachment, i) == NULL && make)
			attachment->chunks[i] = (uint8 *)
				MakePart(pl->index, attachment, &chunks[i], header->chunk_pages,
						 attachment->temporary ? MaxAllocHugeSize : 0);
		if (attachment->chunks[i] == NULL)
			return false;
	}
	return true;
}

/* Whether a page's codes are in memory and mapped. */
static inline bool
IsKept(PipeannPageLoader *pl, uint32 page)
{
	bool		kept = (pg_atomic_read_u32(StateOf(pl, page)) & STATE) == KEPT;

	pg_read_barrier();
	return kept && HasChunks(pl, page, false);
}

/* Copy the codes of a page to their chunks, block by block. */
static void
StoreCodes(PipeannPageLoader *pl, uint32 page, const char *payload)
{
	const PipeannLayout *l = &pl->layout;
	uint32		first = page * PipeannCodesPerPage(l);
	uint32		count = Min(PipeannCodesPerPage(l), pl->attachment->header->ids - first);
	uint32	   *stores = pl->attachment->header->stores;
	uint32		done = 0;

	__atomic_fetch_add(&stores[0], 1, __ATOMIC_SEQ_CST);
	pg_memory_barrier();
	while (done < count)
	{
		uint32		at = (first + done) & (PIPEANN_CHUNK_NODES - 1);
		uint32		run = Min(count - done, PIPEANN_CODE_BLOCK -
							  (at & (PIPEANN_CODE_BLOCK - 1)));
		uint8	   *chunk = pl->attachment->chunks[(first + done) >> PIPEANN_CHUNK_SHIFT];

		memcpy(chunk + PipeannCodeOffset(at, l->pq_bytes, l->attr_bytes),
			   payload + (Size) done * l->pq_bytes, (Size) run * l->pq_bytes);
		for (uint32 i = 0; i < l->attr_bytes; i++)
			memcpy(chunk + PipeannAttributeOffset(at, l->pq_bytes,
												  l->attr_bytes, i),
				   payload + PipeannPlaneOffset(l, i) + done, run);
		done += run;
	}
	__atomic_fetch_add(&stores[1], 1, __ATOMIC_SEQ_CST);
}

/* Set a counter's lower half to zero, and count in its upper half how often that was done. */
static void
BeginAgain(pg_atomic_uint64 *counter)
{
	uint64		value = pg_atomic_read_u64(counter);

	while (!pg_atomic_compare_exchange_u64(counter, &value, ((value >> 32) + 1) << 32))
		;
}

/* Count pages from the first one on that are all kept. */
static void
CountComplete(PipeannPageLoader *pl)
{
	PipeannCacheHeader *header = pl->attachment->header;
	uint32		pages = PipeannCodePages(&pl->layout, header->ids);

	for (;;)
	{
		uint64		complete = pg_atomic_read_u64(&header->complete);
		uint32		page = (uint32) complete;

		if (page >= pages || (pg_atomic_read_u32(StateOf(pl, page)) & STATE) != KEPT)
			return;
		(void) pg_atomic_compare_exchange_u64(&header->complete, &complete, complete + 1);
	}
}

/*
 * Keep a page that was in this state when it was read. False if it has changed
 * since, or another backend is storing it.
 */
static bool
Keep(PipeannPageLoader *pl, uint32 page, uint32 state, const char *payload)
{
	pg_atomic_uint32 *of = StateOf(pl, page);
	uint32		storing = state | STORING;

	if ((state & STATE) == KEPT)
	{
		StoreCodes(pl, page, payload);
		return true;
	}
	if (!pg_atomic_compare_exchange_u32(of, &state, storing))
		return false;
	StoreCodes(pl, page, payload);
	pg_atomic_fetch_add_u64(&pl->attachment->header->kept, 1);
	if (pg_atomic_compare_exchange_u32(of, &storing, (storing & ~STATE) | KEPT))
		return true;
	pg_atomic_fetch_and_u32(of, ~(uint32) STATE);
	pg_atomic_fetch_sub_u64(&pl->attachment->header->kept, 1);
	return false;
}

/* ---------- reading pages ---------- */

/* Blocks of buffers that no loader uses, kept by this backend. */
static char *free_blocks[MOST_READ / BLOCK_PAGES];
static int	nfree_blocks = 0;

static char *
BufferAt(PipeannPageLoader *pl, uint32 number)
{
	char	  **block = &pl->blocks[number / BLOCK_PAGES];

	if (*block == NULL)
		*block = nfree_blocks > 0 ? free_blocks[--nfree_blocks] :
			MemoryContextAlloc(TopMemoryContext, BLOCK_PAGES * PIPEANN_PAYLOAD);
	return *block + number % BLOCK_PAGES * PIPEANN_PAYLOAD;
}

/* Give back a loader's buffers. Callback of its memory context. */
static void
EndLoader(void *arg)
{
	PipeannPageLoader *pl = arg;

	for (int i = 0; i < MOST_READ / BLOCK_PAGES; i++)
	{
		if (pl->blocks[i] == NULL)
			continue;
		if (nfree_blocks < MOST_READ / BLOCK_PAGES)
			free_blocks[nfree_blocks++] = pl->blocks[i];
		else
			pfree(pl->blocks[i]);
	}
}

/*
 * The block of a code page, or InvalidBlockNumber if the file lacks it: a crash came
 * before its codes were written, or they are not written yet. A backend that keeps
 * the page has read its state before this, and writing the page changes its state.
 */
static BlockNumber
BlockOf(PipeannPageLoader *pl, uint32 page)
{
	BlockNumber blkno = PipeannCodeBlock(&pl->extents, &pl->layout, page);

	if (blkno >= pl->nblocks)
		pl->nblocks = RelationGetNumberOfBlocks(pl->index);
	if (blkno < pl->nblocks)
		return blkno;
	if (page < pl->code_pages)
		PipeannCorrupted(pl->index, "has no block %u, where codes stand", blkno);
	return InvalidBlockNumber;
}

/*
 * Read a code page, keep it if there is room, and copy it to buffer[PIPEANN_PAYLOAD], as
 * other backends may drop it. If buffer is NULL read it only if it can be kept; returns
 * whether it was. Codes of a page that is kept are stored again. A page that was never written
 * has zeroes. One of another generation makes the cache outdated, and the loader stale: then no
 * node may be rejected.
 */
static bool
ReadCodePage(PipeannPageLoader *pl, uint32 page, char *buffer)
{
	static const char zeros[PIPEANN_PAYLOAD];
	uint32		state = pg_atomic_read_u32(StateOf(pl, page));
	bool		keep = (state & STATE) != STORING && HasChunks(pl, page, true);
	Buffer	   *seen = &pl->attachment->seen[page];
	const char *payload = zeros;
	BlockNumber blkno;
	bool		kept;

	if (!keep && buffer == NULL)
		return false;
	pg_memory_barrier();
	blkno = BlockOf(pl, page);
	if (blkno != InvalidBlockNumber)
	{
		Page		content;

		/*
		 * In the buffer in which it was found sound it is not verified again. Pages to be kept
		 * are read with a strategy, so as not to evict others.
		 */
		if (PipeannPinRecent(pl->index, blkno, *seen))
			LockBuffer(*seen, BUFFER_LOCK_SHARE);
		else
			*seen = PipeannReadBuffer(pl->index, blkno, PIPEANN_CODES, BUFFER_LOCK_SHARE, true,
									  keep ? pl->attachment->strategy : NULL);
		content = BufferGetPage(*seen);
		if (!PageIsNew(content) && PipeannPageIsOf(content, pl->generation))
			payload = PipeannPagePayload(content);
		else if (!PageIsNew(content))
		{
			pl->attachment->outdated = pl->loader.stale = true;
			keep = false;
		}
	}
	kept = keep && (payload != zeros || (state & STATE) == ABSENT) &&
		Keep(pl, page, state, payload);
	if (buffer != NULL)
		memcpy(buffer, payload, PIPEANN_PAYLOAD);
	if (blkno != InvalidBlockNumber)
		UnlockReleaseBuffer(*seen);
	if (kept)
		CountComplete(pl);
	return kept;
}

/* Prefetch a page, unless it is kept or in a buffer. */
static inline void
PrefetchPage(PipeannPageLoader *pl, uint32 page)
{
	BlockNumber blkno = IsKept(pl, page) ? InvalidBlockNumber : BlockOf(pl, page);

	if (blkno != InvalidBlockNumber &&
		!PipeannBufferHas(pl->index, blkno, pl->attachment->seen[page]))
		(void) PrefetchBuffer(pl->index, MAIN_FORKNUM, blkno);
}

/* ---------- the loader of a search ---------- */

/* Make sure that there are buffers for n more pages, by forgetting pages read before if need be. */
static void
ReserveBuffers(PipeannPageLoader *pl, uint32 n)
{
	if (pl->nread + n <= MOST_READ)
		return;
	PipeannIdSetReset(&pl->read, 2 * BLOCK_PAGES, true);
	pl->nread = 0;
}

/* The contents of a page that is not kept, in a buffer; read it if it is in none. */
static const char *
PageRead(PipeannPageLoader *pl, uint32 page)
{
	uint32		number;

	if (!PipeannIdSetGet(&pl->read, page, &number))
	{
		ReserveBuffers(pl, 1);
		number = pl->nread;
		pl->loader.reads++;
		(void) ReadCodePage(pl, page, BufferAt(pl, number));
		PipeannIdSetPut(&pl->read, page, pl->nread++);
	}
	return BufferAt(pl, number);
}

static const uint8 *
LoadCode(PipeannCodeLoader *loader, uint32 id)
{
	PipeannPageLoader *pl = (PipeannPageLoader *) loader;
	const PipeannLayout *l = &pl->layout;
	uint32		page = id / PipeannCodesPerPage(l);

	if (IsKept(pl, page))
		return pl->attachment->chunks[id >> PIPEANN_CHUNK_SHIFT] +
			PipeannCodeOffset(id & (PIPEANN_CHUNK_NODES - 1), l->pq_bytes, l->attr_bytes);
	return (const uint8 *) PageRead(pl, page) +
		(Size) (id - page * PipeannCodesPerPage(l)) * l->pq_bytes;
}

static const uint8 *
LoadAttribute(PipeannCodeLoader *loader, uint32 id, uint32 plane)
{
	PipeannPageLoader *pl = (PipeannPageLoader *) loader;
	const PipeannLayout *l = &pl->layout;
	uint32		page = id / PipeannCodesPerPage(l);

	if (id >> PIPEANN_CODE_BLOCK_SHIFT == pl->block || IsKept(pl, page))
		return pl->attachment->chunks[id >> PIPEANN_CHUNK_SHIFT] +
			PipeannAttributeOffset(id & (PIPEANN_CHUNK_NODES - 1), l->pq_bytes,
								   l->attr_bytes, plane);
	return (const uint8 *) PageRead(pl, page) + PipeannPlaneOffset(l, plane) +
		(id - page * PipeannCodesPerPage(l));
}

/* The pages that are neither kept nor in a buffer are read together. */
static void
GatherCodes(PipeannCodeLoader *loader, const uint32 *ids, int n, const uint8 **codes)
{
	PipeannPageLoader *pl = (PipeannPageLoader *) loader;
	uint32		pages[PIPEANN_MOST_GATHERED];
	uint32		number;
	int			npages = 0;

	CHECK_FOR_INTERRUPTS();
	ReserveBuffers(pl, n);
	for (int i = 0; i < n; i++)
	{
		uint32		page = ids[i] / PipeannCodesPerPage(&pl->layout);

		/* a buffer is assigned before the page is read, so that it is read only once */
		if (IsKept(pl, page) || PipeannIdSetGet(&pl->read, page, &number))
			continue;
		PipeannIdSetPut(&pl->read, page, pl->nread++);
		PrefetchPage(pl, page);
		pages[npages++] = page;
	}
	for (int i = 0; i < npages; i++)
		(void) ReadCodePage(pl, pages[i], BufferAt(pl, pl->nread - npages + i));
	pl->loader.reads += npages;
	/* a page that was kept may have been dropped meanwhile */
	for (int i = 0; i < n; i++)
		codes[i] = LoadCode(loader, ids[i]);
}

/* The range of pages with codes of n nodes from first on, as far as these exist. */
static void
PagesOf(const PipeannPageLoader *pl, uint32 first, uint32 n, uint32 *page, uint32 *end)
{
	uint32		per_page = PipeannCodesPerPage(&pl->layout);
	uint64		last = Min((uint64) first + n, pl->ncodes);

	*page = first / per_page;
	*end = last <= first ? *page : (uint32) ((last - 1) / per_page + 1);
}

static bool
HasBlock(PipeannCodeLoader *loader, uint32 first)
{
	PipeannPageLoader *pl = (PipeannPageLoader *) loader;
	uint32		page;
	uint32		end;

	for (PagesOf(pl, first, PIPEANN_CODE_BLOCK, &page, &end); page < end; page++)
		if (!IsKept(pl, page) && !ReadCodePage(pl, page, NULL))
			return false;
	pl->block = first >> PIPEANN_CODE_BLOCK_SHIFT;
	return true;
}

static void
PrefetchCodes(PipeannCodeLoader *loader, uint32 first, uint32 n)
{
	PipeannPageLoader *pl = (PipeannPageLoader *) loader;
	uint32		page;
	uint32		end;

	for (PagesOf(pl, first, n, &page, &end); page < end; page++)
		PrefetchPage(pl, page);
}

/* Initialise a loader, and forget what it has read. */
static void
InitLoader(PipeannPageLoader *pl, Relation index, PipeannAttachment *attachment,
		   const PipeannMeta *meta)
{
	pl->loader.code = LoadCode;
	pl->loader.attribute = LoadAttribute;
	pl->loader.gather = GatherCodes;
	pl->loader.has_block = HasBlock;
	pl->loader.prefetch = PrefetchCodes;
	if (attachment->seen == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(attachment->context);

		attachment->strategy = GetAccessStrategy(BAS_BULKREAD);
		attachment->seen =
			MemoryContextAllocZero(attachment->context,
								   mul_size(PipeannCodePages(&meta->layout, attachment->header->ids),
											sizeof(Buffer)));
		MemoryContextSwitchTo(old);
	}
	pl->index = index;
	pl->attachment = attachment;
	pl->layout = meta->layout;
	pl->extents = meta->extents;
	pl->generation = PipeannGeneration(meta);
	pl->code_pages = meta->code_pages;
	pl->ncodes = Min(PipeannMetaIds(meta), attachment->header->ids);
	pl->nblocks = RelationGetNumberOfBlocks(index);
	pl->nread = 0;
	pl->block = PIPEANN_INVALID_ID;
	pl->loader.stale = false;
}

/* Load missing pages from `page` on and before `end`, until there is no room. */
static void
Fill(PipeannPageLoader *pl, uint32 page, uint32 end)
{
	uint32		pages = PipeannCodePages(&pl->layout, pl->ncodes);

	for (; page < Min(end, pages); page++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!IsKept(pl, page) && !ReadCodePage(pl, page, NULL) && !HasChunks(pl, page, false))
			return;
		if (page + FILL_PAGES < pages)
			PrefetchPage(pl, page + FILL_PAGES);
	}
}

/* Whether all codes are in memory and mapped. */
static bool
IsComplete(PipeannAttachment *attachment, const PipeannLayout *l, uint32 ncodes)
{
	uint64		complete = pg_atomic_read_u64(&attachment->header->complete);

	if ((uint32) complete < PipeannCodePages(l, ncodes))
		return false;
	pg_read_barrier();
	while (((uint64) attachment->mapped << PIPEANN_CHUNK_SHIFT) < ncodes)
	{
		if (MapChunk(attachment, attachment->mapped) == NULL)
			return false;
		attachment->mapped++;
	}
	return true;
}

/* Give a cache a loader for the codes that are not in memory, if there are any. */
void
PipeannCacheSetLoader(Relation index, PipeannCache *cache, const PipeannMeta *meta)
{
	PipeannAttachment *attachment = cache->attachment;
	PipeannPageLoader *pl = cache->loader;
	uint32		complete;

	cache->codes.loader = NULL;
	if (likely(IsComplete(attachment, &meta->layout, cache->codes.ncodes)))
		return;
	if (pl == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(cache->context);

		pl = palloc0(sizeof(PipeannPageLoader));
		PipeannIdSetReset(&pl->read, 2 * BLOCK_PAGES, true);
		MemoryContextSwitchTo(old);
		pl->callback.func = EndLoader;
		pl->callback.arg = pl;
		MemoryContextRegisterResetCallback(cache->context, &pl->callback);
		cache->loader = pl;
	}
	else
		PipeannIdSetReset(&pl->read, 2 * BLOCK_PAGES, true);
	InitLoader(pl, index, attachment, meta);
	complete = (uint32) pg_atomic_read_u64(&attachment->header->complete);
	Fill(pl, complete, complete + FILL_PAGES);
	if (!IsComplete(attachment, &meta->layout, cache->codes.ncodes))
		cache->codes.loader = &pl->loader;
}

/* Load all codes for which there is room. */
void
PipeannCacheLoadAll(Relation index, PipeannCache *cache, const PipeannMeta *meta)
{
	PipeannPageLoader *pl = cache->loader;

	(void) PipeannCacheReadEntries(index, cache->attachment, meta, true);
	if (cache->codes.loader == NULL)
		return;
	Fill(pl, 0, PG_UINT32_MAX);
	if (IsComplete(cache->attachment, &pl->layout, cache->codes.ncodes))
		cache->codes.loader = NULL;
}

/* ---------- the root ---------- */

/* The ids must be of nodes that the file has by now; this metapage may be older than the graph. */
static void
CheckEntryIds(Relation index, const PipeannMeta *meta, const uint32 *id, uint32 n)
{
	uint64		ids = Max((uint64) RelationGetNumberOfBlocks(index) * meta->layout.slots_per_page,
						  PipeannMetaIds(meta));

	for (uint32 i = 0; i < n; i++)
		if (id[i] >= ids)
			PipeannCorrupted(index, "has an invalid entry graph");
}

/* Read length bytes of the extent in use, from one of its pages on; the cache may become outdated. */
static void
ReadExtent(Relation index, PipeannAttachment *attachment, const PipeannMeta *meta,
		   PipeannKind kind, uint32 page, void *dst, Size length)
{
	if (!PipeannExtentRead(index, PipeannExtentBlock(&meta->extents) + page, kind,
						   PipeannGeneration(meta), dst, length))
		attachment->outdated = true;
}

/*
 * Read ids and codes of the first entries, which are far apart, into a root that has `applied`
 * changes of the entry graph, unless another backend was faster. Scans then reload the rest.
 */
static void
ReadFirstEntries(Relation index, PipeannAttachment *attachment, const PipeannMeta *meta,
				 uint64 applied)
{
	PipeannCacheHeader *header = attachment->header;
	uint32		n = PipeannFirstEntries(meta);
	uint32		page = PipeannEntryPage(&meta->layout);
	Size		codes = PipeannEntryCodesOffset(meta->entry_count);
	Size		skip = codes % PIPEANN_PAYLOAD;
	Size		size = n * meta->layout.pq_bytes;
	uint32	   *ids = palloc(n * sizeof(uint32));
	char	   *buffer = palloc(skip + size);

	ReadExtent(index, attachment, meta, PIPEANN_ENTRY, page, ids, n * sizeof(uint32));
	ReadExtent(index, attachment, meta, PIPEANN_ENTRY, page + codes / PIPEANN_PAYLOAD,
			   buffer, skip + size);
	if (attachment->outdated)
		return;
	CheckEntryIds(index, meta, ids, n);
	if (attachment->entry != NULL)
		LWLockAcquire(&attachment->entry->lock, LW_EXCLUSIVE);
	if (pg_atomic_read_u64(&header->entry_graph_applied) == applied)
	{
		memcpy(PipeannRootAt(header, header->first_ids), ids, n * sizeof(uint32));
		memcpy(PipeannRootAt(header, header->first_codes), buffer + skip, size);
		BeginAgain(&header->entries_read);
		pg_atomic_write_u64(&header->entry_graph_applied, meta->entry_changes);
	}
	if (attachment->entry != NULL)
		LWLockRelease(&attachment->entry->lock);
	pfree(ids);
	pfree(buffer);
}

/* Read the contents of a new root. Codes are loaded when they are needed. */
void
PipeannCacheLoad(Relation index, PipeannAttachment *attachment, const PipeannMeta *meta)
{
	const PipeannLayout *l = &meta->layout;
	PipeannCacheHeader *header = attachment->header;

	ReadExtent(index, attachment, meta, PIPEANN_CODEBOOK, 0,
			   PipeannRootAt(header, header->centroids), PipeannCodebookBytes(l));
	ReadExtent(index, attachment, meta, PIPEANN_CODEBOOK, PipeannHistogramsPage(l),
			   PipeannRootAt(header, header->histograms), PipeannHistogramsBytes(l));
	ReadFirstEntries(index, attachment, meta, 0);
	if (attachment->outdated)
		return;
	/* unless that is too imprecise */
	if (header->halves != 0 &&
		!PipeannPqHalves(&attachment->model.codes.pq, PipeannRootAt(header, header->halves)))
		header->halves = 0;
	PIPEANN_PAUSE("cache-load");
	pg_atomic_write_u64(&header->applied, meta->changes);
}

/* Pages of the entry graph that each scan reads until memory has all of it. */
#define FILL_ENTRY_PAGES 8

/* A backend keeps no larger entry graph (bytes) of its own. */
#define MOST_OWN_ENTRIES (16 * 1024 * 1024)

/*
 * Read some of the entry graph, or all of it, if there is memory for it; other backends may do
 * the same. True if it is complete; then attachment->entry_graph is set.
 */
bool
PipeannCacheReadEntries(Relation index, PipeannAttachment *attachment,
						const PipeannMeta *meta, bool all)
{
	PipeannCacheHeader *header = attachment->header;
	pg_atomic_uint64 *entries_read = &header->entries_read;
	Size		size = PipeannEntryGraphBytes(&meta->layout, meta->entry_count);
	Size		ids = meta->entry_count * sizeof(uint32);
	uint32		pages = PipeannPagesOf(size);
	uint64		read = pg_atomic_read_u64(entries_read);

	pg_read_barrier();
	if (likely((uint32) read >= pages && attachment->entry_graph != NULL))
		return true;
	if (attachment->entry_graph == NULL)
		attachment->entry_graph = MakePart(index, attachment, &header->entry_graph,
										   header->entry_pages, MOST_OWN_ENTRIES);
	if (attachment->entry_graph == NULL)
		return false;
	for (bool more = true; more && (uint32) read < pages; more = all)
	{
		uint32		page = (uint32) read;
		uint32		n = Min(pages - page, all ? pages : FILL_ENTRY_PAGES);
		Size		first = (Size) page * PIPEANN_PAYLOAD;
		Size		end = Min(first + (Size) n * PIPEANN_PAYLOAD, size);

		ReadExtent(index, attachment, meta, PIPEANN_ENTRY, PipeannEntryPage(&meta->layout) + page,
				   attachment->entry_graph + first, end - first);
		if (attachment->outdated)
			return false;
		if (first < ids)
			CheckEntryIds(index, meta, (uint32 *) (attachment->entry_graph + first),
						  (Min(end, ids) - first) / sizeof(uint32));
		if (pg_atomic_compare_exchange_u64(entries_read, &read, read + n))
			read += n;
	}
	return (uint32) read >= pages;
}

/* ---------- changes ---------- */

/* Note a change of a page. A kept page is dropped if give_up; else false: it has to be read again. */
static bool
NoteChange(PipeannPageLoader *pl, uint32 page, bool give_up)
{
	pg_atomic_uint32 *of = StateOf(pl, page);
	uint32		state = pg_atomic_read_u32(of);
	bool		kept;

	do
	{
		kept = (state & STATE) == KEPT;
		if (kept && !give_up)
			return false;
	} while (!pg_atomic_compare_exchange_u32(of, &state, (kept ? state & ~STATE : state) +
											 ONE_CHANGE));
	if (kept)
		pg_atomic_fetch_sub_u64(&pl->attachment->header->kept, 1);
	return true;
}

/* Drop all pages, as it is not known which have changed. */
static void
ForgetPages(PipeannPageLoader *pl)
{
	PipeannCacheHeader *header = pl->attachment->header;
	uint32		pages = PipeannCodePages(&pl->layout, header->ids);

	for (uint32 page = 0; page < pages; page++)
		(void) NoteChange(pl, page, true);
	BeginAgain(&header->complete);
}

/*
 * Read the pages that the metapage names, from a change on, again, after checking their
 * numbers. Other backends may do the same: changes that they have applied are passed over.
 */
static void
ReadChanges(PipeannPageLoader *pl, const PipeannMeta *meta, uint64 from)
{
	PipeannCacheHeader *header = pl->attachment->header;
	uint32		pages = PipeannCodePages(&pl->layout, header->ids);
	uint32		last = PIPEANN_INVALID_ID;

	for (uint64 c = from; c < meta->changes; c = Max(c + 1, pg_atomic_read_u64(&header->applied)))
	{
		uint32		page = meta->change_ring[c % PIPEANN_CHANGE_RING];

		if (page >= pages || page == last)
			continue;
		CHECK_FOR_INTERRUPTS();
		last = page;
		if (NoteChange(pl, page, false))
			continue;
		if (!HasChunks(pl, page, false))
		{
			/* this backend cannot map it */
			ForgetPages(pl);
			return;
		}
		(void) ReadCodePage(pl, page, NULL);
	}
}

/*
 * Follow changes: read changed pages that are kept, and the first entries, again. That needs no
 * lock, as a page's codes are stored under its content lock.
 */
void
PipeannCacheReadNewer(Relation index, PipeannAttachment *attachment, const PipeannMeta *meta)
{
	PipeannCacheHeader *header = attachment->header;
	uint64		applied = pg_atomic_read_u64(&header->applied);
	uint64		entries = pg_atomic_read_u64(&header->entry_graph_applied);
	PipeannPageLoader pl;

	if (likely(applied >= meta->changes && entries >= meta->entry_changes))
		return;
	InitLoader(&pl, index, attachment, meta);
	if (meta->changes > applied + PIPEANN_CHANGE_RING)
		ForgetPages(&pl);
	else
		ReadChanges(&pl, meta, applied);
	/* VACUUM has put live nodes in the places of dead ones */
	for (; entries < meta->entry_changes && !attachment->outdated;
		 entries = pg_atomic_read_u64(&header->entry_graph_applied))
		ReadFirstEntries(index, attachment, meta, entries);
	PIPEANN_PAUSE("cache-follow");
	/* the counter is set last, so that after an error all of it is done again */
	while (applied < meta->changes && !attachment->outdated &&
		   !pg_atomic_compare_exchange_u64(&header->applied, &applied, meta->changes))
		;
}
