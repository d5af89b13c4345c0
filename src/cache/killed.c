/*
 * killed.c
 *		What searches have found out about dead rows, by graph page.
 *
 * A table with one entry for several pages, the newest finding takes it: this
 * is a hint. Readers take no lock; they see by an entry's version that it
 * changed under them, and take it for empty then.
 */
#include "cache/registry.h"

#define FEWEST 64
#define MOST (1U << 18)
#define PAGES_PER_ENTRY 2

uint32
PipeannKillCount(const PipeannMeta *meta)
{
	uint32		count = FEWEST;

	while (count < MOST && count < meta->graph_pages / PAGES_PER_ENTRY)
		count *= 2;
	return count;
}

void
PipeannKillInit(PipeannCacheHeader *header, uint32 count)
{
	struct PipeannKill *kills = (struct PipeannKill *)
		((char *) header + header->kills);

	SpinLockInit(&header->kill_mutex);
	header->kill_mask = count - 1;
	for (uint32 i = 0; i < count; i++)
	{
		pg_atomic_init_u32(&kills[i].version, 0);
		kills[i].page = PIPEANN_INVALID_ID;
		kills[i].lsn = 0;
		kills[i].slots = 0;
	}
}

uint64
PipeannCacheKilled(const PipeannCache *cache, uint32 page, uint64 lsn)
{
	struct PipeannKill *kill = &cache->kills[page & cache->kill_mask];
	uint32		version = pg_atomic_read_u32(&kill->version);
	uint64		slots;

	pg_read_barrier();
	if ((version & 1) || kill->page != page || kill->lsn != lsn)
		return 0;
	slots = kill->slots;
	pg_read_barrier();
	return pg_atomic_read_u32(&kill->version) == version ? slots : 0;
}

/*
 * What is known of a later version of the page is worth more.
 */
void
PipeannCacheKill(PipeannCache *cache, uint32 page, uint64 lsn, uint32 slot)
{
	PipeannHandle *handle = cache->impl;
	PipeannCacheHeader *header = handle->attachment->header;
	struct PipeannKill *kill = &cache->kills[page & cache->kill_mask];
	uint64		bit;

	if (slot >= 64 || lsn == 0)
		return;
	bit = UINT64CONST(1) << slot;
	SpinLockAcquire(&header->kill_mutex);
	if (kill->page != page || kill->lsn <= lsn)
	{
		bool		same = kill->page == page && kill->lsn == lsn;
		uint32		version = pg_atomic_read_u32(&kill->version);

		pg_atomic_write_u32(&kill->version, version + 1);
		pg_write_barrier();
		kill->slots = (same ? kill->slots : 0) | bit;
		kill->page = page;
		kill->lsn = lsn;
		pg_write_barrier();
		pg_atomic_write_u32(&kill->version, version + 2);
	}
	SpinLockRelease(&header->kill_mutex);
}
