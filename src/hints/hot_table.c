/*
 * hot_table.c
 *		The hot table's bookkeeping: which pages are kept, and how many.
 *
 * A bit says that a page is kept. A backend that sets or clears the bit does so
 * by an atomic operation and then changes the sums of blocks kept of the table
 * and in the server, so that bits and sums agree soon and no lock is needed.
 *
 * An index at rest keeps its pages only while no other index wants the room.
 * Then its table is struck off: its sum becomes zero, its epoch is advanced,
 * and PostgreSQL replaces its pages like any others. When the limit is
 * reached, each index in use may have an equal share: for some time after an
 * index with less was refused, those with more give pages up.
 */
#include "hints/hot_table.h"

#include "access/xact.h"
#include "miscadmin.h"

/* A page's count is halved once in so many uses per page. */
#define USES_PER_HALVING 2

/* An index may grow by this factor and still have all its pages counted. */
#define GROWTH 2
#define FEWEST_PAGES 1024

/* An index that was not searched for so long (ms) is at rest. */
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

void
PipeannHotInitTable(PipeannPageUses *table, const PipeannMeta *meta)
{
	uint32		npages = CountedPages(meta);

	table->npages = npages;
	table->kept = KeptOffset(npages);
	table->seen = SeenOffset(npages);
	pg_atomic_init_u32(&table->epoch, 0);
	pg_atomic_init_u32(&table->hand, 0);
	pg_atomic_init_u64(&table->uses, 0);
	memset(table->counts, 0, npages);
	for (uint32 i = 0; i < KeptWords(npages); i++)
		pg_atomic_init_u32(KeptWord(table, i * 32), 0);
	for (uint32 i = 0; i < npages; i++)
		pg_atomic_init_u32(PipeannPageLastSeen(table, i), 0);
}

void
PipeannHotAge(const PipeannHot *hot, uint32 uses)
{
	uint64		before = pg_atomic_fetch_add_u64(&hot->table->uses, uses);
	uint64		last = (before + uses) / USES_PER_HALVING;
	uint64		now = (uint64) GetCurrentStatementStartTimestamp();

	for (uint64 i = before / USES_PER_HALVING; i < last; i++)
		hot->table->counts[i % hot->table->npages] /= 2;
	if (pg_atomic_read_u64(&hot->own->last_search) != now)
		pg_atomic_write_u64(&hot->own->last_search, now);
}

bool
PipeannHotIsKept(const PipeannPageUses *table, uint32 page)
{
	return page < table->npages &&
		(pg_atomic_read_u32(KeptWord(table, page)) & KeptBit(page)) != 0;
}

