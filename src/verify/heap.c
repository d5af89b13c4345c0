/*
 * heap.c
 *		The index's TIDs against each other and against the table.
 *
 * TIDs are gathered with the hash of their node's vector, as many at a time as
 * maintenance_work_mem holds: those of a range of the table's blocks. The
 * table's rows that our snapshot sees are looked up among them. VACUUM cannot
 * remove these rows.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "verify/verify.h"
#include "catalog/index.h"
#include "common/hashfn.h"
#include "utils/datum.h"
#include "distance/distance.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#define FIRST_SIZE 1024

/* So many rows of a range that were not found are looked for again. */
#define MAX_MISSING 64

typedef struct TidEntry
{
	uint64		tid;			/* block << 16 | offset */
	uint32		id;				/* of the node */
	uint32		hash;			/* of its vector */
	uint32		values;			/* hash of the row's values, 0 if it has none */
} TidEntry;

typedef struct Missing
{
	ItemPointerData tid;
	uint32		hash;
	uint32		values;
} Missing;

struct PipeannTidSet
{
	const PipeannCheck *check;
	BlockNumber from;			/* first block of the range */
	BlockNumber to;				/* first block behind it */
	bool		hash_vectors;
	uint64		n;
	uint64		size;
	TidEntry   *entries;
	uint32		id;				/* node whose TIDs are being added */
	uint32		hash;
	int			missing_count;
	Missing		missing[MAX_MISSING];
	char	   *vector;			/* a row's vector in the form of a slot */
};

static uint64
TidKey(const ItemPointerData *tid)
{
	return (uint64) ItemPointerGetBlockNumberNoCheck(tid) << 16 |
		ItemPointerGetOffsetNumberNoCheck(tid);
}

static bool
IsVisible(const PipeannCheck *check, const PipeannRow *row)
{
	ItemPointerData tid = row->tid;

	return ItemPointerGetBlockNumberNoCheck(&tid) <
		RelationGetNumberOfBlocks(check->heap) &&
		table_index_fetch_tuple_check(check->heap, &tid, check->snapshot,
									  NULL);
}

typedef struct Visibility
{
	const PipeannCheck *check;
	bool		visible;
} Visibility;

static bool
LookAt(const PipeannRow *row, void *arg)
{
	Visibility *visibility = arg;

	visibility->visible = IsVisible(visibility->check, row);
	return !visibility->visible;
}

/*
 * Whether a node is stable: it has a row that our snapshot sees, so its insert
 * ended before the check began, and all invariants must hold for it.
 */
bool
PipeannCheckIsStable(const PipeannCheck *check, const PipeannSlot *slot)
{
	Visibility	visibility = {check, false};

	PipeannCheckVisitRows(check, slot, LookAt, &visibility);
	return visibility.visible;
}

typedef struct Covering
{
	PipeannCheck *check;
	uint32		id;
	const uint8 *code;
	bool		covers;
} Covering;

static bool
CoverRow(const PipeannRow *row, void *arg)
{
	Covering   *covering = arg;
	PipeannCheck *check = covering->check;
	const PipeannRow *whole = row;
	uint8		code[PIPEANN_MAX_ATTRIBUTE_BYTES];

	if (PipeannRowIsOutOfLine(&check->view.meta.layout, row))
		whole = PipeannCheckReadRow(check, row);
	if (whole == NULL)
		return true;
	PipeannAttributesEncode(check->attributes, covering->id, whole, code);
	covering->covers = PipeannAttributesCover(check->attributes,
											  covering->code, code) ||
		!IsVisible(check, row);
	return covering->covers;
}

/*
 * Whether an attribute code covers all rows of a node that our snapshot
 * sees. (One that is just joining the node comes first, and the code then.)
 */
bool
PipeannCheckCovers(PipeannCheck *check, uint32 id, const PipeannSlot *slot,
				   const uint8 *code)
{
	Covering	covering = {check, id, code, true};

	PipeannCheckVisitRows(check, slot, CoverRow, &covering);
	return covering.covers;
}

/* A hash of what values are, compressed or not. */
static uint32
HashValues(TupleDesc desc, const Datum *values, const bool *isnull)
{
	uint32		hash = 0;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		hash = hash_combine(hash, isnull[i] ? 1 :
							datum_image_hash(values[i], att->attbyval,
											 att->attlen));
	}
	return hash;
}

