/*
 * registry.c
 *		Records of caches in shared memory: claiming, sharing, dropping.
 *
 * One backend loads a cache while the others that want it wait. Whatever
 * happens to it (an error, its termination), the record is given up by
 * PipeannRegistryLetGo() and those waiting try again.
 */
#include "cache/registry.h"

#include "access/xact.h"

/* Rounds of waiting for a short update to end before going to sleep. */
#define TURN_SPINS 100

/* Look again this often (ms) whatever was or was not signalled. */
#define WAIT_TIMEOUT 1000L

static bool
IsAlive(const PipeannRecord *record)
{
	return record->state == PIPEANN_RECORD_LOADING ||
		record->state == PIPEANN_RECORD_READY;
}

/*
 * A file's cache that new scans may use. Under control->lock.
 */
static PipeannRecord *
FindAlive(PipeannControl *control, const PipeannFile *file)
{
	for (int i = 0; i < PIPEANN_MAX_RECORDS; i++)
	{
		PipeannRecord *record = &control->records[i];

		if (IsAlive(record) && PipeannFileEquals(record->file, *file))
			return record;
	}
	return NULL;
}

static PipeannRecord *
FindFree(PipeannControl *control)
{
	for (int i = 0; i < PIPEANN_MAX_RECORDS; i++)
		if (control->records[i].state == PIPEANN_RECORD_FREE)
			return &control->records[i];
	return NULL;
}

/*
 * Under control->lock, exclusive. Each block leaves the lists before its
 * memory is given back, so that no failure could give it back twice.
 */
void
PipeannRecordFree(PipeannControl *control, PipeannRecord *record)
{
	PipeannHotForget(control, record);
	record->state = PIPEANN_RECORD_FREE;
	record->generation = 0;
	record->relid = InvalidOid;
	pg_atomic_write_u64(&control->frees,
						pg_atomic_read_u64(&control->frees) + 1);
	while (record->first_block != PIPEANN_NO_BLOCK)
	{
		int32		number = record->first_block;
		PipeannBlock block = control->blocks[number];

		record->first_block = block.next;
		control->blocks[number].next = control->free_block;
		control->free_block = number;
		PipeannArenaFree(control, &block);
	}
	record->last_block = PIPEANN_NO_BLOCK;
	record->nblocks = 0;
	record->pages = 0;
}

/*
 * Under control->lock, exclusive. The barrier orders this against a last user
 * that leaves: either we see that it has gone or it sees the new state.
 */
static void
DoomLocked(PipeannControl *control, PipeannRecord *record)
{
	record->state = PIPEANN_RECORD_DOOMED;
	pg_memory_barrier();
	if (pg_atomic_read_u32(&record->refcount) == 0)
		PipeannRecordFree(control, record);
}

void
PipeannRegistryDoom(PipeannControl *control, PipeannRecord *record,
					uint64 generation)
{
	LWLockAcquire(&control->lock, LW_EXCLUSIVE);
	if (record->generation == generation && IsAlive(record))
		DoomLocked(control, record);
	LWLockRelease(&control->lock);
	ConditionVariableBroadcast(&record->changed);
}

static void
Touch(PipeannRecord *record)
{
	uint64		now = (uint64) GetCurrentStatementStartTimestamp();

	if (pg_atomic_read_u64(&record->last_used) != now)
		pg_atomic_write_u64(&record->last_used, now);
}

static void
Hold(PipeannAttachment *attachment, PipeannRecord *record)
{
	pg_atomic_fetch_add_u32(&record->refcount, 1);
	attachment->record = record;
	attachment->generation = record->generation;
	attachment->referenced = true;
	Touch(record);
}

static void
StartLoading(PipeannControl *control, PipeannAttachment *attachment,
			 PipeannRecord *record)
{
	record->file = attachment->key.file;
	record->relid = attachment->relid;
	record->build_id = attachment->build_id;
	record->generation = ++control->generations;
	record->state = PIPEANN_RECORD_LOADING;
	pg_atomic_write_u32(&record->refcount, 0);
	pg_atomic_write_u32(&record->busy, 0);
	Hold(attachment, record);
	attachment->loading = true;
}

