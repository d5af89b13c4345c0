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
#include "hints/hot_table.h"

#include "miscadmin.h"
#include "storage/bufmgr.h"

/* The least used of so many kept pages is replaced. */
#define SAMPLE 8

/* Pages to give up at the end of a search if too many are kept. */
#define GIVE_UP 32

void
PipeannHotBringInPage(Relation index, const PipeannLayout *layout,
					  const PipeannExtentMap *map, const PipeannHot *hot,
					  uint32 page)
{
	BlockNumber blkno = PipeannGraphBlock(map, layout, page);
	pg_atomic_uint32 *seen = hot == NULL || hot->table == NULL ? NULL :
		PipeannPageLastSeen(hot->table, page);

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
			const PipeannExtentMap *map, const PipeannHot *hot, uint32 page,
			uint8 count, uint32 *out)
{
	PipeannPageUses *table = hot->table;
	uint32		kept[SAMPLE];
	int			n = PipeannHotNextKept(table, kept, SAMPLE);
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
			PipeannPageUseCount(table, kept[i]) <
			PipeannPageUseCount(table, least))
			least = kept[i];
		if (i == n - 1 &&
			!IsClearlyMore(count, PipeannPageUseCount(table, least)))
			return false;
	}
	*out = least;
	return least != PIPEANN_INVALID_ID &&
		PipeannHotReplace(hot, least, page, layout->node_pages);
}

/*
 * PostgreSQL has replaced a kept page that had to be read: others were used
 * more. Such a page starts anew, with a count of zero.
 */
static void
BringInIfWanted(Relation index, const PipeannLayout *layout,
				const PipeannExtentMap *map, const PipeannHot *hot, uint32 page,
				uint8 count)
{
	int			blocks = layout->node_pages;
	uint32		out = PIPEANN_INVALID_ID;

	if (PipeannHotGiveUp(hot, page, blocks))
	{
		PipeannPageResetUseCount(hot->table, page);
		return;
	}
	if (!PipeannHotKeep(hot, page, blocks) &&
		!ReplaceKept(index, layout, map, hot, page, count, &out))
		return;
	if (out != PIPEANN_INVALID_ID)
	{
		BlockNumber victim = PipeannGraphBlock(map, layout, out);

		if (victim != InvalidBlockNumber)
			EvictPage(index, victim, blocks);
	}
	PipeannHotBringInPage(index, layout, map, hot, page);
}

static void
GiveUpSome(Relation index, const PipeannLayout *layout,
		   const PipeannExtentMap *map, const PipeannHot *hot)
{
	uint32		kept[GIVE_UP];
	int			n = PipeannHotNextKept(hot->table, kept, GIVE_UP);

	for (int i = 0; i < n; i++)
	{
		BlockNumber blkno = PipeannGraphBlock(map, layout, kept[i]);

		if (PipeannHotGiveUp(hot, kept[i], layout->node_pages) &&
			blkno != InvalidBlockNumber)
			EvictPage(index, blkno, layout->node_pages);
	}
}

void
PipeannHotCountUses(const PipeannHot *hot, PipeannSearchUses *uses)
{
	if (hot->table == NULL)
		return;
	uses->table = hot->table;
	uses->counting = pipeann_hot_pages > 0;
}

void
PipeannHotBringInWanted(Relation index, const PipeannLayout *layout,
						const PipeannExtentMap *map, const PipeannHot *hot,
						PipeannSearchUses *uses)
{
	if (uses->table == NULL || uses->table != hot->table)
		return;
	PipeannHotAge(hot, uses->count);
	if (PipeannHotHasSurplus(hot))
		GiveUpSome(index, layout, map, hot);
	else
		for (int i = 0; i < uses->nwanted; i++)
			BringInIfWanted(index, layout, map, hot, uses->pages[i],
							uses->counts[i]);
	uses->count = 0;
	uses->nwanted = 0;
}

uint32
PipeannHotCountPages(Relation index, const PipeannLayout *layout,
					 const PipeannExtentMap *map, const PipeannHot *hot)
{
	uint32		count = 0;

	for (uint32 page = 0; hot->table != NULL && page < hot->table->npages;
		 page++)
	{
		BlockNumber blkno;

		if (!PipeannHotIsKept(hot->table, page))
			continue;
		CHECK_FOR_INTERRUPTS();
		blkno = PipeannGraphBlock(map, layout, page);
		if (blkno != InvalidBlockNumber && PipeannIsResident(index, blkno))
			count++;
	}
	return count;
}