/*
 * The hash of a row's values. If they are out of line and are just being removed, our
 * snapshot does not see the row.
 */
static uint32
HashValuesOf(const PipeannCheck *check, const PipeannRow *row)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	MemoryContext old;
	uint32		hash = 0;

	if (check->columns.values == NULL || !check->set->hash_vectors)
		return 0;
	old = MemoryContextSwitchTo(check->scratch);
	if (PipeannRowIsOutOfLine(&check->view.meta.layout, row))
		row = PipeannCheckReadRow(check, row);
	if (row != NULL && PipeannDeformRow(check->columns.values, row, values, isnull))
		hash = HashValues(check->columns.values, values, isnull);
	MemoryContextSwitchTo(old);
	return hash;
}

static bool
AddTid(const PipeannRow *row, void *arg)
{
	PipeannTidSet *set = arg;
	BlockNumber block = ItemPointerGetBlockNumberNoCheck(&row->tid);

	if (block < set->from || block >= set->to)
		return true;
	if (set->n == set->size)
	{
		set->size = set->size == 0 ? FIRST_SIZE : set->size * 2;
		set->entries = set->entries == NULL ?
			PipeannAlloc(mul_size(set->size, sizeof(TidEntry))) :
			PipeannRealloc(set->entries,
						   mul_size(set->size, sizeof(TidEntry)));
	}
	set->entries[set->n++] = (TidEntry)
	{
		TidKey(&row->tid), set->id, set->hash, HashValuesOf(set->check, row)
	};
	return true;
}

/*
 * The hash of a vector as this storage has it. Where zeroes may have lost their sign
 * all of them count as positive; x is changed.
 */
static uint32
HashVector(const PipeannCheck *check, float *x, PipeannStorage storage)
{
	int			dim = check->view.meta.layout.dim;
	char	   *form = check->set->vector;

	if (!(check->view.meta.flags & PIPEANN_META_SIGNED_ZEROS))
		for (int i = 0; i < dim; i++)
			x[i] += 0.0f;
	PipeannVectorFromFloat(x, storage, dim, form);
	return hash_bytes((const unsigned char *) form,
					  (int) mul_size(dim, PipeannElementSize(storage)));
}

/*
 * The hash of a node's vector: of the exact one in the chain of an out-of-line
 * node (if that is being changed, our snapshot sees no row of the node), or
 * the hash that was kept of a rounded one.
 */
static uint32
HashNode(const PipeannCheck *check, const PipeannSlot *slot)
{
	const PipeannLayout *l = &check->view.meta.layout;
	bool		out_of_line = (slot->flags & PIPEANN_SLOT_OUT_OF_LINE) != 0;
	float	   *x;

	if (PipeannSlotError(l, slot) > 0)
		return slot->hash;
	x = palloc0(mul_size(l->dim, sizeof(float)));
	if (out_of_line)
		(void) PipeannCheckOutOfLineVector(check, slot, x);
	else
		PipeannVectorToFloat(PipeannSlotVector(l, slot), l->storage, l->dim,
							 x);
	return HashVector(check, x, out_of_line ? PIPEANN_FLOAT4 : l->storage);
}

static void
TakeTids(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	PipeannTidSet *set = check->set;
	MemoryContext old;

	if (!PipeannSlotIsNode(slot))
		return;
	old = MemoryContextSwitchTo(check->scratch);
	set->id = id;
	set->hash = set->hash_vectors ? HashNode(check, slot) : 0;
	MemoryContextSwitchTo(old);
	PipeannCheckVisitRows(check, slot, AddTid, set);
	MemoryContextReset(check->scratch);
}

