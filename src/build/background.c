/*
 * background.c
 *		Retraining by a background worker, so that the insert that finds an index
 *		outgrown does not wait: src/README, "build/: retraining". The same worker gives
 *		back the end of the file when VACUUM has ended.
 */
#include "postgres.h"

#include "access/amapi.h"
#include "access/relation.h"
#include "access/xact.h"
#include "build/build.h"
#include "catalog/index.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/*
 * A backend asks for no worker again within so many ms, lest failing ones follow, unless
 * the index has other codes since.
 */
#define PAUSE_MS 10000

/* What a worker is told, in its bgw_extra. */
typedef struct Order
{
	Oid			database;
	Oid			index;
	int			memory;			/* maintenance_work_mem of the session, kB */
	bool		shrink;			/* the file, rather than retrain */
} Order;

StaticAssertDecl(sizeof(Order) <= BGW_EXTRALEN, "order is too long");

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

/* False if the server has no place for another worker. */
static bool
Launch(Relation index, const char *name, bool shrink)
{
	BackgroundWorker worker;
	Order		order = {
		.database = MyDatabaseId,.index = RelationGetRelid(index),
		.memory = maintenance_work_mem,.shrink = shrink
	};

	memset(&worker, 0, sizeof(worker));
	strlcpy(worker.bgw_name, name, BGW_MAXLEN);
	strlcpy(worker.bgw_type, name, BGW_MAXLEN);
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
	if (!Launch(index, "pipeann retraining", false))
	{
		PipeannRetrain(index, PIPEANN_BY_INSERT);
		return;
	}
	last = now;
	last_id = build_id;
}

/*
 * Shrink the index's file when VACUUM has ended. False if the server has no place for a
 * worker.
 */
bool
PipeannShrinkSoon(Relation index)
{
	return IsUnderPostmaster && Launch(index, "pipeann giving back", true);
}

/* ---------- the worker ---------- */

/* Functions that compare values run as the table's owner, as in VACUUM. */
static void
RetrainAsOwner(Relation heap, Relation index)
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
	PipeannRetrain(index, PIPEANN_BY_WORKER);
	AtEOXact_GUC(false, nest_level);
	SetUserIdAndSecContext(user, context);
}

/*
 * To retrain takes no lock that somebody has or awaits whom an INSERT would wait for: a
 * later insert finds the index outgrown still. To shrink waits for VACUUM.
 */
static bool
LockTable(Oid heap, const Order *order)
{
	if (!order->shrink)
		return ConditionalLockRelationOid(heap, RowExclusiveLock);
	LockRelationOid(heap, ShareUpdateExclusiveLock);
	return true;
}

/* Does nothing if the index is gone. Returns whether there is more to do. */
static bool
Serve(const Order *order)
{
	Oid			heap_oid = IndexGetRelation(order->index, true);
	Relation	heap;
	Relation	index = NULL;
	bool		more = false;

	if (!OidIsValid(heap_oid) || !LockTable(heap_oid, order))
		return false;
	heap = try_relation_open(heap_oid, NoLock);
	if (heap != NULL)
		index = try_relation_open(order->index, RowExclusiveLock);
	if (index != NULL && index->rd_indam != NULL &&
		index->rd_indam->ambuild == pipeannbuild &&
		index->rd_index->indrelid == heap_oid)
	{
		char		what[NAMEDATALEN + 48];

		snprintf(what, sizeof(what), "pipeann: %s index %s",
				 order->shrink ? "giving back the end of" : "retraining",
				 RelationGetRelationName(index));
		pgstat_report_activity(STATE_RUNNING, what);
		if (order->shrink)
			more = PipeannShrink(index);
		else
			RetrainAsOwner(heap, index);
	}
	if (index != NULL)
		relation_close(index, NoLock);
	if (heap != NULL)
		relation_close(heap, NoLock);
	return more;
}

/*
 * Each turn is a transaction, so that a replica has its locks no longer. It is one as of
 * a worker of autovacuum: who waits for its locks for longer than deadlock_timeout cancels
 * it, and its snapshot keeps no dead rows.
 */
static bool
ServeOnce(const Order *order)
{
	bool		more;

	StartTransactionCommand();
	PipeannSetStatus(PROC_IS_AUTOVACUUM | PROC_IN_VACUUM, 0);
	PushActiveSnapshot(GetTransactionSnapshot());
	more = Serve(order);
	PopActiveSnapshot();
	CommitTransactionCommand();
	return more;
}

void
PipeannRetrainWorker(Datum arg)
{
	Order		order;

	memcpy(&order, MyBgworkerEntry->bgw_extra, sizeof(order));
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(order.database, InvalidOid, 0);
	SetConfigOption("maintenance_work_mem", psprintf("%d", order.memory),
					PGC_USERSET, PGC_S_SESSION);
	/* as those of autovacuum: maintenance does not end for a setting, or wait for a standby */
	SetConfigOption("lock_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("synchronous_commit", "local", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_isolation", "read committed",
					PGC_SUSET, PGC_S_OVERRIDE);
	PG_TRY();
	{
		while (ServeOnce(&order))
			;
	}
	PG_CATCH();
	{
		if (geterrcode() != ERRCODE_QUERY_CANCELED)
			PG_RE_THROW();
		/* a later insert finds the index outgrown still, and VACUUM its end free */
		AbortCurrentTransaction();
		FlushErrorState();
		ereport(LOG,
				(errmsg("%s was canceled, as others waited for it", MyBgworkerEntry->bgw_name)));
	}
	PG_END_TRY();
	pgstat_report_activity(STATE_IDLE, NULL);
}
