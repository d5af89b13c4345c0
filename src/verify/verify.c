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
#include "base/bits.h"
#include "catalog/index.h"
#include "fmgr.h"
#include "io/io.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "verify/verify.h"

/* Each slot by itself: flags, counts, TIDs, links, vector. */

#define KNOWN_FLAGS \
	(PIPEANN_SLOT_USED | PIPEANN_SLOT_EXT | PIPEANN_SLOT_OUT_OF_LINE | \
	 PIPEANN_SLOT_CLOSED)

static void
CheckFlags(const PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	if (slot->flags & ~KNOWN_FLAGS)
		PipeannCheckReport(check, id, "has unknown flags");
	if (slot->flags != 0 && !(slot->flags & PIPEANN_SLOT_USED))
		PipeannCheckReport(check, id, "is free but has flags");
	if ((slot->flags & PIPEANN_SLOT_EXT) && (slot->flags & PIPEANN_SLOT_OUT_OF_LINE))
		PipeannCheckReport(check, id, "is an overflow slot with a vector");
	if ((slot->flags & PIPEANN_SLOT_OUT_OF_LINE) &&
		!(check->view.meta.flags & PIPEANN_META_AUTO_STORAGE))
		PipeannCheckReport(check, id,
						   "has an out-of-line vector in an index that has none");
}

static void
CheckRows(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &check->view.meta.layout;
	PipeannRowList list = PipeannAnyRows(l, slot);
	const PipeannRow *row = list.rows;
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];

	for (uint32 i = 0; i < list.n; i++, row = PipeannRowNext(l, row))
	{
		if (check->columns.values != NULL && !PipeannRowIsOutOfLine(l, row) &&
			!PipeannDeformRow(check->columns.values, row, values, isnull))
			PipeannCheckReport(check, id, "has a row with broken values");
		if (!ItemPointerIsValid(&row->tid) ||
			ItemPointerGetOffsetNumberNoCheck(&row->tid) > MaxOffsetNumber)
			PipeannCheckReport(check, id, "has an invalid heap TID");
	}
	check->tids += list.n;
}

static void
CheckExtSlot(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &check->view.meta.layout;

	check->seen[id] |= PIPEANN_SEEN_EXT;
	if ((slot->length == 0 && slot->ntids > PipeannExtRows(l, slot).n) ||
		slot->length > PipeannExtBytes(l))
		PipeannCheckReport(check, id,
						   "is an overflow slot with too much in it");
	CheckRows(check, id, slot);
}

static void
CheckNode(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &check->view.meta.layout;

	check->seen[id] |= PIPEANN_SEEN_NODE;
	check->count++;
	if (slot->degree > l->max_degree)
		PipeannCheckReport(check, id, "has too many neighbours");
	if (slot->tree_edges > slot->degree)
		PipeannCheckReport(check, id, "has more spanning-tree edges than edges");
	if (slot->ntids > PipeannSlotRows(l, slot).n)
		PipeannCheckReport(check, id, "has too many inline TIDs");
	CheckRows(check, id, slot);
	PipeannCheckChains(check, id, slot);
	if (slot->ntids == 0 && slot->ext_tids == PIPEANN_INVALID_ID)
		return;
	check->seen[id] |= PIPEANN_SEEN_ROWS;
	PipeannCheckVector(check, id, slot);
}

static void
CheckSlot(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	MemoryContext old;

	CheckFlags(check, id, slot);
	if (!(slot->flags & PIPEANN_SLOT_USED))
		return;
	old = MemoryContextSwitchTo(check->scratch);
	if (slot->flags & PIPEANN_SLOT_EXT)
		CheckExtSlot(check, id, slot);
	else
		CheckNode(check, id, slot);
	MemoryContextSwitchTo(old);
	MemoryContextReset(check->scratch);
}

/*
 * Neighbour lists, and whether every node can be reached: by any edges,
 * and by spanning-tree edges alone, as others may be pruned at any time.
 *
 * Edges change during the check. Inserts and VACUUM keep each node reachable
 * at any moment, but a walk that read one page before a change and another one
 * after it may miss a node. So a node that was missed is looked for again,
 * over the pages as they are then. VACUUM takes spanning-tree edges away and
 * later gives every node some; while it runs these edges are not checked.
 */

