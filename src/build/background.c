/*
 * background.c
 *		Retraining by a background worker, so that the insert that finds an index
 *		outgrown does not wait: src/README, "build/: retraining". When VACUUM has ended
 *		such a worker packs what was replaced, and gives back the end of the file.
 */
#include "postgres.h"

#include "access/amapi.h"
#include "access/heapam.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "build/build.h"
#include "catalog/index.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "commands/vacuum.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/pg_bitutils.h"
#include "postmaster/bgworker.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

/*
 * A backend asks for no worker again within so many ms, lest failing ones follow, unless
 * the index has other codes since.
 */
#define PAUSE_MS 10000

/* Once in so many ms a worker looks whether VACUUM has ended. */
#define LOCK_PAUSE_MS 100

/* What a worker does to an index, in this order. */
typedef enum Task
{
	RETRAIN,
	PACK,						/* what was replaced */
	SHRINK						/* the file */
} Task;

#define TASK(task) (1 << (task))

static const char *const task_names[] = {
	[RETRAIN] = "retraining",
	[PACK] = "packing",
	[SHRINK] = "giving back"
};

/* What a worker is told, in its bgw_extra. */
typedef struct Order
{
	Oid			database;
	Oid			index;
	int			memory;			/* maintenance_work_mem of the session, kB */
	bool		truncate;		/* its vacuum_truncate, where that is a setting */
	int			tasks;
} Order;

StaticAssertDecl(sizeof(Order) <= BGW_EXTRALEN, "order is too long");

/* What came of it. */
typedef enum Outcome
{
	NOT_NEEDED,
	LEFT_TO_ANOTHER,			/* worker, which packs */
	MORE_TO_DO,
	DONE						/* or failed */
} Outcome;

/* ---------- the session ---------- */

/*
 * Whether another backend can see both relations, and lock them while this
 * transaction goes on.
 */
static bool
IsOpenToOthers(Relation heap, Relation index)
{
	return index->rd_rel->relpersistence != RELPERSISTENCE_TEMP &&
		!CheckRelationLockedByMe(heap, ShareLock, true) &&
		!CheckRelationLockedByMe(index, ShareLock, true);
}

/* False if the server has no place for another worker. It is named after its first task. */
static bool
Launch(Relation index, int tasks)
{
	BackgroundWorker worker;
	Order		order = {
		.database = MyDatabaseId,.index = RelationGetRelid(index),
		.memory = maintenance_work_mem,.tasks = tasks
	};

#if PG_VERSION_NUM >= 180000
	order.truncate = vacuum_truncate;
#endif

	memset(&worker, 0, sizeof(worker));
	snprintf(worker.bgw_name, BGW_MAXLEN, "pipeann %s",
			 task_names[pg_rightmost_one_pos32(tasks)]);
	strlcpy(worker.bgw_type, worker.bgw_name, BGW_MAXLEN);
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker.bgw_library_name, "pipeann", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "PipeannRetrainWorker", BGW_MAXLEN);
	memcpy(worker.bgw_extra, &order, sizeof(order));
	return RegisterDynamicBackgroundWorker(&worker, NULL);
}

/* Retrain an outgrown index: in a background worker, or at once if there can be none. */
void
PipeannRetrainSoon(Relation heap, Relation index, uint64 build_id)
{
	static TimestampTz last = 0;
	static uint64 last_id = 0;
	TimestampTz now = GetCurrentTimestamp();

	if (!IsUnderPostmaster || !IsOpenToOthers(heap, index))
	{
		PipeannRetrain(index, PIPEANN_BY_INSERT);
		return;
	}
	/* somebody is at it */
	if (!ConditionalLockPage(index, PIPEANN_MAINTENANCE_LOCK, ExclusiveLock))
		return;
	UnlockPage(index, PIPEANN_MAINTENANCE_LOCK, ExclusiveLock);
	if (last_id == build_id && !TimestampDifferenceExceeds(last, now, PAUSE_MS))
		return;
	if (!Launch(index, TASK(RETRAIN)))
	{
		PipeannRetrain(index, PIPEANN_BY_INSERT);
		return;
	}
	last = now;
	last_id = build_id;
}

/*
 * When VACUUM has ended have a worker pack the index anew if many nodes were replaced, lest
 * VACUUM fail where a packing does, and then shrink its file if it may; or that alone, if it
 * is to. False if there is nothing to do, or the server has no place for a worker.
 */
