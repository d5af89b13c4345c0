/*
 * arena.c
 *		The shared memory for caches: segments, and the pages in them.
 *
 * Dynamic segments are made as they are needed and pinned, so that they
 * outlive the backend that made them; an empty one is given back. Each backend
 * maps a segment when it first needs it. (This is not a DSA, which before
 * PostgreSQL 17 does not find freed runs of pages again.)
 */
#include "cache/registry.h"

#include "base/attempt.h"
#include "base/huge.h"
#include "miscadmin.h"

/* A new segment has this part of the memory so far, as numbers are few, and at least this much. */
#define SEGMENT_PART 5
#define LEAST_SEGMENT PipeannArenaPages((Size) 4 * 1024 * 1024)

/* A segment's free page manager is in its first pages. */
#define HEADER_PAGES PipeannArenaPages(sizeof(FreePageManager))

int			pipeann_shared_memory = 128;
char		pipeann_arena_error[256] = "";

/* A segment's mapping in this backend. */
typedef struct Mapping
{
	uint64		serial;
	char	   *address;
	dsm_segment *dsm;			/* NULL: the arena */
} Mapping;

static Mapping mappings[PIPEANN_MAX_SEGMENTS];

/* Bytes to request from the server when it starts. */
Size
PipeannArenaReserved(void)
{
	Size		size = mul_size(pipeann_shared_memory, 1024 * 1024);

	return size == 0 ? 0 : add_size(size, PIPEANN_HUGE_PAGE);
}

void
PipeannArenaInit(PipeannArena *arena, int tranche_id)
{
	LWLockInitialize(&arena->lock, tranche_id);
	pg_atomic_init_u64(&arena->limit, 0);
	pg_atomic_init_u64(&arena->used, 0);
}

static void
InitSegment(PipeannSegment *segment, uint64 serial, char *address, uint64 pages,
			dsm_handle handle)
{
	segment->handle = handle;
	segment->used = 0;
	segment->pages = (uint32) (pages - HEADER_PAGES);
	FreePageManagerInitialize((FreePageManager *) address, address);
	FreePageManagerPut((FreePageManager *) address, HEADER_PAGES, segment->pages);
	segment->serial = serial;
}

/* The server's own part is the first segment; size is PipeannArenaReserved(). */
void
PipeannArenaAddReserved(PipeannArena *arena, char *reserved, Size size, bool is_new)
{
	reserved = (char *) TYPEALIGN(PIPEANN_HUGE_PAGE, reserved);
	size -= PIPEANN_HUGE_PAGE;
	if (is_new)
	{
		PipeannHugeMap(reserved, size);
		InitSegment(&arena->segments[0], ++arena->serials, reserved, size / FPM_PAGE_SIZE,
					DSM_HANDLE_INVALID);
	}
	mappings[0] = (Mapping) {.serial = arena->segments[0].serial,.address = reserved};
}

/* Map a dynamic segment, or make one (DSM_HANDLE_INVALID). NULL if that fails. */
static dsm_segment *
TrySegment(dsm_handle handle, uint64 pages)
{
	Size		size = mul_size(pages, FPM_PAGE_SIZE);
	dsm_segment *dsm = PipeannAttemptSegment(handle, size, pipeann_arena_error, 256);

	/* a pending cancel makes the system call fail, too */
	if (dsm == NULL)
		CHECK_FOR_INTERRUPTS();
	else
		PipeannHugeAdvise(dsm_segment_address(dsm), dsm_segment_map_length(dsm));
	return dsm;
}

static void
Unmap(Mapping *mapping)
{
	if (mapping->dsm != NULL)
		dsm_detach(mapping->dsm);
	memset(mapping, 0, sizeof(*mapping));
}

/* Unmap segments that were given back: their memory is freed when no backend maps them. */
void
PipeannArenaUnmapGone(PipeannArena *arena)
{
	for (int i = 0; i < PIPEANN_MAX_SEGMENTS; i++)
		if (mappings[i].serial != arena->segments[i].serial)
			Unmap(&mappings[i]);
}

/* The address of a segment in this backend, or NULL. */
static char *
Map(PipeannArena *arena, int number)
{
	PipeannSegment *segment = &arena->segments[number];
	Mapping    *mapping = &mappings[number];
	uint64		serial;
	dsm_handle	handle;

	if (likely(mapping->serial == *(volatile uint64 *) &segment->serial))
		return mapping->address;
	Unmap(mapping);
	LWLockAcquire(&arena->lock, LW_SHARED);
	serial = segment->serial;
	handle = segment->handle;
	LWLockRelease(&arena->lock);
	if (serial == 0 || handle == DSM_HANDLE_INVALID || dsm_find_mapping(handle) != NULL)
		return NULL;
	mapping->dsm = TrySegment(handle, 0);
	if (mapping->dsm == NULL)
		return NULL;
	mapping->address = dsm_segment_address(mapping->dsm);
	mapping->serial = serial;
	return mapping->address;
}

