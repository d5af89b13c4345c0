/*
 * rows.c
 *		Checks of a node's rows: their overflow slots, their TIDs against each
 *		other and against the table, and whether its attribute code covers them.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "catalog/index.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_type_d.h"
#include "common/hashfn.h"
#include "common/pg_prng.h"
#include "distance/sparse.h"
#include "lib/bloomfilter.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/tuplesort.h"
#include "verify/verify.h"

/*
 * Overflow slots: chains of TIDs and of out-of-line vectors and rows.
 *
 * A chain is walked from its node. Slots without a node, which a crash between
 * writing and linking them leaves, are no error.
 */
typedef struct Walk
{
	const PipeannCheck *check;
	uint32		next;			/* slot, or INVALID_ID */
	Size		left;			/* bytes of a vector or row that are to come */
	const char *wrong_length;	/* the problem if there are more or fewer; NULL in a
								 * chain of rows */
	uint32		id;				/* of the slot that was read last */
	PipeannSlot *ext;			/* this slot; NULL before the first and after the last */
	const char *problem;		/* what is wrong with the chain, or NULL */
} Walk;

static Walk
WalkRows(const PipeannCheck *check, const PipeannSlot *node)
{
	return (Walk) {.check = check,.next = node->ext_tids};
}

static Walk
WalkVector(const PipeannCheck *check, const PipeannSlot *node)
{
	return (Walk) {.check = check,.next = node->ext_vec,
		.left = Max(PipeannOutOfLineBytes(&check->view.meta.layout, node), sizeof(float)),
		.wrong_length = "has an out-of-line vector of the wrong length"};
}

static Walk
WalkRow(const PipeannCheck *check, const PipeannRow *row)
{
	return (Walk) {.check = check,.next = PipeannRowFirstPart(row),
		.left = Max(PipeannRowLength(&check->view.meta.layout, row), 1),
		.wrong_length = "has a row of the wrong length"};
}

/*
 * Read the next slot; NULL at the end of the chain, and if the chain is not sound. Numbers
 * of slots with rows fall, which a cycle would break.
 */
static const PipeannSlot *
NextExt(Walk *walk)
{
	const PipeannLayout *l = &walk->check->view.meta.layout;
	bool		parts = walk->wrong_length != NULL;
	bool		begun = walk->ext != NULL;
	uint32		number = begun ? walk->ext->number : 0;
	PipeannSlot *ext = walk->ext;

	CHECK_FOR_INTERRUPTS();
	walk->id = walk->next;
	if (!begun && walk->id != PIPEANN_INVALID_ID)
		ext = PipeannSlotAlloc(l);
	if (walk->id == PIPEANN_INVALID_ID)
		walk->problem = walk->left > 0 ? walk->wrong_length : NULL;
	else if (!PipeannCheckReadSlot(walk->check, walk->id, ext))
		walk->problem = "refers to an overflow slot that does not exist";
	else if (!(ext->flags & PIPEANN_SLOT_USED) || !(ext->flags & PIPEANN_SLOT_EXT))
		walk->problem = "refers to an overflow slot that is none";
	else if (parts && (ext->length == 0 || ext->length > PipeannExtBytes(l) || ext->ntids != 0))
		walk->problem = "has an overflow slot with an invalid part of a vector or row";
	else if (!parts && (ext->length != 0 || ext->ntids > PipeannExtRows(l, ext).n))
		walk->problem = "has an overflow slot with an invalid number of TIDs";
	else if (parts && ext->length > walk->left)
		walk->problem = walk->wrong_length;
	else if (!parts && begun && (int32) (ext->number - number) >= 0)
		walk->problem = "has a cycle in its overflow chain";
	if (walk->id == PIPEANN_INVALID_ID || walk->problem != NULL)
	{
		if (ext != NULL)
			pfree(ext);
		return walk->ext = NULL;
	}
	walk->left -= parts ? ext->length : 0;
	walk->next = parts ? ext->ext_vec : ext->ext_tids;
	return walk->ext = ext;
}

/* Copy the bytes of a vector or row; false if its chain is being changed. */
static bool
ReadParts(Walk walk, char *to)
{
	const PipeannSlot *ext;

	while ((ext = NextExt(&walk)) != NULL)
	{
		memcpy(to, PipeannSlotBody(ext), ext->length);
		to += ext->length;
	}
	return walk.problem == NULL;
}

