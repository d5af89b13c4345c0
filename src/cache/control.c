/*
 * control.c
 *		Shared memory: the control struct, which is made if the library was not
 *		preloaded, and segments for caches.
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
#include "storage/ipc.h"
#include "utils/wait_event.h"

int			pipeann_shared_memory = 128;
PipeannControl *pipeann_control = NULL;

static bool unavailable = false;
static char *arena = NULL;
static char error_text[256] = "";
static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

static void
InitCacheEntries(PipeannControl *control)
{
	for (int i = 0; i < PIPEANN_MAX_CACHE_ENTRIES; i++)
	{
		PipeannCacheEntry *entry = &control->entries[i];

		entry->state = PIPEANN_CACHE_ENTRY_FREE;
		entry->first_segment = PIPEANN_NO_SEGMENT;
		entry->last_segment = PIPEANN_NO_SEGMENT;
		pg_atomic_init_u32(&entry->refcount, 0);
		pg_atomic_init_u32(&entry->busy, 0);
		pg_atomic_init_u64(&entry->last_used, 0);
		ConditionVariableInit(&entry->changed);
	}
}

static void
InitControl(PipeannControl *control)
{
	memset(control, 0, sizeof(*control));
	control->tranche_id = LWLockNewTrancheId();
	LWLockInitialize(&control->lock, control->tranche_id);
	LWLockInitialize(&control->arena_lock, control->tranche_id);
	pg_atomic_init_u64(&control->frees, 0);
	PipeannHotInitSums(&control->hot);
	PipeannStatsInit(&control->stats, control->tranche_id);
	InitCacheEntries(control);
	for (int i = 0; i < PIPEANN_MAX_SEGMENTS; i++)
		control->segments[i].next = i + 1 < PIPEANN_MAX_SEGMENTS ? i + 1 :
			PIPEANN_NO_SEGMENT;
	control->free_segment = 0;
	control->layout = PIPEANN_CONTROL_LAYOUT;
}

/* Under AddinShmemInitLock. */
static PipeannControl *
FindOrMake(void)
{
	bool		found;
	PipeannControl *control = ShmemInitStruct("pipeann",
											  sizeof(PipeannControl), &found);

	if (!found)
		InitControl(control);
	return control;
}

static void
Attach(PipeannControl *control)
{
	LWLockRegisterTranche(control->tranche_id, "pipeann");
	pipeann_control = control;
	unavailable = false;
}

static void
TryFindOrMake(void *arg)
{
	*(PipeannControl **) arg = FindOrMake();
}

/*
 * NULL if there is no shared memory.
 *
 * The server keeps some 100 kB in reserve for libraries that are not preloaded.
 * If that is gone, or another version of this library left a struct that
 * differs, there are only private copies.
 */