static int
CompareEntries(const void *a, const void *b)
{
	const TidEntry *x = a;
	const TidEntry *y = b;

	if (x->tid != y->tid)
		return x->tid < y->tid ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

static void
FillSet(PipeannCheck *check)
{
	PipeannTidSet *set = check->set;

	set->n = 0;
	PipeannCheckRefresh(check);
	PipeannCheckSweep(check, NULL, TakeTids);
	if (set->n > 0)
		qsort(set->entries, set->n, sizeof(TidEntry), CompareEntries);
}

/* Counts how often a TID is in a node. */
typedef struct TidCount
{
	uint64		tid;
	int			count;
} TidCount;

static bool
CountTid(const PipeannRow *row, void *arg)
{
	TidCount   *count = arg;

	count->count += TidKey(&row->tid) == count->tid;
	return true;
}

static int
CountInNode(const PipeannCheck *check, uint32 id, uint64 tid)
{
	PipeannSlot *slot = PipeannSlotAlloc(&check->view.meta.layout);
	TidCount	count = {tid, 0};

	if (PipeannCheckReadSlot(check, id, slot) && PipeannSlotIsNode(slot))
		PipeannCheckVisitRows(check, slot, CountTid, &count);
	pfree(slot);
	return count.count;
}

/*
 * Whether both nodes have the TID. Between our reading of the two its row may
 * have been removed and another one have come in its place; so they are read
 * again, in turn.
 */
static bool
HaveBoth(const PipeannCheck *check, const TidEntry *a, const TidEntry *b)
{
	if (a->id == b->id)
		return CountInNode(check, a->id, a->tid) > 1;
	return CountInNode(check, a->id, a->tid) > 0 &&
		CountInNode(check, b->id, a->tid) > 0 &&
		CountInNode(check, a->id, a->tid) > 0;
}

static void
CheckTwice(const PipeannCheck *check)
{
	const PipeannTidSet *set = check->set;

	for (uint64 i = 1; i < set->n; i++)
	{
		const TidEntry *a = &set->entries[i - 1];
		const TidEntry *b = &set->entries[i];
		int			tries = 0;

		if (a->tid != b->tid)
			continue;
		while (tries < PIPEANN_CHECK_TRIES && HaveBoth(check, a, b))
		{
			PipeannCheckPause();
			tries++;
		}
		if (tries == PIPEANN_CHECK_TRIES)
			PipeannCheckReport(check, b->id,
							   psprintf("has heap TID (%u,%u), which node %u has too",
										(BlockNumber) (a->tid >> 16),
										(OffsetNumber) (a->tid & 0xFFFF),
										a->id));
	}
}

static const TidEntry *
FindTid(const PipeannTidSet *set, const ItemPointerData *tid)
{
	uint64		key = TidKey(tid);
	uint64		low = 0;
	uint64		high = set->n;

	while (low < high)
	{
		uint64		middle = (low + high) / 2;

		if (set->entries[middle].tid < key)
			low = middle + 1;
		else
			high = middle;
	}
	return low < set->n && set->entries[low].tid == key ?
		&set->entries[low] : NULL;
}

/*
 * The hash of a row's vector, to compare with HashNode(). If rounded is set,
 * that of the vector in half precision, for nodes that kept no hash: the row
 * does not tell which kind its node is.
 */
static uint32
HashRow(const PipeannCheck *check, const float *x, bool rounded)
{
	const PipeannLayout *l = &check->view.meta.layout;
	bool		out_of_line = PipeannIsOutOfLine(&check->view.meta, x,
												 PipeannNorm(x, l->dim));
	float	   *copy;

	if (l->storage == PIPEANN_FLOAT2 && !rounded && !out_of_line)
		return PipeannVectorHash(x, l->dim);
	copy = palloc(mul_size(l->dim, sizeof(float)));
	memcpy(copy, x, mul_size(l->dim, sizeof(float)));
	return HashVector(check, copy, out_of_line ? PIPEANN_FLOAT4 : l->storage);
}

/* Whether an entry is there and is as the table's row wants it. */
static bool
IsLike(const TidEntry *entry, const Missing *row)
{
	return entry != NULL && entry->hash == row->hash &&
		entry->values == row->values;
}

/* The hash of a table's row's values beside the vector. */
static uint32
HashOthers(const PipeannCheck *check, const Datum *all, const bool *all_null)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];

	PipeannWithoutVector(&check->columns, all, all_null, values, isnull);
	return HashValues(check->columns.values, values, isnull);
}

