/*
 * hints.c
 *		Hot pages, which are brought into shared_buffers as searches use them often;
 *		and counters of indexes.
 */
#include "hints/hints.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/*
 * Hot pages.
 *
 * Searches read past shared_buffers, so the pages that they read are not there
 * the next time. So the most used of them are brought in (src/README). A page that
 * comes in for another one takes its buffer, so that other relations lose none.
 */

/* A page's count is halved once in so many uses per page. */
#define USES_PER_HALVING 2

/* An index may grow by this factor and still have all its pages counted. */
#define GROWTH 2
#define FEWEST_PAGES 1024

/* An index that was not searched for so long (ms) is at rest. */
#define REST_MS 60000

/* Words of the kept bits to look at in one call. */
#define LOOK_WORDS 256

/* The least used of so many kept pages is replaced. */
#define SAMPLE 8

/* Pages to give up at the end of a search if too many are kept. */
#define GIVE_UP 32

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
KeptWords(uint32 npages)
{
	return (npages + 31) / 32;
}

/* Set what stands where in a hot table; returns its size. */
static Size
LayOutHot(PipeannPageUses *table, const PipeannMeta *meta)
{
	uint32		npages = Max(Min((uint64) meta->graph_pages * GROWTH,
								 PG_UINT32_MAX - 31), FEWEST_PAGES);

	table->npages = npages;
	table->kept = MAXALIGN(add_size(offsetof(PipeannPageUses, counts), npages));
	table->seen = add_size(table->kept,
						   mul_size(KeptWords(npages), sizeof(pg_atomic_uint32)));
	return add_size(table->seen, mul_size(npages, sizeof(pg_atomic_uint32)));
}

/* A new one: no page is kept. */
void
PipeannHintsInit(PipeannPageUses *table, const PipeannMeta *meta)
{
	(void) LayOutHot(table, meta);
	pg_atomic_init_u32(&table->epoch, 0);
	pg_atomic_init_u32(&table->hand, 0);
	pg_atomic_init_u64(&table->uses, 0);
	memset(table->counts, 0, table->npages);
	for (uint32 i = 0; i < KeptWords(table->npages); i++)
		pg_atomic_init_u32(KeptWord(table, i * 32), 0);
	for (uint32 i = 0; i < table->npages; i++)
		pg_atomic_init_u32(PipeannPageLastSeen(table, i), 0);
}

/* Note a search: age the counts by its uses. */
static void
NoteSearch(const PipeannHot *hot, uint32 uses)
{
	uint64		before = pg_atomic_fetch_add_u64(&hot->table->uses, uses);
	uint64		last = (before + uses) / USES_PER_HALVING;
	uint64		now = (uint64) GetCurrentStatementStartTimestamp();

	for (uint64 i = before / USES_PER_HALVING; i < last; i++)
		hot->table->counts[i % hot->table->npages] /= 2;
	if (pg_atomic_read_u64(&hot->own->last_search) != now)
		pg_atomic_write_u64(&hot->own->last_search, now);
}

/*
 * Fill pages[most] with the next kept pages, from where the last call of any
 * backend stopped; returns how many. Looks at a bounded part of the table.
 */
static int
NextKept(PipeannPageUses *table, uint32 *pages, int most)
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
		if ((uint64) old + blocks > PipeannHotLimit())
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
	pg_atomic_fetch_add_u32(&of->epoch, 1);
	(void) Subtract(&sums->blocks, pg_atomic_exchange_u32(&of->blocks, 0));
}

