/*
 * parallel.c
 *		Teams of several processes for CREATE INDEX, and what they share.
 *
 * Members meet at a barrier. It is set up when all launched workers have
 * attached, as only then their number is known; they wait for that. An error
 * of a worker reaches the leader at the barrier or wherever it checks for
 * interrupts; an error of the leader ends the workers.
 *
 * maintenance_work_mem is the limit of all members together for the memory
 * that they share. What does not fit goes to temporary files that are mapped,
 * and so does memory that the system refuses: a container's /dev/shm is small.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "base/attempt.h"
#include "base/parallel.h"
#include "catalog/index.h"
#include "commands/tablespace.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "optimizer/optimizer.h"
#include "optimizer/paths.h"
#include "pgstat.h"
#include "port/atomics.h"
#include "storage/barrier.h"
#include "storage/buffile.h"
#include "storage/bufmgr.h"
#include "storage/condition_variable.h"
#include "storage/dsm.h"
#include "storage/fd.h"
#include "storage/pg_shmem.h"
#include "storage/sharedfileset.h"
#include "tcop/tcopprot.h"
#include "utils/backend_status.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"

#define KEY_SHARED UINT64CONST(0x5050000000000001)
#define KEY_SCAN UINT64CONST(0x5050000000000002)
#define KEY_QUERY UINT64CONST(0x5050000000000003)

/* What a worker has used, for the leader's statistics. */
typedef struct Usage
{
	BufferUsage buffers;
	WalUsage	wal;
} Usage;

/* The allocation in progress, in memory that the members share. */
struct PipeannShare
{
	dsm_handle	handle;			/* of a segment, or invalid */
	uint32		file;			/* else the number of a file */
};

struct PipeannParallelShared
{
	Oid			heap;
	Oid			index;
	bool		concurrent;
	BlockNumber nblocks;
	pg_atomic_uint32 members;	/* 0 until the team begins */
	ConditionVariable begun;
	Barrier		barrier;
	PipeannTeamShared team;
	SharedFileSet files;

	PipeannShare share[2];
	Usage		used[FLEXIBLE_ARRAY_MEMBER];	/* by each worker */
};

static uint32
BuildWaitEvent(void)
{
#if PG_VERSION_NUM >= 170000
	static uint32 event = 0;

	if (event == 0)
		event = WaitEventExtensionNew("PipeannBuild");
	return event;
#else
	return PG_WAIT_EXTENSION;
#endif
}

/* ---------- shared memory that is a temporary file ---------- */

/*
 * With many nodes a build's arrays do not fit in maintenance_work_mem. Then
 * they are mapped from PostgreSQL's temporary files, of which the operating
 * system keeps in memory as much as it can. Nodes are numbered so that near
 * ones follow one another (graph/clusters.c), and the build goes through them
 * in that order. So it works on a part of a file at a time.
 *
 * A file is written before it is mapped: so a full disk is an error, not a
 * signal, temp_file_limit applies, and the bytes are in the statistics.
 */

/* An allocation. That of a file lives as long as the callback. */
typedef struct Allocation
{
	void	   *at;
	Size		size;
	Size		counted;		/* bytes counted in s->used; 0 for a file */
	dsm_segment *segment;		/* or */
	bool		mapped;			/* a file, or private memory */
	File		file;
	uint32		number;			/* the file's */
	MemoryContextCallback callback;
} Allocation;

#define BLOCK (1024 * 1024)

static void
FileName(char *name, uint32 number)
{
	snprintf(name, MAXPGPATH, "pipeann.%u", number);
}

static void
Unmap(void *arg)
{
	Allocation *a = arg;

	if (a->mapped)
		munmap(a->at, a->size);
	a->mapped = false;
}

static void
Map(Allocation *a, File file, uint32 number)
{
	a->at = mmap(NULL, a->size, PROT_READ | PROT_WRITE, MAP_SHARED,
				 FileGetRawDesc(file), 0);
	if (a->at == MAP_FAILED)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not map file \"%s\": %m", FilePathName(file))));
	a->mapped = true;
	a->file = file;
	a->number = number;
	a->callback.func = Unmap;
	a->callback.arg = a;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &a->callback);
}

/* ---------- allocations ---------- */

/* Less than this is not worth a file, nor counting. */
#define SMALL (64 * 1024)

/* If memory is short, one part in WORK_PART of it is for everything but work arrays. */
#define WORK_PART 3

