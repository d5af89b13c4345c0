/*
 * view.c
 *		Opening an index, and keeping inserts out of it.
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

/* Change what other backends are told of this one. */
void
PipeannSetStatus(uint8 set, uint8 clear)
{
	LWLockAcquire(ProcArrayLock, LW_EXCLUSIVE);
	MyProc->statusFlags = (MyProc->statusFlags & ~clear) | set;
	ProcGlobal->statusFlags[MyProc->pgxactoff] = MyProc->statusFlags;
	LWLockRelease(ProcArrayLock);
}

/*
 * Whether inserters that wait for an autovacuum worker may cancel it, as they do after
 * deadlock_timeout. The end of its transaction, of whatever kind, makes it cancellable
 * again.
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
 * Wait for the inserts under way, and let others wait until inserts are let in
 * again. Returns whether they could cancel this backend before, which
 * PipeannLetInsertsIn() restores.
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
 * Once in a backend: whether the extension's SQL is of this library's version. Workers of
 * autovacuum, which come by the minute, do not say it.
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
 * Acquire or follow the cache. False if the index has got other codes since the metapage
 * was read.
 */
static bool
TryLoad(PipeannIndexView *view)
{
	bool		has_codes = (view->meta.flags & PIPEANN_META_HAS_CODES) != 0;

	if (view->cache != NULL &&
		(!has_codes || view->build_id != view->meta.build_id))
	{
		PipeannCacheRelease(view->cache);
		view->cache = NULL;
	}
	if (!has_codes)
		return true;
	view->build_id = view->meta.build_id;
	if (view->cache != NULL)
	{
		if (!PipeannCacheFollow(view->index, view->cache, &view->meta))
			return false;
	}
	else
	{
		view->cache = PipeannCacheAcquire(view->index, &view->meta, view->context);
		if (view->cache == NULL)
			return false;
	}
	if (view->all_entries && !PipeannCacheLoadEntries(view->index, view->cache, &view->meta))
		return false;
	view->codes = view->cache->codes;
	return true;
}

static void
LoadCodes(PipeannIndexView *view)
{
	while (!TryLoad(view))
	{
		CHECK_FOR_INTERRUPTS();
		PipeannMetaRead(view->index, &view->meta);
		if ((view->meta.flags & PIPEANN_META_HAS_CODES) &&
			view->build_id == view->meta.build_id)
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

/* The same to look at, without the cache if that is not in memory. */
void
PipeannPeekView(PipeannIndexView *view, Relation index)
{
	BeginView(view, index);
	if (view->meta.flags & PIPEANN_META_HAS_CODES)
		view->cache = PipeannCachePeek(index, &view->meta, view->context);
	view->build_id = view->meta.build_id;
	if (view->cache != NULL)
		LoadCodes(view);
}

/*
 * Read the metapage again and follow it. After new codes were made the view gets
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
 * The first block of a graph page. Finds pages, too, that were given out after the view
 * was opened, perhaps behind a run that the view does not know: chains of overflow slots
 * may lead there. Errors if there is no such page.
 */
BlockNumber
PipeannViewBlock(const PipeannIndexView *view, uint32 page)
{
	PipeannMeta *meta;
	BlockNumber blkno;

	if (page < view->meta.graph_pages)
		return PipeannGraphBlock(&view->meta.places, &view->meta.layout, page);
	meta = palloc(sizeof(PipeannMeta));
	PipeannMetaRead(view->index, meta);
	if (page >= meta->graph_pages)
		PipeannCorrupted(view->index, "lacks graph page %u", page);
	blkno = PipeannGraphBlock(&meta->places, &meta->layout, page);
	pfree(meta);
	return blkno;
}

/* The indexes of a table by a method: its name is often given for theirs. */
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
