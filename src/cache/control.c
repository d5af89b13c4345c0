/*
 * control.c
 *		The control struct: finding it, or making it if the library was not
 *		preloaded.
 */
#include "cache/registry.h"

#include "utils/wait_event.h"

static PipeannControl *attached = NULL;
static bool unavailable = false;

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

PipeannControl *
PipeannControlFindOrMake(void)
{
	bool		found;
	PipeannControl *control = ShmemInitStruct("pipeann",
											  sizeof(PipeannControl), &found);

	if (!found)
		InitControl(control);
	return control;
}

void
PipeannControlAttach(PipeannControl *control)
{
	LWLockRegisterTranche(control->tranche_id, "pipeann");
	attached = control;
	unavailable = false;
}

/*
 * The server keeps some 100 kB in reserve for libraries that are not preloaded.
 * If that is gone, or another version of this library left a struct that
 * differs, there are only private copies.
 */
static PipeannControl *
TryFindOrMake(void)
{
	PipeannControl *volatile control = NULL;
	MemoryContext context = CurrentMemoryContext;
	uint32		holdoff;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	holdoff = InterruptHoldoffCount;
	PG_TRY();
	{
		control = PipeannControlFindOrMake();
	}
	PG_CATCH();
	{
		/* ereport() forgot that the lock holds interrupts off */
		InterruptHoldoffCount = holdoff;
		MemoryContextSwitchTo(context);
		FlushErrorState();
	}
	PG_END_TRY();
	LWLockRelease(AddinShmemInitLock);
	return control;
}

PipeannControl *
PipeannControlAttached(void)
{
	return attached;
}

PipeannControl *
PipeannControlGet(void)
{
	PipeannControl *control;

	if (likely(attached != NULL) || unavailable)
		return attached;
	control = TryFindOrMake();
	if (control != NULL && control->layout == PIPEANN_CONTROL_LAYOUT)
	{
		PipeannControlAttach(control);
		return attached;
	}
	unavailable = true;
	ereport(LOG,
			(errmsg("pipeann has no shared memory: each backend keeps copies of its own"),
			 errhint("Add \"pipeann\" to \"shared_preload_libraries\" and restart the server.")));
	return NULL;
}

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
