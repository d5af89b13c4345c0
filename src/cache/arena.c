/*
 * arena.c
 *		The shared memory for caches: the control struct, which is made if the library was not
 *		preloaded; segments, the pages in them, and huge pages for them.
 *
 * Dynamic segments are made as they are needed and pinned, so that they
 * outlive the backend that made them; an empty one is given back. Each backend
 * maps a segment when it first needs it. (This is not a DSA, which before
 * PostgreSQL 17 does not find freed pages again.)
 */
#include "cache/registry.h"

#include <sys/mman.h>

#include "base/attempt.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/pg_shmem.h"

/* ---------- huge pages ---------- */

/*
 * Codes are read at random, and each read may miss the TLB. Then the processor reads the
 * page table, which is each process's own: where many clients take turns on a processor,
 * tables are out of the cache, too. huge_pages is about the server's own shared memory,
 * and few servers have reserved any. So if that is not in huge pages, the arena's pages
 * are collapsed into transparent ones as they are given out (Linux 6.1 and later), even
 * if the system's settings give these only to memory that asks for them. This needs a
 * mapping whose offsets are multiples of a huge page at addresses that are; the server's
 * begins anywhere. Therefore a mapping of our own takes the arena's place in it. For
 * dynamic segments the kernel is asked for transparent huge pages, which it grants if the
 * administrator allows it. A refusal never matters.
 */

#define HUGE_PAGE ((Size) 2 * 1024 * 1024)

#if defined(__linux__) && !defined(MADV_COLLAPSE)
#define MADV_COLLAPSE 25
#endif
#if defined(__linux__) && !defined(MADV_COLD)
#define MADV_COLD 20
#endif

/* The arena's own mapping, of whole huge pages; NULL if there is none. */
static char *huge_first = NULL;
static char *huge_end = NULL;

/* Ask for huge pages for a dynamic segment. Each process that maps it has to ask. */
static void
AdviseHuge(void *address, Size size)
{
#ifdef MADV_HUGEPAGE
	char	   *first = (char *) TYPEALIGN(HUGE_PAGE, address);
	char	   *end = (char *) TYPEALIGN_DOWN(HUGE_PAGE, (char *) address + size);

	if (first < end)
		(void) madvise(first, end - first, MADV_HUGEPAGE);
#endif
}

/*
 * At server start: map the arena, which begins at a multiple of HUGE_PAGE, so that it can be in
 * huge pages.
 *
 * Memory in reserved huge pages stays as it is: it is recognised by refusing
 * MADV_COLD. After a crash the server unmaps its shared memory, with our
 * mapping in it.
 */
static void
MapHuge(char *first, Size size)
{
#ifdef MADV_COLLAPSE
	char	   *end = first + TYPEALIGN_DOWN(HUGE_PAGE, size);
	void	   *own;

	huge_first = huge_end = NULL;
	if (first >= end || huge_pages == HUGE_PAGES_OFF ||
		shared_memory_type != SHMEM_TYPE_MMAP ||
		madvise(first, end - first, MADV_COLD) != 0)
		return;
	own = mmap(NULL, end - first, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (own == MAP_FAILED)
		return;
	if (mremap(own, end - first, end - first, MREMAP_MAYMOVE | MREMAP_FIXED,
			   first) == MAP_FAILED)
		ereport(FATAL,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("could not map shared memory for pipeann: %m")));
	(void) madvise(first, end - first, MADV_HUGEPAGE);
	huge_first = first;
	huge_end = end;
#endif
}

/*
 * Put some of the arena into huge pages, as far as the kernel does it. It refuses what this
 * process has never touched, and may take a while if memory is in pieces, so one at a time.
 */
static void
CollapseHuge(char *address, Size size)
{
#ifdef MADV_COLLAPSE
	char	   *at = Max((char *) TYPEALIGN_DOWN(HUGE_PAGE, address), huge_first);
	char	   *end = Min(address + size, huge_end);

	for (; at < end && !InterruptPending; at += HUGE_PAGE)
	{
		(void) *(volatile char *) at;
		if (madvise(at, HUGE_PAGE, MADV_COLLAPSE) != 0)
			break;
	}
#endif
}

/* ---------- segments ---------- */

/* A new segment has this part of the memory so far, as numbers are few, and at least this much. */
#define SEGMENT_PART 5
#define LEAST_SEGMENT PipeannArenaPages((Size) 4 * 1024 * 1024)

/* A segment's free page manager is in its first pages. */
#define HEADER_PAGES PipeannArenaPages(sizeof(FreePageManager))

int			pipeann_shared_memory;
char		pipeann_arena_error[256] = "";

/* A segment's mapping in this backend. */
typedef struct Mapping
{
	uint64		serial;
	char	   *address;
	dsm_segment *dsm;			/* NULL: the arena */
} Mapping;

static Mapping mappings[PIPEANN_MAX_SEGMENTS];

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
		AdviseHuge(dsm_segment_address(dsm), dsm_segment_map_length(dsm));
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
		CollapseHuge(address + first * FPM_PAGE_SIZE, pages * FPM_PAGE_SIZE);
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