/* The rows of a node, as far as its chain is sound. */
typedef struct Rows
{
	Walk		walk;
	PipeannRowList list;		/* of the slot reached */
	uint32		at;
	const PipeannRow *row;
} Rows;

static Rows
RowsOf(const PipeannCheck *check, const PipeannSlot *node)
{
	return (Rows) {.walk = WalkRows(check, node),
		.list = PipeannAnyRows(&check->view.meta.layout, node)};
}

static const PipeannRow *
NextRow(Rows *rows)
{
	const PipeannLayout *l = &rows->walk.check->view.meta.layout;

	while (rows->at == rows->list.n)
	{
		const PipeannSlot *ext = NextExt(&rows->walk);

		if (ext == NULL)
			return NULL;
		rows->list = PipeannAnyRows(l, ext);
		rows->at = 0;
	}
	rows->row = rows->at++ == 0 ? rows->list.rows : PipeannRowNext(l, rows->row);
	return rows->row;
}

/* Note the slots of a node's chain; returns what is wrong with it. */
static const char *
NoteChain(PipeannCheck *check, uint32 node, Walk walk)
{
	while (NextExt(&walk) != NULL)
	{
		check->chains = true;
		if (!check->owning || walk.id >= check->size)
			continue;
		if (check->seen[walk.id] & PIPEANN_SEEN_OWNED)
			check->shared_by = node;
		check->seen[walk.id] |= PIPEANN_SEEN_OWNED;
	}
	return walk.problem;
}

/* What is wrong with the chains of a node, or NULL. */
const char *
PipeannCheckChains(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	const PipeannLayout *l = &check->view.meta.layout;
	bool		out_of_line = (slot->flags & PIPEANN_SLOT_OUT_OF_LINE) != 0;
	Rows		rows = RowsOf(check, slot);
	const PipeannRow *row;
	const char *problem;

	if (out_of_line && slot->ext_vec == PIPEANN_INVALID_ID)
		return "has an out-of-line vector without a chain";
	if (!out_of_line && slot->error == 0 && slot->ext_vec != PIPEANN_INVALID_ID)
		return "has the chain of an out-of-line vector, but none";
	problem = NoteChain(check, id, WalkRows(check, slot));
	if (problem == NULL && out_of_line)
		problem = NoteChain(check, id, WalkVector(check, slot));
	while (l->row_bytes > 0 && problem == NULL && (row = NextRow(&rows)) != NULL)
		if (PipeannRowIsOutOfLine(l, row))
			problem = NoteChain(check, id, WalkRow(check, row));
	return problem;
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

	if (!ReadParts(WalkVector(check, node), is_sparse ? PipeannSparseBehind(x) : (char *) x))
		return false;
	if (is_sparse)
	{
		PipeannSparseTrim(PipeannSparseBehind(x), PipeannOutOfLineBytes(l, node) / sizeof(float));
		PipeannVectorToFloat(PipeannSparseBehind(x), PipeannTypes[l->type].storage, l->dim, x);
	}
	return true;
}

/* Read the whole of an out-of-line row, or return NULL if its chain is being changed. */
static PipeannRow *
ReadRow(const PipeannCheck *check, const PipeannRow *row)
{
	uint32		length = PipeannRowLength(&check->view.meta.layout, row);
	PipeannRow *whole = palloc0(Max(length, sizeof(PipeannRow)));

	if (ReadParts(WalkRow(check, row), (char *) whole) &&
		(whole->info & PIPEANN_ROW_SIZE) == length)
		return whole;
	pfree(whole);
	return NULL;
}

static void
OwnChains(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	if (PipeannSlotIsNode(slot))
		(void) PipeannCheckChains(check, id, slot);
}

/*
 * Errors if an overflow slot is in two chains.
 *
 * A slot that moved from one chain to another during a sweep is seen in both,
 * but not in every sweep; so sweeps are repeated.
 */
