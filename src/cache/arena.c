/*
 * arena.c
 *		Segments of shared memory for caches.
 *
 * If the library is preloaded a segment is a run of pages of an arena in the
 * server's own shared memory, which PostgreSQL's free page manager keeps.
 * Otherwise a segment is a dynamic shared memory segment, pinned so that it
 * outlives the backend that made it; all of them together are counted against
 * pipeann.shared_memory. A dynamic segment that is given back lives on while an
 * idle backend still maps it, until that backend next uses an index or ends.
 */
#include "cache/registry.h"

#include "base/attempt.h"
#include "base/huge.h"

int			pipeann_shared_memory = 128;

static char *arena = NULL;
static char error_text[256] = "";

Size
PipeannArenaSize(void)
{
	Size		size = mul_size(pipeann_shared_memory, 1024 * 1024);

	return size == 0 ? 0 : add_size(size, PIPEANN_HUGE_PAGE);
}

static uint64
HeaderPages(void)
{
	return (sizeof(FreePageManager) + FPM_PAGE_SIZE - 1) / FPM_PAGE_SIZE;
}

/* At server start, under AddinShmemInitLock. */
void
PipeannArenaInit(PipeannControl *control)
{
	Size		size = PipeannArenaSize();
	bool		found;
	uint64		pages;

	if (size == 0)
		return;
	arena = (char *) TYPEALIGN(PIPEANN_HUGE_PAGE,
							   ShmemInitStruct("pipeann arena", size, &found));
	if (found)
		return;
	size -= PIPEANN_HUGE_PAGE;
	PipeannHugeMap(arena, size);
	pages = size / FPM_PAGE_SIZE - HeaderPages();
	FreePageManagerInitialize((FreePageManager *) arena, arena);
	FreePageManagerPut((FreePageManager *) arena, HeaderPages(), pages);
	control->arena_pages = pages;
}

uint64
PipeannArenaLimit(const PipeannControl *control)
{
	if (control->arena_pages > 0)
		return control->arena_pages;
	return (uint64) pipeann_shared_memory * (1024 * 1024 / FPM_PAGE_SIZE);
}

uint32
PipeannArenaPages(Size size)
{
	Size		pages = add_size(size, FPM_PAGE_SIZE - 1) / FPM_PAGE_SIZE;

	return Min(pages, PG_UINT32_MAX);
}

/* An arena has the free list in its first pages. */
uint64
PipeannArenaMegabytes(uint64 pages)
{
	uint64		in_one = 1024 * 1024 / FPM_PAGE_SIZE;

	return (pages + HeaderPages() + in_one - 1) / in_one;
}

const char *
PipeannArenaError(void)
{
	return error_text;
}

/*
 * Make a dynamic segment that outlives this backend, or attach to one if handle
 * is valid. NULL if the operating system refuses.
 */
static dsm_segment *
TrySegment(dsm_handle handle, Size size)
{
	dsm_segment *dsm = PipeannAttemptSegment(handle, size, error_text,
											 sizeof(error_text));

	if (dsm != NULL && handle == DSM_HANDLE_INVALID)
		dsm_pin_segment(dsm);
	return dsm;
}

static PipeannArenaResult
AllocateInArena(PipeannControl *control, uint32 pages, PipeannSegment *segment,
				PipeannMapping *mapping)
{
	Size		first;
	bool		ok;

	LWLockAcquire(&control->arena_lock, LW_EXCLUSIVE);
	ok = FreePageManagerGet((FreePageManager *) arena, pages, &first);
	if (ok)
		control->used_pages += pages;
	LWLockRelease(&control->arena_lock);
	if (!ok)
		return PIPEANN_ARENA_FULL;
	segment->place = first;
	mapping->address = arena + first * FPM_PAGE_SIZE;
	mapping->dsm = NULL;
	PipeannHugeCollapse(mapping->address, mul_size(pages, FPM_PAGE_SIZE));
	return PIPEANN_ARENA_OK;
}

static bool
Reserve(PipeannControl *control, uint32 pages)
{
	bool		ok;

	LWLockAcquire(&control->arena_lock, LW_EXCLUSIVE);
	ok = control->used_pages + pages <= PipeannArenaLimit(control);
	if (ok)
		control->used_pages += pages;
	LWLockRelease(&control->arena_lock);
	return ok;
}

static void
Unreserve(PipeannControl *control, uint32 pages)
{
	LWLockAcquire(&control->arena_lock, LW_EXCLUSIVE);
	control->used_pages -= pages;
	LWLockRelease(&control->arena_lock);
}

static PipeannArenaResult
AllocateSegment(PipeannControl *control, uint32 pages, PipeannSegment *segment,
				PipeannMapping *mapping)
{
	dsm_segment *volatile dsm = NULL;

	if (!Reserve(control, pages))
		return PIPEANN_ARENA_FULL;
	PG_TRY();
	{
		dsm = TrySegment(DSM_HANDLE_INVALID,
						 mul_size(pages, FPM_PAGE_SIZE));
	}
	PG_CATCH();
	{
		Unreserve(control, pages);
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (dsm == NULL)
	{
		Unreserve(control, pages);
		/* a pending cancel makes the system call fail, too */
		CHECK_FOR_INTERRUPTS();
		return PIPEANN_ARENA_REFUSED;
	}
	segment->place = dsm_segment_handle(dsm);
	mapping->address = dsm_segment_address(dsm);
	mapping->dsm = dsm;
	PipeannHugeAdvise(mapping->address, mul_size(pages, FPM_PAGE_SIZE));
	return PIPEANN_ARENA_OK;
}

/* Sets place and pages of the segment, and address and dsm of the mapping. */
PipeannArenaResult
PipeannArenaAllocate(PipeannControl *control, uint32 pages,
					 PipeannSegment *segment, PipeannMapping *mapping)
{
	segment->pages = pages;
	if (control->arena_pages > 0)
		return AllocateInArena(control, pages, segment, mapping);
	return AllocateSegment(control, pages, segment, mapping);
}

/* Map a segment of another backend. False if that fails. */
bool
PipeannArenaAttach(PipeannControl *control, const PipeannSegment *segment,
				   PipeannMapping *mapping)
{
	mapping->dsm = NULL;
	if (control->arena_pages > 0)
	{
		mapping->address = arena + segment->place * FPM_PAGE_SIZE;
		return true;
	}
	if (dsm_find_mapping((dsm_handle) segment->place) != NULL)
		return false;
	mapping->dsm = TrySegment((dsm_handle) segment->place, 0);
	if (mapping->dsm == NULL)
	{
		CHECK_FOR_INTERRUPTS();
		return false;
	}
	mapping->address = dsm_segment_address(mapping->dsm);
	PipeannHugeAdvise(mapping->address,
					   mul_size(segment->pages, FPM_PAGE_SIZE));
	return true;
}

void
PipeannArenaDetach(PipeannMapping *mapping)
{
	if (mapping->dsm != NULL)
		dsm_detach(mapping->dsm);
	mapping->dsm = NULL;
	mapping->address = NULL;
}

void
PipeannArenaFree(PipeannControl *control, const PipeannSegment *segment)
{
	LWLockAcquire(&control->arena_lock, LW_EXCLUSIVE);
	if (control->arena_pages > 0)
		FreePageManagerPut((FreePageManager *) arena, segment->place,
						   segment->pages);
	control->used_pages -= segment->pages;
	LWLockRelease(&control->arena_lock);
	if (control->arena_pages == 0)
		dsm_unpin_segment((dsm_handle) segment->place);
}
