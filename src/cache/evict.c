/*
 * evict.c
 *		Giving memory back: the caches used longest ago when room is short, and
 *		those of files that are gone.
 */
#include "cache/registry.h"

#include <sys/stat.h>

#include "access/xact.h"
#include "common/relpath.h"

/* Evicting a cache that was used so recently (s) is reported. */
#define RECENTLY 60

/* A dropped file is truncated some time after its invalidation was seen. */
#define SWEEP_AGAIN_MS 1000

static int	sweeps_due = 0;
static TimestampTz invalidated_at = 0;

static uint64
EvictablePages(PipeannControl *control)
{
	uint64		pages = 0;

	for (int i = 0; i < PIPEANN_MAX_CACHE_ENTRIES; i++)
	{
		PipeannCacheEntry *entry = &control->entries[i];

		if (entry->state == PIPEANN_CACHE_ENTRY_READY &&
			pg_atomic_read_u32(&entry->refcount) == 0)
			pages += entry->pages;
	}
	return pages;
}

static uint64
UsedPages(PipeannControl *control)
{
	uint64		pages;

	LWLockAcquire(&control->arena_lock, LW_SHARED);
	pages = control->used_pages;
	LWLockRelease(&control->arena_lock);
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
PipeannMakeRoom(PipeannControl *control, uint32 pages, PipeannArenaResult why)
{
	uint64		freed = 0;
	uint64		limit = PipeannArenaLimit(control);
	TimestampTz newest = 0;

	LWLockAcquire(&control->lock, LW_EXCLUSIVE);
	if (UsedPages(control) + pages <= limit + EvictablePages(control))
	{
		PipeannCacheEntry *victim;

		while ((victim = PipeannRegistryVictim(control)) != NULL)
		{
			newest = (TimestampTz) pg_atomic_read_u64(&victim->last_used);
			freed += victim->pages;
			PipeannCacheEntryFree(control, victim);
			if (UsedPages(control) + pages <= limit &&
				(why == PIPEANN_ARENA_FULL || freed >= pages))
				break;
		}
	}
	LWLockRelease(&control->lock);
	if (freed > 0)
		ReportEviction(newest);
	return freed > 0;
}

/* For a pipeann.shared_memory that has been set to zero. */
void
PipeannEvictAll(PipeannControl *control)
{
	while (PipeannRegistryEvict(control))
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
	RelPathStr	path = GetRelationPath(locator->dbOid, locator->spcOid,
									   locator->relNumber, backend,
									   MAIN_FORKNUM);

	return PathIsGone(path.str);
#else
#if PG_VERSION_NUM >= 160000
	RelFileNumber number = locator->relNumber;
	Oid			dbid = locator->dbOid;
	Oid			spcid = locator->spcOid;
#else
	Oid			number = locator->relNode;
	Oid			dbid = locator->dbNode;
	Oid			spcid = locator->spcNode;
#endif
	char	   *path = GetRelationPath(dbid, spcid, number, backend,
									   MAIN_FORKNUM);
	bool		gone = PathIsGone(path);

	pfree(path);
	return gone;
#endif
}

typedef struct SweepItem
{
	PipeannCacheEntry *entry;
	PipeannLocator locator;
	uint64		generation;
} SweepItem;

static int
ListReadyCaches(PipeannControl *control, SweepItem *items)
{
	int			count = 0;

	LWLockAcquire(&control->lock, LW_SHARED);
	for (int i = 0; i < PIPEANN_MAX_CACHE_ENTRIES; i++)
	{
		PipeannCacheEntry *entry = &control->entries[i];

		if (entry->state != PIPEANN_CACHE_ENTRY_READY)
			continue;
		items[count].entry = entry;
		items[count].locator = entry->locator;
		items[count].generation = entry->generation;
		count++;
	}
	LWLockRelease(&control->lock);
	return count;
}

/*
 * Drop the caches of files that are gone, in all databases. The files are
 * looked at without a lock.
 */
void
PipeannRegistrySweep(PipeannControl *control)
{
	SweepItem	items[PIPEANN_MAX_CACHE_ENTRIES];
	int			count = ListReadyCaches(control, items);

	for (int i = 0; i < count; i++)
		if (PipeannFileIsGone(&items[i].locator, PIPEANN_NO_BACKEND))
			PipeannRegistryDoom(control, items[i].entry,
								items[i].generation);
}

void
PipeannSweepOnInvalidation(void)
{
	sweeps_due = 2;
	invalidated_at = GetCurrentTimestamp();
}

bool
PipeannSweepIsDue(void)
{
	bool		due = sweeps_due == 2 ||
		(sweeps_due == 1 &&
		 TimestampDifferenceExceeds(invalidated_at, GetCurrentTimestamp(),
									SWEEP_AGAIN_MS));

	if (due)
		sweeps_due--;
	return due;
}