void
PipeannCheckOwners(PipeannCheck *check)
{
	if (!check->chains)
		return;
	for (int i = 0; i < PIPEANN_CHECK_TRIES; i++)
	{
		check->shared_by = PIPEANN_INVALID_ID;
		for (uint32 id = 0; id < check->size; id++)
			check->seen[id] &= ~PIPEANN_SEEN_OWNED;
		check->owning = true;
		PipeannCheckSweep(check, OwnChains);
		check->owning = false;
		if (check->shared_by == PIPEANN_INVALID_ID)
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

/*
 * Whether a node is stable: it has a row that our snapshot sees, so its insert
 * ended before the check began, and all invariants must hold for it.
 */
bool
PipeannCheckIsStable(const PipeannCheck *check, const PipeannSlot *slot)
{
	Rows		rows = RowsOf(check, slot);
	const PipeannRow *row;

	while ((row = NextRow(&rows)) != NULL)
		if (IsVisible(check, row))
			return true;
	return false;
}

/*
 * Whether an attribute code covers all rows of a node that our snapshot sees.
 * (The code is written after a row has joined the node.)
 */
bool
PipeannCheckCovers(PipeannCheck *check, uint32 id, const PipeannSlot *slot,
				   const uint8 *code)
{
	Rows		rows = RowsOf(check, slot);
	const PipeannRow *row;

	while ((row = NextRow(&rows)) != NULL)
	{
		const PipeannRow *whole = row;
		uint8		own[PIPEANN_MAX_ATTRIBUTE_BYTES];

		if (PipeannRowIsOutOfLine(&check->view.meta.layout, row))
			whole = ReadRow(check, row);
		if (whole == NULL)
			continue;
		PipeannAttributesEncode(check->attributes, id, whole, own);
		if (!PipeannAttributesCover(check->attributes, code, own) && IsVisible(check, row))
			return false;
	}
	return true;
}

/*
 * Checks of the index's TIDs against each other and against the table.
 *
 * A sweep sorts the TIDs and puts them in a Bloom filter, each with the hashes of
 * its node's vector and of its values. The table's rows that our snapshot sees are
 * looked up there, as amcheck does. (VACUUM cannot remove these rows.) Rows that are
 * not in it, and TIDs that occur twice, are suspects, which further sweeps look for.
 */

/* The most suspects. */
#define MAX_SUSPECTS 64

/* A row in the index or the table: an element of the Bloom filter. */
typedef struct Content
{
	uint64		tid;			/* block << 16 | offset */
	uint32		vector;			/* hash of the node's vector */
	uint32		values;			/* hash of the row's values, 0 if it has none */
} Content;

typedef struct Suspect
{
	Content		wanted;			/* as in the table; only the TID if that occurs twice */
	uint32		rounded;		/* hash of the rounded vector, which may be found instead */
	bool		in_table;
	int			count;			/* times that a sweep found the TID */
	uint32		first;			/* node in which it was found first */
	uint32		last;			/* node in which it was found last */
	Content		found;			/* what the last node has */
} Suspect;

struct PipeannTidSet
{
	Tuplesortstate *sort;		/* TIDs; NULL when suspects are looked for */
	bloom_filter *filter;		/* of Contents; NULL without heapallindexed */
	uint32		id;				/* node that the sweep has reached */
	uint32		hash;			/* hash of this node's vector */
	int			nsuspects;
	Suspect		suspects[MAX_SUSPECTS];
	char	   *vector;			/* a row's vector in the form of a slot */
};

static uint64
TidKey(const ItemPointerData *tid)
{
	return (uint64) ItemPointerGetBlockNumberNoCheck(tid) << 16 |
		ItemPointerGetOffsetNumberNoCheck(tid);
}

static void
AddSuspect(PipeannTidSet *set, Suspect suspect)
{
	if (set->nsuspects < MAX_SUSPECTS)
		set->suspects[set->nsuspects++] = suspect;
}

/* A hash of values, the same whether they are compressed or not. */
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

	if (check->columns.values == NULL || check->set->filter == NULL)
		return 0;
	old = MemoryContextSwitchTo(check->scratch);
	if (PipeannRowIsOutOfLine(&check->view.meta.layout, row))
		row = ReadRow(check, row);
	if (row != NULL && PipeannDeformRow(check->columns.values, check->columns.values->natts, row, NULL,
										values, isnull))
		hash = HashValues(check->columns.values, values, isnull);
	MemoryContextSwitchTo(old);
	return hash;
}

/*
 * The hash of a vector in this storage. All zeroes count as positive, as bytes have no
 * others. Changes x.
 */
static uint32
HashVector(const PipeannCheck *check, float *x, PipeannStorage storage)
{
	int			dim = check->view.meta.layout.dim;
	char	   *form = check->set->vector;

	for (int i = 0; i < dim; i++)
		x[i] += 0.0f;
	PipeannVectorFromFloat(x, storage, dim, form);
	return hash_bytes((const unsigned char *) form,
					  (int) PipeannVectorBytes(storage, dim));
}

/*
 * The hash of a node's vector: for an out-of-line node, of the exact vector in
 * its chain (if that is being changed, our snapshot sees no row of the node);
 * for a rounded one, the hash that was stored with it.
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

/* Note a row of the index, or look for it among suspects. */
static void
TakeRow(const PipeannCheck *check, const PipeannRow *row)
{
	PipeannTidSet *set = check->set;
	Content		content = {TidKey(&row->tid), set->hash, HashValuesOf(check, row)};

	if (set->sort != NULL)
		tuplesort_putdatum(set->sort, Int64GetDatum((int64) content.tid), false);
	if (set->sort != NULL && set->filter != NULL)
		bloom_add_element(set->filter, (unsigned char *) &content, sizeof(content));
	for (int i = 0; set->sort == NULL && i < set->nsuspects; i++)
	{
		Suspect    *suspect = &set->suspects[i];

		if (suspect->wanted.tid != content.tid)
			continue;
		suspect->first = suspect->count++ == 0 ? set->id : suspect->first;
		suspect->last = set->id;
		suspect->found = content;
	}
}

static void
TakeRows(PipeannCheck *check, uint32 id, const PipeannSlot *slot)
{
	PipeannTidSet *set = check->set;
	Rows		rows = RowsOf(check, slot);
	const PipeannRow *row;
	MemoryContext old;

	if (!PipeannSlotIsNode(slot))
		return;
	old = MemoryContextSwitchTo(check->scratch);
	set->id = id;
	set->hash = set->filter != NULL ? HashNode(check, slot) : 0;
	MemoryContextSwitchTo(old);
	while ((row = NextRow(&rows)) != NULL)
		TakeRow(check, row);
	MemoryContextReset(check->scratch);
}

/* Suspect TIDs that occur twice. */
static void
SuspectTwice(PipeannTidSet *set)
{
	uint64		last = 0;		/* not a valid TID */
	Datum		tid;
	bool		isnull;

	tuplesort_performsort(set->sort);
#if PG_VERSION_NUM >= 160000
	while (tuplesort_getdatum(set->sort, true, false, &tid, &isnull, NULL))
#else
	while (tuplesort_getdatum(set->sort, true, &tid, &isnull, NULL))
#endif
	{
		if ((uint64) DatumGetInt64(tid) == last)
			AddSuspect(set, (Suspect) {.wanted.tid = last});
		last = (uint64) DatumGetInt64(tid);
	}
	tuplesort_end(set->sort);
	set->sort = NULL;
}

/*
 * The hash of a row's vector, to compare with HashNode(). If rounded is set, that of
 * the rounded vector, which HashNode() gives if the node has no hash stored: a row
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

/* The hash of the values of a table's row, except the vector. */
static uint32
HashOthers(const PipeannCheck *check, const Datum *all, const bool *all_null)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];

	PipeannWithoutVector(&check->columns, all, all_null, values, isnull);
	return HashValues(check->columns.values, values, isnull);
}