bool
PipeannPackSoon(Relation index, bool shrink)
{
	PipeannMeta meta;
	bool		pack;

	PipeannMetaRead(index, &meta);
	pack = PipeannIsReplaced(&meta) &&
		index->rd_rel->relpersistence != RELPERSISTENCE_TEMP;
	return IsUnderPostmaster && (pack || shrink) &&
		Launch(index, (pack ? TASK(PACK) : 0) | TASK(SHRINK));
}

/* ---------- the worker ---------- */

/* Functions that compare values run as the table's owner, as in VACUUM. */
static void
RetrainAsOwner(Relation heap, Relation index, PipeannRetrainer by)
{
	Oid			user;
	int			context;
	int			nest_level = NewGUCNestLevel();

	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(heap->rd_rel->relowner,
						   context | SECURITY_RESTRICTED_OPERATION);
#if PG_VERSION_NUM >= 170000
	RestrictSearchPath();
#endif
	PipeannRetrain(index, by);
	AtEOXact_GUC(false, nest_level);
	SetUserIdAndSecContext(user, context);
}

/*
 * To retrain takes no lock that somebody has or awaits whom an INSERT would wait for: a
 * later insert finds the index outgrown still. All else waits for VACUUM, but not for its
 * lock: it would find somebody waiting when it comes to the end of the table, and leave
 * that. And it keeps out autovacuum, which would cancel a packing when it comes to the index.
 */
static bool
LockTable(Oid heap, Task task)
{
	if (task == RETRAIN)
		return ConditionalLockRelationOid(heap, RowExclusiveLock);
	while (!ConditionalLockRelationOid(heap, ShareUpdateExclusiveLock))
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 LOCK_PAUSE_MS, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	return true;
}

static bool
IsOurs(Relation index)
{
	return index->rd_indam != NULL && index->rd_indam->ambuild == pipeannbuild;
}

/*
 * Whether an index is to be packed. Its lock is not kept, lest who has that of the table
 * wait for it while LockTable() waits for him.
 */
static bool
IsToBePacked(Oid index_oid)
{
	Relation	index;
	bool		wanted = false;

	if (!ConditionalLockRelationOid(index_oid, AccessShareLock))
		return false;
	index = try_relation_open(index_oid, NoLock);
	if (index != NULL && IsOurs(index) && index->rd_index->indisready &&
		index->rd_rel->relpersistence != RELPERSISTENCE_TEMP)
	{
		PipeannMeta meta;

		PipeannMetaRead(index, &meta);
		wanted = PipeannIsReplaced(&meta);
	}
	if (index != NULL)
		relation_close(index, NoLock);
	UnlockRelationOid(index_oid, AccessShareLock);
	return wanted;
}

/*
 * One worker packs in a database at a time, until its transaction ends: each may take
 * maintenance_work_mem, and VACUUM of a partitioned table asks for one for each partition.
 */
static bool
LockPacking(Relation index)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, AccessMethodRelationId,
					   index->rd_rel->relam, 0);
	return LockAcquire(&tag, ShareUpdateExclusiveLock, false, true) !=
		LOCKACQUIRE_NOT_AVAIL;
}

static Outcome
ServeOpen(Relation heap, Relation index, Task task)
{
	char		what[NAMEDATALEN + 48];

	if (task == PACK && !LockPacking(index))
		return LEFT_TO_ANOTHER;
	snprintf(what, sizeof(what), "pipeann: %s%s index %s", task_names[task],
			 task == SHRINK ? " the end of" : "", RelationGetRelationName(index));
	pgstat_report_activity(STATE_RUNNING, what);
	if (task == SHRINK)
		return PipeannShrink(heap, index) ? MORE_TO_DO : DONE;
	RetrainAsOwner(heap, index, task == PACK ? PIPEANN_BY_PACKER : PIPEANN_BY_WORKER);
	return DONE;
}

/* Does nothing if the index is gone. */
static Outcome
Serve(Oid index_oid, Task task)
{
	Oid			heap_oid = IndexGetRelation(index_oid, true);
	Relation	heap;
	Relation	index = NULL;
	Outcome		outcome = NOT_NEEDED;

	if (!OidIsValid(heap_oid) || (task == PACK && !IsToBePacked(index_oid)) ||
		!LockTable(heap_oid, task))
		return NOT_NEEDED;
	heap = try_relation_open(heap_oid, NoLock);
	if (heap != NULL)
		index = try_relation_open(index_oid, RowExclusiveLock);
	if (index != NULL && IsOurs(index) && index->rd_index->indrelid == heap_oid)
		outcome = ServeOpen(heap, index, task);
	if (index != NULL)
		relation_close(index, NoLock);
	if (heap != NULL)
		relation_close(heap, NoLock);
	return outcome;
}

