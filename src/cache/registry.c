/*
 * registry.c
 *		Caches in shared memory: the control struct, which is made if the library was
 *		not preloaded; segments of memory; entries of caches, which are claimed, shared
 *		and dropped; and giving memory back: the caches used longest ago when room is
 *		short, and those of files that are gone.
 *
 * PostgreSQL's free page manager keeps the pages of the arena. Dynamic shared memory
 * segments are pinned, so that they outlive the backend that made them; all of them
 * together are counted against pipeann.shared_memory. One that is given back lives on while
 * an idle backend still maps it, until that backend next uses an index or ends.
 *
 * One backend loads a cache while others that need it wait. If that backend
 * fails or ends, PipeannRegistryLetGo() gives the entry up and the others try
 * again.
 */
#include "cache/registry.h"

#include <sys/stat.h>

#include "access/xact.h"
#include "base/attempt.h"
#include "base/huge.h"
#include "common/relpath.h"
#include "storage/ipc.h"
#include "utils/wait_event.h"

int			pipeann_shared_memory = 128;
PipeannControl *pipeann_control = NULL;
char		pipeann_arena_error[256] = "";

static bool unavailable = false;
static char *arena = NULL;
static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

static void
InitControl(PipeannControl *control)
{
	memset(control, 0, sizeof(*control));
	control->tranche_id = LWLockNewTrancheId();
	LWLockInitialize(&control->lock, control->tranche_id);
	LWLockInitialize(&control->arena_lock, control->tranche_id);
	pg_atomic_init_u64(&control->frees, 0);
	pg_atomic_init_u64(&control->reported, 0);
	PipeannHintsInitShared(&control->hot, &control->stats, control->tranche_id);
	for (int i = 0; i < PIPEANN_MAX_CACHE_ENTRIES; i++)
	{
		PipeannCacheEntry *entry = &control->entries[i];

		entry->first_segment = PIPEANN_NO_SEGMENT;
		entry->last_segment = PIPEANN_NO_SEGMENT;
		pg_atomic_init_u32(&entry->refcount, 0);
		pg_atomic_init_u32(&entry->busy, 0);
		pg_atomic_init_u64(&entry->last_used, 0);
		ConditionVariableInit(&entry->changed);
	}
	for (int i = 0; i < PIPEANN_MAX_SEGMENTS; i++)
		control->segments[i].next = i + 1 < PIPEANN_MAX_SEGMENTS ? i + 1 :
			PIPEANN_NO_SEGMENT;
	control->free_segment = 0;
	control->layout = PIPEANN_CONTROL_LAYOUT;
}

/* Set a PipeannControl *, under AddinShmemInitLock. */
static void
FindOrMake(void *control)
{
	bool		found;
	PipeannControl *made = ShmemInitStruct("pipeann", sizeof(PipeannControl),
										   &found);

	if (!found)
		InitControl(made);
	*(PipeannControl **) control = made;
}