/* Log2 of the number of bits that tell a list's ids apart. */
#define LIST_BITS 12

/* All lists, one after the other, if maintenance_work_mem holds them. */
typedef struct Lists
{
	uint32		ids;			/* length of first[] - 1 */
	uint32		next;			/* id of the next list */
	uint64	   *first;			/* [ids + 1] begin of each list in edges[] */
	uint32	   *edges;			/* NULL once there were too many */
	uint64		size;
	uint64		limit;
} Lists;

struct PipeannCheckWalk
{
	Lists		lists;
	uint8	   *wanted;			/* [pages] has nodes reached, not expanded */
	bool		more;			/* there are such pages */
	bool		tree_only;		/* follow only spanning-tree edges */
};

/* Whether an id is twice in a list; compares those that share a bit. */
static bool
HasTwice(const PipeannSlot *slot)
{
	uint8		bits[(1 << LIST_BITS) / 8] = {0};

	for (int i = 0; i < slot->degree; i++)
	{
		uint32		bit = (slot->neighbors[i] * 2654435769U) >> (32 - LIST_BITS);

		if (PipeannHasBit(bits, bit))
			for (int j = 0; j < i; j++)
				if (slot->neighbors[j] == slot->neighbors[i])
					return true;
		PipeannSetBit(bits, bit);
	}
	return false;
}

/*
 * What is wrong with a node's list, or NULL. A dead node's list may lead to
 * slots that VACUUM has freed: VACUUM is yet to free the node.
 */
static const char *
ListProblem(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	if (slot->degree > check->view.meta.layout.max_degree)
		return "has too many neighbours";
	for (int i = 0; i < slot->degree; i++)
		if (slot->neighbors[i] == id)
			return "is its own neighbour";
	if (HasTwice(slot))
		return "has a neighbour twice";
	for (int i = 0; i < slot->degree && PipeannSlotIsLive(slot); i++)
		if (!PipeannCheckIsNodeNow(check, slot->neighbors[i]))
			return psprintf("has a neighbour %u that is not a node",
							slot->neighbors[i]);
	return NULL;
}

/*
 * VACUUM repairs lists before it frees the nodes that they lead to, so a list
 * that looks wrong may have been read before its repair: it is looked at
 * again.
 */
static void
CheckList(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	const char *problem = ListProblem(check, id, slot);
	PipeannSlot *again;

	if (problem == NULL)
		return;
	again = PipeannSlotAlloc(&check->view.meta.layout);
	for (int i = 0; problem != NULL && i < PIPEANN_CHECK_TRIES; i++)
	{
		PipeannCheckPause();
		if (!PipeannCheckReadSlot(check, id, again) ||
			!PipeannSlotIsNode(again))
			problem = NULL;
		else
			problem = ListProblem(check, id, again);
	}
	pfree(again);
	if (problem != NULL)
		PipeannCheckReport(check, id, problem);
}

static void
InitLists(const PipeannCheck *check, Lists *lists)
{
	uint64		budget = (uint64) maintenance_work_mem * 1024 /
		sizeof(uint32);
	uint64		fixed = ((uint64) check->ids + 1) * 3;

	memset(lists, 0, sizeof(*lists));
	lists->ids = check->ids;
	if (fixed >= budget)
		return;
	lists->limit = budget - fixed;
	lists->size = Min(lists->limit, (uint64) check->ids * 8 + 1024);
	lists->first = PipeannAlloc(((Size) check->ids + 1) * sizeof(uint64));
	lists->edges = PipeannAlloc(lists->size * sizeof(uint32));
	lists->first[0] = 0;
}

static void
FreeLists(Lists *lists)
{
	if (lists->edges != NULL)
	{
		pfree(lists->first);
		pfree(lists->edges);
	}
	lists->edges = NULL;
}

