/*
 * background.c
 *		REINDEX INDEX CONCURRENTLY of indexes that are outgrown, by a background
 *		worker that behaves like one of autovacuum: src/README, "build/: growth".
 */
#include "postgres.h"

#include "access/amapi.h"
#include "access/relation.h"
#include "access/xact.h"
#include "base/pause.h"
#include "build/build.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_am.h"
#include "catalog/pg_extension.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "parser/parser.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

/* Pause before a backend asks for a worker again. */
#define ASK_PAUSE_MS (PIPEANN_MINUTE / 6)

/*
 * While there is something to do the worker looks again after a pause. It ends after
 * MOST_LOOKS without success; a later insert or VACUUM asks for another worker.
 */
#define LOOK_PAUSE_MS (PIPEANN_MINUTE / 60)
#define MOST_LOOKS 3600

/* Pause after a failure: RETRY_FACTOR times as long as the attempt took, and at least this. */
#define RETRY_MS (10 * PIPEANN_MINUTE)
#define RETRY_FACTOR 10

/* Longest wait for transactions while holding a lock on the table that keeps VACUUM out. */
#define LOCK_TIMEOUT "5min"

bool		pipeann_auto_reindex = true;

/* ---------- sessions that find an index outgrown ---------- */

/* Whether the table's options and a setting allow a rebuild, as for autovacuum. */
static bool
IsAllowed(Relation heap, Relation index)
{
	return pipeann_auto_reindex &&
		index->rd_rel->relpersistence != RELPERSISTENCE_TEMP &&
		index->rd_index->indisvalid && index->rd_index->indisready &&
		(heap->rd_options == NULL ||
		 ((StdRdOptions *) heap->rd_options)->autovacuum.enabled);
}

/* Request a worker to rebuild this database's outgrown indexes. */
static void
AskForReindex(Relation heap, Relation index, const PipeannMeta *meta)
{
	static TimestampTz last = 0;
	TimestampTz now = GetCurrentTimestamp();
	BackgroundWorker worker;

	if (!IsUnderPostmaster || !IsAllowed(heap, index) ||
		now < meta->reindex_after ||
		!TimestampDifferenceExceeds(last, now, ASK_PAUSE_MS))
		return;
	memset(&worker, 0, sizeof(worker));
	strlcpy(worker.bgw_name, "pipeann reindex", BGW_MAXLEN);
	strlcpy(worker.bgw_type, worker.bgw_name, BGW_MAXLEN);
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker.bgw_library_name, "pipeann", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "PipeannReindexWorker", BGW_MAXLEN);
	worker.bgw_main_arg = ObjectIdGetDatum(MyDatabaseId);
	if (RegisterDynamicBackgroundWorker(&worker, NULL))
		last = now;
}

/* Retrain, or request a rebuild: called by some inserts, and by VACUUM when it ends. */
void
PipeannKeepUp(Relation heap, Relation index)
{
	PipeannMeta *meta = palloc(sizeof(PipeannMeta));

	PipeannMetaRead(index, meta);
	PipeannRetrain(heap, index, meta);
	if (PipeannIsOutgrown(meta))
		AskForReindex(heap, index, meta);
	pfree(meta);
}

/* ---------- transactions of the worker ---------- */

/* Begin a transaction. The worker allocates in PortalContext, and resets it after each index. */
static void
Begin(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	MemoryContextSwitchTo(PortalContext);
}

static void
End(void)
{
	CommitTransactionCommand();
	MemoryContextSwitchTo(PortalContext);
}

/* Run a command as if it had come from a client. */
static void
Run(const char *command)
{
	PlannedStmt *statement = makeNode(PlannedStmt);

	Begin();
	debug_query_string = command;
	pgstat_report_activity(STATE_RUNNING, command);
	statement->commandType = CMD_UTILITY;
	statement->canSetTag = true;
	statement->utilityStmt =
		linitial_node(RawStmt, raw_parser(command, RAW_PARSE_DEFAULT))->stmt;
	PushActiveSnapshot(GetTransactionSnapshot());
	ProcessUtility(statement, command, false, PROCESS_UTILITY_TOPLEVEL, NULL, NULL,
				   None_Receiver, NULL);
	/* the command has ended this transaction, and begun others */
	if (ActiveSnapshotSet())
		PopActiveSnapshot();
	End();
	debug_query_string = NULL;
	pgstat_report_activity(STATE_IDLE, NULL);
}

