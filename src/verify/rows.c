/*
 * rows.c
 *		A node's rows: their overflow slots, their TIDs against each other and against the
 *		table, and what of them its attribute code covers.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "catalog/index.h"
#include "common/hashfn.h"
#include "distance/sparse.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "verify/verify.h"

/*
 * Overflow slots: chains of TIDs and of out-of-line vectors and rows.
 *
 * A chain is walked from its node. Slots without a node, which a crash between
 * writing and linking them leaves, are no error.
 */

/* Called for each overflow slot of a chain, in order. */
typedef void (*ChainVisit) (uint32 id, const PipeannSlot *ext, void *arg);

/* What is wrong with an overflow slot of a chain of parts, or of rows. */
static const char *
ExtProblem(const PipeannLayout *l, const PipeannSlot *ext, bool parts)
{
	if (!(ext->flags & PIPEANN_SLOT_USED) || !(ext->flags & PIPEANN_SLOT_EXT))
		return "refers to an overflow slot that is none";
	if (parts && (ext->length == 0 || ext->length > PipeannExtBytes(l) ||
				  ext->ntids != 0))
		return "has an overflow slot with an invalid part of a vector or row";
	if (!parts && (ext->length != 0 || ext->ntids > PipeannExtRows(l, ext).n))
		return "has an overflow slot with an invalid number of TIDs";
	return NULL;
}

/*
 * Walk a chain from slot id on: of rows, or if left > 0 of so many bytes of a
 * vector or row. wrong_length is what to say if it has more or less. The numbers of
 * slots with rows fall from each to the next, unless the chain leads back.
 */
static const char *
Walk(const PipeannCheck *check, uint32 id, Size left, const char *wrong_length,
	 ChainVisit visit, void *arg)
{
	const PipeannLayout *l = &check->view.meta.layout;
	PipeannSlot *ext = PipeannSlotAlloc(l);
	bool		parts = left > 0;
	bool		begun = false;
	uint32		number = 0;
	const char *problem = NULL;

	while (id != PIPEANN_INVALID_ID)
	{
		CHECK_FOR_INTERRUPTS();
		if (!PipeannCheckReadSlot(check, id, ext))
			problem = "refers to an overflow slot that does not exist";
		else
			problem = ExtProblem(l, ext, parts);
		if (problem == NULL && parts && ext->length > left)
			problem = wrong_length;
		if (problem == NULL && !parts && begun &&
			(int32) (ext->number - number) >= 0)
			problem = "has a cycle in its overflow chain";
		if (problem != NULL)
			break;
		begun = true;
		number = ext->number;
		left -= parts ? ext->length : 0;
		visit(id, ext, arg);
		id = parts ? ext->ext_vec : ext->ext_tids;
	}
	pfree(ext);
	return problem == NULL && left > 0 ? wrong_length : problem;
}

/*
 * Walk a node's chain of TIDs, or of its out-of-line vector. Returns NULL, or
 * what is wrong with the chain.
 */
static const char *
WalkChain(const PipeannCheck *check, const PipeannSlot *node, bool vector,
		  ChainVisit visit, void *arg)
{
	return Walk(check, vector ? node->ext_vec : node->ext_tids,
				vector ? Max(PipeannOutOfLineBytes(&check->view.meta.layout, node),
							 sizeof(float)) : 0,
				"has an out-of-line vector of the wrong length", visit, arg);
}

#define ROW_LENGTH "has a row of the wrong length"

/* Called for a row; returns whether others are to be visited. */
typedef bool (*RowVisit) (const PipeannRow *row, void *arg);

typedef struct RowWalk
{
	const PipeannLayout *layout;
	RowVisit visit;
	void	   *arg;
	bool		stopped;
} RowWalk;

static void
VisitRowsOf(uint32 id, const PipeannSlot *slot, void *arg)
{
	RowWalk    *walk = arg;
	PipeannRowList list = PipeannAnyRows(walk->layout, slot);
	const PipeannRow *row = list.rows;

	for (uint32 i = 0; i < list.n && !walk->stopped;
		 i++, row = PipeannRowNext(walk->layout, row))
		walk->stopped = !walk->visit(row, walk->arg);
}