/* Give pages back; they are lost if their segment cannot be mapped. */
void
PipeannArenaGive(PipeannArena *arena, PipeannArenaPlace place, uint64 pages)
{
	int			number = (int) (place >> 32);
	PipeannSegment *segment = &arena->segments[number];
	char	   *address = Map(arena, number);

	if (address == NULL)
		return;
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
}

/* Where pages are in this backend, or NULL if it cannot be mapped. */
char *
PipeannArenaAt(PipeannArena *arena, PipeannArenaPlace place)
{
	char	   *address = Map(arena, (int) (place >> 32));

	return address == NULL ? NULL : address + (Size) (uint32) place * FPM_PAGE_SIZE;
}

/* ---------- the control struct ---------- */

PipeannControl *pipeann_control = NULL;

static bool unavailable = false;
static uint32 nentries = PIPEANN_FEW_ENTRIES;
static Size arena_size;			/* as the server was started: it gets no more after a crash */
static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

static void
InitControl(PipeannControl *control, uint32 entries)
{
	memset(control, 0, PipeannControlSize(entries));
	control->tranche_id = LWLockNewTrancheId();
	LWLockInitialize(&control->lock, control->tranche_id);
	LWLockInitialize(&control->arena.lock, control->tranche_id);
	pg_atomic_init_u64(&control->arena.limit, PipeannArenaPages(mul_size(pipeann_shared_memory, 1024 * 1024)));
	pg_atomic_init_u64(&control->arena.used, 0);
	pg_atomic_init_u64(&control->frees, 0);
	pg_atomic_init_u64(&control->refused, 0);
	pg_atomic_init_u64(&control->dropped, 0);
	pg_atomic_init_u64(&control->reported, 0);
	PipeannStatsInit(&control->stats, control->tranche_id);
	control->nentries = entries;
	for (uint32 i = 0; i < entries; i++)
	{
		PipeannCacheEntry *entry = &control->entries[i];

		pg_atomic_init_u32(&entry->refcount, 0);
		pg_atomic_init_u64(&entry->last_used, 0);
		pg_atomic_init_u64(&entry->pages, 0);
		LWLockInitialize(&entry->lock, control->tranche_id);
	}
	control->layout = PIPEANN_CONTROL_LAYOUT;
}

/* Set a PipeannControl *, under AddinShmemInitLock. */
static void
FindOrMake(void *control)
{
	bool		found;
	PipeannControl *made = ShmemInitStruct("pipeann", PipeannControlSize(nentries),
										   &found);

	if (!found)
		InitControl(made, nentries);
	*(PipeannControl **) control = made;
}

static void
Attach(PipeannControl *control)
{
	LWLockRegisterTranche(control->tranche_id, "pipeann");
	pipeann_control = control;
	unavailable = false;
	PipeannArenaSetLimit(&control->arena, pipeann_shared_memory);
}

/*
 * NULL if there is no shared memory.
 *
 * The server reserves about 100 kB for libraries that are not preloaded. If
 * that is used up, or another version of this library left a different struct,
 * each backend has its own roots.
 */
PipeannControl *
PipeannControlGet(void)
{
	PipeannControl *control = NULL;

	if (likely(pipeann_control != NULL) || unavailable)
		return pipeann_control;
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	(void) PipeannAttempt(FindOrMake, &control, pipeann_arena_error, 256);
	LWLockRelease(AddinShmemInitLock);
	if (control != NULL && control->layout == PIPEANN_CONTROL_LAYOUT)
	{
		Attach(control);
		return control;
	}
	unavailable = true;
	ereport(LOG,
			(errmsg("pipeann has no shared memory: each backend keeps codebooks and entry graphs of its own, and codes are read from pages"),
			 errhint("Add \"pipeann\" to \"shared_preload_libraries\" and restart the server.")));
	return NULL;
}

/* The server's statistics, or NULL. */
PipeannStats *
PipeannCacheStats(void)
{
	PipeannControl *control = PipeannControlGet();

	return control == NULL ? NULL : &control->stats;
}

/* ---------- at server start ---------- */

static void
RequestSharedMemory(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	RequestAddinShmemSpace(add_size(PipeannControlSize(nentries),
									arena_size == 0 ? 0 : arena_size + HUGE_PAGE));
}

/* The server's own memory is the first segment. */
static void
StartUp(void)
{
	PipeannControl *control;
	bool		found;

	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	FindOrMake(&control);
	if (arena_size > 0)
	{
		char	   *address = (char *) TYPEALIGN(HUGE_PAGE, ShmemInitStruct("pipeann arena", arena_size + HUGE_PAGE, &found));
		PipeannArena *arena = &control->arena;

		if (!found)
		{
			MapHuge(address, arena_size);
			InitSegment(&arena->segments[0], ++arena->serials, address, arena_size / FPM_PAGE_SIZE,
						DSM_HANDLE_INVALID);
		}
		mappings[0] = (Mapping) {.serial = arena->segments[0].serial,.address = address};
	}
	LWLockRelease(AddinShmemInitLock);
	Attach(control);
}

/* Request shared memory for the control struct, with an arena, at server start. */
void
PipeannControlPreload(void)
{
	nentries = PIPEANN_MANY_ENTRIES;
	arena_size = mul_size(pipeann_shared_memory, 1024 * 1024);
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = RequestSharedMemory;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = StartUp;
}
