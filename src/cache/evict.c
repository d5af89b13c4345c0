/*
 * evict.c
 *		Giving memory back: caches least used when room is short, and those
 *		whose file is gone.
 */
#include "cache/registry.h"

#include <sys/stat.h>

#include "access/xact.h"
#include "common/relpath.h"

/* Evicting a cache used this recently (s) is worth telling. */
#define RECENTLY 60

/* A dropped file is truncated a little after its invalidation is seen. */
#define SWEEP_AGAIN_MS 1000

static int	sweeps_due = 0;
static TimestampTz invalidated_at = 0;

/*
 * The cache that nobody uses and that was used longest ago, or NULL. Under
 * control->lock, exclusive, so that no reference can be taken meanwhile.
 */
static PipeannRecord *
FindVictim(PipeannControl *control)
{
	PipeannRecord *victim = NULL;

	for (int i = 0; i < PIPEANN_MAX_RECORDS; i++)
	{
		PipeannRecord *record = &control->records[i];

		if (record->state == PIPEANN_RECORD_READY &&
			pg_atomic_read_u32(&record->refcount) == 0 &&
			(victim == NULL || pg_atomic_read_u64(&record->last_used) <
			 pg_atomic_read_u64(&victim->last_used)))
			victim = record;
	}
	return victim;
}

static uint64
EvictablePages(PipeannControl *control)
{
	uint64		pages = 0;

	for (int i = 0; i < PIPEANN_MAX_RECORDS; i++)
	{
		PipeannRecord *record = &control->records[i];

		if (record->state == PIPEANN_RECORD_READY &&
			pg_atomic_read_u32(&record->refcount) == 0)
			pages += record->pages;
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
TellEviction(TimestampTz last_used)
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
 * Evict so that a block of so many pages may fit: at least one cache, or none
 * when all of them together would not make the room.
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
		PipeannRecord *victim;

		while ((victim = FindVictim(control)) != NULL)
		{
			newest = (TimestampTz) pg_atomic_read_u64(&victim->last_used);
			freed += victim->pages;
			PipeannRecordFree(control, victim);
			if (UsedPages(control) + pages <= limit &&
				(why == PIPEANN_ARENA_FULL || freed >= pages))
				break;
		}
	}
	LWLockRelease(&control->lock);
	if (freed > 0)
		TellEviction(newest);
	return freed > 0;
}

/*
 * Evict one cache for the sake of its record.
 */
bool
PipeannEvictRecord(PipeannControl *control)
{
	PipeannRecord *victim;

	LWLockAcquire(&control->lock, LW_EXCLUSIVE);
	victim = FindVictim(control);
	if (victim != NULL)
		PipeannRecordFree(control, victim);
	LWLockRelease(&control->lock);
	return victim != NULL;
}

/*
 * For when pipeann.shared_memory has been set to zero.
 */
void
PipeannEvictAll(PipeannControl *control)
{
	while (PipeannEvictRecord(control))
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
PipeannFileIsGone(const PipeannFile *file, int backend)
{
#if PG_VERSION_NUM >= 180000
	RelPathStr	path = GetRelationPath(file->dbOid, file->spcOid,
									   file->relNumber, backend,
									   MAIN_FORKNUM);

	return PathIsGone(path.str);
#else
#if PG_VERSION_NUM >= 160000
	RelFileNumber number = file->relNumber;
	Oid			dbid = file->dbOid;
	Oid			spcid = file->spcOid;
#else
	Oid			number = file->relNode;
	Oid			dbid = file->dbNode;
	Oid			spcid = file->spcNode;
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
	PipeannRecord *record;
	PipeannFile file;
	uint64		generation;
} SweepItem;

static int
ListRecords(PipeannControl *control, SweepItem *items)
{
	int			count = 0;

	LWLockAcquire(&control->lock, LW_SHARED);
	for (int i = 0; i < PIPEANN_MAX_RECORDS; i++)
	{
		PipeannRecord *record = &control->records[i];

		if (record->state != PIPEANN_RECORD_READY)
			continue;
		items[count].record = record;
		items[count].file = record->file;
		items[count].generation = record->generation;
		count++;
	}
	LWLockRelease(&control->lock);
	return count;
}

/*
 * Drop the caches of files that are gone, of all databases. Files are looked
 * at without a lock.
 */
void
PipeannSweepRecords(PipeannControl *control)
{
	SweepItem	items[PIPEANN_MAX_RECORDS];
	int			count = ListRecords(control, items);

	for (int i = 0; i < count; i++)
		if (PipeannFileIsGone(&items[i].file, PIPEANN_NO_BACKEND))
			PipeannRegistryDoom(control, items[i].record,
								items[i].generation);
}

void
PipeannSweepOnInvalidation(void)
{
	sweeps_due = 2;
	invalidated_at = GetCurrentTimestamp();
}

static bool
SweepIsDue(void)
{
	if (sweeps_due == 0)
		return false;
	return sweeps_due == 2 ||
		TimestampDifferenceExceeds(invalidated_at, GetCurrentTimestamp(),
								   SWEEP_AGAIN_MS);
}

/*
 * After an invalidation of a relation that has a cache: look now, and once
 * more when a commit that was under way has surely truncated the file.
 */
void
PipeannSweepIfDue(void)
{
	static uint64 frees_seen = 0;
	PipeannControl *control = PipeannControlGet();
	bool		due = SweepIsDue();
	uint64		frees;

	if (due)
	{
		sweeps_due--;
		if (control != NULL)
			PipeannSweepRecords(control);
	}
	frees = control == NULL ? 0 : pg_atomic_read_u64(&control->frees);
	if (due || frees != frees_seen)
		PipeannAttachmentsClean(due);
	frees_seen = frees;
}