static void
LookUpRow(Relation index, ItemPointer tid, Datum *values, bool *isnull,
		  bool tuple_is_alive, void *arg)
{
	PipeannCheck *check = arg;
	PipeannTidSet *set = check->set;
	const PipeannLayout *l = &check->view.meta.layout;
	const TidEntry *entry;
	MemoryContext old;
	const float *x;

	(void) index;
	(void) tuple_is_alive;
	if (isnull[check->columns.vector])
		return;
	old = MemoryContextSwitchTo(check->scratch);
	x = PipeannDatumElements(values[check->columns.vector], l->dim);
	if (PipeannIsIndexable(l->metric, PipeannNorm(x, l->dim)))
	{
		Missing		row = {*tid, HashRow(check, x, false), 0};

		if (check->columns.values != NULL)
			row.values = HashOthers(check, values, isnull);
		entry = FindTid(set, tid);
		if (entry != NULL && entry->hash != row.hash)
			row.hash = HashRow(check, x, true);
		if (!IsLike(entry, &row) && set->missing_count < MAX_MISSING)
			set->missing[set->missing_count++] = row;
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(check->scratch);
}

static void
ReportRow(const PipeannCheck *check, const Missing *missing,
		  const TidEntry *entry)
{
	const char *table = RelationGetRelationName(check->heap);
	BlockNumber block = ItemPointerGetBlockNumberNoCheck(&missing->tid);
	OffsetNumber offset = ItemPointerGetOffsetNumberNoCheck(&missing->tid);

	if (entry != NULL)
		PipeannCheckReport(check, entry->id,
						   psprintf("has %s than its row (%u,%u) in table \"%s\"",
									entry->hash != missing->hash ?
									"another vector" : "other values",
									block, offset, table));
	PipeannCheckReport(check, PIPEANN_INVALID_ID,
					   psprintf("row (%u,%u) of table \"%s\" is not in it",
								block, offset, table));
}

/*
 * A row that the snapshot sees was in the index before the check began, but
 * its TID may have been moved to a slot that the sweep had passed: look again.
 */
static void
CheckMissing(PipeannCheck *check)
{
	PipeannTidSet *set = check->set;

	for (int i = 0; set->missing_count > 0 && i < PIPEANN_CHECK_TRIES; i++)
	{
		int			left = 0;

		PipeannCheckPause();
		FillSet(check);
		for (int j = 0; j < set->missing_count; j++)
		{
			const Missing *missing = &set->missing[j];
			const TidEntry *entry = FindTid(set, &missing->tid);

			if (IsLike(entry, missing))
				continue;
			if (i == PIPEANN_CHECK_TRIES - 1)
				ReportRow(check, missing, entry);
			set->missing[left++] = *missing;
		}
		set->missing_count = left;
	}
}

/* Scan the table like CREATE INDEX CONCURRENTLY, with our snapshot. */
static void
LookUpRows(PipeannCheck *check, BlockNumber blocks)
{
	PipeannTidSet *set = check->set;
	IndexInfo  *info = BuildIndexInfo(check->view.index);
	TableScanDesc scan = table_beginscan_strat(check->heap, check->snapshot,
											   0, NULL, true, false);

	info->ii_Concurrent = true;
	table_index_build_range_scan(check->heap, check->view.index, info, false,
								 false, false, set->from,
								 Min(set->to, blocks) - set->from, LookUpRow,
								 check, scan);
}

/*
 * Errors unless each TID is in the index once and, with heapallindexed, each
 * row that the snapshot sees is in a node of its vector, with its values.
 */
void
PipeannCheckTids(PipeannCheck *check, bool heapallindexed)
{
	BlockNumber blocks = RelationGetNumberOfBlocks(check->heap);
	uint64		bytes = (uint64) check->tids * sizeof(TidEntry);
	uint64		ranges = bytes / ((uint64) maintenance_work_mem * 1024) + 1;
	BlockNumber part = (BlockNumber) (blocks / ranges) + 1;
	PipeannTidSet set;

	memset(&set, 0, sizeof(set));
	set.check = check;
	set.hash_vectors = heapallindexed;
	set.vector = palloc(mul_size(check->view.meta.layout.dim, sizeof(float)));
	check->set = &set;
	for (set.from = 0; set.from == 0 || set.from < blocks; set.from = set.to)
	{
		set.to = blocks - set.from > part ? set.from + part : MaxBlockNumber;
		FillSet(check);
		CheckTwice(check);
		if (heapallindexed && set.from < blocks)
			LookUpRows(check, blocks);
		CheckMissing(check);
	}
	if (set.entries != NULL)
		pfree(set.entries);
	check->set = NULL;
}