/*
 * One look at the records, under control->lock, exclusive. Sets *wait to a
 * record that another backend is loading. A cache of an earlier build of the
 * same file is of no use to anyone any more.
 */
static PipeannClaim
TryClaim(PipeannControl *control, PipeannAttachment *attachment, PipeannRecord **wait)
{
	PipeannRecord *record = FindAlive(control, &attachment->key.file);

	*wait = NULL;
	if (record != NULL && record->build_id != attachment->build_id)
	{
		DoomLocked(control, record);
		record = NULL;
	}
	if (record != NULL && record->state == PIPEANN_RECORD_READY)
	{
		Hold(attachment, record);
		return PIPEANN_CLAIM_READY;
	}
	if (record != NULL)
	{
		*wait = record;
		return PIPEANN_CLAIM_NONE;
	}
	record = FindFree(control);
	if (record == NULL)
		return PIPEANN_CLAIM_NONE;
	StartLoading(control, attachment, record);
	return PIPEANN_CLAIM_LOAD;
}

PipeannRecord *
PipeannRegistryVictim(PipeannControl *control)
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

bool
PipeannRegistryEvict(PipeannControl *control)
{
	PipeannRecord *victim;

	LWLockAcquire(&control->lock, LW_EXCLUSIVE);
	victim = PipeannRegistryVictim(control);
	if (victim != NULL)
		PipeannRecordFree(control, victim);
	LWLockRelease(&control->lock);
	return victim != NULL;
}

static bool
IsLoading(PipeannControl *control, PipeannRecord *record, uint64 generation)
{
	bool		result;

	LWLockAcquire(&control->lock, LW_SHARED);
	result = record->generation == generation &&
		record->state == PIPEANN_RECORD_LOADING;
	LWLockRelease(&control->lock);
	return result;
}

static void
WaitForLoader(PipeannControl *control, PipeannRecord *record,
			  uint64 generation)
{
	ConditionVariablePrepareToSleep(&record->changed);
	while (IsLoading(control, record, generation))
		ConditionVariableTimedSleep(&record->changed, WAIT_TIMEOUT,
									PipeannWaitEvent());
	ConditionVariableCancelSleep();
}

