/*
 * verify.c
 *		pipeann_check(): checks the invariants of src/README, like amcheck.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "verify/verify.h"
#include "catalog/index.h"
#include "fmgr.h"
#include "io/io.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(pipeann_check);

/* Lock the table before the index, as everybody does. */
static void
OpenRelations(PipeannCheck *check, Oid relid)
{
	Oid			heapid = IndexGetRelation(relid, true);

	if (OidIsValid(heapid))
		check->heap = table_open(heapid, AccessShareLock);
	check->view.index = PipeannOpenIndex(relid);
	if (check->heap == NULL || heapid != IndexGetRelation(relid, false))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("could not open parent table of index \"%s\"",
						RelationGetRelationName(check->view.index))));
}

/*
 * Take a snapshot. One from before the index was built may see rows that the
 * index lacks: versions in broken HOT chains.
 */
static void
TakeSnapshot(PipeannCheck *check)
{
	Relation	index = check->view.index;

	check->snapshot = RegisterSnapshot(GetTransactionSnapshot());
	if (IsolationUsesXactSnapshot() && index->rd_index->indcheckxmin &&
		!TransactionIdPrecedes(HeapTupleHeaderGetXmin(index->rd_indextuple->t_data),
							   check->snapshot->xmin))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("index \"%s\" cannot be verified using transaction snapshot",
						RelationGetRelationName(index))));
}

static void
CheckAll(PipeannCheck *check, bool heapallindexed)
{
	Relation	index = check->view.index;

		/* a replica cannot make others wait: see PipeannCheckRefresh() */
	if (!RecoveryInProgress())
		LockPage(index, PIPEANN_REPACK_LOCK, ShareLock);
	PipeannOpenView(&check->view, index);
	check->columns = PipeannIndexColumns(index);
	if (check->view.cache != NULL)
		check->attributes = PipeannAttributesOpen(index,
												  check->view.meta.format,
												  &check->view.meta.layout,
												  &check->view.meta.widths,
												  check->view.cache->books);
	check->packings = check->view.meta.packings;
	check->nodes = palloc((Size) check->view.meta.layout.node_pages *
						  PIPEANN_PAYLOAD);
	check->codes = palloc(PIPEANN_PAYLOAD);
	check->code_page = PIPEANN_INVALID_ID;
	check->seen = PipeannAllocZero(1);
	check->strategy = GetAccessStrategy(BAS_BULKREAD);
	PipeannCheckRefresh(check);

	PipeannCheckMap(check);
	PipeannCheckOtherPages(check);
	PipeannCheckSlots(check);
	PipeannCheckOwners(check);
	if (check->view.cache != NULL)
	{
		PipeannCheckStreams(check);
		PipeannCheckEdges(check);
	}
	PipeannCheckTids(check, heapallindexed);
	if (!RecoveryInProgress())
		UnlockPage(index, PIPEANN_REPACK_LOCK, ShareLock);
}

/* Run as the table's owner, for the index's expression and predicate. */
static void
CheckAsOwner(PipeannCheck *check, bool heapallindexed)
{
	Oid			user;
	int			context;
	int			level;

	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(check->heap->rd_rel->relowner,
						   context | SECURITY_RESTRICTED_OPERATION);
	level = NewGUCNestLevel();
#if PG_VERSION_NUM >= 170000
	RestrictSearchPath();
#endif
	CheckAll(check, heapallindexed);
	AtEOXact_GUC(false, level);
	SetUserIdAndSecContext(user, context);
}

/*
 * pipeann_check(regclass, heapallindexed): returns the number of nodes
 * checked, or errors with ERRCODE_INDEX_CORRUPTED at the first violation.
 */
Datum
pipeann_check(PG_FUNCTION_ARGS)
{
	PipeannCheck check;
	MemoryContext context;
	MemoryContext old;

	memset(&check, 0, sizeof(check));
	OpenRelations(&check, PG_GETARG_OID(0));
	TakeSnapshot(&check);
	context = AllocSetContextCreate(CurrentMemoryContext, "pipeann check",
									ALLOCSET_DEFAULT_SIZES);
	check.scratch = AllocSetContextCreate(context, "pipeann check scratch",
										  ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	CheckAsOwner(&check, PG_GETARG_BOOL(1));
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	UnregisterSnapshot(check.snapshot);
	relation_close(check.view.index, AccessShareLock);
	table_close(check.heap, AccessShareLock);
	PG_RETURN_INT64(check.count);
}
