/*
 * vector.c
 *		The vector of the row that a scan of this backend came to last.
 *
 * A scan has the vector of the row that it returns in memory, where the executor
 * would have to fetch it from TOAST. Only the scan that came to a row last is
 * asked, only for that row, and only where the slot has the vector to the last
 * bit: every other case gets no answer, and the vector is fetched. Where the slot
 * has it rounded, the TOAST of the rows that come next is asked for: their vectors
 * will be wanted, too.
 *
 * The answer does not depend on who asks. A row that a scan came to is visible to
 * its snapshot, so its place in the table is not used again while the scan is
 * there, and its node is live: the place names one vector, whatever query, portal
 * or process of evaluation wants it.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/genam.h"
#include "access/relscan.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/toast_internals.h"
#include "distance/distance.h"
#include "executor/tuptable.h"
#include "scan/state.h"
#include "storage/bufmgr.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/*
 * Prefetching the TOAST of the rows that a scan returns next.
 *
 * A vector of more than 2 kB stands in several rows of the TOAST table, and the
 * executor finds them one after the other by that table's index. When it has
 * wanted the vector of one row, it will want those of the others. Their own
 * pages were asked for before (stream.c), so they can be read now, and tell
 * where the vectors are.
 */

#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* What is open while vectors are asked for. */
typedef struct Vectors
{
	IndexScanDesc scan;
	IndexFetchTableData *fetch; /* of the table */
	TupleTableSlot *slot;
	Relation	toast;			/* NULL before the first vector */
	Relation   *indexes;
	int			nindexes;
	IndexScanDesc parts;		/* of the TOAST table's index */
} Vectors;

/* Where the vector of a row is; false if it is not in TOAST or not seen. */
static bool
FindVector(Vectors *vectors, const ItemPointerData *tid,
		   struct varatt_external *where)
{
	AttrNumber	column = PipeannVectorColumn(vectors->scan->indexRelation);
	ItemPointerData at = *tid;
	bool		again = false;
	bool		dead = false;
	bool		isnull = true;
	Datum		value;

	if (!table_index_fetch_tuple(vectors->fetch, &at,
								 vectors->scan->xs_snapshot, vectors->slot,
								 &again, &dead))
		return false;
	value = slot_getattr(vectors->slot, column, &isnull);
	if (isnull || !VARATT_IS_EXTERNAL_ONDISK(DatumGetPointer(value)))
		return false;
	VARATT_EXTERNAL_GET_POINTER(*where, DatumGetPointer(value));
	return true;
}

static void
OpenToast(Vectors *vectors, Oid toast)
{
	int			valid;

	vectors->toast = table_open(toast, AccessShareLock);
	valid = toast_open_indexes(vectors->toast, AccessShareLock,
							   &vectors->indexes, &vectors->nindexes);
	vectors->parts = index_beginscan(vectors->toast, vectors->indexes[valid],
									 vectors->scan->xs_snapshot,
#if PG_VERSION_NUM >= 180000
									 NULL,
#endif
									 1, 0);
}

/* Ask for the pages of a vector's parts. (They are hardly ever on two.) */
static void
AskForVector(Vectors *vectors, const struct varatt_external *where)
{
	BlockNumber last = InvalidBlockNumber;
	ItemPointer part;
	ScanKeyData key;

	if (vectors->toast == NULL)
		OpenToast(vectors, where->va_toastrelid);
	else if (RelationGetRelid(vectors->toast) != where->va_toastrelid)
		return;
	ScanKeyInit(&key, (AttrNumber) 1, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(where->va_valueid));
	index_rescan(vectors->parts, &key, 1, NULL, 0);
	while ((part = index_getnext_tid(vectors->parts,
									 ForwardScanDirection)) != NULL)
	{
		BlockNumber block = ItemPointerGetBlockNumber(part);

		if (block != last)
			(void) PrefetchBuffer(vectors->toast, MAIN_FORKNUM, block);
		last = block;
	}
}

static void
CloseToast(Vectors *vectors)
{
	if (vectors->toast == NULL)
		return;
	index_endscan(vectors->parts);
	toast_close_indexes(vectors->indexes, vectors->nindexes,
						AccessShareLock);
	table_close(vectors->toast, AccessShareLock);
}