PipeannControl *
PipeannControlGet(void)
{
	PipeannControl *control = NULL;

	if (likely(pipeann_control != NULL) || unavailable)
		return pipeann_control;
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	(void) PipeannAttempt(TryFindOrMake, &control, error_text,
						  sizeof(error_text));
	LWLockRelease(AddinShmemInitLock);
	if (control != NULL && control->layout == PIPEANN_CONTROL_LAYOUT)
	{
		Attach(control);
		return control;
	}
	unavailable = true;
	ereport(LOG,
			(errmsg("pipeann has no shared memory: each backend keeps copies of its own"),
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

uint32
PipeannWaitEvent(void)
{
#if PG_VERSION_NUM >= 170000
	static uint32 event = 0;

	if (event == 0)
		event = WaitEventExtensionNew("PipeannCache");
	return event;
#else
	return PG_WAIT_EXTENSION;
#endif
}

/* ---------- segments ---------- */

static Size
ArenaSize(void)
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
static void
InitArena(PipeannControl *control)
{
	Size		size = ArenaSize();
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

/* Pages that all caches together may take, and take. */
uint64
PipeannArenaLimit(void)
{
	if (pipeann_control->arena_pages > 0)
		return pipeann_control->arena_pages;
	return (uint64) pipeann_shared_memory * (1024 * 1024 / FPM_PAGE_SIZE);
}

/*
 * pipeann.shared_memory, in MB, for so many pages.
 *
 * An arena has the free list in its first pages.
 */
uint64
PipeannArenaMegabytes(uint64 pages)
{
	uint64		in_one = 1024 * 1024 / FPM_PAGE_SIZE;

	return (pages + HeaderPages() + in_one - 1) / in_one;
}

/* The last error of the operating system, "" if there was none. */
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

uint64
PipeannArenaUsed(void)
{
	uint64		pages;

	LWLockAcquire(&pipeann_control->arena_lock, LW_SHARED);
	pages = pipeann_control->used_pages;
	LWLockRelease(&pipeann_control->arena_lock);
	return pages;
}

/*
 * Take pages: of the arena, with *place the first, or of what dynamic segments may
 * have. False if there are not so many.
 */
static bool
TakePages(uint32 pages, Size *place)
{
	bool		ok;

	LWLockAcquire(&pipeann_control->arena_lock, LW_EXCLUSIVE);
	if (pipeann_control->arena_pages > 0)
		ok = FreePageManagerGet((FreePageManager *) arena, pages, place);
	else
		ok = pipeann_control->used_pages + pages <= PipeannArenaLimit();
	if (ok)
		pipeann_control->used_pages += pages;
	LWLockRelease(&pipeann_control->arena_lock);
	return ok;
}

static void
GivePages(const PipeannSegment *segment)
{
	LWLockAcquire(&pipeann_control->arena_lock, LW_EXCLUSIVE);
	if (pipeann_control->arena_pages > 0)
		FreePageManagerPut((FreePageManager *) arena, segment->place,
						   segment->pages);
	pipeann_control->used_pages -= segment->pages;
	LWLockRelease(&pipeann_control->arena_lock);
}

/* The mapping of a dynamic segment that was made or attached to. */
static void
SetDynamic(PipeannMapping *mapping, dsm_segment *dsm)
{
	mapping->dsm = dsm;
	mapping->address = dsm_segment_address(dsm);
	PipeannHugeAdvise(mapping->address,
					  mul_size(mapping->segment.pages, FPM_PAGE_SIZE));
}

/* Make a segment of mapping->segment.pages. */
PipeannArenaResult
PipeannArenaAllocate(PipeannMapping *mapping)
{
	PipeannSegment *segment = &mapping->segment;
	Size		size = mul_size(segment->pages, FPM_PAGE_SIZE);
	dsm_segment *volatile dsm = NULL;

	if (!TakePages(segment->pages, &segment->place))
		return PIPEANN_ARENA_FULL;
	if (pipeann_control->arena_pages > 0)
	{
		mapping->address = arena + segment->place * FPM_PAGE_SIZE;
		PipeannHugeCollapse(mapping->address, size);
		return PIPEANN_ARENA_OK;
	}
	PG_TRY();
	{
		dsm = TrySegment(DSM_HANDLE_INVALID, size);
	}
	PG_CATCH();
	{
		GivePages(segment);
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (dsm == NULL)
	{
		GivePages(segment);
		/* a pending cancel makes the system call fail, too */
		CHECK_FOR_INTERRUPTS();
		return PIPEANN_ARENA_REFUSED;
	}
	segment->place = dsm_segment_handle(dsm);
	SetDynamic(mapping, dsm);
	return PIPEANN_ARENA_OK;
}

/* Map a segment of another backend. False if that fails. */
bool
PipeannArenaAttach(PipeannMapping *mapping)
{
	Size		place = mapping->segment.place;
	dsm_segment *dsm;

	if (pipeann_control->arena_pages > 0)
	{
		mapping->address = arena + place * FPM_PAGE_SIZE;
		return true;
	}
	if (dsm_find_mapping((dsm_handle) place) != NULL)
		return false;
	dsm = TrySegment((dsm_handle) place, 0);
	if (dsm == NULL)
	{
		CHECK_FOR_INTERRUPTS();
		return false;
	}
	SetDynamic(mapping, dsm);
	return true;
}

void
PipeannArenaFree(const PipeannSegment *segment)
{
	GivePages(segment);
	if (pipeann_control->arena_pages == 0)
		dsm_unpin_segment((dsm_handle) segment->place);
}

/* ---------- at server start ---------- */

static void
RequestSharedMemory(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	RequestAddinShmemSpace(add_size(MAXALIGN(sizeof(PipeannControl)),
									ArenaSize()));
}

static void
StartUp(void)
{
	PipeannControl *control;

	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	control = FindOrMake();
	InitArena(control);
	LWLockRelease(AddinShmemInitLock);
	Attach(control);
}

/* Have the server make the control block, with an arena, when it starts. */
void
PipeannControlPreload(void)
{
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = RequestSharedMemory;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = StartUp;
}
