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
#include "hints/hints.h"

#define FEWEST 64
#define MOST (1U << 18)
#define PAGES_PER_PLACE 2

static uint32
CountPlaces(const PipeannMeta *meta)
{
	uint32		count = FEWEST;

	while (count < MOST && count < meta->graph_pages / PAGES_PER_PLACE)
		count *= 2;
	return count;
}

Size
PipeannKilledSize(const PipeannMeta *meta)
{
	return add_size(offsetof(PipeannKilledTable, of),
					mul_size(CountPlaces(meta), sizeof(PipeannKilledSlots)));
}

void
PipeannKilledInit(PipeannKilledTable *killed, const PipeannMeta *meta)
{
	uint32		count = CountPlaces(meta);

	SpinLockInit(&killed->mutex);
	killed->mask = count - 1;
	for (uint32 i = 0; i < count; i++)
	{
		pg_atomic_init_u32(&killed->of[i].version, 0);
		killed->of[i].page = PIPEANN_INVALID_ID;
		killed->of[i].lsn = 0;
		killed->of[i].slots = 0;
	}
}

uint64
PipeannKilledGet(PipeannKilledTable *killed, uint32 page, uint64 lsn)
{
	PipeannKilledSlots *of = &killed->of[page & killed->mask];
	uint32		version = pg_atomic_read_u32(&of->version);
	uint64		slots;

	pg_read_barrier();
	if ((version & 1) || of->page != page || of->lsn != lsn)
		return 0;
	slots = of->slots;
	pg_read_barrier();
	return pg_atomic_read_u32(&of->version) == version ? slots : 0;
}

/*
 * Add a killed node. Findings about a later version of the page replace older
 * ones.
 */
void
PipeannKilledSet(PipeannKilledTable *killed, uint32 page, uint64 lsn,
				 uint32 slot)
{
	PipeannKilledSlots *of = &killed->of[page & killed->mask];
	uint64		bit;

	if (slot >= 64 || lsn == 0)
		return;
	bit = UINT64CONST(1) << slot;
	SpinLockAcquire(&killed->mutex);
	if (of->page != page || of->lsn <= lsn)
	{
		bool		same = of->page == page && of->lsn == lsn;
		uint32		version = pg_atomic_read_u32(&of->version);

		pg_atomic_write_u32(&of->version, version + 1);
		pg_write_barrier();
		of->slots = (same ? of->slots : 0) | bit;
		of->page = page;
		of->lsn = lsn;
		pg_write_barrier();
		pg_atomic_write_u32(&of->version, version + 2);
	}
	SpinLockRelease(&killed->mutex);
}