/* The table of this number goes. */
void
PipeannHotForget(PipeannHotSums *sums, int number)
{
	PipeannHotShare *of = &sums->of[number];

	StrikeOff(sums, of);
	pg_atomic_write_u32(&of->epoch, 0);
	pg_atomic_write_u64(&of->last_search, 0);
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

	for (uint32 i = 0; i < sums->n; i++)
	{
		PipeannHotShare *of = &sums->of[i];
		TimestampTz last = (TimestampTz) pg_atomic_read_u64(&of->last_search);

		if (of == hot->own || !TimestampDifferenceExceeds(last, now, REST_MS))
			in_use++;
		else if (pg_atomic_read_u32(&of->blocks) > 0)
		{
			StrikeOff(sums, of);
			struck = true;
		}
	}
	pg_atomic_write_u32(&sums->share, PipeannHotLimit() / in_use);
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
	return (pg_atomic_fetch_and_u32(KeptWord(table, page), ~KeptBit(page)) &
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

/* Keep a page of so many blocks. False if the limit leaves no room. */
static bool
Keep(const PipeannHot *hot, uint32 page, int blocks)
{
	PipeannHotShare *own = hot->own;

	if (pipeann_hot_pages == 0)
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

/* Stop keeping a page. False if it was not kept. */
static bool
GiveUp(const PipeannHot *hot, uint32 page, int blocks)
{
	if (!ClearKept(hot->table, page))
		return false;
	ReturnRoom(hot, blocks);
	return true;
}

/*
 * Whether pages have to be given up: more are kept than the limit allows, or an
 * index with less than its share was refused room lately.
 */
static bool
HasSurplus(const PipeannHot *hot)
{
	uint32		own = pg_atomic_read_u32(&hot->own->blocks);

	if (own == 0)
		return false;
	return pg_atomic_read_u32(&hot->sums->blocks) > PipeannHotLimit() ||
		IsOverShare(hot->sums, own);
}

/* ---------- bringing in ---------- */

/* Read a graph page into shared_buffers, if it has been written. hot may be NULL. */
void
PipeannHotBringInPage(Relation index, const PipeannLayout *layout,
					  const PipeannPlaces *places, const PipeannHot *hot,
					  uint32 page)
{
	BlockNumber blkno = PipeannGraphBlock(places, layout, page);
	pg_atomic_uint32 *seen = hot == NULL || hot->table == NULL ? NULL :
		PipeannPageLastSeen(hot->table, page);

	if (RelationGetNumberOfBlocks(index) < blkno + layout->node_pages)
		return;
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
EvictPage(Relation index, const PipeannLayout *layout,
		  const PipeannPlaces *places, uint32 page)
{
	BlockNumber blkno = PipeannGraphBlock(places, layout, page);

	for (int i = 0; i < layout->node_pages; i++)
		PipeannEvictResident(index, blkno + i);
}

/*
 * Keep a page instead of one that is no longer resident, or of the least used
 * of a few. Sets *out to the page to be evicted. False if none gives way: a count errs
 * by about its square root, and each exchange costs a read, so the difference has to be
 * clear.
 */
static bool
ReplaceKept(Relation index, const PipeannLayout *layout,
			const PipeannPlaces *places, const PipeannHot *hot, uint32 page,
			uint8 count, uint32 *out)
{
	PipeannPageUses *table = hot->table;
	uint32		kept[SAMPLE];
	int			n = NextKept(table, kept, SAMPLE);
	uint32		least = PIPEANN_INVALID_ID;

	for (int i = 0; i < n; i++)
	{
		BlockNumber blkno = PipeannGraphBlock(places, layout, kept[i]);

		if (!PipeannIsResident(index, blkno))
		{
			least = kept[i];
			break;
		}
		if (least == PIPEANN_INVALID_ID ||
			PipeannPageUseCount(table, kept[i]) <
			PipeannPageUseCount(table, least))
			least = kept[i];
		if (i == n - 1 &&
			2 * count <= 3 * PipeannPageUseCount(table, least) + 4)
			return false;
	}
	if (least == PIPEANN_INVALID_ID || !ClearKept(table, least))
		return false;
	if (!SetKept(table, page))
		ReturnRoom(hot, layout->node_pages);
	*out = least;
	return true;
}

/*
 * PostgreSQL has replaced a kept page that had to be read: others were used
 * more. Such a page starts anew, with a count of zero.
 */
static void
BringInIfWanted(Relation index, const PipeannLayout *layout,
				const PipeannPlaces *places, const PipeannHot *hot, uint32 page,
				uint8 count)
{
	int			blocks = layout->node_pages;
	uint32		out = PIPEANN_INVALID_ID;

	if (GiveUp(hot, page, blocks))
	{
		PipeannPageResetUseCount(hot->table, page);
		return;
	}
	if (!Keep(hot, page, blocks) &&
		!ReplaceKept(index, layout, places, hot, page, count, &out))
		return;
	if (out != PIPEANN_INVALID_ID)
		EvictPage(index, layout, places, out);
	PipeannHotBringInPage(index, layout, places, hot, page);
}

static void
GiveUpSome(Relation index, const PipeannLayout *layout,
		   const PipeannPlaces *places, const PipeannHot *hot)
{
	uint32		kept[GIVE_UP];
	int			n = NextKept(hot->table, kept, GIVE_UP);

	for (int i = 0; i < n; i++)
		if (GiveUp(hot, kept[i], layout->node_pages))
			EvictPage(index, layout, places, kept[i]);
}

/*
 * After such a search, when its rows have been returned: bring one or two of
 * the counted pages into shared_buffers, if that pays. May read and raise
 * errors.
 */
void
PipeannHotBringInWanted(Relation index, const PipeannLayout *layout,
						const PipeannPlaces *places, const PipeannHot *hot,
						PipeannSearchUses *uses)
{
	if (uses->table == NULL || uses->table != hot->table)
		return;
	NoteSearch(hot, uses->count);
	if (HasSurplus(hot))
		GiveUpSome(index, layout, places, hot);
	else
		for (int i = 0; i < uses->nwanted; i++)
			BringInIfWanted(index, layout, places, hot, uses->pages[i],
							uses->counts[i]);
	uses->count = 0;
	uses->nwanted = 0;
}

/* The number of an index's pages that were brought in and are resident. */
uint32
PipeannHotCountPages(Relation index, const PipeannLayout *layout,
					 const PipeannPlaces *places, const PipeannHot *hot)
{
	uint32		count = 0;

	for (uint32 page = 0; hot->table != NULL && page < hot->table->npages;
		 page++)
	{
		BlockNumber blkno;

		if (!(pg_atomic_read_u32(KeptWord(hot->table, page)) & KeptBit(page)))
			continue;
		CHECK_FOR_INTERRUPTS();
		blkno = PipeannGraphBlock(places, layout, page);
		if (PipeannIsResident(index, blkno))
			count++;
	}
	return count;
}

/* ---------- the memory of hints ---------- */

Size
PipeannHintsSize(const PipeannMeta *meta)
{
	PipeannPageUses hot;

	return LayOutHot(&hot, meta);
}

/* Those that all indexes of the server share. */
void
PipeannHintsInitShared(PipeannHotSums *sums, uint32 n, PipeannStats *stats,
					   int tranche_id)
{
	sums->n = n;
	pg_atomic_init_u32(&sums->blocks, 0);
	pg_atomic_init_u32(&sums->share, 0);
	pg_atomic_init_u64(&sums->asked, 0);
	for (uint32 i = 0; i < sums->n; i++)
	{
		pg_atomic_init_u32(&sums->of[i].blocks, 0);
		pg_atomic_init_u32(&sums->of[i].epoch, 0);
		pg_atomic_init_u64(&sums->of[i].last_search, 0);
	}
	LWLockInitialize(&stats->lock, tranche_id);
	for (int i = 0; i < PIPEANN_MAX_STATS; i++)
		SpinLockInit(&stats->slots[i].mutex);
}

/*
 * Counters of each index, summed over all backends since server start.
 *
 * A slot is found under the lock, shared, and changed under its own spinlock;
 * taking a slot for another index needs the lock exclusive.
 */

static bool
IsOf(const PipeannStatsSlot *slot, Oid relid)
{
	return slot->sums.relid == relid && slot->sums.dbid == MyDatabaseId;
}

/*
 * The slot of an index of this database, or else the one to take for it: a free one,
 * which was never used, or the one that was used longest ago.
 */
static PipeannStatsSlot *
FindSlot(PipeannStats *stats, Oid relid)
{
	uint32		first = murmurhash32(hash_combine(murmurhash32(MyDatabaseId),
												  relid));
	PipeannStatsSlot *best = &stats->slots[first % PIPEANN_MAX_STATS];

	for (uint32 i = 0; i < PIPEANN_MAX_STATS; i++)
	{
		PipeannStatsSlot *slot = &stats->slots[(first + i) % PIPEANN_MAX_STATS];

		if (IsOf(slot, relid))
			return slot;
		if (slot->last_used < best->last_used)
			best = slot;
	}
	return best;
}

static void
AddCounters(PipeannCounters *sum, const PipeannCounters *c)
{
	sum->nodes_explored += c->nodes_explored;
	sum->code_distances += c->code_distances;
	sum->exact_distances += c->exact_distances;
	sum->page_hits += c->page_hits;
	sum->page_reads += c->page_reads;
	sum->code_page_reads += c->code_page_reads;
	sum->in_flight_sum += c->in_flight_sum;
	sum->in_flight_peak = Max(sum->in_flight_peak, c->in_flight_peak);
	sum->rounds += c->rounds;
	sum->wait_us += c->wait_us;
	sum->retries += c->retries;
	sum->rows_out_of_order += c->rows_out_of_order;
}

/* Add the counters of one scan to those of its index. stats may be NULL. */
void
PipeannStatsAdd(PipeannStats *stats, Relation index,
				const PipeannCounters *counters)
{
	Oid			relid = RelationGetRelid(index);
	Oid			file = index->rd_rel->relfilenode;
	PipeannStatsSlot *slot;

	if (stats == NULL)
		return;
	LWLockAcquire(&stats->lock, LW_SHARED);
	slot = FindSlot(stats, relid);
	if (!IsOf(slot, relid))
	{
		LWLockRelease(&stats->lock);
		LWLockAcquire(&stats->lock, LW_EXCLUSIVE);
		slot = FindSlot(stats, relid);
		if (!IsOf(slot, relid))
			slot->sums = (PipeannIndexStats) {.dbid = MyDatabaseId,.relid = relid,.file = file};
	}
	SpinLockAcquire(&slot->mutex);
	if (slot->sums.file != file)
		slot->sums = (PipeannIndexStats) {.dbid = MyDatabaseId,.relid = relid,.file = file};
	slot->sums.scans++;
	slot->last_used = GetCurrentStatementStartTimestamp();
	AddCounters(&slot->sums.counters, counters);
	SpinLockRelease(&slot->mutex);
	LWLockRelease(&stats->lock);
}

/* Sets *sums to those of the current database, palloc'd; returns how many. */
int
PipeannStatsCollect(PipeannStats *stats, PipeannIndexStats **sums)
{
	int			count = 0;

	*sums = palloc(PIPEANN_MAX_STATS * sizeof(PipeannIndexStats));
	if (stats == NULL)
		return 0;
	LWLockAcquire(&stats->lock, LW_SHARED);
	for (int i = 0; i < PIPEANN_MAX_STATS; i++)
	{
		PipeannStatsSlot *slot = &stats->slots[i];

		if (slot->sums.relid == InvalidOid || slot->sums.dbid != MyDatabaseId)
			continue;
		SpinLockAcquire(&slot->mutex);
		(*sums)[count++] = slot->sums;
		SpinLockRelease(&slot->mutex);
	}
	LWLockRelease(&stats->lock);
	return count;
}