/* The OIDs that a query returns. */
static List *
Ask(const char *query)
{
	List	   *answer = NIL;

	Begin();
	SPI_connect();
	PushActiveSnapshot(GetTransactionSnapshot());
	if (SPI_execute(query, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not run: %s", query);
	MemoryContextSwitchTo(PortalContext);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool		isnull;
		Datum		value = SPI_getbinval(SPI_tuptable->vals[i],
										  SPI_tuptable->tupdesc, 1, &isnull);

		answer = lappend_oid(answer, DatumGetObjectId(value));
	}
	PopActiveSnapshot();
	SPI_finish();
	End();
	return answer;
}

/* Run a step. An error is reported, but does not end the worker. */
static bool
Try(void (*step) (void *arg), void *arg)
{
	volatile bool done = false;

	PG_TRY();
	{
		step(arg);
		done = true;
	}
	PG_CATCH();
	{
		bool		canceled = geterrcode() == ERRCODE_QUERY_CANCELED;

		HOLD_INTERRUPTS();
		MemoryContextSwitchTo(PortalContext);
		if (!canceled)
			EmitErrorReport();
		AbortCurrentTransaction();
		FlushErrorState();
		debug_query_string = NULL;
		RESUME_INTERRUPTS();
		MemoryContextSwitchTo(PortalContext);
		if (canceled)
			ereport(LOG,
					(errmsg("automatic reindex was canceled, as other sessions waited for its locks")));
	}
	PG_END_TRY();
	return done;
}

/* ---------- the index that REINDEX makes, and what is left of it ---------- */

static object_access_hook_type former_hook;
static bool reindexing = false;

/*
 * The new index depends on the extension (DEPENDS ON EXTENSION), so that a later worker
 * recognises it if it is left over. REINDEX then exchanges the dependencies of the new and
 * the old index, and drops the old one.
 *
 * It drops that under a lock that is not WAL-logged, while queries on replicas may
 * be reading the index. When this hook runs no session here has it open any more.
 */
static void
MarkOrLock(ObjectAccessType access, Oid class, Oid object, int sub, void *arg)
{
	if (former_hook != NULL)
		former_hook(access, class, object, sub, arg);
	if (!reindexing || class != RelationRelationId || sub != 0)
		return;
	if (access == OAT_POST_CREATE)
	{
		Relation	created = RelationIdGetRelation(object);
		ObjectAddress index = {RelationRelationId, object, 0};
		ObjectAddress extension = {
			ExtensionRelationId, get_extension_oid("pipeann", false), 0
		};

		if (!RelationIsValid(created))
			return;
		/* its relcache entry has no functions yet */
		if (created->rd_rel->relkind == RELKIND_INDEX &&
			created->rd_rel->relam == get_index_am_oid("pipeann", true))
			recordDependencyOn(&index, &extension, DEPENDENCY_AUTO_EXTENSION);
		RelationClose(created);
	}
	else if (access == OAT_DROP && get_rel_relkind(object) == RELKIND_INDEX)
		LockRelationOid(object, AccessExclusiveLock);
}

/* An index's quoted name; NULL if it is gone. */
static char *
NameOf(Oid index)
{
	char	   *name;

	Begin();
	name = get_rel_name(index);
	if (name != NULL)
		name = quote_qualified_identifier(get_namespace_name(get_rel_namespace(index)),
										  name);
	End();
	return name;
}

/* Drop the indexes that this or an earlier worker left when it failed. */
static void
DropLeftOver(void *arg)
{
	List	   *left = Ask("SELECT d.objid FROM pg_catalog.pg_depend d"
						   " JOIN pg_catalog.pg_index i ON i.indexrelid = d.objid"
						   " JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid"
						   " WHERE e.extname = 'pipeann' AND d.deptype = 'x' AND NOT i.indisvalid"
						   " AND d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass"
						   " AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass");
	ListCell   *cell;

	foreach(cell, left)
	{
		char	   *name = NameOf(lfirst_oid(cell));

		if (name != NULL)
			Run(psprintf("DROP INDEX CONCURRENTLY IF EXISTS %s", name));
	}
}

/* ---------- one index ---------- */

/* An index to be rebuilt. */
typedef struct Work
{
	Oid			index;
	Oid			schema;
	char	   *name;
	bool		wanted;
	bool		due;			/* due now rather than later */
	uint64		nodes;
	int64		bytes;
	PipeannCurve curve;			/* measured with a user's queries, or all zeroes */
	char	   *command;
} Work;

/*
 * Look at an index without waiting: waiting for autovacuum would cancel it. An
 * index that is locked, or being vacuumed, is not due.
 */
static void
LookAt(void *arg)
{
	Work	   *work = arg;
	Oid			heap_oid;
	Relation	heap;
	Relation	index = NULL;

	Begin();
	heap_oid = IndexGetRelation(work->index, true);
	work->wanted = OidIsValid(heap_oid);
	if (work->wanted && ConditionalLockRelationOid(heap_oid, AccessShareLock) &&
		ConditionalLockRelationOid(work->index, AccessShareLock))
	{
		work->wanted = false;
		heap = try_relation_open(heap_oid, NoLock);
		if (heap != NULL)
			index = try_relation_open(work->index, NoLock);
		if (index != NULL && index->rd_rel->relkind == RELKIND_INDEX &&
			index->rd_indam != NULL && index->rd_indam->ambuild == pipeannbuild &&
			IsAllowed(heap, index))
		{
			PipeannMeta *meta = palloc(sizeof(PipeannMeta));

			PipeannMetaRead(index, meta);
			work->wanted = PipeannIsOutgrown(meta);
			work->due = work->wanted && GetCurrentTimestamp() >= meta->reindex_after &&
				ConditionalLockRelation(heap, ShareUpdateExclusiveLock);
			work->schema = RelationGetNamespace(index);
			work->name = pstrdup(RelationGetRelationName(index));
			work->nodes = meta->nodes;
			work->bytes = (int64) RelationGetNumberOfBlocks(index) * BLCKSZ;
			if (meta->curve.queries > 0)
				work->curve = meta->curve;
		}
		if (index != NULL)
			relation_close(index, NoLock);
		if (heap != NULL)
			relation_close(heap, NoLock);
	}
	End();
}

/* An outgrown index, preferably one that is due. */
static Work
FindWork(List **broken)
{
	List	   *all = Ask("SELECT c.oid FROM pg_catalog.pg_class c"
						  " JOIN pg_catalog.pg_am a ON a.oid = c.relam"
						  " WHERE a.amname = 'pipeann' AND c.relkind = 'i'");
	Work		found = {0};
	ListCell   *cell;

	foreach(cell, all)
	{
		Work		work = {.index = lfirst_oid(cell)};

		if (found.due || list_member_oid(*broken, work.index))
			continue;
		if (!Try(LookAt, &work))
		{
			MemoryContext former = MemoryContextSwitchTo(TopMemoryContext);

			*broken = lappend_oid(*broken, work.index);
			MemoryContextSwitchTo(former);
		}
		else if (work.wanted)
			found = work;
	}
	return found;
}

/* Record a pause and a curve in the metapage of an index, if it still exists. */
static void
Note(Oid oid, int64 retry_ms, const PipeannCurve *curve)
{
	Relation	index;
	PipeannMetaUpdate update;

	Begin();
	index = try_relation_open(oid, RowExclusiveLock);
	if (index != NULL)
	{
		PipeannMetaBegin(index, &update);
		if (retry_ms > 0)
			update.meta->reindex_after =
				TimestampTzPlusMilliseconds(GetCurrentTimestamp(), retry_ms);
		if (curve != NULL)
		{
			update.meta->curve = *curve;
			update.meta->curve.nodes = (uint32) update.meta->nodes;
			update.meta->curve.changes = (uint32) update.meta->changes;
		}
		PipeannMetaEnd(&update);
		relation_close(index, NoLock);
	}
	End();
}

/* Log the result, and carry over a curve that a user had measured. */
static void
Finish(const Work *work, int64 ms)
{
	PipeannMeta *meta = palloc0(sizeof(PipeannMeta));
	int64		bytes = 0;
	Relation	index = NULL;
	Oid			oid;

	Begin();
	oid = get_relname_relid(work->name, work->schema);
	if (OidIsValid(oid))
		index = try_relation_open(oid, AccessShareLock);
	if (index != NULL)
	{
		PipeannMetaRead(index, meta);
		bytes = (int64) RelationGetNumberOfBlocks(index) * BLCKSZ;
		relation_close(index, NoLock);
	}
	End();
	if (index != NULL && work->curve.queries > 0)
		Note(oid, 0, &work->curve);
	ereport(LOG,
			(errmsg("automatic reindex of index \"%s\": %llu nodes, %lld kB (before: %llu nodes, %lld kB), %.1f s",
					work->name, (unsigned long long) meta->nodes, (long long) bytes / 1024,
					(unsigned long long) work->nodes, (long long) work->bytes / 1024,
					ms / 1000.0)));
}

static void
Reindex(void *arg)
{
	const Work *work = arg;

	Run(work->command);
}

static int64
MsSince(TimestampTz start)
{
	return TimestampDifferenceMilliseconds(start, GetCurrentTimestamp());
}

static void
Rebuild(Work *work)
{
	TimestampTz start = GetCurrentTimestamp();
	char	   *name = NameOf(work->index);
	bool		done;

	if (name == NULL)
		return;
	/* beforehand, in case the server crashes in it */
	Note(work->index, RETRY_MS, NULL);
	work->command = psprintf("REINDEX INDEX CONCURRENTLY %s", name);
	reindexing = true;
	done = Try(Reindex, work);
	reindexing = false;
	if (done)
		Finish(work, MsSince(start));
	else
	{
		Note(work->index, Max(RETRY_MS, RETRY_FACTOR * MsSince(start)), NULL);
		(void) Try(DropLeftOver, NULL);
	}
}

/* ---------- the whole ---------- */

/*
 * Whether REINDEX would wait for a transaction that is older than a minute, or
 * keep out VACUUM while it waits.
 */
static bool
HasOldTransactions(void)
{
	return Ask(psprintf("SELECT pid::pg_catalog.oid FROM pg_catalog.pg_stat_activity"
						" WHERE datname = pg_catalog.current_database()"
						" AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)"
						" AND backend_type <> 'autovacuum worker'"
						" AND xact_start < pg_catalog.clock_timestamp() - '%d ms'::pg_catalog.interval"
						" UNION ALL SELECT 1::pg_catalog.oid FROM pg_catalog.pg_prepared_xacts"
						" WHERE database = pg_catalog.current_database()"
						" AND prepared < pg_catalog.clock_timestamp() - '%d ms'::pg_catalog.interval",
						PIPEANN_MINUTE, PIPEANN_MINUTE)) != NIL;
}

/* Settings as in an autovacuum worker, so that those of a database or role cannot interrupt it. */
static void
Set(void)
{
	static const char *const settings[][2] = {
		{"search_path", ""}, {"lock_timeout", LOCK_TIMEOUT},
		{"statement_timeout", "0"}, {"zero_damaged_pages", "false"},
		{"synchronous_commit", "local"}, {"default_transaction_read_only", "false"},
		{"default_transaction_isolation", "read committed"},
#if PG_VERSION_NUM >= 170000
		{"transaction_timeout", "0"},
#endif
	};

	for (int i = 0; i < (int) lengthof(settings); i++)
		SetConfigOption(settings[i][0], settings[i][1], PGC_SUSET, PGC_S_OVERRIDE);
}

void
PipeannReindexWorker(Datum database)
{
	List	   *broken = NIL;
	LOCKTAG		tag;

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(database), InvalidOid,
											  BGWORKER_BYPASS_ALLOWCONN);
	Set();
	/* sessions that wait for its locks cancel it after deadlock_timeout */
	PipeannSetStatus(PROC_IS_AUTOVACUUM, 0);
	PortalContext = AllocSetContextCreate(TopMemoryContext, "pipeann reindex",
										  ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(PortalContext);
	former_hook = object_access_hook;
	object_access_hook = MarkOrLock;
	/* only one runs in a database: it holds a session-level lock that users cannot take */
	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, AccessMethodRelationId, 0, 3);
	if (LockAcquire(&tag, ExclusiveLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
		return;
	(void) Try(DropLeftOver, NULL);
	for (int looks = 0; looks < MOST_LOOKS;)
	{
		Work		work = FindWork(&broken);

		if (!work.wanted)
			break;
		if (work.due && !HasOldTransactions())
		{
			Rebuild(&work);
			looks = 0;
		}
		else
		{
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 LOOK_PAUSE_MS, PG_WAIT_EXTENSION);
			ResetLatch(MyLatch);
			CHECK_FOR_INTERRUPTS();
			looks++;
		}
		MemoryContextReset(PortalContext);
	}
}
