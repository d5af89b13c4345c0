/*
 * background.c
 *		Retraining by a background worker, so that the insert that finds a large index
 *		outgrown does not wait: src/README, "build/: retraining".
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
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/*
 * With fewer nodes retraining takes no longer than a second, and the insert does it
 * itself.
 */
#define LEAST_NODES 32768

/* A backend asks for no worker again within so many ms, lest failing ones follow. */
#define PAUSE_MS 10000

/* What a worker is told, in its bgw_extra. */
typedef struct Order
{
	Oid			database;
	Oid			index;
	int			memory;			/* maintenance_work_mem of the session, kB */
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
Launch(Relation index)
{
	static TimestampTz last = 0;
	TimestampTz now = GetCurrentTimestamp();
	BackgroundWorker worker;
	Order		order = {
		.database = MyDatabaseId,.index = RelationGetRelid(index),
		.memory = maintenance_work_mem
	};

	if (!TimestampDifferenceExceeds(last, now, PAUSE_MS))
		return true;
	memset(&worker, 0, sizeof(worker));
	strlcpy(worker.bgw_name, "pipeann retraining", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "pipeann retraining", BGW_MAXLEN);
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker.bgw_library_name, "pipeann", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "PipeannRetrainWorker", BGW_MAXLEN);
	memcpy(worker.bgw_extra, &order, sizeof(order));
	if (!RegisterDynamicBackgroundWorker(&worker, NULL))
		return false;
	last = now;
	return true;
}

/*
 * Retrain an outgrown index: at once if that takes no time or nobody else can, else in
 * a background worker.
 */
void
PipeannRetrainSoon(Relation heap, Relation index, uint64 nodes)
{
	if (nodes < LEAST_NODES || !IsUnderPostmaster ||
		!IsOpenToOthers(heap, index))
	{
		PipeannRetrain(index, PIPEANN_BY_INSERT);
		return;
	}
	/* somebody is at it */
	if (!ConditionalLockPage(index, PIPEANN_MAINTENANCE_LOCK, ExclusiveLock))
		return;
	UnlockPage(index, PIPEANN_MAINTENANCE_LOCK, ExclusiveLock);
	if (!Launch(index))
		PipeannRetrain(index, PIPEANN_BY_INSERT);
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
 * Does nothing if the index is gone, or somebody has or awaits a lock that an INSERT
 * would wait for: a later insert finds the index outgrown still.
 */
static void
RetrainIndex(Oid index_oid)
{
	Oid			heap_oid = IndexGetRelation(index_oid, true);
	Relation	heap;
	Relation	index = NULL;

	if (!OidIsValid(heap_oid) ||
		!ConditionalLockRelationOid(heap_oid, RowExclusiveLock))
		return;
	heap = try_relation_open(heap_oid, NoLock);
	if (heap != NULL)
		index = try_relation_open(index_oid, RowExclusiveLock);
	if (index != NULL && index->rd_indam != NULL &&
		index->rd_indam->ambuild == pipeannbuild &&
		index->rd_index->indrelid == heap_oid)
	{
		char		what[NAMEDATALEN + 32];

		snprintf(what, sizeof(what), "pipeann: retraining index %s",
				 RelationGetRelationName(index));
		pgstat_report_activity(STATE_RUNNING, what);
		RetrainAsOwner(heap, index);
	}
	if (index != NULL)
		relation_close(index, NoLock);
	if (heap != NULL)
		relation_close(heap, NoLock);
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
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	RetrainIndex(order.index);
	PopActiveSnapshot();
	CommitTransactionCommand();
	pgstat_report_activity(STATE_IDLE, NULL);
}