static void
Attach(PipeannControl *control)
{
	LWLockRegisterTranche(control->tranche_id, "pipeann");
	pipeann_control = control;
	unavailable = false;
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
	(void) PipeannAttempt(FindOrMake, &control, pipeann_arena_error,
						  sizeof(pipeann_arena_error));
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

static uint32
WaitEvent(void)
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
	pages = size / FPM_PAGE_SIZE - PIPEANN_ARENA_HEADER_PAGES;
	FreePageManagerInitialize((FreePageManager *) arena, arena);
	FreePageManagerPut((FreePageManager *) arena, PIPEANN_ARENA_HEADER_PAGES,
					   pages);
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
 * Make a dynamic segment that outlives this backend, or attach to one if handle
 * is valid. NULL if the operating system refuses.
 */
static dsm_segment *
TrySegment(dsm_handle handle, Size size)
{
	dsm_segment *dsm = PipeannAttemptSegment(handle, size, pipeann_arena_error,
											 sizeof(pipeann_arena_error));

	if (dsm != NULL && handle == DSM_HANDLE_INVALID)
		dsm_pin_segment(dsm);
	return dsm;
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
static bool
AttachSegment(PipeannMapping *mapping)
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

static void
FreeSegment(const PipeannSegment *segment)
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
	FindOrMake(&control);
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

/* ---------- entries ---------- */

/* Rounds of spinning until a short update ends, before going to sleep. */
#define TURN_SPINS 100

/* Check again this often (ms), in case a signal was missed. */
#define WAIT_TIMEOUT 1000L

/* Evicting a cache that was used so recently (s) is reported. */
#define RECENTLY 60

static bool
IsAlive(const PipeannCacheEntry *entry)
{
	return entry->state == PIPEANN_CACHE_ENTRY_LOADING ||
		entry->state == PIPEANN_CACHE_ENTRY_READY;
}

/* The cache of a file that new scans may use, or NULL. Under control->lock. */
static PipeannCacheEntry *
FindAlive(const PipeannLocator *locator)
{
	for (int i = 0; i < PIPEANN_MAX_CACHE_ENTRIES; i++)
	{
		PipeannCacheEntry *entry = &pipeann_control->entries[i];

		if (IsAlive(entry) && PipeannLocatorEquals(entry->locator, *locator))
			return entry;
	}
	return NULL;
}

static PipeannCacheEntry *
FindFree(void)
{
	for (int i = 0; i < PIPEANN_MAX_CACHE_ENTRIES; i++)
		if (pipeann_control->entries[i].state == PIPEANN_CACHE_ENTRY_FREE)
			return &pipeann_control->entries[i];
	return NULL;
}

/*
 * Under control->lock, exclusive. Each segment leaves the list before its
 * memory is given back, so that no failure could give it back twice.
 */
static void
FreeEntry(PipeannCacheEntry *entry)
{
	PipeannHotForget(&pipeann_control->hot, entry - pipeann_control->entries);
	entry->state = PIPEANN_CACHE_ENTRY_FREE;
	entry->generation = 0;
	entry->relid = InvalidOid;
	pg_atomic_write_u64(&pipeann_control->frees,
						pg_atomic_read_u64(&pipeann_control->frees) + 1);
	while (entry->first_segment != PIPEANN_NO_SEGMENT)
	{
		int32		number = entry->first_segment;
		PipeannSegment segment = pipeann_control->segments[number];

		entry->first_segment = segment.next;
		pipeann_control->segments[number].next = pipeann_control->free_segment;
		pipeann_control->free_segment = number;
		FreeSegment(&segment);
	}
	entry->last_segment = PIPEANN_NO_SEGMENT;
	entry->nsegments = 0;
	entry->pages = 0;
}

/*
 * Under control->lock, exclusive. The barrier orders this against the last
 * user's leaving: either we see that it has left or it sees the new state.
 */
static void
DoomLocked(PipeannCacheEntry *entry)
{
	entry->state = PIPEANN_CACHE_ENTRY_DOOMED;
	pg_memory_barrier();
	if (pg_atomic_read_u32(&entry->refcount) == 0)
		FreeEntry(entry);
}

void
PipeannRegistryDoom(PipeannCacheEntry *entry,
					uint64 generation)
{
	LWLockAcquire(&pipeann_control->lock, LW_EXCLUSIVE);
	if (entry->generation == generation && IsAlive(entry))
		DoomLocked(entry);
	LWLockRelease(&pipeann_control->lock);
	ConditionVariableBroadcast(&entry->changed);
}

static void
TakeReference(PipeannAttachment *attachment, PipeannCacheEntry *entry)
{
	uint64		now = (uint64) GetCurrentStatementStartTimestamp();

	pg_atomic_fetch_add_u32(&entry->refcount, 1);
	attachment->entry = entry;
	attachment->generation = entry->generation;
	attachment->referenced = true;
	if (pg_atomic_read_u64(&entry->last_used) != now)
		pg_atomic_write_u64(&entry->last_used, now);
}

static void
StartLoading(PipeannAttachment *attachment,
			 PipeannCacheEntry *entry)
{
	entry->locator = attachment->key.locator;
	entry->relid = attachment->relid;
	entry->build_id = attachment->build_id;
	entry->generation = ++pipeann_control->generations;
	entry->state = PIPEANN_CACHE_ENTRY_LOADING;
	pg_atomic_write_u32(&entry->refcount, 0);
	pg_atomic_write_u32(&entry->busy, 0);
	TakeReference(attachment, entry);
	attachment->loading = true;
}

/*
 * Look at the entries once, under control->lock, exclusive. Sets *wait to an
 * entry that another backend is loading. A cache of an earlier build of the
 * same file is dropped.
 */
static PipeannClaim
TryClaim(PipeannAttachment *attachment,
		 PipeannCacheEntry **wait)
{
	PipeannCacheEntry *entry = FindAlive(&attachment->key.locator);

	*wait = NULL;
	if (entry != NULL && entry->build_id != attachment->build_id)
	{
		DoomLocked(entry);
		entry = NULL;
	}
	if (entry != NULL && entry->state == PIPEANN_CACHE_ENTRY_READY)
	{
		TakeReference(attachment, entry);
		return PIPEANN_CLAIM_READY;
	}
	if (entry != NULL)
	{
		*wait = entry;
		return PIPEANN_CLAIM_NONE;
	}
	entry = FindFree();
	if (entry == NULL)
		return PIPEANN_CLAIM_NONE;
	StartLoading(attachment, entry);
	return PIPEANN_CLAIM_LOAD;
}

static bool
IsUnused(PipeannCacheEntry *entry)
{
	return entry->state == PIPEANN_CACHE_ENTRY_READY &&
		pg_atomic_read_u32(&entry->refcount) == 0;
}

/*
 * The unused cache that was used longest ago, or NULL. Under the lock, exclusive,
 * so that no reference can be taken meanwhile.
 */
static PipeannCacheEntry *
FindVictim(void)
{
	PipeannCacheEntry *victim = NULL;

	for (int i = 0; i < PIPEANN_MAX_CACHE_ENTRIES; i++)
	{
		PipeannCacheEntry *entry = &pipeann_control->entries[i];

		if (IsUnused(entry) &&
			(victim == NULL || pg_atomic_read_u64(&entry->last_used) <
			 pg_atomic_read_u64(&victim->last_used)))
			victim = entry;
	}
	return victim;
}

/* Evict that cache, to have its entry. False if there is none. */
static bool
Evict(void)
{
	PipeannCacheEntry *victim;

	LWLockAcquire(&pipeann_control->lock, LW_EXCLUSIVE);
	victim = FindVictim();
	if (victim != NULL)
		FreeEntry(victim);
	LWLockRelease(&pipeann_control->lock);
	return victim != NULL;
}

/*
 * Take a reference to the cache of the attachment's file, or an entry to load
 * it into; waits while another backend loads it. With evict, may evict a cache
 * for its entry.
 */
PipeannClaim
PipeannRegistryClaim(PipeannAttachment *attachment,
					 bool evict)
{
	PipeannCacheEntry *wait;
	PipeannClaim claim;

	do
	{
		LWLockAcquire(&pipeann_control->lock, LW_EXCLUSIVE);
		claim = TryClaim(attachment, &wait);
		LWLockRelease(&pipeann_control->lock);
		/* the first call does not sleep: the entry may have changed before */
		if (wait != NULL)
			ConditionVariableTimedSleep(&wait->changed, WAIT_TIMEOUT,
										WaitEvent());
	} while (wait != NULL ||
			 (claim == PIPEANN_CLAIM_NONE && evict && Evict()));
	ConditionVariableCancelSleep();
	return claim;
}

/* Whether a file's cache is loaded. */
bool
PipeannRegistryHas(const PipeannLocator *locator, uint64 build_id)
{
	PipeannCacheEntry *entry;
	bool		has;

	LWLockAcquire(&pipeann_control->lock, LW_SHARED);
	entry = FindAlive(locator);
	has = entry != NULL && entry->state == PIPEANN_CACHE_ENTRY_READY &&
		entry->build_id == build_id;
	LWLockRelease(&pipeann_control->lock);
	return has;
}

/*
 * Make sure that the cache of an attachment made earlier stays in memory. False if it
 * has been dropped since.
 */
bool
PipeannRegistryHold(PipeannAttachment *attachment)
{
	PipeannCacheEntry *entry = attachment->entry;
	bool		ok;

	if (entry == NULL || attachment->referenced)
		return true;
	LWLockAcquire(&pipeann_control->lock, LW_SHARED);
	ok = entry->generation == attachment->generation &&
		entry->state == PIPEANN_CACHE_ENTRY_READY;
	if (ok)
		TakeReference(attachment, entry);
	LWLockRelease(&pipeann_control->lock);
	return ok;
}

/* The cache is loaded. If it has been doomed meanwhile, only this backend uses it. */
void
PipeannRegistryPublish(PipeannAttachment *attachment)
{
	PipeannCacheEntry *entry = attachment->entry;

	LWLockAcquire(&pipeann_control->lock, LW_EXCLUSIVE);
	if (entry->state == PIPEANN_CACHE_ENTRY_LOADING)
		entry->state = PIPEANN_CACHE_ENTRY_READY;
	attachment->loading = false;
	LWLockRelease(&pipeann_control->lock);
	ConditionVariableBroadcast(&entry->changed);
}

static void
EndTurn(PipeannAttachment *attachment)
{
	attachment->busy = false;
	pg_atomic_exchange_u32(&attachment->entry->busy, 0);
	ConditionVariableBroadcast(&attachment->entry->changed);
}

/*
 * Give up the turn, the loading and the reference that this backend has, if it has
 * any. Once the count is down the entry may become another cache's at any moment.
 */
void
PipeannRegistryLetGo(PipeannAttachment *attachment)
{
	PipeannCacheEntry *entry = attachment->entry;

	if (attachment->busy)
		EndTurn(attachment);
	if (attachment->loading)
	{
		attachment->loading = false;
		PipeannRegistryDoom(entry, attachment->generation);
	}
	if (!attachment->referenced)
		return;
	attachment->referenced = false;
	if (pg_atomic_sub_fetch_u32(&entry->refcount, 1) > 0 ||
		*(volatile uint32 *) &entry->state != PIPEANN_CACHE_ENTRY_DOOMED)
		return;
	LWLockAcquire(&pipeann_control->lock, LW_EXCLUSIVE);
	if (entry->generation == attachment->generation &&
		entry->state == PIPEANN_CACHE_ENTRY_DOOMED &&
		pg_atomic_read_u32(&entry->refcount) == 0)
		FreeEntry(entry);
	LWLockRelease(&pipeann_control->lock);
}

/* Drop the cache of a file, if there is one. */
void
PipeannRegistryForget(const PipeannLocator *locator)
{
	PipeannCacheEntry *entry;

	LWLockAcquire(&pipeann_control->lock, LW_EXCLUSIVE);
	entry = FindAlive(locator);
	if (entry != NULL)
		DoomLocked(entry);
	LWLockRelease(&pipeann_control->lock);
	if (entry != NULL)
		ConditionVariableBroadcast(&entry->changed);
}

/*
 * Add a segment to an entry that this backend is loading or has its turn on.
 * False if there are too many: then its memory is given back.
 */
bool
PipeannRegistryAddSegment(PipeannAttachment *attachment,
						  const PipeannMapping *mapping)
{
	PipeannCacheEntry *entry = attachment->entry;
	int32		number;
	bool		ok;

	LWLockAcquire(&pipeann_control->lock, LW_EXCLUSIVE);
	number = pipeann_control->free_segment;
	ok = number != PIPEANN_NO_SEGMENT &&
		entry->nsegments < PIPEANN_MAX_ENTRY_SEGMENTS;
	if (ok)
	{
		pipeann_control->free_segment = pipeann_control->segments[number].next;
		pipeann_control->segments[number] = mapping->segment;
		pipeann_control->segments[number].next = PIPEANN_NO_SEGMENT;
		if (entry->last_segment == PIPEANN_NO_SEGMENT)
			entry->first_segment = number;
		else
			pipeann_control->segments[entry->last_segment].next = number;
		entry->last_segment = number;
		entry->nsegments++;
		entry->pages += mapping->segment.pages;
	}
	LWLockRelease(&pipeann_control->lock);
	if (ok)
		return true;
	if (mapping->dsm != NULL)
		dsm_detach(mapping->dsm);
	FreeSegment(&mapping->segment);
	return false;
}

/* Copy the segments of an entry that are not mapped yet; returns how many. */
static int
CopySegments(const PipeannAttachment *attachment, PipeannMapping *mappings)
{
	uint32		position = 0;
	int			count = 0;

	LWLockAcquire(&pipeann_control->lock, LW_SHARED);
	for (int32 i = attachment->entry->first_segment; i != PIPEANN_NO_SEGMENT;
		 i = pipeann_control->segments[i].next)
		if (position++ >= attachment->nmappings)
			mappings[count++] =
				(PipeannMapping) {.segment = pipeann_control->segments[i]};
	LWLockRelease(&pipeann_control->lock);
	return count;
}

/*
 * Map the segments that other backends added to a referenced entry. False if one
 * cannot be mapped.
 */
bool
PipeannRegistryMapSegments(PipeannAttachment *attachment)
{
	PipeannMapping mappings[PIPEANN_MAX_ENTRY_SEGMENTS];
	int			count;

	if (attachment->entry == NULL ||
		*(volatile uint32 *) &attachment->entry->nsegments ==
		attachment->nmappings)
		return true;
	count = CopySegments(attachment, mappings);
	for (int i = 0; i < count; i++)
	{
		if (!AttachSegment(&mappings[i]))
			return false;
		attachment->mappings[attachment->nmappings++] = mappings[i];
		attachment->model.bytes += (Size) mappings[i].segment.pages *
			FPM_PAGE_SIZE;
	}
	attachment->header = (PipeannCacheHeader *) attachment->mappings[0].address;
	return true;
}

static bool
TryTurn(PipeannAttachment *attachment)
{
	uint32		expected = 0;

	attachment->busy = pg_atomic_compare_exchange_u32(&attachment->entry->busy,
													  &expected, 1);
	return attachment->busy;
}

/*
 * Become the one backend that changes a referenced cache. Most turns last
 * microseconds: the reading of one code page.
 */
static void
TakeTurn(PipeannAttachment *attachment)
{
	PipeannCacheEntry *entry = attachment->entry;

	for (int i = 0; i < TURN_SPINS; i++)
	{
		if (pg_atomic_read_u32(&entry->busy) == 0 && TryTurn(attachment))
			return;
		SPIN_DELAY();
	}
	while (!TryTurn(attachment))
		ConditionVariableTimedSleep(&entry->changed, WAIT_TIMEOUT,
									WaitEvent());
	ConditionVariableCancelSleep();
}

/* Do it while nobody else changes the attachment's cache. */
void
PipeannInTurn(PipeannAttachment *attachment, PipeannChange change, void *arg)
{
	if (attachment->entry == NULL)
	{
		change(attachment, arg);
		return;
	}
	TakeTurn(attachment);
	PG_TRY();
	{
		change(attachment, arg);
	}
	PG_FINALLY();
	{
		EndTurn(attachment);
	}
	PG_END_TRY();
}

/* ---------- giving memory back ---------- */

static uint64
EvictablePages(void)
{
	uint64		pages = 0;

	for (int i = 0; i < PIPEANN_MAX_CACHE_ENTRIES; i++)
	{
		PipeannCacheEntry *entry = &pipeann_control->entries[i];

		if (IsUnused(entry))
			pages += entry->pages;
	}
	return pages;
}

static void
ReportEviction(TimestampTz last_used)
{
	static bool told = false;

	if (told || TimestampDifferenceExceeds(last_used, GetCurrentTimestamp(),
										   RECENTLY * 1000))
		return;
	told = true;
	ereport(LOG,
			(errmsg("pipeann indexes in use do not fit shared memory together: one made room for another"),
			 errhint("Consider raising \"pipeann.shared_memory\".")));
}

/*
 * Evict caches so that a segment of so many pages may fit. Evicts none if all
 * of them together would not make the room. Returns whether any went.
 */
bool
PipeannMakeRoom(uint32 pages, PipeannArenaResult why)
{
	uint64		freed = 0;
	uint64		limit = PipeannArenaLimit();
	TimestampTz newest = 0;

	LWLockAcquire(&pipeann_control->lock, LW_EXCLUSIVE);
	if (pipeann_control->used_pages + pages <= limit + EvictablePages())
	{
		PipeannCacheEntry *victim;

		while ((victim = FindVictim()) != NULL)
		{
			newest = (TimestampTz) pg_atomic_read_u64(&victim->last_used);
			freed += victim->pages;
			FreeEntry(victim);
			if (pipeann_control->used_pages + pages <= limit &&
				(why == PIPEANN_ARENA_FULL || freed >= pages))
				break;
		}
	}
	LWLockRelease(&pipeann_control->lock);
	if (freed > 0)
		ReportEviction(newest);
	return freed > 0;
}

/* For a pipeann.shared_memory that has been set to zero. */
void
PipeannEvictAll(void)
{
	while (Evict())
		;
}

static bool
PathIsGone(const char *path)
{
	struct stat st;

	if (stat(path, &st) == 0)
		return st.st_size == 0;
	return errno == ENOENT;
}

/*
 * A dropped relation's file is truncated at commit and unlinked at the next
 * checkpoint.
 */
bool
PipeannFileIsGone(const PipeannLocator *locator, int backend)
{
#if PG_VERSION_NUM >= 180000
	RelPathStr	path = relpathbackend(*locator, backend, MAIN_FORKNUM);

	return PathIsGone(path.str);
#else
	char	   *path = relpathbackend(*locator, backend, MAIN_FORKNUM);
	bool		gone = PathIsGone(path);

	pfree(path);
	return gone;
#endif
}

/*
 * Drop the caches of files that are gone, in all databases. The files are
 * looked at without a lock.
 */
void
PipeannRegistrySweep(void)
{
	for (int i = 0; i < PIPEANN_MAX_CACHE_ENTRIES; i++)
	{
		PipeannCacheEntry *entry = &pipeann_control->entries[i];
		PipeannLocator locator;
		uint64		generation;
		bool		ready;

		if (*(volatile uint32 *) &entry->state != PIPEANN_CACHE_ENTRY_READY)
			continue;
		LWLockAcquire(&pipeann_control->lock, LW_SHARED);
		ready = entry->state == PIPEANN_CACHE_ENTRY_READY;
		locator = entry->locator;
		generation = entry->generation;
		LWLockRelease(&pipeann_control->lock);
		if (ready && PipeannFileIsGone(&locator, PIPEANN_NO_BACKEND))
			PipeannRegistryDoom(entry, generation);
	}
}

/* ---------- no room ---------- */

/* How often the log says it. */
#define REPORT_MS 3600000

/* What pipeann.shared_memory has to be for all that is in it and for so much more. */
int
PipeannSuggestMemory(Size size)
{
	uint64		used = pipeann_control == NULL ? 0 : pipeann_control->used_pages;
	bool		reserved = pipeann_control != NULL &&
		pipeann_control->arena_pages > 0;
	uint64		setting = (uint64) pipeann_shared_memory;
	uint64		megabytes = PipeannArenaMegabytes(used + PipeannArenaPages(size));

	/* there should be room: the system has none, or it is in pieces */
	if (megabytes <= setting && !reserved)
		return errhint("Add \"pipeann\" to \"shared_preload_libraries\", so that the server reserves the memory when it starts.");
	if (megabytes <= setting)
		megabytes = setting +
			PipeannArenaMegabytes(PipeannArenaPages(size));
	return errhint("Set \"pipeann.shared_memory\", which is %d MB, to %llu MB or more%s.",
				   pipeann_shared_memory, (unsigned long long) megabytes,
				   reserved ? ", and restart the server" : "");
}

/* Say that there is no room for an index: once an hour, whichever backend it is. */
void
PipeannReportNoRoom(Relation index, Size size)
{
	uint64		now = (uint64) GetCurrentTimestamp();
	uint64		last = pg_atomic_read_u64(&pipeann_control->reported);

	if (!TimestampDifferenceExceeds(last, now, REPORT_MS) ||
		!pg_atomic_compare_exchange_u64(&pipeann_control->reported, &last, now))
		return;
	ereport(LOG,
			(errmsg("no shared memory for index \"%s\": this backend keeps its own copy of the codes",
					RelationGetRelationName(index)),
			 pipeann_arena_error[0] != '\0' ?
			 errdetail_internal("Last error: %s.", pipeann_arena_error) : 0,
			 PipeannSuggestMemory(size)));
}
