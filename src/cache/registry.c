/*
 * registry.c
 *		Caches in shared memory: entries of caches, which are claimed, shared
 *		and dropped; how the memory is shared. Memory is for caches in use. A
 *		cache that finds no room has those dropped that were not used of late,
 *		and if it has less than its share, one that has more. Dropped caches
 *		are loaded again as searches need them, and as long as some cache finds
 *		no room none gets more than its share.
 */
#include "cache/registry.h"

/* ---------- entries ---------- */

/* The cache of a file that new scans may use, or NULL. Under control->lock. */
static PipeannCacheEntry *
FindAlive(const PipeannLocator *locator)
{
	for (uint32 i = 0; i < pipeann_control->nentries; i++)
	{
		PipeannCacheEntry *entry = &pipeann_control->entries[i];

		if (entry->state == PIPEANN_CACHE_ENTRY_READY && PipeannLocatorEquals(entry->locator, *locator))
			return entry;
	}
	return NULL;
}

/* Give back a cache's memory; parts that cannot be mapped are lost. */
static void
GiveBack(PipeannCacheEntry *entry)
{
	PipeannArena *arena = &pipeann_control->arena;
	PipeannCacheHeader *header;
	pg_atomic_uint64 *chunks;
	PipeannMapMemory *map;
	PipeannArenaPlace place;
	PipeannArenaPlace former;

	if (entry->root == PIPEANN_NOWHERE)
		return;
	header = (PipeannCacheHeader *) PipeannArenaAt(arena, entry->root);
	if (header == NULL)
		return;
	chunks = PipeannRootAt(header, header->chunks);
	for (uint32 i = 0; i < header->ids / PIPEANN_CHUNK_NODES; i++)
		if (pg_atomic_read_u64(&chunks[i]) != PIPEANN_NOWHERE)
			PipeannArenaGive(arena, pg_atomic_read_u64(&chunks[i]), header->chunk_pages);
	for (place = pg_atomic_read_u64(&header->row_map);
		 place != PIPEANN_NOWHERE &&
		 (map = (PipeannMapMemory *) PipeannArenaAt(arena, place)) != NULL;
		 place = former)
	{
		former = map->former;
		PipeannArenaGive(arena, place, map->pages);
	}
	if (pg_atomic_read_u64(&header->entry_graph) != PIPEANN_NOWHERE)
		PipeannArenaGive(arena, pg_atomic_read_u64(&header->entry_graph), header->entry_pages);
	PipeannArenaGive(arena, entry->root, entry->root_pages);
}

/* Free the entries that are doomed and have no users, with their memory; whether any was. */
static bool
Reap(void)
{
	bool		any = false;

	for (uint32 i = 0; i < pipeann_control->nentries; i++)
	{
		PipeannCacheEntry *entry = &pipeann_control->entries[i];
		bool		mine;

		if (*(volatile uint32 *) &entry->state != PIPEANN_CACHE_ENTRY_DOOMED)
			continue;
		LWLockAcquire(&pipeann_control->lock, LW_EXCLUSIVE);
		mine = entry->state == PIPEANN_CACHE_ENTRY_DOOMED &&
			pg_atomic_read_u32(&entry->refcount) == 0;
		if (mine)
			entry->state = PIPEANN_CACHE_ENTRY_GOING;
		LWLockRelease(&pipeann_control->lock);
		if (!mine)
			continue;
		HOLD_INTERRUPTS();
		GiveBack(entry);
		LWLockAcquire(&pipeann_control->lock, LW_EXCLUSIVE);
		entry->generation = 0;
		entry->root = PIPEANN_NOWHERE;
		pg_atomic_write_u64(&entry->pages, 0);
		entry->state = PIPEANN_CACHE_ENTRY_FREE;
		pg_atomic_fetch_add_u64(&pipeann_control->frees, 1);
		LWLockRelease(&pipeann_control->lock);
		RESUME_INTERRUPTS();
		any = true;
	}
	return any;
}

/* ---------- using entries ---------- */

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

/*
 * Under control->lock, exclusive: the entry for the attachment's index, or NULL if none is
 * free. The cache of an earlier build of the file, or of the relation's former file, is dropped.
 */