int
PipeannHotNextKept(PipeannPageUses *table, uint32 *pages, int most)
{
	uint32		nwords = KeptWords(table->npages);
	int			n = 0;

	for (uint32 looked = 0; n < most && looked < Min(nwords, LOOK_WORDS);
		 looked++)
	{
		uint32		at = pg_atomic_fetch_add_u32(&table->hand, 1) % nwords;
		uint32		word = pg_atomic_read_u32(KeptWord(table, at * 32));

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
TakeRoom(PipeannHotSums *sums, uint32 blocks)
{
	uint32		old = pg_atomic_read_u32(&sums->blocks);

	do
	{
		if ((uint64) old + blocks > LimitInBlocks())
			return false;
	} while (!pg_atomic_compare_exchange_u32(&sums->blocks, &old,
											 old + blocks));
	return true;
}

/*
 * The table may be gone, and another one have its number, when this is done: then
 * that one starts anew.
 */
static void
StrikeOff(PipeannHotSums *sums, PipeannHotShare *of)
{
	uint32		blocks;

	pg_atomic_fetch_add_u32(&of->epoch, 1);
	blocks = pg_atomic_exchange_u32(&of->blocks, 0);
	(void) Subtract(&sums->blocks, blocks);
}

void
PipeannHotForget(PipeannHotSums *sums, int number)
{
	PipeannHotShare *of = &sums->of[number];

	StrikeOff(sums, of);
	pg_atomic_write_u32(&of->epoch, 0);
	pg_atomic_write_u64(&of->last_search, 0);
}

void
PipeannHotInitSums(PipeannHotSums *sums)
{
	pg_atomic_init_u32(&sums->blocks, 0);
	pg_atomic_init_u32(&sums->share, 0);
	pg_atomic_init_u64(&sums->asked, 0);
	for (int i = 0; i < PIPEANN_MAX_HOT_TABLES; i++)
	{
		pg_atomic_init_u32(&sums->of[i].blocks, 0);
		pg_atomic_init_u32(&sums->of[i].epoch, 0);
		pg_atomic_init_u64(&sums->of[i].last_search, 0);
	}
}

static bool
IsAtRest(PipeannHotShare *of, TimestampTz now)
{
	return TimestampDifferenceExceeds((TimestampTz)
									  pg_atomic_read_u64(&of->last_search),
									  now, REST_MS);
}

/*
 * Without room: strike off tables at rest, or else ask for this one's share.
 */
static void
AskForRoom(const PipeannHot *hot, uint32 blocks)
{
	PipeannHotSums *sums = hot->sums;
	TimestampTz now = GetCurrentTimestamp();
	bool		struck = false;
	uint32		in_use = 0;

	for (int i = 0; i < PIPEANN_MAX_HOT_TABLES; i++)
	{
		PipeannHotShare *of = &sums->of[i];

		if (of == hot->own || !IsAtRest(of, now))
			in_use++;
		else if (pg_atomic_read_u32(&of->blocks) > 0)
		{
			StrikeOff(sums, of);
			struck = true;
		}
	}
	pg_atomic_write_u32(&sums->share, LimitInBlocks() / in_use);
	if (!struck && pg_atomic_read_u32(&hot->own->blocks) + blocks <=
		pg_atomic_read_u32(&sums->share))
		pg_atomic_write_u64(&sums->asked, (uint64) now);
}

/*
 * An index that was struck off starts anew. The first backend to notice clears
 * the bits. A bit that another one sets at that moment is lost, and PostgreSQL
 * replaces its page like any other.
 */
static void
ClearIfStruckOff(const PipeannHot *hot)
{
	PipeannPageUses *table = hot->table;
	uint32		epoch = pg_atomic_read_u32(&hot->own->epoch);
	uint32		old = pg_atomic_read_u32(&table->epoch);

	if (likely(old == epoch) ||
		!pg_atomic_compare_exchange_u32(&table->epoch, &old, epoch))
		return;
	for (uint32 i = 0; i < KeptWords(table->npages); i++)
		pg_atomic_write_u32(KeptWord(table, i * 32), 0);
}

static bool
SetKept(PipeannPageUses *table, uint32 page)
{
	return (pg_atomic_fetch_or_u32(KeptWord(table, page), KeptBit(page)) &
			KeptBit(page)) == 0;
}

static bool
ClearKept(PipeannPageUses *table, uint32 page)
{
	return page < table->npages &&
		(pg_atomic_fetch_and_u32(KeptWord(table, page), ~KeptBit(page)) &
		 KeptBit(page)) != 0;
}

static void
ReturnRoom(const PipeannHot *hot, int blocks)
{
	(void) Subtract(&hot->sums->blocks,
					Subtract(&hot->own->blocks, blocks));
}

/*
 * Whether so many blocks are more than an index's share while another index,
 * which was refused lately, has less.
 */
static bool
IsOverShare(PipeannHotSums *sums, uint32 blocks)
{
	TimestampTz asked = (TimestampTz) pg_atomic_read_u64(&sums->asked);

	return asked != 0 && blocks > pg_atomic_read_u32(&sums->share) &&
		!TimestampDifferenceExceeds(asked, GetCurrentTimestamp(), REST_MS);
}

bool
PipeannHotKeep(const PipeannHot *hot, uint32 page, int blocks)
{
	PipeannHotShare *own = hot->own;

	if (page >= hot->table->npages || pipeann_hot_pages == 0)
		return false;
	ClearIfStruckOff(hot);
	if (IsOverShare(hot->sums, pg_atomic_read_u32(&own->blocks) + blocks))
		return false;
	if (!TakeRoom(hot->sums, blocks))
	{
		AskForRoom(hot, blocks);
		return false;
	}
	pg_atomic_fetch_add_u32(&own->blocks, blocks);
	if (!SetKept(hot->table, page))
		ReturnRoom(hot, blocks);
	return true;
}

bool
PipeannHotReplace(const PipeannHot *hot, uint32 out, uint32 in, int blocks)
{
	if (!ClearKept(hot->table, out))
		return false;
	if (in >= hot->table->npages || !SetKept(hot->table, in))
		ReturnRoom(hot, blocks);
	return true;
}

bool
PipeannHotGiveUp(const PipeannHot *hot, uint32 page, int blocks)
{
	if (!ClearKept(hot->table, page))
		return false;
	ReturnRoom(hot, blocks);
	return true;
}

bool
PipeannHotHasSurplus(const PipeannHot *hot)
{
	uint32		own = pg_atomic_read_u32(&hot->own->blocks);

	if (own == 0)
		return false;
	return pg_atomic_read_u32(&hot->sums->blocks) > LimitInBlocks() ||
		IsOverShare(hot->sums, own);
}