/* Keep a list in memory. Nodes come in the order of their ids. */
static void
KeepList(Lists *lists, uint32 id, const uint32 *list, int degree)
{
	uint64		used;

	if (lists->edges == NULL || id >= lists->ids || id < lists->next)
		return;
	for (; lists->next < id; lists->next++)
		lists->first[lists->next + 1] = lists->first[lists->next];
	used = lists->first[id];
	if (used + degree > lists->size)
	{
		if (used + degree > lists->limit)
		{
			FreeLists(lists);
			return;
		}
		lists->size = Min(lists->limit, lists->size * 2 + degree);
		lists->edges = PipeannRealloc(lists->edges,
									  lists->size * sizeof(uint32));
	}
	memcpy(lists->edges + used, list, degree * sizeof(uint32));
	lists->first[id + 1] = used + degree;
	lists->next = id + 1;
}

static void
VisitList(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	if (!PipeannSlotIsNode(slot))
		return;
	CheckList(check, id, slot);
	KeepList(&check->walk->lists, id, slot->neighbors,
			 PipeannSlotDegree(&check->view.meta.layout, slot));
}

static bool
Reach(PipeannCheck *check, uint32 id)
{
	if (id >= check->ids || (check->seen[id] & PIPEANN_SEEN_REACHED))
		return false;
	check->seen[id] |= PIPEANN_SEEN_REACHED;
	return true;
}

/* Walk over lists in memory. */
static void
WalkLists(PipeannCheck *check)
{
	const PipeannCodes *codes = &check->view.codes;
	Lists	   *lists = &check->walk->lists;
	uint32	   *stack = PipeannAlloc(((Size) check->ids + 1) *
									 sizeof(uint32));
	uint32		depth = 0;

	for (; lists->next < lists->ids; lists->next++)
		lists->first[lists->next + 1] = lists->first[lists->next];
	for (uint32 i = 0; i < codes->entry_count; i++)
		if (Reach(check, codes->entry_ids[i]))
			stack[depth++] = codes->entry_ids[i];
	while (depth > 0)
	{
		uint32		id = stack[--depth];

		if (id % 1024 == 0)
			CHECK_FOR_INTERRUPTS();
		if (id >= lists->ids)
			continue;
		for (uint64 at = lists->first[id]; at < lists->first[id + 1]; at++)
			if (Reach(check, lists->edges[at]))
				stack[depth++] = lists->edges[at];
	}
	pfree(stack);
}

static void
ReachOnPage(PipeannCheck *check, uint32 id)
{
	if (!Reach(check, id))
		return;
	check->walk->wanted[PipeannIdPage(&check->view.meta.layout, id)] = 1;
	check->walk->more = true;
}

static void
Expand(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &check->view.meta.layout;
	uint8	   *seen = &check->seen[id];
	int			degree;

	if (!PipeannSlotIsNode(slot) || !(*seen & PIPEANN_SEEN_REACHED) ||
		(*seen & PIPEANN_SEEN_EXPANDED))
		return;
	*seen |= PIPEANN_SEEN_EXPANDED;
	degree = check->walk->tree_only ? PipeannSlotTreeEdges(l, slot) :
		PipeannSlotDegree(l, slot);
	for (int i = 0; i < degree; i++)
		ReachOnPage(check, slot->neighbors[i]);
}

/*
 * Start at the root or, unless tree_only is set, also at the entry graph's
 * nodes.
 */
static void
ReachFirst(PipeannCheck *check)
{
	const PipeannCodes *codes = &check->view.codes;

	if (check->walk->tree_only)
		ReachOnPage(check, check->view.meta.root);
	else
		for (uint32 i = 0; i < codes->entry_count; i++)
			ReachOnPage(check, codes->entry_ids[i]);
}

/*
 * Walk over pages, by sweeps that read those with nodes to expand. Nodes that
 * were reached before are expanded anew.
 */
static void
WalkPages(PipeannCheck *check)
{
	PipeannCheckWalk *state = check->walk;

	state->wanted = PipeannAllocZero(Max(check->pages, 1));
	for (uint32 id = 0; id < check->ids; id++)
	{
		check->seen[id] &= ~PIPEANN_SEEN_EXPANDED;
		if (check->seen[id] & PIPEANN_SEEN_REACHED)
		{
			state->wanted[PipeannIdPage(&check->view.meta.layout, id)] = 1;
			state->more = true;
		}
	}
	ReachFirst(check);
	while (state->more)
	{
		state->more = false;
		PipeannCheckSweep(check, state->wanted, Expand);
	}
	pfree(state->wanted);
}

