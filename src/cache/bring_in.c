/*
 * bring_in.c
 *		Pages that searches want often come to stay in shared_buffers.
 *
 * Searches read past shared_buffers, so what they read is not there the next
 * time. While a search runs its uses of pages are counted; when it is over, the
 * most wanted of the pages that it had to read are brought in by ReadBuffer, so
 * that they are as new as any page there. From then on they are hits, and the
 * clock sweep sees that they are used. When the room that pipeann.hot_pages
 * leaves is taken, a page comes in only for one that is wanted clearly less,
 * and takes its buffer: it costs nobody else one.
 */
#include "cache/hot_table.h"
#include "io/io.h"

/* Of so many pages that are kept the least wanted makes room. */
#define SAMPLE 8

/* Pages given up at the end of a search when too many are kept. */
#define GIVE_UP 32

void
PipeannCacheBringInPage(Relation index, const PipeannLayout *layout,
						const PipeannExtentMap *map, PipeannCache *cache,
						uint32 page)
{
	BlockNumber blkno = PipeannGraphBlock(map, layout, page);
	pg_atomic_uint32 *seen = cache == NULL || cache->hot == NULL ? NULL :
		PipeannPageSeen(cache->hot, page);

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
 * Counts have errors of their own size's root, and each exchange is a read.
 */
static bool
IsClearlyMore(uint8 count, uint8 other)
{
	return 2 * count > 3 * other + 4;
}

/*
 * Keep a page in the place of one that is no longer resident, or of the least
 * wanted of a few. Sets *out to the one to be evicted.
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
			PipeannPageGetCount(hot, kept[i]) < PipeannPageGetCount(hot,
																	least))
			least = kept[i];
		if (i == n - 1 &&
			!IsClearlyMore(count, PipeannPageGetCount(hot, least)))
			return false;
	}
	*out = least;
	return least != PIPEANN_INVALID_ID &&
		PipeannHotReplace(cache, least, page, layout->node_pages);
}

/*
 * A page that is kept but had to be read was replaced by PostgreSQL: there are
 * others that are wanted more. It begins anew.
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
		PipeannPageResetCount(cache->hot, page);
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