static void
NoticeFiles(PipeannShares *s, const char *reason)
{
	if (s->noticed)
		return;
	s->noticed = true;
	ereport(NOTICE,
			(errmsg("pipeann index build uses temporary files"),
			 errdetail("%s", reason)));
}

static void
NoticeLimit(PipeannShares *s)
{
	NoticeFiles(s, psprintf("What it needs does not fit maintenance_work_mem, %d MB.",
							maintenance_work_mem / 1024));
}

/* Bytes of memory left; if it is short, most of it is for work arrays. */
static Size
SharesRoom(const PipeannShares *s, bool work)
{
	Size		limit = s->short_of && !work ? s->limit / WORK_PART : s->limit;

	return s->used < limit ? limit - s->used : 0;
}

static bool
Fits(const PipeannShares *s, Size size, bool work)
{
	return size <= SMALL || size <= SharesRoom(s, work);
}

/*
 * Make a file of zeros and map it. An error if the disk is full, or temp_file_limit
 * forbids it.
 */
static void
MakeFile(PipeannShares *s, Allocation *a)
{
	uint32		number = s->nfiles++;
	char		name[MAXPGPATH];
	File		file;
	char	   *zeros = palloc0(BLOCK);

	FileName(name, number);
	PrepareTempTablespaces();
	file = s->files != NULL ? FileSetCreate(s->files, name) :
		OpenTemporaryFile(false);
	for (Size done = 0; done < a->size; done += BLOCK)
	{
		int			length = (int) Min(a->size - done, BLOCK);

		CHECK_FOR_INTERRUPTS();
		errno = 0;
		if (FileWrite(file, zeros, length, (off_t) done,
					  WAIT_EVENT_BUFFILE_WRITE) == length)
			continue;
		if (errno == 0)
			errno = ENOSPC;
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not write to file \"%s\": %m",
						FilePathName(file))));
	}
	pfree(zeros);
	Map(a, file, number);
}

/* Make a segment if that is allowed, else a file. Only the leader calls this. */
static void
Make(PipeannShares *s, Allocation *a, bool work)
{
	PipeannShare *share = &s->share[s->turn];
	char		error[256];

	if (!Fits(s, a->size, work))
		NoticeLimit(s);
	else
	{
		a->segment = PipeannAttemptSegment(DSM_HANDLE_INVALID, a->size, error,
										   sizeof(error));
		/* a pending cancel makes the system call fail, too */
		CHECK_FOR_INTERRUPTS();
		if (a->segment == NULL)
			NoticeFiles(s, psprintf("Dynamic shared memory is not available: %s.",
									error));
	}
	share->handle = DSM_HANDLE_INVALID;
	if (a->segment == NULL)
	{
		MakeFile(s, a);
		share->file = a->number;
		return;
	}
	/* the mapping is this transaction's, so that an error ends it */
	dsm_unpin_mapping(a->segment);
	a->at = dsm_segment_address(a->segment);
	share->handle = dsm_segment_handle(a->segment);
	/* memory that the server preallocates is reused, so it is not zeroed */
	if (min_dynamic_shared_memory > 0)
		memset(a->at, 0, a->size);
}

/* The others attach to it. */
static void
Attach(PipeannShares *s, Allocation *a)
{
	PipeannShare *share = &s->share[s->turn];
	char		name[MAXPGPATH];

	if (share->handle == DSM_HANDLE_INVALID)
	{
		FileName(name, share->file);
		Map(a, FileSetOpen(s->files, name, O_RDWR), share->file);
		return;
	}
	a->segment = dsm_attach(share->handle);
	if (a->segment == NULL)
		elog(ERROR, "could not attach to a dynamic shared memory segment");
	a->at = dsm_segment_address(a->segment);
}

/* ---------- the team's callbacks ---------- */

static void
Meet(PipeannTeam *team)
{
	PipeannParallel *p = (PipeannParallel *) team;

	(void) BarrierArriveAndWait(&p->shared->barrier, BuildWaitEvent());
}

static PipeannShares *
SharesOf(PipeannTeam *team)
{
	return &((PipeannParallel *) team)->shares;
}

/*
 * Allocate zeroed memory; a temporary file if that would exceed s->limit
 * bytes, or if the system refuses memory.
 */
