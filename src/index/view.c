/*
 * view.c
 *		Opening an index, keeping inserts out of it, and memory for searches.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/parallel.h"
#include "access/relation.h"
#include "access/table.h"
#include "base/pause.h"
#include "catalog/index.h"
#include "catalog/pg_am.h"
#include "catalog/pg_extension.h"
#include "commands/defrem.h"
#include "index/index.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* Keeping inserts out of an index for a moment. */

/* Change this backend's status flags, which other backends see. */
void
PipeannSetStatus(uint8 set, uint8 clear)
{
	LWLockAcquire(ProcArrayLock, LW_EXCLUSIVE);
	MyProc->statusFlags = (MyProc->statusFlags & ~clear) | set;
	ProcGlobal->statusFlags[MyProc->pgxactoff] = MyProc->statusFlags;
	LWLockRelease(ProcArrayLock);
}

/*
 * Whether inserters that wait for an autovacuum worker may cancel it, as they
 * do after deadlock_timeout. The end of its transaction, by commit or abort,
 * makes it cancellable again.
 */
static void
SetCancellable(bool cancellable)
{
	if (!(MyProc->statusFlags & PROC_IS_AUTOVACUUM))
		return;
	if (cancellable)
		PipeannSetStatus(0, PROC_VACUUM_FOR_WRAPAROUND);
	else
		PipeannSetStatus(PROC_VACUUM_FOR_WRAPAROUND, 0);
}

/*
 * Wait for the inserts under way, and keep later ones waiting until
 * PipeannLetInsertsIn(). Returns whether they could cancel this backend
 * before, which PipeannLetInsertsIn() restores.
 */
bool
PipeannKeepInsertsOut(Relation index)
{
	bool		cancellable = (MyProc->statusFlags & PROC_VACUUM_FOR_WRAPAROUND) == 0;

	SetCancellable(false);
	LockPage(index, PIPEANN_METAPAGE, ExclusiveLock);
	return cancellable;
}

void
PipeannLetInsertsIn(Relation index, bool cancellable)
{
	UnlockPage(index, PIPEANN_METAPAGE, ExclusiveLock);
	SetCancellable(cancellable);
}

/* The view of an index: metapage and cache. */

/*
 * Once in a backend, warn if the extension's SQL is not of this library's
 * version. Autovacuum workers, which start every minute, do not warn.
 */
static void
CheckVersion(void)
{
	static bool checked = false;
	Relation	extensions;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (checked || IsParallelWorker() || MyBackendType == B_AUTOVAC_WORKER)
		return;
	extensions = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber,
				F_NAMEEQ, CStringGetDatum("pipeann"));
	scan = systable_beginscan(extensions, ExtensionNameIndexId, true, NULL, 1,
							  &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;
		Datum		version = heap_getattr(tuple,
										   Anum_pg_extension_extversion,
										   RelationGetDescr(extensions),
										   &isnull);
		char	   *name = TextDatumGetCString(version);

		if (strcmp(name, PIPEANN_VERSION) != 0)
			ereport(WARNING,
					(errmsg("extension \"pipeann\" has version %s in this database, but its library is %s",
							name, PIPEANN_VERSION),
					 errhint("Run ALTER EXTENSION pipeann UPDATE, after a restart if the library was loaded before it was installed.")));
	}
	systable_endscan(scan);
	table_close(extensions, AccessShareLock);
	checked = true;
}

/*
 * Acquire or follow the cache. False if the index has been given new codes
 * since the metapage was read.
 */
static bool
TryLoad(PipeannIndexView *view)
{
	bool		has_codes = (view->meta.flags & PIPEANN_META_HAS_CODES) != 0;

	if (view->cache != NULL &&
		(!has_codes || !PipeannCacheFollow(view->index, view->cache, &view->meta)))
	{
		PipeannCacheRelease(view->cache);
		view->cache = NULL;
	}
	if (!has_codes)
		return true;
	if (view->cache == NULL)
		view->cache = PipeannCacheAcquire(view->index, &view->meta, view->context);
	if (view->cache == NULL ||
		(view->all_entries && !PipeannCacheLoadEntries(view->index, view->cache, &view->meta)))
		return false;
	view->codes = view->cache->codes;
	return true;
}

static void
LoadCodes(PipeannIndexView *view)
{
	while (!TryLoad(view))
	{
		uint64		build_id = view->meta.build_id;

		CHECK_FOR_INTERRUPTS();
		PipeannMetaRead(view->index, &view->meta);
		if ((view->meta.flags & PIPEANN_META_HAS_CODES) && view->meta.build_id == build_id)
			PipeannCorrupted(view->index, "has codes of several generations");
	}
}

static void
BeginView(PipeannIndexView *view, Relation index)
{
	CheckVersion();
	memset(view, 0, sizeof(*view));
	view->index = index;
	view->context = CurrentMemoryContext;
	PipeannMetaRead(index, &view->meta);
}

/* Read the metapage, and acquire the cache in CurrentMemoryContext. */
void
PipeannOpenView(PipeannIndexView *view, Relation index)
{
	BeginView(view, index);
	PIPEANN_PAUSE("metapage-read");
	LoadCodes(view);
}

/* The same for looking only, without the cache if that is not in memory. */
void
PipeannPeekView(PipeannIndexView *view, Relation index)
{
	BeginView(view, index);
	if (view->meta.flags & PIPEANN_META_HAS_CODES)
		view->cache = PipeannCachePeek(index, &view->meta, view->context);
	if (view->cache != NULL)
		LoadCodes(view);
}

