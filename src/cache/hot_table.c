/*
 * hot_table.c
 *		The hot table's bookkeeping: which pages are kept, and how many.
 *
 * A bit says that a page is kept. A backend that sets or clears the bit does so
 * by an atomic operation and then changes the sums of blocks kept by the cache
 * and by the server, so that bits and sums agree soon and no lock is needed.
 *
 * An index at rest keeps its pages only while no other index wants the room.
 * Then the index is struck off: its sum becomes zero, its epoch is advanced,
 * and PostgreSQL replaces its pages like any others. When the limit is
 * reached, each index in use may have an equal share: for some time after an
 * index with less was refused, those with more give pages up.
 */
#include "cache/hot_table.h"

#include "cache/registry.h"
#include "utils/guc.h"

/* A page's count is halved once in so many uses per page. */
#define USES_PER_HALVING 2

/* An index may grow by this factor and still have all its pages counted. */
#define GROWTH 2
#define FEWEST_PAGES 1024

/* An index that was not used for so long (ms) is at rest. */
#define REST_MS 60000

/* Words of the kept bits to look at in one call. */
#define LOOK_WORDS 256

int			pipeann_hot_pages = 25;

static inline pg_atomic_uint32 *
KeptWord(const PipeannPageUses *hot, uint32 page)
{
	return (pg_atomic_uint32 *) ((char *) hot + hot->kept) + page / 32;
}

static inline uint32
KeptBit(uint32 page)
{
	return (uint32) 1 << (page % 32);
}

static uint32
CountedPages(const PipeannMeta *meta)
{
	return Max(Min((uint64) meta->graph_pages * GROWTH, PG_UINT32_MAX - 31),
			   FEWEST_PAGES);
}

static uint32
KeptWords(uint32 npages)
{
	return (npages + 31) / 32;
}

static Size
KeptOffset(uint32 npages)
{
	return MAXALIGN(add_size(offsetof(PipeannPageUses, counts), npages));
}

static Size
SeenOffset(uint32 npages)
{
	return add_size(KeptOffset(npages),
					mul_size(KeptWords(npages), sizeof(pg_atomic_uint32)));
}

Size
PipeannHotSize(const PipeannMeta *meta)
{
	uint32		npages = CountedPages(meta);

	return add_size(SeenOffset(npages),
					mul_size(npages, sizeof(pg_atomic_uint32)));
}

/* A new cache has no kept pages, and epoch 0. */
void
PipeannHotInitTable(PipeannPageUses *hot, const PipeannMeta *meta)
{
	uint32		npages = CountedPages(meta);

	hot->npages = npages;
	hot->kept = KeptOffset(npages);
	hot->seen = SeenOffset(npages);
	pg_atomic_init_u32(&hot->epoch, 0);
	pg_atomic_init_u32(&hot->hand, 0);
	pg_atomic_init_u64(&hot->uses, 0);
	memset(hot->counts, 0, npages);
	for (uint32 i = 0; i < KeptWords(npages); i++)
		pg_atomic_init_u32(KeptWord(hot, i * 32), 0);
	for (uint32 i = 0; i < npages; i++)
		pg_atomic_init_u32(PipeannPageLastSeen(hot, i), 0);
}

void
PipeannHotAge(PipeannPageUses *hot, uint32 uses)
{
	uint64		before = pg_atomic_fetch_add_u64(&hot->uses, uses);
	uint64		last = (before + uses) / USES_PER_HALVING;

	for (uint64 i = before / USES_PER_HALVING; i < last; i++)
		hot->counts[i % hot->npages] /= 2;
}

bool
PipeannHotIsKept(const PipeannPageUses *hot, uint32 page)
{
	return page < hot->npages &&
		(pg_atomic_read_u32(KeptWord(hot, page)) & KeptBit(page)) != 0;
}

int
PipeannHotNextKept(PipeannPageUses *hot, uint32 *pages, int most)
{
	uint32		nwords = KeptWords(hot->npages);
	int			n = 0;

	for (uint32 looked = 0; n < most && looked < Min(nwords, LOOK_WORDS);
		 looked++)
	{
		uint32		at = pg_atomic_fetch_add_u32(&hot->hand, 1) % nwords;
		uint32		word = pg_atomic_read_u32(KeptWord(hot, at * 32));

		for (uint32 bit = 0; word != 0 && n < most; bit++, word >>= 1)
			if (word & 1)
				pages[n++] = at * 32 + bit;
	}
	return n;
}

static uint64
LimitInBlocks(void)
{
	return (uint64) NBuffers * pipeann_hot_pages / 100;
}

static PipeannCacheEntry *
EntryOf(const PipeannCache *cache)
{
	return ((PipeannHandle *) cache->impl)->attachment->entry;
}

/*
 * Subtract blocks, but not below zero, as the index may have been struck off
 * meanwhile. Returns how much was subtracted.
 */
static uint32
Subtract(pg_atomic_uint32 *sum, uint32 blocks)
{
	uint32		old = pg_atomic_read_u32(sum);

	while (!pg_atomic_compare_exchange_u32(sum, &old,
										   old - Min(old, blocks)))
		;
	return Min(old, blocks);
}

/* Take room under the limit. False if there is none. */
static bool
TakeRoom(PipeannControl *control, uint32 blocks)
{
	uint32		old = pg_atomic_read_u32(&control->hot_blocks);

	do
	{
		if ((uint64) old + blocks > LimitInBlocks())
			return false;
	} while (!pg_atomic_compare_exchange_u32(&control->hot_blocks, &old,
											 old + blocks));
	return true;
}

