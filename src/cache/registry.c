/*
 * registry.c
 *		Entries of caches in shared memory: claiming, sharing, dropping.
 *
 * One backend loads a cache while others that need it wait. If that backend
 * fails or ends, PipeannRegistryLetGo() gives the entry up and the others try
 * again.
 */
#include "cache/registry.h"

#include "access/xact.h"

/* Rounds of spinning until a short update ends, before going to sleep. */
#define TURN_SPINS 100

/* Check again this often (ms), in case a signal was missed. */
#define WAIT_TIMEOUT 1000L

static bool
IsAlive(const PipeannCacheEntry *entry)
{
	return entry->state == PIPEANN_CACHE_ENTRY_LOADING ||
		entry->state == PIPEANN_CACHE_ENTRY_READY;
}

/* The cache of a file that new scans may use, or NULL. Under control->lock. */
static PipeannCacheEntry *
FindAlive(PipeannControl *control, const PipeannLocator *locator)
{
	for (int i = 0; i < PIPEANN_MAX_CACHE_ENTRIES; i++)
	{
		PipeannCacheEntry *entry = &control->entries[i];

		if (IsAlive(entry) && PipeannLocatorEquals(entry->locator, *locator))
			return entry;
	}
	return NULL;
}

static PipeannCacheEntry *
FindFree(PipeannControl *control)
{
	for (int i = 0; i < PIPEANN_MAX_CACHE_ENTRIES; i++)
		if (control->entries[i].state == PIPEANN_CACHE_ENTRY_FREE)
			return &control->entries[i];
	return NULL;
}

/*
 * Under control->lock, exclusive. Each segment leaves the list before its
 * memory is given back, so that no failure could give it back twice.
 */