/*
 * A stable node that was not reached, or INVALID_ID. Other nodes are being
 * inserted, or are left by a crash or an error.
 */
static uint32
FindLost(const PipeannCheck *check)
{
	const uint8 want = PIPEANN_SEEN_NODE | PIPEANN_SEEN_ROWS;
	PipeannSlot *slot = PipeannSlotAlloc(&check->view.meta.layout);
	uint32		lost = PIPEANN_INVALID_ID;

	for (uint32 id = 0; id < check->ids && lost == PIPEANN_INVALID_ID; id++)
	{
		if (id % 65536 == 0)
			CHECK_FOR_INTERRUPTS();
		if ((check->seen[id] & (want | PIPEANN_SEEN_REACHED)) != want)
			continue;
		if (PipeannCheckReadSlot(check, id, slot) &&
			PipeannSlotIsNode(slot) && PipeannCheckIsStable(check, slot))
			lost = id;
	}
	pfree(slot);
	return lost;
}

static bool
IsRepairing(PipeannCheck *check)
{
	PipeannCheckRefresh(check);
	return (check->view.meta.flags & PIPEANN_META_REPAIRING) != 0;
}

/*
 * A node that the walk has not reached, even when it is repeated, or
 * INVALID_ID.
 */
static uint32
FindLostForGood(PipeannCheck *check)
{
	uint32		lost = FindLost(check);

	for (int i = 0; i < PIPEANN_CHECK_TRIES && lost != PIPEANN_INVALID_ID; i++)
	{
		PipeannCheckPause();
		PipeannCheckRefresh(check);
		WalkPages(check);
		lost = FindLost(check);
	}
	return lost;
}

static void
CheckReach(PipeannCheck *check)
{
	uint32		lost;

	if (check->walk->lists.edges != NULL)
	{
		WalkLists(check);
		FreeLists(&check->walk->lists);
	}
	else
		WalkPages(check);
	lost = FindLostForGood(check);
	if (lost != PIPEANN_INVALID_ID)
		PipeannCheckReport(check, lost, "cannot be reached");
}

static void
CheckTreeEdges(PipeannCheck *check)
{
	uint32		lost;

	if (IsRepairing(check))
		return;
	for (uint32 id = 0; id < check->ids; id++)
		check->seen[id] &= ~(PIPEANN_SEEN_REACHED | PIPEANN_SEEN_EXPANDED);
	check->walk->tree_only = true;
	WalkPages(check);
	lost = FindLostForGood(check);
	if (lost != PIPEANN_INVALID_ID && !IsRepairing(check))
		PipeannCheckReport(check, lost,
						   "can be reached, but not over spanning-tree edges");
}

static void
CheckEdges(PipeannCheck *check)
{
	PipeannCheckWalk state;

	memset(&state, 0, sizeof(state));
	check->walk = &state;
	InitLists(check, &state.lists);
	PipeannCheckSweep(check, NULL, VisitList);
	CheckReach(check);
	CheckTreeEdges(check);
	check->walk = NULL;
}

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
												  check->view.cache->histograms);
	check->packings = check->view.meta.packings;
	check->nodes = palloc((Size) check->view.meta.layout.node_pages *
						  PIPEANN_PAYLOAD);
	check->codes = palloc(PIPEANN_PAYLOAD);
	check->code_page = PIPEANN_INVALID_ID;
	check->seen = PipeannAllocZero(1);
	check->strategy = GetAccessStrategy(BAS_BULKREAD);
	PipeannCheckRefresh(check);

	PipeannCheckOtherPages(check);
	PipeannCheckSweep(check, NULL, CheckSlot);
	PipeannCheckOwners(check);
	if (check->view.cache != NULL)
	{
		PipeannCheckStreams(check);
		CheckEdges(check);
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