static PipeannCacheEntry *
FindOrTake(const PipeannAttachment *attachment)
{
	PipeannCacheEntry *alive = FindAlive(&attachment->locator);
	PipeannCacheEntry *entry = NULL;

	if (alive != NULL && alive->build_id == attachment->build_id)
		return alive;
	for (uint32 i = 0; i < pipeann_control->nentries; i++)
	{
		PipeannCacheEntry *other = &pipeann_control->entries[i];

		if (other == alive ||
			(other->database == MyDatabaseId && other->relid == attachment->relid))
		{
			if (other->state == PIPEANN_CACHE_ENTRY_READY)
				other->state = PIPEANN_CACHE_ENTRY_DOOMED;
			/* its share is for the new cache */
			pg_atomic_write_u64(&other->last_used, 0);
		}
		if (other->state == PIPEANN_CACHE_ENTRY_FREE &&
			(entry == NULL || pg_atomic_read_u64(&other->last_used) <
			 pg_atomic_read_u64(&entry->last_used)))
			entry = other;
	}
	if (entry != NULL)
	{
		entry->locator = attachment->locator;
		entry->database = MyDatabaseId;
		entry->relid = attachment->relid;
		entry->build_id = attachment->build_id;
		entry->generation = ++pipeann_control->generations;
		entry->state = PIPEANN_CACHE_ENTRY_READY;
		entry->wanted = 0;
	}
	return entry;
}

/* Drop the unused cache that was used least recently, and not since `before`. False if there is none. */
static bool
DropUnused(TimestampTz before)
{
	PipeannCacheEntry *victim = NULL;
	uint64		oldest = (uint64) before;

	/* exclusive, so that no reference can be taken meanwhile */
	LWLockAcquire(&pipeann_control->lock, LW_EXCLUSIVE);
	for (uint32 i = 0; i < pipeann_control->nentries; i++)
	{
		PipeannCacheEntry *entry = &pipeann_control->entries[i];

		if (entry->state == PIPEANN_CACHE_ENTRY_READY &&
			pg_atomic_read_u32(&entry->refcount) == 0 &&
			pg_atomic_read_u64(&entry->last_used) < oldest)
		{
			victim = entry;
			oldest = pg_atomic_read_u64(&entry->last_used);
		}
	}
	if (victim != NULL)
		victim->state = PIPEANN_CACHE_ENTRY_DOOMED;
	LWLockRelease(&pipeann_control->lock);
	return Reap();
}

/*
 * Take a reference to the cache of the attachment's file, or to a new entry
 * for it, for which another cache may be dropped. False if no entry is free.
 */
bool
PipeannRegistryClaim(PipeannAttachment *attachment)
{
	PipeannCacheEntry *entry;

	(void) Reap();
	do
	{
		LWLockAcquire(&pipeann_control->lock, LW_EXCLUSIVE);
		entry = FindOrTake(attachment);
		if (entry != NULL)
			TakeReference(attachment, entry);
		LWLockRelease(&pipeann_control->lock);
	} while (entry == NULL && DropUnused(PG_INT64_MAX));
	return entry != NULL;
}

