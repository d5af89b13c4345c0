/*
 * only.c
 *		Index-only scans: rows from the index alone, where the visibility map
 *		says that the table need not be asked.
 *
 * nbtree keeps a pin on the page of the rows that it returns, and VACUUM waits
 * for that: or else it might remove a row, which is dead to the snapshot, and
 * say that its page of the table is all-visible, before the executor looks at
 * the visibility map, which would then take the row for a live one. A search
 * has copies of pages and no pins. So the scan looks first whether the page is
 * all-visible, and then whether VACUUM has begun to remove rows from the index
 * since the scan began (PipeannMeta.removals). If it has not, the row was in
 * the index while its page was all-visible. In all other cases the scan looks
 * at the table itself. What the executor does then cannot be wrong.
 *
 * The vector is handed out as an expanded object that reads it when somebody
 * looks at it. For an order by distance the planner wants it to be in the index,
 * but hardly a query looks at it. A vector that the index has in half precision,
 * or whose zeroes may have lost their sign, comes from the table: a user never gets
 * another one than the row has.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/visibilitymap.h"
#include "distance/distance.h"
#include "scan/state.h"
#include "storage/bufmgr.h"
#include "utils/expandeddatum.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* A vector that is read when it is wanted. */
typedef struct LateVector
{
	ExpandedObjectHeader header;
	PipeannOnly *only;
	uint32		id;				/* of its node */
	ItemPointerData tid;		/* of its row */
} LateVector;

struct PipeannOnly
{
	IndexScanDesc scan;
	const PipeannIndexView *view;
	MemoryContext row;			/* of the row taken last */
	PipeannColumns columns;
	Buffer		map;			/* of the visibility map */
	bool		sure;			/* VACUUM has removed no row meanwhile */
	bool		looked;			/* a vector was read from the table */
	LateVector	vector;
};

/* ---------- the vector ---------- */

/* False if the node does not have it to the last bit. */
static bool
ReadFromNode(const PipeannIndexView *view, uint32 id, float *x)
{
	const PipeannLayout *l = &view->meta.layout;
	PipeannSlot *slot;
	bool		found;
	bool		exact = true;

	if (l->storage == PIPEANN_FLOAT2)
		return false;
	slot = PipeannSlotAlloc(l);
	PipeannSlotCopy(view, id, slot);
	found = PipeannSlotIsLive(slot);
	if (found && (slot->flags & PIPEANN_SLOT_OUT_OF_LINE))
		found = PipeannChainVector(view, id, slot, x);
	else if (found)
		exact = PipeannExactVector(&view->meta, slot, x);
	pfree(slot);
	PipeannCheckPacking(view);
	if (!found)
		PipeannRowError(view->index, id);
	return exact;
}

/*
 * The vector of a row that the snapshot sees, from its node or the table.
 */
static void
ReadVector(const LateVector *late, float *x)
{
	PipeannOnly *only = late->only;
	if (!ReadFromNode(only->view, late->id, x))
	{
		only->looked = true;
		if (!PipeannTableVector(only->scan, &late->tid,
								only->view->meta.layout.dim, x))
			PipeannRowError(only->view->index, late->id);
	}
}

static Size
FlatSize(ExpandedObjectHeader *header)
{
	const LateVector *late = (const LateVector *) header;

	return offsetof(PipeannVector, x) +
		mul_size(late->only->view->meta.layout.dim, sizeof(float));
}

/*
 * The caller's memory may be of a kind from which nothing is freed (that of a
 * sort from PostgreSQL 17 on).
 */
static void
Flatten(ExpandedObjectHeader *header, void *result, Size size)
{
	const LateVector *late = (const LateVector *) header;
	MemoryContext old = MemoryContextSwitchTo(late->only->row);
	PipeannVector *vector = result;

	memset(vector, 0, size);
	SET_VARSIZE(vector, size);
	vector->dim = late->only->view->meta.layout.dim;
	ReadVector(late, vector->x);
	MemoryContextSwitchTo(old);
}

static const ExpandedObjectMethods late_methods = {FlatSize, Flatten};

/* ---------- rows ---------- */

/*
 * Begin an index-only scan, before the search, in CurrentMemoryContext. End
 * releases what the context does not.
 */