PipeannClaim
PipeannRegistryClaim(PipeannControl *control, PipeannAttachment *attachment, bool evict)
{
	for (;;)
	{
		PipeannRecord *wait;
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
 * Take a reference through an attachment that this backend made earlier. False when
 * the cache has been dropped since.
 */
bool
PipeannRegistryRef(PipeannControl *control, PipeannAttachment *attachment)
{
	PipeannRecord *record = attachment->record;
	bool		ok;

	LWLockAcquire(&control->lock, LW_SHARED);
	ok = record->generation == attachment->generation &&
		record->state == PIPEANN_RECORD_READY;
	if (ok)
		Hold(attachment, record);
	LWLockRelease(&control->lock);
	return ok;
}

/*
 * The cache is loaded. If it has been doomed meanwhile only this backend uses
 * it, as long as it needs it.
 */
void
PipeannRegistryPublish(PipeannControl *control, PipeannAttachment *attachment)
{
	PipeannRecord *record = attachment->record;

	LWLockAcquire(&control->lock, LW_EXCLUSIVE);
	if (record->state == PIPEANN_RECORD_LOADING)
		record->state = PIPEANN_RECORD_READY;
	attachment->loading = false;
	LWLockRelease(&control->lock);
	ConditionVariableBroadcast(&record->changed);
}

/*
 * End whatever this backend holds of the record: its turn, its loading, its
 * reference. Once the count is down the record may be another's at any moment.
 */
void
PipeannRegistryLetGo(PipeannControl *control, PipeannAttachment *attachment)
{
	PipeannRecord *record = attachment->record;

	if (attachment->busy)
		PipeannRegistryEndTurn(attachment);
	if (attachment->loading)
	{
		attachment->loading = false;
		PipeannRegistryDoom(control, record, attachment->generation);
	}
	if (!attachment->referenced)
		return;
	attachment->referenced = false;
	if (pg_atomic_sub_fetch_u32(&record->refcount, 1) > 0 ||
		*(volatile uint32 *) &record->state != PIPEANN_RECORD_DOOMED)
		return;
	LWLockAcquire(&control->lock, LW_EXCLUSIVE);
	if (record->generation == attachment->generation &&
		record->state == PIPEANN_RECORD_DOOMED &&
		pg_atomic_read_u32(&record->refcount) == 0)
		PipeannRecordFree(control, record);
	LWLockRelease(&control->lock);
}

/*
 * Whether there is a loaded cache of a file, and its size.
 */
bool
PipeannRegistryFind(PipeannControl *control, const PipeannFile *file,
					uint64 *generation, PipeannRecord **record,
					uint64 *pages)
{
	bool		ready = false;

	LWLockAcquire(&control->lock, LW_SHARED);
	*record = FindAlive(control, file);
	if (*record != NULL)
	{
		*generation = (*record)->generation;
		*pages = (*record)->pages;
		ready = (*record)->state == PIPEANN_RECORD_READY;
	}
	LWLockRelease(&control->lock);
	return ready;
}

/*
 * Add a block to a record that this backend is loading or has its turn on.
 * False when there are too many.
 */
bool
PipeannRegistryAddBlock(PipeannControl *control, PipeannAttachment *attachment,
						PipeannBlock *block)
{
	PipeannRecord *record = attachment->record;
	int32		number;
	bool		ok;

	block->next = PIPEANN_NO_BLOCK;
	LWLockAcquire(&control->lock, LW_EXCLUSIVE);
	number = control->free_block;
	ok = number != PIPEANN_NO_BLOCK &&
		record->nblocks < PIPEANN_MAX_RECORD_BLOCKS;
	if (ok)
	{
		control->free_block = control->blocks[number].next;
		control->blocks[number] = *block;
		if (record->last_block == PIPEANN_NO_BLOCK)
			record->first_block = number;
		else
			control->blocks[record->last_block].next = number;
		record->last_block = number;
		record->nblocks++;
		record->pages += block->pages;
	}
	LWLockRelease(&control->lock);
	return ok;
}

/*
 * Copy the blocks of a referenced record from number "from" on.
 */
int
PipeannRegistryBlocks(PipeannControl *control, const PipeannAttachment *attachment,
					  uint32 from, PipeannBlock *blocks)
{
	uint32		position = 0;
	int			count = 0;

	LWLockAcquire(&control->lock, LW_SHARED);
	for (int32 i = attachment->record->first_block; i != PIPEANN_NO_BLOCK;
		 i = control->blocks[i].next)
		if (position++ >= from)
			blocks[count++] = control->blocks[i];
	LWLockRelease(&control->lock);
	return count;
}

static bool
TryTurn(PipeannAttachment *attachment)
{
	uint32		expected = 0;

	attachment->busy = pg_atomic_compare_exchange_u32(&attachment->record->busy,
												&expected, 1);
	return attachment->busy;
}

/*
 * Become the one backend that changes a referenced cache. Most turns are over
 * in microseconds: one code page.
 */
void
PipeannRegistryTakeTurn(PipeannAttachment *attachment)
{
	PipeannRecord *record = attachment->record;

	for (int i = 0; i < TURN_SPINS; i++)
	{
		if (pg_atomic_read_u32(&record->busy) == 0 && TryTurn(attachment))
			return;
		SPIN_DELAY();
	}
	ConditionVariablePrepareToSleep(&record->changed);
	while (!TryTurn(attachment))
		ConditionVariableTimedSleep(&record->changed, WAIT_TIMEOUT,
									PipeannWaitEvent());
	ConditionVariableCancelSleep();
}

void
PipeannRegistryEndTurn(PipeannAttachment *attachment)
{
	attachment->busy = false;
	pg_atomic_exchange_u32(&attachment->record->busy, 0);
	ConditionVariableBroadcast(&attachment->record->changed);
}

bool
PipeannRegistryHasRelation(PipeannControl *control, Oid relid)
{
	bool		has = false;

	for (int i = 0; control != NULL && i < PIPEANN_MAX_RECORDS && !has; i++)
		has = control->records[i].relid == relid;
	return has;
}
