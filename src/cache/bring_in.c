/*
 * bring_in.c
 *		Bringing the pages that searches use often into shared_buffers.
 *
 * Searches read past shared_buffers, so the pages that they read are not there
 * the next time. While a search runs its uses of pages are counted; afterwards
 * the most used of the pages that it had to read are brought in by
 * ReadBuffer(), which gives them the newest version. From then on they are
 * hits, and the clock sweep sees that they are used. When the limit,
 * pipeann.hot_pages, is reached, a page comes in only for one that is used
 * clearly less, and takes its buffer, so that other relations lose none.
 */
#include "cache/hot_table.h"
#include "io/io.h"

/* The least used of so many kept pages is replaced. */
#define SAMPLE 8

/* Pages to give up at the end of a search if too many are kept. */
#define GIVE_UP 32

void
PipeannCacheBringInPage(Relation index, const PipeannLayout *layout,
						const PipeannExtentMap *map, PipeannCache *cache,
						uint32 page)
{
	BlockNumber blkno = PipeannGraphBlock(map, layout, page);
	pg_atomic_uint32 *seen = cache == NULL || cache->hot == NULL ? NULL :
		PipeannPageLastSeen(cache->hot, page);

	for (int i = 0; i < layout->node_pages; i++)
	{
		Buffer		buffer = ReadBuffer(index, blkno + i);

		if (i == 0 && seen != NULL && BufferIsValid(buffer) &&
			!BufferIsLocal(buffer))
			pg_atomic_write_u32(seen, (uint32) buffer);
		ReleaseBuffer(buffer);
	}
}

static void
EvictPage(Relation index, BlockNumber blkno, int blocks)
{
	for (int i = 0; i < blocks; i++)
		PipeannEvictResident(index, blkno + i);
}

/*
 * A count errs by about its square root, and each exchange costs a read: so the
 * difference has to be clear.
 */
static bool
IsClearlyMore(uint8 count, uint8 other)
{
	return 2 * count > 3 * other + 4;
}

/*
 * Keep a page instead of one that is no longer resident, or of the least used
 * of a few. Sets *out to the page to be evicted. False if none gives way.
 */
static bool
ReplaceKept(Relation index, const PipeannLayout *layout,
			const PipeannExtentMap *map, PipeannCache *cache, uint32 page,
			uint8 count, uint32 *out)
{
	PipeannPageUses *hot = cache->hot;
	uint32		kept[SAMPLE];
	int			n = PipeannHotNextKept(hot, kept, SAMPLE);
	uint32		least = PIPEANN_INVALID_ID;

	for (int i = 0; i < n; i++)
	{
		BlockNumber blkno = PipeannGraphBlock(map, layout, kept[i]);

		if (blkno != InvalidBlockNumber && !PipeannIsResident(index, blkno))
		{
			least = kept[i];
			break;
		}
		if (least == PIPEANN_INVALID_ID ||
			PipeannPageUseCount(hot, kept[i]) < PipeannPageUseCount(hot,
																	least))
			least = kept[i];
		if (i == n - 1 &&
			!IsClearlyMore(count, PipeannPageUseCount(hot, least)))
			return false;
	}
	*out = least;
	return least != PIPEANN_INVALID_ID &&
		PipeannHotReplace(cache, least, page, layout->node_pages);
}

/*
 * PostgreSQL has replaced a kept page that had to be read: others were used
 * more. Such a page starts anew, with a count of zero.
 */
static void
BringInIfWanted(Relation index, const PipeannLayout *layout,
				const PipeannExtentMap *map, PipeannCache *cache, uint32 page,
				uint8 count)
{
	int			blocks = layout->node_pages;
	uint32		out = PIPEANN_INVALID_ID;

	if (PipeannHotGiveUp(cache, page, blocks))
	{
		PipeannPageResetUseCount(cache->hot, page);
		return;
	}
	if (!PipeannHotKeep(cache, page, blocks) &&
		!ReplaceKept(index, layout, map, cache, page, count, &out))
		return;
	if (out != PIPEANN_INVALID_ID)
	{
		BlockNumber victim = PipeannGraphBlock(map, layout, out);

		if (victim != InvalidBlockNumber)
			EvictPage(index, victim, blocks);
	}
	PipeannCacheBringInPage(index, layout, map, cache, page);
}

static void
GiveUpSome(Relation index, const PipeannLayout *layout,
		   const PipeannExtentMap *map, PipeannCache *cache)
{
	uint32		kept[GIVE_UP];
	int			n = PipeannHotNextKept(cache->hot, kept, GIVE_UP);

	for (int i = 0; i < n; i++)
	{
		BlockNumber blkno = PipeannGraphBlock(map, layout, kept[i]);

		if (PipeannHotGiveUp(cache, kept[i], layout->node_pages) &&
			blkno != InvalidBlockNumber)
			EvictPage(index, blkno, layout->node_pages);
	}
}

void
PipeannCacheCountUses(PipeannCache *cache, PipeannSearchUses *uses)
{
	if (cache == NULL || cache->hot == NULL)
		return;
	uses->table = cache->hot;
	uses->counting = pipeann_hot_pages > 0;
}

void
PipeannCacheBringInWanted(Relation index, const PipeannLayout *layout,
						  const PipeannExtentMap *map, PipeannCache *cache,
						  PipeannSearchUses *uses)
{
	if (uses->table == NULL || cache == NULL || uses->table != cache->hot)
		return;
	PipeannHotAge(cache->hot, uses->count);
	if (PipeannHotHasSurplus(cache))
		GiveUpSome(index, layout, map, cache);
	else
		for (int i = 0; i < uses->nwanted; i++)
			BringInIfWanted(index, layout, map, cache, uses->pages[i],
							uses->counts[i]);
	uses->count = 0;
	uses->nwanted = 0;
}

uint32
PipeannCountHotPages(Relation index, const PipeannLayout *layout,
					 const PipeannCache *cache)
{
	uint32		count = 0;

	if (cache->hot == NULL)
		return 0;
	for (uint32 page = 0; page < cache->hot->npages; page++)
	{
		BlockNumber blkno;

		if (!PipeannHotIsKept(cache->hot, page))
			continue;
		CHECK_FOR_INTERRUPTS();
		blkno = PipeannGraphBlock(&cache->map, layout, page);
		if (blkno != InvalidBlockNumber && PipeannIsResident(index, blkno))
			count++;
	}
	return count;
}