/*
 * Each turn is a transaction, so that a replica has its locks no longer. It is one as of
 * a worker of autovacuum: who waits for its locks for longer than deadlock_timeout cancels
 * it, and its snapshot keeps no dead rows.
 */
static Outcome
ServeOnce(Oid index, Task task)
{
	Outcome		outcome;

	StartTransactionCommand();
	PipeannSetStatus(PROC_IS_AUTOVACUUM | PROC_IN_VACUUM, 0);
	PushActiveSnapshot(GetTransactionSnapshot());
	outcome = Serve(index, task);
	PopActiveSnapshot();
	CommitTransactionCommand();
	return outcome;
}

/*
 * An error is the task's alone: what a packing on a full disk has taken is given back. If
 * a task is canceled a later insert finds the index outgrown still, and VACUUM its end free.
 */
static Outcome
DoTask(Oid index, Task task)
{
	volatile Outcome outcome = DONE;

	PG_TRY();
	{
		do
			outcome = ServeOnce(index, task);
		while (outcome == MORE_TO_DO);
	}
	PG_CATCH();
	{
		bool		canceled = geterrcode() == ERRCODE_QUERY_CANCELED;

		HOLD_INTERRUPTS();
		if (!canceled)
			EmitErrorReport();
		AbortCurrentTransaction();
		FlushErrorState();
		RESUME_INTERRUPTS();
		if (canceled)
			ereport(LOG,
					(errmsg("pipeann %s was canceled, as others waited for it", task_names[task])));
	}
	PG_END_TRY();
	return outcome;
}

/* The database's indexes of this kind. */
static List *
AllIndexes(void)
{
	List	   *all = NIL;
	Relation	classes;
	TableScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;

	StartTransactionCommand();
	ScanKeyInit(&key, Anum_pg_class_relam, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(get_index_am_oid("pipeann", true)));
	classes = table_open(RelationRelationId, AccessShareLock);
	scan = table_beginscan_catalog(classes, 1, &key);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_class row = (Form_pg_class) GETSTRUCT(tuple);
		MemoryContext former = MemoryContextSwitchTo(TopMemoryContext);

		if (row->relkind == RELKIND_INDEX)
			all = lappend_oid(all, row->oid);
		MemoryContextSwitchTo(former);
	}
	table_endscan(scan);
	table_close(classes, AccessShareLock);
	CommitTransactionCommand();
	return all;
}

/*
 * Pack what other workers have left to this one. They come when VACUUM has ended, so they
 * find this one packing before it looks here again.
 */
static void
PackOthers(void)
{
	List	   *packed = NIL;
	int			n;

	do
	{
		List	   *all = AllIndexes();
		ListCell   *cell;

		n = list_length(packed);
		foreach(cell, all)
		{
			Oid			index = lfirst_oid(cell);
			Outcome		outcome;

			if (list_member_oid(packed, index))
				continue;
			outcome = DoTask(index, PACK);
			if (outcome == LEFT_TO_ANOTHER)
				return;
			if (outcome != DONE)
				continue;
			packed = lappend_oid(packed, index);
			(void) DoTask(index, SHRINK);
		}
		list_free(all);
	} while (list_length(packed) > n);
}

void
PipeannRetrainWorker(Datum arg)
{
	Order		order;
	bool		packer = false;

	memcpy(&order, MyBgworkerEntry->bgw_extra, sizeof(order));
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(order.database, InvalidOid, 0);
	SetConfigOption("maintenance_work_mem", psprintf("%d", order.memory),
					PGC_USERSET, PGC_S_SESSION);
	/* as those of autovacuum: maintenance does not end for a setting, or wait for a standby */
	SetConfigOption("lock_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
#if PG_VERSION_NUM >= 170000
	SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
#endif
	/* nor does it make another packing without what stands on a damaged page */
	SetConfigOption("zero_damaged_pages", "false", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("synchronous_commit", "local", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_isolation", "read committed",
					PGC_SUSET, PGC_S_OVERRIDE);
#if PG_VERSION_NUM >= 180000
	SetConfigOption("vacuum_truncate", order.truncate ? "true" : "false", PGC_USERSET,
					PGC_S_SESSION);
#endif
	if (order.tasks & TASK(RETRAIN))
		(void) DoTask(order.index, RETRAIN);
	if (order.tasks & TASK(PACK))
		packer = DoTask(order.index, PACK) != LEFT_TO_ANOTHER;
	if (order.tasks & TASK(SHRINK))
		(void) DoTask(order.index, SHRINK);
	if (packer)
		PackOthers();
	pgstat_report_activity(STATE_IDLE, NULL);
}