static void
AskForVectors(IndexScanDesc scan, PipeannSearch *search,
			  const PipeannResult **results, int n)
{
	Vectors		vectors = {.scan = scan};

	vectors.fetch = table_index_fetch_begin(scan->heapRelation);
	vectors.slot = table_slot_create(scan->heapRelation, NULL);
	for (int i = 0; i < n; i++)
	{
		PipeannRowList list = PipeannSearchRows(search, results[i]);
		struct varatt_external where;

		CHECK_FOR_INTERRUPTS();
		if (list.n > 0 && FindVector(&vectors, &list.rows->tid, &where))
			AskForVector(&vectors, &where);
	}
	CloseToast(&vectors);
	ExecDropSingleTupleTableSlot(vectors.slot);
	table_index_fetch_end(vectors.fetch);
}

/*
 * The vector of the row returned last is wanted from TOAST. Ask for
 * that of the rows whose pages were asked for.
 *
 * Of rows that share a vector the first one's is asked for.
 */
static void
PrefetchVectors(PipeannPrefetch *prefetch, IndexScanDesc scan,
				PipeannSearch *search)
{
	const PipeannResult *results[PIPEANN_MAX_PREFETCH];
	uint64		taken = prefetch->taken + 1;
	int			known = (int) (Max(prefetch->vectors_until, taken) - taken);
	MemoryContext context;
	MemoryContext old;
	int			n;

	if (prefetch->until <= taken || prefetch->vectors_until >= prefetch->until)
		return;
	n = PipeannSearchNext(search, results, (int) (prefetch->until - taken));
	prefetch->vectors_until = prefetch->until;
	if (n <= known)
		return;
	context = AllocSetContextCreate(CurrentMemoryContext,
									"pipeann vectors ahead",
									ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(context);
	AskForVectors(scan, search, results + known, n - known);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* NULL while the scan that was asked last looks for its next row. */
static PipeannScan *current = NULL;

/* May run while a transaction aborts: no error, no allocation. */
static void
Forget(void *arg)
{
	if (current == arg)
		current = NULL;
}

/*
 * Begin a scan. When CurrentMemoryContext is reset or deleted the row is
 * forgotten.
 */
void
PipeannScanRowBegin(PipeannScan *state)
{
	state->forget.func = Forget;
	state->forget.arg = state;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &state->forget);
}

/* A scan has come to its next row, or looks for it (NULL). */
void
PipeannScanRowIs(PipeannScan *state)
{
	current = state;
}

/* The heap has put the row's own place where the scan put that of its chain. */
static bool
IsAt(const PipeannScan *state, Oid table, AttrNumber column, ItemPointer tid)
{
	return state != NULL && PipeannIsHeap(state->scan->heapRelation) &&
		RelationGetRelid(state->scan->heapRelation) == table &&
		PipeannVectorColumn(state->view.index) == column &&
		ItemPointerEquals(&state->scan->xs_heaptid, tid);
}

/* The slot of a row, if it has the vector exactly. */
static const PipeannSlot *
ExactSlot(const PipeannScan *state)
{
	const PipeannSlot *slot =
		state->view.meta.layout.storage == PIPEANN_FLOAT2 ? NULL :
		PipeannSearchLoadSlot(state->search, state->chain.owner);

	return slot != NULL && PipeannSlotIsNode(slot) &&
		!(slot->flags & PIPEANN_SLOT_OUT_OF_LINE) ? slot : NULL;
}

/*
 * The vector in a column of the row at a place of a table, in
 * CurrentMemoryContext. NULL unless that row is the one that a scan of this backend
 * returned last, by an index on the column, and the scan has the vector at hand to
 * the last bit.
 */
PipeannVector *
PipeannScanVector(Oid table, AttrNumber column, ItemPointer tid)
{
	const PipeannLayout *l;
	const PipeannSlot *slot;
	PipeannVector *vector;
	Size		size;
	bool		exact;

	if (!IsAt(current, table, column, tid))
		return NULL;
	slot = ExactSlot(current);
	if (slot == NULL)
	{
		PrefetchVectors(&current->prefetch, current->scan,
						current->search);
		return NULL;
	}
	l = &current->view.meta.layout;
	size = offsetof(PipeannVector, x) + mul_size(l->dim, sizeof(float));
	vector = palloc(size);
	SET_VARSIZE(vector, size);
	vector->dim = l->dim;
	vector->unused = 0;
	exact = PipeannExactVector(&current->view.meta, slot, vector->x);
	if (current->replica)
		PipeannCheckPacking(&current->view);
	if (exact)
		return vector;
	pfree(vector);
	return NULL;
}