/* Take pages of a segment. */
static PipeannArenaPlace
TakeOf(PipeannArena *arena, int number, uint64 pages)
{
	PipeannSegment *segment = &arena->segments[number];
	char	   *address;
	Size		first = 0;
	bool		ok;

	if (*(volatile uint64 *) &segment->serial == 0 ||
		(address = Map(arena, number)) == NULL)
		return PIPEANN_NOWHERE;
	LWLockAcquire(&arena->lock, LW_EXCLUSIVE);
	ok = segment->serial == mappings[number].serial &&
		pg_atomic_read_u64(&arena->used) + pages <= PipeannArenaLimit(arena) &&
		FreePageManagerGet((FreePageManager *) address, pages, &first);
	if (ok)
	{
		segment->used += pages;
		pg_atomic_fetch_add_u64(&arena->used, pages);
	}
	LWLockRelease(&arena->lock);
	if (!ok)
		return PIPEANN_NOWHERE;
	if (mappings[number].dsm == NULL)
		PipeannHugeCollapse(address + first * FPM_PAGE_SIZE, pages * FPM_PAGE_SIZE);
	return (uint64) number << 32 | first;
}

/* Make a dynamic segment with room for these pages; returns its number, or -1. */
static int
MakeSegment(PipeannArena *arena, uint64 pages)
{
	uint64		limit = PipeannArenaLimit(arena);
	uint64		have = 0;
	uint64		size;
	dsm_segment *dsm;
	int			number = -1;

	for (int i = 0; i < PIPEANN_MAX_SEGMENTS; i++)
		have += arena->segments[i].serial == 0 ? 0 : arena->segments[i].pages;
	if (have + pages > limit)
		return -1;
	size = Max(Min(Max(have / SEGMENT_PART, LEAST_SEGMENT), limit - have), pages) +
		HEADER_PAGES;
	dsm = TrySegment(DSM_HANDLE_INVALID, size);
	if (dsm == NULL)
		return -1;
	LWLockAcquire(&arena->lock, LW_EXCLUSIVE);
	for (int i = 0; i < PIPEANN_MAX_SEGMENTS && number < 0; i++)
		if (arena->segments[i].serial == 0 && mappings[i].dsm == NULL)
			number = i;
	if (number >= 0)
	{
		dsm_pin_segment(dsm);
		mappings[number] = (Mapping) {.serial = ++arena->serials,
			.address = dsm_segment_address(dsm),.dsm = dsm};
		InitSegment(&arena->segments[number], arena->serials,
					mappings[number].address, size, dsm_segment_handle(dsm));
	}
	LWLockRelease(&arena->lock);
	if (number < 0)
		dsm_detach(dsm);
	return number;
}

/* Take contiguous pages, or return PIPEANN_NOWHERE if there is no room for them. */
PipeannArenaPlace
PipeannArenaTake(PipeannArena *arena, uint64 pages)
{
	PipeannArenaPlace place = PIPEANN_NOWHERE;
	int			number;

	if (pg_atomic_read_u64(&arena->used) + pages > PipeannArenaLimit(arena))
		return PIPEANN_NOWHERE;
	for (int i = 0; i < PIPEANN_MAX_SEGMENTS && place == PIPEANN_NOWHERE; i++)
		place = TakeOf(arena, i, pages);
	if (place == PIPEANN_NOWHERE && (number = MakeSegment(arena, pages)) >= 0)
		place = TakeOf(arena, number, pages);
	return place;
}

/* Give pages back. False if their segment cannot be mapped: then they are lost. */
bool
PipeannArenaGive(PipeannArena *arena, PipeannArenaPlace place, uint64 pages)
{
	int			number = (int) (place >> 32);
	PipeannSegment *segment = &arena->segments[number];
	char	   *address = Map(arena, number);

	if (address == NULL)
		return false;
	LWLockAcquire(&arena->lock, LW_EXCLUSIVE);
	FreePageManagerPut((FreePageManager *) address, (uint32) place, pages);
	pg_atomic_fetch_sub_u64(&arena->used, pages);
	segment->used -= pages;
	if (segment->used == 0 && segment->handle != DSM_HANDLE_INVALID)
	{
		segment->serial = 0;
		dsm_unpin_segment(segment->handle);
	}
	LWLockRelease(&arena->lock);
	return true;
}

/* Where a run is in this backend, or NULL if it cannot be mapped. */
char *
PipeannArenaAt(PipeannArena *arena, PipeannArenaPlace place)
{
	char	   *address = Map(arena, (int) (place >> 32));

	return address == NULL ? NULL : address + (Size) (uint32) place * FPM_PAGE_SIZE;
}