/* The entry of a file's loaded cache, or NULL; it may be dropped at any moment. */
PipeannCacheEntry *
PipeannRegistryFind(const PipeannLocator *locator, uint64 build_id)
{
	PipeannCacheEntry *entry;

	LWLockAcquire(&pipeann_control->lock, LW_SHARED);
	entry = FindAlive(locator);
	if (entry != NULL && (entry->root == PIPEANN_NOWHERE || entry->build_id != build_id))
		entry = NULL;
	LWLockRelease(&pipeann_control->lock);
	return entry;
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

/*
 * Give up the reference that this backend has, if it has one. After that the
 * entry may become another cache's at any moment.
 */
void
PipeannRegistryLetGo(PipeannAttachment *attachment)
{
	if (attachment->referenced)
		pg_atomic_sub_fetch_u32(&attachment->entry->refcount, 1);
	attachment->referenced = false;
}

/* Drop the cache of a file, if there is one. Its memory is given back when it has no users. */
void
PipeannRegistryForget(const PipeannLocator *locator)
{
	PipeannCacheEntry *entry;

	LWLockAcquire(&pipeann_control->lock, LW_EXCLUSIVE);
	entry = FindAlive(locator);
	if (entry != NULL)
	{
		entry->state = PIPEANN_CACHE_ENTRY_DOOMED;
		pg_atomic_write_u64(&entry->last_used, 0);
	}
	LWLockRelease(&pipeann_control->lock);
	(void) Reap();
}

/* ---------- shares of the memory ---------- */

/* A cache not used for this time (ms) has no share; want of memory is forgotten after it, too. */
#define ACTIVE_MS 60000

/* A cache is dropped for others only if it was not used for this time (ms), ... */
#define UNUSED_MS 5000

/* ... or has more than its share: then no more often than this (ms), except for a root. */
#define DROP_MS 1000

static TimestampTz
Ago(int64 ms)
{
	return GetCurrentTimestamp() - ms * 1000;
}

/*
 * Whether a cache was used of late. One that was dropped since keeps its share, or others would
 * take all of it before its next search.
 */
static bool
IsActive(PipeannCacheEntry *entry, TimestampTz since)
{
	return pg_atomic_read_u32(&entry->refcount) > 0 ||
		(TimestampTz) pg_atomic_read_u64(&entry->last_used) >= since;
}

/*
 * Pages that each cache in use may have if there are not enough for all: the same for
 * each, except that caches that want less leave the rest to others. Under the lock.
 */
static uint64
Share(void)
{
	TimestampTz since = Ago(ACTIVE_MS);
	uint64		share = PipeannArenaLimit(&pipeann_control->arena) / pipeann_control->nentries;

	for (;;)
	{
		uint64		left = PipeannArenaLimit(&pipeann_control->arena);
		uint32		n = 0;

		for (uint32 i = 0; i < pipeann_control->nentries; i++)
		{
			PipeannCacheEntry *entry = &pipeann_control->entries[i];

			if (!IsActive(entry, since))
				continue;
			if (entry->wanted > share)
				n++;
			else
				left -= Min(left, entry->wanted);
		}
		if (n == 0 || left / n <= share)
			return n == 0 ? PipeannArenaLimit(&pipeann_control->arena) : share;
		share = left / n;
	}
}

/* Whether a cache may take more: not beyond its share while another one finds no room. */
static bool
MayTake(PipeannCacheEntry *entry, uint64 pages)
{
	TimestampTz refused = (TimestampTz) pg_atomic_read_u64(&pipeann_control->refused);
	bool		may;

	if (refused < Ago(ACTIVE_MS))
		return true;
	LWLockAcquire(&pipeann_control->lock, LW_SHARED);
	may = pg_atomic_read_u64(&entry->pages) + pages <= Share();
	LWLockRelease(&pipeann_control->lock);
	return may;
}

/*
 * Make room for pages of a cache: drop one that was not used of late, or else,
 * if this one has less than its share, the one that has most, whose memory is
 * freed when its searches end. Returns whether there is more room now.
 */
static bool
MakeRoom(PipeannCacheEntry *entry, uint64 pages)
{
	uint64		now = (uint64) GetCurrentTimestamp();
	uint64		dropped = pg_atomic_read_u64(&pipeann_control->dropped);
	PipeannCacheEntry *victim = NULL;
	uint64		share;

	if (Reap() || DropUnused(Ago(UNUSED_MS)))
		return true;
	LWLockAcquire(&pipeann_control->lock, LW_EXCLUSIVE);
	share = Share();
	if (pg_atomic_read_u64(&entry->pages) + pages <= share)
		for (uint32 i = 0; i < pipeann_control->nentries; i++)
		{
			PipeannCacheEntry *other = &pipeann_control->entries[i];

			if (other != entry && other->state == PIPEANN_CACHE_ENTRY_READY &&
				pg_atomic_read_u64(&other->pages) >
				(victim == NULL ? share : pg_atomic_read_u64(&victim->pages)))
				victim = other;
		}
	if (victim != NULL)
	{
		pg_atomic_write_u64(&pipeann_control->refused, now);
		/* without a root in memory each backend would have its own */
		if (pg_atomic_read_u64(&entry->pages) == 0 ||
			TimestampDifferenceExceeds((TimestampTz) dropped, (TimestampTz) now, DROP_MS))
		{
			pg_atomic_write_u64(&pipeann_control->dropped, now);
			victim->state = PIPEANN_CACHE_ENTRY_DOOMED;
		}
	}
	LWLockRelease(&pipeann_control->lock);
	return victim != NULL && Reap();
}

/* Take contiguous pages for a cache that this backend uses, or return PIPEANN_NOWHERE. */
PipeannArenaPlace
PipeannRegistryTake(PipeannCacheEntry *entry, uint64 pages)
{
	PipeannArenaPlace place = PIPEANN_NOWHERE;

	if (pages > PipeannArenaLimit(&pipeann_control->arena) || !MayTake(entry, pages))
		return PIPEANN_NOWHERE;
	do
		place = PipeannArenaTake(&pipeann_control->arena, pages);
	while (place == PIPEANN_NOWHERE && MakeRoom(entry, pages));
	if (place != PIPEANN_NOWHERE)
		pg_atomic_fetch_add_u64(&entry->pages, pages);
	return place;
}

/* Give back pages of a cache that this backend uses, which no other backend has seen. */
void
PipeannRegistryGive(PipeannCacheEntry *entry, PipeannArenaPlace place, uint64 pages)
{
	PipeannArenaGive(&pipeann_control->arena, place, pages);
	pg_atomic_fetch_sub_u64(&entry->pages, pages);
}

/* After pipeann.shared_memory was made smaller: drop caches until the rest fits. */
void
PipeannRegistryShrink(void)
{
	uint64		left = PipeannArenaLimit(&pipeann_control->arena);

	LWLockAcquire(&pipeann_control->lock, LW_EXCLUSIVE);
	for (uint32 i = 0; i < pipeann_control->nentries; i++)
	{
		PipeannCacheEntry *entry = &pipeann_control->entries[i];
		uint64		pages = pg_atomic_read_u64(&entry->pages);

		if (entry->state == PIPEANN_CACHE_ENTRY_READY && pages <= left)
			left -= pages;
		else if (entry->state == PIPEANN_CACHE_ENTRY_READY)
			entry->state = PIPEANN_CACHE_ENTRY_DOOMED;
	}
	LWLockRelease(&pipeann_control->lock);
	(void) Reap();
}

/* How often that is logged, at most. */
#define REPORT_MS 3600000

/*
 * Say that the codes of an index are not all in memory: once an hour for all
 * backends and indexes.
 */
void
PipeannReportNoRoom(const char *index)
{
	uint64		now = (uint64) GetCurrentTimestamp();
	uint64		last = pg_atomic_read_u64(&pipeann_control->reported);
	uint64		wanted = 0;

	if (!TimestampDifferenceExceeds((TimestampTz) last, (TimestampTz) now, REPORT_MS) ||
		!pg_atomic_compare_exchange_u64(&pipeann_control->reported, &last, now))
		return;
	LWLockAcquire(&pipeann_control->lock, LW_SHARED);
	for (uint32 i = 0; i < pipeann_control->nentries; i++)
		if (IsActive(&pipeann_control->entries[i], Ago(ACTIVE_MS)))
			wanted += pipeann_control->entries[i].wanted;
	LWLockRelease(&pipeann_control->lock);
	wanted = PipeannMegabytes(wanted * FPM_PAGE_SIZE);
	ereport(LOG,
			(errmsg("codes of index \"%s\" are not all in memory: searches read some from its pages",
					index),
			 pipeann_arena_error[0] != '\0' ?
			 errdetail_internal("Last error: %s.", pipeann_arena_error) : 0,
			 wanted <= (uint64) pipeann_shared_memory ?
			 errhint("Add \"pipeann\" to \"shared_preload_libraries\", so that the server reserves the memory when it starts.") :
			 errhint("Set \"pipeann.shared_memory\", which is %d MB, to %llu MB or more, and reload.",
					 pipeann_shared_memory, (unsigned long long) wanted)));
}