void
PipeannCacheEntryFree(PipeannControl *control, PipeannCacheEntry *entry)
{
	PipeannHotForget(&control->hot, entry - control->entries);
	entry->state = PIPEANN_CACHE_ENTRY_FREE;
	entry->generation = 0;
	entry->relid = InvalidOid;
	pg_atomic_write_u64(&control->frees,
						pg_atomic_read_u64(&control->frees) + 1);
	while (entry->first_segment != PIPEANN_NO_SEGMENT)
	{
		int32		number = entry->first_segment;
		PipeannSegment segment = control->segments[number];

		entry->first_segment = segment.next;
		control->segments[number].next = control->free_segment;
		control->free_segment = number;
		PipeannArenaFree(control, &segment);
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
DoomLocked(PipeannControl *control, PipeannCacheEntry *entry)
{
	entry->state = PIPEANN_CACHE_ENTRY_DOOMED;
	pg_memory_barrier();
	if (pg_atomic_read_u32(&entry->refcount) == 0)
		PipeannCacheEntryFree(control, entry);
}

void
PipeannRegistryDoom(PipeannControl *control, PipeannCacheEntry *entry,
					uint64 generation)
{
	LWLockAcquire(&control->lock, LW_EXCLUSIVE);
	if (entry->generation == generation && IsAlive(entry))
		DoomLocked(control, entry);
	LWLockRelease(&control->lock);
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
StartLoading(PipeannControl *control, PipeannAttachment *attachment,
			 PipeannCacheEntry *entry)
{
	entry->locator = attachment->key.locator;
	entry->relid = attachment->relid;
	entry->build_id = attachment->build_id;
	entry->generation = ++control->generations;
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
TryClaim(PipeannControl *control, PipeannAttachment *attachment,
		 PipeannCacheEntry **wait)
{
	PipeannCacheEntry *entry = FindAlive(control, &attachment->key.locator);

	*wait = NULL;
	if (entry != NULL && entry->build_id != attachment->build_id)
	{
		DoomLocked(control, entry);
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
	entry = FindFree(control);
	if (entry == NULL)
		return PIPEANN_CLAIM_NONE;
	StartLoading(control, attachment, entry);
	return PIPEANN_CLAIM_LOAD;
}

PipeannCacheEntry *
PipeannRegistryVictim(PipeannControl *control)
{
	PipeannCacheEntry *victim = NULL;

	for (int i = 0; i < PIPEANN_MAX_CACHE_ENTRIES; i++)
	{
		PipeannCacheEntry *entry = &control->entries[i];

		if (entry->state == PIPEANN_CACHE_ENTRY_READY &&
			pg_atomic_read_u32(&entry->refcount) == 0 &&
			(victim == NULL || pg_atomic_read_u64(&entry->last_used) <
			 pg_atomic_read_u64(&victim->last_used)))
			victim = entry;
	}
	return victim;
}

bool
PipeannRegistryEvict(PipeannControl *control)
{
	PipeannCacheEntry *victim;

	LWLockAcquire(&control->lock, LW_EXCLUSIVE);
	victim = PipeannRegistryVictim(control);
	if (victim != NULL)
		PipeannCacheEntryFree(control, victim);
	LWLockRelease(&control->lock);
	return victim != NULL;
}

static bool
IsLoading(PipeannControl *control, PipeannCacheEntry *entry, uint64 generation)
{
	bool		result;

	LWLockAcquire(&control->lock, LW_SHARED);
	result = entry->generation == generation &&
		entry->state == PIPEANN_CACHE_ENTRY_LOADING;
	LWLockRelease(&control->lock);
	return result;
}

static void
WaitForLoader(PipeannControl *control, PipeannCacheEntry *entry,
			  uint64 generation)
{
	ConditionVariablePrepareToSleep(&entry->changed);
	while (IsLoading(control, entry, generation))
		ConditionVariableTimedSleep(&entry->changed, WAIT_TIMEOUT,
									PipeannWaitEvent());
	ConditionVariableCancelSleep();
}

PipeannClaim
PipeannRegistryClaim(PipeannControl *control, PipeannAttachment *attachment,
					 bool evict)
{
	for (;;)
	{
		PipeannCacheEntry *wait;
		PipeannClaim claim;
		uint64		generation = 0;

		LWLockAcquire(&control->lock, LW_EXCLUSIVE);
		claim = TryClaim(control, attachment, &wait);
		if (wait != NULL)
			generation = wait->generation;
		LWLockRelease(&control->lock);

		if (wait != NULL)
			WaitForLoader(control, wait, generation);
		else if (claim != PIPEANN_CLAIM_NONE || !evict ||
				 !PipeannRegistryEvict(control))
			return claim;
	}
}

/*
 * Take a reference through an attachment made earlier. False if the cache has
 * been dropped since.
 */
bool
PipeannRegistryReference(PipeannControl *control,
						 PipeannAttachment *attachment)
{
	PipeannCacheEntry *entry = attachment->entry;
	bool		ok;

	LWLockAcquire(&control->lock, LW_SHARED);
	ok = entry->generation == attachment->generation &&
		entry->state == PIPEANN_CACHE_ENTRY_READY;
	if (ok)
		TakeReference(attachment, entry);
	LWLockRelease(&control->lock);
	return ok;
}

/*
 * The cache is loaded. If it has been doomed meanwhile, only this backend uses
 * it.
 */
void
PipeannRegistryPublish(PipeannControl *control, PipeannAttachment *attachment)
{
	PipeannCacheEntry *entry = attachment->entry;

	LWLockAcquire(&control->lock, LW_EXCLUSIVE);
	if (entry->state == PIPEANN_CACHE_ENTRY_LOADING)
		entry->state = PIPEANN_CACHE_ENTRY_READY;
	attachment->loading = false;
	LWLockRelease(&control->lock);
	ConditionVariableBroadcast(&entry->changed);
}

/*
 * Give up the turn, the loading and the reference that this backend has. Once
 * the count is down the entry may become another cache's at any moment.
 */
void
PipeannRegistryLetGo(PipeannControl *control, PipeannAttachment *attachment)
{
	PipeannCacheEntry *entry = attachment->entry;

	if (attachment->busy)
		PipeannRegistryEndTurn(attachment);
	if (attachment->loading)
	{
		attachment->loading = false;
		PipeannRegistryDoom(control, entry, attachment->generation);
	}
	if (!attachment->referenced)
		return;
	attachment->referenced = false;
	if (pg_atomic_sub_fetch_u32(&entry->refcount, 1) > 0 ||
		*(volatile uint32 *) &entry->state != PIPEANN_CACHE_ENTRY_DOOMED)
		return;
	LWLockAcquire(&control->lock, LW_EXCLUSIVE);
	if (entry->generation == attachment->generation &&
		entry->state == PIPEANN_CACHE_ENTRY_DOOMED &&
		pg_atomic_read_u32(&entry->refcount) == 0)
		PipeannCacheEntryFree(control, entry);
	LWLockRelease(&control->lock);
}

/*
 * Whether a file has a loaded cache. *entry is NULL if it has no cache at all.
 */
bool
PipeannRegistryFind(PipeannControl *control, const PipeannLocator *locator,
					uint64 *generation, PipeannCacheEntry **entry,
					uint64 *pages)
{
	bool		ready = false;

	LWLockAcquire(&control->lock, LW_SHARED);
	*entry = FindAlive(control, locator);
	if (*entry != NULL)
	{
		*generation = (*entry)->generation;
		*pages = (*entry)->pages;
		ready = (*entry)->state == PIPEANN_CACHE_ENTRY_READY;
	}
	LWLockRelease(&control->lock);
	return ready;
}

/*
 * Add a segment to an entry that this backend is loading or has its turn on.
 * False if there are too many.
 */
bool
PipeannRegistryAddSegment(PipeannControl *control,
						  PipeannAttachment *attachment,
						  PipeannSegment *segment)
{
	PipeannCacheEntry *entry = attachment->entry;
	int32		number;
	bool		ok;

	segment->next = PIPEANN_NO_SEGMENT;
	LWLockAcquire(&control->lock, LW_EXCLUSIVE);
	number = control->free_segment;
	ok = number != PIPEANN_NO_SEGMENT &&
		entry->nsegments < PIPEANN_MAX_ENTRY_SEGMENTS;
	if (ok)
	{
		control->free_segment = control->segments[number].next;
		control->segments[number] = *segment;
		if (entry->last_segment == PIPEANN_NO_SEGMENT)
			entry->first_segment = number;
		else
			control->segments[entry->last_segment].next = number;
		entry->last_segment = number;
		entry->nsegments++;
		entry->pages += segment->pages;
	}
	LWLockRelease(&control->lock);
	return ok;
}

/* Copy the segments of a referenced entry, from number "from" on; how many. */
int
PipeannRegistryCopySegments(PipeannControl *control,
							const PipeannAttachment *attachment,
							uint32 from, PipeannSegment *segments)
{
	uint32		position = 0;
	int			count = 0;

	LWLockAcquire(&control->lock, LW_SHARED);
	for (int32 i = attachment->entry->first_segment; i != PIPEANN_NO_SEGMENT;
		 i = control->segments[i].next)
		if (position++ >= from)
			segments[count++] = control->segments[i];
	LWLockRelease(&control->lock);
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
void
PipeannRegistryTakeTurn(PipeannAttachment *attachment)
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

void
PipeannRegistryEndTurn(PipeannAttachment *attachment)
{
	attachment->busy = false;
	pg_atomic_exchange_u32(&attachment->entry->busy, 0);
	ConditionVariableBroadcast(&attachment->entry->changed);
}

bool
PipeannRegistryHasRelation(PipeannControl *control, Oid relid)
{
	bool		has = false;

	for (int i = 0; control != NULL && i < PIPEANN_MAX_CACHE_ENTRIES && !has;
		 i++)
		has = control->entries[i].relid == relid;
	return has;
}