/* Under control->lock, so that the entry stays this cache's. */
static void
StrikeOff(PipeannControl *control, PipeannCacheEntry *entry)
{
	uint32		blocks;

	pg_atomic_fetch_add_u32(&entry->hot_epoch, 1);
	blocks = pg_atomic_exchange_u32(&entry->hot_blocks, 0);
	(void) Subtract(&control->hot_blocks, blocks);
}

void
PipeannHotForget(PipeannControl *control, PipeannCacheEntry *entry)
{
	StrikeOff(control, entry);
	pg_atomic_write_u32(&entry->hot_epoch, 0);
}

/*
 * Without room: strike off indexes at rest, or else ask for this one's share.
 */
static void
AskForRoom(PipeannControl *control, PipeannCacheEntry *own, uint32 blocks)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		struck = false;
	uint32		in_use = 0;

	LWLockAcquire(&control->lock, LW_SHARED);
	for (int i = 0; i < PIPEANN_MAX_CACHE_ENTRIES; i++)
	{
		PipeannCacheEntry *entry = &control->entries[i];

		if (entry->state != PIPEANN_CACHE_ENTRY_READY)
			continue;
		if (entry != own &&
			TimestampDifferenceExceeds((TimestampTz)
									   pg_atomic_read_u64(&entry->last_used),
									   now, REST_MS))
		{
			if (pg_atomic_read_u32(&entry->hot_blocks) > 0)
			{
				StrikeOff(control, entry);
				struck = true;
			}
		}
		else
			in_use++;
	}
	LWLockRelease(&control->lock);
	pg_atomic_write_u32(&control->hot_share, LimitInBlocks() / Max(in_use, 1));
	if (!struck && pg_atomic_read_u32(&own->hot_blocks) + blocks <=
		pg_atomic_read_u32(&control->hot_share))
		pg_atomic_write_u64(&control->hot_asked, (uint64) now);
}

/*
 * An index that was struck off starts anew. The first backend to notice clears
 * the bits. A bit that another one sets at that moment is lost, and PostgreSQL
 * replaces its page like any other.
 */
static void
ClearIfStruckOff(PipeannPageUses *hot, PipeannCacheEntry *entry)
{
	uint32		epoch = pg_atomic_read_u32(&entry->hot_epoch);
	uint32		old = pg_atomic_read_u32(&hot->epoch);

	if (likely(old == epoch) ||
		!pg_atomic_compare_exchange_u32(&hot->epoch, &old, epoch))
		return;
	for (uint32 i = 0; i < KeptWords(hot->npages); i++)
		pg_atomic_write_u32(KeptWord(hot, i * 32), 0);
}

static bool
SetKept(PipeannPageUses *hot, uint32 page)
{
	return (pg_atomic_fetch_or_u32(KeptWord(hot, page), KeptBit(page)) &
			KeptBit(page)) == 0;
}

static bool
ClearKept(PipeannPageUses *hot, uint32 page)
{
	return page < hot->npages &&
		(pg_atomic_fetch_and_u32(KeptWord(hot, page), ~KeptBit(page)) &
		 KeptBit(page)) != 0;
}

static void
ReturnRoom(PipeannControl *control, PipeannCacheEntry *entry, int blocks)
{
	(void) Subtract(&control->hot_blocks,
					Subtract(&entry->hot_blocks, blocks));
}

/*
 * Whether so many blocks are more than an index's share while another index,
 * which was refused lately, has less.
 */
static bool
IsOverShare(PipeannControl *control, uint32 blocks)
{
	TimestampTz asked = (TimestampTz) pg_atomic_read_u64(&control->hot_asked);

	return asked != 0 && blocks > pg_atomic_read_u32(&control->hot_share) &&
		!TimestampDifferenceExceeds(asked, GetCurrentTimestamp(), REST_MS);
}

bool
PipeannHotKeep(PipeannCache *cache, uint32 page, int blocks)
{
	PipeannControl *control = PipeannControlAttached();
	PipeannCacheEntry *entry = EntryOf(cache);

	if (page >= cache->hot->npages || pipeann_hot_pages == 0)
		return false;
	ClearIfStruckOff(cache->hot, entry);
	if (IsOverShare(control, pg_atomic_read_u32(&entry->hot_blocks) + blocks))
		return false;
	if (!TakeRoom(control, blocks))
	{
		AskForRoom(control, entry, blocks);
		return false;
	}
	pg_atomic_fetch_add_u32(&entry->hot_blocks, blocks);
	if (!SetKept(cache->hot, page))
		ReturnRoom(control, entry, blocks);
	return true;
}

bool
PipeannHotReplace(PipeannCache *cache, uint32 out, uint32 in, int blocks)
{
	if (!ClearKept(cache->hot, out))
		return false;
	if (in >= cache->hot->npages || !SetKept(cache->hot, in))
		ReturnRoom(PipeannControlAttached(), EntryOf(cache), blocks);
	return true;
}

bool
PipeannHotGiveUp(PipeannCache *cache, uint32 page, int blocks)
{
	if (!ClearKept(cache->hot, page))
		return false;
	ReturnRoom(PipeannControlAttached(), EntryOf(cache), blocks);
	return true;
}

bool
PipeannHotHasSurplus(PipeannCache *cache)
{
	PipeannControl *control = PipeannControlAttached();
	PipeannCacheEntry *entry = EntryOf(cache);
	uint32		own = pg_atomic_read_u32(&entry->hot_blocks);

	if (own == 0)
		return false;
	if (pg_atomic_read_u32(&control->hot_blocks) > LimitInBlocks())
		return true;
	return IsOverShare(control, own);
}