/* Visit the rows of a node, as far as its chain is sound. */
static void
VisitRows(const PipeannCheck *check, const PipeannSlot *node, RowVisit visit,
		  void *arg)
{
	RowWalk		walk = {&check->view.meta.layout, visit, arg, false};

	VisitRowsOf(PIPEANN_INVALID_ID, node, &walk);
	if (!walk.stopped && node->ext_tids != PIPEANN_INVALID_ID)
		(void) WalkChain(check, node, false, VisitRowsOf, &walk);
}

/* The parts of rows that are out of line. */
typedef struct RowParts
{
	const PipeannCheck *check;
	ChainVisit	visit;
	void	   *arg;
	const char *problem;
} RowParts;

static bool
WalkPartsOf(const PipeannRow *row, void *arg)
{
	RowParts   *parts = arg;
	const PipeannLayout *l = &parts->check->view.meta.layout;

	if (PipeannRowIsOutOfLine(l, row))
		parts->problem = Walk(parts->check, PipeannRowFirstPart(row),
							  Max(PipeannRowLength(l, row), 1), ROW_LENGTH,
							  parts->visit, parts->arg);
	return parts->problem == NULL;
}

/* Walk along the parts of all rows of a node; returns what is wrong. */
static const char *
WalkRowParts(const PipeannCheck *check, const PipeannSlot *node,
			 ChainVisit visit, void *arg)
{
	RowParts	parts = {check, visit, arg, NULL};

	if (check->view.meta.layout.row_bytes > 0)
		VisitRows(check, node, WalkPartsOf, &parts);
	return parts.problem;
}

/* Walk along all chains of a node; returns what is wrong. */
static const char *
WalkAll(const PipeannCheck *check, const PipeannSlot *slot, ChainVisit visit,
		void *arg)
{
	bool		out_of_line = (slot->flags & PIPEANN_SLOT_OUT_OF_LINE) != 0;
	const char *problem = NULL;

	if (out_of_line && slot->ext_vec == PIPEANN_INVALID_ID)
		return "has an out-of-line vector without a chain";
	if (!out_of_line && slot->error == 0 && slot->ext_vec != PIPEANN_INVALID_ID)
		return "has the chain of an out-of-line vector, but none";
	if (slot->ext_tids != PIPEANN_INVALID_ID)
		problem = WalkChain(check, slot, false, visit, arg);
	if (problem == NULL && out_of_line)
		problem = WalkChain(check, slot, true, visit, arg);
	return problem != NULL ? problem : WalkRowParts(check, slot, visit, arg);
}

static void
NoteChain(uint32 id, const PipeannSlot *ext, void *arg)
{
	((PipeannCheck *) arg)->chains = true;
}

/* What is wrong with the chains of a node, or NULL. */
const char *
PipeannCheckChains(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	return WalkAll(check, slot, NoteChain, check);
}

static void
TakePart(uint32 id, const PipeannSlot *ext, void *arg)
{
	char	  **next = arg;

	memcpy(*next, PipeannSlotBody(ext), ext->length);
	*next += ext->length;
}

/*
 * Read the whole vector of an out-of-line node; false if its chain is being changed.
 */
bool
PipeannCheckOutOfLineVector(const PipeannCheck *check, const PipeannSlot *node,
							float *x)
{
	const PipeannLayout *l = &check->view.meta.layout;
	bool		is_sparse = PipeannIsSparse(l->storage);
	char	   *next = is_sparse ? PipeannSparseBehind(x) : (char *) x;

	if (WalkChain(check, node, true, TakePart, &next) != NULL)
		return false;
	if (is_sparse)
	{
		PipeannSparseTrim(PipeannSparseBehind(x), PipeannOutOfLineBytes(l, node) / sizeof(float));
		PipeannVectorToFloat(PipeannSparseBehind(x), PipeannTypes[l->type].storage, l->dim, x);
	}
	return true;
}

/*
 * The whole of a row that is out of line, or NULL if its chain is being changed.
 */
static PipeannRow *
ReadRow(const PipeannCheck *check, const PipeannRow *row)
{
	uint32		length = PipeannRowLength(&check->view.meta.layout, row);
	PipeannRow *whole = palloc0(Max(length, sizeof(PipeannRow)));
	char	   *next = (char *) whole;

	if (Walk(check, PipeannRowFirstPart(row), Max(length, 1), ROW_LENGTH,
			 TakePart, &next) == NULL && (whole->info & PIPEANN_ROW_SIZE) == length)
		return whole;
	pfree(whole);
	return NULL;
}