static void *
Share(PipeannTeam *team, Size size, bool work)
{
	PipeannShares *s = SharesOf(team);
	Allocation *a = palloc0(sizeof(Allocation));

	a->size = Max(size, 1);
	if (team->members > 1)
	{
		/* what the leader says is written over two allocations later, when all have read it */
		s->turn = 1 - s->turn;
		if (PipeannTeamLeads(team))
			Make(s, a, work);
		PipeannTeamMeet(team);
		if (!PipeannTeamLeads(team))
			Attach(s, a);
	}
	else if (Fits(s, a->size, work))
		a->at = PipeannAllocZero(a->size);
	else
	{
		NoticeLimit(s);
		MakeFile(s, a);
	}
	a->counted = !a->mapped && a->size > SMALL ? a->size : 0;
	s->used += a->counted;
	s->live = lappend(s->live, a);
	return a->at;
}

static Size
Room(PipeannTeam *team, bool work)
{
	return SharesRoom(SharesOf(team), work);
}

static void
Release(PipeannTeam *team, PipeannShares *s, Allocation *a)
{
	char		name[MAXPGPATH];

	s->used -= a->counted;
	if (a->segment != NULL)
		dsm_detach(a->segment);
	else if (!a->mapped)
		pfree(a->at);
	else
	{
		Unmap(a);
		FileClose(a->file);
		FileName(name, a->number);
		if (PipeannTeamLeads(team) && s->files != NULL)
			(void) FileSetDelete(s->files, name, false);
	}
}

static void
Unshare(PipeannTeam *team, const void *memory)
{
	PipeannShares *s = SharesOf(team);
	ListCell   *cell;

	foreach(cell, s->live)
	{
		Allocation *a = lfirst(cell);

		if (a->at != memory)
			continue;
		s->live = foreach_delete_current(s->live, cell);
		Release(team, s, a);
		return;
	}
	elog(ERROR, "memory of an index build is not known");
}

/* Give back all remaining allocations. */
static void
UnshareAll(PipeannTeam *team)
{
	PipeannShares *s = SharesOf(team);
	ListCell   *cell;

	foreach(cell, s->live)
		Release(team, s, lfirst(cell));
	list_free(s->live);
	s->live = NIL;
}

static struct BufFile *
OpenLog(void)
{
	return BufFileCreateTemp(false);
}

static void
WriteLog(struct BufFile *log, const void *data, Size size)
{
	/* before 16 its parameter is not const */
	BufFileWrite(log, unconstify(void *, data), size);
}

static void
RewindLog(struct BufFile *log)
{
	if (BufFileSeek(log, 0, 0, SEEK_SET) != 0)
		elog(ERROR, "could not rewind a temporary file");
}

static const PipeannLogs Logs = {
	.open = OpenLog,
	.write = WriteLog,
	.rewind = RewindLog,
	.read = BufFileRead,
	.close = BufFileClose
};

/* Set the callbacks that teams of any size have. */
static void
SetShares(PipeannParallel *p, FileSet *files, PipeannShare *share)
{
	p->team.share = Share;
	p->team.room = Room;
	p->team.unshare = Unshare;
	p->team.logs = &Logs;
	p->shares.files = files;
	p->shares.share = share;
	p->shares.limit = (Size) maintenance_work_mem * 1024;
}

static void
BeginTeam(PipeannParallel *p, int member)
{
	p->team.member = member;
	p->team.members = (int) pg_atomic_read_u32(&p->shared->members);
	p->team.shared = &p->shared->team;
	p->team.meet = Meet;
	SetShares(p, &p->shared->files.fs, p->shared->share);
}

/* ---------- the leader ---------- */

/*
 * The number of workers by the server's rules for B-trees: what the table's
 * size or its parallel_workers ask for, 32 MB of maintenance_work_mem for each
 * participant, none for temporary tables and for expressions that are not
 * parallel safe. TRUNCATE builds indexes of empty tables, for which no worker
 * is worth launching. The server considers only the table's own pages. If wide
 * vectors are in TOAST these are few, and most of the work is in the others:
 * so min_parallel_table_scan_size is reduced by the same ratio.
 */