static bool
IsInFilter(const PipeannTidSet *set, Content content)
{
	return !bloom_lacks_element(set->filter, (unsigned char *) &content, sizeof(content));
}

static void
LookUpRow(Relation index, ItemPointer tid, Datum *values, bool *isnull,
		  bool tuple_is_alive, void *arg)
{
	PipeannCheck *check = arg;
	const PipeannLayout *l = &check->view.meta.layout;
	MemoryContext old;
	const float *x;

	if (isnull[check->columns.vector])
		return;
	old = MemoryContextSwitchTo(check->scratch);
	x = PipeannDatumElements(l->type, values[check->columns.vector], l->dim);
	if (PipeannIsIndexable(l->metric, PipeannNorm(x, l->dim)))
	{
		Content		row = {TidKey(tid), HashRow(check, x, false), 0};
		Content		rounded = row;

		if (check->columns.values != NULL)
			row.values = rounded.values = HashOthers(check, values, isnull);
		if (!IsInFilter(check->set, row))
		{
			rounded.vector = HashRow(check, x, true);
			if (!IsInFilter(check->set, rounded))
				AddSuspect(check->set, (Suspect) {
					.wanted = row,.rounded = rounded.vector,.in_table = true
				});
		}
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(check->scratch);
}

/* Look up the table's rows as CREATE INDEX CONCURRENTLY would scan them, with our snapshot. */
static void
LookUpRows(PipeannCheck *check)
{
	IndexInfo  *info = BuildIndexInfo(check->view.index);
	TableScanDesc scan = table_beginscan_strat(check->heap, check->snapshot,
											   0, NULL, true, true);

	info->ii_Concurrent = true;
	table_index_build_scan(check->heap, check->view.index, info, true, false,
						   LookUpRow, check, scan);
}

static bool
HasVector(const Suspect *suspect)
{
	return suspect->found.vector == suspect->wanted.vector ||
		suspect->found.vector == suspect->rounded;
}

static void
ReportSuspect(const PipeannCheck *check, const Suspect *suspect)
{
	const char *table = RelationGetRelationName(check->heap);
	BlockNumber block = (BlockNumber) (suspect->wanted.tid >> 16);
	OffsetNumber offset = (OffsetNumber) (suspect->wanted.tid & 0xFFFF);

	if (!suspect->in_table)
		PipeannCheckReport(check, suspect->last,
						   psprintf("has heap TID (%u,%u), which node %u has too",
									block, offset, suspect->first));
	if (suspect->count > 0)
		PipeannCheckReport(check, suspect->last,
						   psprintf("has %s than its row (%u,%u) in table \"%s\"",
									HasVector(suspect) ? "other values" : "another vector",
									block, offset, table));
	PipeannCheckReport(check, PIPEANN_INVALID_ID,
					   psprintf("row (%u,%u) of table \"%s\" is not in it",
								block, offset, table));
}

/*
 * A row that the snapshot sees was in the index before the check began, but
 * its TID may have moved to a slot that the sweep had passed. A TID that was
 * found twice may be another row's by then. Neither happens in every sweep.
 */
static void
CheckSuspects(PipeannCheck *check)
{
	PipeannTidSet *set = check->set;

	for (int i = 1; set->nsuspects > 0 && i <= PIPEANN_CHECK_TRIES; i++)
	{
		int			n = set->nsuspects;

		PipeannCheckPause();
		PipeannCheckRefresh(check);
		for (int j = 0; j < n; j++)
			set->suspects[j].count = 0;
		PipeannCheckSweep(check, TakeRows);
		set->nsuspects = 0;
		for (int j = 0; j < n; j++)
		{
			const Suspect *s = &set->suspects[j];

			if (s->in_table ? s->count > 0 && HasVector(s) &&
				s->found.values == s->wanted.values : s->count < 2)
				continue;
			if (i == PIPEANN_CHECK_TRIES)
				ReportSuspect(check, s);
			AddSuspect(set, *s);
		}
	}
}

/*
 * Errors unless each TID is in the index once and, with heapallindexed, each
 * row that the snapshot sees is in a node of its vector, with its values.
 */
void
PipeannCheckTids(PipeannCheck *check, bool heapallindexed)
{
	PipeannTidSet set = {0};

	set.sort = tuplesort_begin_datum(INT8OID, Int8LessOperator, InvalidOid, false,
									 maintenance_work_mem / 2, NULL, TUPLESORT_NONE);
	if (heapallindexed)
		set.filter = bloom_create(check->tids, maintenance_work_mem / 2,
								  pg_prng_uint64(&pg_global_prng_state));
	set.vector = palloc(mul_size(check->view.meta.layout.dim, sizeof(float)));
	check->set = &set;
	PipeannCheckRefresh(check);
	PipeannCheckSweep(check, TakeRows);
	SuspectTwice(&set);
	if (heapallindexed)
		LookUpRows(check);
	CheckSuspects(check);
	if (heapallindexed)
		bloom_free(set.filter);
	check->set = NULL;
}