/* State of the walk along one node's chain. */
typedef struct Owner
{
	PipeannCheck *check;
	uint32		id;
} Owner;

static void
Own(uint32 id, const PipeannSlot *ext, void *arg)
{
	Owner	   *owner = arg;
	PipeannCheck *check = owner->check;

	if (id >= check->size)
		return;
	if (check->seen[id] & PIPEANN_SEEN_OWNED)
	{
		check->shared = true;
		check->shared_by = owner->id;
	}
	check->seen[id] |= PIPEANN_SEEN_OWNED;
}

static void
OwnChains(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	Owner		owner = {check, id};

	if (PipeannSlotIsNode(slot))
		(void) WalkAll(check, slot, Own, &owner);
}

/*
 * Errors if an overflow slot is in two chains.
 *
 * A slot that went from one chain to another during a sweep was met in both.
 * That does not happen in every sweep.
 */
void
PipeannCheckOwners(PipeannCheck *check)
{
	if (!check->chains)
		return;
	for (int i = 0; i < PIPEANN_CHECK_TRIES; i++)
	{
		check->shared = false;
		for (uint32 id = 0; id < check->size; id++)
			check->seen[id] &= ~PIPEANN_SEEN_OWNED;
		PipeannCheckSweep(check, OwnChains);
		if (!check->shared)
			return;
		PipeannCheckPause();
	}
	PipeannCheckReport(check, check->shared_by,
					   "has an overflow slot that is another node's too");
}

/* Rows that our snapshot sees. */

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

	VisitRows(check, slot, LookAt, &visibility);
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
		whole = ReadRow(check, row);
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

	VisitRows(check, slot, CoverRow, &covering);
	return covering.covers;
}

/*
 * The index's TIDs against each other and against the table.
 *
 * TIDs are gathered with the hash of their node's vector, as many at a time as
 * maintenance_work_mem holds: those of a range of the table's blocks. The
 * table's rows that our snapshot sees are looked up among them. VACUUM cannot
 * remove these rows.
 */

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
		row = ReadRow(check, row);
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
					  (int) PipeannVectorBytes(storage, dim));
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
	x = palloc0(mul_size(PipeannFloats(l->storage, l->dim), sizeof(float)));
	if (out_of_line)
		(void) PipeannCheckOutOfLineVector(check, slot, x);
	else
		PipeannVectorUnpack(PipeannSlotVector(l, slot), l->storage, l->dim, x);
	if (PipeannIsSparse(l->storage))
		return PipeannHashOf(l->storage, x, l->dim);
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
	VisitRows(check, slot, AddTid, set);
	MemoryContextReset(check->scratch);
}

static int
CompareTids(const void *a, const void *b)
{
	uint64		x = ((const TidEntry *) a)->tid;
	uint64		y = ((const TidEntry *) b)->tid;

	return x < y ? -1 : x > y;
}

static int
CompareEntries(const void *a, const void *b)
{
	uint32		x = ((const TidEntry *) a)->id;
	uint32		y = ((const TidEntry *) b)->id;
	int			by_tid = CompareTids(a, b);

	return by_tid != 0 ? by_tid : x < y ? -1 : x > y;
}

static void
FillSet(PipeannCheck *check)
{
	PipeannTidSet *set = check->set;

	set->n = 0;
	PipeannCheckRefresh(check);
	PipeannCheckSweep(check, TakeTids);
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
		VisitRows(check, slot, CountTid, &count);
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
	TidEntry	key = {.tid = TidKey(tid)};

	return set->n == 0 ? NULL :
		bsearch(&key, set->entries, set->n, sizeof(TidEntry), CompareTids);
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

	if (PipeannIsSparse(l->storage) ||
		(PipeannIsRounded(l) && !rounded && !out_of_line))
		return PipeannHashOf(l->storage, x, l->dim);
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

	if (isnull[check->columns.vector])
		return;
	old = MemoryContextSwitchTo(check->scratch);
	x = PipeannDatumElements(l->type, values[check->columns.vector], l->dim);
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