static int
PlanWorkers(Relation heap, Relation index)
{
	BlockNumber pages = RelationGetNumberOfBlocks(heap);
	Oid			toast = heap->rd_rel->reltoastrelid;
	int			workers;
	int			level;

	if (pages == 0)
		return 0;
	level = NewGUCNestLevel();
	if (OidIsValid(toast))
	{
		Relation	other = table_open(toast, AccessShareLock);
		uint64		all = (uint64) pages + RelationGetNumberOfBlocks(other);
		char		least[16];

		table_close(other, AccessShareLock);
		snprintf(least, sizeof(least), "%d",
				 (int) (((uint64) min_parallel_table_scan_size * pages + all - 1) / all));
		(void) set_config_option("min_parallel_table_scan_size", least, PGC_USERSET,
								 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	}
	workers = plan_create_index_workers(RelationGetRelid(heap),
										RelationGetRelid(index));
	AtEOXact_GUC(false, level);
	return workers;
}

static void
TakeSnapshot(PipeannParallel *p)
{
	p->snapshot = p->index_info->ii_Concurrent ?
		RegisterSnapshot(GetTransactionSnapshot()) : SnapshotAny;
}

static void
ReleaseSnapshot(PipeannParallel *p)
{
	if (p->snapshot != NULL && IsMVCCSnapshot(p->snapshot))
		UnregisterSnapshot(p->snapshot);
}

/* Initialise a table scan, parallel if it can be, which determines the number of blocks to read. */
static void
InitializeScan(PipeannParallel *p)
{
	table_parallelscan_initialize(p->heap, p->scan, p->snapshot);
	p->nblocks = RelationGetNumberOfBlocks(p->heap);
}

/* Make the parallel context; its segment is moved out of the attempt's resource owner. */
static void
InitializeContext(void *arg)
{
	ParallelContext *context = arg;

	InitializeParallelDSM(context);
	if (context->seg != NULL)
		dsm_pin_mapping(context->seg);
}

static Size
SharedSize(const ParallelContext *context)
{
	return offsetof(PipeannParallelShared, used) + mul_size(sizeof(Usage), context->nworkers);
}

static void *
AddChunk(const PipeannParallel *p, uint64 key, Size size)
{
	void	   *chunk = shm_toc_allocate(p->context->toc, size);

	memset(chunk, 0, size);
	shm_toc_insert(p->context->toc, key, chunk);
	return chunk;
}

static void
FillContext(PipeannParallel *p, Size scan)
{
	PipeannParallelShared *shared = AddChunk(p, KEY_SHARED, SharedSize(p->context));

	shared->heap = RelationGetRelid(p->heap);
	shared->index = RelationGetRelid(p->index);
	shared->concurrent = p->index_info->ii_Concurrent;
	pg_atomic_init_u32(&shared->members, 0);
	ConditionVariableInit(&shared->begun);
	SharedFileSetInit(&shared->files, p->context->seg);
	p->shared = shared;

	p->scan = AddChunk(p, KEY_SCAN, scan);
	InitializeScan(p);
	shared->nblocks = p->nblocks;
	if (debug_query_string != NULL)
	{
		Size		size = strlen(debug_query_string) + 1;

		memcpy(AddChunk(p, KEY_QUERY, size), debug_query_string, size);
	}
}

static void
EndContext(PipeannParallel *p)
{
	p->shared = NULL;
	p->scan = NULL;
	ReleaseSnapshot(p);
	DestroyParallelContext(p->context);
	p->context = NULL;
	ExitParallelMode();
}

/*
 * Make the parallel context, and launch workers. False if that fails, or if
 * none could be launched.
 */
static bool
Launch(PipeannParallel *p, int workers)
{
	char		error[256] = "too many dynamic shared memory segments";
	Size		scan;
	shm_toc_estimator *e;

	EnterParallelMode();
	p->context = CreateParallelContext("pipeann", "PipeannParallelWorker",
									   workers);
	TakeSnapshot(p);
	scan = table_parallelscan_estimate(p->heap, p->snapshot);
	e = &p->context->estimator;
	shm_toc_estimate_chunk(e, SharedSize(p->context));
	shm_toc_estimate_chunk(e, scan);
	shm_toc_estimate_keys(e, 2);
	if (debug_query_string != NULL)
	{
		shm_toc_estimate_chunk(e, strlen(debug_query_string) + 1);
		shm_toc_estimate_keys(e, 1);
	}
	if (!PipeannAttempt(InitializeContext, p->context, error, sizeof(error)) ||
		p->context->seg == NULL)
	{
		EndContext(p);
		/* a pending cancel makes the system call fail, too */
		CHECK_FOR_INTERRUPTS();
		ereport(NOTICE,
				(errmsg("pipeann builds this index without parallel workers"),
				 errdetail("Dynamic shared memory is not available: %s.",
						   error)));
		return false;
	}
	dsm_unpin_mapping(p->context->seg);
	FillContext(p, scan);
	LaunchParallelWorkers(p->context);
	if (p->context->nworkers_launched > 0)
		return true;
	EndContext(p);
	return false;
}

/*
 * Make the leader's team: as many workers as the server's rules for CREATE
 * INDEX allow and are available; maybe none. Temporary files are removed with
 * the current memory context at the latest.
 */
void
PipeannParallelBegin(PipeannParallel *p, Relation heap, Relation index,
					 IndexInfo *index_info)
{
	int			workers = PlanWorkers(heap, index);

	memset(p, 0, sizeof(*p));
	PipeannTeamOfOne(&p->team);
	p->heap = heap;
	p->index = index;
	p->index_info = index_info;
	if (workers == 0 || !Launch(p, workers))
	{
		SetShares(p, NULL, NULL);
		TakeSnapshot(p);
		p->scan = palloc(table_parallelscan_estimate(heap, p->snapshot));
		InitializeScan(p);
		return;
	}
	WaitForParallelWorkersToAttach(p->context);
	workers = p->context->nworkers_launched;
	BarrierInit(&p->shared->barrier, workers + 1);
	/* an exchange, so that no worker sees it before the barrier is set up */
	(void) pg_atomic_exchange_u32(&p->shared->members, workers + 1);
	ConditionVariableBroadcast(&p->shared->begun);
	BeginTeam(p, 0);
	ereport(DEBUG1,
			(errmsg_internal("pipeann builds index \"%s\" with %d workers",
							 RelationGetRelationName(index), workers)));
}

/*
 * Wait until the workers have ended, and release everything that the team had.
 * The leader calls this.
 */
void
PipeannParallelEnd(PipeannParallel *p)
{
	UnshareAll(&p->team);
	if (p->context == NULL)
	{
		ReleaseSnapshot(p);
		return;
	}
	WaitForParallelWorkersToFinish(p->context);
	for (int i = 0; i < p->context->nworkers_launched; i++)
		InstrAccumParallelQuery(&p->shared->used[i].buffers, &p->shared->used[i].wal);
	EndContext(p);
}

/* ---------- a worker ---------- */

/*
 * Join the team as a worker: open the relations, and wait for the team to begin.
 */
void
PipeannParallelJoin(PipeannParallel *p, dsm_segment *seg, shm_toc *toc)
{
	char	   *query = shm_toc_lookup(toc, KEY_QUERY, true);
	bool		concurrent;

	memset(p, 0, sizeof(*p));
	p->shared = shm_toc_lookup(toc, KEY_SHARED, false);
	p->scan = shm_toc_lookup(toc, KEY_SCAN, false);
	p->nblocks = p->shared->nblocks;
	debug_query_string = query;
	pgstat_report_activity(STATE_RUNNING, query);
	SharedFileSetAttach(&p->shared->files, seg);
	concurrent = p->shared->concurrent;
	p->heap = table_open(p->shared->heap,
						 concurrent ? ShareUpdateExclusiveLock : ShareLock);
	p->index = index_open(p->shared->index,
						  concurrent ? RowExclusiveLock : AccessExclusiveLock);
	p->index_info = BuildIndexInfo(p->index);
	p->index_info->ii_Concurrent = concurrent;

	ConditionVariablePrepareToSleep(&p->shared->begun);
	while (pg_atomic_read_u32(&p->shared->members) == 0)
		ConditionVariableSleep(&p->shared->begun, BuildWaitEvent());
	ConditionVariableCancelSleep();
	BeginTeam(p, ParallelWorkerNumber + 1);
	InstrStartParallelQuery();
}

void
PipeannParallelLeave(PipeannParallel *p)
{
	bool		concurrent = p->shared->concurrent;
	Usage	   *used = &p->shared->used[ParallelWorkerNumber];

	InstrEndParallelQuery(&used->buffers, &used->wal);
	UnshareAll(&p->team);
	index_close(p->index, concurrent ? RowExclusiveLock : AccessExclusiveLock);
	table_close(p->heap, concurrent ? ShareUpdateExclusiveLock : ShareLock);
}