/*
 * Read the metapage again and follow it. After retraining the view gets
 * another cache, and pointers into the former one are invalid; that does not
 * happen while the caller holds the metapage's heavyweight lock.
 */
void
PipeannRefreshView(PipeannIndexView *view)
{
	PipeannMetaRead(view->index, &view->meta);
	LoadCodes(view);
}

/*
 * The first block of a graph page. Also finds pages that were given out after
 * the view was opened, perhaps behind an extent that the view does not know:
 * chains of overflow slots may lead there. Errors if there is no such page.
 */
BlockNumber
PipeannViewBlock(const PipeannIndexView *view, uint32 page)
{
	PipeannMeta *meta;
	BlockNumber blkno;

	if (page < view->meta.graph_pages)
		return PipeannGraphBlock(&view->meta.extents, &view->meta.layout, page);
	meta = palloc(sizeof(PipeannMeta));
	PipeannMetaRead(view->index, meta);
	if (page >= meta->graph_pages)
		PipeannCorrupted(view->index, "lacks graph page %u", page);
	blkno = PipeannGraphBlock(&meta->extents, &meta->layout, page);
	pfree(meta);
	return blkno;
}

/* Names of a table's indexes by a method, for a hint: the table's is often given instead. */
static char *
IndexNames(Relation table, Oid method)
{
	char	   *names = "";
	ListCell   *cell;

	foreach(cell, RelationGetIndexList(table))
	{
		Relation	index = relation_open(lfirst_oid(cell), AccessShareLock);

		if (index->rd_rel->relam == method)
			names = psprintf("%s %s", names, RelationGetRelationName(index));
		relation_close(index, AccessShareLock);
	}
	return names[0] != '\0' ? names : " none";
}

/*
 * Open an index for a SQL function, with AccessShareLock. Errors unless it is
 * a pipeann index, not another session's temporary one, and the user may
 * select from its table.
 */
Relation
PipeannOpenIndex(Oid relid)
{
	Relation	index = relation_open(relid, AccessShareLock);
	Oid			method = get_am_oid("pipeann", true);

	if (index->rd_rel->relkind != RELKIND_INDEX ||
		index->rd_rel->relam != method)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a pipeann index",
						RelationGetRelationName(index)),
				 index->rd_rel->relhasindex ?
				 errhint("The pipeann indexes of the table are:%s",
						 IndexNames(index, method)) : 0));
	if (RELATION_IS_OTHER_TEMP(index))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot access temporary indexes of other sessions")));
	if (pg_class_aclcheck(IndexGetRelation(relid, false), GetUserId(),
						  ACL_SELECT) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_INDEX,
					   RelationGetRelationName(index));
	if (!index->rd_index->indisvalid)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("index \"%s\" is not valid",
						RelationGetRelationName(index)),
				 errdetail("It was made CONCURRENTLY and not finished, or is just being made."),
				 errhint("If nobody is making it, run REINDEX INDEX CONCURRENTLY \"%s\" or DROP INDEX \"%s\".",
						 RelationGetRelationName(index),
						 RelationGetRelationName(index))));
	return index;
}

/* ---------- the memory of searches ---------- */

/*
 * A backend keeps it from one scan to the next: a search takes a few hundred
 * kilobytes, in allocations too large for a memory context to keep, and returning
 * them to the operating system after each scan costs page faults in the next one.
 */

/* A search that has grown larger is not kept. */
#define KEEP_BYTES (1024 * 1024)

/*
 * Searches that are kept, as scans of a table's partitions have one each at
 * the same time; and their total bytes.
 */
#define KEEP_SEARCHES 64
#define KEEP_ALL (16 * KEEP_BYTES)

typedef struct InUse
{
	PipeannSearch *search;
	MemoryContext context;		/* of the search's memory */
	MemoryContextCallback callback;
} InUse;

/* The searches that no scan is using. */
static struct
{
	PipeannSearch *search;
	Size		bytes;
}			idle[KEEP_SEARCHES];
static int	nidle = 0;
static Size idle_bytes = 0;

static PipeannSearch *
NewSearch(void)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pipeann search",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext former = MemoryContextSwitchTo(context);
	PipeannSearch *search = PipeannSearchCreate();

	MemoryContextSwitchTo(former);
	MemoryContextSetParent(context, TopMemoryContext);
	return search;
}

/* May run while a transaction aborts: no error, no allocation. */
static void
GiveBack(void *arg)
{
	InUse	   *in_use = arg;
	Size		bytes = MemoryContextMemAllocated(in_use->context, true);

	if (nidle == KEEP_SEARCHES || bytes > KEEP_BYTES ||
		idle_bytes + bytes > KEEP_ALL)
	{
		MemoryContextDelete(in_use->context);
		return;
	}
	idle[nidle].search = in_use->search;
	idle[nidle++].bytes = bytes;
	idle_bytes += bytes;
}

/*
 * Get a search that has not begun, if possible with the memory of an earlier
 * one. It is given back when CurrentMemoryContext is reset or deleted.
 */
PipeannSearch *
PipeannReuseSearch(void)
{
	InUse	   *in_use = palloc(sizeof(InUse));

	if (nidle == 0)
		in_use->search = NewSearch();
	else
	{
		in_use->search = idle[--nidle].search;
		idle_bytes -= idle[nidle].bytes;
	}
	in_use->context = GetMemoryChunkContext(in_use->search);
	in_use->callback.func = GiveBack;
	in_use->callback.arg = in_use;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &in_use->callback);
	return in_use->search;
}
