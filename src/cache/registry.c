/*
 * registry.c
 *		Entries of caches in shared memory: claiming, sharing, dropping, and
 *		giving memory back: the caches used longest ago when room is short, and
 *		those of files that are gone.
 *
 * One backend loads a cache while others that need it wait. If that backend
 * fails or ends, PipeannRegistryLetGo() gives the entry up and the others try
 * again.
 */
#include "cache/registry.h"

#include <sys/stat.h>

#include "access/xact.h"
#include "common/relpath.h"

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
		PipeannArenaFree(&segment);
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
NoteUse(PipeannCacheEntry *entry)
{
	uint64		now = (uint64) GetCurrentStatementStartTimestamp();

	if (pg_atomic_read_u64(&entry->last_used) != now)
		pg_atomic_write_u64(&entry->last_used, now);
}

static void
TakeReference(PipeannAttachment *attachment, PipeannCacheEntry *entry)
{
	pg_atomic_fetch_add_u32(&entry->refcount, 1);
	attachment->entry = entry;
	attachment->generation = entry->generation;
	attachment->referenced = true;
	NoteUse(entry);
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

		if (entry->state == PIPEANN_CACHE_ENTRY_READY &&
			pg_atomic_read_u32(&entry->refcount) == 0 &&
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

static bool
IsLoading(PipeannCacheEntry *entry, uint64 generation)
{
	bool		result;

	LWLockAcquire(&pipeann_control->lock, LW_SHARED);
	result = entry->generation == generation &&
		entry->state == PIPEANN_CACHE_ENTRY_LOADING;
	LWLockRelease(&pipeann_control->lock);
	return result;
}

static void
WaitForLoader(PipeannCacheEntry *entry,
			  uint64 generation)
{
	ConditionVariablePrepareToSleep(&entry->changed);
	while (IsLoading(entry, generation))
		ConditionVariableTimedSleep(&entry->changed, WAIT_TIMEOUT,
									PipeannWaitEvent());
	ConditionVariableCancelSleep();
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
	for (;;)
	{
		PipeannCacheEntry *wait;
		PipeannClaim claim;
		uint64		generation = 0;

		LWLockAcquire(&pipeann_control->lock, LW_EXCLUSIVE);
		claim = TryClaim(attachment, &wait);
		if (wait != NULL)
			generation = wait->generation;
		LWLockRelease(&pipeann_control->lock);

		if (wait != NULL)
			WaitForLoader(wait, generation);
		else if (claim != PIPEANN_CLAIM_NONE || !evict ||
				 !Evict())
			return claim;
	}
}

/*
 * Take a reference through an attachment made earlier. False if the cache has
 * been dropped since.
 */
bool
PipeannRegistryReference(PipeannAttachment *attachment)
{
	PipeannCacheEntry *entry = attachment->entry;
	bool		ok;

	LWLockAcquire(&pipeann_control->lock, LW_SHARED);
	ok = entry->generation == attachment->generation &&
		entry->state == PIPEANN_CACHE_ENTRY_READY;
	if (ok)
		TakeReference(attachment, entry);
	LWLockRelease(&pipeann_control->lock);
	return ok;
}

/*
 * The cache is loaded. If it has been doomed meanwhile, only this backend uses
 * it.
 */
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
 * Give up the turn, the loading and the reference that this backend has. Once
 * the count is down the entry may become another cache's at any moment.
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
 * False if there are too many.
 */
bool
PipeannRegistryAddSegment(PipeannAttachment *attachment,
						  const PipeannSegment *segment)
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
		pipeann_control->segments[number] = *segment;
		pipeann_control->segments[number].next = PIPEANN_NO_SEGMENT;
		if (entry->last_segment == PIPEANN_NO_SEGMENT)
			entry->first_segment = number;
		else
			pipeann_control->segments[entry->last_segment].next = number;
		entry->last_segment = number;
		entry->nsegments++;
		entry->pages += segment->pages;
	}
	LWLockRelease(&pipeann_control->lock);
	return ok;
}

/* Copy the segments of a referenced entry, from number "from" on; how many. */
int
PipeannRegistryCopySegments(const PipeannAttachment *attachment, uint32 from,
							PipeannMapping *mappings)
{
	uint32		position = 0;
	int			count = 0;

	LWLockAcquire(&pipeann_control->lock, LW_SHARED);
	for (int32 i = attachment->entry->first_segment; i != PIPEANN_NO_SEGMENT;
		 i = pipeann_control->segments[i].next)
		if (position++ >= from)
			mappings[count++] =
				(PipeannMapping) {.segment = pipeann_control->segments[i]};
	LWLockRelease(&pipeann_control->lock);
	return count;
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
	ConditionVariablePrepareToSleep(&entry->changed);
	while (!TryTurn(attachment))
		ConditionVariableTimedSleep(&entry->changed, WAIT_TIMEOUT,
									PipeannWaitEvent());
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

		if (entry->state == PIPEANN_CACHE_ENTRY_READY &&
			pg_atomic_read_u32(&entry->refcount) == 0)
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
	if (PipeannArenaUsed() + pages <= limit + EvictablePages())
	{
		PipeannCacheEntry *victim;

		while ((victim = FindVictim()) != NULL)
		{
			newest = (TimestampTz) pg_atomic_read_u64(&victim->last_used);
			freed += victim->pages;
			FreeEntry(victim);
			if (PipeannArenaUsed() + pages <= limit &&
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
