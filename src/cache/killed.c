/*
 * killed.c
 *		Killed nodes: nodes of which searches found all rows dead, by graph
 *		page.
 *
 * A table in shared memory, in which several pages share a place and the
 * newest finding takes it: all of it is a hint. Readers take no lock; a
 * place's version tells them that it changed while they read, and then they
 * ignore it.
 */
#include "cache/registry.h"

#define FEWEST 64
#define MOST (1U << 18)
#define PAGES_PER_ENTRY 2

uint32
PipeannKilledTableLength(const PipeannMeta *meta)
{
	uint32		count = FEWEST;

	while (count < MOST && count < meta->graph_pages / PAGES_PER_ENTRY)
		count *= 2;
	return count;
}

void
PipeannKilledTableInit(PipeannCacheHeader *header, uint32 count)
{
	struct PipeannKilledSlots *killed = (struct PipeannKilledSlots *)
		((char *) header + header->killed);

	SpinLockInit(&header->killed_mutex);
	header->killed_mask = count - 1;
	for (uint32 i = 0; i < count; i++)
	{
		pg_atomic_init_u32(&killed[i].version, 0);
		killed[i].page = PIPEANN_INVALID_ID;
		killed[i].lsn = 0;
		killed[i].slots = 0;
	}
}

uint64
PipeannCacheGetKilled(const PipeannCache *cache, uint32 page, uint64 lsn)
{
	struct PipeannKilledSlots *killed =
		&cache->killed[page & cache->killed_mask];
	uint32		version = pg_atomic_read_u32(&killed->version);
	uint64		slots;

	pg_read_barrier();
	if ((version & 1) || killed->page != page || killed->lsn != lsn)
		return 0;
	slots = killed->slots;
	pg_read_barrier();
	return pg_atomic_read_u32(&killed->version) == version ? slots : 0;
}

/* Findings about a later version of the page replace older ones. */
void
PipeannCacheSetKilled(PipeannCache *cache, uint32 page, uint64 lsn,
					  uint32 slot)
{
	PipeannHandle *handle = cache->impl;
	PipeannCacheHeader *header = handle->attachment->header;
	struct PipeannKilledSlots *killed =
		&cache->killed[page & cache->killed_mask];
	uint64		bit;

	if (slot >= 64 || lsn == 0)
		return;
	bit = UINT64CONST(1) << slot;
	SpinLockAcquire(&header->killed_mutex);
	if (killed->page != page || killed->lsn <= lsn)
	{
		bool		same = killed->page == page && killed->lsn == lsn;
		uint32		version = pg_atomic_read_u32(&killed->version);

		pg_atomic_write_u32(&killed->version, version + 1);
		pg_write_barrier();
		killed->slots = (same ? killed->slots : 0) | bit;
		killed->page = page;
		killed->lsn = lsn;
		pg_write_barrier();
		pg_atomic_write_u32(&killed->version, version + 2);
	}
	SpinLockRelease(&header->killed_mutex);
}