PipeannOnly *
PipeannOnlyBegin(IndexScanDesc scan, const PipeannIndexView *view)
{
	PipeannOnly *only = palloc0(sizeof(PipeannOnly));

	only->scan = scan;
	only->view = view;
	only->row = AllocSetContextCreate(CurrentMemoryContext,
									  "pipeann index-only row",
									  ALLOCSET_DEFAULT_SIZES);
	only->columns = PipeannIndexColumns(view->index);
	only->map = InvalidBuffer;
	only->sure = view->meta.removals % 2 == 0;
	only->vector.only = only;
	EOH_init_header(&only->vector.header, &late_methods, CurrentMemoryContext);
	scan->xs_hitupdesc = RelationGetDescr(view->index);
	return only;
}

void
PipeannOnlyEnd(PipeannOnly *only)
{
	if (BufferIsValid(only->map))
		ReleaseBuffer(only->map);
	only->map = InvalidBuffer;
	only->scan->xs_hitup = NULL;
}

static bool
IsAllVisible(PipeannOnly *only, BlockNumber block)
{
	return only->sure &&
		VM_ALL_VISIBLE(only->scan->heapRelation, block, &only->map);
}

/*
 * Whether a page of the table will not be read for its rows, as far as can be
 * told: all see them, and vectors of earlier ones were not read there.
 */
bool
PipeannOnlySkips(PipeannOnly *only, BlockNumber block)
{
	return !only->looked && IsAllVisible(only, block);
}

/* The order of the two questions matters: see above. */
static bool
IsSurelyVisible(PipeannOnly *only, const ItemPointerData *tid)
{
	if (!IsAllVisible(only, ItemPointerGetBlockNumber(tid)))
		return false;
	only->sure = PipeannMetaRemovals(only->view->index) ==
		only->view->meta.removals;
	return only->sure;
}

/*
 * heap_form_tuple() would flatten an expanded object. It copies an indirect
 * pointer, which has the same size.
 */
static HeapTuple
FormTuple(PipeannOnly *only, Datum *values, bool *isnull)
{
	TupleDesc	desc = only->scan->xs_hitupdesc;
	int			vector = only->columns.vector;
	char		pointer[EXPANDED_POINTER_SIZE];
	HeapTuple	tuple;
	bool		null;

	StaticAssertStmt(sizeof(varatt_indirect) == sizeof(varatt_expanded),
					 "an expanded object's pointer does not fit");
	memcpy(pointer, only->vector.header.eoh_ro_ptr, sizeof(pointer));
	SET_VARTAG_EXTERNAL(pointer, VARTAG_INDIRECT);
	values[vector] = PointerGetDatum(pointer);
	isnull[vector] = false;
	tuple = heap_form_tuple(desc, values, isnull);
	SET_VARTAG_EXTERNAL(DatumGetPointer(heap_getattr(tuple, vector + 1, desc,
													 &null)),
						VARTAG_EXPANDED_RO);
	return tuple;
}

/*
 * Whether the scan's snapshot sees a row; sets *dead if nobody does any more.
 */
static bool
TableSees(IndexScanDesc scan, const ItemPointerData *tid, bool *dead)
{
	ItemPointerData at = *tid;

	*dead = false;
	return table_index_fetch_tuple_check(scan->heapRelation, &at,
										 scan->xs_snapshot, dead);
}

/*
 * Whether the snapshot sees a row of node id; then sets the scan's xs_hitup, for
 * as long as no other row is taken. Sets *dead if nobody sees the row any more.
 */
bool
PipeannOnlyTake(PipeannOnly *only, uint32 id, const PipeannRow *row,
				bool *dead)
{
	int			vector = only->columns.vector;
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	MemoryContext old;

	*dead = false;
	if (!IsSurelyVisible(only, &row->tid) &&
		!TableSees(only->scan, &row->tid, dead))
		return false;
	MemoryContextReset(only->row);
	old = MemoryContextSwitchTo(only->row);
	only->vector.id = id;
	only->vector.tid = row->tid;
	if (PipeannRowIsOutOfLine(&only->view->meta.layout, row))
	{
		row = PipeannReadRow(only->view, row);
		PipeannCheckPacking(only->view);
	}
	if (!PipeannDeformRow(only->columns.values, row, values, isnull))
		PipeannRowError(only->view->index, id);
	for (int i = only->columns.values->natts; i > vector; i--)
	{
		values[i] = values[i - 1];
		isnull[i] = isnull[i - 1];
	}
	only->scan->xs_hitup = FormTuple(only, values, isnull);
	MemoryContextSwitchTo(old);
	return true;
}

/*
 * Whether an index-only scan can return a column: one can only if there are
 * others than the vector, and that can be read from the table.
 */
bool
pipeanncanreturn(Relation index, int attno)
{
	(void) attno;
	return PipeannIndexHasValues(index) &&
		PipeannVectorColumn(index) != InvalidAttrNumber;
}
